//! Who owns which block of the data area: every block belongs to at most one [`Run`], and a run may be sliced.
#![expect(unsafe_code, reason = "slices blocks that only one owner has")]
// UNSAFETY: slices are made only through a `Run`, runs only by `Ledger::take`, and that hands out each block once
// until it is given back. Both ends of a well-behaved ring keep off blocks that are not theirs: the consumer touches a
// command's blocks only between publication (the run lies untouched in the in-flight table) and the answer.

use std::sync::Arc;

use super::Mapping;

/// The used bits of one data area.
#[derive(Debug)]
pub(crate) struct Ledger {
    mapping: Arc<Mapping>,
    base: usize,
    block: usize,
    blocks: u32,
    used: Vec<u64>,
}

/// Contiguous blocks with one owner. Not freed by dropping: give it back, or lose the blocks until the area is gone.
#[derive(Debug)]
#[must_use = "blocks that are not given back are lost"]
pub(crate) struct Run {
    base: usize,
    offset: usize,
    start: u32,
    count: u32,
    block: usize,
}

impl Ledger {
    /// For `blocks` blocks of `block` bytes from `base` on. Panics when they do not fit the mapping.
    pub(crate) fn new(mapping: &Arc<Mapping>, base: usize, block: usize, blocks: u32) -> Self {
        let _ = mapping.at(base, block * blocks as usize);
        let used = vec![0; (blocks as usize).div_ceil(64)];
        Self { mapping: Arc::clone(mapping), base, block, blocks, used }
    }

    /// Used bits of blocks `64 * index ..`; bits past the last block read as used.
    pub(crate) fn word(&self, index: usize) -> u64 {
        let Some(word) = self.used.get(index) else { return u64::MAX };
        let valid = self.blocks as usize - index * 64;
        if valid >= 64 { *word } else { word | u64::MAX << valid }
    }

    /// Takes `count` blocks from `start` on; `None` when one is taken or does not exist.
    pub(crate) fn take(&mut self, start: u32, count: u32) -> Option<Run> {
        let end = start.checked_add(count).filter(|end| *end <= self.blocks)?;
        if spans(start, end).any(|(index, mask)| self.used[index] & mask != 0) {
            return None;
        }
        for (index, mask) in spans(start, end) {
            self.used[index] |= mask;
        }
        let offset = self.base + start as usize * self.block;
        Some(Run { base: self.mapping.base() as usize, offset, start, count, block: self.block })
    }

    /// Frees a run; panics when it is another area's.
    pub(crate) fn give_back(&mut self, run: Run) {
        assert_eq!(run.base, self.mapping.base() as usize, "a run of another area");
        for (index, mask) in spans(run.start, run.start + run.count) {
            self.used[index] &= !mask;
        }
    }
}

impl Run {
    /// First block.
    pub(crate) fn start(&self) -> u32 {
        self.start
    }

    /// Number of blocks.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Bytes from the start of the mapping.
    pub(crate) fn offset(&self) -> usize {
        self.offset
    }

    /// Bytes.
    pub(crate) fn len(&self) -> usize {
        self.count as usize * self.block
    }

    /// The memory, to read.
    pub(crate) fn bytes<'a>(&'a self, mapping: &'a Mapping) -> &'a [u8] {
        let at = self.address(mapping);
        // SAFETY: inside the mapping, alive as long as both borrows, and nobody writes it: `self` owns the blocks and
        // is borrowed.
        unsafe { std::slice::from_raw_parts(at, self.len()) }
    }

    /// The memory, to write.
    pub(crate) fn bytes_mut<'a>(&'a mut self, mapping: &'a Mapping) -> &'a mut [u8] {
        let at = self.address(mapping);
        // SAFETY: as in `bytes`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(at, self.len()) }
    }

    fn address(&self, mapping: &Mapping) -> *mut u8 {
        assert_eq!(self.base, mapping.base() as usize, "a run of another mapping");
        mapping.at(self.offset, self.len())
    }
}

/// Words and masks that cover blocks `start..end`.
pub(crate) fn spans(start: u32, end: u32) -> impl Iterator<Item = (usize, u64)> {
    (start / 64..end.div_ceil(64)).filter(move |_| start < end).map(move |index| {
        let (low, high) = (start.max(index * 64) - index * 64, end.min((index + 1) * 64) - index * 64);
        (index as usize, (u64::MAX >> (64 - (high - low))) << low)
    })
}
