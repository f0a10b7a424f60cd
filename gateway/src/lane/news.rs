//! What other threads tell a lane about its unit, one bit each: to find that there is none costs it one load.

use std::sync::atomic::{AtomicU8, Ordering};

/// One piece of news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// It is time to look at the store's pool.
    Pool = 1,
    /// The access states of the target ports have changed.
    Access = 1 << 1,
    /// Another gateway has changed the reservations.
    Reservations = 1 << 2,
    /// The disk has another size.
    Size = 1 << 3,
}

/// What the lane has not heard of yet. Whoever tells rings the bell afterwards.
#[derive(Debug)]
pub(super) struct News(AtomicU8);

impl News {
    /// With this to begin with.
    pub(super) fn of(pieces: &[Piece]) -> Self {
        Self(AtomicU8::new(pieces.iter().fold(0, |all, piece| all | *piece as u8)))
    }

    /// Tells the lane, which sees whatever was written before.
    pub(super) fn tell(&self, piece: Piece) {
        self.0.fetch_or(piece as u8, Ordering::AcqRel);
    }

    /// Takes all that there is.
    pub(super) fn take(&self) -> Heard {
        if self.0.load(Ordering::Relaxed) == 0 {
            return Heard(0);
        }
        Heard(self.0.swap(0, Ordering::AcqRel))
    }
}

/// What has been heard at once.
pub(super) struct Heard(u8);

impl Heard {
    pub(super) fn nothing(&self) -> bool {
        self.0 == 0
    }

    pub(super) fn of(&self, piece: Piece) -> bool {
        self.0 & piece as u8 != 0
    }
}
