//! The SCSI device server (SPC-4, SBC-3): bytes in, steps out. Pure: no I/O, no async, no ring, no Ceph.
//!
//! ```text
//!  Unit::execute(cdb, nexus, data)
//!    opcode   find()    one row of one table: usage map, medium, data, attention, reservation, handler
//!    gate     admit()   unit attention → CDB → reservation → access state of the port → medium → write protection
//!    transfer, verify, compare, provision, capacity, inquiry, mode, …   the row's handler
//!  → Step::Done(Reply)                        answered
//!  → Step::Io { io, exclusive, then }         the lane carries the requests out …
//!  Unit::resume(then, results, data) → Step   … and comes back, until Done
//! ```
//!
//! Standards are cited by the name of the clause: its number differs from draft to draft.
//!
//! Invariants, whatever bytes a CDB or a parameter list holds:
//!
//! * a command ends in [`Step::Done`] after a number of steps that its CDB bounds;
//! * no request reaches beyond the disk's end or the command's buffer, and offsets and lengths are whole blocks;
//! * the engine's own memory for a command is bounded by `limits`, not by the initiator;
//! * parameter data is never longer than the allocation length;
//! * every CHECK CONDITION has sense data; errors of the store become sense data in `fault`, and nowhere else.

mod absent;
pub mod alua;
mod background;
mod buffer;
mod capacity;
mod cdb;
mod compare;
mod condition;
mod copy;
mod device;
mod fault;
mod gate;
mod identity;
mod inquiry;
mod limits;
mod log;
mod luns;
mod mode;
pub mod opcode;
mod provision;
mod reservation;
pub mod sense;
mod space;
mod step;
mod supported;
mod target_port_groups;
mod transfer;
mod unit;
mod verify;
mod vpd;
mod well_known;

#[cfg(test)]
mod tests;

pub use background::{Background, Milestone};
pub use copy::Rods;
pub use device::Continuation;
pub use identity::Identity;
pub use reservation::Unreadable;
pub use step::{
    Away, Data, DataIn, Direction, EndCommands, Ending, Finished, Io, Memory, Reply, SaveReservations, Step,
    Stored, status,
};
pub use unit::{Reset, Settings, Unit};
