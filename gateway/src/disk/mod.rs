//! The block vocabulary: what a LUN asks of its store, and what each side of that bargain owes the other.
//!
//! # The contract
//!
//! The caller (a lane) guarantees: offsets and lengths are multiples of [`Geometry::block_size`], lengths are not zero,
//! `offset + len` does not overflow. It does not guarantee that a range lies within the disk (the size may change at any
//! time); the disk checks and answers [`Error::OutOfRange`].
//!
//! The disk guarantees: [`Disk::submit`] never blocks and never panics for any request; every operation is completed
//! exactly once, from any thread, possibly before `submit` returns; a buffer is not touched after its operation was
//! completed; a read fills its whole buffer (bytes never written read as zeros); a completed write is seen by every later
//! read; a completed [`Request::Flush`], and a completed write with `fua`, is on stable storage.
//! Requests in flight at the same time may be carried out in any order.
//!
//! | store | module | for |
//! |---|---|---|
//! | RBD image | [`rbd`] | production |
//! | sparse local file | [`mod@file`] | the first try, a single host |
//! | memory | [`memory`] | tests and benchmarks |
//! | any of them, misbehaving | [`fault`] | tests: latency, reordering, errors, lost completions |

pub mod fault;
pub mod file;
mod gate;
pub mod memory;
pub mod rbd;
mod request;
mod resize;

use std::ops::Range;
use std::sync::Arc;

use ring::Segments;

pub use self::resize::ResizeError;

/// The memory of a read or write.
#[derive(Debug)]
pub enum Buffer {
    /// A command's data area: nothing is copied.
    Segments(Segments),
    /// The gateway's own memory (VERIFY, COMPARE AND WRITE, WRITE SAME patterns); comes back in [`Completion::buffer`].
    Owned(Vec<u8>),
}

impl Buffer {
    /// Bytes in the buffer.
    pub fn len(&self) -> usize {
        match self {
            Self::Segments(segments) => segments.len(),
            Self::Owned(bytes) => bytes.len(),
        }
    }

    /// True when there is no byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// One request. Offsets and lengths in bytes.
#[derive(Debug)]
pub enum Request {
    /// Fill the buffer from `offset`.
    Read {
        /// Where on the disk.
        offset: u64,
        /// Filled whole on success.
        buffer: Buffer,
    },
    /// Write the buffer at `offset`.
    Write {
        /// Where on the disk.
        offset: u64,
        /// The data.
        buffer: Buffer,
        /// On stable storage before completion.
        fua: bool,
    },
    /// Write the buffer at `offset`, whole or not at all whatever fails meanwhile. Only sent within
    /// [`Geometry::atomic_write`].
    WriteAtomic {
        /// Where on the disk.
        offset: u64,
        /// The data.
        buffer: Buffer,
        /// On stable storage before completion.
        fua: bool,
    },
    /// Repeat a pattern over a range.
    WriteSame {
        /// Where on the disk.
        offset: u64,
        /// How much; a multiple of the pattern's length.
        len: u64,
        /// One block.
        pattern: Vec<u8>,
        /// On stable storage before completion.
        fua: bool,
    },
    /// Make a range read as zeros.
    WriteZeroes {
        /// Where on the disk.
        offset: u64,
        /// How much.
        len: u64,
        /// The store may deallocate the range (thin) instead of writing.
        deallocate: bool,
    },
    /// Give a range's space back; it then reads as zeros ([`Provisioning::reads_zero`]) or keeps its content.
    Discard {
        /// Where on the disk.
        offset: u64,
        /// How much.
        len: u64,
    },
    /// If the range at `offset` equals `compare`, write `write` there, atomically against every other path to the disk
    /// that this store can see. Only sent when [`Geometry::compare_and_write`] is at least the length.
    CompareAndWrite {
        /// Where on the disk.
        offset: u64,
        /// What must be there.
        compare: Vec<u8>,
        /// What shall be there.
        write: Vec<u8>,
        /// On stable storage before completion.
        fua: bool,
    },
    /// Everything completed so far reaches stable storage.
    Flush,
    /// Which parts of a range are allocated. Answered with [`Outcome::extents`].
    Allocation {
        /// Where on the disk.
        offset: u64,
        /// How much.
        len: u64,
        /// At most this many extents are wanted.
        limit: usize,
    },
    /// How much of its pool the disk takes, and what is left. Answered with [`Outcome::usage`].
    Usage,
    /// Keep these few bytes with the disk, on stable storage, until the next note; `None` forgets them. They say what must
    /// be finished before anybody reads the disk again, and are [`Disk::note`] when it is opened next. A store that does
    /// not outlive the process answers [`Error::Unsupported`].
    Note {
        /// The bytes.
        note: Option<Vec<u8>>,
    },
}

/// A stretch of a disk that is allocated or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocationExtent {
    /// Bytes on the disk.
    pub range: Range<u64>,
    /// Backed by storage.
    pub allocated: bool,
}

/// What a successful operation returns besides success.
#[derive(Debug, Default)]
pub struct Outcome {
    /// For [`Request::Allocation`]: contiguous extents from the offset on, in order.
    pub extents: Vec<AllocationExtent>,
    /// For [`Request::Usage`].
    pub usage: Option<Box<Usage>>,
}

/// What a thin disk takes of its pool or file system; `None` for what the store does not know, or only after a long look.
/// Bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Taken by this disk.
    pub used: Option<u64>,
    /// Free in the pool, for this disk and all others.
    pub available: Option<u64>,
    /// The pool's size.
    pub pool: Option<u64>,
}

/// Why an operation failed. `scsi::fault` turns each into sense data.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The range is outside the disk.
    #[error("outside the disk")]
    OutOfRange,
    /// The pool or file system is full, or over quota.
    #[error("out of space")]
    NoSpace,
    /// The disk or its image is read-only (a snapshot, a mount).
    #[error("read-only")]
    ReadOnly,
    /// This client has been fenced (blocklisted, lock lost): nothing it sends lands any more.
    #[error("fenced")]
    Fenced,
    /// [`Request::CompareAndWrite`]: the first different byte, relative to the compare buffer.
    #[error("miscompare at byte {0}")]
    Miscompare(usize),
    /// The store cannot do this request.
    #[error("not supported by this store")]
    Unsupported,
    /// The store is closed, or not open yet.
    #[error("not ready")]
    NotReady,
    /// The store failed; the errno says how.
    #[error("store error: {0}")]
    Io(i32),
}

/// How an operation ended.
#[derive(Debug)]
pub struct Completion {
    /// The caller's tag.
    pub tag: u64,
    /// How it ended.
    pub result: Result<Outcome, Error>,
    /// An [`Buffer::Owned`] comes back (filled, for a read); `None` for segments.
    pub buffer: Option<Vec<u8>>,
}

/// Where completions go: a lane's queue. Called from any thread, never blocks.
pub trait CompletionQueue: Send + Sync {
    /// Takes one completion and wakes the lane.
    fn push(&self, completion: Completion);
}

/// The right, and the duty, to complete one operation.
///
/// Dropping it uncompleted completes it with [`Error::Io`]`(EIO)`, so that a command is never lost.
pub struct Completer {
    queue: Option<Arc<dyn CompletionQueue>>,
    tag: u64,
}

impl Completer {
    /// A completer that reports to `queue` under `tag`.
    pub fn new(queue: Arc<dyn CompletionQueue>, tag: u64) -> Self {
        Self { queue: Some(queue), tag }
    }

    /// The caller's tag.
    pub fn tag(&self) -> u64 {
        self.tag
    }

    /// Gives the right up: somebody else completes the operation, or has.
    pub(crate) fn forget(mut self) {
        self.queue = None;
    }

    /// Completes the operation; `buffer` is the request's [`Buffer::Owned`], if it had one.
    pub fn complete(mut self, result: Result<Outcome, Error>, buffer: Option<Vec<u8>>) {
        if let Some(queue) = self.queue.take() {
            queue.push(Completion { tag: self.tag, result, buffer });
        }
    }
}

impl Drop for Completer {
    fn drop(&mut self) {
        if let Some(queue) = self.queue.take() {
            queue.push(Completion { tag: self.tag, result: Err(Error::Io(libc::EIO)), buffer: None });
        }
    }
}

impl std::fmt::Debug for Completer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Completer").field("tag", &self.tag).finish_non_exhaustive()
    }
}

/// One operation in flight: the request, its memory, and whom to tell.
#[derive(Debug)]
pub struct Operation {
    /// What to do.
    pub request: Request,
    /// Whom to tell.
    pub completer: Completer,
}

/// What does not change while a disk is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Logical block, bytes: 512 or 4096.
    pub block_size: u32,
    /// Physical block, bytes: at least the logical one.
    pub physical_block_size: u32,
    /// Preferred transfer, bytes; 0: no preference. (The RBD object or stripe size.)
    pub optimal_io_size: u32,
    /// The largest [`Request::CompareAndWrite`], bytes; 0: the lane has to emulate it.
    pub compare_and_write: u32,
    /// How space is given back; `None` for a store that is fully provisioned.
    pub provisioning: Option<Provisioning>,
    /// Refuses every write.
    pub read_only: bool,
    /// Completed writes may be lost before a flush (WCE=1).
    pub volatile_cache: bool,
    /// Which [`Request::WriteAtomic`] the store carries out; `None`: none.
    pub atomic_write: Option<AtomicWrite>,
}

/// What a store promises of a write that is not to be torn by a crash or a power failure. Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicWrite {
    /// The longest such write.
    pub max: u64,
    /// Its length is a multiple of this.
    pub granularity: u64,
    /// It begins at a multiple of this.
    pub alignment: u64,
}

/// How a thin store gives space back. Bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provisioning {
    /// A discard frees whole units of this size.
    pub granularity: u64,
    /// Offset of the first whole unit.
    pub alignment: u64,
    /// A discarded range reads as zeros, always (LBPRZ=1): the store zeroes what it cannot free.
    pub reads_zero: bool,
}

/// A store of blocks.
pub trait Disk: Send + Sync + 'static {
    /// What does not change while it is open.
    fn geometry(&self) -> &Geometry;

    /// Size now, bytes; a multiple of the block size.
    fn size(&self) -> u64;

    /// What [`Request::Note`] has left, when the disk was opened.
    fn note(&self) -> Option<Vec<u8>> {
        None
    }

    /// Starts one operation. See the module's contract.
    fn submit(&self, operation: Operation);

    /// Registers who is told that the size has changed (an image resized elsewhere). One listener; the last one counts.
    fn on_resize(&self, listener: Box<dyn Fn(u64) + Send + Sync>);

    /// Changes the size, and tells the listener as soon as it has. Becomes smaller only with `shrink`; what lies behind the
    /// new end is lost. Blocks.
    fn resize(&self, _size: u64, _shrink: bool) -> Result<(), ResizeError> {
        Err(ResizeError::Unsupported)
    }

    /// Whether somebody tells the disk when its store is resized elsewhere. Else [`Disk::look`] wants to be called now and
    /// then.
    fn is_told_of_resizes(&self) -> bool {
        true
    }

    /// Looks at the store's size, and tells the listener if it is another one. Blocks.
    fn look(&self) {}

    /// Stops taking operations, waits until every one in flight has been completed, flushes and lets go of the store.
    /// Later operations answer [`Error::NotReady`]. Blocks; call it outside the reactors.
    fn close(&self);
}
