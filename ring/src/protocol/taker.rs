//! The consuming end of the protocol: entries out, responses in.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;

use super::{Geometry, Slot, mailbox};
use crate::abi::{self, op};
use crate::shm::Words;
use crate::{Corrupt, abi::SENSE_LEN};

/// The consuming end; `published ≤ tail ≤ consumed ≤ head`.
#[derive(Debug)]
pub(crate) struct Taker<M> {
    memory: M,
    ring: Geometry,
    head: u32,
    consumed: u32,
    tail: u32,
    published: u32,
    /// Slots between `tail` and `consumed`, as they were when consumed. Neighbouring fillers are one.
    slots: VecDeque<Slot>,
}

/// An entry that was taken; its words are in the scratch buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// Where it stood.
    pub(crate) at: u32,
    /// [`op::CMD`] or [`op::TMR`].
    pub(crate) op: u32,
}

/// One response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer<'a> {
    pub(crate) id: u16,
    pub(crate) uflags: u8,
    pub(crate) status: u8,
    pub(crate) read_len: u32,
    /// Written, padded with zeros, when there is any.
    pub(crate) sense: &'a [u8],
}

impl<M: Words> Taker<M> {
    /// Attaches at the published tail, and takes what stands behind it: right only when a predecessor, if there was one, had
    /// answered all that it had taken. Else entries there may have been answered already, and others are overwritten.
    pub(crate) fn attach(memory: M, ring: Geometry) -> Result<Self, Corrupt> {
        let tail = mailbox::tail(&memory);
        if !ring.is_boundary(tail) {
            return Err(Corrupt::Tail { tail, size: ring.size });
        }
        let slots = VecDeque::new();
        Ok(Self { memory, ring, head: tail, consumed: tail, tail, published: tail, slots })
    }

    /// Copies the next command or notice into `scratch`, passing over everything else; each word is read once.
    pub(crate) fn next(&mut self, scratch: &mut Vec<u32>) -> Result<Option<Found>, Corrupt> {
        if self.consumed == self.head {
            self.load_head()?;
        }
        while self.consumed != self.head {
            let at = self.consumed;
            let len_op = self.memory.load(self.ring.offset(at), Relaxed);
            let (len, kind) = (len_op & !op::MASK, len_op & op::MASK);
            let available = self.ring.distance(at, self.head).min(self.ring.size - at);
            if len < abi::HEADER_LEN || len > available {
                return Err(Corrupt::EntryLength { at, len, available });
            }
            match kind {
                op::CMD => self.take_command(at, len)?,
                op::PAD | op::TMR => self.take_filler(len),
                _ => {
                    self.store(at, 4, u32::from(abi::UFLAG_UNKNOWN_OP) << 24);
                    self.take_filler(len);
                }
            }
            if matches!(kind, op::CMD | op::TMR) {
                scratch.clear();
                scratch.push(len_op);
                let words = (4..len).step_by(4);
                scratch.extend(words.map(|word| self.memory.load(self.ring.offset(at) + word, Relaxed)));
                return Ok(Some(Found { at, op: kind }));
            }
        }
        Ok(None)
    }

    fn load_head(&mut self) -> Result<(), Corrupt> {
        let head = mailbox::head(&self.memory);
        if !self.ring.is_boundary(head) {
            return Err(Corrupt::Head { head, size: self.ring.size });
        }
        let taken = self.ring.distance(self.published, self.consumed);
        if self.ring.distance(self.published, head) < taken {
            return Err(Corrupt::HeadOvertakes { head, consumed: self.consumed, tail: self.published });
        }
        self.head = head;
        Ok(())
    }

    fn take_command(&mut self, at: u32, len: u32) -> Result<(), Corrupt> {
        let most = self.ring.size / 2;
        if len < abi::COMMAND_LEN || len > most {
            return Err(Corrupt::CommandLength { at, len, least: abi::COMMAND_LEN, most });
        }
        self.slots.push_back(Slot::command(len));
        self.consumed = self.ring.advance(at, len);
        Ok(())
    }

    fn take_filler(&mut self, len: u32) {
        match self.slots.back_mut() {
            Some(last) if !last.is_command() => *last = Slot::filler(last.len() + len),
            _ => self.slots.push_back(Slot::filler(len)),
        }
        self.consumed = self.ring.advance(self.consumed, len);
    }

    /// Writes a response into the slot at the tail. Only for a command that was taken and not answered, so that a slot
    /// is there; `false` (and nothing written) when there is none.
    pub(crate) fn answer(&mut self, answer: &Answer<'_>) -> bool {
        self.pass_fillers();
        let Some(slot) = self.slots.pop_front() else { return false };
        let at = self.tail;
        self.store(at, 4, u32::from(answer.id) | u32::from(answer.uflags) << 24);
        self.store(at, 8, u32::from(answer.status));
        self.store(at, 12, answer.read_len);
        if !answer.sense.is_empty() {
            let mut sense = [0; SENSE_LEN];
            let len = answer.sense.len().min(SENSE_LEN);
            sense[..len].copy_from_slice(&answer.sense[..len]);
            for (word, bytes) in (16..).step_by(4).zip(sense.as_chunks::<4>().0) {
                self.store(at, word, u32::from_ne_bytes(*bytes));
            }
        }
        self.tail = self.ring.advance(at, slot.len());
        true
    }

    /// Publishes the responses; `false` when there is nothing new.
    pub(crate) fn publish(&mut self) -> bool {
        self.pass_fillers();
        if self.tail == self.published {
            return false;
        }
        mailbox::set_tail(&self.memory, self.tail);
        self.published = self.tail;
        true
    }

    /// The published tail, when everything that was taken has been answered and the answers are published.
    pub(crate) fn settled_at(&self) -> Option<u32> {
        (self.published == self.consumed).then_some(self.published)
    }

    /// Bytes of the ring between the published tail and the head as last loaded.
    pub(crate) fn used(&self) -> u32 {
        self.ring.distance(self.published, self.head)
    }

    fn pass_fillers(&mut self) {
        while let Some(slot) = self.slots.front().filter(|slot| !slot.is_command()) {
            self.tail = self.ring.advance(self.tail, slot.len());
            self.slots.pop_front();
        }
    }

    fn store(&self, at: u32, word: u32, value: u32) {
        self.memory.store(self.ring.offset(at) + word, value, Relaxed);
    }
}
