//! A device that is this process's, before its ring is touched: what a predecessor has left there.
//!
//! Answers go into the slots at the tail in the order of completion, so a slot between tail and head may hold a command
//! that was answered long ago, while the entry of one that was not is overwritten. Only a predecessor that had answered all
//! that it had taken leaves entries that may be taken; it says so in the ring itself (see
//! [`Consumer::leave`]). In every other case the kernel, which alone knows what is outstanding, must end
//! it (`reset_ring`) before the ring is attached to.

use std::sync::Arc;
use std::time::Duration;

use super::{Device, OpenDeviceError, OpenDeviceReason};
use crate::protocol::{Owner, mailbox};
use crate::shm::Mapping;
use crate::{Consumer, clock};

/// A device that nobody else has open any more: a predecessor is gone with all its threads, and so are its writes to local
/// files. What it has sent over a network may still be on its way.
#[derive(Debug)]
pub struct Claimed {
    pub(super) device: Device,
    pub(super) mapping: Arc<Mapping>,
}

/// What stands in a ring that has been claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nobody has ever taken anything. Attach.
    New,
    /// A predecessor has left it in order, so long ago. Attach, unless the kernel may meanwhile have given up commands
    /// that stand there (its `cmd_time_out`): those must not run any more.
    Left(Duration),
    /// A predecessor died, or was none of ours. Have the kernel end what is outstanding before attaching.
    Unknown,
}

impl Claimed {
    /// Who it is.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// What a predecessor has left. Nothing is written.
    pub fn standing(&self) -> Standing {
        let (head, now) = (mailbox::head(&*self.mapping), mailbox::tail(&*self.mapping));
        match mailbox::owner(&*self.mapping) {
            Owner::Left { at, tail } if tail == now => {
                Standing::Left(Duration::from_secs(clock::since_boot().saturating_sub(at).into()))
            }
            Owner::Nobody if head == 0 && now == 0 => Standing::New,
            Owner::Serving | Owner::Left { .. } | Owner::Nobody => Standing::Unknown,
        }
    }

    /// Attaches to the ring as it stands now, and takes what is in it.
    pub fn attach(self) -> Result<(Device, Consumer), OpenDeviceError> {
        let Self { device, mapping } = self;
        match Consumer::over(mapping) {
            Ok(consumer) => Ok((device, consumer)),
            Err(error) => Err(OpenDeviceError {
                number: device.number(),
                identity: device.identity().clone(),
                reason: OpenDeviceReason::Ring(error),
            }),
        }
    }
}
