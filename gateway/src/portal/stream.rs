//! The byte stream below a connection, as the protocol core sees it.

use std::io::{self, IoSlice, IoSliceMut};

/// A non-blocking byte stream. `WouldBlock` means: nothing now, the driver knows when to come back.
pub(crate) trait Stream {
    /// Reads into the slices in order; 0 is the end of the stream.
    fn read(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize>;
    /// Looks at what [`Self::read`] would return, without taking it.
    fn peek(&mut self, into: &mut [u8]) -> io::Result<usize>;
    /// Writes from the slices in order.
    fn write(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize>;
}

/// An empty vector of slices with the old one's memory.
pub(crate) fn recycle<'a>(mut slices: Vec<IoSlice<'_>>) -> Vec<IoSlice<'a>> {
    slices.clear();
    // In place: same layout, no element.
    slices.into_iter().map(|_| IoSlice::new(&[])).collect()
}

/// An empty vector of slices with the old one's memory.
pub(crate) fn recycle_mut<'a>(mut slices: Vec<IoSliceMut<'_>>) -> Vec<IoSliceMut<'a>> {
    slices.clear();
    slices.into_iter().map(|_| IoSliceMut::new(&mut [])).collect()
}
