//! A command's data area as librbd's buffer: the one place where the two meet.
// UNSAFETY: one trait implementation, whose promise is about memory that `ring` owns.
#![expect(
    unsafe_code,
    reason = "rbd::IoBuf promises that memory stays in place, which only its owner can say"
)]

use rbd::IoBuf;
use ring::Segments;

/// Segments that librbd may read or write.
pub(super) struct Area(pub(super) Segments);

// SAFETY: segments keep their mapping alive and never change their iovecs; nobody in Rust holds a reference to that memory
// (a peer may write it at any time, so `ring` never forms one), and the command it belongs to is not completed, nor its
// blocks reused, before this value has been dropped.
unsafe impl IoBuf for Area {
    fn iovecs(&self) -> &[libc::iovec] {
        self.0.iovecs()
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}
