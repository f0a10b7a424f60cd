//! What all sessions share of the pool: credit that goes round between them, and who may go on waiting when nothing moves.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ring::Reserve;

/// Credit between sessions. One that holds more than its share while another has less hands it over here: when the pool
/// is used up, nothing could be set aside anew, and whoever came first would keep everything.
#[derive(Debug, Default)]
pub(crate) struct Bank {
    /// Sessions that use the whole of their window.
    pub(super) busy: AtomicUsize,
    /// Of them, those with less credit than their share.
    pub(super) short: AtomicUsize,
    spare: Mutex<Vec<Reserve>>,
    spares: AtomicUsize,
}

impl Bank {
    /// Hands credit over.
    pub(super) fn give(&self, credit: Reserve) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        spare.push(credit);
        self.spares.store(spare.len(), Ordering::Relaxed);
    }

    /// Credit of at least `unit` bytes that somebody has handed over.
    pub(super) fn take(&self, unit: usize) -> Option<Reserve> {
        if self.spares.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = spare.iter().position(|credit| credit.remaining() >= unit);
        let taken = fits.map(|index| spare.swap_remove(index));
        self.spares.store(spare.len(), Ordering::Relaxed);
        taken
    }

    /// Gives back to the pool what nobody is short of any more.
    pub(super) fn clear(&self) {
        if self.spares.load(Ordering::Relaxed) > 0 {
            let spare = std::mem::take(&mut *self.spare.lock().unwrap_or_else(PoisonError::into_inner));
            self.spares.store(0, Ordering::Relaxed);
            drop(spare);
        }
    }
}

/// How long nothing may come back to the pool before commands that hold a part of it must yield.
const PATIENCE: Duration = Duration::from_secs(1);
/// After so long without a word the one who may wait has ended.
const FORGOTTEN: Duration = Duration::from_secs(3);

/// Who a waiting command is: its connection and its serial there.
type Waiter = (usize, u32);

/// What a command does that holds memory and waits for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Wait: something moves.
    Wait,
    /// Wait on, at a standstill; nothing that can be spared may stand in its way.
    Stay,
    /// Give up.
    Yield,
}

/// Commands that hold the blocks of their first burst and wait for the rest can come to hold the whole of a small pool: each
/// waits for the others, for ever. When nothing has come back to the pool for a while, all but one of them yield, one after
/// the other, until something moves.
#[derive(Debug, Default)]
pub(crate) struct Standstill {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Bytes that had come back to the pool when it was last looked at, and since when that has been so.
    seen: Option<(u64, Instant)>,
    /// Who may wait on, and when it last asked.
    stays: Option<(Waiter, Instant)>,
}

impl Standstill {
    /// What `waiter`, which holds memory and waits for more, does now. `released`: bytes that ever came back to the pool.
    pub(super) fn ask(&self, released: u64, waiter: Waiter, now: Instant) -> Turn {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match state.seen {
            Some((seen, since)) if seen == released => {
                if now.saturating_duration_since(since) < PATIENCE {
                    return Turn::Wait;
                }
            }
            _ => {
                state.seen = Some((released, now));
                return Turn::Wait;
            }
        }
        let taken = state
            .stays
            .filter(|(_, asked)| now.saturating_duration_since(*asked) < FORGOTTEN)
            .map(|(who, _)| who);
        if taken.is_none_or(|who| who == waiter) {
            state.stays = Some((waiter, now));
            return Turn::Stay;
        }
        Turn::Yield
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_a_standstill_one_waits_on_and_the_others_yield() {
        let standstill = Standstill::default();
        let start = Instant::now();
        let at = |milliseconds: u64| start + Duration::from_millis(milliseconds);
        assert_eq!(standstill.ask(7, (1, 1), at(0)), Turn::Wait);
        assert_eq!(standstill.ask(7, (2, 1), at(900)), Turn::Wait);
        assert_eq!(standstill.ask(7, (1, 1), at(1000)), Turn::Stay, "the first to notice stays");
        assert_eq!(standstill.ask(7, (2, 1), at(1100)), Turn::Yield);
        assert_eq!(standstill.ask(8, (3, 1), at(1200)), Turn::Wait, "something has moved");
        assert_eq!(standstill.ask(8, (1, 1), at(2200)), Turn::Stay);
        assert_eq!(standstill.ask(8, (3, 1), at(2300)), Turn::Yield);
        assert_eq!(standstill.ask(8, (3, 1), at(5300)), Turn::Stay, "the other one is gone");
    }
}
