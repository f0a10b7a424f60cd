//! The data area of one LUN: a large range, blocks handed out as commands need them, memory taken on first use and given
//! back when idle.
//!
//! *Used* blocks belong to an [`Extent`]. *Backed* blocks have memory behind them; a freed block stays backed, and hot,
//! until the area is shrunk. The pool is charged for backed blocks. Lock order: area, then pool; never two areas.

mod bitmap;
mod wait;

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::Waker;
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use self::bitmap::Bitmap;
use crate::pool::{Pool, Reserve};
use crate::producer::AllocateError;
use crate::shm::{Extent, Mapping, Run, Runs};

pub use wait::Allocate;

/// Gives the command area's pages back when the ring is empty; known to the producer alone.
pub(crate) trait IdleCommands: Send + Sync {
    /// Returns the bytes given back.
    fn shrink(&self) -> u64;
}

/// One LUN's data area.
pub(crate) struct Area {
    mapping: Arc<Mapping>,
    data_off: usize,
    block: usize,
    blocks: usize,
    floor: usize,
    pool: Pool,
    id: u64,
    /// Something was asked of this LUN since the last look.
    active: AtomicBool,
    /// Commands on the ring; kept by the producer.
    pub(crate) in_flight: AtomicUsize,
    commands: OnceLock<Weak<dyn IdleCommands>>,
    state: Mutex<State>,
}

struct State {
    used: Bitmap,
    backed: Bitmap,
    idle_since: Option<Instant>,
    waiters: VecDeque<Waiter>,
    next_ticket: u64,
}

struct Waiter {
    ticket: u64,
    waker: Waker,
}

/// Why an attempt failed.
enum Shortage {
    /// The area has no room; only its own commands can make some.
    Area,
    /// The pool has no memory, or it belongs to others first. Bytes wanted.
    Pool(u64),
}

impl Area {
    pub(crate) fn new(
        mapping: Arc<Mapping>,
        data_off: usize,
        block: usize,
        floor: usize,
        pool: &Pool,
    ) -> Arc<Self> {
        let blocks = (mapping.len() - data_off) / block;
        let area = Arc::new(Self {
            mapping,
            data_off,
            block,
            blocks,
            floor,
            pool: pool.clone(),
            id: pool.next_id(),
            active: AtomicBool::new(false),
            in_flight: AtomicUsize::new(0),
            commands: OnceLock::new(),
            state: Mutex::new(State {
                used: Bitmap::new(blocks),
                backed: Bitmap::new(blocks),
                idle_since: None,
                waiters: VecDeque::new(),
                next_ticket: 0,
            }),
        });
        pool.join(&area);
        area
    }

    pub(crate) fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }

    /// Offset of the data area in the mapping.
    pub(crate) fn data_off(&self) -> usize {
        self.data_off
    }

    /// Bytes of a block.
    pub(crate) fn block(&self) -> usize {
        self.block
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    pub(crate) fn set_commands(&self, commands: Weak<dyn IdleCommands>) {
        // Set once, at creation.
        let _ = self.commands.set(commands);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// (bytes backed, bytes used, waiting allocations)
    pub(crate) fn figures(&self) -> (u64, u64, usize) {
        let state = self.lock();
        (
            (state.backed.count() * self.block) as u64,
            (state.used.count() * self.block) as u64,
            state.waiters.len(),
        )
    }

    /// Bytes of the whole area.
    pub(crate) fn size(&self) -> u64 {
        (self.blocks * self.block) as u64
    }

    /// Says that a command has come.
    pub(crate) fn touch(&self) {
        self.active.store(true, Ordering::Relaxed);
    }

    /// Blocks for `len` bytes, or `None` when the area or the pool could never hold them.
    fn blocks_for(&self, len: usize) -> Option<usize> {
        let blocks = len.div_ceil(self.block);
        let bytes = blocks.checked_mul(self.block)? as u64;
        (bytes <= self.pool.limit() && bytes <= self.size()).then_some(blocks)
    }

    /// Blocks now, or not at all. FIFO: refused while others wait.
    pub(crate) fn try_allocate(self: &Arc<Self>, len: usize) -> Result<Extent, AllocateError> {
        let count = self.blocks_for(len).ok_or(AllocateError::TooLarge)?;
        if count == 0 {
            return Ok(Extent::default());
        }
        if !self.lock().waiters.is_empty() {
            return Err(AllocateError::Exhausted);
        }
        self.attempt(count, len).map_err(|_shortage| AllocateError::Exhausted)
    }

    /// Like [`Self::try_allocate`], paid from a reserve as far as it goes.
    pub(crate) fn allocate_from(
        self: &Arc<Self>,
        reserve: &mut Reserve,
        len: usize,
    ) -> Result<Extent, AllocateError> {
        let count = self.blocks_for(len).ok_or(AllocateError::TooLarge)?;
        if count == 0 {
            return Ok(Extent::default());
        }
        let bytes = (count * self.block) as u64;
        if reserve.remaining() as u64 >= bytes {
            let mut state = self.lock();
            if let Some(runs) = state.find(count) {
                let fresh = runs.iter().map(|run| state.backed.clear_in(run)).sum::<usize>() * self.block;
                reserve.spend(bytes, fresh as u64);
                return Ok(self.take(&mut state, runs, count, len));
            }
            return Err(AllocateError::Exhausted);
        }
        self.try_allocate(len)
    }

    /// One attempt, with other LUNs' idle memory taken when the pool is used up.
    fn attempt(self: &Arc<Self>, count: usize, len: usize) -> Result<Extent, Shortage> {
        let mut result = self.attempt_once(count, len);
        for _ in 0..2 {
            let Err(Shortage::Pool(wanted)) = result else { break };
            if !self.pool.admits(self.id, self.used_bytes(), (count * self.block) as u64)
                || self.pool.reclaim(wanted, self.id) == 0
            {
                break;
            }
            result = self.attempt_once(count, len);
        }
        result
    }

    fn used_bytes(&self) -> u64 {
        (self.lock().used.count() * self.block) as u64
    }

    fn attempt_once(self: &Arc<Self>, count: usize, len: usize) -> Result<Extent, Shortage> {
        let mut state = self.lock();
        let (used, bytes) = ((state.used.count() * self.block) as u64, (count * self.block) as u64);
        if !self.pool.admits(self.id, used, bytes) {
            return Err(Shortage::Pool(bytes));
        }
        let mut runs = state.find(count).ok_or(Shortage::Area)?;
        let fresh: usize = runs.iter().map(|run| state.backed.clear_in(run)).sum();
        if fresh > 0 && !self.pool.charge((fresh * self.block) as u64) {
            // Blocks that have memory already, wherever they lie, and as few new ones as possible.
            runs = state.used.lowest(count, Some(&state.backed));
            let found: usize = runs.iter().map(|run| run.count).sum();
            if found < count {
                let missing = count - found;
                let mixed = self.mix(&state, runs, missing);
                runs = mixed.ok_or(Shortage::Pool((missing * self.block) as u64))?;
            }
        }
        Ok(self.take(&mut state, runs, count, len))
    }

    /// Completes backed runs with `missing` unbacked blocks, if the pool pays for them.
    fn mix(&self, state: &State, mut runs: Runs, missing: usize) -> Option<Runs> {
        let fresh = state.unbacked(missing)?;
        if !self.pool.charge((missing * self.block) as u64) {
            return None;
        }
        runs.extend(fresh);
        runs.sort_unstable_by_key(|run| run.first);
        Some(merge(runs))
    }

    fn take(self: &Arc<Self>, state: &mut State, runs: Runs, count: usize, len: usize) -> Extent {
        for run in &runs {
            state.used.set(run);
            state.backed.set(run);
        }
        self.pool.use_more((count * self.block) as u64);
        self.touch();
        Extent::new(Arc::clone(self), runs, len)
    }

    /// Takes an extent's blocks back; they stay backed.
    pub(crate) fn free(&self, runs: Runs) {
        let waker = {
            let mut state = self.lock();
            let freed: usize = runs.iter().map(|run| state.used.clear(run)).sum();
            self.pool.use_less((freed * self.block) as u64);
            state.waiters.front().map(|waiter| waiter.waker.clone())
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        self.pool.wake_oldest(self.id);
    }

    /// Wakes whoever is first in line here.
    pub(crate) fn wake_front(&self) {
        let waker = self.lock().waiters.front().map(|waiter| waiter.waker.clone());
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// True when no command holds blocks or is on the ring.
    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight.load(Ordering::Relaxed) == 0 && self.lock().used.count() == 0
    }

    /// Gives back up to `wanted` bytes of free backed blocks, the highest first, leaving `keep` bytes backed.
    pub(crate) fn shrink(&self, wanted: u64, keep: usize) -> u64 {
        let mut state = self.lock();
        let mut freed = 0;
        let keep = keep / self.block;
        while freed < wanted && state.backed.count() > keep {
            let most = (usize::try_from(wanted - freed).unwrap_or(usize::MAX).div_ceil(self.block))
                .min(state.backed.count() - keep);
            let State { backed, used, .. } = &mut *state;
            let Some(run) = backed.highest_run_not_in(used, most) else { break };
            let start = self.data_off + run.first * self.block;
            let bytes = run.count * self.block;
            // Memory that could not be given back stays charged.
            if self.mapping.punch(start..start + bytes).is_err() {
                break;
            }
            state.backed.clear(&run);
            freed += bytes as u64;
        }
        self.pool.discharge(freed);
        freed
    }

    /// The once-a-second look: gives memory back when nothing was asked for `idle`.
    pub(crate) fn shrink_idle(&self, idle: Duration, now: Instant) -> u64 {
        let touched = self.active.swap(false, Ordering::Relaxed);
        {
            let mut state = self.lock();
            if touched || state.used.count() > 0 || self.in_flight.load(Ordering::Relaxed) > 0 {
                state.idle_since = None;
                return 0;
            }
            let since = *state.idle_since.get_or_insert(now);
            if now.duration_since(since) < idle {
                return 0;
            }
        }
        let commands = self.commands.get().and_then(Weak::upgrade).map_or(0, |commands| commands.shrink());
        commands + self.shrink(u64::MAX, self.floor)
    }

    /// Backs the whole area now, whatever the pool says: a ring of the old, fixed kind, for comparison.
    pub(crate) fn preallocate(&self) -> std::io::Result<()> {
        let mut state = self.lock();
        let all = Run { first: 0, count: state.backed.len() };
        self.mapping.populate(self.data_off..self.data_off + all.count * self.block)?;
        let fresh = state.backed.set(&all);
        self.pool.charge_anyway((fresh * self.block) as u64);
        Ok(())
    }
}

impl State {
    /// The lowest contiguous run that fits, else the lowest free blocks.
    fn find(&self, count: usize) -> Option<Runs> {
        if let Some(run) = self.used.lowest_run(count) {
            return Some(SmallVec::from_iter([run]));
        }
        (self.used.len() - self.used.count() >= count).then(|| self.used.lowest(count, None))
    }

    /// The lowest blocks that are neither used nor backed.
    fn unbacked(&self, count: usize) -> Option<Runs> {
        // A used block is always backed.
        let runs = self.backed.lowest(count, None);
        (runs.iter().map(|run| run.count).sum::<usize>() == count).then_some(runs)
    }
}

/// Joins adjacent runs of a sorted list.
fn merge(runs: Runs) -> Runs {
    let mut merged: Runs = SmallVec::new();
    for run in runs {
        match merged.last_mut() {
            Some(last) if last.first + last.count == run.first => last.count += run.count,
            _ => merged.push(run),
        }
    }
    merged
}

impl Drop for Area {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let backed = (state.backed.count() * self.block) as u64;
        self.pool.discharge(backed);
        self.pool.leave(self.id);
    }
}

impl fmt::Debug for Area {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Area").field("id", &self.id).field("block", &self.block).finish_non_exhaustive()
    }
}
