//! The producing end over a memfd: what `target_core_user` is in the kernel, in user space.
//!
//! One lock per LUN guards the ring ([`ring`]); the data area and the pool have their own. Callbacks and destructors of
//! the caller's values run with none of them held.

mod allocate;
mod create;
mod pages;
mod ring;
mod table;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

pub use self::allocate::{Allocate, AllocateError};
pub use self::create::{CreateError, Options, create};
use self::ring::Ring;
use crate::abi::SENSE_LEN;
use crate::area::Area;
use crate::pool::CommandPages;
use crate::shm::allocated_bytes;
use crate::{Corrupt, Extent, Kick, Nexus, Pool, Reserve, TaskManagementKind};

/// The producing end. Clones share it; every method may be called from any thread.
#[derive(Debug)]
pub struct Producer<T> {
    shared: Arc<Shared<T>>,
}

impl<T> Clone for Producer<T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

struct Shared<T> {
    ring: Mutex<Ring<T>>,
    area: Arc<Area>,
    file: Arc<File>,
}

impl<T> std::fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("area", &self.area.size()).finish_non_exhaustive()
    }
}

/// `cmd_id` of the ring entry, unique among the commands in flight; never 0.
pub type CommandId = u16;

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
    /// The entry can never fit: larger than half the command area, a CDB that is empty or beyond 260 bytes, more
    /// pieces than an entry may carry, or data of another LUN.
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
    pub sense: Option<[u8; SENSE_LEN]>,
    /// Bytes the command transfers by its CDB when that is not the whole buffer: less is an underflow, more (this
    /// producer accepts it, the kernel ignores it) an overflow. Carried in `rsp.read_len` with `READ_LEN`.
    ///
    /// Data-in may be sent of the first `transfer` bytes, or of the whole buffer with GOOD and `None`. With any other
    /// status and `None` the buffer holds nothing for the initiator.
    pub transfer: Option<u32>,
    /// The consumer does not know this kind of entry.
    pub unknown_op: bool,
    /// The command's blocks; dropping frees them.
    pub data: Extent,
}

/// Figures of one LUN. Bytes where not said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
    /// The pool that the ring takes its memory from.
    pub fn pool(&self) -> Pool {
        Pool { shared: Arc::clone(&self.shared.area.pool) }
    }

    /// Bytes of one block: what extents are made of, and where [`Extent::append`] can join them.
    pub fn block(&self) -> usize {
        self.shared.area.block()
    }

    /// Blocks for `len` bytes, now or not at all. Contents are undefined to the caller but never another LUN's.
    pub fn try_allocate(&self, len: usize) -> Result<Extent, AllocateError> {
        allocate::now(&self.shared.area, len)
    }

    /// Like [`Self::try_allocate`], paid from a reserve: succeeds whenever the area itself has room.
    ///
    /// Blocks that the reserve does not cover are asked of the pool like any other.
    pub fn allocate_from(&self, reserve: &mut Reserve, len: usize) -> Result<Extent, AllocateError> {
        allocate::reserved(&self.shared.area, reserve, len)
    }

    /// Waits for blocks, FIFO within this LUN and fair between LUNs. Dropping the future gives up the place, which it
    /// takes when it is first polled.
    pub fn allocate(&self, len: usize) -> Allocate {
        Allocate::new(Arc::clone(&self.shared.area), len)
    }

    /// Writes one entry; it is seen by the consumer after [`Self::publish`].
    pub fn push(&self, request: Request<'_, T>) -> Result<CommandId, Rejected<T>> {
        let Request { cdb, nexus, data, context } = request;
        if !data.is_of(&self.shared.area) {
            return Err(Rejected { reason: RejectedReason::TooLarge, data, context });
        }
        self.lock().push(&self.shared.area, cdb, nexus, data, context)
    }

    /// Writes a task-management notice for commands in flight; `false` when there is no room now.
    pub fn push_task_management(&self, kind: TaskManagementKind, ids: &[CommandId]) -> bool {
        self.lock().push_task_management(&self.shared.area, kind, ids)
    }

    /// Publishes everything pushed since the last call (head, Release).
    pub fn publish(&self) -> Kick {
        if self.lock().publish() { Kick::Needed } else { Kick::Unneeded }
    }

    /// Takes every answered command. `Err`: the consumer wrote nonsense; the ring is closed and every command in
    /// flight stays in flight (its blocks may still be written).
    ///
    /// Answers that were valid before the nonsense are delivered first. `each` may use this producer.
    pub fn reap(&self, mut each: impl FnMut(Completion<T>)) -> Result<usize, Corrupt> {
        let mut ring = self.lock();
        let (mut batch, result) = ring.reap();
        let wake = ring.room_wakers(result.is_err());
        drop(ring);
        wake.into_iter().for_each(Waker::wake);
        let count = batch.len();
        if count > 0 {
            batch.drain(..).for_each(&mut each);
            self.lock().keep_batch(batch);
        }
        result.map(|()| count)
    }

    /// Registers a waker for when room in the command area may have come up; `false` when there is room already (or
    /// the ring is closed, so that [`Self::push`] says so).
    pub fn wait_room(&self, waker: &Waker) -> bool {
        self.lock().wait_room(waker)
    }

    /// Figures for status and metrics.
    pub fn usage(&self) -> AreaUsage {
        let area = &self.shared.area;
        let (in_use, backed) = area.usage();
        let ring = self.lock();
        AreaUsage {
            data_area: area.size(),
            backed,
            in_use,
            command_area_backed: ring.pages_backed(),
            in_flight: ring.in_flight(),
            waiting: area.pool.waiting(area.tenant),
        }
    }

    /// Why the ring is closed, when it is.
    pub fn corrupt(&self) -> Option<Corrupt> {
        self.lock().closed().cloned()
    }

    /// The memfd, to hand to another process that opens the consuming end ([`Consumer::open`](crate::Consumer::open)).
    /// Only one consumer may work on a ring.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.file.as_fd()
    }

    /// Bytes of memory that the ring's file holds now, as the kernel counts them.
    pub fn resident(&self) -> std::io::Result<u64> {
        allocated_bytes(&self.shared.file)
    }

    /// The shared memory itself, to play a hostile peer.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn mapping(&self) -> Arc<crate::shm::Mapping> {
        Arc::clone(&self.shared.area.mapping)
    }

    fn lock(&self) -> MutexGuard<'_, Ring<T>> {
        self.shared.lock()
    }
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, Ring<T>> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Send> CommandPages for Shared<T> {
    fn quiet_for(&self) -> Option<Duration> {
        self.lock().quiet_for()
    }

    fn shrink(&self, only_quiet: bool) -> u64 {
        let freed = self.lock().shrink(&self.area, only_quiet);
        if freed > 0 {
            self.area.pool.dispatch();
        }
        freed
    }
}

impl<T> Drop for Shared<T> {
    /// Blocks of commands that were never answered stay taken: the consumer may still write them.
    fn drop(&mut self) {
        let ring = self.ring.get_mut().unwrap_or_else(PoisonError::into_inner);
        ring.strand();
    }
}
