//! Remembers a sync that failed.
//!
//! Linux tells of a failed writeback once per open file, and may drop the pages it could not write: the next sync succeeds
//! over lost data. Every initiator shares the open file here, so whoever syncs first would take the news away from the
//! others. Hence a sync that failed keeps failing until the file is opened anew.

use std::fs::File;
use std::io;
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
        // By which step it failed is known to the system only. A write refused for want of space has lost nothing; one
        // whose sync found none has passed [`Lost::sync`].
        if let (Err(Error::Io(errno)), true) = (&result, flush || fua) {
            self.note(*errno);
        }
        result
    }

    /// Syncs the disk's file. Every sync of it goes this way, whoever asked for it: the next one would not hear of a failure.
    pub(super) fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_data().map_err(|error| self.remember(error))
    }

    /// A sync has failed so.
    pub(super) fn remember(&self, error: io::Error) -> io::Error {
        self.note(error.raw_os_error().unwrap_or(libc::EIO));
        error
    }

    fn note(&self, errno: i32) {
        if self.0.compare_exchange(0, errno, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            tracing::error!(errno, "a file disk could not sync: flushes fail until it is opened anew");
        }
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
    fn a_sync_that_failed_for_whatever_reason_and_request_is_remembered() {
        // It takes writes and cannot sync.
        let file = File::options().write(true).open("/dev/null").unwrap();
        // By a write without FUA that paid a journal's debt, for one: its own answer is no promise, later ones are.
        let lost = Lost::default();
        let paid = lost.guard(&mut write(false), |_| {
            let errno = lost.sync(&file).unwrap_err().raw_os_error().unwrap();
            Err(Error::Io(errno))
        });
        assert!(paid.is_err());
        assert!(lost.guard(&mut Request::Flush, |_| Ok(Outcome::default())).is_err());
        for errno in [libc::ENOSPC, libc::EDQUOT, libc::EIO] {
            let lost = Lost::default();
            let full = lost.guard(&mut write(true), |_| {
                lost.remember(io::Error::from_raw_os_error(errno));
                Err(Error::NoSpace)
            });
            assert_eq!(full.unwrap_err(), Error::NoSpace);
            for request in [&mut Request::Flush, &mut write(true)] {
                let later = lost.guard(request, |_| Ok(Outcome::default()));
                assert_eq!(later.unwrap_err(), Error::Io(errno));
            }
        }
    }

    #[test]
    fn a_write_that_found_no_space_has_lost_nothing() {
        let lost = Lost::default();
        assert!(lost.guard(&mut write(true), |_| Err(Error::NoSpace)).is_err());
        assert!(lost.guard(&mut write(false), |_| Err(Error::Io(libc::EIO))).is_err());
        assert!(lost.guard(&mut Request::Flush, |_| Ok(Outcome::default())).is_ok());
    }
}
