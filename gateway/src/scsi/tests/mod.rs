//! The engine against a small disk in memory, one file per topic. Assertions cite the clause they hold it to.

mod bench;

mod absent;
mod alua;
mod atomic;
mod buffer;
mod capacity;
mod cdbs;
mod compare;
mod copy;
mod diagnostic;
mod faults;
mod format;
mod gate;
mod inquiry;
mod lists;
mod log;
mod mode;
mod properties;
mod provision;
mod removable;
mod reserve;
mod sanitize;
mod space;
mod supported;
mod transfer;
mod verify;

use bench::{Bench, cdb6, cdb10, cdb12, cdb16};

use super::sense::{self, Sense};
