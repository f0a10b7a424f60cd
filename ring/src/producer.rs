//! The producing end over a memfd: what `target_core_user` is in the kernel, in user space.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use crate::{Consumer, Corrupt, Extent, Kick, Nexus, Pool, Reserve, TaskManagementKind};

/// Sizes of one LUN's ring. All in bytes.
#[derive(Clone, Debug)]
pub struct Options {
    /// Mailbox and command ring together; default 8 MiB.
    pub command_area: usize,
    /// Address range reserved for data; default 1 GiB. Nothing is allocated at first.
    pub data_area: usize,
    /// Block size; a multiple of the page size; default one page.
    pub block: usize,
    /// Resident data-area bytes that an idle shrink leaves.
    pub floor: usize,
    /// The largest command expected; the pool keeps this much within reach of every LUN. Default 1 MiB.
    pub largest_command: usize,
    /// Back the whole data area at creation (what a fixed ring does; for comparison).
    pub preallocate: bool,
}

impl Default for Options {
    fn default() -> Self {
        todo!()
    }
}

/// Why a ring could not be made.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// An option is out of range; says which and what is accepted.
    #[error("{0}")]
    Option(String),
    /// The memfd or its mapping failed.
    #[error("shared memory")]
    Memory(#[source] std::io::Error),
}

/// A ring over a new sealed memfd: both ends.
pub fn create<T: Send>(_options: &Options, _pool: &Pool) -> Result<(Producer<T>, Consumer), CreateError> {
    todo!()
}

/// The producing end. Clones share it; every method may be called from any thread.
#[derive(Debug)]
pub struct Producer<T> {
    _context: std::marker::PhantomData<fn() -> T>,
}

impl<T> Clone for Producer<T> {
    fn clone(&self) -> Self {
        todo!()
    }
}

/// `cmd_id` of the ring entry, unique among the commands in flight; never 0.
pub type CommandId = u16;

/// Why no blocks were handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllocateError {
    /// More than the whole data area: never possible (INVALID FIELD IN CDB is the right answer).
    #[error("larger than the whole data area")]
    TooLarge,
    /// Not now: area or pool is used up, or others wait in front.
    #[error("the data area is used up")]
    Exhausted,
}

/// One command for the ring.
#[derive(Debug)]
pub struct Request<'a, T> {
    /// The CDB, 1 to 260 bytes.
    pub cdb: &'a [u8],
    /// Who sent it.
    pub nexus: Nexus,
    /// Data-out (filled) or room for data-in; empty for a command without data.
    pub data: Extent,
    /// Given back in the [`Completion`].
    pub context: T,
}

/// A request that was not queued, given back whole.
#[derive(Debug)]
pub struct Rejected<T> {
    /// Why.
    pub reason: RejectedReason,
    /// The request's data.
    pub data: Extent,
    /// The request's context.
    pub context: T,
}

/// Why a request was not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RejectedReason {
    /// The command area or the id space is full now; see [`Producer::wait_room`].
    #[error("the command area is full")]
    Full,
    /// The entry can never fit (larger than half the command area).
    #[error("the entry is larger than the command area allows")]
    TooLarge,
    /// The ring was found corrupt and is closed.
    #[error("the ring is closed")]
    Closed,
}

/// A command that the consumer has answered; its blocks are the producer's again.
#[derive(Debug)]
pub struct Completion<T> {
    /// The id it had.
    pub id: CommandId,
    /// The request's context.
    pub context: T,
    /// SAM status.
    pub status: u8,
    /// Sense data with CHECK CONDITION.
    pub sense: Option<[u8; 96]>,
    /// Bytes the command transfers by its CDB when that is not the whole buffer: less is an underflow, more (this
    /// producer accepts it, the kernel ignores it) an overflow. Carried in `rsp.read_len` with `READ_LEN`.
    pub transfer: Option<u32>,
    /// The consumer does not know this kind of entry.
    pub unknown_op: bool,
    /// The command's blocks; dropping frees them.
    pub data: Extent,
}

/// Figures of one LUN. Bytes where not said otherwise.
#[derive(Clone, Copy, Debug, Default)]
pub struct AreaUsage {
    /// Size of the data area.
    pub data_area: u64,
    /// Data-area bytes backed by memory.
    pub backed: u64,
    /// Data-area bytes held by commands.
    pub in_use: u64,
    /// Command-area bytes backed by memory.
    pub command_area_backed: u64,
    /// Commands in flight (count).
    pub in_flight: usize,
    /// Waiting allocations (count).
    pub waiting: usize,
}

impl<T: Send> Producer<T> {
    /// Blocks for `len` bytes, now or not at all. Contents are undefined to the caller but never another LUN's.
    pub fn try_allocate(&self, _len: usize) -> Result<Extent, AllocateError> {
        todo!()
    }
    /// Like [`Self::try_allocate`], paid from a reserve: succeeds whenever the area itself has room.
    pub fn allocate_from(&self, _reserve: &mut Reserve, _len: usize) -> Result<Extent, AllocateError> {
        todo!()
    }
    /// Waits for blocks, FIFO within this LUN and fair between LUNs. Dropping the future gives up the place.
    pub fn allocate(&self, _len: usize) -> Allocate {
        todo!()
    }
    /// Writes one entry; it is seen by the consumer after [`Self::publish`].
    pub fn push(&self, _request: Request<'_, T>) -> Result<CommandId, Rejected<T>> {
        todo!()
    }
    /// Writes a task-management notice for commands in flight; `false` when there is no room now.
    pub fn push_task_management(&self, _kind: TaskManagementKind, _ids: &[CommandId]) -> bool {
        todo!()
    }
    /// Publishes everything pushed since the last call (head, Release).
    pub fn publish(&self) -> Kick {
        todo!()
    }
    /// Takes every answered command. `Err`: the consumer wrote nonsense; the ring is closed and every command in
    /// flight stays in flight (its blocks may still be written).
    pub fn reap(&self, _each: impl FnMut(Completion<T>)) -> Result<usize, Corrupt> {
        todo!()
    }
    /// Registers a waker for when room in the command area may have come up; `false` when there is room already.
    pub fn wait_room(&self, _waker: &Waker) -> bool {
        todo!()
    }
    /// The pool it was created with.
    pub fn pool(&self) -> &Pool {
        todo!()
    }
    /// Figures for status and metrics.
    pub fn usage(&self) -> AreaUsage {
        todo!()
    }
}

/// Future of [`Producer::allocate`].
#[derive(Debug)]
pub struct Allocate {}

impl Future for Allocate {
    /// [`AllocateError::TooLarge`] is the only error.
    type Output = Result<Extent, AllocateError>;

    fn poll(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Self::Output> {
        todo!()
    }
}
