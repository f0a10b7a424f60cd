//! Finds the lowest run of free blocks that is long enough, in logarithmic time.
//!
//! A binary tree over the words of the used bitmap (64 blocks each). A node knows, of the blocks below it, how many are
//! free at its low end, at its high end, and in its longest run. The tree spans a prefix of the area that doubles when
//! nothing fits inside, so that a large area that is hardly used costs hardly any memory; beyond it all blocks are free.

/// Free blocks below one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Free {
    low: u32,
    high: u32,
    longest: u32,
}

/// The tree; see the module.
#[derive(Debug)]
pub(super) struct Runs {
    /// Words spanned, a power of two.
    span: usize,
    /// Words in the area.
    words: usize,
    /// Heap order from 1; the leaves are `span..2 * span`.
    nodes: Vec<Free>,
}

/// Words that a new tree spans: 16 MiB of one-page blocks.
const FIRST_SPAN: usize = 64;

impl Runs {
    /// For an area of `words` bitmap words, all free (as far as `used` says).
    pub(super) fn new(words: usize, used: impl Fn(usize) -> u64) -> Self {
        let mut runs = Self { span: 0, words, nodes: Vec::new() };
        runs.spread(FIRST_SPAN.min(words.next_power_of_two()), used);
        runs
    }

    /// Takes note of changed words `first..=last`.
    pub(super) fn update(&mut self, first: usize, last: usize, used: impl Fn(usize) -> u64) {
        let last = last.min(self.span - 1);
        if first > last {
            return;
        }
        for word in first..=last {
            self.nodes[self.span + word] = leaf(used(word));
        }
        let (mut low, mut high, mut half) = (self.span + first, self.span + last, 64);
        while low > 1 {
            (low, high) = (low / 2, high / 2);
            let mut changed = false;
            for node in low..=high {
                let joined = join(self.nodes[2 * node], self.nodes[2 * node + 1], half);
                changed |= joined != self.nodes[node];
                self.nodes[node] = joined;
            }
            if !changed {
                return;
            }
            half *= 2;
        }
    }

    /// First block of the lowest run of `count` free blocks.
    pub(super) fn find(&mut self, count: u32, used: impl Fn(usize) -> u64) -> Option<u32> {
        while self.nodes[1].longest < count {
            if self.span >= self.words {
                return None;
            }
            self.spread(self.span * 2, &used);
        }
        let (mut node, mut base, mut half) = (1, 0, self.span as u32 * 32);
        while node < self.span {
            let (left, right) = (self.nodes[2 * node], self.nodes[2 * node + 1]);
            if left.longest >= count {
                node *= 2;
            } else if left.high + right.low >= count {
                return Some(base + half - left.high);
            } else {
                node = 2 * node + 1;
                base += half;
            }
            half /= 2;
        }
        Some(base + lowest_in(used(node - self.span), count))
    }

    fn spread(&mut self, span: usize, used: impl Fn(usize) -> u64) {
        self.span = span;
        self.nodes = vec![Free::default(); 2 * span];
        self.update(0, span - 1, used);
    }
}

fn leaf(used: u64) -> Free {
    let (low, high) = (used.trailing_zeros(), used.leading_zeros());
    let (mut free, mut longest) = (!used, 0);
    while free != 0 {
        free >>= free.trailing_zeros();
        let run = free.trailing_ones();
        longest = longest.max(run);
        free = free.checked_shr(run).unwrap_or(0);
    }
    Free { low, high, longest }
}

fn join(left: Free, right: Free, half: u32) -> Free {
    Free {
        low: if left.low == half { half + right.low } else { left.low },
        high: if right.high == half { half + left.high } else { right.high },
        longest: left.longest.max(right.longest).max(left.high + right.low),
    }
}

/// Where the lowest run of `count` free blocks begins in a word that has one.
fn lowest_in(used: u64, count: u32) -> u32 {
    let (mut starts, mut have) = (!used, 1);
    while have < count {
        let step = have.min(count - have);
        starts &= starts >> step;
        have += step;
    }
    starts.trailing_zeros()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lowest_by_hand(used: &[u64], count: u32) -> Option<u32> {
        let is_free = |block: u32| used[block as usize / 64] >> (block % 64) & 1 == 0;
        let blocks = used.len() as u32 * 64;
        (0..blocks).find(|start| start + count <= blocks && (*start..start + count).all(is_free))
    }

    #[test]
    fn an_empty_area_begins_at_block_0_whatever_is_asked() {
        let mut runs = Runs::new(4096, |_| 0);
        assert_eq!(runs.find(1, |_| 0), Some(0));
        assert_eq!(runs.find(4096 * 64, |_| 0), Some(0));
        assert_eq!(runs.find(4096 * 64 + 1, |_| 0), None);
    }

    proptest! {
        #[test]
        fn finds_the_lowest_run_that_fits(
            masks in prop::collection::vec((any::<u64>(), any::<u64>(), 0u8..4), 1..200),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u64>()), 0..20),
            count in 1u32..300,
        ) {
            let mut used: Vec<u64> = masks.iter().map(|(a, b, kind)| match kind {
                0 => 0,
                1 => u64::MAX,
                2 => a & b,
                _ => a | b,
            }).collect();
            let words = used.len();
            let before = used.clone();
            let mut runs = Runs::new(words, |word| before.get(word).copied().unwrap_or(u64::MAX));
            for (index, value) in changes {
                let word = index.index(words);
                used[word] = value;
                runs.update(word, word, |word| used.get(word).copied().unwrap_or(u64::MAX));
            }
            let found = runs.find(count, |word| used.get(word).copied().unwrap_or(u64::MAX));
            prop_assert_eq!(found, lowest_by_hand(&used, count));
        }
    }
}
