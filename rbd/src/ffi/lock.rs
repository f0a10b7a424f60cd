//! The exclusive lock of an image, and who watches its header.

use std::ffi::c_char;
use std::ptr::null_mut;

use super::image::ImageHandle;
use super::types::*;
use super::{c_string, check, copy_c_string};
use crate::error::Errno;

/// Somebody that has the image open for writing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watcher {
    /// `127.0.0.1:0/1234`.
    pub address: String,
    /// The number in `client.4123`.
    pub id: u64,
    /// The watch's own number.
    pub cookie: u64,
}

impl ImageHandle {
    pub(crate) fn is_lock_owner(&self) -> Result<bool, Errno> {
        let mut owner = 0;
        // SAFETY: the image is open; so in every call of this file.
        check(unsafe { (self.rbd().rbd_is_exclusive_lock_owner)(self.raw, &raw mut owner) })?;
        Ok(owner != 0)
    }

    pub(crate) fn acquire_lock(&self) -> Result<(), Errno> {
        // SAFETY: open.
        check(unsafe { (self.rbd().rbd_lock_acquire)(self.raw, RBD_LOCK_MODE_EXCLUSIVE) }).map(drop)
    }

    pub(crate) fn release_lock(&self) -> Result<(), Errno> {
        // SAFETY: open.
        check(unsafe { (self.rbd().rbd_lock_release)(self.raw) }).map(drop)
    }

    /// The address of whoever has the lock. librbd's exclusive lock has one owner at most.
    pub(crate) fn lock_owners(&self) -> Result<Vec<String>, Errno> {
        let mut mode = RBD_LOCK_MODE_EXCLUSIVE;
        let mut owners: [*mut c_char; 8] = [null_mut(); 8];
        let mut count = owners.len();
        // SAFETY: open; C fills at most `count` entries with strings that we give back below.
        let returned = unsafe {
            (self.rbd().rbd_lock_get_owners)(self.raw, &raw mut mode, owners.as_mut_ptr(), &raw mut count)
        };
        match check(returned) {
            Ok(_) => {}
            Err(Errno(libc::ENOENT)) => return Ok(Vec::new()),
            Err(errno) => return Err(errno),
        }
        let filled = &mut owners[..count.min(8)];
        let names = filled.iter().map(|owner| {
            // SAFETY: C filled this entry with a NUL-terminated string.
            unsafe { copy_c_string(*owner) }
        });
        let names = names.collect();
        // SAFETY: frees exactly the strings that C put there.
        unsafe { (self.rbd().rbd_lock_get_owners_cleanup)(filled.as_mut_ptr(), filled.len()) };
        Ok(names)
    }

    pub(crate) fn break_lock(&self, owner: &str) -> Result<(), Errno> {
        let owner = c_string(owner)?;
        // SAFETY: open; C copies the owner's name.
        check(unsafe { (self.rbd().rbd_lock_break)(self.raw, RBD_LOCK_MODE_EXCLUSIVE, owner.as_ptr()) })
            .map(drop)
    }

    pub(crate) fn watchers(&self) -> Result<Vec<Watcher>, Errno> {
        let mut room = 16;
        loop {
            let empty = rbd_image_watcher_t { addr: null_mut(), id: 0, cookie: 0 };
            let mut watchers = vec![empty; room];
            let mut count = room;
            // SAFETY: open; C fills at most `count` entries, or says in it how many there are.
            let returned =
                unsafe { (self.rbd().rbd_watchers_list)(self.raw, watchers.as_mut_ptr(), &raw mut count) };
            match check(returned) {
                Ok(_) => {
                    let filled = &mut watchers[..count.min(room)];
                    let list = filled.iter().map(|watcher| Watcher {
                        // SAFETY: C filled this entry with a NUL-terminated string.
                        address: unsafe { copy_c_string(watcher.addr) },
                        id: u64::try_from(watcher.id).unwrap_or(0),
                        cookie: watcher.cookie,
                    });
                    let list = list.collect();
                    // SAFETY: frees exactly the strings that C put there.
                    unsafe { (self.rbd().rbd_watchers_list_cleanup)(filled.as_mut_ptr(), filled.len()) };
                    return Ok(list);
                }
                Err(Errno(libc::ERANGE)) if room < 1 << 16 => room = (count + 16).max(room * 2),
                Err(errno) => return Err(errno),
            }
        }
    }
}
