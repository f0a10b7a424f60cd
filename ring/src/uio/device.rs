//! One open device: its memory becomes a [`Consumer`], its file is the doorbell of both sides.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::claimed::Claimed;
use super::error::OpenDeviceReason;
use super::{Found, Identity, OpenDeviceError};
use crate::consumer::map;
use crate::shm::page_size;
use crate::{Consumer, Doorbell};

/// Most bytes of a mapping that are believed: far above what the kernel's limits on a data area allow.
const MAX_MAP: u64 = 1 << 40;

/// A TCMU device that this process has open. Wake on it, [`Device::clear`] it, then take entries until there are none.
///
/// An event is only a hint: several commands may come with one, so the ring is looked at after every one, and once
/// after opening.
#[derive(Debug)]
pub struct Device {
    file: File,
    identity: Identity,
    number: u32,
}

/// What [`Device::clear`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Events {
    /// The kernel has rung since the last call.
    Some,
    /// It has not.
    None,
    /// The device was removed: nothing more comes, and nobody waits for answers.
    Gone,
}

impl Found {
    /// Claims the device and attaches to its ring as it stands. Look at [`Claimed::standing`] first where a predecessor
    /// may have left something.
    pub fn open(&self) -> Result<(Device, Consumer), OpenDeviceError> {
        self.claim()?.attach()
    }

    /// Opens the device for this process alone, and maps exactly what the kernel offers.
    pub fn claim(&self) -> Result<Claimed, OpenDeviceError> {
        self.try_claim().map_err(|reason| OpenDeviceError {
            number: self.number,
            identity: self.identity.clone(),
            reason,
        })
    }

    fn try_claim(&self) -> Result<Claimed, OpenDeviceReason> {
        let file = self.open_node()?;
        // From here on the number is ours or dead: what sysfs says after the open is about the device that was opened,
        // or mapping it fails.
        if self.attribute("name").as_deref().and_then(Identity::parse).as_ref() != Some(&self.identity) {
            return Err(OpenDeviceReason::Removed);
        }
        self.check_node(&file)?;
        let (size, offset) = (self.hexadecimal("maps/map0/size")?, self.hexadecimal("maps/map0/offset")?);
        if size == 0 || size > MAX_MAP || !size.is_multiple_of(page_size() as u64) || offset != 0 {
            return Err(OpenDeviceReason::Map { size, offset });
        }
        let mapping = map(&file, size).map_err(OpenDeviceReason::Ring)?;
        Ok(Claimed { device: Device::new(file, self.number, self.identity.clone()), mapping })
    }

    fn open_node(&self) -> Result<File, OpenDeviceReason> {
        // The standard library adds O_CLOEXEC: a child that kept the file would keep every successor out.
        let options =
            OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(&self.node);
        options.map_err(|source| open_failed(&self.node, source))
    }

    fn check_node(&self, file: &File) -> Result<(), OpenDeviceReason> {
        if !self.are_devices {
            return Ok(());
        }
        let expected = self.attribute("dev").unwrap_or_default().trim_end().to_owned();
        let is_it = file.metadata().is_ok_and(|meta| {
            let (major, minor) = (nix::sys::stat::major(meta.rdev()), nix::sys::stat::minor(meta.rdev()));
            meta.file_type().is_char_device() && expected == format!("{major}:{minor}")
        });
        if is_it { Ok(()) } else { Err(OpenDeviceReason::OtherNode { path: self.node.clone(), expected }) }
    }

    fn attribute(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.folder.join(name)).ok()
    }

    fn hexadecimal(&self, name: &str) -> Result<u64, OpenDeviceReason> {
        let text = self.attribute(name).unwrap_or_default();
        let text = text.trim_end();
        let number = text.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
        number.ok_or_else(|| OpenDeviceReason::Attribute {
            path: self.folder.join(name),
            text: text.to_owned(),
        })
    }
}

/// Tells the errors of `open` apart that mean something of their own.
pub(super) fn open_failed(node: &Path, source: io::Error) -> OpenDeviceReason {
    match source.raw_os_error() {
        Some(libc::EBUSY) => OpenDeviceReason::Busy,
        Some(libc::ENODEV | libc::ENXIO) => OpenDeviceReason::Removed,
        _ => OpenDeviceReason::Node { path: node.to_owned(), source },
    }
}

impl Device {
    pub(super) fn new(file: File, number: u32, identity: Identity) -> Self {
        Self { file, identity, number }
    }

    /// Who it is.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// N of `uioN`.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Forgets the events so far; call it before the ring is emptied, never after. Does not block.
    pub fn clear(&self) -> Events {
        let mut count = [0; 4];
        loop {
            match (&self.file).read(&mut count) {
                Ok(4) => return Events::Some,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Events::None,
                Ok(_) | Err(_) => return Events::Gone,
            }
        }
    }

    /// Waits until the kernel rings, a signal comes or the time is over (at most about 24 days), then does as
    /// [`Device::clear`].
    pub fn wait(&self, limit: Duration) -> Events {
        let limit = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(self.file.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, limit) {
            Ok(_) | Err(Errno::EINTR) => self.clear(),
            Err(_) => Events::Gone,
        }
    }

    /// Makes the kernel take up the answers that were committed. It finishes the commands in this thread, copying
    /// data-in, under the lock under which it queues new ones: call it once per batch. `false` when the device is gone.
    pub fn kick(&self) -> bool {
        loop {
            match (&self.file).write(&[0; 4]) {
                Ok(4) => return true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(_) | Err(_) => return false,
            }
        }
    }
}

/// For an event loop: readable when the kernel has rung, in error when the device is gone.
impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Always the same one, and open as long as the device is.
impl AsRawFd for Device {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

/// A device that is gone needs no waking; [`Device::clear`] tells the lane.
impl Doorbell for Device {
    fn ring(&self) {
        let _ = self.kick();
    }
}
