//! The SCSI device server: bytes in, steps out. Pure: no I/O, no async, no ring, no Ceph.

mod step;

pub use step::{Data, DataIn, Direction, Finished, Io, Memory, Reply, Step};
