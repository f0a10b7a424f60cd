//! A sparse local file as a disk.
//!
//! Requests are carried out by [`Workers`], a few threads that all files of the process share. Data moves between file and
//! data area by `preadv`/`pwritev` on the command's own segments. A discard punches a hole, so that space goes back to the
//! file system and the range reads as zeros.
//!
//! An advisory lock (`flock`) keeps a second gateway, or a second disk of this one, from serving the same file; a read-only
//! disk shares it with other readers. The lock goes with the open file, so a crash leaves nothing behind.
//!
//! Bytes beyond the end of a file that was cut short behind our back read as zeros, as holes do.

mod atomic;
mod lost;
mod note;
mod perform;
mod workers;

use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use self::atomic::Journal;
use self::lost::Lost;
pub use self::workers::Workers;
use self::workers::{Job, Line};
use super::gate::Gate;
use super::{AtomicWrite, Completer, Disk, Error, Geometry, Operation, Provisioning, ResizeError, resize};
use crate::durable;

/// How to open a file.
#[derive(Clone, Debug)]
pub struct Options {
    /// The file, or a block device.
    pub path: PathBuf,
    /// Logical block, bytes: 512 or 4096.
    pub block_size: u32,
    /// Make the file, sparse and of this many bytes, when there is none. A file that exists keeps its size.
    pub create: Option<u64>,
    /// Refuse writes.
    pub read_only: bool,
}

/// Why a file cannot be served. Every message is one sentence for the person who wrote the configuration.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The size or block size asked for is not possible.
    #[error("{path}: {reason}", path = path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What is wrong and what would be right.
        reason: String,
    },
    /// There is no such file.
    #[error("{path} does not exist (give a size to have it created)", path = path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// Another disk has the file.
    #[error("{path} is already served by another disk or another gateway (it is locked)", path = path.display())]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// The file system refused.
    #[error("cannot {action} {path}", path = path.display())]
    Io {
        /// What was being done.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
}

/// The store. Dropping it without [`Disk::close`] lets operations in flight end by themselves.
pub struct FileDisk {
    open: Arc<Open>,
    workers: Workers,
    line: Line,
    gate: Arc<Gate>,
}

/// What the workers need of one file.
#[derive(Debug)]
struct Open {
    file: File,
    geometry: Geometry,
    size: AtomicU64,
    /// Held, shared, while a request is carried out, so that none that was admitted before the file was cut makes it longer
    /// again.
    cutting: RwLock<()>,
    listener: Listener,
    lost: Arc<Lost>,
    beside: Beside,
    /// What was noted when it was opened.
    note: Option<Vec<u8>>,
}

/// What a disk keeps beside its file.
#[derive(Debug)]
struct Beside {
    /// Where its note is.
    note: PathBuf,
    journal: Journal,
}

type OnResize = Box<dyn Fn(u64) + Send + Sync>;

#[derive(Default)]
struct Listener(Mutex<Option<OnResize>>);

impl FileDisk {
    /// Opens (or makes) a file.
    pub fn open(options: &Options, workers: &Workers) -> Result<Self, OpenError> {
        let path = &options.path;
        let invalid = |reason: String| OpenError::Invalid { path: path.clone(), reason };
        let failed = |action| move |source| OpenError::Io { action, path: path.clone(), source };
        if !matches!(options.block_size, 512 | 4096) {
            return Err(invalid(format!(
                "a block size of {} is not possible; 512 and 4096 are",
                options.block_size
            )));
        }
        let file = open_file(options)?;
        let locked = if options.read_only { file.try_lock_shared() } else { file.try_lock() };
        locked.map_err(|error| match error {
            TryLockError::WouldBlock => OpenError::Locked { path: path.clone() },
            TryLockError::Error(source) => failed("lock")(source),
        })?;
        if let Some(size) = options.create
            && !options.read_only
            && file.metadata().is_ok_and(|found| found.is_file() && found.len() == 0)
        {
            if size == 0 || !size.is_multiple_of(u64::from(options.block_size)) {
                return Err(invalid(format!("{size} bytes are not a multiple of the block size")));
            }
            file.set_len(size).and_then(|()| file.sync_all()).map_err(failed("create"))?;
            sync_directory(path).map_err(failed("create"))?;
        }
        let size = whole_blocks(&file, options.block_size).map_err(failed("read the size of"))?;
        if size == 0 {
            return Err(invalid(format!("the file holds no whole block of {} bytes", options.block_size)));
        }
        // The file's own folder, whatever name it was opened by: it is found there by any other name too.
        let real = fs::canonicalize(path).map_err(failed("find"))?;
        let lost = Arc::<Lost>::default();
        let journal = Journal::of(&real, Arc::clone(&lost));
        let beside = Beside { note: note::path(&real), journal };
        let note = note::read(&beside.note).map_err(failed("read the note beside"))?;
        let regular = file.metadata().is_ok_and(|found| found.is_file());
        if regular && !options.read_only {
            beside.journal.recover(&file).map_err(failed("carry out the journal of"))?;
        }
        if regular
            && options.read_only
            && beside.journal.is_pending().map_err(failed("read the journal of"))?
        {
            return Err(invalid(
                "an atomic write was cut off in it; serve it without read_only once, so that it can be completed"
                    .into(),
            ));
        }
        let open = Open {
            geometry: geometry(options, regular),
            beside,
            note,
            file,
            size: AtomicU64::new(size),
            cutting: RwLock::default(),
            listener: Listener::default(),
            lost,
        };
        Ok(Self {
            open: Arc::new(open),
            workers: workers.clone(),
            line: workers.line(),
            gate: Arc::default(),
        })
    }

    /// Looks at the file's size again (someone grew it) and tells the listener when it has changed.
    pub fn refresh(&self) -> io::Result<u64> {
        let steady = self.open.cutting.read().unwrap_or_else(PoisonError::into_inner);
        let size = whole_blocks(&self.open.file, self.open.geometry.block_size)?;
        let before = self.open.size.swap(size, Ordering::AcqRel);
        drop(steady);
        if before != size {
            self.open.listener.tell(size);
        }
        Ok(size)
    }

    /// Grows or cuts the file, sparse, and tells the listener. Waits for what is being carried out.
    pub fn resize(&self, size: u64) -> io::Result<u64> {
        let cutting = self.open.cutting.write().unwrap_or_else(PoisonError::into_inner);
        // A write that is still to be carried out may lie behind the cut.
        self.open.beside.journal.settle(&self.open.file)?;
        self.open.file.set_len(size)?;
        let now = whole_blocks(&self.open.file, self.open.geometry.block_size)?;
        let before = self.open.size.swap(now, Ordering::AcqRel);
        drop(cutting);
        if before != now {
            self.open.listener.tell(now);
        }
        Ok(now)
    }
}

impl Disk for FileDisk {
    fn geometry(&self) -> &Geometry {
        &self.open.geometry
    }

    fn size(&self) -> u64 {
        self.open.size.load(Ordering::Acquire)
    }

    fn note(&self) -> Option<Vec<u8>> {
        self.open.note.clone()
    }

    fn submit(&self, operation: Operation) {
        let Operation { request, completer } = operation;
        let refused = match self.gate.enter() {
            Some(pass) => match request.admit(&self.open.geometry, self.size()) {
                Ok(()) => {
                    let open = Arc::clone(&self.open);
                    self.workers.put(&self.line, Job::new(move || finish(&open, request, completer), pass));
                    return;
                }
                Err(error) => error,
            },
            None => Error::NotReady,
        };
        completer.complete(Err(refused), request.into_owned());
    }

    fn on_resize(&self, listener: OnResize) {
        *self.open.listener.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(listener);
    }

    fn resize(&self, size: u64, shrink: bool) -> Result<(), ResizeError> {
        resize::check(&self.open.geometry, self.size(), size, shrink)?;
        // A block device has its size from elsewhere, and says so here.
        Self::resize(self, size).map(|_seen| ()).map_err(|error| ResizeError::Store(error.to_string()))
    }

    fn is_told_of_resizes(&self) -> bool {
        false
    }

    fn look(&self) {
        if let Err(error) = self.refresh() {
            tracing::debug!(%error, "the size of a file disk could not be read");
        }
    }

    fn close(&self) {
        self.gate.close();
        self.gate.wait_empty();
        if !self.open.geometry.read_only
            && let Err(error) = self.open.file.sync_all()
        {
            tracing::error!(%error, "the last flush of a file disk failed: what was written last may be lost");
        }
        if let Err(error) = self.open.file.unlock() {
            tracing::warn!(%error, "a closed file disk could not be unlocked");
        }
    }
}

impl fmt::Debug for FileDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileDisk").field("open", &self.open).finish_non_exhaustive()
    }
}

impl Listener {
    fn tell(&self, size: u64) {
        if let Some(listener) = &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            listener(size);
        }
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener")
    }
}

/// Runs on a worker.
fn finish(open: &Open, mut request: super::Request, completer: Completer) {
    let steady = open.cutting.read().unwrap_or_else(PoisonError::into_inner);
    let size = open.size.load(Ordering::Acquire);
    let result = request.admit(&open.geometry, size).and_then(|()| {
        open.lost
            .guard(&mut request, |request| perform::perform(&open.file, &open.beside, &open.lost, request))
    });
    drop(steady);
    completer.complete(result, request.into_owned());
}

fn geometry(options: &Options, regular: bool) -> Geometry {
    Geometry {
        block_size: options.block_size,
        physical_block_size: 4096,
        optimal_io_size: 0,
        compare_and_write: 0,
        provisioning: Some(Provisioning { granularity: 4096, alignment: 0, reads_zero: true }),
        read_only: options.read_only,
        volatile_cache: true,
        // A device has no folder of its own for a journal that outlives the host.
        atomic_write: regular.then_some(AtomicWrite {
            max: atomic::LONGEST,
            granularity: options.block_size.into(),
            alignment: options.block_size.into(),
        }),
    }
}

fn open_file(options: &Options) -> Result<File, OpenError> {
    let path = &options.path;
    let create = options.create.is_some() && !options.read_only;
    let file =
        OpenOptions::new().read(true).write(!options.read_only).create(create).truncate(false).open(path);
    let file = file.map_err(|source| match source.kind() {
        io::ErrorKind::NotFound if !create => OpenError::Missing { path: path.clone() },
        _ => OpenError::Io {
            action: if create { "open or create" } else { "open" },
            path: path.clone(),
            source,
        },
    })?;
    if file.metadata().is_ok_and(|found| found.is_dir()) {
        let reason = "this is a folder; a disk needs a file".to_owned();
        return Err(OpenError::Invalid { path: path.clone(), reason });
    }
    Ok(file)
}

/// Whole blocks in a file or block device, in bytes.
fn whole_blocks(mut file: &File, block_size: u32) -> io::Result<u64> {
    let end = file.seek(SeekFrom::End(0))?;
    Ok(end - end % u64::from(block_size))
}

/// A file beside the disk's.
fn beside(disk: &Path, suffix: &str) -> PathBuf {
    let mut name = disk.file_name().unwrap_or_default().to_owned();
    name.push(suffix);
    disk.with_file_name(name)
}

/// Makes a new file's name durable.
fn sync_directory(path: &Path) -> io::Result<()> {
    durable::sync_folder(&fs::canonicalize(path)?)
}

#[cfg(test)]
mod tests;
