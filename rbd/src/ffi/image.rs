//! An open image, apart from its data path ([`aio`](super::aio)) and its lock ([`lock`](super::lock)).

use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{null, null_mut};
use std::sync::Arc;

use super::pool::IoCtx;
use super::types::*;
use super::{c_string, check, copy_c_string, text, texts, until_nul};
use crate::error::Errno;

/// An open `rbd_image_t`.
///
/// It is not closed on drop: closing blocks and may never end, so [`Image`](crate::Image) decides when, on which
/// thread, or to leak it. Everything that must outlive an open image is kept alive by leaking with it.
pub(crate) struct ImageHandle {
    pub(super) io: Arc<IoCtx>,
    pub(super) raw: rbd_image_t,
}

// SAFETY: an image may be used and closed from any thread (invariant "locked").
unsafe impl Send for ImageHandle {}
// SAFETY: as above.
unsafe impl Sync for ImageHandle {}

/// How to open an image.
#[derive(Clone, Copy)]
pub(crate) struct Opening<'a> {
    pub(crate) name: &'a str,
    pub(crate) snapshot: Option<&'a str>,
    pub(crate) read_only: bool,
}

impl ImageHandle {
    pub(crate) fn open(io: Arc<IoCtx>, how: Opening<'_>) -> Result<Self, Errno> {
        let name = c_string(how.name)?;
        let snapshot = how.snapshot.map(c_string).transpose()?;
        let snapshot = snapshot.as_ref().map_or(null(), |name| name.as_ptr());
        let rbd = &io.cluster.library.rbd;
        let open = if how.read_only { rbd.rbd_open_read_only } else { rbd.rbd_open };
        let mut raw = null_mut();
        // SAFETY: the ioctx is alive; the strings are valid during the call; a null snapshot means the image itself.
        check(unsafe { open(io.raw, name.as_ptr(), &raw mut raw, snapshot) })?;
        Ok(Self { io, raw })
    }

    /// Closes it: waits for librbd's own work, gives its watch and lock back. The caller has seen every aio operation end.
    pub(crate) fn close(self) -> Result<(), Errno> {
        // SAFETY: consumes the only handle; no operation of ours is in flight.
        check(unsafe { (self.io.cluster.library.rbd.rbd_close)(self.raw) }).map(drop)
    }

    pub(super) fn rbd(&self) -> &'static super::functions::Rbd {
        &self.io.cluster.library.rbd
    }

    /// Bytes, as of the last header that librbd has read.
    pub(crate) fn size(&self) -> Result<u64, Errno> {
        let mut size = 0;
        // SAFETY: the image is open; so in every call of this file.
        check(unsafe { (self.rbd().rbd_get_size)(self.raw, &raw mut size) })?;
        Ok(size)
    }

    pub(crate) fn object_size(&self) -> Result<u64, Errno> {
        let mut info = rbd_image_info_t {
            size: 0,
            obj_size: 0,
            num_objs: 0,
            order: 0,
            block_name_prefix: [0; 24],
            parent_pool: 0,
            parent_name: [0; 96],
        };
        // SAFETY: open; C fills the structure, whose size it is told.
        check(unsafe { (self.rbd().rbd_stat)(self.raw, &raw mut info, size_of::<rbd_image_info_t>()) })?;
        Ok(info.obj_size)
    }

    /// Stripe unit (bytes) and count.
    pub(crate) fn stripes(&self) -> Result<(u64, u64), Errno> {
        let (mut unit, mut count) = (0, 0);
        // SAFETY: open.
        check(unsafe { (self.rbd().rbd_get_stripe_unit)(self.raw, &raw mut unit) })?;
        // SAFETY: open.
        check(unsafe { (self.rbd().rbd_get_stripe_count)(self.raw, &raw mut count) })?;
        Ok((unit, count))
    }

    pub(crate) fn features(&self) -> Result<u64, Errno> {
        let mut features = 0;
        // SAFETY: open.
        check(unsafe { (self.rbd().rbd_get_features)(self.raw, &raw mut features) })?;
        Ok(features)
    }

    pub(crate) fn update_features(&self, features: u64, enabled: bool) -> Result<(), Errno> {
        // SAFETY: open.
        check(unsafe { (self.rbd().rbd_update_features)(self.raw, features, u8::from(enabled)) }).map(drop)
    }

    pub(crate) fn id(&self) -> Result<String, Errno> {
        text(|buffer| {
            let into = buffer.as_mut_ptr().cast();
            // SAFETY: open; C writes at most `len` bytes.
            unsafe { (self.rbd().rbd_get_id)(self.raw, into, buffer.len()) }
        })
    }

    pub(crate) fn resize(&self, size: u64, allow_shrink: bool) -> Result<(), Errno> {
        // SAFETY: open. librbd takes no null for the progress callback.
        let returned =
            unsafe { (self.rbd().rbd_resize2)(self.raw, size, allow_shrink, Some(no_progress), null_mut()) };
        check(returned).map(drop)
    }

    pub(crate) fn metadata(&self, key: &str) -> Result<String, Errno> {
        let key = c_string(key)?;
        text(|buffer| {
            let mut len = buffer.len();
            let into = buffer.as_mut_ptr().cast();
            // SAFETY: open; C writes at most `len` bytes.
            unsafe { (self.rbd().rbd_metadata_get)(self.raw, key.as_ptr(), into, &raw mut len) }
        })
    }

    pub(crate) fn set_metadata(&self, key: &str, value: &str) -> Result<(), Errno> {
        let (key, value) = (c_string(key)?, c_string(value)?);
        // SAFETY: open; C copies both.
        check(unsafe { (self.rbd().rbd_metadata_set)(self.raw, key.as_ptr(), value.as_ptr()) }).map(drop)
    }

    pub(crate) fn remove_metadata(&self, key: &str) -> Result<(), Errno> {
        let key = c_string(key)?;
        // SAFETY: open; C copies the key.
        check(unsafe { (self.rbd().rbd_metadata_remove)(self.raw, key.as_ptr()) }).map(drop)
    }

    /// At most `limit` pairs after the key `start`.
    pub(crate) fn list_metadata(&self, start: &str, limit: u64) -> Result<Vec<(String, String)>, Errno> {
        let start = c_string(start)?;
        let mut room = 4096;
        loop {
            let (mut keys, mut values) = (vec![0_u8; room], vec![0_u8; room]);
            let (mut keys_len, mut values_len) = (room, room);
            // SAFETY: open; each buffer is as long as the length beside it says.
            let returned = unsafe {
                (self.rbd().rbd_metadata_list)(
                    self.raw,
                    start.as_ptr(),
                    limit,
                    keys.as_mut_ptr().cast(),
                    &raw mut keys_len,
                    values.as_mut_ptr().cast(),
                    &raw mut values_len,
                )
            };
            match check(returned) {
                Ok(_) => {
                    let values = values[..values_len.min(room)].split(|byte| *byte == 0).map(until_nul);
                    return Ok(texts(&keys[..keys_len.min(room)]).into_iter().zip(values).collect());
                }
                Err(Errno(libc::ERANGE)) if room < 1 << 24 => room = (keys_len.max(values_len)).max(room * 2),
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Every option of librbd with the value that it has for this image.
    pub(crate) fn settings(&self) -> Result<Vec<(String, String)>, Errno> {
        let mut room = 256;
        loop {
            let empty = rbd_config_option_t { name: null_mut(), value: null_mut(), source: 0 };
            let mut options = vec![empty; usize::try_from(room).unwrap_or(0)];
            let mut count = room;
            // SAFETY: open; C fills at most `count` entries, or says in it how many there are.
            let returned =
                unsafe { (self.rbd().rbd_config_image_list)(self.raw, options.as_mut_ptr(), &raw mut count) };
            match check(returned) {
                Ok(_) => {
                    let filled = options.iter().take(usize::try_from(count).unwrap_or(0));
                    let list = filled.map(|option| {
                        // SAFETY: C filled this entry with NUL-terminated strings.
                        let name = unsafe { copy_c_string(option.name) };
                        // SAFETY: as above.
                        (name, unsafe { copy_c_string(option.value) })
                    });
                    let list = list.collect();
                    // SAFETY: frees exactly the strings that C put there.
                    unsafe { (self.rbd().rbd_config_image_list_cleanup)(options.as_mut_ptr(), count) };
                    return Ok(list);
                }
                Err(Errno(libc::ERANGE)) if room < 1 << 16 => room = count.max(room).saturating_mul(2),
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Id, size and name of each snapshot.
    pub(crate) fn snapshots(&self) -> Result<Vec<(u64, u64, String)>, Errno> {
        let mut room = 32;
        loop {
            let empty = rbd_snap_info_t { id: 0, size: 0, name: null() };
            let mut snapshots = vec![empty; usize::try_from(room).unwrap_or(0)];
            let mut count = room;
            // SAFETY: open; C fills at most `count` entries.
            let returned =
                unsafe { (self.rbd().rbd_snap_list)(self.raw, snapshots.as_mut_ptr(), &raw mut count) };
            match check(returned) {
                Ok(found) => {
                    let list = snapshots.iter().take(found).map(|snapshot| {
                        // SAFETY: C filled this entry with a NUL-terminated string.
                        (snapshot.id, snapshot.size, unsafe { copy_c_string(snapshot.name) })
                    });
                    let list = list.collect();
                    if found > 0 {
                        // SAFETY: frees the names; C ends the list with a null one, which `found < room` leaves room for.
                        unsafe { (self.rbd().rbd_snap_list_end)(snapshots.as_mut_ptr()) };
                    }
                    return Ok(list);
                }
                Err(Errno(libc::ERANGE)) if room < 1 << 20 => room = count.max(room).saturating_mul(2),
                Err(errno) => return Err(errno),
            }
        }
    }

    pub(crate) fn create_snapshot(&self, name: &str) -> Result<(), Errno> {
        let name = c_string(name)?;
        // SAFETY: open.
        check(unsafe { (self.rbd().rbd_snap_create)(self.raw, name.as_ptr()) }).map(drop)
    }

    pub(crate) fn remove_snapshot(&self, name: &str) -> Result<(), Errno> {
        let name = c_string(name)?;
        // SAFETY: open.
        check(unsafe { (self.rbd().rbd_snap_remove)(self.raw, name.as_ptr()) }).map(drop)
    }

    pub(crate) fn rollback(&self, name: &str) -> Result<(), Errno> {
        let name = c_string(name)?;
        // SAFETY: open.
        check(unsafe { (self.rbd().rbd_snap_rollback)(self.raw, name.as_ptr()) }).map(drop)
    }

    /// Calls `found` for each stretch of the range that has data (`true`) or had some (`false`), until it says stop.
    /// Whole objects, by the object map where there is one. Blocks.
    pub(crate) fn diff(
        &self,
        offset: u64,
        len: u64,
        mut found: impl FnMut(u64, u64, bool) -> Continue,
    ) -> Result<(), Errno> {
        let mut visitor: Visitor<'_> = &mut found;
        // SAFETY: open; the visitor lives until the call returns; null means "since the beginning".
        let returned = unsafe {
            let visitor = (&raw mut visitor).cast();
            (self.rbd().rbd_diff_iterate2)(self.raw, null(), offset, len, 1, 1, Some(visit), visitor)
        };
        match check(returned) {
            Ok(_) | Err(STOPPED) => Ok(()),
            Err(errno) => Err(errno),
        }
    }
}

/// Whether a visitor wants more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Continue {
    Yes,
    No,
}

type Visitor<'a> = &'a mut dyn FnMut(u64, u64, bool) -> Continue;

/// What [`visit`] returns, and so `rbd_diff_iterate2`, when the visitor wants no more. No error of librbd's own.
const STOPPED: Errno = Errno(libc::EBADE);

unsafe extern "C" fn visit(offset: u64, len: usize, exists: c_int, visitor: *mut c_void) -> c_int {
    // SAFETY: points to the visitor on the stack of `diff`, which waits for this call; calls do not overlap.
    let visitor = unsafe { &mut *visitor.cast::<Visitor<'_>>() };
    match catch_unwind(AssertUnwindSafe(|| visitor(offset, len as u64, exists != 0))) {
        Ok(Continue::Yes) => 0,
        Ok(Continue::No) | Err(_) => -STOPPED.0,
    }
}

unsafe extern "C" fn no_progress(_offset: u64, _total: u64, _data: *mut c_void) -> c_int {
    0
}

/// Told when the image's header may have changed. Runs on a librbd thread.
pub(crate) type Listener = Box<dyn Fn() + Send + Sync>;

/// A registered [`Listener`].
pub(crate) struct UpdateWatch {
    handle: u64,
    /// From `Box::into_raw`; freed after unregistering, leaked with an image that cannot be closed.
    listener: *mut Listener,
}

// SAFETY: the listener is Send and Sync, and only `unwatch` owns it.
unsafe impl Send for UpdateWatch {}
// SAFETY: as above.
unsafe impl Sync for UpdateWatch {}

impl ImageHandle {
    pub(crate) fn watch_updates(&self, listener: Listener) -> Result<UpdateWatch, Errno> {
        let mut watch = UpdateWatch { handle: 0, listener: Box::into_raw(Box::new(listener)) };
        // SAFETY: open; the listener stays valid until it has been unregistered.
        let returned = unsafe {
            (self.rbd().rbd_update_watch)(
                self.raw,
                &raw mut watch.handle,
                Some(updated),
                watch.listener.cast(),
            )
        };
        match check(returned) {
            Ok(_) => Ok(watch),
            Err(errno) => {
                // SAFETY: never registered, so still ours alone.
                drop(unsafe { Box::from_raw(watch.listener) });
                Err(errno)
            }
        }
    }

    /// Unregisters; waits for a call that is running.
    pub(crate) fn unwatch_updates(&self, watch: UpdateWatch) -> Result<(), Errno> {
        // SAFETY: open; a handle of this image, used for the last time.
        check(unsafe { (self.rbd().rbd_update_unwatch)(self.raw, watch.handle) })?;
        // SAFETY: unregistered, so nobody calls it any more; the watch is consumed.
        drop(unsafe { Box::from_raw(watch.listener) });
        Ok(())
    }
}

unsafe extern "C" fn updated(listener: *mut c_void) {
    // SAFETY: the pointer given to rbd_update_watch, freed only after unregistering.
    let listener = unsafe { &*listener.cast::<Listener>() };
    if catch_unwind(AssertUnwindSafe(listener)).is_err() {
        tracing::error!("the listener of an RBD image's changes panicked: a bug; the change goes unnoticed");
    }
}
