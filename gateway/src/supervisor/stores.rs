//! Configuration → open disks, with one sentence for each that does not open.

use std::io;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;

use crate::config::{self, Store};
use crate::disk::Disk;
use crate::disk::fault::{self, Fault};
use crate::disk::file::{self, FileDisk, Workers};
use crate::disk::memory::Memory;
use crate::disk::rbd::{self, RbdDisk};

/// An open disk, and what names it for ever: hosts recognise the disk by what is made from this.
pub(super) struct Opened {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) unique: String,
}

/// What the disks of a process share.
#[derive(Clone)]
pub(super) struct Stores {
    workers: Workers,
}

impl Stores {
    pub(super) fn start() -> io::Result<Self> {
        Ok(Self { workers: Workers::start_default()? })
    }

    /// Opens the disk that the configuration calls `name`. Blocks, for as long as a cluster takes to answer.
    pub(super) fn open(&self, name: &str, config: &config::Disk) -> anyhow::Result<Opened> {
        let opened = match &config.store {
            Store::Rbd(image) => Self::rbd(image, config)?,
            Store::File { path, size } => self.file(path, *size, config)?,
            Store::Memory { size } => {
                let disk = Arc::new(Memory::new(*size, config.block_size));
                Opened { disk, unique: format!("memory:{name}") }
            }
        };
        let Some(fault) = &config.fault else { return Ok(opened) };
        let settings =
            fault::Settings { latency: fault.latency, bandwidth: fault.bandwidth, ..Default::default() };
        let disk = Fault::new(opened.disk, settings).context("cannot start the timer of a slow disk")?;
        Ok(Opened { disk: Arc::new(disk), unique: opened.unique })
    }

    fn file(&self, path: &Path, size: Option<u64>, config: &config::Disk) -> anyhow::Result<Opened> {
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
        Ok(Opened { disk: Arc::new(disk), unique: format!("file:{}", path.display()) })
    }

    fn rbd(image: &config::Rbd, config: &config::Disk) -> anyhow::Result<Opened> {
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
        Ok(Opened { disk: Arc::new(disk), unique })
    }
}
