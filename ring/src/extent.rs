//! Blocks of the data area that the producer owns alone: allocated and not yet published, or completed and not yet freed.

use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::Arc;

use crate::Direction;
use crate::area::{Area, Held};

/// Exclusively owned blocks of one LUN's data area; dropping it frees them. `Extent::default()` is empty.
///
/// Because nobody else has them, they may be sliced: socket reads and writes and CRC32C work in place. A block that was
/// used before holds bytes of an earlier command of the same LUN until it is written; a new one holds zeros.
#[derive(Debug, Default)]
pub struct Extent {
    /// `None` when there is no byte.
    area: Option<Arc<Area>>,
    held: Held,
    len: usize,
    direction: Direction,
}

impl Extent {
    /// Takes blocks that the pool has granted.
    pub(crate) fn take(area: &Arc<Area>, len: usize) -> Self {
        if len == 0 {
            return Self::default();
        }
        Self { held: area.take(len), area: Some(Arc::clone(area)), len, direction: Direction::Unknown }
    }

    /// Bytes asked for (not rounded up to blocks).
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when there is no byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends the memory of `range` as slices to read from. Panics when the range is outside.
    pub fn io_slices<'a>(&'a self, range: Range<usize>, into: &mut Vec<IoSlice<'a>>) {
        self.check(&range);
        let Some(area) = &self.area else { return };
        let mut start = 0;
        for run in &self.held {
            if let Some(part) = overlap(start, run.len(), &range) {
                into.push(IoSlice::new(&run.bytes(&area.mapping)[part]));
            }
            start += run.len();
        }
    }

    /// Appends the memory of `range` as slices to write into. Panics when the range is outside.
    pub fn io_slices_mut<'a>(&'a mut self, range: Range<usize>, into: &mut Vec<IoSliceMut<'a>>) {
        self.check(&range);
        let Some(area) = &self.area else { return };
        let mut start = 0;
        for run in &mut self.held {
            let len = run.len();
            if let Some(part) = overlap(start, len, &range) {
                into.push(IoSliceMut::new(&mut run.bytes_mut(&area.mapping)[part]));
            }
            start += len;
        }
    }

    /// Zeroes the whole extent.
    pub fn zero(&mut self) {
        if let Some(area) = &self.area {
            self.held.iter_mut().for_each(|run| run.bytes_mut(&area.mapping).fill(0));
        }
    }

    /// Says which way the bytes will be carried; the ring entry tells the consumer.
    pub fn set_direction(&mut self, direction: Direction) {
        self.direction = direction;
    }

    /// Which way the bytes will be carried.
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// Contiguous pieces, as the ring entry will carry them.
    pub fn pieces(&self) -> usize {
        self.held.len()
    }

    /// Puts another extent of the same LUN behind this one. Panics when this one ends within a block, or when they are of
    /// two rings (the caller's bug).
    pub fn append(&mut self, mut other: Self) {
        let Some(area) = other.area.take() else { return };
        assert!(self.is_of(&area), "extents of two rings");
        assert!(self.len.is_multiple_of(area.block()), "{} bytes do not end with a block", self.len);
        self.len += std::mem::take(&mut other.len);
        self.held.append(&mut other.held);
        self.area = Some(area);
    }

    /// The pieces as offsets from the start of the mapping.
    pub(crate) fn iovecs(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut left = self.len;
        self.held.iter().map(move |run| {
            let len = run.len().min(left);
            left -= len;
            (run.offset() as u64, len as u64)
        })
    }

    /// True when the blocks are of that area (or there are none).
    pub(crate) fn is_of(&self, area: &Arc<Area>) -> bool {
        self.area.as_ref().is_none_or(|own| Arc::ptr_eq(own, area))
    }

    /// Gives the blocks up without freeing them: somebody may still write to them, until the memory is unmapped.
    pub(crate) fn strand(mut self) {
        self.area = None;
        self.held.clear();
    }

    fn check(&self, range: &Range<usize>) {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} is outside {} bytes", self.len);
    }
}

/// The part of a piece at `start` that lies in `range`, relative to the piece.
fn overlap(start: usize, len: usize, range: &Range<usize>) -> Option<Range<usize>> {
    let (first, end) = (range.start.max(start), range.end.min(start + len));
    (first < end).then(|| first - start..end - start)
}

impl Drop for Extent {
    fn drop(&mut self) {
        if let Some(area) = self.area.take() {
            area.free(std::mem::take(&mut self.held));
        }
    }
}
