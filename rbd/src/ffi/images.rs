//! What librbd does on a pool: list, create and remove images, namespaces.

use std::ptr::null_mut;

use super::library::Library;
use super::pool::IoCtx;
use super::types::*;
use super::{c_string, check, copy_c_string};
use crate::error::Errno;

/// The names of all images, sorted as C gives them.
pub(crate) fn list(io: &IoCtx) -> Result<Vec<String>, Errno> {
    let rbd = &io.cluster.library.rbd;
    let mut room = 64;
    loop {
        let empty = rbd_image_spec_t { id: null_mut(), name: null_mut() };
        let mut images = vec![empty; room];
        let mut count = room;
        // SAFETY: the ioctx is alive; C fills at most `count` entries, or says in it how many there are.
        let returned = unsafe { (rbd.rbd_list2)(io.raw, images.as_mut_ptr(), &raw mut count) };
        match check(returned) {
            Ok(_) => {
                let filled = &mut images[..count.min(room)];
                let names = filled.iter().map(|image| {
                    // SAFETY: C filled this entry with NUL-terminated strings.
                    unsafe { copy_c_string(image.name) }
                });
                let names = names.collect();
                // SAFETY: frees what C put into exactly these entries.
                unsafe { (rbd.rbd_image_spec_list_cleanup)(filled.as_mut_ptr(), filled.len()) };
                return Ok(names);
            }
            // Some more than asked for, as others may be created meanwhile.
            Err(Errno(libc::ERANGE)) if room < LIST_LIMIT => room = (count + 64).max(room * 2),
            Err(errno) => return Err(errno),
        }
    }
}

/// A pool with more images than this is not listed.
const LIST_LIMIT: usize = 1 << 20;

/// Owns a `rbd_image_options_t`.
struct Options {
    library: &'static Library,
    raw: rbd_image_options_t,
}

impl Drop for Options {
    fn drop(&mut self) {
        // SAFETY: ours, destroyed once.
        unsafe { (self.library.rbd.rbd_image_options_destroy)(self.raw) };
    }
}

impl Options {
    fn new(library: &'static Library) -> Self {
        let mut raw = null_mut();
        // SAFETY: C stores a new object through the valid pointer.
        unsafe { (library.rbd.rbd_image_options_create)(&raw mut raw) };
        Self { library, raw }
    }

    fn set(&mut self, option: i32, value: u64) -> Result<(), Errno> {
        // SAFETY: ours and alive.
        check(unsafe { (self.library.rbd.rbd_image_options_set_uint64)(self.raw, option, value) })?;
        Ok(())
    }
}

/// What an image looks like when it is made.
#[derive(Clone, Copy)]
pub(crate) struct Layout {
    pub(crate) features: u64,
    /// log2 of the object size; `None`: the cluster's default.
    pub(crate) order: Option<u8>,
    /// Stripe unit (bytes) and count; `None`: one object after the other.
    pub(crate) stripes: Option<(u64, u64)>,
}

pub(crate) fn create(io: &IoCtx, name: &str, size: u64, layout: Layout) -> Result<(), Errno> {
    let name = c_string(name)?;
    let mut options = Options::new(io.cluster.library);
    options.set(RBD_IMAGE_OPTION_FEATURES, layout.features)?;
    if let Some(order) = layout.order {
        options.set(RBD_IMAGE_OPTION_ORDER, u64::from(order))?;
    }
    if let Some((unit, count)) = layout.stripes {
        options.set(RBD_IMAGE_OPTION_STRIPE_UNIT, unit)?;
        options.set(RBD_IMAGE_OPTION_STRIPE_COUNT, count)?;
    }
    // SAFETY: the ioctx and the options are alive, the name valid during the call.
    check(unsafe { (io.cluster.library.rbd.rbd_create4)(io.raw, name.as_ptr(), size, options.raw) })?;
    Ok(())
}

pub(crate) fn remove(io: &IoCtx, name: &str) -> Result<(), Errno> {
    let name = c_string(name)?;
    // SAFETY: the ioctx is alive, the name valid during the call.
    check(unsafe { (io.cluster.library.rbd.rbd_remove)(io.raw, name.as_ptr()) })?;
    Ok(())
}

pub(crate) fn namespace_create(io: &IoCtx, name: &str) -> Result<(), Errno> {
    let name = c_string(name)?;
    // SAFETY: the ioctx is alive, the name valid during the call.
    check(unsafe { (io.cluster.library.rbd.rbd_namespace_create)(io.raw, name.as_ptr()) })?;
    Ok(())
}

pub(crate) fn namespace_exists(io: &IoCtx, name: &str) -> Result<bool, Errno> {
    let name = c_string(name)?;
    let mut exists = false;
    // SAFETY: the ioctx is alive, the name valid during the call; C stores 0 or 1.
    check(unsafe { (io.cluster.library.rbd.rbd_namespace_exists)(io.raw, name.as_ptr(), &raw mut exists) })?;
    Ok(exists)
}
