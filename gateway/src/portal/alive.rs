//! Whether the initiator is still there: pings after silence, and the end after a ping that nothing followed.
//!
//! One coarse tick serves every timeout of a connection: a quarter of the shortest of them. That is precise enough, and
//! nothing has to be armed per command.

use std::time::{Duration, Instant};

use super::target::Parameters;

/// The longest tick.
const LONGEST: Duration = Duration::from_secs(1);
/// The shortest.
const SHORTEST: Duration = Duration::from_millis(5);

/// What a tick says about the initiator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing to do.
    Fine,
    /// Ping it.
    Ask,
    /// It has been silent for too long.
    Gone,
}

/// What is known about the initiator's silence.
#[derive(Debug)]
pub(super) struct Alive {
    heard: Instant,
    pinged: Option<Instant>,
    /// The last write did not go out whole.
    blocked: bool,
    next_tick: Instant,
    tick: Duration,
}

impl Alive {
    pub(super) fn new(now: Instant) -> Self {
        Self { heard: now, pinged: None, blocked: false, next_tick: now, tick: LONGEST }
    }

    pub(super) fn next_tick(&self) -> Instant {
        self.next_tick
    }

    /// Sets the tick by the timeouts to be kept; zero is none.
    pub(super) fn set_tick(&mut self, timeouts: impl Iterator<Item = Duration>, now: Instant) {
        let shortest = timeouts.filter(|timeout| !timeout.is_zero()).min().unwrap_or(LONGEST);
        self.tick = (shortest / 4).clamp(SHORTEST, LONGEST);
        self.next_tick = now + self.tick;
    }

    /// Something came.
    pub(super) fn heard(&mut self, now: Instant) {
        self.heard = now;
        self.pinged = None;
    }

    /// Something was written, or could not be. A peer that makes room after there was none is alive.
    pub(super) fn wrote(&mut self, some: bool, all: bool, now: Instant) {
        if self.blocked && some {
            self.heard = now;
        }
        self.blocked = !all;
    }

    /// A tick has come.
    pub(super) fn tick(&mut self, parameters: &Parameters, now: Instant) -> Verdict {
        self.next_tick = now + self.tick;
        let since = |then: Instant| now.saturating_duration_since(then);
        match self.pinged {
            _ if parameters.nop_interval.is_zero() => Verdict::Fine,
            Some(pinged) if since(pinged.max(self.heard)) >= parameters.nop_timeout => Verdict::Gone,
            None if since(self.heard) >= parameters.nop_interval => {
                self.pinged = Some(now);
                Verdict::Ask
            }
            _ => Verdict::Fine,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_leads_to_a_ping_and_then_to_the_end() {
        let parameters = Parameters::default();
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut alive = Alive::new(start);
        assert_eq!(alive.tick(&parameters, at(4)), Verdict::Fine);
        assert_eq!(alive.tick(&parameters, at(5)), Verdict::Ask);
        assert_eq!(alive.tick(&parameters, at(9)), Verdict::Fine);
        assert_eq!(alive.tick(&parameters, at(10)), Verdict::Gone);
        alive.heard(at(10));
        assert_eq!(alive.tick(&parameters, at(14)), Verdict::Fine);
        let never = Parameters { nop_interval: Duration::ZERO, ..parameters };
        assert_eq!(alive.tick(&never, at(1000)), Verdict::Fine);
    }

    #[test]
    fn a_peer_that_makes_room_is_alive_though_it_says_nothing() {
        let parameters = Parameters::default();
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut alive = Alive::new(start);
        alive.wrote(true, false, at(1));
        alive.wrote(true, false, at(4));
        assert_eq!(alive.tick(&parameters, at(8)), Verdict::Fine);
        alive.wrote(false, false, at(9));
        assert_eq!(alive.tick(&parameters, at(9)), Verdict::Ask);
    }
}
