//! Configuration → open disks, with one sentence for each that does not open.

use std::io;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;

use super::lun::serial;
use crate::cluster::reservations::{self, Directory, Snapshot};
use crate::config::{self, Store};
use crate::disk::Disk;
use crate::disk::fault::{self, Fault};
use crate::disk::file::{self, FileDisk, Workers};
use crate::disk::memory::Memory;
use crate::disk::rbd::{self, RbdDisk};
use crate::lane::kernel::Adopted;

/// An open disk, and what names it for ever: hosts recognise the disk by what is made from this.
pub(super) struct Opened {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) unique: String,
    /// Where the unit's reservations are kept, and what is there.
    pub(super) reservations: (Arc<dyn reservations::Store>, Snapshot),
    /// The kernel's ring in front of it, where the kernel serves it.
    pub(super) adopted: Option<Adopted>,
}

/// A disk and what is unique about it.
type Named = (Arc<dyn Disk>, String);

/// What the disks of a process share.
#[derive(Clone)]
pub(super) struct Stores {
    workers: Workers,
    /// Where reservations outlive the process; `None`: nowhere.
    state: Option<Directory>,
}

impl Stores {
    pub(super) fn start(state: Option<&Path>) -> io::Result<Self> {
        let directory = state.map(Directory::start).transpose()?;
        // Disks are served all the same: most hosts never reserve one, and those that do are refused, not deceived.
        if let (Some(folder), Some(directory)) = (state, &directory)
            && let Err(error) = directory.probe()
        {
            tracing::error!(
                folder = %folder.display(), %error,
                "the `state` folder cannot be written: PERSISTENT RESERVE OUT will be refused until it can"
            );
        }
        Ok(Self { workers: Workers::start_default()?, state: directory })
    }

    /// Opens the disk that the configuration calls `name`. Blocks, for as long as a cluster takes to answer.
    pub(super) fn open(&self, name: &str, config: &config::Disk) -> anyhow::Result<Opened> {
        let (mut disk, unique) = match &config.store {
            Store::Rbd(image) => Self::rbd(image, config)?,
            Store::File { path, size } => self.file(path, *size, config)?,
            Store::Memory { size } => {
                let disk: Arc<dyn Disk> = Arc::new(Memory::new(*size, config.block_size));
                (disk, format!("memory:{name}"))
            }
        };
        // Without its reservations a disk is not served: whoever it is reserved for counts on them.
        let store = self.reservations(config, &unique);
        let reservations = match store.load() {
            Ok(there) => (store, there),
            Err(error) => {
                disk.close();
                return Err(error.into());
            }
        };
        if let Some(fault) = &config.fault {
            let settings =
                fault::Settings { latency: fault.latency, bandwidth: fault.bandwidth, ..Default::default() };
            disk = Arc::new(Fault::new(disk, settings).context("cannot start the timer of a slow disk")?);
        }
        Ok(Opened { disk, unique, reservations, adopted: None })
    }

    /// The store of a unit's reservations, which lasts no longer than its disk.
    fn reservations(&self, config: &config::Disk, unique: &str) -> Arc<dyn reservations::Store> {
        match (&self.state, &config.store) {
            (Some(state), Store::Rbd(_) | Store::File { .. }) => state.unit(&serial(config, unique)),
            _ => reservations::Memory::new(),
        }
    }

    fn file(&self, path: &Path, size: Option<u64>, config: &config::Disk) -> anyhow::Result<Named> {
        let options = file::Options {
            path: path.into(),
            block_size: config.block_size,
            create: size,
            read_only: config.read_only,
        };
        let disk = FileDisk::open(&options, &self.workers)?;
        if let Some(size) = size
            && size > disk.size()
            && !config.read_only
        {
            disk.resize(size).with_context(|| format!("cannot grow {}", path.display()))?;
        }
        // The path as opened: a relative one and its absolute twin are one disk.
        let path = std::fs::canonicalize(path).with_context(|| format!("cannot find {}", path.display()))?;
        Ok((Arc::new(disk), format!("file:{}", path.display())))
    }

    fn rbd(image: &config::Rbd, config: &config::Disk) -> anyhow::Result<Named> {
        let spec = rbd::Spec {
            conf: image.conf.clone(),
            id: image.client.clone(),
            keyring: image.keyring.clone(),
            pool: image.pool.clone(),
            namespace: image.namespace.clone(),
            image: image.image.clone(),
            create: image.create,
            read_only: config.read_only,
            block_size: config.block_size,
        };
        let disk = RbdDisk::open(&spec)?;
        let unique = disk.unique_name().to_owned();
        Ok((Arc::new(disk), unique))
    }
}

/// What opening a disk has come to, in words. A panic counts as an answer: without one the place would be on its way for
/// ever and never tried again.
pub(super) fn attempt<T>(open: impl FnOnce() -> anyhow::Result<T>) -> Result<T, String> {
    match std::panic::catch_unwind(AssertUnwindSafe(open)) {
        Ok(result) => result.map_err(|error| format!("{error:#}")),
        Err(_reported) => Err("opening it failed unexpectedly; see the log".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_panics_while_it_opens_is_a_disk_that_did_not_open() {
        let reason = attempt::<()>(|| panic!("a bug")).unwrap_err();
        assert!(reason.contains("unexpectedly"));
        assert_eq!(attempt::<()>(|| anyhow::bail!("no such image")).unwrap_err(), "no such image");
    }
}
