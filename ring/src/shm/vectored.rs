//! `preadv` and `pwritev2` straight from and into a command's buffer.
#![expect(unsafe_code, reason = "passes raw iovecs to the kernel")]
// UNSAFETY: the iovecs lie in a mapping that the `Scatter` keeps alive; the kernel may read and write shared memory
// at any time, and no Rust reference to it exists.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use smallvec::SmallVec;

use super::Scatter;

/// Most iovecs that one call takes (`UIO_MAXIOV`).
const MAX_IOVECS: usize = 1024;

type Call = fn(BorrowedFd<'_>, &[libc::iovec], i64) -> isize;

impl Scatter {
    /// Reads the file into the whole buffer; the count is short only at end of file.
    pub(crate) fn read_at(&self, file: BorrowedFd<'_>, offset: u64) -> io::Result<usize> {
        self.transfer(file, offset, |file, iov, offset| {
            // SAFETY: the iovecs are valid for writes while the scatter is borrowed.
            unsafe { libc::preadv(file.as_raw_fd(), iov.as_ptr(), iov.len() as i32, offset) }
        })
    }

    /// Writes the whole buffer to the file; `dsync` makes the data durable before the call returns.
    pub(crate) fn write_at(&self, file: BorrowedFd<'_>, offset: u64, dsync: bool) -> io::Result<()> {
        let call: Call = if dsync {
            |file, iov, offset| {
                let (fd, count) = (file.as_raw_fd(), iov.len() as i32);
                // SAFETY: the iovecs are valid for reads while the scatter is borrowed.
                unsafe { libc::pwritev2(fd, iov.as_ptr(), count, offset, libc::RWF_DSYNC) }
            }
        } else {
            |file, iov, offset| {
                // SAFETY: the iovecs are valid for reads while the scatter is borrowed.
                unsafe { libc::pwritev(file.as_raw_fd(), iov.as_ptr(), iov.len() as i32, offset) }
            }
        };
        if self.transfer(file, offset, call)? < self.len() {
            return Err(io::Error::from(io::ErrorKind::WriteZero));
        }
        Ok(())
    }

    /// Calls until the whole buffer is done or a call moves nothing.
    fn transfer(&self, file: BorrowedFd<'_>, offset: u64, call: Call) -> io::Result<usize> {
        let mut done = 0;
        let mut rest: SmallVec<[libc::iovec; 8]> = SmallVec::from_slice(self.iovecs());
        let mut first = 0;
        while first < rest.len() {
            let batch = &rest[first..rest.len().min(first + MAX_IOVECS)];
            let Ok(at) = i64::try_from(offset + done as u64) else {
                return Err(io::Error::from(io::ErrorKind::InvalidInput));
            };
            let moved = call(file, batch, at);
            let Ok(mut moved) = usize::try_from(moved) else {
                let error = io::Error::last_os_error();
                if error.kind() == io::ErrorKind::Interrupted {
                    continue;
                }
                return Err(error);
            };
            if moved == 0 {
                break;
            }
            done += moved;
            while first < rest.len() && moved >= rest[first].iov_len {
                moved -= rest[first].iov_len;
                first += 1;
            }
            if moved > 0 {
                rest[first].iov_base = rest[first].iov_base.wrapping_byte_add(moved);
                rest[first].iov_len -= moved;
            }
        }
        Ok(done)
    }
}
