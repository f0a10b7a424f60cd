//! Sequence numbers of a session (RFC 7143 section 4.2.2): StatSN, ExpCmdSN, and how far MaxCmdSN may go.
//!
//! MaxCmdSN is credit: every command it lets in may bring `unit` bytes of data unasked, and those must have a place.
//! So the window opens only as far as bytes are set aside in the pool (the *bank*), at least by one command while none
//! is outstanding. The bank is spent only when blocks cannot be had otherwise; normally it just stands there.
//!
//! ExpStatSN is not looked at: at error recovery level 0 no status is kept to be sent again, so an acknowledgement frees
//! nothing, and a gap is the initiator's to act on (sections 4.2.2.2 and 7.1.5).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ring::{AllocateError, Extent, Pool, Producer, Reserve};

use super::bank::Bank;
use super::pdu::{Header, STAT_SN, before};

/// What part of the pool may stand as credit.
const BANKED_PART: u64 = 4;

/// How often a session must be seen at rest before it counts as busy no more.
const QUIET: u8 = 4;

/// Where a command number stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The next in order.
    Next,
    /// Within the window; others come first.
    Early,
    /// Taken before, or beyond the window: to be ignored silently (RFC 7143 section 4.2.2.1).
    Outside,
}

/// Commands that one session may have at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Depth {
    /// Before it has shown that it wants more; doubles as it is used. What was told is never taken back.
    pub(crate) initial: u16,
    /// At most.
    pub(crate) limit: u16,
}

/// The numbers.
#[derive(Debug)]
pub(crate) struct Window {
    stat_sn: u32,
    exp_cmd_sn: u32,
    max_cmd_sn: u32,
    depth: u32,
    limit: u32,
    unit: usize,
    bank: Vec<Reserve>,
    /// `None` where no command brings data (discovery).
    pool: Option<(Pool, Arc<Bank>)>,
    /// Counted in the bank as busy, as short.
    busy: bool,
    short: bool,
    /// It has been open; and how often it has been looked at since it was last used up, with nothing outstanding.
    opened: bool,
    quiet: u8,
    /// The window as the initiator knows it is closed.
    told_closed: bool,
}

impl Window {
    /// `unit`: bytes that one command may bring unasked, in whole blocks.
    pub(crate) fn new(
        stat_sn: u32,
        exp_cmd_sn: u32,
        depth: Depth,
        unit: usize,
        pool: Option<(Pool, Arc<Bank>)>,
    ) -> Self {
        let limit = u32::from(depth.limit).clamp(1, 256);
        Self {
            stat_sn,
            exp_cmd_sn,
            max_cmd_sn: exp_cmd_sn.wrapping_sub(1),
            depth: limit.min(u32::from(depth.initial).max(1)),
            limit,
            unit,
            bank: Vec::new(),
            pool,
            busy: false,
            short: false,
            opened: false,
            quiet: 0,
            told_closed: false,
        }
    }

    pub(crate) fn standing(&self, cmd_sn: u32) -> Standing {
        if cmd_sn == self.exp_cmd_sn && !before(self.max_cmd_sn, cmd_sn) {
            Standing::Next
        } else if before(cmd_sn, self.exp_cmd_sn) || before(self.max_cmd_sn, cmd_sn) {
            Standing::Outside
        } else {
            Standing::Early
        }
    }

    /// The next command has been taken.
    pub(crate) fn advance(&mut self) {
        self.exp_cmd_sn = self.exp_cmd_sn.wrapping_add(1);
    }

    pub(crate) fn exp_cmd_sn(&self) -> u32 {
        self.exp_cmd_sn
    }

    fn open(&self) -> u32 {
        self.max_cmd_sn.wrapping_sub(self.exp_cmd_sn).wrapping_add(1)
    }

    /// Opens the window as far as depth and bank allow, with `outstanding` commands unanswered. Returns whether the
    /// initiator should be told although nothing else goes out (it believes the window closed).
    pub(crate) fn refresh(&mut self, outstanding: usize) -> bool {
        let outstanding = u32::try_from(outstanding).unwrap_or(u32::MAX);
        if outstanding > self.depth / 4 * 3 {
            self.depth = (self.depth * 2).min(self.limit);
        }
        let wanted = self.depth.saturating_sub(outstanding);
        if let Some((_, bank)) = &self.pool {
            // Who uses the whole window could do with more, also if it is a window of one.
            let used = self.opened && self.open() == 0;
            self.quiet = if used { 0 } else { self.quiet.saturating_add(u8::from(outstanding == 0)) };
            let busy = used || self.busy && self.quiet < QUIET;
            let short = self.short && busy;
            set(&bank.busy, &mut self.busy, busy);
            set(&bank.short, &mut self.short, short);
        }
        if wanted > self.open() {
            let credit = self.credit(wanted);
            let opened = if outstanding == 0 { credit.max(1) } else { credit };
            if opened > self.open() {
                self.opened = true;
                self.max_cmd_sn = self.exp_cmd_sn.wrapping_add(opened - 1);
            }
        }
        self.told_closed && self.open() > 0
    }

    fn banked(&self) -> usize {
        self.bank.iter().map(|reserve| reserve.remaining() / self.unit).sum()
    }

    /// Commands, of `wanted`, that the bank can stand for.
    fn credit(&mut self, wanted: u32) -> u32 {
        let Some((pool, bank)) = self.pool.as_ref().filter(|_| self.unit > 0) else { return wanted };
        let (pool, bank) = (pool.clone(), Arc::clone(bank));
        let (wanted, open) = (wanted as usize, self.open() as usize);
        let held = self.banked();
        let missing = wanted.saturating_sub(held);
        let contended = bank.short.load(Ordering::Relaxed) > usize::from(self.short);
        if missing == 0 && !contended {
            set(&bank.short, &mut self.short, false);
            return wanted as u32;
        }
        // Credit that is not used must not starve those who have commands now: all banks together take no more than a part
        // of the pool, beyond one command for every session. While somebody busy has less than an equal share of it, nobody
        // takes more, and who has more hands it over as far as its window is not open that far.
        let usage = pool.usage();
        let whole = usage.limit / BANKED_PART / self.unit as u64;
        let share = usize::try_from(whole).unwrap_or(usize::MAX) / bank.busy.load(Ordering::Relaxed).max(1);
        let share = share.max(1);
        if contended && held > share {
            self.hand_over(held.saturating_sub(share.max(open)), &bank);
        } else if missing > 0 {
            let mut more = if contended { missing.min(share.saturating_sub(held)) } else { missing };
            while more > 0
                && let Some(credit) = bank.take(self.unit)
            {
                more = more.saturating_sub(credit.remaining() / self.unit);
                self.bank.push(credit);
            }
            let left = (usage.limit / BANKED_PART).saturating_sub(usage.reserved) / self.unit as u64;
            let affordable = more.min(usize::try_from(left).unwrap_or(usize::MAX));
            let reserve = pool.try_reserve(affordable.max(usize::from(self.bank.is_empty())) * self.unit);
            self.bank.extend(reserve.filter(|reserve| reserve.remaining() > 0));
        }
        let held = self.banked();
        set(&bank.short, &mut self.short, self.busy && held < wanted.min(share));
        if bank.short.load(Ordering::Relaxed) == 0 {
            bank.clear();
        }
        let most = if contended { share.max(open) } else { usize::MAX };
        held.min(wanted).min(most) as u32
    }

    /// Gives all credit back to the pool. What the window has promised stays promised: a command that finds no place then is
    /// answered TASK SET FULL.
    pub(super) fn give_up_credit(&mut self) {
        self.bank.clear();
        if let Some((_, bank)) = &self.pool {
            bank.clear();
        }
    }

    /// Gives commands' worth of credit to others.
    fn hand_over(&mut self, mut commands: usize, bank: &Bank) {
        while commands > 0
            && let Some(reserve) = self.bank.last_mut()
        {
            match reserve.split(self.unit) {
                Some(credit) => {
                    commands -= 1;
                    bank.give(credit);
                }
                None => drop(self.bank.pop()),
            }
        }
    }

    /// Blocks for data that comes unasked: as usual while there are any, else from the bank.
    pub(crate) fn unsolicited<T: Send>(
        &mut self,
        producer: &Producer<T>,
        len: usize,
        from_bank: bool,
    ) -> Result<Extent, AllocateError> {
        let usual = producer.try_allocate(len);
        if !from_bank || !matches!(usual, Err(AllocateError::Exhausted)) {
            return usual;
        }
        let mut last = usual;
        for reserve in &mut self.bank {
            last = producer.allocate_from(reserve, len);
            if last.is_ok() {
                break;
            }
        }
        self.bank.retain(|reserve| reserve.remaining() >= self.unit);
        last
    }

    /// Writes the numbers into a target PDU; `status`: it takes a StatSN of its own.
    pub(crate) fn stamp(&mut self, header: &mut Header, status: bool) {
        header.set_word(STAT_SN, self.stat_sn);
        self.stamp_commands(header);
        if status {
            self.stat_sn = self.stat_sn.wrapping_add(1);
        }
    }

    /// Like [`Self::stamp`], without StatSN (a Data-In that carries no status).
    pub(crate) fn stamp_commands(&mut self, header: &mut Header) {
        header.set_word(STAT_SN + 4, self.exp_cmd_sn);
        header.set_word(STAT_SN + 8, self.max_cmd_sn);
        self.told_closed = self.open() == 0;
    }
}

/// Keeps a session's place in a count.
fn set(count: &AtomicUsize, counted: &mut bool, now: bool) {
    match (std::mem::replace(counted, now), now) {
        (false, true) => count.fetch_add(1, Ordering::Relaxed),
        (true, false) => count.fetch_sub(1, Ordering::Relaxed),
        _ => 0,
    };
}

impl Drop for Window {
    fn drop(&mut self) {
        if let Some((_, bank)) = &self.pool {
            set(&bank.busy, &mut self.busy, false);
            set(&bank.short, &mut self.short, false);
            if bank.short.load(Ordering::Relaxed) == 0 {
                bank.clear();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(unit: usize, pool: u64) -> Window {
        let depth = Depth { initial: 4, limit: 64 };
        let mut window = Window::new(1, u32::MAX - 1, depth, unit, Some((Pool::new(pool), Arc::default())));
        window.refresh(0);
        window
    }

    #[test]
    fn numbers_are_next_early_or_outside_across_the_wrap() {
        let mut window = window(0, 1 << 20);
        assert_eq!(window.standing(u32::MAX - 1), Standing::Next);
        assert_eq!(window.standing(0), Standing::Early);
        assert_eq!(window.standing(1), Standing::Early);
        assert_eq!(window.standing(2), Standing::Outside);
        assert_eq!(window.standing(u32::MAX - 2), Standing::Outside);
        window.advance();
        assert_eq!(window.standing(u32::MAX), Standing::Next);
    }

    #[test]
    fn the_window_is_no_wider_than_the_credit_and_never_shut_while_nothing_is_outstanding() {
        // A quarter of the pool stands for four commands.
        let mut narrow = window(64 << 10, 1 << 20);
        assert_eq!(narrow.open(), 4);
        assert_eq!(narrow.pool.as_ref().map(|(pool, _)| pool.usage().reserved), Some(256 << 10));
        let mut hopeless = window(64 << 20, 1 << 20);
        assert_eq!(hopeless.open(), 1);
        hopeless.advance();
        hopeless.refresh(1);
        assert_eq!(hopeless.open(), 0);
        assert!(!hopeless.refresh(0) && hopeless.open() == 1, "the initiator does not know of it yet");
        narrow.refresh(64);
        assert_eq!(narrow.open(), 4, "what was told is not taken back");
    }

    #[test]
    fn a_window_told_closed_is_told_open_again() {
        let mut window = window(64 << 20, 1 << 20);
        window.advance();
        let mut header = Header::new(0x20);
        window.stamp(&mut header, true);
        assert_eq!(header.word(STAT_SN), 1);
        assert_eq!(header.word(STAT_SN + 8).wrapping_add(1), header.word(STAT_SN + 4));
        assert!(window.refresh(0), "worth a PDU of its own");
        window.stamp(&mut header, false);
        assert_eq!(header.word(STAT_SN), 2);
        assert!(!window.refresh(0));
    }

    #[test]
    fn the_window_grows_with_the_demand_up_to_its_limit() {
        let mut window = window(0, 1 << 20);
        assert_eq!(window.open(), 4);
        let mut outstanding = 0;
        while outstanding < 64 {
            assert!(window.open() > 0, "shut at {outstanding}");
            while window.open() > 0 {
                window.advance();
                outstanding += 1;
            }
            window.refresh(outstanding);
        }
        assert_eq!((outstanding, window.open()), (64, 0));
    }

    #[test]
    fn busy_sessions_come_to_equal_credit_whoever_came_first() {
        let (pool, bank) = (Pool::new(16 << 20), Arc::<Bank>::default());
        let depth = Depth { initial: 4, limit: 64 };
        let unit = 256 << 10;
        let mut windows: Vec<Window> =
            (0..8).map(|_| Window::new(1, 1, depth, unit, Some((pool.clone(), Arc::clone(&bank))))).collect();
        let mut outstanding = [0usize; 8];
        let mut done = [0usize; 8];
        let mut shares = Vec::new();
        for round in 0..200 {
            for (number, window) in windows.iter_mut().enumerate() {
                // The first one has been alone for a while.
                if round < 20 && number > 0 {
                    continue;
                }
                while window.open() > 0 {
                    window.advance();
                    outstanding[number] += 1;
                }
                // One or two end at a time.
                let ended = outstanding[number].min(2);
                outstanding[number] -= ended;
                done[number] += if round < 60 { 0 } else { ended };
                window.refresh(outstanding[number]);
            }
            shares = windows.iter().map(Window::banked).collect();
        }
        assert!(shares.iter().all(|share| (2..=4).contains(share)), "{shares:?}");
        let (most, least) = (done.iter().max().unwrap(), done.iter().min().unwrap());
        assert!(most <= &(least * 2), "{done:?}");
        drop(windows);
        assert_eq!((bank.busy.load(Ordering::Relaxed), bank.short.load(Ordering::Relaxed)), (0, 0));
        assert_eq!(pool.usage().reserved, 0, "credit handed over and never taken goes back");
    }
}
