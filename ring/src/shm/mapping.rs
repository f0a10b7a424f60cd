//! One shared mapping: atomic words for the protocol, word-wise relaxed copies for bulk bytes.
#![expect(unsafe_code, reason = "views memory that other processes write")]
#![expect(
    clippy::cast_ptr_alignment,
    reason = "the base is page aligned, and offsets are asserted to be aligned"
)]
// UNSAFETY: every access is an atomic through a pointer that was checked against the mapping's fixed length; the
// mapping lives as long as `self`, and its backing cannot shrink (sealed memfd, or the kernel's own uio region).

use std::any::Any;
use std::fs::File;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use memmap2::{Advice, MmapOptions, MmapRaw};

/// 32-bit words of a ring by byte offset: what the protocol core needs of memory.
///
/// The real one is [`Mapping`]; the model checker brings its own.
pub(crate) trait Words {
    /// Loads the word at `offset` (a multiple of 4).
    fn load(&self, offset: u32, order: Ordering) -> u32;
    /// Stores the word at `offset` (a multiple of 4).
    fn store(&self, offset: u32, value: u32, order: Ordering);
}

/// A shared mapping of a whole file. Dropping the last reference unmaps it, and only then drops its attachment.
pub(crate) struct Mapping {
    map: MmapRaw,
    attachment: OnceLock<Box<dyn Any + Send + Sync>>,
}

impl std::fmt::Debug for Mapping {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mapping").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl Mapping {
    /// Maps the first `len` bytes of `file`, shared and writable.
    pub(crate) fn new(file: &File, len: usize) -> io::Result<Self> {
        let map = MmapOptions::new().len(len).map_raw(file)?;
        // Small pages keep "charged" and "resident" the same figure; a kernel without huge pages refuses, rightly.
        let _ = map.advise(Advice::NoHugePage);
        let _ = map.advise(Advice::DontDump);
        Ok(Self { map, attachment: OnceLock::new() })
    }

    /// Ties a value's life to the mapping's: it is dropped after the memory is unmapped. Only the first call counts.
    pub(crate) fn attach(&self, value: Box<dyn Any + Send + Sync>) {
        let _ = self.attachment.set(value);
    }

    /// Bytes mapped.
    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    /// Address of the first byte.
    pub(super) fn base(&self) -> *mut u8 {
        self.map.as_mut_ptr()
    }

    /// The address of `len` bytes at `offset`; panics when they are outside.
    pub(super) fn at(&self, offset: usize, len: usize) -> *mut u8 {
        let end = offset.checked_add(len);
        assert!(end.is_some_and(|end| end <= self.len()), "{offset:#x}+{len:#x} is outside the mapping");
        self.base().wrapping_add(offset)
    }

    #[inline]
    fn word(&self, offset: u32) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4));
        let at = self.at(offset as usize, 4).cast::<AtomicU32>();
        // SAFETY: `at` is inside the mapping (`at` panics otherwise) and aligned, since the base is page aligned; the
        // word is only ever used as an atomic, and lives as long as `self`.
        unsafe { &*at }
    }

    fn long(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8));
        let at = self.at(offset, 8).cast::<AtomicU64>();
        // SAFETY: as in `word`; inside, aligned, atomic only, alive.
        unsafe { &*at }
    }

    fn byte(&self, offset: usize) -> &AtomicU8 {
        let at = self.at(offset, 1).cast::<AtomicU8>();
        // SAFETY: as in `word`; inside, any alignment does, atomic only, alive.
        unsafe { &*at }
    }

    /// Copies bytes out with relaxed loads.
    pub(crate) fn copy_out(&self, mut offset: usize, mut into: &mut [u8]) {
        while !into.is_empty() {
            if offset.is_multiple_of(8) && into.len() >= 8 {
                let (chunks, rest) = into.as_chunks_mut::<8>();
                for chunk in chunks {
                    *chunk = self.long(offset).load(Ordering::Relaxed).to_ne_bytes();
                    offset += 8;
                }
                into = rest;
            } else {
                into[0] = self.byte(offset).load(Ordering::Relaxed);
                into = &mut into[1..];
                offset += 1;
            }
        }
    }

    /// Copies bytes in with relaxed stores.
    pub(crate) fn copy_in(&self, mut offset: usize, mut from: &[u8]) {
        while !from.is_empty() {
            if offset.is_multiple_of(8) && from.len() >= 8 {
                let (chunks, rest) = from.as_chunks::<8>();
                for chunk in chunks {
                    self.long(offset).store(u64::from_ne_bytes(*chunk), Ordering::Relaxed);
                    offset += 8;
                }
                from = rest;
            } else {
                self.byte(offset).store(from[0], Ordering::Relaxed);
                from = &from[1..];
                offset += 1;
            }
        }
    }

    /// Fills bytes with relaxed stores.
    pub(crate) fn fill(&self, mut offset: usize, len: usize, byte: u8) {
        let end = offset + len;
        let long = u64::from_ne_bytes([byte; 8]);
        while offset < end {
            if offset.is_multiple_of(8) && end - offset >= 8 {
                self.long(offset).store(long, Ordering::Relaxed);
                offset += 8;
            } else {
                self.byte(offset).store(byte, Ordering::Relaxed);
                offset += 1;
            }
        }
    }

    /// Compares bytes with relaxed loads; `Err` is the index of the first difference.
    pub(crate) fn compare(&self, offset: usize, with: &[u8]) -> Result<(), usize> {
        let mut buffer = [0; 512];
        for (index, chunk) in with.chunks(buffer.len()).enumerate() {
            let start = index * buffer.len();
            let copy = &mut buffer[..chunk.len()];
            self.copy_out(offset + start, copy);
            if let Some(at) = copy.iter().zip(chunk).position(|(a, b)| a != b) {
                return Err(start + at);
            }
        }
        Ok(())
    }
}

impl Words for Mapping {
    #[inline]
    fn load(&self, offset: u32, order: Ordering) -> u32 {
        self.word(offset).load(order)
    }

    #[inline]
    fn store(&self, offset: u32, value: u32, order: Ordering) {
        self.word(offset).store(value, order);
    }
}

impl<W: Words> Words for std::sync::Arc<W> {
    #[inline]
    fn load(&self, offset: u32, order: Ordering) -> u32 {
        (**self).load(offset, order)
    }

    #[inline]
    fn store(&self, offset: u32, value: u32, order: Ordering) {
        (**self).store(offset, value, order);
    }
}
