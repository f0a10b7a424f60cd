//! What all stores do alike: refuse what cannot be carried out, hand buffers back, put allocation extents together.
//!
//! The order of the refusals is part of the behaviour: a write to a read-only disk is refused as such even outside the disk.

use std::ops::Range;

use super::{AllocationExtent, Buffer, Error, Geometry, Request};

impl Request {
    /// The bytes of the disk that the request touches, as offset and length; `None` for one that is not about a range.
    pub(crate) fn span(&self) -> Option<(u64, u64)> {
        match self {
            Self::Read { offset, buffer }
            | Self::Write { offset, buffer, .. }
            | Self::WriteAtomic { offset, buffer, .. } => Some((*offset, buffer.len() as u64)),
            Self::WriteSame { offset, len, .. }
            | Self::WriteZeroes { offset, len, .. }
            | Self::Discard { offset, len }
            | Self::Allocation { offset, len, .. } => Some((*offset, *len)),
            Self::CompareAndWrite { offset, compare, .. } => Some((*offset, compare.len() as u64)),
            Self::Flush | Self::Usage | Self::Note { .. } => None,
        }
    }

    /// True when the request may change the disk.
    pub(crate) fn writes(&self) -> bool {
        !matches!(self, Self::Read { .. } | Self::Flush | Self::Allocation { .. } | Self::Usage)
    }

    /// The gateway's own memory, to go back with the completion.
    pub(crate) fn into_owned(self) -> Option<Vec<u8>> {
        match self {
            Self::Read { buffer: Buffer::Owned(bytes), .. }
            | Self::Write { buffer: Buffer::Owned(bytes), .. }
            | Self::WriteAtomic { buffer: Buffer::Owned(bytes), .. } => Some(bytes),
            _ => None,
        }
    }

    /// Refuses what no store of this geometry and size can carry out.
    pub(crate) fn admit(&self, geometry: &Geometry, size: u64) -> Result<(), Error> {
        if geometry.read_only && self.writes() {
            return Err(Error::ReadOnly);
        }
        if let Some((offset, len)) = self.span()
            && offset.checked_add(len).is_none_or(|end| end > size)
        {
            return Err(Error::OutOfRange);
        }
        match self {
            Self::CompareAndWrite { compare, write, .. }
                if compare.len() != write.len() || compare.len() > geometry.compare_and_write as usize =>
            {
                Err(Error::Unsupported)
            }
            Self::WriteSame { len, pattern, .. }
                if pattern.is_empty() || !len.is_multiple_of(pattern.len() as u64) =>
            {
                Err(Error::Unsupported)
            }
            Self::WriteAtomic { offset, buffer, .. }
                if !geometry.keeps_whole(*offset, buffer.len() as u64) =>
            {
                Err(Error::Unsupported)
            }
            Self::Discard { .. } if geometry.provisioning.is_none() => Err(Error::Unsupported),
            _ => Ok(()),
        }
    }
}

impl Geometry {
    /// Whether a write is within what the store promises of atomic ones.
    fn keeps_whole(&self, offset: u64, len: u64) -> bool {
        self.atomic_write.is_some_and(|promise| {
            len <= promise.max
                && len.is_multiple_of(promise.granularity)
                && offset.is_multiple_of(promise.alignment)
        })
    }
}

/// Appends a stretch to an allocation answer, joined to the last one when both are alike; `false` when `limit` extents
/// are there already and this would be another.
pub(crate) fn append_extent(
    extents: &mut Vec<AllocationExtent>,
    range: Range<u64>,
    allocated: bool,
    limit: usize,
) -> bool {
    if range.is_empty() {
        return true;
    }
    let room = extents.len() < limit;
    match extents.last_mut().filter(|last| last.allocated == allocated) {
        Some(last) => last.range.end = range.end,
        None if room => extents.push(AllocationExtent { range, allocated }),
        None => return false,
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry(read_only: bool) -> Geometry {
        Geometry {
            block_size: 512,
            physical_block_size: 4096,
            optimal_io_size: 0,
            compare_and_write: 512,
            provisioning: None,
            read_only,
            volatile_cache: false,
            atomic_write: None,
        }
    }

    fn write(offset: u64, len: usize) -> Request {
        Request::Write { offset, buffer: Buffer::Owned(vec![0; len]), fua: false }
    }

    #[test]
    fn refuses_a_range_that_ends_outside_the_disk_or_beyond_the_numbers() {
        assert_eq!(write(512, 512).admit(&geometry(false), 1024), Ok(()));
        assert_eq!(write(1024, 512).admit(&geometry(false), 1024), Err(Error::OutOfRange));
        assert_eq!(write(u64::MAX - 511, 512).admit(&geometry(false), 1024), Err(Error::OutOfRange));
    }

    #[test]
    fn a_read_only_disk_refuses_every_write_and_no_read() {
        assert_eq!(write(4096, 512).admit(&geometry(true), 1024), Err(Error::ReadOnly));
        let read = Request::Read { offset: 0, buffer: Buffer::Owned(vec![0; 512]) };
        assert_eq!(read.admit(&geometry(true), 1024), Ok(()));
        assert_eq!(Request::Flush.admit(&geometry(true), 1024), Ok(()));
    }

    #[test]
    fn refuses_what_the_store_has_not_offered() {
        let discard = Request::Discard { offset: 0, len: 512 };
        assert_eq!(discard.admit(&geometry(false), 1024), Err(Error::Unsupported));
        let large =
            Request::CompareAndWrite { offset: 0, compare: vec![0; 1024], write: vec![0; 1024], fua: false };
        assert_eq!(large.admit(&geometry(false), 1024), Err(Error::Unsupported));
    }
}
