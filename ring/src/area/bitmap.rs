//! Which blocks of an area are taken, and which of them have memory behind them.

use std::ops::Range;

use smallvec::SmallVec;

use crate::shm::Run;

/// One bit per block.
#[derive(Debug)]
pub(super) struct Bitmap {
    words: Vec<u64>,
    bits: usize,
    set: usize,
    /// No word below this one has a clear bit.
    full_below: usize,
    /// No word from this one on has a set bit.
    empty_from: usize,
}

impl Bitmap {
    pub(super) fn new(bits: usize) -> Self {
        Self { words: vec![0; bits.div_ceil(64)], bits, set: 0, full_below: 0, empty_from: 0 }
    }

    /// Bits in all.
    pub(super) fn len(&self) -> usize {
        self.bits
    }

    /// Bits that are set.
    pub(super) fn count(&self) -> usize {
        self.set
    }

    /// Sets the bits of a run; returns how many of them were clear.
    pub(super) fn set(&mut self, run: &Run) -> usize {
        let mut changed = 0;
        for (word, mask) in masks(run.first..run.first + run.count) {
            changed += (mask & !self.words[word]).count_ones() as usize;
            self.words[word] |= mask;
        }
        self.empty_from = self.empty_from.max((run.first + run.count).div_ceil(64));
        self.set += changed;
        while self.full_below < self.words.len() && self.words[self.full_below] == u64::MAX {
            self.full_below += 1;
        }
        changed
    }

    /// Clears the bits of a run; returns how many of them were set.
    pub(super) fn clear(&mut self, run: &Run) -> usize {
        let mut changed = 0;
        for (word, mask) in masks(run.first..run.first + run.count) {
            changed += (mask & self.words[word]).count_ones() as usize;
            self.words[word] &= !mask;
        }
        self.full_below = self.full_below.min(run.first / 64);
        self.set -= changed;
        while self.empty_from > 0 && self.words[self.empty_from - 1] == 0 {
            self.empty_from -= 1;
        }
        changed
    }

    /// How many bits of a run are clear.
    pub(super) fn clear_in(&self, run: &Run) -> usize {
        let set: u32 = masks(run.first..run.first + run.count)
            .map(|(word, mask)| (self.words[word] & mask).count_ones())
            .sum();
        run.count - set as usize
    }

    /// The lowest run of `count` clear bits.
    pub(super) fn lowest_run(&self, count: usize) -> Option<Run> {
        let (mut first, mut length) = (self.full_below * 64, 0);
        for word in self.full_below..self.empty_from {
            let mut bit = 0;
            let value = self.words[word];
            while bit < 64 {
                let rest = value >> bit;
                let clear = (rest.trailing_zeros() as usize).min(64 - bit);
                if length == 0 {
                    first = word * 64 + bit;
                }
                length += clear;
                if length >= count {
                    // The last word's bits beyond the end are clear, and no blocks.
                    return (first + count <= self.bits).then_some(Run { first, count });
                }
                bit += clear;
                if bit < 64 {
                    length = 0;
                    bit += (value >> bit).trailing_ones() as usize;
                }
            }
        }
        // Everything from here on is clear.
        if length == 0 {
            first = self.empty_from.max(self.full_below) * 64;
        }
        (first + count <= self.bits).then_some(Run { first, count })
    }

    /// The lowest `count` bits that are clear here (and set in `within`, if given), adjacent ones merged.
    pub(super) fn lowest(&self, count: usize, within: Option<&Self>) -> SmallVec<[Run; 2]> {
        let mut runs: SmallVec<[Run; 2]> = SmallVec::new();
        let mut left = count;
        for word in self.full_below..self.words.len() {
            if left == 0 {
                break;
            }
            let mut candidates = !self.words[word] & within.map_or(u64::MAX, |within| within.words[word]);
            while candidates != 0 && left > 0 {
                let bit = candidates.trailing_zeros() as usize;
                let length = ((candidates >> bit).trailing_ones() as usize).min(left);
                let first = word * 64 + bit;
                let length = length.min(self.bits.saturating_sub(first));
                if length == 0 {
                    return runs;
                }
                match runs.last_mut() {
                    Some(last) if last.first + last.count == first => last.count += length,
                    _ => runs.push(Run { first, count: length }),
                }
                left -= length;
                candidates &= !mask(bit, length);
            }
        }
        runs
    }

    /// The highest run of bits that are set here and clear in `other`, at most `most` long.
    pub(super) fn highest_run_not_in(&self, other: &Self, most: usize) -> Option<Run> {
        let free = |bit: usize| {
            let (word, shift) = (bit / 64, bit % 64);
            (self.words[word] & !other.words[word]) >> shift & 1 == 1
        };
        let word = (0..self.empty_from).rev().find(|word| self.words[*word] & !other.words[*word] != 0)?;
        let top = word * 64 + 63 - (self.words[word] & !other.words[word]).leading_zeros() as usize;
        let mut first = top;
        while first > 0 && top - first + 1 < most && free(first - 1) {
            first -= 1;
        }
        Some(Run { first, count: top - first + 1 })
    }
}

/// `count` bits from `bit` on, within one word.
fn mask(bit: usize, count: usize) -> u64 {
    (u64::MAX >> (64 - count)) << bit
}

/// The words of a range with the bits of each that belong to it.
fn masks(range: Range<usize>) -> impl Iterator<Item = (usize, u64)> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        if at >= range.end {
            return None;
        }
        let (word, bit) = (at / 64, at % 64);
        let count = (64 - bit).min(range.end - at);
        at += count;
        Some((word, mask(bit, count)))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_lowest_run_that_fits_comes_first_and_else_the_lowest_free() {
        let mut map = Bitmap::new(256);
        map.set(&Run { first: 0, count: 256 });
        map.clear(&Run { first: 10, count: 2 });
        map.clear(&Run { first: 60, count: 8 });
        map.clear(&Run { first: 200, count: 8 });
        assert_eq!(map.lowest_run(2), Some(Run { first: 10, count: 2 }));
        assert_eq!(map.lowest_run(8), Some(Run { first: 60, count: 8 }));
        assert_eq!(map.lowest_run(9), None);
        let runs: Vec<_> = map.lowest(11, None).into_iter().map(|run| (run.first, run.count)).collect();
        assert_eq!(runs, [(10, 2), (60, 8), (200, 1)]);
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_plain_list(
            bits in 1usize..200,
            changes in proptest::collection::vec((any::<bool>(), 0usize..200, 1usize..80), 0..40),
            want in 1usize..90,
        ) {
            let (mut map, mut list) = (Bitmap::new(bits), vec![false; bits]);
            for (set, first, count) in changes {
                let first = first % bits;
                let count = count.min(bits - first);
                let part = &mut list[first..first + count];
                let differing = part.iter().filter(|bit| **bit != set).count();
                let list_clear = part.iter().filter(|bit| !**bit).count();
                part.fill(set);
                let run = Run { first, count };
                prop_assert_eq!(map.clear_in(&run), list_clear);
                let changed = if set { map.set(&run) } else { map.clear(&run) };
                prop_assert_eq!(changed, differing);
                prop_assert_eq!(map.count(), list.iter().filter(|bit| **bit).count());
            }
            let expected = (0..bits).find(|first| first + want <= bits && list[*first..first + want].iter().all(|bit| !bit));
            prop_assert_eq!(map.lowest_run(want).map(|run| run.first), expected);
            let lowest: Vec<usize> = map.lowest(want, None).iter().flat_map(|run| run.first..run.first + run.count).collect();
            let free: Vec<usize> = (0..bits).filter(|bit| !list[*bit]).take(want).collect();
            prop_assert_eq!(lowest, free);
            let top = map.highest_run_not_in(&Bitmap::new(bits), want).map(|run| run.first + run.count - 1);
            prop_assert_eq!(top, list.iter().rposition(|bit| *bit));
        }
    }
}
