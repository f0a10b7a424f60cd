//! Taking over the consuming end of a ring that already exists: a memfd from another process, or the kernel's device.

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::Consumer;
use crate::Corrupt;
use crate::abi::{self, COMMAND_LEN};
use crate::protocol::{Geometry, mailbox};
use crate::shm::{Mapping, duplicate_sealed};

/// Most bytes of a command ring that are believed: eight times what the kernel makes.
const MAX_RING: u32 = 64 << 20;

/// Why a ring could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file cannot be mapped, or is no memfd that is sealed (or can be sealed) against shrinking.
    #[error("the ring's shared memory cannot be used")]
    Memory(#[source] io::Error),
    /// Another mailbox version.
    #[error("the ring has mailbox version {0}; only {version} is known", version = abi::MAILBOX_VERSION)]
    Version(u16),
    /// The peer cannot take answers out of order.
    #[error("the ring's producer lacks out-of-order completion (flags {0:#x})")]
    Capabilities(u16),
    /// The command ring does not lie in the file, or has an impossible size.
    #[error(
        "the ring says that its commands are at {cmdr_off:#x}+{cmdr_size:#x}, in shared memory of {len:#x} bytes"
    )]
    Layout {
        /// `cmdr_off`.
        cmdr_off: u32,
        /// `cmdr_size`.
        cmdr_size: u32,
        /// Bytes of shared memory.
        len: u64,
    },
    /// The cursors are nonsense already.
    #[error("the ring is corrupt")]
    Corrupt(#[source] Corrupt),
}

/// Maps `len` bytes of a ring, of which at least the mailbox is there.
pub(crate) fn map(file: &File, len: u64) -> Result<Arc<Mapping>, OpenError> {
    if len < u64::from(abi::MAILBOX_LEN) {
        return Err(OpenError::Layout { cmdr_off: 0, cmdr_size: 0, len });
    }
    // `usize` has 64 bits (asserted in `abi`).
    Ok(Arc::new(Mapping::new(file, len as usize).map_err(OpenError::Memory)?))
}

impl Consumer {
    /// Opens the consuming end of a ring in a memfd that another process made; `fd` is duplicated.
    ///
    /// The file is sealed against shrinking first (or refused): else its owner could make every access here fault.
    /// Takes what stands behind the published tail: right only when a predecessor, if there was one, had answered all
    /// that it had taken.
    pub fn open(fd: BorrowedFd<'_>) -> Result<Self, OpenError> {
        let file = duplicate_sealed(fd).map_err(OpenError::Memory)?;
        let len = file.metadata().map_err(OpenError::Memory)?.len();
        Self::over(map(&file, len)?)
    }

    /// The consuming end over a mapping; everything the mailbox says is read once and checked.
    pub(crate) fn over(mapping: Arc<Mapping>) -> Result<Self, OpenError> {
        let (version, flags) = mailbox::version_and_flags(&*mapping);
        if version != abi::MAILBOX_VERSION {
            return Err(OpenError::Version(version));
        }
        if flags & abi::CAP_OOOC == 0 {
            return Err(OpenError::Capabilities(flags));
        }
        let (cmdr_off, cmdr_size) = mailbox::command_ring(&*mapping);
        let len = mapping.len() as u64;
        let aligned = cmdr_off.is_multiple_of(abi::ALIGN) && cmdr_size.is_multiple_of(abi::ALIGN);
        let sized = (2 * COMMAND_LEN..=MAX_RING).contains(&cmdr_size) && cmdr_off >= abi::MAILBOX_LEN;
        if !aligned || !sized || u64::from(cmdr_off) + u64::from(cmdr_size) > len.min(u64::from(u32::MAX)) {
            return Err(OpenError::Layout { cmdr_off, cmdr_size, len });
        }
        Self::new(mapping, Geometry { base: cmdr_off, size: cmdr_size }, flags).map_err(OpenError::Corrupt)
    }
}
