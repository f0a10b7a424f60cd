//! The consumer's view of one command's buffer: validated iovecs into the data area that keep the mapping alive.

use std::io;
use std::os::fd::BorrowedFd;

use crate::shm::Scatter;

/// A command's buffer in the data area. Cloning is cheap and shares the memory.
///
/// The peer may write this memory at any time, so no method hands out a slice of it. Drop every clone before the command
/// is completed: while one lives, the answer is held back, because its blocks may still be read or written through it
/// (see [`Consumer::withheld`](crate::Consumer::withheld)).
#[derive(Clone, Debug, Default)]
pub struct Segments(Scatter);

impl Segments {
    pub(crate) fn new(scatter: Scatter) -> Self {
        Self(scatter)
    }

    pub(crate) fn into_scatter(self) -> Scatter {
        self.0
    }

    /// Bytes in all segments together.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True when there is no byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies `into.len()` bytes out, from `offset` on. Panics when the range is outside (the caller's bug).
    pub fn copy_out(&self, offset: usize, into: &mut [u8]) {
        self.0.copy_out(offset, into);
    }

    /// Copies `from` in at `offset`. Panics when the range is outside.
    pub fn copy_in(&self, offset: usize, from: &[u8]) {
        self.0.copy_in(offset, from);
    }

    /// Fills a range with one byte value. Panics when the range is outside.
    pub fn fill(&self, offset: usize, len: usize, byte: u8) {
        self.0.fill(offset, len, byte);
    }

    /// Compares a range with `with`; `Err(n)` is the offset (within `with`) of the first different byte. Panics when
    /// the range is outside.
    pub fn compare(&self, offset: usize, with: &[u8]) -> Result<(), usize> {
        self.0.compare(offset, with)
    }

    /// A part of this buffer. Panics when the range is outside.
    pub fn slice(&self, offset: usize, len: usize) -> Self {
        Self(self.0.slice(offset, len))
    }

    /// The memory as iovecs, for a foreign library that reads or writes it while this value lives.
    pub fn iovecs(&self) -> &[libc::iovec] {
        self.0.iovecs()
    }

    /// `preadv` into the whole buffer: bytes read, short only at end of file.
    pub fn read_at(&self, file: BorrowedFd<'_>, offset: u64) -> io::Result<usize> {
        self.0.read_at(file, offset)
    }

    /// `pwritev` of the whole buffer; `dsync` adds RWF_DSYNC.
    pub fn write_at(&self, file: BorrowedFd<'_>, offset: u64, dsync: bool) -> io::Result<()> {
        self.0.write_at(file, offset, dsync)
    }
}
