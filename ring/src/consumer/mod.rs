//! The owning end: takes commands out of a ring, whoever produces into it, and answers each exactly once.
//!
//! An entry is copied out once and then validated; shared memory is never read again for it. Responses go into the slot
//! at the private tail, in order of completion (out-of-order completion names the command by id), so a command's own
//! entry may long be overwritten when it is answered: everything it needs, it owns.

mod attach;
mod command;
mod entry;
mod response;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::abi::op;
use crate::clock;
use crate::protocol::{Answer, Geometry, Owner, Taker, mailbox};
use crate::shm::{Mapping, Scatter};
use crate::{Corrupt, Doorbell, Kick, Segments, TaskManagementKind};

pub use self::attach::OpenError;
pub(crate) use self::attach::map;
use self::command::Abandoned;
pub use self::command::Command;
pub(crate) use self::entry::MAX_IOVECS;
pub use self::response::Response;
use self::response::Withheld;

/// The consuming end of one ring. Cursors: completed ≤ consumed ≤ head.
pub struct Consumer {
    mapping: Arc<Mapping>,
    ring: Taker<Arc<Mapping>>,
    geometry: Geometry,
    /// Where iovecs may point, in bytes from the start of the mapping.
    area: Range<u64>,
    /// `CAP_*` bits of the peer.
    flags: u16,
    scratch: Vec<u32>,
    /// Ids taken and not answered.
    outstanding: Ids,
    abandoned: Arc<Abandoned>,
    withheld: Vec<Withheld>,
    /// Bytes of the data area that taken commands name.
    data_in_use: usize,
    release_doorbell: Option<Arc<dyn Doorbell>>,
    corrupt: Option<Corrupt>,
    /// See [`Consumer::leave`].
    left: bool,
}

/// How full a ring is, as its consumer sees it. In bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingUsage {
    /// The command ring.
    pub ring: u64,
    /// Of it, entries that are not answered.
    pub ring_in_use: u64,
    /// The data area.
    pub data: u64,
    /// Of it, buffers of commands that were taken and are not answered. What the producer rounds up to is not in it.
    pub data_in_use: u64,
}

/// What [`Consumer::next`] found.
#[derive(Debug)]
pub enum Entry {
    /// A SCSI command.
    Command(Command),
    /// A task-management notice; wants no answer of its own.
    TaskManagement(TaskManagement),
}

/// A notice that commands were aborted (`tcmu_tmr_entry`).
#[derive(Debug)]
pub struct TaskManagement {
    /// The function. The kernel's "LUN reset by PREEMPT AND ABORT" arrives as ABORT TASK SET.
    pub kind: TaskManagementKind,
    /// `cmd_id`s of the commands it ends.
    pub ids: SmallVec<[u16; 8]>,
}

/// "Nothing to do" and "the peer is broken" are different answers.
#[derive(Debug, thiserror::Error)]
pub enum NextError {
    /// No entry is waiting.
    #[error("the ring is empty")]
    Empty,
    /// The producer wrote nonsense: take this LUN down, and only this one. Commands already taken may still be
    /// completed; nothing more is taken, and every later call says the same.
    #[error("the ring is corrupt")]
    Corrupt(#[source] Corrupt),
}

impl std::fmt::Debug for Consumer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("Consumer");
        debug.field("ring", &self.geometry).field("outstanding", &self.outstanding.len);
        debug.field("corrupt", &self.corrupt).finish_non_exhaustive()
    }
}

impl Consumer {
    fn new(mapping: Arc<Mapping>, geometry: Geometry, flags: u16) -> Result<Self, Corrupt> {
        let start = u64::from(geometry.base) + u64::from(geometry.size);
        // Before the first entry is taken: from then on the ring is no longer as a predecessor left it.
        mailbox::set_owner(&*mapping, Owner::Serving);
        Ok(Self {
            area: start..mapping.len() as u64,
            ring: Taker::attach(Arc::clone(&mapping), geometry)?,
            mapping,
            geometry,
            flags,
            scratch: Vec::new(),
            outstanding: Ids::default(),
            abandoned: Arc::default(),
            withheld: Vec::new(),
            data_in_use: 0,
            release_doorbell: None,
            corrupt: None,
            left: false,
        })
    }

    /// The next entry, as an owned snapshot; shared memory is not read again for it.
    #[expect(clippy::should_implement_trait, reason = "no iterator: what is next may change after an error")]
    pub fn next(&mut self) -> Result<Entry, NextError> {
        if let Some(cause) = &self.corrupt {
            return Err(NextError::Corrupt(cause.clone()));
        }
        if self.left {
            return Err(NextError::Empty);
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        let entry = self.take(&mut scratch);
        self.scratch = scratch;
        match entry {
            Ok(Some(entry)) => Ok(entry),
            Ok(None) => Err(NextError::Empty),
            Err(cause) => {
                self.corrupt = Some(cause.clone());
                Err(NextError::Corrupt(cause))
            }
        }
    }

    fn take(&mut self, scratch: &mut Vec<u32>) -> Result<Option<Entry>, Corrupt> {
        let Some(found) = self.ring.next(scratch)? else { return Ok(None) };
        if found.op == op::TMR {
            return entry::task_management(scratch, found.at)
                .map(|notice| Some(Entry::TaskManagement(notice)));
        }
        let parsed = entry::command(scratch, found.at, self.geometry, &self.area)?;
        if !self.outstanding.insert(parsed.id) {
            return Err(Corrupt::DuplicateId { at: found.at, id: parsed.id });
        }
        let bidi_data = if parsed.is_bidirectional() {
            Segments::new(Scatter::new(&self.mapping, parsed.bidi_data()))
        } else {
            Segments::default()
        };
        let data = Segments::new(Scatter::new(&self.mapping, parsed.data()));
        self.data_in_use += data.len() + bidi_data.len();
        Ok(Some(Entry::Command(Command {
            id: parsed.id,
            nexus: parsed.nexus,
            direction: parsed.direction,
            data,
            bidi_data,
            cdb: parsed.cdb,
            ring: Some(Arc::clone(&self.abandoned)),
        })))
    }

    /// Answers a command: writes into the slot at the private tail; seen by the producer after [`Self::commit`].
    ///
    /// A command of another ring is a bug: it panics in tests, and is answered CHECK CONDITION on its own ring
    /// otherwise. While a clone of its [`Segments`] lives, the answer is held back; see [`Self::withheld`].
    pub fn complete(&mut self, mut command: Command, response: Response) {
        if !command.ring.as_ref().is_some_and(|ring| Arc::ptr_eq(ring, &self.abandoned)) {
            debug_assert!(false, "command {} belongs to another ring", command.id);
            return;
        }
        command.ring = None;
        let withheld = response::settle(&mut command, response, self.flags, self.release_doorbell.as_ref());
        if withheld.is_ready() {
            self.answer(withheld);
        } else {
            self.withheld.push(withheld);
        }
    }

    fn answer(&mut self, ready: Withheld) {
        ready.clear_rest(&self.mapping);
        let slot_was_there = self.ring.answer(&Answer {
            id: ready.id,
            uflags: ready.uflags,
            status: ready.status,
            read_len: ready.read_len,
            sense: &ready.sense,
        });
        debug_assert!(slot_was_there, "a command without a slot");
        self.data_in_use -= ready.room;
        self.outstanding.remove(ready.id);
    }

    /// Publishes everything completed since the last call (tail, Release).
    pub fn commit(&mut self) -> Kick {
        self.withheld.append(&mut self.abandoned.take());
        if !self.withheld.is_empty() {
            let (ready, held) = std::mem::take(&mut self.withheld).into_iter().partition(Withheld::is_ready);
            self.withheld = held;
            let ready: Vec<_> = ready;
            ready.into_iter().for_each(|ready| self.answer(ready));
        }
        if self.ring.publish() { Kick::Needed } else { Kick::Unneeded }
    }

    /// Leaves the ring to a successor: notes in it that everything taken has been answered, so that the successor may take
    /// what stands there, and nothing has to be failed. Nothing is taken from now on. `false`, and no note, when there is an
    /// answer to come or the ring is corrupt.
    pub fn leave(&mut self) -> bool {
        let settled = self.ring.settled_at().filter(|_| self.corrupt.is_none() && self.outstanding.len == 0);
        if let Some(tail) = settled {
            self.left = true;
            mailbox::set_owner(&*self.mapping, Owner::Left { at: clock::since_boot(), tail });
        }
        settled.is_some()
    }

    /// How full the ring is: what is published since the last [`Self::next`] that found nothing is not in it.
    pub fn usage(&self) -> RingUsage {
        RingUsage {
            ring: self.geometry.size.into(),
            ring_in_use: self.ring.used().into(),
            data: self.area.end - self.area.start,
            data_in_use: self.data_in_use as u64,
        }
    }

    /// Commands taken and not yet completed. Those held back for a clone of their [`Segments`] count.
    pub fn outstanding(&self) -> usize {
        self.outstanding.len
    }

    /// Commands that were completed while somebody still held a clone of their [`Segments`]: their answers go out with
    /// the first [`Self::commit`] after the last clone is gone.
    ///
    /// The memory must not go back to the producer before: it could be another command's a moment later.
    pub fn withheld(&self) -> usize {
        self.withheld.len()
    }

    /// Sets whom to wake when the last clone of a held-back command's [`Segments`] is dropped: the task that calls
    /// [`Self::commit`]. Rung from whatever thread drops it.
    pub fn set_release_doorbell(&mut self, doorbell: Arc<dyn Doorbell>) {
        self.release_doorbell = Some(doorbell);
    }

    /// The peer's `CAP_*` bits (see [`crate::abi`]).
    pub fn capabilities(&self) -> u16 {
        self.flags
    }

    /// Why this end is closed, when it is.
    pub fn corrupt(&self) -> Option<&Corrupt> {
        self.corrupt.as_ref()
    }
}

/// A set of ids; 8 KiB once one is in it.
#[derive(Debug, Default)]
struct Ids {
    bits: Vec<u64>,
    len: usize,
}

impl Ids {
    fn insert(&mut self, id: u16) -> bool {
        let (word, bit) = (usize::from(id) / 64, 1 << (id % 64));
        if self.bits.len() <= word {
            self.bits.resize(word + 1, 0);
        }
        let new = self.bits[word] & bit == 0;
        self.bits[word] |= bit;
        self.len += usize::from(new);
        new
    }

    fn remove(&mut self, id: u16) {
        let (word, bit) = (usize::from(id) / 64, 1 << (id % 64));
        if let Some(bits) = self.bits.get_mut(word).filter(|bits| **bits & bit != 0) {
            *bits &= !bit;
            self.len -= 1;
        }
    }
}
