//! The only room with `unsafe`: the mapping of a ring, and the ways in which its memory may be touched.
//!
//! Memory that a peer may write at the same time is never a `&[u8]`. Header words are atomics with a stated ordering
//! ([`Mapping::word32`]), bulk data is copied word by word with relaxed atomics ([`Mapping::copy_out`]) or handed out as
//! iovecs to a library that reads or writes it ([`Segments`]). The one exception is [`Extent`]: blocks that the
//! in-process producer owns alone may be sliced.

#![expect(unsafe_code, reason = "a shared mapping is raw memory; every access goes through this room")]
// UNSAFETY: raw pointers into one mmap that lives as long as its `Arc<Mapping>`; every offset is checked against the
// mapping's length before a pointer is made from it.

mod extent;
mod segments;

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};
use nix::fcntl::{FallocateFlags, FcntlArg, SealFlag, fallocate, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};

pub use extent::Extent;
pub(crate) use extent::{Run, Runs};
pub use segments::Segments;

/// Bytes of a page of shared memory.
pub(crate) const PAGE: usize = 4096;

/// One ring's memory: a memfd (or a UIO device) mapped whole.
#[derive(Debug)]
pub(crate) struct Mapping {
    memory: MmapRaw,
    file: File,
}

impl Mapping {
    /// A new memfd of `len` bytes, nothing of it backed yet, sealed against any change of its size.
    pub(crate) fn create(len: usize) -> io::Result<Arc<Self>> {
        let fd = memfd_create(c"rbdgate-ring", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?;
        let file = File::from(fd);
        file.set_len(len as u64)?;
        let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals))?;
        Self::map(file, len)
    }

    /// Maps a memfd that somebody else has made. Refused when its size can still change: a shrinking file would turn
    /// every access into SIGBUS.
    pub(crate) fn open(fd: OwnedFd) -> io::Result<Arc<Self>> {
        let file = File::from(fd);
        let seals = SealFlag::from_bits_truncate(fcntl(&file, FcntlArg::F_GET_SEALS)?);
        if !seals.contains(SealFlag::F_SEAL_SHRINK) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the memfd is not sealed against shrinking",
            ));
        }
        let len = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        if len == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the memfd is empty"));
        }
        Self::map(file, len)
    }

    fn map(file: File, len: usize) -> io::Result<Arc<Self>> {
        let memory = MmapOptions::new().len(len).map_raw(&file)?;
        Ok(Arc::new(Self { memory, file }))
    }

    /// Bytes mapped.
    pub(crate) fn len(&self) -> usize {
        self.memory.len()
    }

    /// The descriptor, to be passed to another process.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Bytes of memory behind the mapping, as the system counts them.
    pub(crate) fn resident(&self) -> io::Result<u64> {
        use std::os::unix::fs::MetadataExt;
        Ok(self.file.metadata()?.blocks() * 512)
    }

    /// Gives the memory of a page-aligned range back; it reads as zeros from then on.
    pub(crate) fn punch(&self, range: Range<usize>) -> io::Result<()> {
        debug_assert!(range.start.is_multiple_of(PAGE) && range.end.is_multiple_of(PAGE), "whole pages only");
        let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        Ok(fallocate(&self.file, flags, range.start as i64, range.len() as i64)?)
    }

    /// Backs a range with memory now.
    pub(crate) fn populate(&self, range: Range<usize>) -> io::Result<()> {
        Ok(fallocate(&self.file, FallocateFlags::empty(), range.start as i64, range.len() as i64)?)
    }

    /// A pointer to `len` bytes at `offset`. Panics when they are not all inside: offsets that a peer chose are validated
    /// before they come here.
    fn at(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(
            offset.checked_add(len).is_some_and(|end| end <= self.len()),
            "{len} bytes at {offset} of {}",
            self.len()
        );
        self.memory.as_mut_ptr().wrapping_add(offset)
    }

    /// The 32-bit word at an offset that is a multiple of 4.
    pub(crate) fn word32(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4), "word at {offset}");
        let pointer = self.at(offset, 4).cast::<u32>();
        // SAFETY: `at` has checked the bounds, the assertion the alignment (the mapping starts on a page), and the
        // reference borrows `self`, which keeps the mapping.
        unsafe { AtomicU32::from_ptr(pointer) }
    }

    /// The 64-bit word at an offset that is a multiple of 8.
    pub(crate) fn word64(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8), "word at {offset}");
        let pointer = self.at(offset, 8).cast::<u64>();
        // SAFETY: as in `word32`.
        unsafe { AtomicU64::from_ptr(pointer) }
    }

    fn byte(&self, offset: usize) -> &AtomicU8 {
        // SAFETY: as in `word32`; a byte needs no alignment.
        unsafe { AtomicU8::from_ptr(self.at(offset, 1)) }
    }

    /// Copies bytes out, each read once. Concurrent writes by the peer give some mixture of old and new, nothing worse.
    pub(crate) fn copy_out(&self, offset: usize, into: &mut [u8]) {
        let (head, words) = split(offset, into.len());
        let (first, rest) = into.split_at_mut(head);
        let (middle, last) = rest.split_at_mut(words * 8);
        let mut at = offset;
        for byte in first {
            *byte = self.byte(at).load(Ordering::Relaxed);
            at += 1;
        }
        for (chunk, word) in middle.chunks_exact_mut(8).zip(self.words(at, words)) {
            chunk.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
        at += words * 8;
        for byte in last {
            *byte = self.byte(at).load(Ordering::Relaxed);
            at += 1;
        }
    }

    /// Copies bytes in.
    pub(crate) fn copy_in(&self, offset: usize, from: &[u8]) {
        let (head, words) = split(offset, from.len());
        let (first, rest) = from.split_at(head);
        let (middle, last) = rest.split_at(words * 8);
        let mut at = offset;
        for byte in first {
            self.byte(at).store(*byte, Ordering::Relaxed);
            at += 1;
        }
        for (chunk, word) in middle.chunks_exact(8).zip(self.words(at, words)) {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(chunk);
            word.store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
        }
        at += words * 8;
        for byte in last {
            self.byte(at).store(*byte, Ordering::Relaxed);
            at += 1;
        }
    }

    /// Fills a range with one byte value.
    pub(crate) fn fill(&self, offset: usize, len: usize, value: u8) {
        let (head, words) = split(offset, len);
        for at in offset..offset + head {
            self.byte(at).store(value, Ordering::Relaxed);
        }
        let word = u64::from_ne_bytes([value; 8]);
        for target in self.words(offset + head, words) {
            target.store(word, Ordering::Relaxed);
        }
        for at in offset + head + words * 8..offset + len {
            self.byte(at).store(value, Ordering::Relaxed);
        }
    }

    /// Aligned 64-bit words.
    fn words(&self, offset: usize, count: usize) -> &[AtomicU64] {
        if count == 0 {
            return &[];
        }
        assert!(offset.is_multiple_of(8), "words at {offset}");
        let pointer = self.at(offset, count * 8).cast::<AtomicU64>();
        // SAFETY: `at` has checked that all `count` words are inside the mapping, the assertion that they are aligned;
        // an `AtomicU64` may be shared with writers.
        unsafe { std::slice::from_raw_parts(pointer, count) }
    }

    /// An iovec of a validated range.
    fn iovec(&self, offset: usize, len: usize) -> libc::iovec {
        libc::iovec { iov_base: self.at(offset, len).cast(), iov_len: len }
    }
}

/// How many bytes lie in front of the first aligned word, and how many whole words follow them.
fn split(offset: usize, len: usize) -> (usize, usize) {
    let head = (offset.next_multiple_of(8) - offset).min(len);
    (head, (len - head) / 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_from_any_offset_and_length() {
        let mapping = Mapping::create(2 * PAGE).unwrap();
        let pattern: Vec<u8> = (1..=64).collect();
        for offset in 0..17 {
            for len in 0..40 {
                mapping.fill(0, 2 * PAGE, 0);
                mapping.copy_in(offset, &pattern[..len]);
                let mut all = vec![0; 80];
                mapping.copy_out(0, &mut all);
                assert_eq!(&all[offset..offset + len], &pattern[..len]);
                assert!(all[..offset].iter().chain(&all[offset + len..]).all(|byte| *byte == 0));
            }
        }
    }

    #[test]
    fn a_punched_range_costs_nothing_and_reads_as_zeros() {
        let mapping = Mapping::create(4 * PAGE).unwrap();
        assert_eq!(mapping.resident().unwrap(), 0);
        mapping.fill(0, 4 * PAGE, 7);
        assert_eq!(mapping.resident().unwrap(), 4 * PAGE as u64);
        mapping.punch(PAGE..3 * PAGE).unwrap();
        assert_eq!(mapping.resident().unwrap(), 2 * PAGE as u64);
        let mut byte = [1];
        mapping.copy_out(PAGE, &mut byte);
        assert_eq!(byte, [0]);
    }

    #[test]
    fn a_memfd_that_can_shrink_is_refused() {
        let fd = memfd_create(c"unsealed", MFdFlags::MFD_ALLOW_SEALING).unwrap();
        assert!(Mapping::open(fd).is_err());
    }
}
