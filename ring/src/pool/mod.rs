//! The global pool: one limit on the resident bytes of every LUN's ring and data area in the process.
//!
//! Who may have how much is decided in [`accounts`], on the bytes that commands hold. Memory follows: blocks are charged
//! when they are first handed out, and what then exceeds the limit is punched out of free blocks (of idle LUNs first)
//! *before* the new blocks are touched, so that the resident bytes stay within the limit.
//!
//! Command-area pages are charged as the ring's head reaches them and never refused: entries of commands in flight have
//! to stand somewhere. They count against the grants of data, and are given back when the pool is short or a LUN idles.
//!
//! Lock order: a ring, then an area, then the accounts. Wakers are called with none of them held.

mod accounts;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Waker;
use std::time::Duration;

use self::accounts::Accounts;
pub(crate) use self::accounts::{Terms, Ticket, Waiting};
use crate::area::Area;
use crate::{AllocateError, clock};

/// One limit for all rings of the process. Cloning shares it.
#[derive(Clone, Debug)]
pub struct Pool {
    pub(crate) shared: Arc<PoolShared>,
}

/// What the pool holds. All figures in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolUsage {
    /// The limit in force.
    pub limit: u64,
    /// Charged: backed blocks and touched command-area pages of all LUNs.
    pub charged: u64,
    /// Of `charged`: blocks that a command holds now.
    pub in_use: u64,
    /// Bytes that commands have ever given back. While it stands still, nobody who waits is served.
    pub released: u64,
    /// Set aside by [`Pool::try_reserve`].
    pub reserved: u64,
    /// LUNs with at least one waiting allocation.
    pub waiting_luns: usize,
    /// Rings that share the pool.
    pub luns: usize,
}

/// Bytes set aside for data that a peer may send unasked (iSCSI first-burst credit). Dropping it gives them back.
#[derive(Debug)]
pub struct Reserve {
    pool: Arc<PoolShared>,
    bytes: u64,
}

impl Reserve {
    /// Bytes still set aside.
    pub fn remaining(&self) -> usize {
        self.bytes as usize
    }

    /// Takes `bytes` of it out, if there are as many.
    pub fn split(&mut self, bytes: usize) -> Option<Self> {
        self.bytes = self.bytes.checked_sub(bytes as u64)?;
        Some(Self { pool: Arc::clone(&self.pool), bytes: bytes as u64 })
    }
}

impl Drop for Reserve {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.pool.change(|accounts| accounts.reserved -= self.bytes);
        }
    }
}

impl Pool {
    /// A pool of `limit` bytes.
    ///
    /// A limit smaller than one command is no deadlock: every command up to the limit is served when its turn comes, and
    /// one beyond it is refused as [`TooLarge`](crate::AllocateError::TooLarge). Reserves are worth their name when the
    /// limit is at least twice the number of LUNs times their largest command.
    pub fn new(limit: u64) -> Self {
        Self { shared: Arc::new(PoolShared { accounts: Mutex::new(Accounts::new(limit)) }) }
    }

    /// Changes the limit; a lower one reclaims what is idle and lets the rest drain.
    ///
    /// Waiting commands beyond a lower limit are refused.
    pub fn set_limit(&self, limit: u64) {
        let mut wake = Vec::new();
        self.shared.lock().set_limit(limit, &mut wake);
        wake.into_iter().for_each(Waker::wake);
        self.shared.trim(true);
    }

    /// A snapshot of the figures.
    pub fn usage(&self) -> PoolUsage {
        self.shared.lock().usage()
    }

    /// Sets `bytes` aside, or `None` when that would leave waiting commands or other LUNs without their reserve.
    ///
    /// Where the reserves of all LUNs make up more than half of the limit, half of it may be set aside.
    pub fn try_reserve(&self, bytes: usize) -> Option<Reserve> {
        let mut accounts = self.shared.lock();
        let bytes = bytes as u64;
        accounts.may_reserve(bytes).then(|| {
            accounts.reserved += bytes;
            Reserve { pool: Arc::clone(&self.shared), bytes }
        })
    }

    /// Gives back the memory of every LUN that has had no active command for `idle`; returns the bytes freed.
    /// Call it about once a second.
    pub fn reclaim_idle(&self, idle: Duration) -> u64 {
        self.shared.reclaim_idle(idle)
    }
}

/// A LUN in the pool's books.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tenant(usize);

/// A LUN's command area, as far as the pool wants its pages back.
pub(crate) trait CommandPages: Send + Sync + std::fmt::Debug {
    /// How long no command has been in flight; `None` when one is.
    fn quiet_for(&self) -> Option<Duration>;
    /// Gives back pages that hold no entry; with `only_quiet` only when nothing is in flight. Bytes freed.
    fn shrink(&self, only_quiet: bool) -> u64;
}

/// Whom to ask for a LUN's memory: its blocks, and its command area.
type Memory = (Weak<Area>, Option<Weak<dyn CommandPages>>);

/// What all handles share.
#[derive(Debug)]
pub(crate) struct PoolShared {
    accounts: Mutex<Accounts>,
}

impl PoolShared {
    fn lock(&self) -> MutexGuard<'_, Accounts> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the books, serves whoever that helps, and wakes them. Returns true when memory exceeds the limit.
    fn change<R>(&self, change: impl FnOnce(&mut Accounts) -> R) -> (R, bool) {
        let mut wake = Vec::new();
        let mut accounts = self.lock();
        let result = change(&mut accounts);
        accounts.dispatch(&mut wake);
        let over = accounts.charged > accounts.limit;
        drop(accounts);
        wake.into_iter().for_each(Waker::wake);
        (result, over)
    }

    /// Opens a LUN's page; `None` when a preallocated area does not fit the limit.
    pub(crate) fn open(&self, terms: Terms) -> Option<Tenant> {
        let mut accounts = self.lock();
        let fits = !terms.fixed || accounts.charged + terms.area + terms.command <= accounts.limit;
        fits.then(|| accounts.open(terms))
    }

    /// Says whom to ask for memory back.
    pub(crate) fn introduce(&self, tenant: Tenant, blocks: Weak<Area>, pages: Weak<dyn CommandPages>) {
        let mut accounts = self.lock();
        let account = accounts.account(tenant);
        account.blocks = blocks;
        account.pages = Some(pages);
    }

    /// The LUN's memory is unmapped.
    fn close(&self, tenant: Tenant) {
        self.change(|accounts| accounts.close(tenant));
    }

    pub(crate) fn limit(&self) -> u64 {
        self.lock().limit
    }

    pub(crate) fn waiting(&self, tenant: Tenant) -> usize {
        self.lock().waiting(tenant)
    }

    /// Grants `need` bytes at once or not at all.
    pub(crate) fn try_grant(&self, tenant: Tenant, need: u64) -> Result<(), AllocateError> {
        self.lock().try_grant(tenant, need)
    }

    /// Grants `need` bytes out of a reservation of this pool, as far as that goes.
    pub(crate) fn grant_reserved(self: &Arc<Self>, tenant: Tenant, need: u64, reserve: &mut Reserve) -> bool {
        let ours = Arc::ptr_eq(self, &reserve.pool);
        let paid = if ours { need.min(reserve.bytes) } else { 0 };
        let granted = self.lock().grant_reserved(tenant, need, paid);
        if granted {
            reserve.bytes -= paid;
        }
        granted
    }

    /// Grants at once, or puts the request in line.
    pub(crate) fn request(
        &self,
        tenant: Tenant,
        need: u64,
        waker: &Waker,
    ) -> Result<Option<Ticket>, AllocateError> {
        let mut accounts = self.lock();
        match accounts.try_grant(tenant, need) {
            Ok(()) => return Ok(None),
            Err(AllocateError::TooLarge) => return Err(AllocateError::TooLarge),
            Err(AllocateError::Exhausted) => {}
        }
        let ticket = accounts.enqueue(tenant, need, waker.clone());
        drop(accounts);
        // It may be served at once: who contends was last looked at when something changed.
        self.change(|_| ());
        Ok(Some(ticket))
    }

    pub(crate) fn poll(&self, ticket: Ticket, waker: &Waker) -> Waiting {
        let (state, _old_waker) = self.lock().poll(ticket, waker);
        state
    }

    pub(crate) fn cancel(&self, ticket: Ticket) {
        self.change(|accounts| accounts.cancel(ticket));
    }

    /// Takes granted bytes back and serves whoever waits for them.
    pub(crate) fn release(&self, tenant: Tenant, bytes: u64) {
        if self.change(|accounts| accounts.give_back(tenant, bytes)).1 {
            self.trim(true);
        }
    }

    /// Makes the memory that newly backed blocks need, then charges them; the caller touches them only afterwards.
    pub(crate) fn charge_blocks(&self, tenant: Tenant, bytes: u64) {
        let mut accounts = self.lock();
        accounts.announce_blocks(tenant, bytes);
        let over = accounts.excess() > 0;
        drop(accounts);
        if over {
            self.trim(true);
        }
        self.lock().charge_blocks(tenant, bytes);
    }

    /// Blocks were punched.
    pub(crate) fn discharge_blocks(&self, tenant: Tenant, bytes: u64) {
        self.lock().discharge_blocks(tenant, bytes);
    }

    /// A command area has `bytes` resident now, or is about to. True when that exceeds the limit.
    pub(crate) fn set_command(&self, tenant: Tenant, bytes: u64) -> bool {
        let mut accounts = self.lock();
        accounts.set_command(tenant, bytes);
        accounts.charged > accounts.limit
    }

    /// Serves whoever waits, after command-area pages were given back.
    pub(crate) fn dispatch(&self) {
        self.change(|_| ());
    }

    /// Punches free blocks until the limit is kept or nothing is left to punch: of LUNs without a command first.
    /// With `pages`, spare command-area pages too (not while a ring's lock is held).
    pub(crate) fn trim(&self, pages: bool) {
        for idle in [true, false] {
            for (blocks, commands) in self.spare(idle) {
                let accounts = self.lock();
                let excess = accounts.excess();
                // An idle LUN gives more than asked, so that the next one who asks need not come back here.
                let wanted = if idle { excess + accounts.limit / 256 } else { excess };
                drop(accounts);
                if excess == 0 {
                    return;
                }
                let freed = blocks.upgrade().map_or(0, |area| area.shrink(wanted, 0));
                if pages
                    && freed < excess
                    && let Some(commands) = commands.and_then(|commands| commands.upgrade())
                {
                    commands.shrink(idle);
                }
            }
        }
    }

    /// LUNs that may have memory to spare, by whether they hold something.
    fn spare(&self, idle: bool) -> Vec<Memory> {
        let accounts = self.lock();
        let luns = accounts.luns.iter().flatten();
        luns.filter(|account| (account.held == 0) == idle && account.may_shrink())
            .map(|account| (account.blocks.clone(), account.pages.clone()))
            .collect()
    }

    fn reclaim_idle(&self, idle: Duration) -> u64 {
        let now = clock::now();
        let accounts = self.lock();
        let quiet = accounts
            .luns
            .iter()
            .flatten()
            .filter(|account| account.held == 0 && now.saturating_sub(account.idle_since) >= idle);
        let quiet: Vec<_> = quiet.map(|account| (account.blocks.clone(), account.pages.clone())).collect();
        drop(accounts);
        let mut freed = 0;
        for (blocks, pages) in quiet {
            let pages = pages.and_then(|pages| pages.upgrade());
            if pages.as_ref().is_some_and(|pages| pages.quiet_for().is_none_or(|quiet| quiet < idle)) {
                continue;
            }
            freed += blocks.upgrade().map_or(0, |area| area.shrink_idle());
            freed += pages.map_or(0, |pages| pages.shrink(true));
        }
        freed
    }
}

/// Keeps a LUN's page of the books open as long as its memory is mapped.
#[derive(Debug)]
pub(crate) struct Tenancy {
    pub(crate) pool: Arc<PoolShared>,
    pub(crate) tenant: Tenant,
}

impl Drop for Tenancy {
    fn drop(&mut self) {
        self.pool.close(self.tenant);
    }
}
