//! The books of the pool: who holds what, and who may have more. Pure arithmetic behind one lock.
//!
//! *Held* bytes are granted to commands; *backed* bytes are resident (held ones and free ones that are still hot). Grants
//! are decided on held bytes alone, since everything else can be punched; memory is then made to follow.
//!
//! Who may have more is in [`rules`].

mod rules;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Weak;
use std::task::Waker;
use std::time::Duration;

use self::rules::Verdict;
use super::{CommandPages, PoolUsage, Tenant};
use crate::area::Area;
use crate::{AllocateError, clock};

/// The page of the command area that stays; no page is smaller.
const MAILBOX_PAGE: u64 = 4096;

/// Order of arrival of waiting requests, over all LUNs.
pub(crate) type Ticket = u64;

/// One LUN's page of the books. Bytes.
#[derive(Debug)]
pub(super) struct Account {
    pub(super) held: u64,
    /// Of it, granted to waiting requests that have not taken their blocks yet.
    pending: u64,
    /// Of it, in blocks that are not backed yet, while memory is made for them.
    incoming: u64,
    /// Resident bytes of the data area.
    pub(super) backed: u64,
    /// Resident bytes of the command area.
    pub(super) command: u64,
    /// Size of the data area.
    area: u64,
    largest: u64,
    reserve: u64,
    /// Preallocated: charged once as a whole, its grants are free.
    fixed: bool,
    /// Waits for the pool (and not for its own area, nor for its share).
    contends: bool,
    queue: VecDeque<Ticket>,
    pub(super) idle_since: Duration,
    pub(super) blocks: Weak<Area>,
    pub(super) pages: Option<Weak<dyn CommandPages>>,
}

/// Size of a new LUN. Bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) area: u64,
    pub(crate) largest: u64,
    pub(crate) command: u64,
    pub(crate) fixed: bool,
}

#[derive(Debug)]
struct Waiter {
    tenant: Tenant,
    need: u64,
    waker: Option<Waker>,
    state: Waiting,
}

/// Where a waiting request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// In line.
    InLine,
    /// The bytes are its own.
    Granted,
    /// The limit fell below it.
    TooLarge,
}

/// The books; see the module.
#[derive(Debug)]
pub(super) struct Accounts {
    pub(super) limit: u64,
    /// Resident bytes of all LUNs.
    pub(super) charged: u64,
    /// Bytes granted and not backed yet, while memory is made for them.
    incoming: u64,
    /// Of them, of command areas and of preallocated areas: never available to grants.
    base: u64,
    /// Granted bytes, without those of preallocated areas.
    held: u64,
    held_fixed: u64,
    /// Bytes ever given back.
    released: u64,
    pub(super) reserved: u64,
    /// Sum of the reserves, and of what is held within them.
    reserves: u64,
    covered: u64,
    /// LUNs that hold or wait.
    active: u64,
    contending: usize,
    pub(super) luns: Vec<Option<Account>>,
    count: u64,
    /// Of them, preallocated ones.
    fixed: u64,
    waiters: BTreeMap<Ticket, Waiter>,
    /// First waiting request of each LUN.
    heads: BTreeMap<Ticket, Tenant>,
    next_ticket: Ticket,
}

impl Accounts {
    pub(super) fn new(limit: u64) -> Self {
        Self {
            limit,
            charged: 0,
            incoming: 0,
            base: 0,
            held: 0,
            held_fixed: 0,
            released: 0,
            reserved: 0,
            reserves: 0,
            covered: 0,
            active: 0,
            contending: 0,
            luns: Vec::new(),
            count: 0,
            fixed: 0,
            waiters: BTreeMap::new(),
            heads: BTreeMap::new(),
            next_ticket: 0,
        }
    }

    /// Opens a page for a LUN.
    pub(super) fn open(&mut self, terms: Terms) -> Tenant {
        let backed = if terms.fixed { terms.area } else { 0 };
        let account = Account {
            held: 0,
            pending: 0,
            incoming: 0,
            backed,
            command: terms.command,
            area: terms.area,
            largest: terms.largest,
            reserve: 0,
            fixed: terms.fixed,
            contends: false,
            queue: VecDeque::new(),
            idle_since: clock::now(),
            blocks: Weak::new(),
            pages: None,
        };
        self.charged += backed + terms.command;
        self.base += backed + terms.command;
        self.count += 1;
        self.fixed += u64::from(terms.fixed);
        let free = self.luns.iter().position(Option::is_none).unwrap_or(self.luns.len());
        if free == self.luns.len() {
            self.luns.push(None);
        }
        self.luns[free] = Some(account);
        self.set_reserves();
        Tenant(free)
    }

    /// Closes a LUN's page: its memory is gone.
    pub(super) fn close(&mut self, tenant: Tenant) {
        debug_assert!(self.account(tenant).queue.is_empty(), "a waiting request keeps its area mapped");
        let held = self.account(tenant).held;
        self.give_back(tenant, held);
        let Some(account) = self.luns[tenant.0].take() else { return };
        self.charged -= account.backed + account.command;
        self.base -= account.command + if account.fixed { account.backed } else { 0 };
        self.reserves -= account.reserve;
        self.count -= 1;
        self.fixed -= u64::from(account.fixed);
        self.set_reserves();
    }

    /// Recomputes every reserve after the limit or the number of LUNs changed.
    pub(super) fn set_reserves(&mut self) {
        let each = self.limit / self.count.max(1);
        (self.reserves, self.covered) = (0, 0);
        for account in self.luns.iter_mut().flatten() {
            account.reserve = if account.fixed { 0 } else { account.largest.min(each) };
            self.reserves += account.reserve;
            self.covered += account.held.min(account.reserve);
        }
    }

    pub(super) fn account(&mut self, tenant: Tenant) -> &mut Account {
        self.luns[tenant.0].as_mut().expect("a tenant's account is open until its memory is unmapped")
    }

    fn view(&self, tenant: Tenant) -> &Account {
        self.luns[tenant.0].as_ref().expect("a tenant's account is open until its memory is unmapped")
    }

    fn grant(&mut self, tenant: Tenant, need: u64) {
        let account = self.account(tenant);
        let (was_active, fixed) = (account.is_active(), account.fixed);
        let before = account.held.min(account.reserve);
        account.held += need;
        let covered = account.held.min(account.reserve) - before;
        self.active += u64::from(!was_active);
        self.covered += covered;
        *(if fixed { &mut self.held_fixed } else { &mut self.held }) += need;
    }

    /// Takes granted bytes back.
    pub(super) fn give_back(&mut self, tenant: Tenant, bytes: u64) {
        if bytes == 0 {
            return;
        }
        self.released = self.released.wrapping_add(bytes);
        let account = self.account(tenant);
        let before = account.held.min(account.reserve);
        account.held -= bytes;
        if account.held == 0 {
            account.idle_since = clock::now();
        }
        let covered = before - account.held.min(account.reserve);
        let (active, fixed) = (account.is_active(), account.fixed);
        self.active -= u64::from(!active);
        self.covered -= covered;
        *(if fixed { &mut self.held_fixed } else { &mut self.held }) -= bytes;
    }

    /// Grants at once or not at all.
    pub(super) fn try_grant(&mut self, tenant: Tenant, need: u64) -> Result<(), AllocateError> {
        if need > self.limit {
            return Err(AllocateError::TooLarge);
        }
        let first = self.view(tenant).queue.is_empty();
        if !first || self.judge(tenant, need, self.contending > 0) != Verdict::Grant {
            return Err(AllocateError::Exhausted);
        }
        self.grant(tenant, need);
        Ok(())
    }

    /// Grants out of a reservation of `paid` bytes: only the LUN's own area can be too full.
    pub(super) fn grant_reserved(&mut self, tenant: Tenant, need: u64, paid: u64) -> bool {
        let rest = need - paid;
        let account = self.view(tenant);
        let room = account.held + need <= account.area;
        if !room || (rest > 0 && !matches!(self.judge(tenant, rest, self.contending > 0), Verdict::Grant)) {
            return false;
        }
        self.reserved -= paid;
        self.grant(tenant, need);
        true
    }

    /// Puts a request in line.
    pub(super) fn enqueue(&mut self, tenant: Tenant, need: u64, waker: Waker) -> Ticket {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        let account = self.account(tenant);
        let was_active = account.is_active();
        account.queue.push_back(ticket);
        if account.queue.len() == 1 {
            self.heads.insert(ticket, tenant);
        }
        self.active += u64::from(!was_active);
        self.waiters.insert(ticket, Waiter { tenant, need, waker: Some(waker), state: Waiting::InLine });
        self.classify(ticket, tenant);
        ticket
    }

    /// Notes whether the head of a LUN's line waits for the pool.
    fn classify(&mut self, ticket: Ticket, tenant: Tenant) {
        if self.heads.contains_key(&ticket) {
            let need = self.waiters[&ticket].need;
            let verdict = self.judge(tenant, need, self.contending > usize::from(self.view(tenant).contends));
            self.set_contends(tenant, verdict == Verdict::Contended);
        }
    }

    fn set_contends(&mut self, tenant: Tenant, contends: bool) {
        let was = std::mem::replace(&mut self.account(tenant).contends, contends);
        self.contending = self.contending + usize::from(contends) - usize::from(was);
    }

    /// Where a request stands; one that is settled is forgotten. Also the waker that is not needed any more: it must
    /// not be dropped under the lock, since that may drop a task, and with it blocks.
    pub(super) fn poll(&mut self, ticket: Ticket, waker: &Waker) -> (Waiting, Option<Waker>) {
        let Some(waiter) = self.waiters.get_mut(&ticket) else { return (Waiting::TooLarge, None) };
        let state = waiter.state;
        let (tenant, need) = (waiter.tenant, waiter.need);
        if state == Waiting::Granted {
            self.account(tenant).pending -= need;
        }
        if state != Waiting::InLine {
            return (state, self.waiters.remove(&ticket).and_then(|waiter| waiter.waker));
        }
        let Some(waiter) = self.waiters.get_mut(&ticket) else { return (state, None) };
        let same = waiter.waker.as_ref().is_some_and(|old| old.will_wake(waker));
        (state, if same { None } else { waiter.waker.replace(waker.clone()) })
    }

    /// Gives up a place in line, or what was granted to it. The waker as in [`Self::poll`].
    pub(super) fn cancel(&mut self, ticket: Ticket) -> Option<Waker> {
        let waiter = self.waiters.remove(&ticket)?;
        match waiter.state {
            Waiting::InLine => self.leave(ticket, waiter.tenant),
            Waiting::Granted => {
                self.account(waiter.tenant).pending -= waiter.need;
                self.give_back(waiter.tenant, waiter.need);
            }
            Waiting::TooLarge => {}
        }
        waiter.waker
    }

    /// Takes a ticket out of its LUN's line.
    fn leave(&mut self, ticket: Ticket, tenant: Tenant) {
        let account = self.account(tenant);
        account.queue.retain(|other| *other != ticket);
        let (next, active) = (account.queue.front().copied(), account.is_active());
        self.active -= u64::from(!active);
        if self.heads.remove(&ticket).is_some() {
            self.set_contends(tenant, false);
            if let Some(next) = next {
                self.heads.insert(next, tenant);
            }
        }
    }

    /// Serves the lines, oldest request first, and collects whom to wake.
    pub(super) fn dispatch(&mut self, wake: &mut Vec<Waker>) {
        while !self.heads.is_empty() && self.has_room() && self.serve_once(wake) {}
    }

    /// False when a pass would serve nobody. Spares a look at every line whenever somebody frees a little.
    fn has_room(&self) -> bool {
        self.held == 0 || self.fixed > 0 || self.base + self.held < self.limit
    }

    /// One pass over the first request of every LUN; `true` when something was granted.
    fn serve_once(&mut self, wake: &mut Vec<Waker>) -> bool {
        let mut blocked = false;
        let heads: Vec<(Ticket, Tenant)> =
            self.heads.iter().map(|(ticket, tenant)| (*ticket, *tenant)).collect();
        let mut granted = false;
        for (ticket, tenant) in heads {
            let need = self.waiters[&ticket].need;
            let verdict = self.judge(tenant, need, blocked);
            self.set_contends(tenant, verdict == Verdict::Contended);
            blocked |= verdict == Verdict::Contended;
            if verdict == Verdict::Grant {
                self.grant(tenant, need);
                self.account(tenant).pending += need;
                self.leave(ticket, tenant);
                self.settle(ticket, Waiting::Granted, wake);
                granted = true;
            }
        }
        granted
    }

    fn settle(&mut self, ticket: Ticket, state: Waiting, wake: &mut Vec<Waker>) {
        if let Some(waiter) = self.waiters.get_mut(&ticket) {
            waiter.state = state;
            wake.extend(waiter.waker.take());
        }
    }

    /// Changes the limit; waiting requests beyond it are refused.
    pub(super) fn set_limit(&mut self, limit: u64, wake: &mut Vec<Waker>) {
        self.limit = limit;
        self.set_reserves();
        let refused: Vec<(Ticket, Tenant)> = self
            .waiters
            .iter()
            .filter(|(_, waiter)| waiter.state == Waiting::InLine && waiter.need > limit)
            .map(|(ticket, waiter)| (*ticket, waiter.tenant))
            .collect();
        for (ticket, tenant) in refused {
            self.leave(ticket, tenant);
            self.settle(ticket, Waiting::TooLarge, wake);
        }
        self.dispatch(wake);
    }

    /// Announces bytes that [`Self::charge_blocks`] will charge, so that memory is made for them first.
    pub(super) fn announce_blocks(&mut self, tenant: Tenant, bytes: u64) {
        self.account(tenant).incoming += bytes;
        self.incoming += bytes;
    }

    /// Charges resident bytes of a data area that were announced.
    pub(super) fn charge_blocks(&mut self, tenant: Tenant, bytes: u64) {
        let account = self.account(tenant);
        account.incoming -= bytes;
        account.backed += bytes;
        self.incoming -= bytes;
        self.charged += bytes;
    }

    /// Discharges bytes of blocks that were punched.
    pub(super) fn discharge_blocks(&mut self, tenant: Tenant, bytes: u64) {
        self.account(tenant).backed -= bytes;
        self.charged -= bytes;
    }

    /// Resident bytes beyond the limit, those about to come included.
    pub(super) fn excess(&self) -> u64 {
        (self.charged + self.incoming).saturating_sub(self.limit)
    }

    /// Sets the resident bytes of a command area.
    pub(super) fn set_command(&mut self, tenant: Tenant, bytes: u64) {
        let before = std::mem::replace(&mut self.account(tenant).command, bytes);
        self.charged = self.charged + bytes - before;
        self.base = self.base + bytes - before;
    }

    /// Requests of one LUN in line.
    pub(super) fn waiting(&self, tenant: Tenant) -> usize {
        self.view(tenant).queue.len()
    }

    pub(super) fn usage(&self) -> PoolUsage {
        PoolUsage {
            limit: self.limit,
            charged: self.charged,
            in_use: self.held + self.held_fixed,
            released: self.released,
            reserved: self.reserved,
            waiting_luns: self.heads.len(),
            luns: self.count as usize,
        }
    }
}

impl Account {
    fn is_active(&self) -> bool {
        self.held > 0 || !self.queue.is_empty()
    }

    /// True when there may be memory to give back: blocks, or pages beside the mailbox'.
    pub(super) fn may_shrink(&self) -> bool {
        self.spare() > 0 || self.command > MAILBOX_PAGE
    }

    /// Resident bytes that no command holds.
    fn spare(&self) -> u64 {
        if self.fixed { 0 } else { (self.backed + self.pending + self.incoming).saturating_sub(self.held) }
    }
}
