//! The global pool: one limit on the resident bytes of every LUN's ring and data area in the process.
//!
//! # Who gets memory
//!
//! While nobody waits, whoever asks first. A LUN whose first waiter finds no memory joins the pool's line. From then on
//! (`Pool::admits`)
//!
//! * the LUN that has waited longest may take whatever is free;
//! * another LUN may take what still leaves that one's need untouched, and
//! * not more than its *fair share* in all (the limit by the number of LUNs that use or wait for memory), or its
//!   *reserve* (one largest command) where that is more; a LUN that holds nothing gets one command in any case.
//!
//! So the line moves whatever the sizes are, and no LUN starves another. Memory that is free but still backed at some
//! LUN is punched out there when another one needs it, idle LUNs first.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::area::Area;

/// At least this much is taken from other LUNs at a time, so that a busy pool does not punch page by page.
const RECLAIM_STEP: u64 = 256 << 10;

/// One limit for all rings of the process. Cloning shares it.
#[derive(Clone, Debug)]
pub struct Pool(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limit: AtomicU64,
    charged: AtomicU64,
    in_use: AtomicU64,
    reserved: AtomicU64,
    largest_command: AtomicU64,
    /// Length of `Lines::waiting`; zero spares the lock.
    waiting: AtomicUsize,
    next_id: AtomicU64,
    lines: Mutex<Lines>,
}

#[derive(Debug, Default)]
struct Lines {
    areas: Vec<(u64, Weak<Area>)>,
    waiting: VecDeque<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    id: u64,
    area: Weak<Area>,
    need: u64,
}

/// What the pool holds. All figures in bytes where not said otherwise.
#[derive(Clone, Copy, Debug, Default)]
pub struct PoolUsage {
    /// The limit in force.
    pub limit: u64,
    /// Charged: backed blocks and touched command-area pages of all LUNs.
    pub charged: u64,
    /// Of `charged`: blocks that a command holds now.
    pub in_use: u64,
    /// Set aside by [`Pool::try_reserve`].
    pub reserved: u64,
    /// LUNs whose first waiter waits for the pool (count).
    pub waiting_luns: usize,
    /// Rings that share the pool (count).
    pub luns: usize,
}

/// Bytes set aside for data that a peer may send unasked (iSCSI first-burst credit). Dropping it gives them back.
#[derive(Debug)]
pub struct Reserve {
    pool: Pool,
    remaining: u64,
}

impl Reserve {
    /// Bytes still set aside.
    pub fn remaining(&self) -> usize {
        usize::try_from(self.remaining).unwrap_or(usize::MAX)
    }

    /// Pays for blocks of `bytes`, of which `fresh` bytes get memory now: that part goes from reserved to charged.
    pub(crate) fn spend(&mut self, bytes: u64, fresh: u64) {
        self.remaining -= bytes;
        self.pool.0.charged.fetch_add(fresh, Ordering::SeqCst);
        self.pool.0.reserved.fetch_sub(bytes, Ordering::SeqCst);
    }
}

impl Drop for Reserve {
    fn drop(&mut self) {
        self.pool.0.reserved.fetch_sub(self.remaining, Ordering::SeqCst);
        self.pool.wake_oldest(0);
    }
}

impl Pool {
    /// A pool of `limit` bytes.
    pub fn new(limit: u64) -> Self {
        Self(Arc::new(Shared {
            limit: AtomicU64::new(limit),
            charged: AtomicU64::new(0),
            in_use: AtomicU64::new(0),
            reserved: AtomicU64::new(0),
            largest_command: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            next_id: AtomicU64::new(1),
            lines: Mutex::default(),
        }))
    }

    /// Changes the limit; a lower one reclaims what is free and lets the rest drain.
    pub fn set_limit(&self, limit: u64) {
        self.0.limit.store(limit, Ordering::SeqCst);
        let charged = self.0.charged.load(Ordering::SeqCst);
        if charged > limit {
            self.reclaim(charged - limit, 0);
        }
        // Waiters may go on, or find that they now can never be served.
        for (_, area) in self.areas() {
            area.wake_front();
        }
    }

    /// The limit, bytes.
    pub fn limit(&self) -> u64 {
        self.0.limit.load(Ordering::Relaxed)
    }

    /// A snapshot of the figures.
    pub fn usage(&self) -> PoolUsage {
        let lines = self.lines();
        PoolUsage {
            limit: self.limit(),
            charged: self.0.charged.load(Ordering::SeqCst),
            in_use: self.0.in_use.load(Ordering::SeqCst),
            reserved: self.0.reserved.load(Ordering::SeqCst),
            waiting_luns: lines.waiting.len(),
            luns: lines.areas.len(),
        }
    }

    /// Sets `bytes` aside, or `None` when commands wait or the memory is not there.
    pub fn try_reserve(&self, bytes: usize) -> Option<Reserve> {
        let bytes = bytes as u64;
        for attempt in 0..2 {
            if self.0.waiting.load(Ordering::SeqCst) > 0 {
                return None;
            }
            // Raised first, so that two reservations cannot both see the same room.
            let reserved = self.0.reserved.fetch_add(bytes, Ordering::SeqCst) + bytes;
            let total = self.0.charged.load(Ordering::SeqCst) + reserved;
            if total <= self.limit() {
                return Some(Reserve { pool: self.clone(), remaining: bytes });
            }
            self.0.reserved.fetch_sub(bytes, Ordering::SeqCst);
            if attempt == 0 && self.reclaim(total - self.limit(), 0) == 0 {
                break;
            }
        }
        None
    }

    /// Gives back the memory of every LUN that has had no active command for `idle`; returns the bytes freed.
    /// Call it about once a second.
    pub fn reclaim_idle(&self, idle: Duration) -> u64 {
        let now = Instant::now();
        let freed = self.areas().into_iter().map(|(_, area)| area.shrink_idle(idle, now)).sum();
        if freed > 0 {
            self.wake_oldest(0);
        }
        freed
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.0.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every living area, outside the lock (an area's own lock is taken first).
    fn areas(&self) -> Vec<(u64, Arc<Area>)> {
        self.lines().areas.iter().filter_map(|(id, area)| Some((*id, area.upgrade()?))).collect()
    }

    pub(crate) fn next_id(&self) -> u64 {
        self.0.next_id.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn expect_commands_of(&self, bytes: u64) {
        self.0.largest_command.fetch_max(bytes, Ordering::Relaxed);
    }

    pub(crate) fn join(&self, area: &Arc<Area>) {
        self.lines().areas.push((area.id(), Arc::downgrade(area)));
    }

    pub(crate) fn leave(&self, id: u64) {
        self.lines().areas.retain(|(other, _)| *other != id);
        self.stop_waiting(id);
        self.wake_oldest(0);
    }

    /// Charges memory that is about to be touched; false when the limit does not allow it.
    pub(crate) fn charge(&self, bytes: u64) -> bool {
        let reserved = self.0.reserved.load(Ordering::SeqCst);
        let fits = |charged: u64| {
            charged
                .checked_add(bytes)
                .filter(|sum| sum.checked_add(reserved).is_some_and(|total| total <= self.limit()))
        };
        self.0.charged.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fits).is_ok()
    }

    /// Charges what has to be touched whatever the limit says.
    pub(crate) fn charge_anyway(&self, bytes: u64) {
        self.0.charged.fetch_add(bytes, Ordering::SeqCst);
    }

    pub(crate) fn discharge(&self, bytes: u64) {
        self.0.charged.fetch_sub(bytes, Ordering::SeqCst);
    }

    pub(crate) fn use_more(&self, bytes: u64) {
        self.0.in_use.fetch_add(bytes, Ordering::SeqCst);
    }

    pub(crate) fn use_less(&self, bytes: u64) {
        self.0.in_use.fetch_sub(bytes, Ordering::SeqCst);
    }

    /// Whether a LUN that uses `used` bytes may take `need` more now. See the module's document.
    pub(crate) fn admits(&self, id: u64, used: u64, need: u64) -> bool {
        if self.0.waiting.load(Ordering::SeqCst) == 0 {
            return true;
        }
        let lines = self.lines();
        let Some(oldest) = lines.waiting.front() else { return true };
        if oldest.id == id {
            return true;
        }
        let limit = self.limit();
        let share = limit / (lines.areas.len() as u64).max(1);
        let reserve = self.0.largest_command.load(Ordering::Relaxed).min(share);
        let in_use = self.0.in_use.load(Ordering::SeqCst) + self.0.reserved.load(Ordering::SeqCst);
        (used == 0 || used + need <= share.max(reserve)) && in_use + need + oldest.need <= limit
    }

    /// Puts an area into the line (or renews its need).
    pub(crate) fn wait(&self, area: &Arc<Area>, need: u64) {
        let mut lines = self.lines();
        match lines.waiting.iter_mut().find(|waiting| waiting.id == area.id()) {
            Some(waiting) => waiting.need = need,
            None => lines.waiting.push_back(Waiting { id: area.id(), area: Arc::downgrade(area), need }),
        }
        self.0.waiting.store(lines.waiting.len(), Ordering::SeqCst);
    }

    pub(crate) fn stop_waiting(&self, id: u64) {
        if self.0.waiting.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut lines = self.lines();
        lines.waiting.retain(|waiting| waiting.id != id);
        self.0.waiting.store(lines.waiting.len(), Ordering::SeqCst);
    }

    /// Wakes the first waiter of the LUN that has waited longest, unless it is `except` (which has been woken already).
    pub(crate) fn wake_oldest(&self, except: u64) {
        if self.0.waiting.load(Ordering::SeqCst) == 0 {
            return;
        }
        let area = {
            let lines = self.lines();
            lines
                .waiting
                .front()
                .filter(|waiting| waiting.id != except)
                .and_then(|waiting| waiting.area.upgrade())
        };
        if let Some(area) = area {
            area.wake_front();
        }
    }

    /// Takes free backed memory from other LUNs than `except`, those without any command first; returns the bytes freed.
    pub(crate) fn reclaim(&self, wanted: u64, except: u64) -> u64 {
        let wanted = wanted.max(RECLAIM_STEP);
        let (idle, busy): (Vec<_>, Vec<_>) =
            self.areas().into_iter().filter(|(id, _)| *id != except).partition(|(_, area)| area.is_idle());
        let mut freed = 0;
        for (_, area) in idle.into_iter().chain(busy) {
            if freed >= wanted {
                break;
            }
            freed += area.shrink(wanted - freed, 0);
        }
        freed
    }
}
