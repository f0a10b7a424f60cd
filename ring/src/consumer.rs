//! The owning end: takes commands out of a ring, whoever produces into it, and answers each exactly once.
//!
//! Cursors, all offsets into the command ring: `tail ≤ consumed ≤ head` (on the circle). `head` belongs to the producer and
//! is read with Acquire; `consumed` is private; `tail` is private until [`Consumer::commit`] publishes it with Release.
//! A response goes into the command slot at the tail, whichever command it is for; that is sound because the entry of
//! every slot between tail and consumed has been copied out whole.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use smallvec::SmallVec;

use crate::abi::{command, header, mailbox, task_management};
use crate::shm::Mapping;
use crate::{Kick, Nexus, Segments, TaskManagementKind};

/// Longest CDB taken, bytes (SPC-4 4.2.3: variable length up to 260).
const LONGEST_CDB: usize = 260;

/// INTERNAL TARGET FAILURE (SPC-4 table D.2), fixed format: the answer to a command that was dropped.
const DROPPED: [u8; 18] = [0x70, 0, 4, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x44, 0, 0, 0, 0, 0];

/// The consuming end of one ring.
#[derive(Debug)]
pub struct Consumer {
    mapping: Arc<Mapping>,
    ring_off: usize,
    ring_size: usize,
    read_len: bool,
    consumed: usize,
    tail: usize,
    published: usize,
    slots: VecDeque<Slot>,
    outstanding: usize,
    corrupt: Option<Corrupt>,
    orphans: Orphans,
}

/// Commands dropped without an answer.
type Orphans = Arc<Mutex<Vec<u16>>>;

/// An entry between tail and consumed. Its length is remembered, not read again.
#[derive(Clone, Copy, Debug)]
struct Slot {
    len: usize,
    command: bool,
}

/// What [`Consumer::next`] found.
#[derive(Debug)]
pub enum Entry {
    /// A SCSI command.
    Command(Command),
    /// A task-management notice; wants no answer of its own.
    TaskManagement(TaskManagement),
}

/// A SCSI command: a must-complete token. Owns its CDB and iovecs and keeps the mapping alive.
///
/// Dropped without [`Consumer::complete`] it panics in tests (debug assertions) and is answered CHECK CONDITION otherwise.
#[must_use = "every command must be completed"]
#[derive(Debug)]
pub struct Command {
    id: u16,
    nexus: Nexus,
    cdb: SmallVec<[u8; 32]>,
    data: Segments,
    bidi: Segments,
    orphans: Option<Orphans>,
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

    /// The CDB with its full length by opcode (SPC-4 4.2.5), as far as the entry holds it.
    pub fn cdb(&self) -> &[u8] {
        &self.cdb
    }

    /// Its buffer: data-out or room for data-in.
    pub fn data(&self) -> &Segments {
        &self.data
    }

    /// Data-in of a bidirectional command.
    pub fn bidi_data(&self) -> &Segments {
        &self.bidi
    }
}

impl Drop for Command {
    fn drop(&mut self) {
        if let Some(orphans) = self.orphans.take() {
            orphans.lock().unwrap_or_else(PoisonError::into_inner).push(self.id);
            if cfg!(debug_assertions) && !std::thread::panicking() {
                panic!("command {} was dropped without an answer", self.id);
            }
        }
    }
}

/// A notice that commands were aborted (`tcmu_tmr_entry`).
#[derive(Debug)]
pub struct TaskManagement {
    /// The function.
    pub kind: TaskManagementKind,
    /// `cmd_id`s of the commands it ends.
    pub ids: SmallVec<[u16; 8]>,
}

/// The answer to one command.
#[derive(Debug, Clone)]
pub struct Response {
    /// SAM status.
    pub status: u8,
    /// Bytes the command transfers by its CDB, in either direction: less than the buffer is a residual underflow, more
    /// an overflow. `None`: exactly the buffer. Of data-in, only the first `transfer` bytes of the buffer are valid.
    pub transfer: Option<usize>,
    /// Sense data (at most 96 bytes are carried) with CHECK CONDITION.
    pub sense: SmallVec<[u8; 32]>,
}

impl Response {
    /// GOOD with the whole buffer transferred (or none there).
    pub fn good() -> Self {
        Self { status: 0, transfer: None, sense: SmallVec::new() }
    }

    /// GOOD after transferring `len` bytes; see [`Response::transfer`].
    pub fn good_with(len: usize) -> Self {
        Self { status: 0, transfer: Some(len), sense: SmallVec::new() }
    }

    /// A status without sense (BUSY, RESERVATION CONFLICT, TASK ABORTED, …).
    pub fn status(status: u8) -> Self {
        Self { status, transfer: None, sense: SmallVec::new() }
    }

    /// CHECK CONDITION with sense data.
    pub fn check_condition(sense: &[u8]) -> Self {
        Self { status: 2, transfer: None, sense: SmallVec::from_slice(sense) }
    }
}

/// "Nothing to do" and "the peer is broken" are different answers.
#[derive(Debug, thiserror::Error)]
pub enum NextError {
    /// No entry is waiting.
    #[error("the ring is empty")]
    Empty,
    /// The producer wrote nonsense: take this LUN down, and only this one.
    #[error("the ring is corrupt")]
    Corrupt(#[source] Corrupt),
}

/// What is wrong with a ring, as one end sees it. The other end has written it, or whoever else has the memory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Corrupt {
    /// A mailbox of another version.
    #[error("the mailbox has version {0}, not 2")]
    Version(u16),
    /// The mailbox describes a command ring that does not fit the memory.
    #[error("the mailbox puts {size} bytes of ring at {offset} of {len} bytes of memory")]
    Geometry {
        /// `cmdr_off`.
        offset: usize,
        /// `cmdr_size`.
        size: usize,
        /// Bytes mapped.
        len: usize,
    },
    /// `cmd_head` or `cmd_tail` is not inside the ring, or between two words.
    #[error("{cursor} is {value}, not a multiple of 8 below {size}")]
    Cursor {
        /// Which one.
        cursor: &'static str,
        /// What it says.
        value: usize,
        /// Bytes of the ring.
        size: usize,
    },
    /// An entry's length does not fit its opcode, the ring or the head.
    #[error("the entry at {at} with opcode {op} is {len} bytes long")]
    Length {
        /// Offset in the ring.
        at: usize,
        /// Its opcode.
        op: u32,
        /// Its length.
        len: usize,
    },
    /// A command's iovecs do not fit its entry.
    #[error("the entry at {at} has {count} iovecs in {len} bytes")]
    IovecCount {
        /// Offset in the ring.
        at: usize,
        /// Iovecs claimed.
        count: u64,
        /// Length of the entry.
        len: usize,
    },
    /// An iovec points outside the data area.
    #[error("the entry at {at} has an iovec of {len} bytes at {base}, outside the data area")]
    Iovec {
        /// Offset in the ring.
        at: usize,
        /// `iov_base`.
        base: u64,
        /// `iov_len`.
        len: u64,
    },
    /// A CDB outside its entry.
    #[error("the entry at {at} has its CDB at {cdb}, outside itself")]
    Cdb {
        /// Offset in the ring.
        at: usize,
        /// `cdb_off`.
        cdb: u64,
    },
    /// The consumer answered a command that is not in flight (or twice).
    #[error("command {0} was answered and is not in flight")]
    CommandId(u16),
}

impl Consumer {
    /// Takes over a ring whose memory another process has made and passed here.
    pub fn open(fd: OwnedFd) -> io::Result<Self> {
        let mapping = Mapping::open(fd)?;
        Self::over(mapping).map_err(|corrupt| io::Error::new(io::ErrorKind::InvalidData, corrupt))
    }

    pub(crate) fn over(mapping: Arc<Mapping>) -> Result<Self, Corrupt> {
        let geometry = |offset, size| Corrupt::Geometry { offset, size, len: mapping.len() };
        if mapping.len() < mailbox::SIZE {
            return Err(geometry(0, 0));
        }
        let first = mapping.word32(mailbox::VERSION).load(Ordering::Relaxed).to_ne_bytes();
        let (version, flags) =
            (u16::from_ne_bytes([first[0], first[1]]), u16::from_ne_bytes([first[2], first[3]]));
        if version != crate::abi::MAILBOX_VERSION {
            return Err(Corrupt::Version(version));
        }
        let word = |at| mapping.word32(at).load(Ordering::Relaxed) as usize;
        let (ring_off, ring_size) = (word(mailbox::CMDR_OFF), word(mailbox::CMDR_SIZE));
        let inside = ring_off.checked_add(ring_size).is_some_and(|end| end <= mapping.len());
        if ring_off < mailbox::SIZE
            || !ring_off.is_multiple_of(8)
            || ring_size < 2 * command::SIZE
            || !ring_size.is_multiple_of(8)
            || !inside
        {
            return Err(geometry(ring_off, ring_size));
        }
        let tail = cursor(&mapping, mailbox::CMD_TAIL, ring_size)?;
        Ok(Self {
            mapping,
            ring_off,
            ring_size,
            read_len: flags & mailbox::CAP_READ_LEN != 0,
            consumed: tail,
            tail,
            published: tail,
            slots: VecDeque::new(),
            outstanding: 0,
            corrupt: None,
            orphans: Orphans::default(),
        })
    }

    /// The next entry, as an owned snapshot; shared memory is not read again for it.
    #[expect(clippy::should_implement_trait, reason = "an iterator has one way to end, this has two")]
    pub fn next(&mut self) -> Result<Entry, NextError> {
        if let Some(corrupt) = &self.corrupt {
            return Err(NextError::Corrupt(corrupt.clone()));
        }
        match self.advance() {
            Ok(Some(entry)) => Ok(entry),
            Ok(None) => Err(NextError::Empty),
            Err(corrupt) => {
                self.corrupt = Some(corrupt.clone());
                Err(NextError::Corrupt(corrupt))
            }
        }
    }

    fn advance(&mut self) -> Result<Option<Entry>, Corrupt> {
        let head = cursor(&self.mapping, mailbox::CMD_HEAD, self.ring_size)?;
        while self.consumed != head {
            let at = self.consumed;
            let base = self.ring_off + at;
            let len_op = self.mapping.word32(base + header::LEN_OP).load(Ordering::Relaxed);
            let (op, len) = (len_op & header::OP_MASK, (len_op & !header::OP_MASK) as usize);
            let until = if head > at { head } else { self.ring_size };
            let smallest = match op {
                header::OP_CMD => command::SIZE,
                header::OP_TMR => task_management::SIZE,
                _ => header::SIZE,
            };
            if len < smallest || at + len > until {
                return Err(Corrupt::Length { at, op, len });
            }
            let entry = match op {
                header::OP_PAD => None,
                header::OP_CMD => Some(Entry::Command(self.command(at, len)?)),
                header::OP_TMR => Some(Entry::TaskManagement(self.task_management(at, len)?)),
                _ => {
                    self.set_flags(base, header::UFLAG_UNKNOWN_OP);
                    None
                }
            };
            self.consumed = (at + len) % self.ring_size;
            self.slots.push_back(Slot { len, command: op == header::OP_CMD });
            if entry.is_some() {
                self.outstanding += usize::from(op == header::OP_CMD);
                return Ok(entry);
            }
        }
        Ok(None)
    }

    fn command(&self, at: usize, len: usize) -> Result<Command, Corrupt> {
        let base = self.ring_off + at;
        let mut fixed = [0; command::SIZE];
        self.mapping.copy_out(base, &mut fixed);
        let count = u64::from(u32_at(&fixed, command::IOV_CNT));
        let bidi = u64::from(u32_at(&fixed, command::IOV_BIDI_CNT));
        let room = (len - command::IOV) / command::IOV_SIZE;
        if count + bidi > room as u64 {
            return Err(Corrupt::IovecCount { at, count: count + bidi, len });
        }
        let (count, bidi) = (count as usize, bidi as usize);
        let mut vectors = SmallVec::<[u8; 512]>::from_elem(0, (count + bidi) * command::IOV_SIZE);
        let known = vectors.len().min(command::SIZE - command::IOV);
        vectors[..known].copy_from_slice(&fixed[command::IOV..command::IOV + known]);
        self.mapping.copy_out(base + command::IOV + known, &mut vectors[known..]);
        let (out, back) = vectors.split_at(count * command::IOV_SIZE);
        Ok(Command {
            id: u32_at(&fixed, header::CMD_ID) as u16,
            nexus: Nexus(u64_at(&fixed, command::NEXUS)),
            cdb: self.cdb(at, len, u64_at(&fixed, command::CDB_OFF))?,
            data: self.segments(at, out)?,
            bidi: self.segments(at, back)?,
            orphans: Some(Arc::clone(&self.orphans)),
        })
    }

    fn segments(&self, at: usize, vectors: &[u8]) -> Result<Segments, Corrupt> {
        let mut segments = Segments::empty(&self.mapping);
        let (start, end) = ((self.ring_off + self.ring_size) as u64, self.mapping.len() as u64);
        for vector in vectors.chunks_exact(command::IOV_SIZE) {
            let (base, len) = (u64_at(vector, 0), u64_at(vector, 8));
            if base < start || base.checked_add(len).is_none_or(|last| last > end) {
                return Err(Corrupt::Iovec { at, base, len });
            }
            segments.push(base as usize, len as usize);
        }
        Ok(segments)
    }

    fn cdb(&self, at: usize, len: usize, offset: u64) -> Result<SmallVec<[u8; 32]>, Corrupt> {
        let base = (self.ring_off + at) as u64;
        let room =
            offset.checked_sub(base).filter(|place| *place >= header::SIZE as u64 && *place < len as u64);
        let room = len - room.ok_or(Corrupt::Cdb { at, cdb: offset })? as usize;
        let mut bytes = SmallVec::from_elem(0, room.min(LONGEST_CDB));
        self.mapping.copy_out(offset as usize, &mut bytes);
        let wanted = match bytes.first().copied().unwrap_or_default() >> 5 {
            0 => 6,
            1 | 2 => 10,
            3 if bytes[0] == 0x7F => 8 + usize::from(bytes.get(7).copied().unwrap_or_default()),
            4 => 16,
            5 => 12,
            _ => bytes.len(),
        };
        bytes.truncate(wanted);
        Ok(bytes)
    }

    fn task_management(&self, at: usize, len: usize) -> Result<TaskManagement, Corrupt> {
        let base = self.ring_off + at;
        let mut fixed = [0; task_management::SIZE];
        self.mapping.copy_out(base, &mut fixed);
        let count = u64::from(u32_at(&fixed, task_management::CMD_CNT));
        if count > ((len - task_management::SIZE) / 2) as u64 {
            return Err(Corrupt::IovecCount { at, count, len });
        }
        let mut bytes = vec![0; count as usize * 2];
        self.mapping.copy_out(base + task_management::CMD_IDS, &mut bytes);
        let ids = bytes.chunks_exact(2).map(|pair| u16::from_ne_bytes([pair[0], pair[1]])).collect();
        let kind = match fixed[task_management::TYPE] {
            1 => TaskManagementKind::AbortTask,
            2 => TaskManagementKind::AbortTaskSet,
            3 => TaskManagementKind::ClearAca,
            4 => TaskManagementKind::ClearTaskSet,
            5 => TaskManagementKind::LunReset,
            6 => TaskManagementKind::TargetWarmReset,
            7 => TaskManagementKind::TargetColdReset,
            _ => TaskManagementKind::Unknown,
        };
        Ok(TaskManagement { kind, ids })
    }

    fn set_flags(&self, entry: usize, flags: u8) {
        // `cmd_id`, `kflags` and `uflags` share a word that nobody else writes while the entry is ours.
        let word = self.mapping.word32(entry + header::CMD_ID);
        let mut bytes = word.load(Ordering::Relaxed).to_ne_bytes();
        bytes[3] = flags;
        word.store(u32::from_ne_bytes(bytes), Ordering::Relaxed);
    }

    /// Answers a command: writes into the slot at the private tail; seen by the producer after [`Self::commit`].
    ///
    /// A command of another ring is left alone (and so answered by its own ring as dropped).
    pub fn complete(&mut self, mut command: Command, response: Response) {
        if !command.orphans.as_ref().is_some_and(|orphans| Arc::ptr_eq(orphans, &self.orphans)) {
            debug_assert!(false, "a command of another ring");
            return;
        }
        command.orphans = None;
        self.hide_stale_bytes(&command, &response);
        self.respond(command.id, &response);
    }

    /// Where the answer cannot say how little of the buffer is valid, the rest must not be an earlier command's bytes.
    fn hide_stale_bytes(&self, command: &Command, response: &Response) {
        let Some(valid) = response.transfer else { return };
        let buffer = if command.bidi.is_empty() { &command.data } else { &command.bidi };
        if response.status == 0 && valid < buffer.len() && (valid == 0 || !self.read_len) {
            buffer.fill(valid, buffer.len() - valid, 0);
        }
    }

    fn respond(&mut self, id: u16, response: &Response) {
        self.skip_to_command();
        let Some(slot) = self.slots.pop_front() else {
            debug_assert!(false, "more answers than commands");
            return;
        };
        let base = self.ring_off + self.tail;
        let mut bytes = [0; command::SIZE - header::SIZE];
        bytes[command::SCSI_STATUS - header::SIZE] = response.status;
        let mut flags = 0;
        if let Some(transfer) = response.transfer {
            flags = header::UFLAG_READ_LEN;
            let at = command::READ_LEN - header::SIZE;
            bytes[at..at + 4].copy_from_slice(&u32::try_from(transfer).unwrap_or(u32::MAX).to_ne_bytes());
        }
        let sense = &response.sense[..response.sense.len().min(command::SENSE_SIZE)];
        let at = command::SENSE - header::SIZE;
        bytes[at..at + sense.len()].copy_from_slice(sense);
        self.mapping.copy_in(base + header::SIZE, &bytes);
        let [low, high] = id.to_ne_bytes();
        let word = u32::from_ne_bytes([low, high, 0, flags]);
        self.mapping.word32(base + header::CMD_ID).store(word, Ordering::Relaxed);
        self.tail = (self.tail + slot.len) % self.ring_size;
        self.outstanding -= 1;
    }

    /// Moves the tail over entries that take no answer.
    fn skip_to_command(&mut self) {
        while let Some(slot) = self.slots.front().filter(|slot| !slot.command) {
            self.tail = (self.tail + slot.len) % self.ring_size;
            self.slots.pop_front();
        }
    }

    /// Publishes everything completed since the last call (tail, Release).
    pub fn commit(&mut self) -> Kick {
        let dropped = std::mem::take(&mut *self.orphans.lock().unwrap_or_else(PoisonError::into_inner));
        for id in dropped {
            self.respond(id, &Response::check_condition(&DROPPED));
        }
        self.skip_to_command();
        if self.tail == self.published {
            return Kick::Unneeded;
        }
        self.published = self.tail;
        self.mapping.word32(mailbox::CMD_TAIL).store(self.tail as u32, Ordering::Release);
        Kick::Needed
    }

    /// Commands taken and not yet completed.
    pub fn outstanding(&self) -> usize {
        self.outstanding
    }
}

/// Reads a cursor with Acquire and checks that it can be one.
pub(crate) fn cursor(mapping: &Mapping, at: usize, size: usize) -> Result<usize, Corrupt> {
    let value = mapping.word32(at).load(Ordering::Acquire) as usize;
    if value < size && value.is_multiple_of(8) {
        return Ok(value);
    }
    let cursor = if at == mailbox::CMD_HEAD { "cmd_head" } else { "cmd_tail" };
    Err(Corrupt::Cursor { cursor, value, size })
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_ne_bytes(word)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_ne_bytes(word)
}
