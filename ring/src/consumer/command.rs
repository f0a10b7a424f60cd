//! The must-complete token, and where one goes that was dropped instead.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::entry::Cdb;
use super::response::Withheld;
use crate::{Direction, Nexus, Segments};

/// A SCSI command: a must-complete token. Owns its CDB and iovecs and keeps the mapping alive.
///
/// Dropped without [`Consumer::complete`](crate::Consumer::complete) it panics in tests (debug assertions) and is answered
/// CHECK CONDITION (4/44/00, internal target failure) by the next commit otherwise.
#[must_use = "every command must be completed"]
#[derive(Debug)]
pub struct Command {
    pub(super) id: u16,
    pub(super) nexus: Nexus,
    pub(super) direction: Direction,
    pub(super) cdb: Cdb,
    pub(super) data: Segments,
    pub(super) bidi_data: Segments,
    /// The ring that waits for the answer; `None` once answered.
    pub(super) ring: Option<Arc<Abandoned>>,
}

impl Command {
    /// `cmd_id`.
    pub fn id(&self) -> u16 {
        self.id
    }

    /// Who sent it; [`Nexus::UNKNOWN`] from the kernel.
    pub fn nexus(&self) -> Nexus {
        self.nexus
    }

    /// Which way its buffer is carried; [`Direction::Unknown`] from the kernel.
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// The CDB with its full length by opcode (SPC-4 4.2.5), zero-padded by the ring's rounding.
    ///
    /// Shorter than its opcode asks for only when the entry did not hold more: the engine refuses it.
    pub fn cdb(&self) -> &[u8] {
        &self.cdb
    }

    /// Its buffer: data-out or room for data-in.
    pub fn data(&self) -> &Segments {
        &self.data
    }

    /// Data-in of a bidirectional command.
    pub fn bidi_data(&self) -> &Segments {
        &self.bidi_data
    }
}

impl Drop for Command {
    fn drop(&mut self) {
        if let Some(ring) = self.ring.take() {
            let (data, bidi_data) = (std::mem::take(&mut self.data), std::mem::take(&mut self.bidi_data));
            ring.add(Withheld::failure(self.id, data, bidi_data));
            if cfg!(debug_assertions) && !std::thread::panicking() {
                panic!("command {} was dropped without an answer", self.id);
            }
        }
    }
}

/// Commands of one ring that were dropped instead of completed; also the ring's identity.
#[derive(Debug, Default)]
pub(super) struct Abandoned {
    any: AtomicBool,
    answers: Mutex<Vec<Withheld>>,
}

impl Abandoned {
    fn add(&self, answer: Withheld) {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.push(answer);
        self.any.store(true, Ordering::Release);
    }

    /// Takes what was dropped since the last call; costs one load when there is nothing.
    pub(super) fn take(&self) -> Vec<Withheld> {
        if !self.any.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        self.any.store(false, Ordering::Relaxed);
        std::mem::take(&mut answers)
    }
}
