//! A session's commands: one [`Task`] per command from its header to its answer, and the table of them.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::time::Instant;

use ring::{Allocate, CommandId, Extent};
use smallvec::SmallVec;

use super::inbox::Hold;
use super::receive::Memory;
use super::sense::Sense;
use super::stream::recycle;

/// Tag and serial of the slot of a task: finds it again, and only it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) slot: usize,
    pub(crate) serial: u32,
}

/// How far a task has come.
#[derive(Debug)]
pub(crate) enum State {
    /// Its PDU is coming in, or commands before it are missing.
    Arriving,
    /// Held back by the task attributes of others at its LUN.
    Ordered,
    /// Unsolicited data is still to come.
    Collecting,
    /// Waits for blocks.
    Blocks(Allocate),
    /// Data has been asked for.
    Soliciting,
    /// Waits for room in the command area.
    Room,
    /// In the ring.
    Running(CommandId),
}

/// An R2T that is out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) tag: u32,
    pub(crate) offset: usize,
    pub(crate) len: usize,
    pub(crate) done: usize,
    pub(crate) data_sn: u32,
}

/// Data-out of one task. Bytes.
#[derive(Debug, Default)]
pub(crate) struct Transfer {
    /// The most that may come unasked, the data in the command's own PDU included.
    pub(crate) unsolicited: usize,
    /// Nothing more comes unasked.
    pub(crate) unsolicited_done: bool,
    /// DataSN of the next unsolicited Data-Out.
    pub(crate) unsolicited_sn: u32,
    /// Come in, asked for or not.
    pub(crate) arrived: usize,
    /// Where the next R2T begins.
    pub(crate) requested: usize,
    /// R2Ts sent.
    pub(crate) r2t_sn: u32,
    /// R2Ts that are out.
    pub(crate) requests: SmallVec<[Request; 4]>,
}

/// The answer of the portal itself to a command that will not reach the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// CHECK CONDITION.
    Sense(Sense),
    /// TASK SET FULL (28h).
    Full,
    /// TASK ABORTED (40h): another nexus has ended it.
    Aborted,
}

/// One command.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) serial: u32,
    pub(crate) tag: u32,
    pub(crate) lun: u64,
    /// Index of its LUN in the session.
    pub(crate) at: usize,
    pub(crate) cmd_sn: u32,
    pub(crate) immediate: bool,
    pub(crate) cdb: SmallVec<[u8; 16]>,
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) attribute: u8,
    /// Expected length of the read part of a command that reads and writes.
    pub(crate) bidirectional: Option<u32>,
    /// Expected Data Transfer Length.
    pub(crate) expected: usize,
    pub(crate) extent: Extent,
    pub(crate) state: State,
    pub(crate) transfer: Transfer,
    pub(crate) failure: Option<Failure>,
    /// When waiting is over.
    pub(crate) deadline: Option<Instant>,
    /// Never to be answered.
    pub(crate) aborted: bool,
    /// Who waits for its end.
    pub(crate) holds: SmallVec<[Hold; 1]>,
    /// Counted as started at its LUN.
    pub(crate) started: bool,
}

impl Task {
    /// Whether it may change the medium: everything that does not bring data in. A command that moves no data may (WRITE
    /// SAME with NDOB), whatever direction it was given.
    pub(crate) fn may_write(&self) -> bool {
        !self.read || self.expected == 0
    }
}

/// Initiator task tags are spread well enough by one multiplication; a peer can collide a few hundred at most.
#[derive(Debug, Default)]
pub(crate) struct TagHasher(u64);

impl Hasher for TagHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u32(byte.into());
        }
    }
    fn write_u32(&mut self, tag: u32) {
        self.0 = (self.0 ^ u64::from(tag)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }
}

/// The table.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    slots: Vec<Option<Task>>,
    free: Vec<usize>,
    tags: HashMap<u32, usize, BuildHasherDefault<TagHasher>>,
    serial: u32,
    immediate: usize,
}

impl Tasks {
    /// Most tasks at a time: the largest window, as many immediate ones as are taken, and room for aborted ones.
    pub(crate) const MOST: usize = 512;
    /// Most immediate commands at a time.
    pub(crate) const MOST_IMMEDIATE: usize = 16;

    pub(crate) fn insert(&mut self, mut task: Task) -> Key {
        self.serial = self.serial.wrapping_add(1);
        task.serial = self.serial;
        self.immediate += usize::from(task.immediate);
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.tags.insert(task.tag, slot);
        self.slots[slot] = Some(task);
        Key { slot, serial: self.serial }
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<Task> {
        let task = self.slots.get_mut(key.slot)?.take_if(|task| task.serial == key.serial)?;
        self.forget_tag(&task, key.slot);
        self.immediate -= usize::from(task.immediate);
        self.free.push(key.slot);
        Some(task)
    }

    /// The tag may be used anew although the task is still in the ring.
    pub(crate) fn release_tag(&mut self, key: Key) {
        if let Some(task) = self.slots.get(key.slot).and_then(Option::as_ref) {
            let tag = task.tag;
            if self.tags.get(&tag) == Some(&key.slot) {
                self.tags.remove(&tag);
            }
        }
    }

    fn forget_tag(&mut self, task: &Task, slot: usize) {
        if self.tags.get(&task.tag) == Some(&slot) {
            self.tags.remove(&task.tag);
        }
    }

    pub(crate) fn get(&self, key: Key) -> Option<&Task> {
        self.slots.get(key.slot)?.as_ref().filter(|task| task.serial == key.serial)
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut Task> {
        self.slots.get_mut(key.slot)?.as_mut().filter(|task| task.serial == key.serial)
    }

    pub(crate) fn by_tag(&self, tag: u32) -> Option<Key> {
        let slot = *self.tags.get(&tag)?;
        self.key(slot)
    }

    pub(crate) fn key(&self, slot: usize) -> Option<Key> {
        self.slots.get(slot)?.as_ref().map(|task| Key { slot, serial: task.serial })
    }

    /// Tasks in the table, aborted ones that are still in a ring included.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) fn immediate(&self) -> usize {
        self.immediate
    }

    /// Keys of the tasks that `select` picks.
    pub(crate) fn select(&self, mut select: impl FnMut(&Task) -> bool) -> SmallVec<[Key; 16]> {
        let live = self.slots.iter().enumerate().filter_map(|(slot, task)| Some((slot, task.as_ref()?)));
        live.filter(|(_, task)| select(task)).map(|(slot, task)| Key { slot, serial: task.serial }).collect()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Task> {
        self.slots.iter().flatten()
    }
}

impl Memory for Tasks {
    fn slices_mut<'a>(&'a mut self, task: usize, range: Range<usize>, into: &mut Vec<IoSliceMut<'a>>) {
        if let Some(Some(task)) = self.slots.get_mut(task) {
            task.extent.io_slices_mut(range, into);
        }
    }

    fn crc(&self, task: usize, range: Range<usize>, crc: u32) -> u32 {
        let mut slices: Vec<IoSlice<'_>> = recycle(Vec::new());
        if let Some(Some(task)) = self.slots.get(task) {
            task.extent.io_slices(range, &mut slices);
        }
        slices.iter().fold(crc, |crc, slice| crc32c::crc32c_append(crc, slice))
    }
}
