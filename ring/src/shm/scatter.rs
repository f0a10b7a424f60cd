//! Iovecs into a mapping that keep it alive: a command's buffer as the consumer sees it.
#![expect(unsafe_code, reason = "marks raw iovecs as sendable")]
// UNSAFETY: the pointers are never dereferenced here; bytes are reached through the mapping's checked atomics.

use std::ops::Range;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, OnceLock, Weak};

use smallvec::SmallVec;

use super::Mapping;
use crate::Doorbell;

/// Scattered memory of one command. Clones share a lease, so that its owner can tell whether it is the last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scatter {
    iov: SmallVec<[libc::iovec; 1]>,
    len: usize,
    lease: Option<Arc<Lease>>,
}

/// The right to reach one command's memory; over when the last clone or slice of its scatter is gone.
pub(crate) struct Lease {
    mapping: Arc<Mapping>,
    doorbell: OnceLock<Arc<dyn Doorbell>>,
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lease").finish_non_exhaustive()
    }
}

impl Lease {
    /// True when the memory cannot be reached any more (or never could); what was done with it happened before.
    pub(crate) fn is_over(lease: &Weak<Self>) -> bool {
        let over = lease.strong_count() == 0;
        // Pairs with the Release decrement of the clone that was dropped last.
        fence(Ordering::Acquire);
        over
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(doorbell) = self.doorbell.get() {
            doorbell.ring();
        }
    }
}

// SAFETY: the iovecs point into `lease.mapping`, which lives as long as this value and may be used from any thread.
unsafe impl Send for Scatter {}
// SAFETY: as for `Send`; nothing is mutable through a shared reference except the mapping's atomics.
unsafe impl Sync for Scatter {}

impl Scatter {
    /// From ranges of a mapping, in order. Panics when one lies outside: the caller has validated them.
    pub(crate) fn new(mapping: &Arc<Mapping>, ranges: impl Iterator<Item = Range<usize>>) -> Self {
        let mut len = 0;
        let iov: SmallVec<[libc::iovec; 1]> = ranges
            .filter(|range| !range.is_empty())
            .map(|range| {
                len += range.len();
                libc::iovec { iov_base: mapping.at(range.start, range.len()).cast(), iov_len: range.len() }
            })
            .collect();
        let lease = (!iov.is_empty())
            .then(|| Arc::new(Lease { mapping: Arc::clone(mapping), doorbell: OnceLock::new() }));
        Self { iov, len, lease }
    }

    /// Bytes in all pieces together.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The pieces as the operating system takes them.
    pub(crate) fn iovecs(&self) -> &[libc::iovec] {
        &self.iov
    }

    /// Gives this value up; the lease is over at once unless a clone or a slice lives elsewhere, and then `doorbell`
    /// rings when the last of them is dropped.
    pub(crate) fn release(mut self, doorbell: Option<&Arc<dyn Doorbell>>) -> Weak<Lease> {
        let Some(mut lease) = self.lease.take() else { return Weak::new() };
        if Arc::get_mut(&mut lease).is_some() {
            return Weak::new();
        }
        if let Some(doorbell) = doorbell {
            let _ = lease.doorbell.set(Arc::clone(doorbell));
        }
        Arc::downgrade(&lease)
    }

    /// Ranges of the mapping that a part of this value covers; panics when it is outside.
    pub(crate) fn ranges(&self, offset: usize, len: usize) -> impl Iterator<Item = Range<usize>> + '_ {
        self.pieces(offset, len).map(|(at, range)| at..at + range.len())
    }

    /// A part; panics when it is outside.
    pub(crate) fn slice(&self, offset: usize, len: usize) -> Self {
        let Some(lease) = &self.lease else {
            self.check(offset, len);
            return Self::default();
        };
        let iov = self
            .pieces(offset, len)
            .map(|(at, range)| libc::iovec {
                iov_base: lease.mapping.at(at, range.len()).cast(),
                iov_len: range.len(),
            })
            .collect();
        Self { iov, len, lease: (len > 0).then(|| Arc::clone(lease)) }
    }

    /// Copies out with relaxed loads; panics when the range is outside.
    pub(crate) fn copy_out(&self, offset: usize, into: &mut [u8]) {
        for (at, range) in self.pieces(offset, into.len()) {
            self.mapping().copy_out(at, &mut into[range]);
        }
    }

    /// Copies in with relaxed stores; panics when the range is outside.
    pub(crate) fn copy_in(&self, offset: usize, from: &[u8]) {
        for (at, range) in self.pieces(offset, from.len()) {
            self.mapping().copy_in(at, &from[range]);
        }
    }

    /// Fills with relaxed stores; panics when the range is outside.
    pub(crate) fn fill(&self, offset: usize, len: usize, byte: u8) {
        for (at, range) in self.pieces(offset, len) {
            self.mapping().fill(at, range.len(), byte);
        }
    }

    /// Compares with relaxed loads; panics when the range is outside.
    pub(crate) fn compare(&self, offset: usize, with: &[u8]) -> Result<(), usize> {
        for (at, range) in self.pieces(offset, with.len()) {
            let start = range.start;
            self.mapping().compare(at, &with[range]).map_err(|index| start + index)?;
        }
        Ok(())
    }

    fn mapping(&self) -> &Mapping {
        &self.lease.as_ref().expect("a scatter with pieces has a lease").mapping
    }

    fn check(&self, offset: usize, len: usize) {
        let end = offset.checked_add(len);
        assert!(end.is_some_and(|end| end <= self.len), "{offset}+{len} is outside a buffer of {}", self.len);
    }

    /// Offsets in the mapping of a range of this buffer, each with the part of the range that it carries.
    fn pieces(&self, offset: usize, len: usize) -> impl Iterator<Item = (usize, Range<usize>)> + '_ {
        self.check(offset, len);
        let base = self.lease.as_ref().map_or(0, |lease| lease.mapping.base() as usize);
        let mut start = 0;
        self.iov.iter().filter_map(move |iovec| {
            let (first, end) = (start.max(offset), (start + iovec.iov_len).min(offset + len));
            let at = (iovec.iov_base as usize - base) + first.wrapping_sub(start);
            start += iovec.iov_len;
            (first < end).then(|| (at, first - offset..end - offset))
        })
    }
}
