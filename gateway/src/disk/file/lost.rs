//! Remembers a sync that failed.
//!
//! Linux tells of a failed writeback once per open file, and may drop the pages it could not write: the next sync succeeds
//! over lost data. Every initiator shares the open file here, so whoever syncs first would take the news away from the
//! others. Hence a sync that failed keeps failing until the file is opened anew.

use std::sync::atomic::{AtomicI32, Ordering};

use crate::disk::{Error, Outcome, Request};

/// The first failure, as an errno; 0: none.
#[derive(Debug, Default)]
pub(super) struct Lost(AtomicI32);

impl Lost {
    /// Carries a request out, unless it asks for stable storage that can no longer be promised.
    pub(super) fn guard(
        &self,
        request: &mut Request,
        perform: impl FnOnce(&mut Request) -> Result<Outcome, Error>,
    ) -> Result<Outcome, Error> {
        let (flush, fua) = match request {
            Request::Flush => (true, false),
            Request::Write { fua, .. } | Request::WriteSame { fua, .. } => (false, *fua),
            Request::WriteAtomic { .. } => (false, true),
            _ => (false, false),
        };
        let before = self.0.load(Ordering::Acquire);
        if (flush || fua) && before != 0 {
            return Err(Error::Io(before));
        }
        let result = perform(request);
        let lost = match &result {
            // A write refused for want of space has lost nothing; a flush that finds none has.
            Err(Error::NoSpace) if flush => libc::ENOSPC,
            Err(Error::Io(errno)) if flush || fua => *errno,
            _ => return result,
        };
        if self.0.compare_exchange(0, lost, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            tracing::error!(errno = lost, "a file disk could not sync: flushes fail until it is opened anew");
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Buffer;

    fn write(fua: bool) -> Request {
        Request::Write { offset: 0, buffer: Buffer::Owned(vec![0; 512]), fua }
    }

    #[test]
    fn a_flush_that_failed_once_fails_for_everybody_from_then_on() {
        let lost = Lost::default();
        let broken = lost.guard(&mut Request::Flush, |_| Err(Error::Io(libc::EIO)));
        assert_eq!(broken.unwrap_err(), Error::Io(libc::EIO));
        for request in [&mut Request::Flush, &mut write(true)] {
            let later = lost.guard(request, |_| Ok(Outcome::default()));
            assert_eq!(later.unwrap_err(), Error::Io(libc::EIO));
        }
        assert!(lost.guard(&mut write(false), |_| Ok(Outcome::default())).is_ok());
    }

    #[test]
    fn a_write_that_found_no_space_has_lost_nothing() {
        let lost = Lost::default();
        assert!(lost.guard(&mut write(true), |_| Err(Error::NoSpace)).is_err());
        assert!(lost.guard(&mut write(false), |_| Err(Error::Io(libc::EIO))).is_err());
        assert!(lost.guard(&mut Request::Flush, |_| Ok(Outcome::default())).is_ok());
    }
}
