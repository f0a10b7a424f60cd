//! A lane whose ring the kernel produces into: the same parts and the same task as the portal's, with `/dev/uioN` for both
//! doorbells.
//!
//! ```text
//!  kernel: entry, event ──► uioN readable ──► watch (a task of the lane's reactor) ──► bell ──► turn
//!  kernel: takes answers up ◄── write of 4 bytes, once at the end of a turn ◄── commit ◄───────┘
//! ```
//!
//! The write makes the kernel finish the commands in the writing thread and copy their data-in, under the lock under which
//! it queues new ones: it comes last in a turn, when the lane holds nothing that anybody could wait for.
//!
//! [`adopt()`] says how a device comes into this process' hands, [`Adopted::serve`] puts a lane on it. What the kernel
//! itself sees to, and the unit therefore must not: [`crate::scsi::Unit::behind_kernel`].

mod actions;
mod adopt;
mod end;
mod watch;

use std::io;
use std::sync::Arc;

use ring::uio::{Device, Identity};
use ring::{Consumer, Doorbell};

pub use self::actions::{Actions, Configfs, Outstanding};
pub use self::adopt::{AdoptError, PATIENCE, Taken, adopt, take};
pub use self::end::{Ended, abandon};
use super::{Lane, Parts, start};
use crate::cluster::reservations::Store;
use crate::disk::Disk;
use crate::reactor::Reactor;
use crate::scsi::Unit;

/// A device of this process, attached to; nobody serves it yet.
pub struct Adopted {
    device: Device,
    consumer: Consumer,
    actions: Arc<dyn Actions>,
    taken: Taken,
}

/// What a lane on a device is made of besides the device; the same as [`Parts`] has.
pub struct Served {
    /// Names the LUN in logs.
    pub name: String,
    /// Its device server, made with [`Unit::behind_kernel`].
    pub unit: Unit,
    /// Its store.
    pub disk: Arc<dyn Disk>,
    /// Keeps its reservations.
    pub reservations: Arc<dyn Store>,
}

impl Adopted {
    /// Who it is.
    pub fn identity(&self) -> &Identity {
        self.device.identity()
    }

    /// How it came into this process' hands.
    pub fn taken(&self) -> Taken {
        self.taken
    }

    /// Starts the lane, and lets the kernel queue commands again. The disk must be this process's alone by now: what a
    /// predecessor has sent it can no longer land.
    ///
    /// Blocks for as long as the kernel takes to unblock the device.
    pub fn serve(self, reactor: &Reactor, served: Served) -> io::Result<Lane> {
        let Self { device, consumer, actions, .. } = self;
        let Served { name, unit, disk, reservations } = served;
        let device = Arc::new(device);
        let parts = Parts {
            name: name.clone(),
            consumer,
            unit,
            disk: Some(disk),
            reservations,
            producer: Arc::clone(&device) as Arc<dyn Doorbell>,
        };
        let lane = start(reactor, parts);
        watch::start(reactor, device, lane.clone(), name);
        actions.set_blocked(false)?;
        Ok(lane)
    }
}
