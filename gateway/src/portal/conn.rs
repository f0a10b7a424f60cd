//! The protocol core of one connection in the full feature phase (RFC 7143 sections 4.2 and 11).
//!
//! No sockets, no runtime: bytes come from and go to a [`Stream`], time and the waker are handed in, and [`turn`] does
//! everything that can be done now:
//!
//! ```text
//!  inbox ──► completions → answers           stream ──► receiver ──► place() → whole() → deliver()
//!            events → aborts, closing                                  │          │         in CmdSN order
//!  waiting ► blocks, room in the ring                                  │          └► control, management
//!                                                        task's blocks ◄┘             commands → port.push
//!  … then once: publish what was pushed, write what is queued.
//! ```
//!
//! [`turn`]: Connection::turn

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use ring::Completion;
use smallvec::SmallVec;

use super::alive::{Alive, Verdict};
use super::inbox::{End, Event, Inbox, Ticket};
use super::keys::Negotiated;
use super::luns::Luns;
use super::management::{Managing, Notice};
use super::pdu::{DataOut, Header, NopOut, Reject, ScsiCommand, TextRequest};
use super::receive::{Arrival, Place, Receiver};
use super::stats::Shared;
use super::stream::Stream;
use super::target::{Parameters, Target};
use super::task::{Key, Tasks};
use super::transmit::Transmit;
use super::window::Window;

/// PDUs taken in one turn, so that one connection cannot hold up its reactor.
const BUDGET: usize = 128;
/// PDUs waiting to go out from which on nothing more is read.
const BACKLOG: usize = 1024;
/// Longest data segment taken of a NOP-Out or text request.
pub(super) const KEPT: usize = 16 * 1024;

/// Who is connected to what.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) initiator: String,
    pub(crate) tsih: u16,
    pub(crate) cid: u16,
    /// `None` for discovery.
    pub(crate) target: Option<Arc<Target>>,
    pub(crate) local: SocketAddr,
}

/// What the PDU that is coming in will be when it is whole.
#[derive(Debug)]
pub(super) enum Incoming {
    /// What its opcode says.
    Plain,
    /// A SCSI command, in the table already.
    Command(Key),
    /// Data for a task: unsolicited, or for the R2T with this tag.
    Data(Key, Option<u32>),
    /// Nothing: taken and thrown away.
    Ignore,
    /// Something to refuse.
    Refuse(u8),
}

/// Something that has come before its turn.
#[derive(Debug)]
pub(super) enum Delivery {
    /// A command.
    Command(Key),
    /// Another request with its data segment.
    Request(Header, Vec<u8>),
    /// A number that stands for nothing any more.
    Nothing,
}

/// What a turn ended with.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Wait for the stream, the waker or the next tick. `blocked`: bytes are left to write.
    Wait { blocked: bool },
    /// There is more to do, let others have a turn.
    Again,
    /// The connection is over.
    Ended(End),
}

/// One connection, which is one session.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(super) shared: Arc<Shared>,
    pub(super) session: Session,
    pub(super) agreed: Negotiated,
    pub(super) parameters: Parameters,
    pub(super) receiver: Receiver,
    pub(super) transmit: Transmit,
    pub(super) window: Window,
    pub(super) tasks: Tasks,
    pub(super) luns: Luns,
    pub(super) inbox: Arc<Inbox>,
    pub(super) held: BTreeMap<u32, Delivery>,
    pub(super) held_bytes: usize,
    pub(super) incoming: Incoming,
    /// Additional header segments of that PDU.
    ahs: SmallVec<[u8; 16]>,
    /// Tasks that wait for blocks or room, first come first served.
    pub(super) waiting: VecDeque<Key>,
    /// What an ended command held back is being started.
    pub(super) starting: bool,
    /// LUNs with something to publish.
    pub(super) dirty: SmallVec<[usize; 8]>,
    pub(super) managing: Vec<Managing>,
    pub(super) notices: Vec<Notice>,
    pub(super) serial: u32,
    pub(super) text: super::control::TextExchange,
    pub(super) next_transfer_tag: u32,
    /// Close when everything queued is out.
    pub(super) closing: Option<End>,
    pub(super) logging_out: bool,
    /// It has been asked to log out, or is for discovery, and is closed then.
    pub(super) logout_by: Option<Instant>,
    alive: Alive,
    pub(super) now: Instant,
    pub(super) waker: Waker,
    completions: Vec<Completion<Ticket>>,
    events: Vec<Event>,
}

impl Connection {
    pub(crate) fn new(
        shared: Arc<Shared>,
        session: Session,
        agreed: Negotiated,
        window: Window,
        inbox: Arc<Inbox>,
        luns: Luns,
        now: Instant,
    ) -> Self {
        let parameters = session.target.as_ref().map(|target| target.parameters.clone()).unwrap_or_default();
        let mut connection = Self {
            receiver: Receiver::full_feature(agreed.header_digest, agreed.data_digest),
            transmit: Transmit::new(
                agreed.header_digest,
                agreed.data_digest,
                agreed.max_send_segment as usize,
                agreed.max_burst as usize,
            ),
            shared,
            session,
            agreed,
            window,
            tasks: Tasks::default(),
            luns,
            inbox,
            held: BTreeMap::new(),
            held_bytes: 0,
            incoming: Incoming::Plain,
            ahs: SmallVec::new(),
            waiting: VecDeque::new(),
            starting: false,
            dirty: SmallVec::new(),
            managing: Vec::new(),
            notices: Vec::new(),
            serial: 0,
            text: super::control::TextExchange::default(),
            next_transfer_tag: 0,
            closing: None,
            logging_out: false,
            logout_by: None,
            alive: Alive::new(now),
            now,
            waker: Waker::noop().clone(),
            completions: Vec::new(),
            events: Vec::new(),
            parameters,
        };
        if connection.session.target.is_none() {
            // It is for asking once, and may need no proof: nobody holds a place with it.
            connection.logout_by = Some(now + connection.shared.limits.discovery_time);
        }
        connection.set_tick();
        connection.window.refresh(0);
        connection
    }

    /// When [`Self::turn`] wants to be called although nothing has happened.
    pub(crate) fn next_tick(&self) -> Instant {
        self.alive.next_tick()
    }

    /// Does everything that can be done now.
    pub(crate) fn turn(&mut self, stream: &mut dyn Stream, waker: &Waker, now: Instant) -> Turn {
        self.now = now;
        self.waker.clone_from(waker);
        let (pdus, bytes) = (self.transmit.pdus, self.transmit.bytes);
        let copied = self.transmit.copied + self.receiver.copied;
        let turn = match self.try_turn(stream) {
            Ok(turn) => turn,
            Err(end) => {
                self.last_words(end, stream);
                Turn::Ended(end)
            }
        };
        self.shared.stats.sent(self.transmit.pdus - pdus, self.transmit.bytes - bytes);
        self.shared.stats.copied(self.transmit.copied + self.receiver.copied - copied);
        turn
    }

    fn try_turn(&mut self, stream: &mut dyn Stream) -> Result<Turn, End> {
        self.collect()?;
        if !self.waiting.is_empty() || !self.notices.is_empty() {
            self.retry();
        }
        let more = self.receive(stream)?;
        self.publish();
        if self.now >= self.alive.next_tick() {
            self.tick()?;
        }
        if self.window.refresh(self.tasks.len()) && self.transmit.is_empty() {
            self.tell_window();
        }
        let before = self.transmit.bytes;
        let done = self.transmit.run(stream, &mut self.window).map_err(|_broken| End::Socket)?;
        self.alive.wrote(self.transmit.bytes > before, done, self.now);
        match self.closing {
            Some(end) if done => Ok(Turn::Ended(end)),
            _ if more && done => Ok(Turn::Again),
            _ => Ok(Turn::Wait { blocked: !done }),
        }
    }

    fn collect(&mut self) -> Result<(), End> {
        let mut completions = std::mem::take(&mut self.completions);
        let mut events = std::mem::take(&mut self.events);
        self.inbox.collect(&self.waker, &mut completions, &mut events);
        for completion in completions.drain(..) {
            self.complete(completion);
        }
        let mut outcome = Ok(());
        for event in events.drain(..) {
            match outcome {
                Ok(()) => outcome = self.event(event),
                // Its hold still has to wait for what is in the rings; closing the inbox sees to that.
                Err(_) => self.inbox.post(event),
            }
        }
        (self.completions, self.events) = (completions, events);
        outcome
    }

    fn event(&mut self, event: Event) -> Result<(), End> {
        match event {
            Event::Abort { port, hold, cleared } => self.abort_at(&port, &hold, cleared),
            Event::Released(serial) => self.released(serial),
            Event::Failed(port) => self.fail_port(&port),
            Event::Close { end, hold } => {
                if let Some(hold) = hold {
                    self.hold_all(&hold);
                }
                return Err(end);
            }
            Event::Logout { enforce } => self.ask_logout(enforce),
            Event::Retarget(target) => self.retarget(target),
        }
        Ok(())
    }

    fn retarget(&mut self, target: Arc<Target>) {
        if let Some(grant) = target.access.grant(&self.session.initiator) {
            self.luns.retarget(&target, &grant.view, &self.inbox);
        }
        self.parameters = target.parameters.clone();
        self.session.target = Some(target);
        self.set_tick();
    }

    fn receive(&mut self, stream: &mut dyn Stream) -> Result<bool, End> {
        let mut pdus = 0;
        let result = loop {
            if self.closing.is_some() {
                break Ok(false);
            }
            if pdus == BUDGET || self.transmit.backlog() > BACKLOG {
                break Ok(true);
            }
            match self.receiver.next(stream, &mut self.tasks) {
                Ok(None) => break Ok(false),
                Ok(Some(arrival)) => {
                    pdus += 1;
                    if let Err(end) = self.arrived(arrival) {
                        break Err(end);
                    }
                }
                Err(_broken) => break Err(End::Socket),
            }
        };
        if pdus > 0 {
            self.alive.heard(self.now);
            self.shared.stats.received(pdus as u64);
        }
        result
    }

    fn arrived(&mut self, arrival: Arrival) -> Result<(), End> {
        match arrival {
            Arrival::Header(header) => {
                // Longer than declared: the framing itself cannot be trusted (RFC 7143 section 7.7).
                if header.data_len() > self.agreed.max_recv_segment as usize {
                    return Err(End::Protocol);
                }
                self.ahs.clear();
                self.ahs.extend_from_slice(self.receiver.ahs());
                let place = self.place(&header);
                if header.data_len() > 0 {
                    self.receiver.begin(header, place);
                    return Ok(());
                }
                self.whole(&header, Vec::new(), true)
            }
            Arrival::Body { header, kept, intact } => {
                self.shared.stats.received_bytes(header.data_len());
                self.whole(&header, kept, intact)
            }
            Arrival::HeaderDigest => {
                self.shared.stats.digest_error();
                Err(End::Protocol)
            }
            Arrival::Closed => Err(End::Initiator),
        }
    }

    /// Decides, by the header alone, where the data segment goes and what the PDU will be.
    fn place(&mut self, header: &Header) -> Place {
        self.incoming = Incoming::Plain;
        let small = header.data_len() <= KEPT;
        // Additional header segments are a command's alone (section 11.2.2).
        if header.ahs_len() > 0 && header.opcode() != ScsiCommand::OPCODE {
            self.incoming = Incoming::Refuse(Reject::INVALID_FIELD);
            return Place::Discard;
        }
        match header.opcode() {
            ScsiCommand::OPCODE => self.place_command(header),
            DataOut::OPCODE => self.place_data(header),
            NopOut::OPCODE | TextRequest::OPCODE if small => Place::Keep,
            NopOut::OPCODE | TextRequest::OPCODE => {
                self.incoming = Incoming::Refuse(Reject::LONG_OPERATION);
                Place::Discard
            }
            _ => Place::Discard,
        }
    }

    /// A PDU is here with all of its data.
    fn whole(&mut self, header: &Header, kept: Vec<u8>, intact: bool) -> Result<(), End> {
        let incoming = std::mem::replace(&mut self.incoming, Incoming::Plain);
        if !intact {
            self.shared.stats.digest_error();
            self.reject(header, Reject::DATA_DIGEST);
        }
        match incoming {
            Incoming::Ignore => Ok(()),
            // Discarded as if it had never come (RFC 7143 section 7.8).
            Incoming::Plain | Incoming::Refuse(_) if !intact => Ok(()),
            // Section 4.2.2.1: outside the window, or there before; not a word about it, whatever else is wrong.
            Incoming::Plain | Incoming::Refuse(_) if self.out_of_place(header) => Ok(()),
            Incoming::Refuse(reason) => {
                self.reject(header, reason);
                self.skip_number(header)
            }
            Incoming::Command(key) => self.whole_command(header, key, intact),
            Incoming::Data(key, request) => {
                self.whole_data(key, request, header, intact);
                Ok(())
            }
            Incoming::Plain => self.request(header, kept),
        }
    }

    /// Refuses a PDU; its complete header, without the digest, goes back with the reason (RFC 7143 section 11.17).
    pub(super) fn reject(&mut self, header: &Header, reason: u8) {
        self.shared.stats.rejected();
        let reject = Reject { reason, task_tag: super::pdu::NO_TAG, ..Reject::default() };
        let mut bad = header.0.to_vec();
        // What has waited for its turn had none.
        if header.ahs_len() > 0 {
            bad.extend_from_slice(&self.ahs);
            // No segment is longer than the initiator takes (section 13.12).
            bad.truncate(self.agreed.max_send_segment as usize);
        }
        self.transmit.status(reject.encode(), bad);
    }

    pub(super) fn mark_dirty(&mut self, at: usize) {
        let lun = self.luns.get(at);
        if !lun.dirty {
            lun.dirty = true;
            self.dirty.push(at);
        }
    }

    fn publish(&mut self) {
        for at in std::mem::take(&mut self.dirty) {
            let lun = self.luns.get(at);
            lun.dirty = false;
            lun.port.publish();
        }
    }

    fn set_tick(&mut self) {
        let ours =
            [self.parameters.nop_interval, self.parameters.nop_timeout, self.parameters.data_out_timeout];
        let queue = self.luns.iter_mut().map(|lun| lun.port.qfull_timeout());
        self.alive.set_tick(ours.into_iter().chain(queue), self.now);
    }

    fn tick(&mut self) -> Result<(), End> {
        let (tasks, notices) = (&self.tasks, &self.notices);
        self.luns.let_go(|at| {
            tasks.iter().any(|task| task.at == at) || notices.iter().any(|notice| notice.at == at)
        });
        self.expire();
        if self.logout_by.is_some_and(|limit| limit <= self.now) {
            return Err(End::Overdue);
        }
        match self.alive.tick(&self.parameters, self.now) {
            Verdict::Fine => Ok(()),
            Verdict::Ask => {
                self.send_ping();
                Ok(())
            }
            Verdict::Gone => Err(End::Silent),
        }
    }
}

impl Drop for Connection {
    /// Nothing of a connection that is gone is answered; what is in the rings ends there.
    fn drop(&mut self) {
        self.abandon();
    }
}
