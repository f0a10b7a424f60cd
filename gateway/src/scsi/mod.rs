//! The SCSI device server: bytes in, steps out. Pure: no I/O, no async, no ring, no Ceph.

mod step;

pub use step::{DataIn, Io, Memory, Reply, Step};
