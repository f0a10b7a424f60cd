//! The ring protocol itself, generic over memory: cursors, entries and responses, without data, ids or threads.
//!
//! [`Taker`] is the consuming end, [`Giver`] the producing end. Both keep private cursors and private lengths of the
//! slots between them, so neither ever believes the other about what it wrote itself:
//!
//! ```text
//! Taker:  published ≤ tail ≤ consumed ≤ head      (cyclic, in bytes; head as last loaded)
//! Giver:  reaped ≤ published ≤ head               (cyclic; at least one byte of the ring stays free)
//! ```
//!
//! | word | written by | order | read by | order |
//! |---|---|---|---|---|
//! | `cmd_head` | giver, once per batch | Release | taker | Acquire |
//! | `cmd_tail` | taker, once per batch | Release | giver | Acquire |
//! | entry and response words | either, before its cursor moves | Relaxed | the other, after | Relaxed |

mod giver;
#[cfg(all(test, loom))]
mod loom;
mod taker;
#[cfg(test)]
mod tests;

pub(crate) use giver::{Giver, Marks, NoRoom, Plan, command_len};
pub(crate) use taker::{Answer, Taker};

use crate::abi;

/// Where the command ring lies in the mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// `cmdr_off`.
    pub(crate) base: u32,
    /// `cmdr_size`, a multiple of 8; no power of two.
    pub(crate) size: u32,
}

impl Geometry {
    /// Bytes from `from` forward to `to`.
    pub(crate) fn distance(self, from: u32, to: u32) -> u32 {
        if to >= from { to - from } else { to + (self.size - from) }
    }

    /// The position `len` bytes after `at`; `len` is at most the ring's size.
    pub(crate) fn advance(self, at: u32, len: u32) -> u32 {
        let to_end = self.size - at;
        if len < to_end { at + len } else { len - to_end }
    }

    /// True for a place where an entry may begin.
    pub(crate) fn is_boundary(self, at: u32) -> bool {
        at < self.size && at.is_multiple_of(abi::ALIGN)
    }

    /// Offset of the byte at `at`, from the start of the mapping.
    pub(crate) fn offset(self, at: u32) -> u32 {
        self.base + at
    }
}

/// Remembered length of one slot, with what to do with it.
#[derive(Clone, Copy, Debug)]
struct Slot(u32);

impl Slot {
    /// A command's slot: room for one response.
    fn command(len: u32) -> Self {
        Self(len | 1)
    }

    /// A slot that wants no response.
    fn filler(len: u32) -> Self {
        Self(len)
    }

    fn is_command(self) -> bool {
        self.0 & 1 != 0
    }

    fn len(self) -> u32 {
        self.0 & !1
    }
}

/// Byte offsets of the mailbox words.
const VERSION_FLAGS: u32 = 0;
const CMDR_OFF: u32 = std::mem::offset_of!(abi::Mailbox, cmdr_off) as u32;
const CMDR_SIZE: u32 = std::mem::offset_of!(abi::Mailbox, cmdr_size) as u32;
const HEAD: u32 = std::mem::offset_of!(abi::Mailbox, cmd_head) as u32;
const TAIL: u32 = std::mem::offset_of!(abi::Mailbox, cmd_tail) as u32;

/// The consumer's own words, on its cache line, where the ABI has padding: the kernel zeroes them with the rest of a new
/// ring and leaves them alone afterwards, in a reset too.
const OWNER: u32 = abi::MAILBOX_LEN - 16;
const LEFT_AT: u32 = abi::MAILBOX_LEN - 12;
const LEFT_TAIL: u32 = abi::MAILBOX_LEN - 8;

/// Values of [`OWNER`].
const SERVING: u32 = 0x7264_6701;
const LEFT: u32 = 0x7264_6702;

/// What the last consuming end has written of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// Nothing, or something that is not ours.
    Nobody,
    /// It serves, or it died without a word.
    Serving,
    /// It has left, having answered all that it had taken.
    Left {
        /// When, in seconds since boot.
        at: u32,
        /// `cmd_tail` then. Another one now: somebody who does not know of these words has had the ring since.
        tail: u32,
    },
}

/// The mailbox by name.
pub(crate) mod mailbox {
    use std::sync::atomic::Ordering;

    use super::{
        CMDR_OFF, CMDR_SIZE, HEAD, LEFT, LEFT_AT, LEFT_TAIL, OWNER, Owner, SERVING, TAIL, VERSION_FLAGS,
    };
    use crate::shm::Words;

    /// Version and capability flags; fixed for the life of a ring.
    pub(crate) fn version_and_flags(memory: &impl Words) -> (u16, u16) {
        let word = memory.load(VERSION_FLAGS, Ordering::Relaxed);
        (word as u16, (word >> 16) as u16)
    }

    /// `cmdr_off` and `cmdr_size`; fixed for the life of a ring, read once.
    pub(crate) fn command_ring(memory: &impl Words) -> (u32, u32) {
        (memory.load(CMDR_OFF, Ordering::Relaxed), memory.load(CMDR_SIZE, Ordering::Relaxed))
    }

    /// Fills a new mailbox; the ring is not shared yet.
    pub(crate) fn initialise(memory: &impl Words, version: u16, flags: u16, ring: super::Geometry) {
        memory.store(VERSION_FLAGS, u32::from(version) | u32::from(flags) << 16, Ordering::Relaxed);
        memory.store(CMDR_OFF, ring.base, Ordering::Relaxed);
        memory.store(CMDR_SIZE, ring.size, Ordering::Release);
    }

    /// Everything published up to here is visible after this load.
    pub(crate) fn head(memory: &impl Words) -> u32 {
        memory.load(HEAD, Ordering::Acquire)
    }

    /// Publishes what was written before.
    pub(crate) fn set_head(memory: &impl Words, head: u32) {
        memory.store(HEAD, head, Ordering::Release);
    }

    /// Every response up to here is visible after this load.
    pub(crate) fn tail(memory: &impl Words) -> u32 {
        memory.load(TAIL, Ordering::Acquire)
    }

    /// Publishes the responses written before.
    pub(crate) fn set_tail(memory: &impl Words, tail: u32) {
        memory.store(TAIL, tail, Ordering::Release);
    }

    /// Who had, or has, the consuming end.
    pub(crate) fn owner(memory: &impl Words) -> Owner {
        match memory.load(OWNER, Ordering::Acquire) {
            SERVING => Owner::Serving,
            LEFT => Owner::Left {
                at: memory.load(LEFT_AT, Ordering::Relaxed),
                tail: memory.load(LEFT_TAIL, Ordering::Relaxed),
            },
            _ => Owner::Nobody,
        }
    }

    /// Says so. What is said last counts for whoever opens the ring next, however this process ends.
    pub(crate) fn set_owner(memory: &impl Words, owner: Owner) {
        let word = match owner {
            Owner::Nobody => 0,
            Owner::Serving => SERVING,
            Owner::Left { at, tail } => {
                memory.store(LEFT_AT, at, Ordering::Relaxed);
                memory.store(LEFT_TAIL, tail, Ordering::Relaxed);
                LEFT
            }
        };
        memory.store(OWNER, word, Ordering::Release);
    }
}
