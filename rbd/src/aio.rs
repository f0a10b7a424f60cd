//! Asynchronous I/O on an image: submit, and be called back.
//!
//! The last argument of each method is called exactly once with the result, on a librbd thread or, when the operation fails
//! at once, on the caller's before the method returns. It must not block and must not own the [`Image`] (the last owner
//! waits for operations to end). A buffer belongs to the operation until then and comes back with the result.
//!
//! What librbd would do silently is refused here: a write past the end (it clips and reports success), a range of
//! no length (it aborts the process), a pattern that does not fit its range. [`OUT_OF_RANGE`] says so.

use std::sync::atomic::Ordering;

pub use crate::ffi::aio::{Bytes, IoBuf};

use crate::error::{Errno, OUT_OF_RANGE};
use crate::ffi::aio::{self as raw, Call, Compare};
use crate::image::Image;

/// How a compare-and-write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compared {
    /// It was as expected and is written.
    Written,
    /// It was not; nothing is written. The offset, within the buffer, of the first different byte.
    Differs(u64),
}

/// The most that [`Image::compare_and_write`] compares: librbd takes what lies within one sector, and no more.
pub const COMPARE_LIMIT: u64 = 512;

impl Image {
    /// Reads into `buffer`. The result is the number of bytes read, less than the buffer only at the end of the image;
    /// the rest of the buffer is then unchanged.
    pub fn read<B: IoBuf>(
        &self,
        offset: u64,
        buffer: B,
        done: impl FnOnce(Result<usize, Errno>, B) + Send + 'static,
    ) {
        // librbd answers a read that begins past the end with EINVAL.
        let end = self.known_size();
        if buffer.is_empty() || offset >= end {
            return done(Ok(0), buffer);
        }
        let Ok(handle) = self.handle() else { return done(Err(Errno(libc::EBADF)), buffer) };
        let prepare = move |buffer: &mut B| {
            let parts = buffer.iovecs();
            Call::Read { offset, end, parts: parts.as_ptr(), count: parts.len() }
        };
        raw::submit(handle, &self.in_flight, buffer, prepare, done);
    }

    /// Writes all of `buffer`.
    pub fn write<B: IoBuf>(
        &self,
        offset: u64,
        buffer: B,
        done: impl FnOnce(Result<(), Errno>, B) + Send + 'static,
    ) {
        let handle = match self.writable(offset, buffer.len() as u64) {
            Ok(Some(handle)) => handle,
            Ok(None) => return done(Ok(()), buffer),
            Err(errno) => return done(Err(errno), buffer),
        };
        let prepare = move |buffer: &mut B| {
            let parts = buffer.iovecs();
            Call::Write { offset, parts: parts.as_ptr(), count: parts.len() }
        };
        raw::submit(handle, &self.in_flight, buffer, prepare, |result, buffer| {
            done(result.map(drop), buffer);
        });
    }

    /// Fills a range with copies of `pattern`, whose length must divide the range's (`EINVAL`).
    pub fn write_same(
        &self,
        offset: u64,
        len: u64,
        pattern: Vec<u8>,
        done: impl FnOnce(Result<(), Errno>, Vec<u8>) + Send + 'static,
    ) {
        let fits =
            usize::try_from(len).ok().filter(|len| !pattern.is_empty() && len.is_multiple_of(pattern.len()));
        let (handle, len) = match (self.writable(offset, len), fits) {
            (Err(errno), _) => return done(Err(errno), pattern),
            (_, None) => return done(Err(Errno(libc::EINVAL)), pattern),
            (Ok(None), _) => return done(Ok(()), pattern),
            (Ok(Some(handle)), Some(len)) => (handle, len),
        };
        let prepare = move |pattern: &mut Vec<u8>| Call::WriteSame {
            offset,
            len,
            pattern: pattern.as_ptr().cast(),
            pattern_len: pattern.len(),
        };
        raw::submit(handle, &self.in_flight, pattern, prepare, |result, pattern| {
            done(result.map(drop), pattern);
        });
    }

    /// Writes `new` if the range holds `expected`, atomically against every other client. Both have the same length, within one
    /// sector of [`COMPARE_LIMIT`] bytes; else `EINVAL`.
    pub fn compare_and_write(
        &self,
        offset: u64,
        expected: Vec<u8>,
        new: Vec<u8>,
        done: impl FnOnce(Result<Compared, Errno>) + Send + 'static,
    ) {
        let len = expected.len() as u64;
        let within = len == new.len() as u64 && offset % COMPARE_LIMIT + len <= COMPARE_LIMIT;
        let handle = match self.writable(offset, len) {
            Err(errno) => return done(Err(errno)),
            Ok(_) if !within => return done(Err(Errno(libc::EINVAL))),
            Ok(None) => return done(Ok(Compared::Written)),
            Ok(Some(handle)) => handle,
        };
        let prepare = move |compare: &mut Compare| Call::CompareAndWrite {
            offset,
            len: compare.expected.len(),
            expected: compare.expected.as_ptr().cast(),
            new: compare.new.as_ptr().cast(),
            differs_at: &raw mut compare.differs_at,
        };
        let compare = Compare { expected, new, differs_at: 0 };
        raw::submit(handle, &self.in_flight, compare, prepare, |result, compare| match result {
            Ok(_) => done(Ok(Compared::Written)),
            Err(Errno(libc::EILSEQ)) => done(Ok(Compared::Differs(compare.differs_at))),
            Err(errno) => done(Err(errno)),
        });
    }

    /// Gives the range's space back where it covers whole units of `rbd_discard_granularity_bytes` (64 KiB); the rest of it
    /// **keeps its content**, and the result is success all the same.
    pub fn discard(&self, offset: u64, len: u64, done: impl FnOnce(Result<(), Errno>) + Send + 'static) {
        self.without_buffer(offset, len, Call::Discard { offset, len }, done);
    }

    /// Makes the range read as zeros, giving space back where it can; `thick`: by writing zeros instead.
    pub fn write_zeroes(
        &self,
        offset: u64,
        len: u64,
        thick: bool,
        done: impl FnOnce(Result<(), Errno>) + Send + 'static,
    ) {
        let Ok(length) = usize::try_from(len) else { return done(Err(Errno(libc::EINVAL))) };
        self.without_buffer(offset, len, Call::WriteZeroes { offset, len: length, thick }, done);
    }

    /// Everything that has been completed reaches stable storage.
    pub fn flush(&self, done: impl FnOnce(Result<(), Errno>) + Send + 'static) {
        let Ok(handle) = self.handle() else { return done(Err(Errno(libc::EBADF))) };
        raw::submit(handle, &self.in_flight, (), |()| Call::Flush, |result, ()| done(result.map(drop)));
    }

    fn without_buffer(
        &self,
        offset: u64,
        len: u64,
        call: Call,
        done: impl FnOnce(Result<(), Errno>) + Send + 'static,
    ) {
        match self.writable(offset, len) {
            Ok(Some(handle)) => {
                let done = |result: Result<usize, Errno>, ()| done(result.map(drop));
                raw::submit(handle, &self.in_flight, (), move |()| call, done);
            }
            Ok(None) => done(Ok(())),
            Err(errno) => done(Err(errno)),
        }
    }

    /// The handle, if the range may be changed; `None` for a range of no length.
    fn writable(&self, offset: u64, len: u64) -> Result<Option<&crate::ffi::image::ImageHandle>, Errno> {
        if self.is_read_only() {
            return Err(Errno(libc::EROFS));
        }
        if offset.checked_add(len).is_none_or(|end| end > self.known_size()) {
            return Err(OUT_OF_RANGE);
        }
        Ok(if len == 0 { None } else { Some(self.handle()?) })
    }

    /// True once this image has held the exclusive lock and something fenced it would be told apart from a read-only one.
    pub fn has_locked(&self) -> bool {
        self.locked.load(Ordering::Relaxed)
    }
}
