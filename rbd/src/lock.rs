//! The exclusive lock of an image: who may write it.
//!
//! Taken with [`Image::acquire_lock`] it is kept: librbd then refuses to hand it to another client that asks, so a
//! live owner is only replaced by breaking the lock. Breaking is safe when the owner has been blocklisted first and
//! this client has the OSD map that says so; [`Image::fence`] is that order.
//!
//! A dead owner keeps its watch on the image's header for `osd_client_watch_timeout` (30 s). Whether an owner is alive
//! can be asked sooner: [`Image::alive`] sends it a notification that every client answers.

use std::sync::atomic::Ordering;
use std::time::Duration;

pub use crate::ffi::lock::Watcher;

use crate::cluster::plain_address;
use crate::error::{Error, Kind, Op};
use crate::ffi::image::ImageHandle;
use crate::image::Image;

/// How long a fenced client stays on the blocklist: long enough that nothing of it is still on its way.
pub const FENCE: Duration = Duration::from_secs(7 * 24 * 3600);

impl Image {
    /// Takes the lock and keeps it. While another client has it, it is asked for it; one that took it
    /// the same way refuses ([`Kind::ReadOnly`] or [`Kind::Busy`]). A dead client that is still watching makes this block until its
    /// watch has ended; look at [`lock_owner`](Self::lock_owner) first.
    pub fn acquire_lock(&self) -> Result<(), Error> {
        let outcome = self.call(Op::LockImage, ImageHandle::acquire_lock);
        if outcome.is_ok() {
            self.locked.store(true, Ordering::Relaxed);
        }
        outcome
    }

    /// Gives the lock back.
    pub fn release_lock(&self) -> Result<(), Error> {
        self.call(Op::LockImage, ImageHandle::release_lock)?;
        self.locked.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// True while this image has it, as far as librbd has noticed.
    pub fn owns_lock(&self) -> Result<bool, Error> {
        self.call(Op::LockImage, ImageHandle::is_lock_owner)
    }

    /// The address of the client that has it, in [`plain_address`]'s form.
    pub fn lock_owner(&self) -> Result<Option<String>, Error> {
        let owners = self.call(Op::LockImage, ImageHandle::lock_owners)?;
        Ok(owners.first().map(|owner| plain_address(owner).to_owned()))
    }

    /// Takes it from its owner. Not safe by itself, see [`fence`](Self::fence).
    pub fn break_lock(&self, owner: &str) -> Result<(), Error> {
        match self.call(Op::LockImage, |image| image.break_lock(owner)) {
            // The owner let go in the meantime.
            Err(error) if error.kind == Kind::NotFound => Ok(()),
            outcome => outcome,
        }
    }

    /// Everybody who has the image open for writing, this client too. Addresses in [`plain_address`]'s form.
    pub fn watchers(&self) -> Result<Vec<Watcher>, Error> {
        let mut watchers = self.call(Op::Inspect, ImageHandle::watchers)?;
        for watcher in &mut watchers {
            watcher.address = plain_address(&watcher.address).to_owned();
        }
        Ok(watchers)
    }

    /// True when `watcher` answers within `timeout`. A paused or cut-off client does not, so `false` is no proof of death.
    pub fn alive(&self, watcher: &Watcher, timeout: Duration) -> Result<bool, Error> {
        // An empty notification is librbd's oldest: "the header has changed". Every version answers it after reading the
        // header again, which is all it does.
        let header = self.pool().object(&format!("rbd_header.{}", self.id()?))?;
        let answers = header.notify(&[], timeout)?;
        Ok(answers.replies.iter().any(|reply| reply.client == watcher.id && reply.cookie == watcher.cookie))
    }

    /// Cuts `owner` off for [`FENCE`], makes sure that this client's OSDs know, and breaks its lock.
    pub fn fence(&self, owner: &str) -> Result<(), Error> {
        let cluster = self.pool().cluster();
        cluster.blocklist(owner, FENCE)?;
        cluster.wait_for_latest_osdmap()?;
        self.break_lock(owner)
    }
}
