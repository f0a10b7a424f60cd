//! The producer's side of the command ring: where the next entry goes, and which pages it has touched.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::Kick;
use crate::abi::{command, header, mailbox};
use crate::area::Area;
use crate::consumer::{Corrupt, cursor};
use crate::shm::{Mapping, PAGE};

/// A head beyond this goes back to the start as soon as the start is free, so that a ring of 8 MiB costs only as many
/// pages as its depth needs.
const WINDOW: usize = 32 << 10;

/// Cursors and slots of one command ring.
#[derive(Debug)]
pub(super) struct Cursor {
    mapping: Arc<Mapping>,
    area: Arc<Area>,
    size: usize,
    head: usize,
    published: usize,
    cleaned: usize,
    slots: VecDeque<Slot>,
    touched: Vec<bool>,
    touched_bytes: u64,
}

/// An entry between cleaned and head, as we wrote it.
#[derive(Clone, Copy, Debug)]
struct Slot {
    len: usize,
    command: bool,
}

/// An answer taken from a slot.
pub(super) struct Answer {
    pub(super) id: u16,
    pub(super) flags: u8,
    pub(super) body: [u8; command::SIZE - header::SIZE],
}

impl Cursor {
    /// A fresh ring of `size` bytes behind the mailbox; writes the mailbox.
    pub(super) fn new(mapping: Arc<Mapping>, area: Arc<Area>, size: usize) -> Self {
        let pages = (mailbox::SIZE + size).div_ceil(PAGE);
        let mut cursor = Self {
            mapping,
            area,
            size,
            head: 0,
            published: 0,
            cleaned: 0,
            slots: VecDeque::new(),
            touched: vec![false; pages],
            touched_bytes: 0,
        };
        cursor.touch(0, mailbox::SIZE + header::SIZE, true);
        let flags = mailbox::CAP_OOOC | mailbox::CAP_READ_LEN | mailbox::CAP_TMR;
        let [low, high] = crate::abi::MAILBOX_VERSION.to_ne_bytes();
        let [flags_low, flags_high] = flags.to_ne_bytes();
        let first = u32::from_ne_bytes([low, high, flags_low, flags_high]);
        for (at, value) in [
            (mailbox::VERSION, first),
            (mailbox::CMDR_OFF, mailbox::SIZE as u32),
            (mailbox::CMDR_SIZE, size as u32),
            (mailbox::CMD_HEAD, 0),
            (mailbox::CMD_TAIL, 0),
        ] {
            cursor.mapping.word32(at).store(value, Ordering::Relaxed);
        }
        cursor
    }

    /// The longest entry that is ever taken.
    pub(super) fn longest(&self) -> usize {
        self.size / 2
    }

    /// Makes room for an entry of `len` bytes; returns its offset in the mapping, or `None` when there is none now.
    pub(super) fn place(&mut self, len: usize, is_command: bool) -> Option<usize> {
        let wraps = self.head >= self.cleaned && {
            let fits = self.size - self.head > len || (self.size - self.head == len && self.cleaned != 0);
            let early = self.head >= WINDOW && (self.head == self.cleaned || self.cleaned >= self.head / 2);
            (early || !fits) && len < self.cleaned
        };
        let start = if wraps { 0 } else { self.head };
        let fits = if wraps || self.head < self.cleaned {
            start + len < self.cleaned
        } else {
            self.size - start > len || (self.size - start == len && self.cleaned != 0)
        };
        let forced = self.head == self.cleaned;
        if !fits || !self.touch(mailbox::SIZE + start, len, forced) {
            return None;
        }
        if wraps {
            let pad = self.size - self.head;
            if !self.touch(mailbox::SIZE + self.head, header::SIZE, forced) {
                return None;
            }
            self.write_header(mailbox::SIZE + self.head, pad, header::OP_PAD, 0);
            self.slots.push_back(Slot { len: pad, command: false });
        }
        self.slots.push_back(Slot { len, command: is_command });
        self.head = (start + len) % self.size;
        Some(mailbox::SIZE + start)
    }

    pub(super) fn write_header(&self, at: usize, len: usize, op: u32, id: u16) {
        self.mapping.word32(at + header::LEN_OP).store(len as u32 | op, Ordering::Relaxed);
        let [low, high] = id.to_ne_bytes();
        let word = u32::from_ne_bytes([low, high, 0, 0]);
        self.mapping.word32(at + header::CMD_ID).store(word, Ordering::Relaxed);
    }

    /// Pays for the pages of a range. Without an entry on the ring nothing will ever free memory for us, so that one
    /// entry gets its pages in any case.
    fn touch(&mut self, at: usize, len: usize, forced: bool) -> bool {
        for page in at / PAGE..(at + len).div_ceil(PAGE) {
            if self.touched[page] {
                continue;
            }
            if !self.area.pool().charge(PAGE as u64) {
                if !forced {
                    return false;
                }
                self.area.pool().charge_anyway(PAGE as u64);
            }
            self.touched[page] = true;
            self.touched_bytes += PAGE as u64;
        }
        true
    }

    /// Publishes what was placed (head, Release).
    pub(super) fn publish(&mut self) -> Kick {
        if self.head == self.published {
            return Kick::Unneeded;
        }
        self.published = self.head;
        self.mapping.word32(mailbox::CMD_HEAD).store(self.head as u32, Ordering::Release);
        Kick::Needed
    }

    /// The next answer in ring order, `None` when the consumer has published no more.
    pub(super) fn answer(&mut self) -> Result<Option<Answer>, Corrupt> {
        let tail = cursor(&self.mapping, mailbox::CMD_TAIL, self.size)?;
        while self.cleaned != tail {
            // A tail that lies between two entries, or beyond the head, is met by no sum of our slots.
            let wrong = Corrupt::Cursor { cursor: "cmd_tail", value: tail, size: self.size };
            let (at, slot) = (mailbox::SIZE + self.cleaned, self.slots.pop_front().ok_or(wrong.clone())?);
            if tail > self.cleaned && tail < self.cleaned + slot.len {
                return Err(wrong);
            }
            self.cleaned = (self.cleaned + slot.len) % self.size;
            if slot.command {
                let word = self.mapping.word32(at + header::CMD_ID).load(Ordering::Relaxed).to_ne_bytes();
                let mut body = [0; command::SIZE - header::SIZE];
                self.mapping.copy_out(at + header::SIZE, &mut body);
                return Ok(Some(Answer { id: u16::from_ne_bytes([word[0], word[1]]), flags: word[3], body }));
            }
        }
        Ok(None)
    }

    /// Gives back the pages of an empty ring, the first one excepted; returns the bytes.
    pub(super) fn shrink(&mut self) -> u64 {
        if self.head != self.cleaned || self.head != self.published {
            return 0;
        }
        let mut freed = 0;
        for page in 1..self.touched.len() {
            // The page after the command area's last one belongs to the data area; whole pages only.
            let end = ((page + 1) * PAGE).min(self.area.data_off());
            if self.touched[page] && end == (page + 1) * PAGE && self.mapping.punch(page * PAGE..end).is_ok()
            {
                self.touched[page] = false;
                freed += PAGE as u64;
            }
        }
        self.touched_bytes -= freed;
        self.area.pool().discharge(freed);
        freed
    }

    /// Command-area bytes backed by memory.
    pub(super) fn backed(&self) -> u64 {
        self.touched_bytes
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        self.area.pool().discharge(self.touched_bytes);
    }
}
