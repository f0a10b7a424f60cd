//! An open image: size, features, metadata, snapshots, and closing it safely.
//!
//! Its data path is in [`aio`](crate::aio), its exclusive lock in [`lock`](crate::lock).
//!
//! # Closing
//!
//! `rbd_close` must not run while an operation is in flight, and may wait for ever when the cluster is gone. So closing
//! waits for the operations, bounded; then closes on a thread of its own, and waits for that, bounded. What cannot be
//! closed is left open with everything it uses, and said loudly: leaked memory is the only safe kind that
//! librbd may still write.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::error::{Context, Errno, Error, Kind, Op};
use crate::ffi::aio::InFlight;
use crate::ffi::image::{Continue, ImageHandle, Opening, UpdateWatch};
use crate::pool::{Features, Pool};

/// How to open an image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Open {
    /// Refuses writes, registers no watch, needs no lock; does not notice when the image is resized elsewhere.
    pub read_only: bool,
    /// This snapshot of it; read-only by nature.
    pub snapshot: Option<String>,
}

/// A snapshot of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// librbd's number.
    pub id: u64,
    /// The image's size then, bytes.
    pub size: u64,
    /// Its name.
    pub name: String,
}

/// Called with the new size in bytes, on a librbd thread. It must not block, nor register another listener.
pub type ResizeListener = Box<dyn Fn(u64) + Send + Sync>;

/// What the update watch and the data path share with the image.
#[derive(Default)]
struct Shared {
    /// Bytes, as last seen.
    size: AtomicU64,
    /// Numbers the looks at librbd's size, see [`look`](Self::look).
    looks: AtomicU64,
    listener: Mutex<Listener>,
}

#[derive(Default)]
struct Listener {
    call: Option<ResizeListener>,
    /// The latest look that has been noted.
    noted: u64,
}

/// An open image. Dropping it closes it, see the module's text.
pub struct Image {
    /// `None` once it has been closed or left behind.
    handle: Option<Arc<ImageHandle>>,
    pub(crate) in_flight: Arc<InFlight>,
    shared: Arc<Shared>,
    watch: Option<UpdateWatch>,
    pool: Pool,
    label: Arc<str>,
    read_only: bool,
    /// Has held the exclusive lock by [`acquire_lock`](Self::acquire_lock).
    pub(crate) locked: AtomicBool,
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Image")
            .field("image", &self.label)
            .field("read_only", &self.read_only)
            .field("in_flight", &self.in_flight.count())
            .finish_non_exhaustive()
    }
}

/// How long dropping an image waits for its operations, and then for librbd.
const PATIENCE: Duration = Duration::from_secs(30);

/// An image that could not be closed in time. It is left open until the process ends, with what it uses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CloseError {
    /// Operations did not end: the cluster does not serve their placement groups.
    #[error(
        "{count} operations on {image} have not ended: the image is left open; check the cluster's health (ceph health detail)"
    )]
    InFlight {
        /// `pool/image`.
        image: String,
        /// How many.
        count: usize,
    },
    /// librbd did not return from closing it.
    #[error(
        "librbd has not closed {image} in time: it is left behind; check the cluster's health (ceph health detail)"
    )]
    Stuck {
        /// `pool/image`.
        image: String,
    },
    /// librbd closed it with an error.
    #[error(transparent)]
    Failed(#[from] Error),
}

impl Pool {
    /// Opens an image.
    pub fn open_image(&self, name: &str, how: &Open) -> Result<Image, Error> {
        let label: Arc<str> = self.path(name).into();
        let read_only = how.read_only || how.snapshot.is_some();
        // An ioctx of its own: librbd keeps settings on it.
        let io = self.io.sibling().context(Op::OpenImage, &label)?;
        let opening = Opening { name, snapshot: how.snapshot.as_deref(), read_only };
        let handle = ImageHandle::open(Arc::new(io), opening).context(Op::OpenImage, &label)?;
        let mut image = Image {
            handle: Some(Arc::new(handle)),
            in_flight: Arc::default(),
            shared: Arc::default(),
            watch: None,
            pool: self.clone(),
            label,
            read_only,
            locked: AtomicBool::new(false),
        };
        if !read_only {
            image.watch_resize()?;
        }
        // After watching, so that no resize falls between.
        image.call(Op::Inspect, |handle| image.shared.look(handle))?;
        Ok(image)
    }
}

impl Image {
    /// `pool/image`.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// The pool it is in.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Opened for reading only.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Operations in flight.
    pub fn in_flight(&self) -> usize {
        self.in_flight.count()
    }

    pub(crate) fn handle(&self) -> Result<&ImageHandle, Errno> {
        // Only a closed image has none, and closing consumes it.
        self.handle.as_deref().ok_or(Errno(libc::EBADF))
    }

    pub(crate) fn call<T>(
        &self,
        op: Op,
        call: impl FnOnce(&ImageHandle) -> Result<T, Errno>,
    ) -> Result<T, Error> {
        let outcome = self.handle().and_then(call);
        outcome.map_err(|errno| Error::new(op, &*self.label, errno).with_kind(self.classify(errno)))
    }

    /// What an errno of this image means: `EROFS` on an image that has held its exclusive lock means that it was lost.
    pub fn classify(&self, errno: Errno) -> Kind {
        match errno.kind() {
            Kind::ReadOnly if !self.read_only && self.locked.load(Ordering::Relaxed) => Kind::Fenced,
            kind => kind,
        }
    }

    fn watch_resize(&mut self) -> Result<(), Error> {
        let (shared, handle) = (Arc::clone(&self.shared), self.handle.clone());
        let watch = self.call(Op::Inspect, |image| {
            image.watch_updates(Box::new(move || {
                // A failure means the image is going away; every operation on it will say so.
                let _ = handle.as_ref().map(|handle| shared.look(handle));
            }))
        })?;
        self.watch = Some(watch);
        Ok(())
    }

    /// Size now, in bytes, as librbd knows it.
    pub fn size(&self) -> Result<u64, Error> {
        self.call(Op::Inspect, ImageHandle::size)
    }

    /// Size as last seen, without asking librbd. Follows a resize elsewhere by its notice.
    pub fn known_size(&self) -> u64 {
        self.shared.size.load(Ordering::Acquire)
    }

    /// Registers who is told that the size has changed, here or elsewhere. One listener; the last one counts.
    pub fn on_resize(&self, listener: ResizeListener) {
        self.shared.listener.lock().unwrap_or_else(PoisonError::into_inner).call = Some(listener);
    }

    /// Changes the size. Blocks. Without `shrink` a smaller size is refused.
    pub fn resize(&self, size: u64, shrink: bool) -> Result<(), Error> {
        self.call(Op::Alter, |image| image.resize(size, shrink))?;
        self.call(Op::Inspect, |image| self.shared.look(image))
    }

    /// Bytes per object.
    pub fn object_size(&self) -> Result<u64, Error> {
        self.call(Op::Inspect, ImageHandle::object_size)
    }

    /// Stripe unit (bytes) and count; without striping the object size and 1.
    pub fn stripes(&self) -> Result<(u64, u64), Error> {
        self.call(Op::Inspect, ImageHandle::stripes)
    }

    /// What it can do.
    pub fn features(&self) -> Result<Features, Error> {
        self.call(Op::Inspect, ImageHandle::features).map(Features)
    }

    /// Switches features on or off.
    pub fn set_features(&self, features: Features, enabled: bool) -> Result<(), Error> {
        self.call(Op::Alter, |image| image.update_features(features.0, enabled))
    }

    /// librbd's internal id, part of its objects' names.
    pub fn id(&self) -> Result<String, Error> {
        self.call(Op::Inspect, ImageHandle::id)
    }

    /// The value of a metadata key; `None` when there is no such key.
    pub fn metadata(&self, key: &str) -> Result<Option<String>, Error> {
        match self.call(Op::Inspect, |image| image.metadata(key)) {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.kind == Kind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sets a metadata key. (Keys that begin with `conf_` set Ceph options for this image.)
    pub fn set_metadata(&self, key: &str, value: &str) -> Result<(), Error> {
        self.call(Op::Alter, |image| image.set_metadata(key, value))
    }

    /// Removes a metadata key.
    pub fn remove_metadata(&self, key: &str) -> Result<(), Error> {
        self.call(Op::Alter, |image| image.remove_metadata(key))
    }

    /// At most `limit` metadata pairs after the key `start` (empty: from the first).
    pub fn list_metadata(&self, start: &str, limit: u64) -> Result<Vec<(String, String)>, Error> {
        self.call(Op::Inspect, |image| image.list_metadata(start, limit))
    }

    /// Every option of librbd with the value that it has for this image. Metadata of the image or its pool may override what
    /// the client was set to ([`SETTINGS`](crate::SETTINGS)).
    pub fn settings(&self) -> Result<BTreeMap<String, String>, Error> {
        Ok(self.call(Op::Inspect, ImageHandle::settings)?.into_iter().collect())
    }

    /// Waits until no operation is in flight; false when `patience` ends first.
    pub fn drain(&self, patience: Duration) -> bool {
        self.in_flight.drain(patience)
    }

    /// All snapshots.
    pub fn snapshots(&self) -> Result<Vec<Snapshot>, Error> {
        let list = self.call(Op::Snapshot, ImageHandle::snapshots)?;
        Ok(list.into_iter().map(|(id, size, name)| Snapshot { id, size, name }).collect())
    }

    /// Makes a snapshot of what is written now.
    pub fn create_snapshot(&self, name: &str) -> Result<(), Error> {
        self.call(Op::Snapshot, |image| image.create_snapshot(name))
    }

    /// Removes a snapshot.
    pub fn remove_snapshot(&self, name: &str) -> Result<(), Error> {
        self.call(Op::Snapshot, |image| image.remove_snapshot(name))
    }

    /// Makes the image what it was at a snapshot. Nobody may be using it.
    pub fn roll_back(&self, name: &str) -> Result<(), Error> {
        self.call(Op::Snapshot, |image| image.rollback(name))
    }

    /// Calls `found(offset, length)` for each stretch of the range that has objects, in order, until it returns false.
    /// In whole objects; asks only the object map where the image has one. Blocks.
    pub fn allocated(
        &self,
        offset: u64,
        len: u64,
        mut found: impl FnMut(u64, u64) -> bool,
    ) -> Result<(), Error> {
        self.call(Op::Inspect, |image| {
            image.diff(
                offset,
                len,
                |offset, len, exists| {
                    if !exists || found(offset, len) { Continue::Yes } else { Continue::No }
                },
            )
        })
    }

    /// Closes it. Waits `patience` for operations in flight and as long again for librbd; see the module's text.
    pub fn close(mut self, patience: Duration) -> Result<(), CloseError> {
        self.shut(patience)
    }

    fn shut(&mut self, patience: Duration) -> Result<(), CloseError> {
        let Some(handle) = self.handle.take() else { return Ok(()) };
        let (watch, label) = (self.watch.take(), self.label.to_string());
        if !self.in_flight.drain(patience) {
            // The handle's own drop does not close it, but its ioctx and client would follow it.
            Box::leak(Box::new(handle));
            return Err(CloseError::InFlight { image: label, count: self.in_flight.count() });
        }
        let (tell, told) = mpsc::channel();
        let closing = move || {
            // Drops all that this thread has, a share of the client too, before it tells: a client that is shut down while
            // the process ends crashes.
            let outcome = close_now(handle, watch);
            // Nobody listens any more when closing took too long.
            let _ = tell.send(outcome);
        };
        if let Err(error) = thread::Builder::new().name("rbd-close".into()).spawn(closing) {
            let errno = Errno(error.raw_os_error().unwrap_or(libc::EAGAIN));
            return Err(Error::new(Op::OpenImage, label, errno).into());
        }
        match told.recv_timeout(patience) {
            Ok(outcome) => outcome.context(Op::Alter, &label).map_err(CloseError::Failed),
            Err(_) => Err(CloseError::Stuck { image: label }),
        }
    }
}

/// Unregisters the watch, then closes. The watch's listener has the only other handle.
fn close_now(handle: Arc<ImageHandle>, watch: Option<UpdateWatch>) -> Result<(), Errno> {
    if let Some(watch) = watch {
        handle.unwatch_updates(watch)?;
    }
    match Arc::try_unwrap(handle) {
        Ok(handle) => handle.close(),
        Err(shared) => {
            Box::leak(Box::new(shared));
            Err(Errno(libc::EBUSY))
        }
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        if let Err(error) = self.shut(PATIENCE) {
            tracing::error!("{error}");
        }
    }
}

impl Shared {
    /// Asks librbd for the size, notes it, and tells the listener when it is another one.
    ///
    /// Looks may overlap. One that began before another has nothing newer to say and is forgotten, so that a size read
    /// before a resize never replaces the one that the resize's own notice brought.
    fn look(&self, handle: &ImageHandle) -> Result<(), Errno> {
        let look = self.looks.fetch_add(1, Ordering::AcqRel) + 1;
        let size = handle.size()?;
        let mut listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
        if look < listener.noted {
            return Ok(());
        }
        listener.noted = look;
        if self.size.swap(size, Ordering::AcqRel) != size
            && let Some(call) = &listener.call
        {
            call(size);
        }
        Ok(())
    }
}
