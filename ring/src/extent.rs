//! Blocks of the data area that the producer owns alone: allocated and not yet published, or completed and not yet freed.

use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;

/// Exclusively owned blocks of one LUN's data area; dropping it frees them. `Extent::default()` is empty.
///
/// Because nobody else has them, they may be sliced: socket reads and writes and CRC32C work in place.
#[derive(Debug, Default)]
pub struct Extent {}

impl Extent {
    /// Bytes asked for (not rounded up to blocks).
    pub fn len(&self) -> usize {
        todo!()
    }
    /// True when there is no byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Appends the memory of `range` as slices to read from. Panics when the range is outside.
    pub fn io_slices<'a>(&'a self, _range: Range<usize>, _into: &mut Vec<IoSlice<'a>>) {
        todo!()
    }
    /// Appends the memory of `range` as slices to write into. Panics when the range is outside.
    pub fn io_slices_mut<'a>(&'a mut self, _range: Range<usize>, _into: &mut Vec<IoSliceMut<'a>>) {
        todo!()
    }
    /// Adds another extent of the same LUN at the end.
    pub fn append(&mut self, _other: Self) {
        todo!()
    }
    /// Zeroes the whole extent.
    pub fn zero(&mut self) {
        todo!()
    }
    /// Contiguous pieces, as the ring entry will carry them.
    pub fn pieces(&self) -> usize {
        todo!()
    }
}
