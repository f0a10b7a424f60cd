//! Watches on objects: events are copied onto a queue in the callback, and handled elsewhere.
//!
//! The callbacks run on librados' own few threads, which also complete I/O; so they only push.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use super::check;
use super::pool::IoCtx;
use crate::error::Errno;

/// What a watch is told.
pub(crate) enum RawEvent {
    /// Somebody notified the object; wants an ack.
    Notify { id: u64, cookie: u64, notifier: u64, payload: Vec<u8> },
    /// The watch is broken and will get nothing more.
    Broken(Errno),
    /// Ours: stop handling.
    Stop,
}

/// A longer payload is cut: nobody in this protocol sends one, and memory is not the sender's to choose.
const PAYLOAD_LIMIT: usize = 1 << 20;

/// Owns a watch. Dropped without [`close`](Self::close), it leaks what the callbacks use, which is always safe.
pub(crate) struct WatchHandle {
    io: Arc<IoCtx>,
    cookie: u64,
    /// From `Box::into_raw`; freed when C has promised to call no more.
    queue: *mut Sender<RawEvent>,
}

// SAFETY: the queue is only touched through `&Sender`, which is Sync, until `close` owns it.
unsafe impl Send for WatchHandle {}
// SAFETY: as above.
unsafe impl Sync for WatchHandle {}

impl WatchHandle {
    /// Watches `object`; the OSD gives the watch up after `timeout_seconds` without a sign of life.
    pub(crate) fn open(
        io: &Arc<IoCtx>,
        object: &CStr,
        timeout_seconds: u32,
        queue: Sender<RawEvent>,
    ) -> Result<Self, Errno> {
        let mut watch = Self { io: Arc::clone(io), cookie: 0, queue: Box::into_raw(Box::new(queue)) };
        // SAFETY: the ioctx is alive; the queue outlives the watch, see `close`.
        let returned = unsafe {
            (io.cluster.library.rados.rados_watch3)(
                io.raw,
                object.as_ptr(),
                &raw mut watch.cookie,
                Some(notified),
                Some(broken),
                timeout_seconds,
                watch.queue.cast(),
            )
        };
        match check(returned) {
            Ok(_) => Ok(watch),
            Err(errno) => {
                // A watch that never was has no callback in flight, but an error one may be queued.
                if io.cluster.watch_flush().is_ok() {
                    watch.free_queue();
                }
                Err(errno)
            }
        }
    }

    /// Milliseconds since the OSD last confirmed the watch.
    pub(crate) fn check(&self) -> Result<usize, Errno> {
        // SAFETY: the ioctx is alive and the cookie is of a watch of its.
        check(unsafe { (self.io.cluster.library.rados.rados_watch_check)(self.io.raw, self.cookie) })
    }

    pub(crate) fn cookie(&self) -> u64 {
        self.cookie
    }

    /// Ends the watch. Blocks until the OSD has answered and no callback runs; never called from a callback.
    pub(crate) fn close(self) -> Result<(), Errno> {
        // SAFETY: the ioctx is alive; the cookie is used for the last time.
        let ended = unsafe { (self.io.cluster.library.rados.rados_unwatch2)(self.io.raw, self.cookie) };
        // The watch is gone on this side even when the OSD refused (a blocklisted client), so flushing is enough.
        self.io.cluster.watch_flush()?;
        self.free_queue();
        check(ended).map(drop)
    }

    fn free_queue(self) {
        // SAFETY: from Box::into_raw; the watch is gone and its callbacks have been flushed; `self` is consumed.
        drop(unsafe { Box::from_raw(self.queue) });
    }
}

unsafe extern "C" fn notified(
    queue: *mut c_void,
    id: u64,
    cookie: u64,
    notifier: u64,
    data: *mut c_void,
    len: usize,
) {
    let payload = if data.is_null() || len == 0 {
        Vec::new()
    } else {
        // SAFETY: C lends `len` bytes at `data` for the length of this call.
        unsafe { std::slice::from_raw_parts(data.cast::<u8>().cast_const(), len.min(PAYLOAD_LIMIT)) }.to_vec()
    };
    // SAFETY: the pointer given to rados_watch3, freed only after callbacks have been flushed.
    push(unsafe { &*queue.cast::<Sender<RawEvent>>() }, RawEvent::Notify { id, cookie, notifier, payload });
}

unsafe extern "C" fn broken(queue: *mut c_void, _cookie: u64, error: c_int) {
    let errno = Errno(error.saturating_abs());
    // SAFETY: the pointer given to rados_watch3, freed only after callbacks have been flushed.
    push(unsafe { &*queue.cast::<Sender<RawEvent>>() }, RawEvent::Broken(errno));
}

/// Never blocks: the queue has no bound but the rate of events.
fn push(queue: &Sender<RawEvent>, event: RawEvent) {
    // Nobody listens any more: the watch is being closed, and the notifier's timeout covers the missing ack.
    let _ = queue.send(event);
}

/// Acknowledges a notification, with a reply for the notifier.
pub(crate) fn ack(io: &IoCtx, object: &CStr, id: u64, cookie: u64, reply: &[u8]) -> Result<(), Errno> {
    let len = c_int::try_from(reply.len()).map_err(|_too_long| Errno(libc::E2BIG))?;
    let at = reply.as_ptr().cast();
    // SAFETY: the ioctx is alive; C copies the reply.
    let returned =
        unsafe { (io.cluster.library.rados.rados_notify_ack)(io.raw, object.as_ptr(), id, cookie, at, len) };
    check(returned).map(drop)
}

/// Notifies every watcher of `object` and waits for their acks. The encoded answers come with success and with
/// `ETIMEDOUT` (some did not answer) alike.
pub(crate) fn notify(
    io: &IoCtx,
    object: &CStr,
    payload: &[u8],
    timeout_milliseconds: u64,
) -> (Result<(), Errno>, Vec<u8>) {
    let Ok(len) = c_int::try_from(payload.len()) else {
        return (Err(Errno(libc::E2BIG)), Vec::new());
    };
    let (mut reply, mut reply_len) = (null_mut(), 0);
    // SAFETY: the ioctx is alive; C copies the payload and stores a buffer of its own for us to free.
    let returned = unsafe {
        (io.cluster.library.rados.rados_notify2)(
            io.raw,
            object.as_ptr(),
            payload.as_ptr().cast(),
            len,
            timeout_milliseconds,
            &raw mut reply,
            &raw mut reply_len,
        )
    };
    (check(returned).map(drop), io.cluster.take(reply, reply_len))
}
