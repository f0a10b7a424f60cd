//! A disk in memory, for tests and benchmarks.
//!
//! The space is cut into *chunks* of 64 KiB. A chunk exists once something was written into it; a missing chunk reads as
//! zeros and costs nothing, so a disk may be much larger than memory. A discard removes whole chunks and zeroes the rest.
//!
//! Chunks are spread over a few locked maps by number. A request that spans chunks is atomic per chunk only (SBC-3 asks
//! for no more), except [`Request::CompareAndWrite`], which holds every map.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::gate::Gate;
use super::request::append_extent;
use super::{
    AllocationExtent, AtomicWrite, Buffer, Disk, Error, Geometry, Operation, Outcome, Provisioning, Request,
    ResizeError, Usage, resize,
};

/// Bytes of a chunk; also the unmap granularity.
pub const CHUNK: usize = 64 * 1024;

const MAPS: usize = 16;

/// Chunks that one allocation query looks at.
const LONGEST_WALK: usize = 1 << 16;

type Chunks = HashMap<u64, Box<[u8]>>;
type Listener = Box<dyn Fn(u64) + Send + Sync>;

/// The store.
pub struct Memory {
    geometry: Geometry,
    size: AtomicU64,
    maps: [Mutex<Chunks>; MAPS],
    gate: Arc<Gate>,
    listener: Mutex<Option<Listener>>,
}

impl Memory {
    /// An empty disk of `size` bytes with logical blocks of `block_size` (512 or 4096) bytes.
    pub fn new(size: u64, block_size: u32) -> Self {
        let geometry = Geometry {
            block_size,
            physical_block_size: 4096,
            optimal_io_size: 0,
            compare_and_write: CHUNK as u32,
            provisioning: Some(Provisioning { granularity: CHUNK as u64, alignment: 0, reads_zero: true }),
            read_only: false,
            volatile_cache: false,
            // A crash leaves nothing that could be half of something.
            atomic_write: Some(AtomicWrite { max: 8 << 20, granularity: 512, alignment: 512 }),
        };
        Self::with_geometry(size, geometry)
    }

    /// Like [`Memory::new`] with every figure chosen. `compare_and_write: 0` makes the lane emulate it.
    pub fn with_geometry(size: u64, geometry: Geometry) -> Self {
        Self {
            geometry,
            size: AtomicU64::new(size),
            maps: Default::default(),
            gate: Arc::default(),
            listener: Mutex::default(),
        }
    }

    /// Changes the size and tells the listener. What lies beyond a smaller size is lost.
    pub fn resize(&self, size: u64) {
        let old = self.size.swap(size, Ordering::AcqRel);
        if size < old {
            self.discard(size, old - size);
        }
        if let Some(listener) = &*lock(&self.listener) {
            listener(size);
        }
    }

    /// Bytes that the chunks take.
    pub fn resident(&self) -> u64 {
        self.maps.iter().map(|map| (lock(map).len() * CHUNK) as u64).sum()
    }

    fn chunks(&self, number: u64) -> MutexGuard<'_, Chunks> {
        lock(&self.maps[(number % MAPS as u64) as usize])
    }

    fn perform(&self, request: &mut Request) -> Result<Outcome, Error> {
        request.admit(&self.geometry, self.size())?;
        match request {
            Request::Read { offset, buffer } => self.read(*offset, buffer),
            Request::Write { offset, buffer, .. } | Request::WriteAtomic { offset, buffer, .. } => {
                self.write(*offset, buffer.len(), |at, into| copy_from(buffer, at, into));
            }
            Request::WriteSame { offset, len, pattern, .. } => {
                for at in (*offset..*offset + *len).step_by(pattern.len()) {
                    self.write(at, pattern.len(), |from, into| {
                        into.copy_from_slice(&pattern[from..from + into.len()]);
                    });
                }
            }
            Request::WriteZeroes { offset, len, .. } | Request::Discard { offset, len } => {
                self.discard(*offset, *len);
            }
            Request::CompareAndWrite { offset, compare, write, .. } => {
                self.compare_and_write(*offset, compare, write)?;
            }
            Request::Flush => {}
            Request::Allocation { offset, len, limit } => {
                let extents = self.allocation(*offset, *len, *limit);
                return Ok(Outcome { extents, ..Outcome::default() });
            }
            Request::Usage => {
                let usage = Usage { used: Some(self.resident()), ..Usage::default() };
                return Ok(Outcome { usage: Some(Box::new(usage)), ..Outcome::default() });
            }
            // Nothing here outlives the process.
            Request::Note { .. } => return Err(Error::Unsupported),
        }
        Ok(Outcome::default())
    }

    fn read(&self, offset: u64, buffer: &mut Buffer) {
        for (number, part, at) in pieces(offset, buffer.len() as u64) {
            match self.chunks(number).get(&number) {
                Some(chunk) => copy_into(buffer, at, &chunk[part]),
                None => zero(buffer, at, part.len()),
            }
        }
    }

    fn write(&self, offset: u64, len: usize, mut fill: impl FnMut(usize, &mut [u8])) {
        for (number, part, at) in pieces(offset, len as u64) {
            let mut chunks = self.chunks(number);
            fill(at, &mut chunks.entry(number).or_insert_with(new_chunk)[part]);
        }
    }

    fn discard(&self, offset: u64, len: u64) {
        // A range with more chunks than exist is walked from the other side.
        if len / CHUNK as u64 > self.resident() / CHUNK as u64 + MAPS as u64 {
            let first = offset.next_multiple_of(CHUNK as u64);
            let last = (offset + len) / CHUNK as u64 * CHUNK as u64;
            for map in &self.maps {
                lock(map).retain(|number, _| !(first..last).contains(&(number * CHUNK as u64)));
            }
            self.discard(offset, first - offset);
            self.discard(last, offset + len - last);
            return;
        }
        for (number, part, _) in pieces(offset, len) {
            let mut chunks = self.chunks(number);
            if part.len() == CHUNK {
                chunks.remove(&number);
            } else if let Some(chunk) = chunks.get_mut(&number) {
                chunk[part].fill(0);
            }
        }
    }

    fn compare_and_write(&self, offset: u64, compare: &[u8], write: &[u8]) -> Result<(), Error> {
        let mut maps: Vec<_> = self.maps.iter().map(lock).collect();
        for (number, part, at) in pieces(offset, compare.len() as u64) {
            let expected = &compare[at..at + part.len()];
            let map = &maps[(number % MAPS as u64) as usize];
            let differs = match map.get(&number) {
                Some(chunk) => expected.iter().zip(&chunk[part]).position(|(a, b)| a != b),
                None => expected.iter().position(|byte| *byte != 0),
            };
            if let Some(index) = differs {
                return Err(Error::Miscompare(at + index));
            }
        }
        for (number, part, at) in pieces(offset, write.len() as u64) {
            let map = &mut maps[(number % MAPS as u64) as usize];
            let from = &write[at..at + part.len()];
            map.entry(number).or_insert_with(new_chunk)[part].copy_from_slice(from);
        }
        Ok(())
    }

    fn allocation(&self, offset: u64, len: u64, limit: usize) -> Vec<AllocationExtent> {
        let mut extents = Vec::new();
        // An answer may end early; a walk over a whole petabyte may not be asked for.
        for (number, part, at) in pieces(offset, len).take(LONGEST_WALK) {
            let start = offset + at as u64;
            let range = start..start + part.len() as u64;
            let allocated = self.chunks(number).contains_key(&number);
            if !append_extent(&mut extents, range, allocated, limit) {
                break;
            }
        }
        extents
    }
}

impl Disk for Memory {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    fn submit(&self, operation: Operation) {
        let Operation { mut request, completer } = operation;
        let pass = self.gate.enter();
        let result = if pass.is_some() { self.perform(&mut request) } else { Err(Error::NotReady) };
        completer.complete(result, request.into_owned());
    }

    fn on_resize(&self, listener: Listener) {
        *lock(&self.listener) = Some(listener);
    }

    fn resize(&self, size: u64, shrink: bool) -> Result<(), ResizeError> {
        resize::check(&self.geometry, self.size(), size, shrink)?;
        if size != self.size() {
            Self::resize(self, size);
        }
        Ok(())
    }

    fn close(&self) {
        self.gate.close();
        self.gate.wait_empty();
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("size", &self.size()).field("geometry", &self.geometry).finish()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn new_chunk() -> Box<[u8]> {
    vec![0; CHUNK].into_boxed_slice()
}

/// Cuts a range at chunk borders: chunk number, bytes within the chunk, offset within the range.
fn pieces(offset: u64, len: u64) -> impl Iterator<Item = (u64, Range<usize>, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let at = offset + done;
        let within = (at % CHUNK as u64) as usize;
        let size = (CHUNK - within).min(usize::try_from(len - done).unwrap_or(usize::MAX));
        let piece = (at / CHUNK as u64, within..within + size, done as usize);
        done += size as u64;
        Some(piece)
    })
}

fn copy_into(buffer: &mut Buffer, at: usize, from: &[u8]) {
    match buffer {
        Buffer::Segments(segments) => segments.copy_in(at, from),
        Buffer::Owned(bytes) => bytes[at..at + from.len()].copy_from_slice(from),
    }
}

fn zero(buffer: &mut Buffer, at: usize, len: usize) {
    match buffer {
        Buffer::Segments(segments) => segments.fill(at, len, 0),
        Buffer::Owned(bytes) => bytes[at..at + len].fill(0),
    }
}

fn copy_from(buffer: &Buffer, at: usize, into: &mut [u8]) {
    match buffer {
        Buffer::Segments(segments) => segments.copy_out(at, into),
        Buffer::Owned(bytes) => into.copy_from_slice(&bytes[at..at + into.len()]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_untouched_range_costs_nothing_and_a_discard_gives_chunks_back() {
        let disk = Memory::new(1 << 50, 512);
        disk.write(1 << 40, 2 * CHUNK, |_, into| into.fill(7));
        assert_eq!(disk.resident(), 2 * CHUNK as u64);
        disk.discard(1 << 40, CHUNK as u64 + 512);
        assert_eq!(disk.resident(), CHUNK as u64);
        let mut buffer = Buffer::Owned(vec![1; 1024]);
        disk.read((1 << 40) + CHUNK as u64, &mut buffer);
        assert!(
            matches!(&buffer, Buffer::Owned(bytes) if bytes[..512] == [0; 512] && bytes[512..] == [7; 512])
        );
    }
}
