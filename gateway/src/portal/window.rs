//! Sequence numbers of a session (RFC 7143 section 4.2.2): StatSN, ExpCmdSN, and how far MaxCmdSN may go.
//!
//! MaxCmdSN is credit: every command it lets in may bring `unit` bytes of data unasked, and those must have a place.
//! So the window opens only as far as bytes are set aside in the pool (the *bank*), at least by one command while none
//! is outstanding. The bank is spent only when blocks cannot be had otherwise; normally it just stands there.

use ring::{AllocateError, Extent, Pool, Producer, Reserve};

use super::pdu::{Header, STAT_SN, before};

/// What part of the pool may stand as credit.
const BANKED_PART: u64 = 4;

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
    pool: Option<Pool>,
    /// The window as the initiator knows it is closed.
    told_closed: bool,
}

impl Window {
    /// `unit`: bytes that one command may bring unasked, in whole blocks.
    pub(crate) fn new(stat_sn: u32, exp_cmd_sn: u32, depth: Depth, unit: usize, pool: Option<Pool>) -> Self {
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
        if wanted > self.open() {
            let credit = self.credit(wanted);
            let opened = if outstanding == 0 { credit.max(1) } else { credit };
            if opened > self.open() {
                self.max_cmd_sn = self.exp_cmd_sn.wrapping_add(opened - 1);
            }
        }
        self.told_closed && self.open() > 0
    }

    /// Commands, of `wanted`, that the bank can stand for.
    fn credit(&mut self, wanted: u32) -> u32 {
        let Some(pool) = self.pool.as_ref().filter(|_| self.unit > 0) else { return wanted };
        let banked =
            |bank: &[Reserve]| bank.iter().map(|reserve| reserve.remaining() / self.unit).sum::<usize>();
        let missing = (wanted as usize).saturating_sub(banked(&self.bank));
        if missing > 0 {
            // Credit that is not used must not starve those who have commands now: all banks together take no more
            // than a part of the pool, beyond one command for every session.
            let usage = pool.usage();
            let left = (usage.limit / BANKED_PART).saturating_sub(usage.reserved) / self.unit as u64;
            let affordable = missing.min(usize::try_from(left).unwrap_or(usize::MAX));
            let least = usize::from(self.bank.is_empty());
            let reserve = pool.try_reserve(affordable.max(least) * self.unit);
            self.bank.extend(reserve.filter(|reserve| reserve.remaining() > 0));
        }
        banked(&self.bank).min(wanted as usize) as u32
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

#[cfg(test)]
mod tests {
    use super::*;

    fn window(unit: usize, pool: u64) -> Window {
        let depth = Depth { initial: 4, limit: 64 };
        let mut window = Window::new(1, u32::MAX - 1, depth, unit, Some(Pool::new(pool)));
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
        assert_eq!(narrow.pool.as_ref().map(|pool| pool.usage().reserved), Some(256 << 10));
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
}
