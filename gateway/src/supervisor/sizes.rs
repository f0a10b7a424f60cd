//! Sizes of disks that are in use: changed on request and by a reload, and looked at where nobody tells.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::{Context, bail};

use super::app::App;
use super::lun::Spec;
use crate::config::{Bytes, Config, Store};
use crate::disk::Disk;

/// The disk's wanted size, where the configuration says one that counts for a disk that exists.
pub(super) fn wanted_size(store: &Store) -> Option<u64> {
    match store {
        Store::File { size, .. } => *size,
        Store::Memory { size } => Some(*size),
        // `create` is for an image that is not there.
        Store::Rbd(_) => None,
    }
}

/// Whether two specifications differ in nothing that a disk in use could not follow.
pub(super) fn same_but_size(one: &Spec, other: &Spec) -> bool {
    let sizeless = |spec: &Spec| {
        let mut spec = spec.clone();
        match &mut spec.disk.store {
            Store::File { size, .. } => *size = None,
            Store::Memory { size } => *size = 0,
            Store::Rbd(rbd) => rbd.create = None,
        }
        spec
    };
    sizeless(one) == sizeless(other)
}

/// Resizes in a thread of its own, for as long as `patience` lasts.
async fn resize(disk: Arc<dyn Disk>, size: u64, shrink: bool) -> anyhow::Result<()> {
    let work = tokio::task::spawn_blocking(move || disk.resize(size, shrink));
    let ended = tokio::time::timeout(super::PATIENCE, work).await;
    Ok(ended
        .context("its store has not answered yet; the size may still change")?
        .context("resizing panicked")??)
}

impl App {
    /// `rbdgate disk resize`.
    pub(super) async fn resize(&self, name: &str, size: u64, shrink: bool) -> anyhow::Result<String> {
        let disks = self.disks_called(name);
        if disks.is_empty() {
            bail!("no disk called \"{name}\" is online");
        }
        for disk in disks {
            resize(disk, size, shrink).await.with_context(|| format!("disk {name} keeps its size"))?;
        }
        let mut summary = format!("{name}: {}", Bytes(size));
        let configured = self.config.disks.get(name).and_then(|disk| wanted_size(&disk.store));
        if let Some(configured) = configured.filter(|configured| *configured != size) {
            summary += &format!("\nnote: the configuration still says {}", Bytes(configured));
        }
        Ok(summary)
    }

    /// After a reload: disks that are in use grow to what the configuration says. What could not be done, a line each.
    pub(super) async fn follow_sizes(&self, old: &Config) -> Vec<String> {
        let mut notes = Vec::new();
        for (name, disk) in &self.config.disks {
            let wanted = wanted_size(&disk.store);
            let before = old.disks.get(name).and_then(|disk| wanted_size(&disk.store));
            let Some(wanted) = wanted.filter(|wanted| before != Some(*wanted)) else { continue };
            for open in self.disks_called(name) {
                if open.size() == wanted {
                    continue;
                }
                if let Err(error) = resize(open, wanted, false).await {
                    notes.push(format!("{name} keeps its size: {error:#}"));
                }
            }
        }
        notes
    }

    /// Looks at the sizes of disks that nobody tells about, each in a thread of its own.
    pub(super) fn look_at_sizes(&self) {
        for (disk, looking) in self.untold_disks() {
            if looking.swap(true, Ordering::AcqRel) {
                continue;
            }
            tokio::task::spawn_blocking(move || {
                disk.look();
                looking.store(false, Ordering::Release);
            });
        }
    }
}
