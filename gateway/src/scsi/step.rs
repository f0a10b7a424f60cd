//! The vocabulary between the engine and the lane that drives it.

use std::ops::Range;

use smallvec::SmallVec;

/// What one command needs next.
#[derive(Debug)]
pub enum Step<Continuation> {
    /// The command is answered.
    Done(Reply),
    /// Carry out `io` (all of it may be in flight together), then resume with the results in the same order.
    Io {
        /// What to do.
        io: SmallVec<[Io; 1]>,
        /// Byte range that this command must hold alone from before `io` starts until it is answered: the lane starts
        /// it when no other write to the range is in flight and holds new ones back. Asked for once, at the first step.
        exclusive: Option<Range<u64>>,
        /// Where to go on.
        then: Continuation,
    },
}

/// The answer to one command.
#[derive(Debug)]
pub struct Reply {
    /// SAM status.
    pub status: u8,
    /// Sense data with CHECK CONDITION.
    pub sense: SmallVec<[u8; 32]>,
    /// What goes to the initiator.
    pub data_in: DataIn,
    /// Bytes the CDB calls for, in either direction, when that may differ from the buffer the initiator offered.
    pub transfer: Option<usize>,
}

/// Data-in of a reply.
#[derive(Debug)]
pub enum DataIn {
    /// None.
    None,
    /// Parameter data, already truncated to the allocation length; the lane copies it in (as far as the buffer goes).
    Bytes(Vec<u8>),
    /// The disk has put it into the command's buffer.
    InPlace,
}

/// Memory of a read or a write.
#[derive(Debug)]
pub enum Memory {
    /// A part of the command's own buffer; nothing is copied.
    Command {
        /// First byte.
        offset: usize,
        /// Bytes.
        len: usize,
    },
    /// The engine's own; comes back (filled, for a read) with the result.
    Owned(Vec<u8>),
}

/// One request to the disk, in bytes. Mirrors [`crate::disk::Request`], with the command's buffer left symbolic.
#[derive(Debug)]
#[expect(missing_docs, reason = "as in disk::Request")]
pub enum Io {
    Read { offset: u64, into: Memory },
    Write { offset: u64, from: Memory, fua: bool },
    WriteSame { offset: u64, len: u64, pattern: Vec<u8>, fua: bool },
    WriteZeroes { offset: u64, len: u64, deallocate: bool },
    Discard { offset: u64, len: u64 },
    CompareAndWrite { offset: u64, compare: Vec<u8>, write: Vec<u8>, fua: bool },
    Flush,
    Allocation { offset: u64, len: u64, limit: usize },
}
