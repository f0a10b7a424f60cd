//! The vocabulary between the engine and the lane that drives it.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use ring::Nexus;
use smallvec::SmallVec;

use super::alua;
use super::background::Milestone;
use super::opcode::Flow;
use crate::{disk, units};

/// The command's own buffer, as the lane shows it. Offsets beyond [`Data::len`] are never asked for.
pub trait Data {
    /// Bytes in the buffer: data-out that has come, or room for data-in.
    fn len(&self) -> usize;

    /// True when there is no byte.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Which way the transport was asked to carry the buffer, where that is known. A WRITE whose buffer was declared as
    /// room for data-in has no data: without this the engine would store whatever the room last held.
    fn direction(&self) -> Direction {
        Direction::Unknown
    }

    /// Copies from `offset` on; for parameter lists and patterns, never for the payload of READ or WRITE.
    fn copy_out(&self, offset: usize, into: &mut [u8]);

    /// Compares from `offset` on; `Err` is the index in `with` of the first byte that differs.
    fn compare(&self, offset: usize, with: &[u8]) -> Result<(), usize>;
}

/// Which way a buffer is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The transport does not say (the kernel's ring).
    Unknown,
    /// From the device server to the initiator.
    In,
    /// From the initiator to the device server.
    Out,
}

/// How one [`Io`] ended.
#[derive(Debug)]
pub struct Finished {
    /// As the disk completed it.
    pub result: Result<disk::Outcome, disk::Error>,
    /// The [`Memory::Owned`] of the request, if it had one.
    pub buffer: Option<Vec<u8>>,
}

/// What one command needs next.
#[derive(Debug)]
pub enum Step<Continuation> {
    /// The command is answered.
    Done(Reply),
    /// Carry out `io` (all of it may be in flight together), then resume with the results in the same order.
    Io {
        /// What to do; nothing, where the command waits for its `exclusive` range only.
        io: SmallVec<[Io; 1]>,
        /// Byte range that this command must hold alone from before `io` starts until it is answered: the lane starts
        /// it when no other write to the range is in flight and holds new ones back; reads too, where the first step
        /// writes. Asked for once, at the first step.
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

impl Reply {
    /// GOOD; `transfer` as in [`Reply::transfer`].
    pub(super) fn good(transfer: Option<usize>) -> Self {
        Self { status: status::GOOD, sense: SmallVec::new(), data_in: DataIn::None, transfer }
    }

    /// A status that has no sense data, by the command's data flow.
    pub(super) fn bare(status: u8, flow: Flow) -> Self {
        let transfer = if flow == Flow::Out { None } else { Some(0) };
        Self { status, ..Self::good(transfer) }
    }

    /// GOOD with parameter data, cut to the allocation length (SPC-4, ALLOCATION LENGTH).
    pub(super) fn parameter_data(mut bytes: Vec<u8>, allocation: usize) -> Self {
        bytes.truncate(allocation);
        Self { transfer: Some(bytes.len()), data_in: DataIn::Bytes(bytes), ..Self::good(None) }
    }
}

/// Status codes (SAM-5).
pub mod status {
    /// GOOD.
    pub const GOOD: u8 = 0x00;
    /// CHECK CONDITION.
    pub const CHECK_CONDITION: u8 = 0x02;
    /// BUSY.
    pub const BUSY: u8 = 0x08;
    /// RESERVATION CONFLICT; never with sense data.
    pub const RESERVATION_CONFLICT: u8 = 0x18;
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
    /// The disk has put the first `offset` bytes into the command's buffer; the lane copies `bytes` in behind them. Only
    /// where the initiator's buffer ends within a block.
    Tail {
        /// Bytes in place.
        offset: usize,
        /// What follows them.
        bytes: Vec<u8>,
    },
}

/// Memory of a read or a write.
#[derive(Debug)]
pub enum Memory {
    /// A part of the command's own buffer; nothing is copied.
    Command {
        /// First byte in the buffer.
        offset: usize,
        /// Bytes; a multiple of the block size.
        len: usize,
    },
    /// The engine's own; comes back (filled, for a read) with the result.
    Owned(Vec<u8>),
}

/// One request to the disk, in bytes. Mirrors [`crate::disk::Request`], with the command's buffer left symbolic.
#[derive(Debug)]
#[expect(missing_docs, reason = "as in disk::Request")]
pub enum Io {
    Read {
        offset: u64,
        into: Memory,
    },
    Write {
        offset: u64,
        from: Memory,
        fua: bool,
    },
    WriteAtomic {
        offset: u64,
        from: Memory,
        fua: bool,
    },
    WriteSame {
        offset: u64,
        len: u64,
        pattern: Vec<u8>,
        fua: bool,
    },
    WriteZeroes {
        offset: u64,
        len: u64,
        deallocate: bool,
    },
    Discard {
        offset: u64,
        len: u64,
    },
    CompareAndWrite {
        offset: u64,
        compare: Vec<u8>,
        write: Vec<u8>,
        fua: bool,
    },
    Flush,
    Allocation {
        offset: u64,
        len: u64,
        limit: usize,
    },
    /// Not the disk's: for the [`alua::Source`] of the unit.
    SetTargetPortGroups(Box<[alua::Wish]>),
    /// Not the disk's: the lane stores the unit's reservations.
    SaveReservations(Box<SaveReservations>),
    /// Not the disk's: the lane ends other commands, or waits for them.
    EndCommands(Box<EndCommands>),
    Usage,
    Note(Option<Vec<u8>>),
    /// Not the disk's: ends when the unit's background operation ([`super::Background`]) has come so far.
    Background(Milestone),
    /// For another LUN, at whose door the lane leaves it.
    Visit(Box<Away>),
}

impl Io {
    /// The bytes of the unit's own disk that it is about; `None` where it is about none, or none in particular.
    pub fn range(&self) -> Option<Range<u64>> {
        let length = |memory: &Memory| match memory {
            Memory::Command { len, .. } => *len as u64,
            Memory::Owned(bytes) => bytes.len() as u64,
        };
        let (offset, len) = match self {
            Self::Read { offset, into } => (*offset, length(into)),
            Self::Write { offset, from, .. } | Self::WriteAtomic { offset, from, .. } => {
                (*offset, length(from))
            }
            Self::WriteSame { offset, len, .. }
            | Self::WriteZeroes { offset, len, .. }
            | Self::Discard { offset, len } => (*offset, *len),
            Self::CompareAndWrite { offset, compare, .. } => (*offset, compare.len() as u64),
            Self::Flush
            | Self::Allocation { .. }
            | Self::Usage
            | Self::Note(_)
            | Self::Background(_)
            | Self::SaveReservations(_)
            | Self::EndCommands(_)
            | Self::SetTargetPortGroups(_)
            | Self::Visit(_) => return None,
        };
        Some(offset..offset.saturating_add(len))
    }

    /// The part of [`Io::range`] that it changes.
    pub fn written(&self) -> Option<Range<u64>> {
        if matches!(self, Self::Read { .. }) { None } else { self.range() }
    }
}

/// The unit's reservations, to be stored in the place of an earlier state.
#[derive(Debug)]
pub struct SaveReservations {
    /// The number of the state they follow.
    pub expected: u64,
    /// What is stored.
    pub state: Vec<u8>,
    /// Filled in before the request is completed.
    pub outcome: Arc<OnceLock<Stored>>,
}

/// What became of a [`SaveReservations`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stored {
    /// Stored for good, under this number.
    Saved {
        /// The state's number.
        number: u64,
    },
    /// Another gateway was faster; this is stored.
    Changed {
        /// The state's number.
        number: u64,
        /// The state.
        state: Vec<u8>,
    },
    /// Not stored.
    Failed,
}

/// Other commands of the unit that have to end first.
#[derive(Debug)]
pub struct EndCommands {
    /// Whose.
    pub nexuses: Vec<Nexus>,
    /// Which, and how.
    pub how: Ending,
}

/// How commands end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All of them are aborted.
    Abort,
    /// Those that write come to their own end.
    AwaitWrites,
}

/// A request for another LUN.
#[derive(Debug)]
pub struct Away {
    /// Which.
    pub unit: Arc<units::Entry>,
    /// On whose behalf.
    pub nexus: Nexus,
    /// What.
    pub call: units::Call,
}
