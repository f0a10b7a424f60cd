//! The life of a SCSI command at the portal: header, blocks, data, ring, answer.
//!
//! ```text
//!  place_command ─ blocks for what comes unasked ─► whole_command ─ in CmdSN order ─► start ─ task attributes ─► advance
//!  advance: Collecting (unsolicited data) → Blocks (the rest) → Soliciting (R2Ts) → push → Running → complete
//! ```
//!
//! A command that cannot go on is answered by `fail`; one that was aborted just ends. Nothing here copies data.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ring::{AllocateError, Completion, Direction, Extent, RejectedReason, Request};
use smallvec::SmallVec;

use super::bank::Turn;
use super::conn::{Connection, Delivery, Incoming};
use super::inbox::{End, Ticket};
use super::pdu::{Header, Reject, ScsiCommand, ScsiResponse};
use super::receive::Place;
use super::sense::{self, Sense};
use super::task::{Failure, Key, State, Task, Tasks, Transfer};
use super::transmit::Outcome;
use super::window::Standing;

/// SAM statuses.
const GOOD: u8 = 0x00;
const TASK_ABORTED: u8 = 0x40;
const CHECK_CONDITION: u8 = 0x02;
const CONDITION_MET: u8 = 0x04;
const TASK_SET_FULL: u8 = 0x28;

/// Data-out up to this size gets all its blocks when the command comes, in one piece; of a longer command, only what
/// comes unasked does.
const AT_ONCE: usize = 1 << 20;

/// Longest CDB (RFC 7143 section 11.2.2.4: 16 bytes and an AHS).
const MAX_CDB: usize = 260;

impl Connection {
    /// Enters a command in the table and finds the place of its immediate data.
    pub(super) fn place_command(&mut self, header: &Header) -> Place {
        let command = ScsiCommand::decode(header);
        let cdb = self.admit(&command);
        let cdb = match cdb {
            Ok(cdb) => cdb,
            Err(incoming) => {
                self.incoming = incoming;
                return Place::Discard;
            }
        };
        let (cdb, bidirectional) = cdb;
        let mut task = self.new_task(&command, cdb);
        task.bidirectional = bidirectional;
        let immediate = header.data_len();
        let rest =
            if command.last { immediate } else { self.agreed.unsolicited(task.expected).max(immediate) };
        task.transfer.unsolicited = rest;
        // Nothing comes for a command that writes nothing, whatever its F bit says.
        task.transfer.unsolicited_done = command.last || !command.write;
        task.failure = self.judge(&command, immediate, &task);
        if task.failure.is_none() && rest > 0 {
            match self.unasked_blocks(&task, rest) {
                Ok(extent) => task.extent = extent,
                Err(AllocateError::TooLarge) => task.failure = Some(Failure::Sense(Sense::INVALID_FIELD)),
                Err(AllocateError::Exhausted) => task.failure = Some(Failure::Full),
            }
        }
        let failed = task.failure.is_some();
        let key = self.tasks.insert(task);
        self.incoming = Incoming::Command(key);
        if failed { Place::Discard } else { Place::Task(key.slot, 0) }
    }

    /// Whether the command is taken at all; its CDB.
    fn admit(&self, command: &ScsiCommand) -> Result<(SmallVec<[u8; 16]>, Option<u32>), Incoming> {
        if !command.immediate {
            let known = self.held.contains_key(&command.cmd_sn);
            if known || self.window.standing(command.cmd_sn) == Standing::Outside {
                return Err(Incoming::Ignore);
            }
        }
        if self.session.target.is_none() {
            return Err(Incoming::Refuse(Reject::PROTOCOL));
        }
        if self.logging_out {
            return Err(Incoming::Refuse(Reject::WAITING_FOR_LOGOUT));
        }
        if command.task_tag == super::pdu::NO_TAG {
            return Err(Incoming::Refuse(Reject::INVALID_FIELD));
        }
        if self.tasks.by_tag(command.task_tag).is_some() {
            return Err(Incoming::Refuse(Reject::TASK_IN_PROGRESS));
        }
        let crowded = self.tasks.len() >= Tasks::MOST
            || command.immediate && self.tasks.immediate() >= Tasks::MOST_IMMEDIATE;
        if crowded {
            return Err(Incoming::Refuse(Reject::TOO_MANY_IMMEDIATE));
        }
        segments(command, self.receiver.ahs()).ok_or(Incoming::Refuse(Reject::INVALID_FIELD))
    }

    fn new_task(&mut self, command: &ScsiCommand, cdb: SmallVec<[u8; 16]>) -> Task {
        Task {
            serial: 0,
            tag: command.task_tag,
            lun: command.lun,
            at: self.luns.route(command.lun),
            cmd_sn: command.cmd_sn,
            immediate: command.immediate,
            cdb,
            read: command.read,
            write: command.write,
            attribute: command.attribute,
            bidirectional: None,
            expected: if command.read || command.write { command.expected_len as usize } else { 0 },
            extent: Extent::default(),
            state: State::Arriving,
            transfer: Transfer::default(),
            failure: None,
            deadline: None,
            aborted: false,
            holds: SmallVec::new(),
            started: false,
        }
    }

    /// What can be said against a command before any of its data is here.
    fn judge(&mut self, command: &ScsiCommand, immediate: usize, task: &Task) -> Option<Failure> {
        let sense = if let Some(sense) = self.luns.get(task.at).port.failure() {
            sense
        } else if command.attribute > 3 {
            Sense::INVALID_MESSAGE
        } else if command.read && command.write {
            Sense::INVALID_FIELD
        } else if (immediate > 0 || !command.last) && !command.write
            || immediate > 0 && !self.agreed.immediate_data
            || !command.last && self.agreed.initial_r2t
        {
            Sense::UNEXPECTED_DATA
        } else if immediate > task.expected || immediate > self.agreed.first_burst as usize {
            Sense::WRONG_AMOUNT
        } else {
            return None;
        };
        Some(Failure::Sense(sense))
    }

    fn unasked_blocks(&mut self, task: &Task, unasked: usize) -> Result<Extent, AllocateError> {
        let port = Arc::clone(&self.luns.get(task.at).port);
        // In whole blocks, so that the rest can be joined.
        let unasked = unasked.next_multiple_of(port.producer().block()).min(task.expected);
        let whole = if task.expected <= AT_ONCE { task.expected } else { unasked };
        match port.producer().try_allocate(whole) {
            Err(AllocateError::Exhausted) => {
                self.window.unsolicited(port.producer(), unasked, !task.immediate)
            }
            other => other,
        }
    }

    /// The command's own PDU is here.
    pub(super) fn whole_command(&mut self, header: &Header, key: Key, intact: bool) -> Result<(), End> {
        if !intact {
            // As if it had never come (RFC 7143 section 7.8): its number stays open, the initiator may send it again.
            self.end(key);
            return Ok(());
        }
        if let Some(task) = self.tasks.get_mut(key) {
            task.transfer.arrived = header.data_len();
        }
        self.in_order(header, |_kept| Delivery::Command(key), Vec::new())?;
        // A number outside the window has been found out before; one taken meanwhile leaves the command nowhere.
        let lost = self.tasks.get(key).is_some_and(|task| matches!(task.state, State::Arriving))
            && !matches!(self.held.get(&header.word(24)), Some(Delivery::Command(held)) if *held == key);
        if lost {
            self.end(key);
        }
        Ok(())
    }

    /// The command's turn has come.
    pub(super) fn start(&mut self, key: Key) {
        let Some(task) = self.tasks.get_mut(key) else { return };
        if self.luns.get(task.at).enter(key, task.attribute) {
            task.started = true;
            self.advance(key);
        } else {
            task.state = State::Ordered;
        }
    }

    /// Takes a started command one step further.
    pub(super) fn advance(&mut self, key: Key) {
        let (deadline, now) = (self.now + self.parameters.data_out_timeout, self.now);
        let Some(task) = self.tasks.get_mut(key) else { return };
        if !task.transfer.unsolicited_done {
            task.state = State::Collecting;
            task.deadline = Some(deadline);
            return;
        }
        if let Some(failure) = task.failure {
            return self.fail(key, failure);
        }
        if task.extent.len() < task.expected {
            let port = &self.luns.get(task.at).port;
            let missing = task.expected - task.extent.len();
            match port.producer().try_allocate(missing) {
                Ok(more) => task.extent.append(more),
                Err(AllocateError::TooLarge) => return self.fail(key, Failure::Sense(Sense::INVALID_FIELD)),
                Err(AllocateError::Exhausted) => {
                    task.deadline = Some(now + port.qfull_timeout());
                    task.state = State::Blocks(port.producer().allocate(missing));
                    self.waiting.push_back(key);
                    // Registers the waker.
                    return self.poll_blocks(key);
                }
            }
        }
        if task.write && task.transfer.arrived < task.expected {
            task.transfer.requested = task.transfer.arrived;
            task.state = State::Soliciting;
            task.deadline = Some(deadline);
            return self.send_requests(key);
        }
        self.push(key);
    }

    fn poll_blocks(&mut self, key: Key) {
        let mut context = Context::from_waker(&self.waker);
        let Some(task) = self.tasks.get_mut(key) else { return };
        let State::Blocks(allocate) = &mut task.state else { return };
        match Pin::new(allocate).poll(&mut context) {
            Poll::Pending => {}
            Poll::Ready(Ok(more)) => {
                task.extent.append(more);
                self.advance(key);
            }
            Poll::Ready(Err(_too_large)) => self.fail(key, Failure::Sense(Sense::INVALID_FIELD)),
        }
    }

    /// Everything is here: into the ring.
    fn push(&mut self, key: Key) {
        let Some(task) = self.tasks.get_mut(key) else { return };
        let lun = self.luns.get(task.at);
        if let Some(sense) = lun.port.failure() {
            return self.fail(key, Failure::Sense(sense));
        }
        let guard = task.may_write().then(|| lun.guard(&self.inbox));
        let ticket = Ticket {
            inbox: Arc::clone(&self.inbox),
            slot: key.slot as u32,
            serial: key.serial,
            _guard: guard,
        };
        // A buffer that the initiator did not fill is room, whatever the CDB says.
        task.extent.set_direction(if task.write { Direction::Out } else { Direction::In });
        let request = Request {
            cdb: &task.cdb,
            nexus: self.inbox.nexus(),
            data: std::mem::take(&mut task.extent),
            context: ticket,
        };
        match lun.port.producer().push(request) {
            Ok(id) => {
                task.state = State::Running(id);
                task.deadline = None;
                let at = task.at;
                self.mark_dirty(at);
            }
            Err(rejected) => {
                task.extent = rejected.data;
                match rejected.reason {
                    RejectedReason::Full => {
                        if !matches!(task.state, State::Room) {
                            task.deadline = Some(self.now + lun.port.qfull_timeout());
                            task.state = State::Room;
                            self.waiting.push_back(key);
                        }
                        if !lun.port.producer().wait_room(&self.waker) {
                            // Room has come up meanwhile.
                            self.waker.wake_by_ref();
                        }
                    }
                    RejectedReason::TooLarge => self.fail(key, Failure::Sense(Sense::INVALID_FIELD)),
                    RejectedReason::Closed => self.fail(key, Failure::Sense(Sense::FAILED)),
                }
            }
        }
    }

    /// Tries again what waited for blocks or room.
    pub(super) fn retry(&mut self) {
        for _ in 0..self.waiting.len() {
            let Some(key) = self.waiting.pop_front() else { break };
            match self.tasks.get(key).map(|task| &task.state) {
                Some(State::Blocks(_)) => self.poll_blocks(key),
                Some(State::Room) => self.push(key),
                _ => continue,
            }
            let waits = |task: &Task| matches!(task.state, State::Blocks(_) | State::Room);
            if self.tasks.get(key).is_some_and(waits) && !self.waiting.contains(&key) {
                self.waiting.push_back(key);
            }
        }
        self.send_notices();
    }

    /// Ends commands whose time has run out, and one that holds memory others wait for while it waits itself, when nothing
    /// of it has come back for a while: each of them would wait for the others.
    pub(super) fn expire(&mut self) {
        let now = self.now;
        let holders =
            self.tasks.select(|task| matches!(task.state, State::Blocks(_)) && !task.extent.is_empty());
        // The last come goes first.
        if let Some(key) = holders.into_iter().max_by_key(|key| key.serial)
            && let Some(at) = self.tasks.get(key).map(|task| task.at)
        {
            let released = self.luns.get(at).port.producer().pool().usage().released;
            let id = (Arc::as_ptr(&self.inbox) as usize, key.serial);
            match self.shared.standstill.ask(released, id, now) {
                Turn::Wait => {}
                // What the session has set aside for commands to come would keep this one waiting.
                Turn::Stay => self.window.give_up_credit(),
                Turn::Yield => self.fail(key, Failure::Full),
            }
        }
        for key in self.tasks.select(|task| task.deadline.is_some_and(|deadline| deadline <= now)) {
            let Some(task) = self.tasks.get(key) else { continue };
            let failure = match task.state {
                State::Blocks(_) | State::Room => Failure::Full,
                // The initiator owes data.
                State::Collecting | State::Soliciting => {
                    task.failure.unwrap_or(Failure::Sense(Sense::WRONG_AMOUNT))
                }
                _ => continue,
            };
            self.fail(key, failure);
        }
    }

    /// The ring has answered.
    pub(super) fn complete(&mut self, completion: Completion<Ticket>) {
        let Ticket { slot, serial, .. } = completion.context;
        let Some(task) = self.end(Key { slot: slot as usize, serial }) else { return };
        // SAM-5, TAS: what another nexus has ended is answered, or is not. (The owner's answer can overtake the event that
        // tells of it.)
        let mut untold = || !self.luns.get(task.at).port.answers_aborted();
        if task.aborted || completion.status == TASK_ABORTED && untold() {
            return;
        }
        let plain = matches!(completion.status, GOOD | CONDITION_MET);
        if completion.unknown_op {
            return self.respond_sense(&task, &Sense::UNKNOWN.fixed());
        }
        let sense = completion.sense.as_ref().map(|sense| &sense[..sense::len(sense)]).unwrap_or_default();
        // Said by the owner, else: all of it, except that a READ which failed moved nothing.
        let usual = if plain || !task.read { task.expected } else { 0 };
        let transfer = completion.transfer.map_or(usual, |transfer| transfer as usize);
        let outcome = Outcome { status: completion.status, transfer, expected: task.expected };
        let len = if task.read { transfer.min(task.expected).min(completion.data.len()) } else { 0 };
        let collapse = len > 0 && plain && sense.is_empty();
        let mut data_pdus = task.transfer.r2t_sn;
        if len > 0 {
            data_pdus = self.transmit.data_in(task.tag, completion.data, len, collapse.then_some(outcome));
        }
        if !collapse {
            self.respond(&task, outcome, sense, data_pdus);
        }
    }

    /// The portal's own answer to a command that does not go on.
    pub(super) fn fail(&mut self, key: Key, failure: Failure) {
        let Some(task) = self.end(key) else { return };
        if task.aborted {
            return;
        }
        match failure {
            Failure::Sense(sense) => self.respond_sense(&task, &sense.fixed()),
            Failure::Full | Failure::Aborted => {
                let status = if failure == Failure::Full { TASK_SET_FULL } else { TASK_ABORTED };
                let transfer = if task.read { 0 } else { task.expected };
                let outcome = Outcome { status, transfer, expected: task.expected };
                self.respond(&task, outcome, &[], task.transfer.r2t_sn);
            }
        }
    }

    fn respond_sense(&mut self, task: &Task, sense: &[u8]) {
        let transfer = if task.read { 0 } else { task.expected };
        let outcome = Outcome { status: CHECK_CONDITION, transfer, expected: task.expected };
        self.respond(task, outcome, sense, task.transfer.r2t_sn);
    }

    fn respond(&mut self, task: &Task, outcome: Outcome, sense: &[u8], data_pdus: u32) {
        let (overflow, underflow, residual) = outcome.residual();
        let response = ScsiResponse {
            overflow,
            underflow,
            residual,
            // A command that reads and writes is refused: nothing of its read part comes (section 11.4.5.2).
            bidirectional_underflow: task.bidirectional.is_some_and(|expected| expected > 0),
            bidirectional_residual: task.bidirectional.unwrap_or(0),
            status: outcome.status,
            task_tag: task.tag,
            exp_data_sn: data_pdus,
            ..ScsiResponse::default()
        };
        let mut segment = Vec::new();
        if !sense.is_empty() {
            segment.extend_from_slice(&(sense.len() as u16).to_be_bytes());
            segment.extend_from_slice(sense);
        }
        self.transmit.status(response.encode(), segment);
    }

    /// Takes a command out of the table, whatever its state; what it held back may start.
    pub(super) fn end(&mut self, key: Key) -> Option<Task> {
        let task = self.tasks.remove(key)?;
        self.receiver.forget(key.slot);
        if task.started {
            self.luns.get(task.at).leave();
            // One that fails as it starts comes here again: a long line of them must not become a deep stack.
            if std::mem::replace(&mut self.starting, true) {
                return Some(task);
            }
            while let Some(next) = self.luns.get(task.at).next() {
                match self.tasks.get_mut(next) {
                    Some(task) => {
                        task.started = true;
                        self.advance(next);
                    }
                    None => self.luns.get(task.at).leave(),
                }
            }
            self.starting = false;
        }
        Some(task)
    }
}

/// The whole CDB and the bidirectional read length, or `None` when the AHS are not what section 11.2.2 has: at most one
/// extended CDB, and for a command that reads and writes at most one read length.
fn segments(command: &ScsiCommand, mut ahs: &[u8]) -> Option<(SmallVec<[u8; 16]>, Option<u32>)> {
    let mut cdb = SmallVec::from_slice(&command.cdb);
    let mut read_len = None;
    while !ahs.is_empty() {
        let (head, rest) = ahs.split_at_checked(4)?;
        // The length counts the reserved byte; padding reaches the next word.
        let len = usize::from(u16::from_be_bytes([head[0], head[1]])).checked_sub(1)?;
        let (value, next) = rest.split_at_checked(len.next_multiple_of(4))?;
        match head[2] & 0x3f {
            1 if len > 0 && cdb.len() == 16 && 16 + len <= MAX_CDB => cdb.extend_from_slice(&value[..len]),
            2 if len == 4 && read_len.is_none() && command.read && command.write => {
                read_len = Some(u32::from_be_bytes(*value.first_chunk()?));
            }
            _ => return None,
        }
        ahs = next;
    }
    Some((cdb, read_len))
}
