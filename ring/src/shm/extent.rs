//! Blocks of the data area that the producer owns alone: allocated and not yet published, or completed and not yet freed.

use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::area::Area;

/// Contiguous blocks taken from an area's bitmap. Not `Clone`: whoever has it owns the blocks.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) first: usize,
    pub(crate) count: usize,
}

/// The runs of one extent, ascending; mostly one.
pub(crate) type Runs = SmallVec<[Run; 2]>;

/// Exclusively owned blocks of one LUN's data area; dropping it frees them. `Extent::default()` is empty.
///
/// Because nobody else has them, they may be sliced: socket reads and writes and CRC32C work in place. While a command
/// with these blocks is in flight the extent lies in the producer's table, out of everybody's reach.
#[derive(Debug, Default)]
pub struct Extent {
    area: Option<Arc<Area>>,
    runs: Runs,
    len: usize,
}

impl Extent {
    /// Takes blocks over that the area's bitmap has just handed out.
    pub(crate) fn new(area: Arc<Area>, runs: Runs, len: usize) -> Self {
        Self { area: Some(area), runs, len }
    }

    /// Bytes asked for (not rounded up to blocks).
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when there is no byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Contiguous pieces, as the ring entry will carry them.
    pub fn pieces(&self) -> usize {
        self.runs.len()
    }

    /// Puts another extent of the same ring behind this one. Panics when this one ends within a block, or when they are
    /// of two rings (the caller's bug).
    pub fn append(&mut self, mut other: Self) {
        let Some(area) = other.area.take() else { return };
        assert!(self.is_of(&area), "extents of two rings");
        assert!(self.len.is_multiple_of(area.block()), "{} bytes do not end with a block", self.len);
        self.len += std::mem::take(&mut other.len);
        for run in std::mem::take(&mut other.runs) {
            match self.runs.last_mut() {
                Some(last) if last.first + last.count == run.first => last.count += run.count,
                _ => self.runs.push(run),
            }
        }
        self.area = Some(area);
    }

    /// Whether the blocks belong to this area.
    pub(crate) fn is_of(&self, area: &Arc<Area>) -> bool {
        self.area.as_ref().is_none_or(|own| Arc::ptr_eq(own, area))
    }

    /// The pieces of `range` as (offset in the mapping, length). Panics when the range is outside.
    pub(crate) fn ranges(&self, range: Range<usize>) -> impl Iterator<Item = (usize, usize)> {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {}", self.len);
        let (block, base) = self.area.as_ref().map_or((1, 0), |area| (area.block(), area.data_off()));
        let mut position = 0;
        self.runs.iter().filter_map(move |run| {
            let (start, len) = (position, run.count * block);
            position += len;
            let from = range.start.max(start);
            let to = range.end.min(start + len);
            (from < to).then(|| (base + run.first * block + (from - start), to - from))
        })
    }

    /// Appends the memory of `range` as slices to read from. Panics when the range is outside.
    pub fn io_slices<'a>(&'a self, range: Range<usize>, into: &mut Vec<IoSlice<'a>>) {
        let Some(area) = &self.area else { return };
        for (offset, len) in self.ranges(range) {
            let pointer = area.mapping().at(offset, len);
            // SAFETY: the blocks are owned by this extent alone (`Run` is handed out once by the bitmap and not
            // published while the extent is held), so nobody writes them during the borrow of `self`; the area keeps
            // the mapping.
            into.push(IoSlice::new(unsafe { std::slice::from_raw_parts(pointer, len) }));
        }
    }

    /// Appends the memory of `range` as slices to write into. Panics when the range is outside.
    pub fn io_slices_mut<'a>(&'a mut self, range: Range<usize>, into: &mut Vec<IoSliceMut<'a>>) {
        let Some(area) = &self.area else { return };
        for (offset, len) in self.ranges(range) {
            let pointer = area.mapping().at(offset, len);
            // SAFETY: as in `io_slices`; the borrow is unique and the pieces of one extent do not overlap.
            into.push(IoSliceMut::new(unsafe { std::slice::from_raw_parts_mut(pointer, len) }));
        }
    }

    /// Zeroes the whole extent.
    pub fn zero(&mut self) {
        let mut slices = Vec::with_capacity(self.runs.len());
        self.io_slices_mut(0..self.len, &mut slices);
        slices.iter_mut().for_each(|slice| slice.fill(0));
    }
}

impl Drop for Extent {
    fn drop(&mut self) {
        if let Some(area) = self.area.take() {
            area.free(std::mem::take(&mut self.runs));
        }
    }
}
