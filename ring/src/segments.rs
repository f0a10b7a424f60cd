//! The consumer's view of one command's buffer: validated iovecs into the data area that keep the mapping alive.

use std::io;
use std::os::fd::BorrowedFd;

/// A command's buffer in the data area. Cloning is cheap and shares the memory.
///
/// The peer may write this memory at any time, so no method hands out a slice of it.
#[derive(Clone, Debug)]
pub struct Segments {}

impl Segments {
    /// Bytes in all segments together.
    pub fn len(&self) -> usize {
        todo!()
    }
    /// True when there is no byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Copies `into.len()` bytes out, from `offset` on. Panics when the range is outside (the caller's bug).
    pub fn copy_out(&self, _offset: usize, _into: &mut [u8]) {
        todo!()
    }
    /// Copies `from` in at `offset`. Panics when the range is outside.
    pub fn copy_in(&self, _offset: usize, _from: &[u8]) {
        todo!()
    }
    /// Fills a range with one byte value. Panics when the range is outside.
    pub fn fill(&self, _offset: usize, _len: usize, _byte: u8) {
        todo!()
    }
    /// Compares a range with `with`; `Err(n)` is the offset (within `with`) of the first different byte.
    pub fn compare(&self, _offset: usize, _with: &[u8]) -> Result<(), usize> {
        todo!()
    }
    /// A part of this buffer. Panics when the range is outside.
    pub fn slice(&self, _offset: usize, _len: usize) -> Self {
        todo!()
    }
    /// The memory as iovecs, for a foreign library that reads or writes it while this value lives.
    pub fn iovecs(&self) -> &[libc::iovec] {
        todo!()
    }
    /// `preadv` into the whole buffer: bytes read, short only at end of file.
    pub fn read_at(&self, _file: BorrowedFd<'_>, _offset: u64) -> io::Result<usize> {
        todo!()
    }
    /// `pwritev` of the whole buffer; `dsync` adds RWF_DSYNC.
    pub fn write_at(&self, _file: BorrowedFd<'_>, _offset: u64, _dsync: bool) -> io::Result<()> {
        todo!()
    }
}
