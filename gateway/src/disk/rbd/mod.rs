//! An RBD image as a disk.
//!
//! Data moves between OSDs and the command's own segments: their iovecs go to librbd as they are. Every completed write is on
//! stable storage, because the client runs without librbd's cache, which [`RbdDisk::open`] makes sure of.
//!
//! | request | librbd call | why |
//! |---|---|---|
//! | Read, Write, WriteSame, Flush | the same | FUA needs nothing more |
//! | WriteAtomic | `write` | within one stripe unit it is one write to one object |
//! | CompareAndWrite | the same | one 512-byte sector at most; with larger blocks the lane emulates it |
//! | WriteZeroes | `write_zeroes`, thick unless `deallocate` | |
//! | Discard | `write_zeroes`, thin | frees what `discard` would free, and zeroes the rest of the range, which `discard` leaves as it was while reporting success; so LBPRZ=1 is true |
//! | Allocation, Usage, Note | `diff_iterate2`, `ceph df`, image metadata, on a thread of the disk | they block |
//!
//! An image is written by one owner at a time; the module `owner` takes the exclusive lock and says who is in the way. When
//! the lock or the client is lost, every later request answers [`Error::Fenced`]: this disk does not recover, a new one on
//! a new client does.

mod allocation;
mod clients;
mod look;
mod operation;
mod owner;
mod segments;

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use rbd::{Config, ConnectError, Features, Image, Kind, NewImage, Open, Pool};

use self::allocation::Surveyor;
use self::clients::Fence;
pub use self::clients::{Client, Clients};
use super::{AtomicWrite, Disk, Error, Geometry, Operation, Provisioning, ResizeError, resize};

/// Which image, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// The cluster's `ceph.conf`.
    pub conf: PathBuf,
    /// The user, without `client.`.
    pub id: String,
    /// Its key, when the configuration does not say where it is.
    pub keyring: Option<PathBuf>,
    /// The pool.
    pub pool: String,
    /// A namespace of the pool.
    pub namespace: Option<String>,
    /// The image.
    pub image: String,
    /// Make the image, thin and of this many bytes, when there is none. An image that exists keeps its size.
    pub create: Option<u64>,
    /// Refuse writes, and take no lock.
    pub read_only: bool,
    /// Logical block, bytes: 512 or 4096.
    pub block_size: u32,
}

impl Spec {
    fn pool_path(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{}/{namespace}", self.pool),
            None => self.pool.clone(),
        }
    }

    fn path(&self) -> String {
        format!("{}/{}", self.pool_path(), self.image)
    }
}

/// Why an image cannot be served. Every message is one sentence for the person who wrote the configuration.
#[derive(Clone, Debug, thiserror::Error)]
pub enum OpenError {
    /// What was asked for is not possible.
    #[error("{image}: {reason}")]
    Invalid {
        /// `pool/image`.
        image: String,
        /// What is wrong and what would be right.
        reason: String,
    },
    /// There is no client: no librbd, wrong configuration, unreachable monitors, wrong key.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// Ceph refused: missing pool, image, capabilities.
    #[error(transparent)]
    Ceph(#[from] rbd::Error),
    /// There is no such namespace.
    #[error(
        "there is no namespace {namespace} in pool {pool}: create it (rbd namespace create {pool}/{namespace}) or correct its name"
    )]
    NoNamespace {
        /// The pool.
        pool: String,
        /// The namespace.
        namespace: String,
    },
    /// There is no such image, and none was to be made.
    #[error(
        "there is no image {image}: give a size to have it created, create it (rbd create --size SIZE {image}), or correct its name"
    )]
    NoImage {
        /// `pool/image`.
        image: String,
    },
    /// Another client writes it.
    #[error("{image} is in use by {owner}, which holds its exclusive lock and is alive: stop that first")]
    InUse {
        /// `pool/image`.
        image: String,
        /// Who.
        owner: String,
    },
    /// The image's own settings would lose data.
    #[error(
        "{image} has {setting}={value}, with which a fenced or crashed gateway could lose data: remove that setting (rbd config image rm {image} {setting}, or the same of its pool)"
    )]
    Unsafe {
        /// `pool/image`.
        image: String,
        /// The option.
        setting: &'static str,
        /// Its value.
        value: String,
    },
}

type Listener = Box<dyn Fn(u64) + Send + Sync>;

/// The store. Closing it (or dropping it) releases the exclusive lock.
pub struct RbdDisk {
    /// `None` once closed. Swapped, not locked: submitting costs two atomics, and a completion that submits again from
    /// inside `submit` cannot lock itself out.
    image: ArcSwapOption<Image>,
    fence: Arc<Fence>,
    geometry: Geometry,
    surveyor: Surveyor,
    note: Option<Vec<u8>>,
    path: String,
    name: String,
    unique: String,
    /// Of a read-only disk, which finds out by itself.
    listener: Mutex<Option<Listener>>,
}

impl fmt::Debug for RbdDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RbdDisk").field("image", &self.path).finish_non_exhaustive()
    }
}

/// How long closing waits for operations in flight, and as long again for librbd.
const PATIENCE: Duration = Duration::from_secs(30);

impl RbdDisk {
    /// Opens (or makes) an image through one of the process's clients. Blocks: up to about 10 s when no monitor
    /// answers, up to 45 s while a predecessor that died without a trace is still counted as alive.
    pub fn open(spec: &Spec) -> Result<Self, OpenError> {
        Self::open_with(spec, Clients::of_process())
    }

    /// The same through one of `clients`.
    pub fn open_with(spec: &Spec, clients: &Clients) -> Result<Self, OpenError> {
        let invalid = |reason: String| OpenError::Invalid { image: spec.path(), reason };
        if !matches!(spec.block_size, 512 | 4096) {
            return Err(invalid(format!(
                "a block size of {} is not possible; 512 and 4096 are",
                spec.block_size
            )));
        }
        let config = Config { keyring: spec.keyring.clone(), ..Config::new(&spec.conf, &spec.id) };
        let client = clients.get(&config, &spec.pool)?;
        let pool =
            client.cluster().pool_namespace(&spec.pool, spec.namespace.as_deref().unwrap_or_default())?;
        let image = open_image(&pool, spec)?;
        let geometry = geometry(&image, spec)?;
        if image.known_size() < u64::from(spec.block_size) {
            return Err(invalid(format!("the image holds no whole block of {} bytes", spec.block_size)));
        }
        if !spec.read_only {
            owner::take(&image, client.cluster())?;
        }
        let note = image.metadata(allocation::NOTE)?.map(|note| allocation::unhex(&note));
        // The id stays when the image is renamed, and no other image of the cluster's pool ever gets it.
        let unique = format!("rbd:{}/{}/{}", client.cluster().fsid()?, spec.pool_path(), image.id()?);
        Ok(Self {
            image: ArcSwapOption::from_pointee(image),
            fence: Arc::new(Fence::new(client, spec.path())),
            geometry,
            surveyor: Surveyor::default(),
            note,
            path: spec.path(),
            name: spec.image.clone(),
            unique,
            listener: Mutex::default(),
        })
    }

    /// What tells this image from every other one of every cluster, for ever.
    pub fn unique_name(&self) -> &str {
        &self.unique
    }

    /// The client it uses, which others may share.
    pub fn client(&self) -> &Arc<Client> {
        self.fence.client()
    }
}

/// Opens the image, making it first if it is to be made and is not there.
fn open_image(pool: &Pool, spec: &Spec) -> Result<Image, OpenError> {
    let how = Open { read_only: spec.read_only, snapshot: None };
    let missing = match pool.open_image(&spec.image, &how) {
        Err(error) if error.kind == Kind::NotFound => error,
        outcome => return Ok(outcome?),
    };
    if let Some(namespace) = &spec.namespace
        && let Ok(false) = pool.cluster().pool(&spec.pool)?.namespace_exists(namespace)
    {
        return Err(OpenError::NoNamespace { pool: spec.pool.clone(), namespace: namespace.clone() });
    }
    let Some(size) = spec.create.filter(|_size| !spec.read_only) else {
        tracing::debug!(%missing, "no image");
        return Err(OpenError::NoImage { image: spec.path() });
    };
    if size == 0 || !size.is_multiple_of(u64::from(spec.block_size)) {
        let reason = format!("{size} bytes are not a multiple of the block size");
        return Err(OpenError::Invalid { image: spec.path(), reason });
    }
    match pool.create_image(&spec.image, NewImage::new(size)) {
        // Another gateway was quicker.
        Err(error) if error.kind != Kind::Exists => return Err(error.into()),
        _ => {}
    }
    Ok(pool.open_image(&spec.image, &how)?)
}

/// Options whose other value loses acknowledged data or hangs after a fence, whoever set it.
const REQUIRED: [(&str, &str); 2] = [("rbd_cache", "false"), ("rbd_disable_zero_copy_writes", "true")];

fn geometry(image: &Image, spec: &Spec) -> Result<Geometry, OpenError> {
    let settings = image.settings()?;
    if !spec.read_only {
        for (setting, wanted) in REQUIRED {
            if let Some(value) = settings.get(setting).filter(|value| *value != wanted) {
                return Err(OpenError::Unsafe { image: spec.path(), setting, value: value.clone() });
            }
        }
    }
    let (stripe_unit, stripe_count) = image.stripes()?;
    let preferred = stripe_unit.saturating_mul(stripe_count).max(image.object_size()?);
    let granularity = settings.get("rbd_discard_granularity_bytes").and_then(|bytes| bytes.parse().ok());
    Ok(Geometry {
        block_size: spec.block_size,
        // What bluestore allocates at the least.
        physical_block_size: 4096,
        optimal_io_size: u32::try_from(preferred).unwrap_or(0),
        compare_and_write: if spec.block_size == 512 { 512 } else { 0 },
        // An image is thin for whoever only reads it too: UNMAP there is write protected, not unknown.
        provisioning: Some(Provisioning {
            granularity: granularity.filter(|bytes| *bytes >= u64::from(spec.block_size)).unwrap_or(64 << 10),
            alignment: 0,
            reads_zero: true,
        }),
        read_only: spec.read_only,
        volatile_cache: false,
        atomic_write: atomic_write(spec.block_size, stripe_unit),
    })
}

/// A write within one stripe unit is one write to one object, which RADOS does whole or not at all, and which librbd does not
/// split. Hence the alignment: a write of that length that begins at a multiple of it crosses no unit.
fn atomic_write(block_size: u32, stripe_unit: u64) -> Option<AtomicWrite> {
    let len = 256 * u64::from(block_size);
    let whole = stripe_unit > 0 && stripe_unit.is_multiple_of(len);
    whole.then_some(AtomicWrite { max: len, granularity: len, alignment: len })
}

/// Whole blocks only.
fn whole_blocks(bytes: u64, block_size: u32) -> u64 {
    bytes - bytes % u64::from(block_size)
}

impl Disk for RbdDisk {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn size(&self) -> u64 {
        let bytes = self.image.load().as_ref().map_or(0, |image| image.known_size());
        whole_blocks(bytes, self.geometry.block_size)
    }

    fn note(&self) -> Option<Vec<u8>> {
        self.note.clone()
    }

    fn submit(&self, operation: Operation) {
        let Operation { request, completer } = operation;
        let guard = self.image.load();
        let refusal = match guard.as_ref() {
            None => Some(Error::NotReady),
            Some(_) if self.fence.has_fallen() => Some(Error::Fenced),
            Some(image) => {
                let size = whole_blocks(image.known_size(), self.geometry.block_size);
                request.admit(&self.geometry, size).err()
            }
        };
        match (guard.as_ref(), refusal) {
            (Some(image), None) => operation::start(image, &self.fence, &self.surveyor, request, completer),
            (_, refusal) => completer.complete(Err(refusal.unwrap_or(Error::NotReady)), request.into_owned()),
        }
    }

    fn on_resize(&self, listener: Box<dyn Fn(u64) + Send + Sync>) {
        let block_size = self.geometry.block_size;
        if self.geometry.read_only {
            *self.listener.lock().unwrap_or_else(PoisonError::into_inner) = Some(listener);
            return;
        }
        if let Some(image) = self.image.load().as_ref() {
            image.on_resize(Box::new(move |bytes| listener(whole_blocks(bytes, block_size))));
        }
    }

    fn resize(&self, size: u64, shrink: bool) -> Result<(), ResizeError> {
        resize::check(&self.geometry, self.size(), size, shrink)?;
        let Some(image) = self.image.load_full() else {
            return Err(ResizeError::Store("it is closed".into()));
        };
        image.resize(size, shrink).map_err(|error| ResizeError::Store(error.to_string()))
    }

    fn is_told_of_resizes(&self) -> bool {
        !self.geometry.read_only
    }

    fn look(&self) {
        if self.geometry.read_only {
            self.look_anew();
        }
    }

    fn close(&self) {
        let Some(image) = self.image.swap(None) else { return };
        self.surveyor.stop();
        let Some(image) = alone(image) else {
            tracing::error!(
                image = self.path,
                "still in use by a question about its allocation; it is left open, with its lock"
            );
            return;
        };
        // In the order that loses nothing: what is in flight, what is in OSDs' memory, then the right to write.
        if image.drain(PATIENCE) && !image.is_read_only() && !self.fence.has_fallen() {
            self.let_go(&image);
        }
        if let Err(error) = image.close(PATIENCE) {
            tracing::error!(image = self.path, "{error}");
        }
    }
}

/// The only share of the image: waits for submitters and the surveyor to drop theirs, which they hold for moments. `None`
/// when the surveyor does not get its answer (the cluster does not serve it); then the share that is left stays for ever.
fn alone(mut image: Arc<Image>) -> Option<Image> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match Arc::try_unwrap(image) {
            Ok(image) => return Some(image),
            Err(shared) => image = shared,
        }
        if Instant::now() > deadline {
            // Whoever drops the last share closes the image, which must not be the surveyor's thread while it hangs.
            Box::leak(Box::new(image));
            return None;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

impl RbdDisk {
    /// Flushes, and gives the lock back so that the next owner need not break it.
    fn let_go(&self, image: &Image) {
        let (tell, told) = std::sync::mpsc::channel();
        image.flush(move |result| {
            // The other end waits, unless it has given up.
            let _ = tell.send(result);
        });
        match told.recv_timeout(PATIENCE) {
            Ok(Ok(())) => {}
            Ok(Err(errno)) => tracing::error!(image = self.path, %errno, "the last flush failed"),
            Err(_) => {
                tracing::error!(
                    image = self.path,
                    "the last flush has not ended; the lock stays, for a successor to break"
                );
                return;
            }
        }
        if let Err(error) = owner::give_back(image) {
            tracing::warn!("{error}");
        }
    }
}

impl Drop for RbdDisk {
    fn drop(&mut self) {
        self.close();
    }
}

/// True when the image could be locked.
fn lockable(features: Features) -> bool {
    features.contains(Features::EXCLUSIVE_LOCK)
}
