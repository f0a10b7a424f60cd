//! The kernel's target (LIO) as a front end: what is made in configfs, and what the kernel tells over netlink.
//!
//! ```text
//!  configuration, open disks ──► wanted ──► object ─┐
//!                                                   ├─► plan ──► apply ──► kernel (configfs)
//!  kernel (configfs) ──────────► tree ──────────────┘
//!  kernel (netlink)  ──────────► netlink ──► answers for devices of ours only
//! ```
//!
//! Invariants: nothing is touched that is not ours ([`names`] says what is); a failure is reported for the object that it
//! concerns, and everything else is served; the same plan, made again after any failure in the middle, ends in what is wanted.
//! What the kernel has outlives the process: a gateway that ends takes nothing down.

pub mod device;
pub mod handshake;
pub mod names;
pub mod netlink;
pub mod plan;
pub mod sizing;
pub mod wanted;

mod apply;
mod kernel;
mod object;
#[cfg(test)]
mod simulated;
mod step;
#[cfg(test)]
mod tests;
mod tree;

pub use apply::{Outcome, apply};
pub use kernel::{Entry, EntryKind, Kernel, Real};
pub use object::Subject;
pub use step::{Action, Step};
pub use tree::Tree;
