//! The data path: one record per operation, which owns the operation's memory until librbd's callback has run.
//!
//! # The life of an operation
//!
//! [`submit`] boxes the record, asks it for the addresses of its memory, and hands its pointer to librbd as the callback's
//! argument. From then on the record is librbd's: it is taken back, and its closure called, by whichever comes last of the
//! callbacks. A call that returns a negative number has no callback; its completion is released and the record reports the
//! error through the same path. So every operation ends exactly once, and nothing that librbd may still touch
//! (the buffer, *and the iovec array of a read*, which librbd reads after the call has returned) is ever freed before.
//!
//! librbd takes at most `IOV_MAX` iovecs, so one operation may be several *parts*, each with a completion of its own.
//!
//! Callbacks run on librbd's few threads and must not block; closures are told so.

use std::ffi::{c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use libc::iovec;

use super::check_long;
use super::image::ImageHandle;
use super::types::*;
use crate::error::Errno;

/// Memory that librbd reads from or writes into while an operation is in flight.
///
/// # Safety
///
/// As long as the value lives and is not moved, `iovecs` returns the same array at the same address with the same
/// content, and the memory it describes is valid and may be read and (for reads into it) written by a foreign thread,
/// without anything in Rust holding a reference to it.
pub unsafe trait IoBuf: Send + 'static {
    /// The memory, in order.
    fn iovecs(&self) -> &[iovec];

    /// Bytes in all iovecs together.
    fn len(&self) -> usize {
        self.iovecs().iter().map(|part| part.iov_len).sum()
    }

    /// True when there is no byte.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A `Vec` as an [`IoBuf`].
#[derive(Debug)]
pub struct Bytes {
    /// Never touched while this is a `Bytes`, so its allocation stays put.
    vec: Vec<u8>,
    parts: Parts,
}

/// The usual case needs no allocation.
#[derive(Debug)]
enum Parts {
    One([iovec; 1]),
    Many(Vec<iovec>),
}

// SAFETY: the pointers in `parts` are to the allocation that `vec` owns, which may go to another thread with them.
unsafe impl Send for Bytes {}

// SAFETY: `parts` never changes; it describes the vector's allocation, which is neither touched nor moved until `into_vec`.
unsafe impl IoBuf for Bytes {
    fn iovecs(&self) -> &[iovec] {
        match &self.parts {
            Parts::One(part) => part,
            Parts::Many(parts) => parts,
        }
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(mut vec: Vec<u8>) -> Self {
        let parts = Parts::One([iovec { iov_base: vec.as_mut_ptr().cast(), iov_len: vec.len() }]);
        Self { vec, parts }
    }
}

impl Bytes {
    /// The same memory as pieces of `len` bytes (the last one may be shorter).
    pub fn in_pieces(mut vec: Vec<u8>, len: usize) -> Self {
        let pieces = vec.chunks_mut(len.max(1));
        let parts = pieces.map(|piece| iovec { iov_base: piece.as_mut_ptr().cast(), iov_len: piece.len() });
        let parts = Parts::Many(parts.collect());
        Self { vec, parts }
    }

    /// The vector back.
    pub fn into_vec(self) -> Vec<u8> {
        self.vec
    }
}

/// The patterns of a compare-and-write, and where librbd says they differ.
pub(crate) struct Compare {
    pub(crate) expected: Vec<u8>,
    pub(crate) new: Vec<u8>,
    pub(crate) differs_at: u64,
}

/// What is asked of librbd, with addresses into the record's memory. Offsets and lengths in bytes, lengths not zero.
#[derive(Clone, Copy)]
pub(crate) enum Call {
    /// `end` is the image's: librbd refuses a part that begins there or later (`EINVAL`).
    Read {
        offset: u64,
        end: u64,
        parts: *const iovec,
        count: usize,
    },
    Write {
        offset: u64,
        parts: *const iovec,
        count: usize,
    },
    WriteSame {
        offset: u64,
        len: usize,
        pattern: *const c_char,
        pattern_len: usize,
    },
    CompareAndWrite {
        offset: u64,
        len: usize,
        expected: *const c_char,
        new: *const c_char,
        differs_at: *mut u64,
    },
    Discard {
        offset: u64,
        len: u64,
    },
    WriteZeroes {
        offset: u64,
        len: usize,
        thick: bool,
    },
    Flush,
}

/// Counts an image's operations in flight, and outlives the image.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    count: AtomicUsize,
    /// How many wait for zero; the callback takes the lock only for them.
    waiting: AtomicUsize,
    lock: Mutex<()>,
    zero: Condvar,
}

impl InFlight {
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    fn begin(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
    }

    fn end(&self) {
        // SeqCst: either this sees the waiter, or the waiter's check after it registered sees the count.
        if self.count.fetch_sub(1, Ordering::SeqCst) == 1 && self.waiting.load(Ordering::SeqCst) > 0 {
            let _guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
            self.zero.notify_all();
        }
    }

    /// Waits until nothing is in flight; false when `patience` ends first.
    pub(crate) fn drain(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        while self.count() > 0 {
            let Some(left) = deadline.checked_duration_since(Instant::now()) else { break };
            guard = self.zero.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(guard);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        self.count() == 0
    }
}

/// One operation: its memory, its closure, and what its parts have reported so far.
struct Record<B, F> {
    in_flight: Arc<InFlight>,
    body: B,
    done: F,
    /// Parts that have not reported.
    left: AtomicUsize,
    bytes: AtomicUsize,
    /// The first errno, or 0.
    failed: AtomicI32,
}

/// Starts an operation. `prepare` sees `body` at the address where it will stay. `done` gets librbd's value (bytes read;
/// 0 for the others) and the body back, on any thread, possibly before this returns; it must not block, and must
/// not own the image.
pub(crate) fn submit<B, F>(
    image: &ImageHandle,
    in_flight: &Arc<InFlight>,
    body: B,
    prepare: impl FnOnce(&mut B) -> Call,
    done: F,
) where
    B: Send + 'static,
    F: FnOnce(Result<usize, Errno>, B) + Send + 'static,
{
    in_flight.begin();
    let mut record = Box::new(Record {
        in_flight: Arc::clone(in_flight),
        body,
        done,
        left: AtomicUsize::new(1),
        bytes: AtomicUsize::new(0),
        failed: AtomicI32::new(0),
    });
    let call = prepare(&mut record.body);
    let parts = parts_of(call);
    record.left = AtomicUsize::new(parts);
    let record: *mut Record<B, F> = Box::into_raw(record);
    let mut rest = call;
    for _ in 0..parts {
        // The record lives at least until this part has reported, so its iovecs may be read here.
        let (part, after) = split(rest);
        rest = after;
        issue::<B, F>(image, part, record);
    }
}

/// `IOV_MAX`: librbd refuses more with `EINVAL`.
const PART_LIMIT: usize = libc::UIO_MAXIOV as usize;

fn parts_of(call: Call) -> usize {
    match call {
        Call::Read { count, .. } | Call::Write { count, .. } => count.div_ceil(PART_LIMIT).max(1),
        _ => 1,
    }
}

/// The first part of a call, and the rest.
fn split(call: Call) -> (Call, Call) {
    match call {
        Call::Read { offset, end, parts, count } if count > PART_LIMIT => {
            let (next, skipped) = skip_part(parts);
            (
                Call::Read { offset, end, parts, count: PART_LIMIT },
                Call::Read { offset: offset + skipped, end, parts: next, count: count - PART_LIMIT },
            )
        }
        Call::Write { offset, parts, count } if count > PART_LIMIT => {
            let (next, skipped) = skip_part(parts);
            (
                Call::Write { offset, parts, count: PART_LIMIT },
                Call::Write { offset: offset + skipped, parts: next, count: count - PART_LIMIT },
            )
        }
        whole => (whole, whole),
    }
}

/// Where the next part's iovecs begin, and how many bytes the first part's have.
fn skip_part(parts: *const iovec) -> (*const iovec, u64) {
    // SAFETY: the caller has more than PART_LIMIT iovecs there, in a record that is alive.
    let first = unsafe { std::slice::from_raw_parts(parts, PART_LIMIT) };
    let bytes: usize = first.iter().map(|part| part.iov_len).sum();
    (parts.wrapping_add(PART_LIMIT), bytes as u64)
}

/// Hands one part to librbd. Afterwards the record may be gone.
fn issue<B, F>(image: &ImageHandle, call: Call, record: *mut Record<B, F>)
where
    B: Send + 'static,
    F: FnOnce(Result<usize, Errno>, B) + Send + 'static,
{
    if matches!(call, Call::Read { offset, end, .. } if offset >= end) {
        return report(record, 0);
    }
    let rbd = image.rbd();
    let mut completion = null_mut();
    // SAFETY: the callback's argument is the record, which lives until all its parts have reported.
    let created = unsafe {
        (rbd.rbd_aio_create_completion)(record.cast::<c_void>(), Some(finished::<B, F>), &raw mut completion)
    };
    if created < 0 {
        return report(record, created as isize);
    }
    let submitted = start(image, call, completion);
    if submitted < 0 {
        // SAFETY: a call that failed has not taken the completion and will not call back.
        unsafe { (rbd.rbd_aio_release)(completion) };
        report(record, submitted);
    }
}

/// The call itself. The addresses in `call` are those of a living record, see [`submit`].
fn start(image: &ImageHandle, call: Call, c: rbd_completion_t) -> isize {
    let (rbd, raw) = (image.rbd(), image.raw);
    let count_of = |count: usize| c_int::try_from(count).unwrap_or(c_int::MAX);
    let returned = match call {
        Call::Read { offset, parts, count, .. } => {
            // SAFETY: the image is open, the record's memory stays valid until the callback; so in every arm.
            unsafe { (rbd.rbd_aio_readv)(raw, parts, count_of(count), offset, c) }
        }
        Call::Write { offset, parts, count } => {
            // SAFETY: as above.
            unsafe { (rbd.rbd_aio_writev)(raw, parts, count_of(count), offset, c) }
        }
        Call::WriteSame { offset, len, pattern, pattern_len } => {
            // SAFETY: as above.
            unsafe { (rbd.rbd_aio_writesame)(raw, offset, len, pattern, pattern_len, c, 0) }
        }
        Call::CompareAndWrite { offset, len, expected, new, differs_at } => {
            // SAFETY: as above.
            return unsafe {
                (rbd.rbd_aio_compare_and_write)(raw, offset, len, expected, new, c, differs_at, 0)
            };
        }
        Call::Discard { offset, len } => {
            // SAFETY: as above.
            unsafe { (rbd.rbd_aio_discard)(raw, offset, len, c) }
        }
        Call::WriteZeroes { offset, len, thick } => {
            let flags = if thick { RBD_WRITE_ZEROES_FLAG_THICK_PROVISION } else { 0 };
            // SAFETY: as above.
            unsafe { (rbd.rbd_aio_write_zeroes)(raw, offset, len, c, flags, 0) }
        }
        Call::Flush => {
            // SAFETY: as above.
            unsafe { (rbd.rbd_aio_flush)(raw, c) }
        }
    };
    returned as isize
}

unsafe extern "C" fn finished<B, F>(completion: rbd_completion_t, record: *mut c_void)
where
    B: Send + 'static,
    F: FnOnce(Result<usize, Errno>, B) + Send + 'static,
{
    // The library is the one that is calling, so it is open.
    let Ok(library) = super::library::Library::load() else { return };
    // SAFETY: librbd lends the completion for the length of this call, until it is released.
    let returned = unsafe { (library.rbd.rbd_aio_get_return_value)(completion) };
    // SAFETY: released once; librbd keeps a reference of its own while it is in this call.
    unsafe { (library.rbd.rbd_aio_release)(completion) };
    report(record.cast::<Record<B, F>>(), returned);
}

/// Books what a part returned; the last one ends the operation.
fn report<B, F>(record: *mut Record<B, F>, returned: isize)
where
    B: Send + 'static,
    F: FnOnce(Result<usize, Errno>, B) + Send + 'static,
{
    // SAFETY: the record lives until its last part has reported, and this one has not yet.
    let shared = unsafe { &*record };
    match check_long(returned) {
        Ok(count) => {
            shared.bytes.fetch_add(count, Ordering::Relaxed);
        }
        Err(errno) => {
            // The first error counts; a later one changes nothing.
            let _ = shared.failed.compare_exchange(0, errno.0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
    // AcqRel: the last one sees what the others booked. `shared` is not used after this.
    if shared.left.fetch_sub(1, Ordering::AcqRel) == 1 {
        // SAFETY: from Box::into_raw; every part has reported, so librbd is done with the record and nobody else has it.
        end(*unsafe { Box::from_raw(record) });
    }
}

fn end<B, F>(record: Record<B, F>)
where
    F: FnOnce(Result<usize, Errno>, B),
{
    let Record { in_flight, body, done, bytes, failed, .. } = record;
    let result = match failed.into_inner() {
        0 => Ok(bytes.into_inner()),
        errno => Err(Errno(errno)),
    };
    // A panic must not unwind into C++.
    if catch_unwind(AssertUnwindSafe(|| done(result, body))).is_err() {
        tracing::error!("the completion of an RBD operation panicked: a bug; the operation goes unanswered");
    }
    in_flight.end();
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::{Cluster, Config, Image, NewImage, Open};

    fn image() -> Image {
        let conf = std::env::var_os("RBDGATE_TEST_CEPH_CONF").expect(
            "RBDGATE_TEST_CEPH_CONF is not set, and this test needs a real Ceph: run containers/dev/test",
        );
        let pool = Cluster::connect(&Config::new(conf, "admin")).unwrap().pool("rbd").unwrap();
        let since = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_micros();
        let name = format!("refused-{since:x}-{}", std::process::id());
        pool.create_image(&name, NewImage::new(1 << 20)).unwrap();
        pool.open_image(&name, &Open::default()).unwrap()
    }

    /// Submits without the checks that [`Image`] makes.
    fn outcome(image: &Image, body: Bytes, call: impl FnOnce(&mut Bytes) -> Call) -> Result<usize, Errno> {
        let (tell, told) = mpsc::channel();
        submit(image.handle().unwrap(), &image.in_flight, body, call, move |result, _body| {
            tell.send(result).unwrap();
        });
        told.recv_timeout(Duration::from_secs(60)).unwrap()
    }

    #[test]
    fn ceph_calls_that_librbd_refuses_end_once_through_the_normal_path() {
        let image = image();
        let bytes = || Bytes::from(vec![7; 512]);
        let no_multiple = |body: &mut Bytes| Call::WriteSame {
            offset: 0,
            len: 1000,
            pattern: body.vec.as_ptr().cast(),
            pattern_len: 512,
        };
        assert_eq!(outcome(&image, bytes(), no_multiple), Err(Errno(libc::EINVAL)));
        let no_iovec = |body: &mut Bytes| Call::Write { offset: 0, parts: body.iovecs().as_ptr(), count: 0 };
        assert_eq!(outcome(&image, bytes(), no_iovec), Err(Errno(libc::EINVAL)));
        assert!(image.in_flight.drain(Duration::from_secs(10)));
        // librbd's own answer to what `Image::write` refuses: success, with the rest cut off.
        let clipped = |body: &mut Bytes| {
            let parts = body.iovecs();
            Call::Write { offset: (1 << 20) - 256, parts: parts.as_ptr(), count: parts.len() }
        };
        assert_eq!(
            outcome(&image, bytes(), clipped),
            Ok(0),
            "librbd no longer clips: look at Image::writable"
        );
        image.close(Duration::from_secs(60)).unwrap();
    }

    #[test]
    fn draining_ends_when_the_last_operation_does_and_gives_up_in_time() {
        let in_flight = Arc::new(InFlight::default());
        in_flight.begin();
        assert!(!in_flight.drain(Duration::from_millis(20)));
        let other = Arc::clone(&in_flight);
        let waiter = std::thread::spawn(move || other.drain(Duration::from_secs(60)));
        in_flight.end();
        assert!(waiter.join().unwrap());
        assert_eq!(in_flight.count(), 0);
    }

    #[test]
    fn pieces_cover_the_vector_without_overlap() {
        let bytes = Bytes::in_pieces(vec![0; 1300], 512);
        let lengths: Vec<usize> = bytes.iovecs().iter().map(|part| part.iov_len).collect();
        assert_eq!(lengths, [512, 512, 276]);
        assert_eq!(bytes.len(), 1300);
        let first = bytes.iovecs()[0].iov_base;
        assert_eq!(bytes.iovecs()[1].iov_base, first.wrapping_byte_add(512));
    }
}
