//! The producing end of the protocol: entries in, responses out.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;

use super::{Geometry, Slot, mailbox};
use crate::abi::{self, SENSE_LEN, op};
use crate::shm::Words;
use crate::{Corrupt, Direction, Nexus};

/// SAM status CHECK CONDITION: the only one with sense data.
const CHECK_CONDITION: u8 = 2;

/// The producing end; `reaped ≤ published ≤ head`.
#[derive(Debug)]
pub(crate) struct Giver<M> {
    memory: M,
    ring: Geometry,
    head: u32,
    published: u32,
    reaped: u32,
    /// Slots between `reaped` and `head`, as this end wrote them.
    slots: VecDeque<Slot>,
    scratch: Vec<u32>,
}

/// Why an entry cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoRoom {
    /// Not before the consumer has answered more.
    Now,
    /// Never: larger than half the ring.
    Ever,
}

/// Where an entry will stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Filler up to the end of the ring that must come first; 0 for none.
    pub(crate) pad: u32,
    /// Where the entry begins.
    pub(crate) at: u32,
    /// Its length.
    pub(crate) len: u32,
}

/// One response, as copied out of its slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered {
    pub(crate) at: u32,
    pub(crate) id: u16,
    pub(crate) uflags: u8,
    pub(crate) status: u8,
    pub(crate) read_len: u32,
    pub(crate) sense: Option<[u8; SENSE_LEN]>,
}

/// Length of a command entry.
pub(crate) fn command_len(iovecs: usize, cdb: usize) -> usize {
    let base = abi::IOV_OFFSET as usize + iovecs * abi::IOVEC_LEN as usize;
    base.max(abi::COMMAND_LEN as usize) + cdb.next_multiple_of(abi::ALIGN as usize)
}

/// What this crate's producer writes into the words that the kernel leaves zero.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Marks {
    pub(crate) nexus: Nexus,
    pub(crate) direction: Direction,
}

impl<M: Words> Giver<M> {
    /// Over a new ring: everything zero.
    pub(crate) fn new(memory: M, ring: Geometry) -> Self {
        let (slots, scratch) = (VecDeque::new(), Vec::new());
        Self { memory, ring, head: 0, published: 0, reaped: 0, slots, scratch }
    }

    /// Where an entry of `len` bytes would go now.
    pub(crate) fn plan(&self, len: usize) -> Result<Plan, NoRoom> {
        let len = u32::try_from(len).ok().filter(|len| *len <= self.ring.size / 2).ok_or(NoRoom::Ever)?;
        let to_end = self.ring.size - self.head;
        let (pad, at) = if len > to_end { (to_end, 0) } else { (0, self.head) };
        let used = self.ring.distance(self.reaped, self.head);
        // One byte stays free: equal cursors mean empty.
        if u64::from(used) + u64::from(pad) + u64::from(len) >= u64::from(self.ring.size) {
            return Err(NoRoom::Now);
        }
        Ok(Plan { pad, at, len })
    }

    /// Writes a command where `plan` says; `iovecs` as offsets from the start of the mapping.
    pub(crate) fn write_command(
        &mut self,
        plan: Plan,
        id: u16,
        marks: Marks,
        cdb: &[u8],
        iovecs: impl Iterator<Item = (u64, u64)>,
    ) {
        let mut words = std::mem::take(&mut self.scratch);
        words.clear();
        words.resize(abi::IOV_OFFSET as usize / 4, 0);
        for (base, len) in iovecs {
            words.extend([base as u32, (base >> 32) as u32, len as u32, (len >> 32) as u32]);
        }
        let count = (words.len() - abi::IOV_OFFSET as usize / 4) / 4;
        words.resize(words.len().max(abi::COMMAND_LEN as usize / 4), 0);
        let cdb_off = self.ring.offset(plan.at) + words.len() as u32 * 4;
        for bytes in cdb.chunks(4) {
            let mut word = [0; 4];
            word[..bytes.len()].copy_from_slice(bytes);
            words.push(u32::from_ne_bytes(word));
        }
        words.resize(plan.len as usize / 4, 0);
        words[0] = plan.len | op::CMD;
        words[1] = u32::from(id);
        words[2] = count as u32;
        words[6] = cdb_off;
        (words[8], words[9]) = (marks.nexus.0 as u32, (marks.nexus.0 >> 32) as u32);
        words[10] = marks.direction as u32;
        self.write(plan, &words, Slot::command(plan.len));
        self.scratch = words;
    }

    /// Writes a task-management notice where `plan` says.
    pub(crate) fn write_task_management(&mut self, plan: Plan, kind: u8, ids: &[u16]) {
        let mut words = std::mem::take(&mut self.scratch);
        words.clear();
        words.resize(abi::TMR_IDS_OFFSET as usize / 4, 0);
        for pair in ids.chunks(2) {
            let second = pair.get(1).copied().unwrap_or(0);
            let [a, b] = pair[0].to_ne_bytes();
            let [c, d] = second.to_ne_bytes();
            words.push(u32::from_ne_bytes([a, b, c, d]));
        }
        words.resize(plan.len as usize / 4, 0);
        words[0] = plan.len | op::TMR;
        words[2] = u32::from(kind);
        words[3] = ids.len() as u32;
        self.write(plan, &words, Slot::filler(plan.len));
        self.scratch = words;
    }

    fn write(&mut self, plan: Plan, words: &[u32], slot: Slot) {
        if plan.pad > 0 {
            let at = self.ring.offset(self.head);
            self.memory.store(at, plan.pad | op::PAD, Relaxed);
            self.memory.store(at + 4, 0, Relaxed);
            self.slots.push_back(Slot::filler(plan.pad));
        }
        let at = self.ring.offset(plan.at);
        for (offset, word) in (at..).step_by(4).zip(words) {
            self.memory.store(offset, *word, Relaxed);
        }
        self.slots.push_back(slot);
        self.head = self.ring.advance(plan.at, plan.len);
    }

    /// Publishes what was written; `false` when there is nothing new.
    pub(crate) fn publish(&mut self) -> bool {
        if self.head == self.published {
            return false;
        }
        mailbox::set_head(&self.memory, self.head);
        self.published = self.head;
        true
    }

    /// Loads the consumer's tail: how far [`Self::next_answer`] may go.
    pub(crate) fn load_tail(&self) -> Result<u32, Corrupt> {
        let tail = mailbox::tail(&self.memory);
        if !self.ring.is_boundary(tail) {
            return Err(Corrupt::Tail { tail, size: self.ring.size });
        }
        if self.ring.distance(self.reaped, tail) > self.ring.distance(self.reaped, self.published) {
            return Err(Corrupt::TailOvertakes { tail, reaped: self.reaped, head: self.published });
        }
        Ok(tail)
    }

    /// The next response before `tail`, copied out; each word is read once.
    pub(crate) fn next_answer(&mut self, tail: u32) -> Result<Option<Answered>, Corrupt> {
        while self.reaped != tail {
            let at = self.reaped;
            // `tail` is at most the published head, so a slot is there.
            let Some(slot) = self.slots.front().copied() else { return Ok(None) };
            if slot.len() > self.ring.distance(at, tail) {
                return Err(Corrupt::TailInsideEntry { tail, at, len: slot.len() });
            }
            self.slots.pop_front();
            self.reaped = self.ring.advance(at, slot.len());
            if slot.is_command() {
                return Ok(Some(self.read_answer(at)));
            }
        }
        Ok(None)
    }

    fn read_answer(&self, at: u32) -> Answered {
        let load = |word| self.memory.load(self.ring.offset(at) + word, Relaxed);
        let (ids, status) = (load(4), load(8) as u8);
        let sense = (status == CHECK_CONDITION).then(|| {
            let mut sense = [0; SENSE_LEN];
            for (word, bytes) in (16..).step_by(4).zip(sense.as_chunks_mut::<4>().0) {
                *bytes = load(word).to_ne_bytes();
            }
            sense
        });
        Answered { at, id: ids as u16, uflags: (ids >> 24) as u8, status, read_len: load(12), sense }
    }

    /// True when the ring is empty and nothing is unpublished: no entry is of interest to anybody.
    pub(crate) fn is_quiet(&self) -> bool {
        self.reaped == self.head && self.published == self.head
    }

    /// The part of the ring that holds no entry: where it begins, and its length.
    pub(crate) fn free_part(&self) -> (u32, u32) {
        (self.head, self.ring.size - self.ring.distance(self.reaped, self.head))
    }
}
