//! rbdgate: RBD images (and local files) as iSCSI disks, from one process.
//!
//! # The life of one WRITE
//!
//! ```text
//!  1 ring::consumer   next()       head Acquire; snapshot the entry; validate   → Command{id, nexus, cdb, segments}
//!  2 lane::pump       turn()       one lane = one LUN; lanes share a few reactor threads
//!  3 scsi::cdb        parse()      one opcode table                              → Write{lba, blocks, fua}
//!  4 scsi::gate       admit()      unit attention → reservation → range
//!  5 scsi::transfer   write()                                                    → Step::Io(disk::Request::Write)
//!  6 lane::inflight   insert()     tag ↔ must-complete token
//!  7 disk::rbd        submit()     the segments are the buffer: nothing is copied
//!  8 rbd::aio         write()      rbd_aio_writev(iov)
//!       … OSDs …                   librbd thread
//!  9 rbd::ffi::callback            record errno, push the op on the lane's list, never block
//! 10 lane::pump       finish()     a batch of completions
//! 11 scsi::unit       resume()     → Response; errors → sense in one function (fault)
//! 12 ring::consumer   complete()   response into the slot at the published tail
//! 13 ring::consumer   commit()     tail Release once per batch → one kick
//! ```
//!
//! # Who may name whom
//!
//! `portal` names `ring` and never `scsi` or `disk`; `scsi` is pure and names only the block vocabulary of `disk`;
//! `lane` joins `ring`, `scsi` and `disk`; `config` names nothing; `supervisor` builds the whole from it.

pub mod admin;
pub mod cli;
pub mod cluster;
pub mod config;
pub mod control;
pub mod disk;
mod durable;
pub mod lane;
pub mod lio;
pub mod metrics;
pub mod names;
pub mod nexus;
pub mod portal;
pub mod reactor;
pub mod scsi;
pub mod secret;
pub mod status;
pub mod supervisor;
mod telemetry;
pub mod units;
