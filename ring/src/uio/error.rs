//! What can be wrong with a TCMU device before the first command: each names the device.

use std::io;
use std::path::PathBuf;

use super::Identity;
use crate::OpenError;

/// Why a device was not found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FindError {
    /// The list of uio devices cannot be read.
    #[error("{} cannot be read", path.display())]
    Sysfs {
        /// What was read.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// There is no such device: the backstore is not enabled, or its module is not loaded.
    #[error("there is no uio device {wanted}")]
    Missing {
        /// Who was looked for.
        wanted: Identity,
    },
    /// The backstore is there, and was configured by another owner, or for another image.
    #[error("uio{number} is {found}, not {wanted}: another owner's, or made for something else")]
    Foreign {
        /// N of `uioN`.
        number: u32,
        /// Who it is.
        found: Identity,
        /// Who was looked for.
        wanted: Identity,
    },
}

/// Why a device that was found cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("uio{number} ({identity}) cannot be used")]
pub struct OpenDeviceError {
    /// N of `uioN`.
    pub number: u32,
    /// Who it is.
    pub identity: Identity,
    /// What is wrong.
    #[source]
    pub reason: OpenDeviceReason,
}

/// What is wrong with the device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenDeviceReason {
    /// Another process, or a predecessor's child, has it open.
    #[error("another process has it open")]
    Busy,
    /// The node cannot be opened.
    #[error("{} cannot be opened", path.display())]
    Node {
        /// The node.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The node is another device's, as an old node is whose number was given out again.
    #[error("{} is not the device that sysfs has as {expected}", path.display())]
    OtherNode {
        /// The node.
        path: PathBuf,
        /// `MAJOR:MINOR` by sysfs.
        expected: String,
    },
    /// Between being found and being opened the device was removed, and perhaps its number given out again.
    #[error("it was removed meanwhile")]
    Removed,
    /// An attribute of sysfs is missing, or is no number.
    #[error("{} says {text:?}, which is no number", path.display())]
    Attribute {
        /// The attribute.
        path: PathBuf,
        /// What it says; empty when it cannot be read.
        text: String,
    },
    /// The mapping is empty, no multiple of a page, larger than any ring, or does not start at a page.
    #[error("its map 0 is {size:#x} bytes from offset {offset:#x}, which is no ring")]
    Map {
        /// `maps/map0/size`.
        size: u64,
        /// `maps/map0/offset`.
        offset: u64,
    },
    /// The ring in it cannot be used.
    #[error(transparent)]
    Ring(OpenError),
}
