//! The consumer's view of one command's buffer: validated iovecs into the data area that keep the mapping alive.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

use smallvec::SmallVec;

use super::Mapping;

/// Iovecs that one system call takes (`UIO_MAXIOV`).
const MOST_IOVECS: usize = 1024;

/// A command's buffer in the data area. Cloning is cheap and shares the memory.
///
/// The peer may write this memory at any time, so no method hands out a slice of it.
#[derive(Clone, Debug)]
pub struct Segments {
    mapping: Arc<Mapping>,
    iovecs: SmallVec<[libc::iovec; 2]>,
    len: usize,
}

// SAFETY: the iovecs point into the mapping, which the value keeps alive and which any thread may touch through the
// atomic accesses of this room; nothing in it belongs to a thread.
unsafe impl Send for Segments {}
// SAFETY: as above; no method changes the value through a shared reference.
unsafe impl Sync for Segments {}

impl Segments {
    /// No byte of `mapping`.
    pub(crate) fn empty(mapping: &Arc<Mapping>) -> Self {
        Self { mapping: Arc::clone(mapping), iovecs: SmallVec::new(), len: 0 }
    }

    /// Adds a range that lies in the mapping (validated by the caller; checked again here).
    pub(crate) fn push(&mut self, offset: usize, len: usize) {
        if len > 0 {
            self.iovecs.push(self.mapping.iovec(offset, len));
            self.len += len;
        }
    }

    /// Bytes in all segments together.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when there is no byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies `into.len()` bytes out, from `offset` on. Panics when the range is outside (the caller's bug).
    pub fn copy_out(&self, offset: usize, into: &mut [u8]) {
        let mut done = 0;
        self.each(offset, into.len(), |at, len| {
            self.mapping.copy_out(at, &mut into[done..done + len]);
            done += len;
        });
    }

    /// Copies `from` in at `offset`. Panics when the range is outside.
    pub fn copy_in(&self, offset: usize, from: &[u8]) {
        let mut done = 0;
        self.each(offset, from.len(), |at, len| {
            self.mapping.copy_in(at, &from[done..done + len]);
            done += len;
        });
    }

    /// Fills a range with one byte value. Panics when the range is outside.
    pub fn fill(&self, offset: usize, len: usize, byte: u8) {
        self.each(offset, len, |at, len| self.mapping.fill(at, len, byte));
    }

    /// Compares a range with `with`; `Err(n)` is the offset (within `with`) of the first different byte.
    pub fn compare(&self, offset: usize, with: &[u8]) -> Result<(), usize> {
        let mut chunk = [0; 512];
        for (index, expected) in with.chunks(chunk.len()).enumerate() {
            let (at, found) = (index * 512, &mut chunk[..expected.len()]);
            self.copy_out(offset + at, found);
            if found != expected {
                let place = found.iter().zip(expected).position(|(a, b)| a != b);
                return Err(at + place.unwrap_or_default());
            }
        }
        Ok(())
    }

    /// A part of this buffer. Panics when the range is outside.
    pub fn slice(&self, offset: usize, len: usize) -> Self {
        let mut part = Self::empty(&self.mapping);
        self.each(offset, len, |at, len| part.push(at, len));
        part
    }

    /// The memory as iovecs, for a foreign library that reads or writes it while this value lives.
    pub fn iovecs(&self) -> &[libc::iovec] {
        &self.iovecs
    }

    /// `preadv` into the whole buffer: bytes read, short only at end of file.
    pub fn read_at(&self, file: BorrowedFd<'_>, offset: u64) -> io::Result<usize> {
        self.transfer(offset, |iovecs, at| {
            // SAFETY: the iovecs point into the mapping, which `self` keeps; the kernel writes there and nowhere else.
            unsafe { libc::preadv(file.as_raw_fd(), iovecs.as_ptr(), iovecs.len() as libc::c_int, at) }
        })
    }

    /// `pwritev` of the whole buffer; `dsync` adds RWF_DSYNC.
    pub fn write_at(&self, file: BorrowedFd<'_>, offset: u64, dsync: bool) -> io::Result<()> {
        let flags = if dsync { libc::RWF_DSYNC } else { 0 };
        let written = self.transfer(offset, |iovecs, at| {
            // SAFETY: as in `read_at`; the kernel only reads.
            unsafe {
                libc::pwritev2(file.as_raw_fd(), iovecs.as_ptr(), iovecs.len() as libc::c_int, at, flags)
            }
        })?;
        if written == self.len { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    /// Repeats a vectored call until the buffer is done or the call moves nothing.
    fn transfer(
        &self,
        offset: u64,
        call: impl Fn(&[libc::iovec], i64) -> libc::ssize_t,
    ) -> io::Result<usize> {
        let mut done = 0;
        while done < self.len {
            let rest;
            let iovecs = if done == 0 {
                &self.iovecs
            } else {
                rest = self.slice(done, self.len - done);
                &rest.iovecs
            };
            let at = i64::try_from(offset + done as u64).map_err(io::Error::other)?;
            match usize::try_from(call(&iovecs[..iovecs.len().min(MOST_IOVECS)], at)) {
                Ok(0) => break,
                Ok(moved) => done += moved,
                Err(_negative) => {
                    let error = io::Error::last_os_error();
                    if error.kind() != io::ErrorKind::Interrupted {
                        return Err(error);
                    }
                }
            }
        }
        Ok(done)
    }

    /// Visits a range as (offset in the mapping, length) pieces.
    fn each(&self, offset: usize, len: usize, mut visit: impl FnMut(usize, usize)) {
        assert!(
            offset.checked_add(len).is_some_and(|end| end <= self.len),
            "{len} bytes at {offset} of {}",
            self.len
        );
        let base = self.mapping.memory.as_ptr() as usize;
        let (mut skip, mut left) = (offset, len);
        for iovec in &self.iovecs {
            if left == 0 {
                return;
            }
            if skip >= iovec.iov_len {
                skip -= iovec.iov_len;
                continue;
            }
            let piece = left.min(iovec.iov_len - skip);
            visit(iovec.iov_base as usize - base + skip, piece);
            (skip, left) = (0, left - piece);
        }
    }
}
