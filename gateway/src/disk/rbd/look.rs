//! How a read-only disk notices that its image was resized: librbd registers no watch for it, so it is opened anew from time
//! to time, and the new image takes the place of the old one when it has another size.

use std::sync::Arc;

use rbd::{Image, Open};

use super::{PATIENCE, RbdDisk, alone, whole_blocks};

impl RbdDisk {
    /// Looks at the image's size. Blocks.
    pub(super) fn look_anew(&self) {
        let Some(old) = self.image.load_full() else { return };
        let how = Open { read_only: true, snapshot: None };
        let new = match old.pool().open_image(&self.name, &how) {
            Ok(new) => new,
            Err(error) => return tracing::debug!(image = self.path, "not looked at: {error}"),
        };
        if new.known_size() == old.known_size() {
            return close(new);
        }
        let size = whole_blocks(new.known_size(), self.geometry.block_size);
        let new = Arc::new(new);
        // A disk that has been closed meanwhile stays closed.
        let found = self.image.compare_and_swap(&old, Some(Arc::clone(&new)));
        let swapped = found.as_ref().is_some_and(|found| Arc::ptr_eq(found, &old));
        drop(found);
        if !swapped {
            drop(old);
            return alone(new).into_iter().for_each(close);
        }
        drop(new);
        if let Some(listener) = &*self.listener.lock().unwrap_or_else(std::sync::PoisonError::into_inner) {
            listener(size);
        }
        // What is in flight on the old one ends there.
        alone(old).into_iter().for_each(close);
    }
}

fn close(image: Image) {
    if let Err(error) = image.close(PATIENCE) {
        tracing::error!("{error}");
    }
}
