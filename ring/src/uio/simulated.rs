//! A kernel's end of a ring for tests of whoever consumes: memory and doorbells like a TCMU device's, without the kernel.
//!
//! It does what `target_core_user` does where a consumer can see it: the size of the ring is whatever one asks for, a filler
//! goes before an entry that does not fit the ring's end, ids and blocks are the lowest free ones, buffers hold what
//! earlier commands left in them, commands without room wait in line, answers are taken up when the consumer kicks, and
//! the device is opened by one at a time. It knows nothing of nexuses and directions. An answer that names no outstanding
//! command breaks the ring until it is reset.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{Claimed, Device, Identity, OpenDeviceError, OpenDeviceReason};
use crate::TaskManagementKind;
use crate::abi;
use crate::protocol::{Geometry, Giver, Marks, NoRoom, command_len, mailbox};
use crate::shm::{Mapping, create_sealed, page_size};

/// Bytes of a block of the data area.
pub const BLOCK: usize = 4096;

/// SAM-5 BUSY.
const BUSY: u8 = 0x08;
/// SAM-5 CHECK CONDITION.
const CHECK_CONDITION: u8 = 0x02;

/// How an outstanding command has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// SAM status.
    pub status: u8,
    /// With CHECK CONDITION from the consumer.
    pub sense: Option<[u8; abi::SENSE_LEN]>,
    /// What an initiator would get of data-in.
    pub data: Vec<u8>,
}

/// One device and its kernel.
pub struct Kernel {
    identity: Identity,
    memory: File,
    len: usize,
    state: Mutex<State>,
    answered: Condvar,
}

struct State {
    mapping: Arc<Mapping>,
    ring: Geometry,
    giver: Giver<Arc<Mapping>>,
    /// By id.
    outstanding: BTreeMap<u16, Outstanding>,
    /// Which blocks commands have.
    blocks: Vec<bool>,
    waiting: VecDeque<Waiting>,
    answers: BTreeMap<u64, Answer>,
    next: u64,
    events: u32,
    /// This end of the open device's file, and its memory.
    open: Option<(UnixStream, Weak<Mapping>)>,
    blocked: bool,
    broken: bool,
}

struct Outstanding {
    tag: u64,
    /// Runs of bytes, from the start of the mapping.
    runs: Vec<(u64, u64)>,
    data_in: bool,
    /// The kernel has given it up (`cmd_time_out`); its blocks stay taken until the consumer answers.
    expired: bool,
}

struct Waiting {
    tag: u64,
    cdb: Vec<u8>,
    data: Data,
}

/// A command's buffer.
#[derive(Clone, Debug)]
pub enum Data {
    /// None.
    None,
    /// Room for so many bytes.
    In(usize),
    /// These bytes.
    Out(Vec<u8>),
}

impl Data {
    fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::In(len) => *len,
            Self::Out(bytes) => bytes.len(),
        }
    }
}

impl Kernel {
    /// A device with a command ring of `ring` bytes (a multiple of 8) and so many blocks for data.
    pub fn new(identity: Identity, ring: u32, blocks: usize) -> io::Result<Arc<Self>> {
        let area = (abi::MAILBOX_LEN as usize + ring as usize).next_multiple_of(page_size());
        let len = (area + blocks * BLOCK).next_multiple_of(page_size());
        let memory = create_sealed(len as u64)?;
        let mapping = Arc::new(Mapping::new(&memory, len)?);
        // The command ring ends where the data area begins; a part of a page more than was asked for is the ring's.
        let ring = Geometry { base: abi::MAILBOX_LEN, size: ring };
        let flags = abi::CAP_OOOC | abi::CAP_READ_LEN | abi::CAP_TMR | abi::CAP_KEEP_BUF;
        mailbox::initialise(&*mapping, abi::MAILBOX_VERSION, flags, ring);
        let giver = Giver::new(Arc::clone(&mapping), ring);
        let state = State {
            blocks: vec![false; blocks],
            mapping,
            ring,
            giver,
            outstanding: BTreeMap::new(),
            waiting: VecDeque::new(),
            answers: BTreeMap::new(),
            next: 0,
            events: 0,
            open: None,
            blocked: false,
            broken: false,
        };
        Ok(Arc::new(Self { identity, memory, len, state: Mutex::new(state), answered: Condvar::new() }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What opening `/dev/uioN` and mapping it comes to; busy while the last one who did has it.
    pub fn claim(self: &Arc<Self>) -> Result<Claimed, OpenDeviceError> {
        self.try_claim().map_err(|reason| OpenDeviceError {
            number: 0,
            identity: self.identity.clone(),
            reason,
        })
    }

    fn try_claim(self: &Arc<Self>) -> Result<Claimed, OpenDeviceReason> {
        let failed = |source| OpenDeviceReason::Node { path: "/dev/uio0".into(), source };
        let mut state = self.lock();
        if state.open.as_ref().is_some_and(|(_, mapping)| mapping.strong_count() > 0) {
            return Err(OpenDeviceReason::Busy);
        }
        let (ours, theirs) = UnixStream::pair().map_err(failed)?;
        theirs.set_nonblocking(true).map_err(failed)?;
        ours.set_nonblocking(true).map_err(failed)?;
        let kicks = ours.try_clone().map_err(failed)?;
        let mapping = Arc::new(Mapping::new(&self.memory, self.len).map_err(failed)?);
        state.open = Some((ours, Arc::downgrade(&mapping)));
        drop(state);
        let kernel = Arc::downgrade(self);
        thread::Builder::new()
            .name("simulated-kernel".into())
            .spawn(move || take_kicks(kicks, &kernel))
            .map_err(failed)?;
        let device = Device::new(File::from(OwnedFd::from(theirs)), 0, self.identity.clone());
        Ok(Claimed { device, mapping })
    }

    /// Queues a command, or lets it wait for room; its number.
    pub fn send(&self, cdb: &[u8], data: Data) -> u64 {
        let mut state = self.lock();
        state.next += 1;
        let waiting = Waiting { tag: state.next, cdb: cdb.to_vec(), data };
        let tag = waiting.tag;
        if state.blocked {
            state.end(tag, BUSY);
            self.answered.notify_all();
            return tag;
        }
        state.waiting.push_back(waiting);
        state.queue();
        tag
    }

    /// Waits for the answer to a command; `None` after `limit`.
    pub fn wait(&self, tag: u64, limit: Duration) -> Option<Answer> {
        let state = self.lock();
        let waited =
            self.answered.wait_timeout_while(state, limit, |state| !state.answers.contains_key(&tag));
        waited.unwrap_or_else(PoisonError::into_inner).0.answers.remove(&tag)
    }

    /// Tells the consumer that these commands were aborted, as far as they are outstanding.
    pub fn notify(&self, kind: TaskManagementKind, tags: &[u64]) {
        let mut state = self.lock();
        let ids: Vec<u16> = state
            .outstanding
            .iter()
            .filter(|(_, command)| tags.contains(&command.tag))
            .map(|(id, _)| *id)
            .collect();
        let len = (abi::TMR_IDS_OFFSET as usize + ids.len() * 2).next_multiple_of(abi::ALIGN as usize);
        if let Ok(plan) = state.giver.plan(len) {
            state.giver.write_task_management(plan, kind as u8, &ids);
            state.publish();
        }
    }

    /// `cmd_time_out` has come: the initiator is told so, and the command stays in the ring.
    pub fn expire(&self, tag: u64) {
        let mut state = self.lock();
        for command in state.outstanding.values_mut().filter(|command| command.tag == tag) {
            command.expired = true;
        }
        state.end(tag, CHECK_CONDITION);
        self.answered.notify_all();
    }

    /// `block_dev`.
    pub fn set_blocked(&self, blocked: bool) {
        let mut state = self.lock();
        if blocked {
            state.take_answers();
            for waiting in std::mem::take(&mut state.waiting) {
                state.end(waiting.tag, BUSY);
            }
        }
        state.blocked = blocked;
        self.answered.notify_all();
    }

    /// `reset_ring`; 1 ends the commands BUSY, anything else CHECK CONDITION.
    pub fn reset_ring(&self, level: u8) {
        let mut state = self.lock();
        let status = if level == 1 { BUSY } else { CHECK_CONDITION };
        for command in std::mem::take(&mut state.outstanding).into_values() {
            state.free(&command.runs);
            if !command.expired {
                state.end(command.tag, status);
            }
        }
        mailbox::set_tail(&*state.mapping, 0);
        mailbox::set_head(&*state.mapping, 0);
        state.giver = Giver::new(Arc::clone(&state.mapping), state.ring);
        state.broken = false;
        state.queue();
        self.answered.notify_all();
    }

    /// Takes the device away from whoever has it open: `uio_unregister_device`.
    pub fn remove(&self) {
        if let Some((file, _)) = &self.lock().open {
            // It may be gone already.
            let _ = file.shutdown(std::net::Shutdown::Both);
        }
    }

    /// Whether the consumer has answered what was not outstanding.
    pub fn is_broken(&self) -> bool {
        self.lock().broken
    }

    /// Commands in the ring that are not answered.
    pub fn outstanding(&self) -> usize {
        self.lock().outstanding.len()
    }
}

/// Until the device is closed.
fn take_kicks(mut kicks: UnixStream, kernel: &Weak<Kernel>) {
    let mut word = [0; 4];
    loop {
        let mut fds = [PollFd::new(kicks.as_fd(), PollFlags::POLLIN)];
        let _ = poll(&mut fds, PollTimeout::NONE);
        match kicks.read(&mut word) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                continue;
            }
            Err(_) => return,
        }
        let Some(kernel) = kernel.upgrade() else { return };
        let mut state = kernel.lock();
        state.take_answers();
        state.queue();
        kernel.answered.notify_all();
    }
}

impl State {
    fn end(&mut self, tag: u64, status: u8) {
        self.answers.insert(tag, Answer { status, sense: None, data: Vec::new() });
    }

    /// Queues what waits, as long as there is room.
    fn queue(&mut self) {
        while let Some(first) = self.waiting.front() {
            let needed = first.data.len().div_ceil(BLOCK);
            let Some(runs) = self.find(needed, first.data.len()) else { break };
            let plan = match self.giver.plan(command_len(runs.len(), first.cdb.len())) {
                Ok(plan) => plan,
                Err(NoRoom::Now) => break,
                Err(NoRoom::Ever) => {
                    let tag = first.tag;
                    self.waiting.pop_front();
                    self.end(tag, CHECK_CONDITION);
                    continue;
                }
            };
            let id = (1..=u16::MAX).find(|id| !self.outstanding.contains_key(id));
            let (Some(id), Some(Waiting { tag, cdb, data })) = (id, self.waiting.pop_front()) else { break };
            self.mark(&runs, true);
            if let Data::Out(bytes) = &data {
                let mut from = &bytes[..];
                for (base, len) in &runs {
                    let (now, later) = from.split_at(*len as usize);
                    self.mapping.copy_in(*base as usize, now);
                    from = later;
                }
            }
            self.giver.write_command(plan, id, Marks::default(), &cdb, runs.iter().copied());
            let data_in = matches!(data, Data::In(_));
            self.outstanding.insert(id, Outstanding { tag, runs, data_in, expired: false });
        }
        self.publish();
    }

    fn publish(&mut self) {
        if self.giver.publish()
            && let Some((file, _)) = &mut self.open
        {
            self.events = self.events.wrapping_add(1);
            // Nobody may be there, or somebody who sleeps through a lot of events: either way there is one to be seen.
            let _ = file.write(&self.events.to_ne_bytes());
        }
    }

    fn data_start(&self) -> u64 {
        u64::from(self.ring.base + self.ring.size).next_multiple_of(page_size() as u64)
    }

    /// The lowest free blocks, neighbours as one run; the last one as long as the data needs.
    fn find(&self, needed: usize, len: usize) -> Option<Vec<(u64, u64)>> {
        let free: Vec<usize> =
            self.blocks.iter().enumerate().filter(|(_, taken)| !**taken).map(|(block, _)| block).collect();
        let (mut runs, mut left) = (Vec::<(u64, u64)>::new(), len as u64);
        for block in free.get(..needed)? {
            let (base, part) = (self.data_start() + (block * BLOCK) as u64, left.min(BLOCK as u64));
            left -= part;
            match runs.last_mut() {
                Some((start, len)) if *start + *len == base => *len += part,
                _ => runs.push((base, part)),
            }
        }
        Some(runs)
    }

    fn mark(&mut self, runs: &[(u64, u64)], taken: bool) {
        for (base, len) in runs {
            let first = ((base - self.data_start()) / BLOCK as u64) as usize;
            for block in &mut self.blocks[first..first + (*len as usize).div_ceil(BLOCK)] {
                *block = taken;
            }
        }
    }

    fn free(&mut self, runs: &[(u64, u64)]) {
        self.mark(runs, false);
    }

    /// Finishes what the consumer has answered.
    fn take_answers(&mut self) {
        if self.broken {
            return;
        }
        let Ok(tail) = self.giver.load_tail() else {
            self.broken = true;
            return;
        };
        loop {
            let answer = match self.giver.next_answer(tail) {
                Ok(Some(answer)) => answer,
                Ok(None) => return,
                Err(_cause) => break,
            };
            let Some(command) = self.outstanding.remove(&answer.id) else { break };
            if !command.expired {
                let len: u64 = command.runs.iter().map(|(_, len)| len).sum();
                let len = match answer.uflags & abi::UFLAG_READ_LEN {
                    0 if answer.status == CHECK_CONDITION => 0,
                    0 => len,
                    _ if answer.read_len == 0 && answer.status == CHECK_CONDITION => 0,
                    _ if answer.read_len == 0 => len,
                    _ => len.min(answer.read_len.into()),
                };
                let data =
                    if command.data_in { self.gather(&command.runs, len as usize) } else { Vec::new() };
                let answer = Answer { status: answer.status, sense: answer.sense, data };
                self.answers.insert(command.tag, answer);
            }
            self.free(&command.runs);
        }
        self.broken = true;
    }

    fn gather(&self, runs: &[(u64, u64)], len: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (base, run) in runs {
            let start = bytes.len();
            bytes.resize(start + *run as usize, 0);
            self.mapping.copy_out(*base as usize, &mut bytes[start..]);
        }
        bytes.truncate(len);
        bytes
    }
}
