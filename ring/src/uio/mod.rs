//! The kernel's rings: finding a TCMU device in sysfs, opening it, and its doorbell in both directions.
//!
//! ```text
//! /sys/class/uio/uioN/name        tcm-user/HBA/NAME/CONFIG      who it is
//! /sys/class/uio/uioN/dev         MAJOR:MINOR                   which node in /dev belongs to it
//! /sys/class/uio/uioN/maps/map0/  offset, size                  what to map, to the byte
//! /dev/uioN   mmap                the ring                      → Consumer
//!             read, 4 bytes       events since the device was made; none new: EAGAIN
//!             write, 4 bytes      the kernel takes up the answers, in the caller's thread
//! ```
//!
//! A [`Device`] is opened by one process at a time, and stays open until the [`Device`], its [`Consumer`](crate::Consumer)
//! and all [`Segments`](crate::Segments) are dropped. What the next one who opens it finds in the ring is told by
//! [`Claimed::standing`].

mod claimed;
mod device;
mod error;
mod identity;
pub mod simulated;
#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub use self::claimed::{Claimed, Standing};
pub use self::device::{Device, Events};
pub use self::error::{FindError, OpenDeviceError, OpenDeviceReason};
pub use self::identity::Identity;

/// Where the kernel shows its uio devices.
#[derive(Clone, Debug)]
pub struct Tree {
    class: PathBuf,
    nodes: PathBuf,
    /// Whether nodes must be the character devices that sysfs names.
    are_devices: bool,
}

/// A TCMU device that was seen in sysfs; it may be gone by the time that it is opened.
#[derive(Clone, Debug)]
pub struct Found {
    /// N of `uioN`.
    pub number: u32,
    /// Who it is.
    pub identity: Identity,
    /// Its folder in sysfs.
    folder: PathBuf,
    node: PathBuf,
    are_devices: bool,
}

impl Tree {
    /// The machine's own: `/sys/class/uio` and `/dev`.
    pub fn system() -> Self {
        Self { class: "/sys/class/uio".into(), nodes: "/dev".into(), are_devices: true }
    }

    /// A tree built of ordinary folders and files, for tests: `ROOT/sys/class/uio` and `ROOT/dev`. A node may be an
    /// ordinary file, which is then the ring's memory.
    pub fn at(root: &Path) -> Self {
        Self { class: root.join("sys/class/uio"), nodes: root.join("dev"), are_devices: false }
    }

    /// Every TCMU device, whoever owns it, by its number. Other drivers' devices, and devices that vanish meanwhile, are
    /// passed over; a machine without uio has none.
    pub fn devices(&self) -> Result<Vec<Found>, FindError> {
        let failed = |source| FindError::Sysfs { path: self.class.clone(), source };
        let entries = match fs::read_dir(&self.class) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix("uio")?.parse().ok());
            found.extend(number.and_then(|number| self.look_at(number, entry.path())));
        }
        found.sort_unstable_by_key(|device: &Found| device.number);
        Ok(found)
    }

    fn look_at(&self, number: u32, folder: PathBuf) -> Option<Found> {
        let identity = Identity::parse(&fs::read_to_string(folder.join("name")).ok()?)?;
        let node = self.nodes.join(format!("uio{number}"));
        Some(Found { number, identity, folder, node, are_devices: self.are_devices })
    }

    /// The device of this identity. A backstore of the same name with another `dev_config` is somebody else's.
    pub fn find(&self, wanted: &Identity) -> Result<Found, FindError> {
        let mut foreign = None;
        for device in self.devices()? {
            if device.identity == *wanted {
                return Ok(device);
            }
            if device.identity.is_same_backstore(wanted) {
                foreign = Some(device);
            }
        }
        Err(match foreign {
            Some(Found { number, identity: found, .. }) => {
                FindError::Foreign { number, found, wanted: wanted.clone() }
            }
            None => FindError::Missing { wanted: wanted.clone() },
        })
    }
}
