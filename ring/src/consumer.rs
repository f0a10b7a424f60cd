//! The owning end: takes commands out of a ring, whoever produces into it, and answers each exactly once.

use smallvec::SmallVec;

use crate::{Kick, Nexus, Segments, TaskManagementKind};

/// The consuming end of one ring. Cursors: completed ≤ consumed ≤ head.
#[derive(Debug)]
pub struct Consumer {}

/// What [`Consumer::next`] found.
#[derive(Debug)]
pub enum Entry {
    /// A SCSI command.
    Command(Command),
    /// A task-management notice; wants no answer of its own.
    TaskManagement(TaskManagement),
}

/// A SCSI command: a must-complete token. Owns its CDB and iovecs and keeps the mapping alive.
///
/// Dropped without [`Consumer::complete`] it panics in tests (debug assertions) and is answered CHECK CONDITION otherwise.
#[must_use = "every command must be completed"]
#[derive(Debug)]
pub struct Command {}

impl Command {
    /// `cmd_id`.
    pub fn id(&self) -> u16 {
        todo!()
    }
    /// Who sent it; [`Nexus::UNKNOWN`] from the kernel.
    pub fn nexus(&self) -> Nexus {
        todo!()
    }
    /// The CDB with its full length by opcode (SPC-4 4.2.5), zero-padded by the ring's rounding.
    pub fn cdb(&self) -> &[u8] {
        todo!()
    }
    /// Its buffer: data-out or room for data-in.
    pub fn data(&self) -> &Segments {
        todo!()
    }
    /// Data-in of a bidirectional command.
    pub fn bidi_data(&self) -> &Segments {
        todo!()
    }
}

/// A notice that commands were aborted (`tcmu_tmr_entry`).
#[derive(Debug)]
pub struct TaskManagement {
    /// The function.
    pub kind: TaskManagementKind,
    /// `cmd_id`s of the commands it ends.
    pub ids: SmallVec<[u16; 8]>,
}

/// The answer to one command.
#[derive(Debug, Clone)]
pub struct Response {
    /// SAM status.
    pub status: u8,
    /// Bytes the command transfers by its CDB, in either direction: less than the buffer is a residual underflow, more
    /// an overflow. `None`: exactly the buffer. Of data-in, only the first `transfer` bytes of the buffer are valid.
    pub transfer: Option<usize>,
    /// Sense data (at most 96 bytes are carried) with CHECK CONDITION.
    pub sense: SmallVec<[u8; 32]>,
}

impl Response {
    /// GOOD with the whole buffer transferred (or none there).
    pub fn good() -> Self {
        Self { status: 0, transfer: None, sense: SmallVec::new() }
    }
    /// GOOD after transferring `len` bytes; see [`Response::transfer`].
    pub fn good_with(len: usize) -> Self {
        Self { status: 0, transfer: Some(len), sense: SmallVec::new() }
    }
    /// A status without sense (BUSY, RESERVATION CONFLICT, TASK ABORTED, …).
    pub fn status(status: u8) -> Self {
        Self { status, transfer: None, sense: SmallVec::new() }
    }
    /// CHECK CONDITION with sense data.
    pub fn check_condition(sense: &[u8]) -> Self {
        Self { status: 2, transfer: None, sense: SmallVec::from_slice(sense) }
    }
}

/// "Nothing to do" and "the peer is broken" are different answers.
#[derive(Debug, thiserror::Error)]
pub enum NextError {
    /// No entry is waiting.
    #[error("the ring is empty")]
    Empty,
    /// The producer wrote nonsense: take this LUN down, and only this one.
    #[error("the ring is corrupt")]
    Corrupt(#[source] Corrupt),
}

/// What is wrong with a ring.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("corrupt ring")]
pub struct Corrupt {}

impl Consumer {
    /// The next entry, as an owned snapshot; shared memory is not read again for it.
    pub fn next(&mut self) -> Result<Entry, NextError> {
        todo!()
    }
    /// Answers a command: writes into the slot at the private tail; seen by the producer after [`Self::commit`].
    pub fn complete(&mut self, _command: Command, _response: Response) {
        todo!()
    }
    /// Publishes everything completed since the last call (tail, Release).
    pub fn commit(&mut self) -> Kick {
        todo!()
    }
    /// Commands taken and not yet completed.
    pub fn outstanding(&self) -> usize {
        todo!()
    }
}
