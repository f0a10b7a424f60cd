//! What can be wrong with a ring, on either end: every cause with where it was found, what stood there and who wrote it.
//!
//! Offsets `at` are bytes from the start of the command ring. The first cause found closes that end of the ring for good:
//! take this LUN down, and only this one. None of them can be caused by an initiator.

/// Why a ring is corrupt.
///
/// The causes up to [`Corrupt::DuplicateId`] are found by the consumer and caused by the producer (the kernel, or this
/// process' portal); those from [`Corrupt::Tail`] on are found by the producer and caused by the consumer. Either may
/// also be caused by any other process that has the shared memory mapped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the fields are the figures of the message")]
pub enum Corrupt {
    /// `cmd_head` is no position in the ring.
    #[error(
        "the producer set cmd_head to {head:#x}, which is no entry boundary in a ring of {size:#x} bytes"
    )]
    Head { head: u32, size: u32 },
    /// `cmd_head` moved back, or overtook the tail.
    #[error(
        "the producer set cmd_head to {head:#x}, out of the room between {consumed:#x} and the tail {tail:#x}"
    )]
    HeadOvertakes { head: u32, consumed: u32, tail: u32 },
    /// An entry's length does not fit what was published.
    #[error(
        "the producer wrote an entry of {len} bytes at {at:#x}, where {available} are published in one piece"
    )]
    EntryLength { at: u32, len: u32, available: u32 },
    /// A command entry has no room for a response, or is larger than half the ring.
    #[error("the producer wrote a command entry of {len} bytes at {at:#x}; {least} to {most} are possible")]
    CommandLength { at: u32, len: u32, least: u32, most: u32 },
    /// More iovecs than the entry holds or than any command has.
    #[error("the producer wrote a command at {at:#x} with {count} iovecs, where {most} are possible")]
    IovecCount { at: u32, count: u64, most: u32 },
    /// An iovec leaves the data area.
    #[error(
        "the producer wrote iovec {index} of the command at {at:#x} outside the data area: {base:#x}+{len:#x}"
    )]
    Iovec { at: u32, index: u32, base: u64, len: u64 },
    /// The CDB is not behind the iovecs of its own entry.
    #[error("the producer put the CDB of the command at {at:#x} outside its entry: cdb_off {cdb_off:#x}")]
    CdbOffset { at: u32, cdb_off: u64 },
    /// A task-management entry does not hold the ids that it counts.
    #[error("the producer wrote a task-management entry of {len} bytes at {at:#x} for {count} ids")]
    TaskManagement { at: u32, len: u32, count: u32 },
    /// Two commands in flight have one id.
    #[error("the producer used id {id} at {at:#x} while a command of that id is in flight")]
    DuplicateId { at: u32, id: u16 },

    /// `cmd_tail` is no position in the ring.
    #[error(
        "the consumer set cmd_tail to {tail:#x}, which is no entry boundary in a ring of {size:#x} bytes"
    )]
    Tail { tail: u32, size: u32 },
    /// `cmd_tail` moved back, or passed what was published.
    #[error(
        "the consumer set cmd_tail to {tail:#x}, out of the entries between {reaped:#x} and the head {head:#x}"
    )]
    TailOvertakes { tail: u32, reaped: u32, head: u32 },
    /// `cmd_tail` lies inside an entry.
    #[error("the consumer set cmd_tail to {tail:#x}, inside the entry of {len} bytes at {at:#x}")]
    TailInsideEntry { tail: u32, at: u32, len: u32 },
    /// A response names a command that is not in flight: never sent, or answered before.
    #[error("the consumer answered id {id} at {at:#x}, which is not in flight (answered twice?)")]
    UnknownId { at: u32, id: u16 },
}
