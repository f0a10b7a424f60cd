//! Byte ranges that one command must hold alone: COMPARE AND WRITE on a store that cannot do it, for one.
//!
//! A *claim* is what a command's step reads or writes, its *span*, or what it wants alone, its *exclusive* range. A claim
//! waits when
//!
//! * its range overlaps an exclusive range that another command holds, or
//! * its range overlaps that of a claim that waits already (so that claims on the same bytes start in order), or
//! * it is exclusive and a write to the range is in flight.
//!
//! Reads pass all that, except where the range is *sealed*: what is written there in one piece is not read in halves. A
//! command that holds its range alone never waits for what it does within it, and what a claim waits for is at this lane's
//! disk, never at another lane: so no two commands can wait for each other.
//! While nothing is exclusive, admitting a claim is one comparison with zero.

use std::ops::Range;

/// Which bytes, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    /// Bytes on the disk.
    pub(super) range: Range<u64>,
    /// How.
    pub(super) kind: Kind,
}

/// What a claim is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// To read.
    Read,
    /// To write.
    Write,
    /// To be held against other writers until [`Ranges::release`].
    Exclusive,
    /// To be held against readers too.
    Sealed,
}

impl Kind {
    fn exclusive(self) -> bool {
        matches!(self, Self::Exclusive | Self::Sealed)
    }

    /// Whether two claims on the same bytes may not be at the disk together.
    fn excludes(self, other: Self) -> bool {
        match (self, other) {
            (Self::Read, kind) | (kind, Self::Read) => kind == Self::Sealed,
            (own, other) => own.exclusive() || other.exclusive(),
        }
    }

    /// Whether the later of two claims on the same bytes waits behind the earlier one.
    fn queues_behind(self, earlier: Self) -> bool {
        (self != Self::Read && earlier != Self::Read) || self.excludes(earlier)
    }
}

/// The exclusive ranges of one lane, and what waits for them. `owner` is the command's place in the in-flight table.
#[derive(Debug)]
pub(super) struct Ranges<W> {
    held: Vec<(usize, Claim)>,
    waiting: Vec<(usize, Claim, W)>,
}

impl<W> Ranges<W> {
    pub(super) fn new() -> Self {
        Self { held: Vec::new(), waiting: Vec::new() }
    }

    /// Claims waiting.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// True when a claim of this kind is admitted without a look at anything.
    pub(super) fn idle(&self) -> bool {
        self.held.is_empty() && self.waiting.is_empty()
    }

    /// Admits a claim, or keeps it with `work` until [`Ranges::next_admitted`] gives it back. `in_flight` are the spans
    /// of what is at the disk.
    pub(super) fn claim<I>(&mut self, owner: usize, claim: Claim, work: W, in_flight: I) -> Option<W>
    where
        I: Iterator<Item = (usize, Claim)>,
    {
        if self.may_start(owner, &claim, self.waiting.len(), in_flight) {
            self.hold(owner, claim);
            Some(work)
        } else {
            self.waiting.push((owner, claim, work));
            None
        }
    }

    /// Ends what `owner` holds alone; true when a waiting claim may now be admitted.
    pub(super) fn release(&mut self, owner: usize) -> bool {
        self.held.retain(|(holder, _)| *holder != owner);
        !self.waiting.is_empty()
    }

    /// The first waiting claim that may start now.
    pub(super) fn next_admitted<I>(&mut self, in_flight: impl Fn() -> I) -> Option<(usize, Range<u64>, W)>
    where
        I: Iterator<Item = (usize, Claim)>,
    {
        let index = (0..self.waiting.len()).find(|index| {
            let (owner, claim, _) = &self.waiting[*index];
            self.may_start(*owner, claim, *index, in_flight())
        })?;
        let (owner, claim, work) = self.waiting.remove(index);
        let range = claim.range.clone();
        self.hold(owner, claim);
        Some((owner, range, work))
    }

    /// Takes back the waiting claim of an aborted command.
    pub(super) fn withdraw(&mut self, owner: usize) -> Option<W> {
        let index = self.waiting.iter().position(|(waiter, ..)| *waiter == owner)?;
        Some(self.waiting.remove(index).2)
    }

    fn hold(&mut self, owner: usize, claim: Claim) {
        if claim.kind.exclusive() {
            self.held.push((owner, claim));
        }
    }

    fn may_start<I>(&self, owner: usize, claim: &Claim, earlier: usize, mut in_flight: I) -> bool
    where
        I: Iterator<Item = (usize, Claim)>,
    {
        let Claim { range, kind } = claim;
        if self.held.iter().any(|(holder, held)| *holder == owner && covers(&held.range, range)) {
            return true;
        }
        let clashes = |other: &Claim| overlap(&other.range, range) && kind.excludes(other.kind);
        let held = self.held.iter().any(|(holder, held)| *holder != owner && clashes(held));
        let waited_for = || {
            self.waiting[..earlier]
                .iter()
                .any(|(_, waiting, _)| overlap(&waiting.range, range) && kind.queues_behind(waiting.kind))
        };
        let mut at_disk = || in_flight.any(|(other, span)| other != owner && clashes(&span));
        !(held || waited_for() || kind.exclusive() && at_disk())
    }
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

fn covers(outer: &Range<u64>, inner: &Range<u64>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn nothing() -> std::iter::Empty<(usize, Claim)> {
        std::iter::empty()
    }

    fn exclusive(range: Range<u64>) -> Claim {
        Claim { range, kind: Kind::Exclusive }
    }

    fn write(range: Range<u64>) -> Claim {
        Claim { range, kind: Kind::Write }
    }

    #[test]
    fn an_exclusive_claim_waits_for_writes_in_flight_and_holds_later_ones_back_in_order() {
        let mut ranges = Ranges::new();
        let in_flight = || [(9, write(0..10))].into_iter();
        assert_eq!(ranges.claim(1, exclusive(5..20), "cas", in_flight()), None);
        assert_eq!(ranges.claim(2, write(15..16), "w1", in_flight()), None);
        assert_eq!(ranges.claim(3, write(20..30), "apart", in_flight()), Some("apart"));
        assert_eq!(ranges.next_admitted(in_flight), None);
        assert_eq!(ranges.next_admitted(nothing), Some((1, 5..20, "cas")));
        assert_eq!(ranges.next_admitted(nothing), None);
        assert!(ranges.release(1));
        assert_eq!(ranges.next_admitted(nothing), Some((2, 15..16, "w1")));
        assert!(ranges.idle());
    }

    #[test]
    fn the_holder_writes_within_its_range_though_others_wait_for_it() {
        let mut ranges = Ranges::new();
        assert_eq!(ranges.claim(1, exclusive(0..10), "read", nothing()), Some("read"));
        assert_eq!(ranges.claim(2, exclusive(0..10), "other", nothing()), None);
        assert_eq!(ranges.claim(1, write(2..4), "write", nothing()), Some("write"));
    }

    #[test]
    fn a_read_waits_for_a_sealed_range_only() {
        let read = || Claim { range: 5..6, kind: Kind::Read };
        let sealed = || Claim { range: 0..10, kind: Kind::Sealed };
        let mut ranges = Ranges::new();
        assert_eq!(ranges.claim(1, exclusive(0..10), "cas", nothing()), Some("cas"));
        assert_eq!(ranges.claim(2, write(5..6), "write", nothing()), None);
        assert_eq!(ranges.claim(3, read(), "read", nothing()), Some("read"));
        let reading = || [(3, read())].into_iter();
        assert_eq!(ranges.claim(4, sealed(), "atomic", reading()), None);
        assert_eq!(ranges.claim(5, read(), "later", reading()), None);
        ranges.release(1);
        assert_eq!(ranges.next_admitted(reading), Some((2, 5..6, "write")));
        assert_eq!(ranges.next_admitted(reading), None);
        assert_eq!(ranges.next_admitted(nothing), Some((4, 0..10, "atomic")));
        ranges.release(4);
        assert_eq!(ranges.next_admitted(nothing), Some((5, 5..6, "later")));
    }

    #[test]
    fn a_withdrawn_claim_no_longer_holds_others_back() {
        let mut ranges = Ranges::new();
        assert_eq!(ranges.claim(1, exclusive(0..10), 1, nothing()), Some(1));
        assert_eq!(ranges.claim(2, exclusive(0..20), 2, nothing()), None);
        assert_eq!(ranges.claim(3, write(15..20), 3, nothing()), None);
        assert_eq!(ranges.withdraw(2), Some(2));
        assert_eq!(ranges.next_admitted(nothing), Some((3, 15..20, 3)));
    }

    proptest! {
        /// Commands come and go in any order: what is in flight never conflicts, and everything starts in the end.
        #[test]
        fn no_conflict_is_ever_in_flight_and_nobody_starves(
            script in prop::collection::vec((0..40u64, 1..12u64, 0..4usize, 0..8usize), 1..80)
        ) {
            let mut ranges = Ranges::new();
            let mut flying: Vec<(usize, Claim)> = Vec::new();
            let mut started = 0;
            let check = |flying: &[(usize, Claim)]| {
                flying.iter().enumerate().all(|(index, (_, a))| flying[..index].iter().all(|(_, b)| {
                    !a.kind.excludes(b.kind) || !overlap(&a.range, &b.range)
                }))
            };
            for (owner, (start, len, kind, leave)) in script.iter().enumerate() {
                let kind = [Kind::Read, Kind::Write, Kind::Exclusive, Kind::Sealed][*kind];
                let claim = Claim { range: *start..start + len, kind };
                if ranges.claim(owner, claim.clone(), claim.clone(), flying.iter().cloned()).is_some() {
                    flying.push((owner, claim));
                    started += 1;
                }
                if *leave < flying.len() {
                    let (gone, _) = flying.remove(*leave);
                    ranges.release(gone);
                    while let Some((owner, _, claim)) = ranges.next_admitted(|| flying.iter().cloned()) {
                        flying.push((owner, claim));
                        started += 1;
                    }
                }
                prop_assert!(check(&flying));
            }
            while let Some((gone, _)) = flying.pop() {
                ranges.release(gone);
                while let Some((owner, _, claim)) = ranges.next_admitted(|| flying.iter().cloned()) {
                    flying.push((owner, claim));
                    started += 1;
                }
                prop_assert!(check(&flying));
            }
            prop_assert_eq!(started, script.len());
        }
    }
}
