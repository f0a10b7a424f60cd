//! The lane's task: turns of finishing what the disk has done and starting what the ring has brought.
//!
//! A step of a command *claims* what it writes (see [`super::ranges`]), is *launched* (its operations go to the disk), and
//! *ends* when the last of them has come back; then the engine says what is next.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use ring::{Command, Consumer, Doorbell, Entry, Kick, NextError, Response};
use smallvec::SmallVec;

use super::background::{OWN, Own};
use super::inflight::{Flight, Inflight, MOST_OPERATIONS, Moved, unfinished};
use super::news::Piece;
use super::ranges::{Claim, Kind, Ranges};
use super::requests::{is_payload, touched};
use super::reservations::Waits;
use super::visit::Guests;
use super::{Parts, Shared};
use crate::cluster::reservations::Store;
use crate::disk::{Completer, Completion, CompletionQueue, Disk, Error, Operation};
use crate::scsi::opcode::{self, Class};
use crate::scsi::{Continuation, Data, DataIn, Direction, Io, Reply, Step, Unit};

/// Commands taken in one turn, so that lanes of one reactor share it.
pub(super) const BATCH: usize = 64;

/// SAM-5 5.3.1.
const TASK_ABORTED: u8 = 0x40;

pub(super) type Work = SmallVec<[Io; 1]>;

/// The task's state.
pub(super) struct Pump {
    pub(super) name: String,
    pub(super) consumer: Consumer,
    pub(super) unit: Unit,
    pub(super) disk: Option<Arc<dyn Disk>>,
    pub(super) reservations: Arc<dyn Store>,
    producer: Arc<dyn Doorbell>,
    pub(super) shared: Arc<Shared>,
    pub(super) queue: Arc<dyn CompletionQueue>,
    pub(super) inflight: Inflight,
    pub(super) ranges: Ranges<Work>,
    /// Steps that wait for other commands.
    pub(super) waits: Waits,
    /// Waiting steps are being started: what ends meanwhile must not begin with that anew, one level deeper each time.
    starting: bool,
    /// What the unit does without a command.
    pub(super) own: Own,
    pub(super) guests: Guests,
    /// Finished operations being filed; kept for its memory.
    pub(super) batch: Vec<Completion>,
    pub(super) now: Instant,
    /// Nothing more is taken from the ring: it is corrupt, or the lane stops.
    pub(super) closed: bool,
    /// A turn has panicked, see [`super::wreck`].
    pub(super) wrecked: bool,
}

/// A command's buffer as the engine sees it.
struct View<'a>(&'a Command);

impl Data for View<'_> {
    fn len(&self) -> usize {
        self.0.data().len()
    }

    fn direction(&self) -> Direction {
        match self.0.direction() {
            ring::Direction::Unknown => Direction::Unknown,
            ring::Direction::In => Direction::In,
            ring::Direction::Out => Direction::Out,
        }
    }

    fn copy_out(&self, offset: usize, into: &mut [u8]) {
        self.0.data().copy_out(offset, into);
    }

    fn compare(&self, offset: usize, with: &[u8]) -> Result<(), usize> {
        self.0.data().compare(offset, with)
    }
}

impl Pump {
    pub(super) fn new(parts: Parts, shared: Arc<Shared>) -> Self {
        let Parts { name, mut consumer, unit, disk, reservations, producer } = parts;
        // An answer is held back while a store still holds the command's segments; the last one to let go rings.
        consumer.set_release_doorbell(Arc::clone(&shared) as _);
        Self {
            name,
            consumer,
            unit,
            disk,
            reservations,
            producer,
            queue: Arc::clone(&shared) as _,
            shared,
            inflight: Inflight::default(),
            ranges: Ranges::new(),
            waits: Waits::default(),
            starting: false,
            own: Own::default(),
            guests: Guests::default(),
            batch: Vec::new(),
            now: Instant::now(),
            closed: false,
            wrecked: false,
        }
    }

    /// Runs until the lane has been stopped, or its ring found corrupt, and everything in flight has been answered.
    pub(super) async fn run(mut self) {
        loop {
            std::future::poll_fn(|context| self.shared.bell.poll_rung(context)).await;
            while self.turn_or_wreck() {
                tokio::task::yield_now().await;
            }
            if (self.closed || self.wrecked)
                && self.consumer.outstanding() == 0
                && self.guests.is_empty()
                && !self.own.at_work()
            {
                return;
            }
        }
    }

    /// One turn; true when there is more to do at once.
    pub(super) fn turn(&mut self) -> bool {
        self.now = Instant::now();
        self.hear();
        let finished = self.finish();
        let visited = self.receive();
        let more = self.take();
        self.go_on();
        self.publish();
        finished || visited || more
    }

    /// Takes up what other threads have told of the unit. Called between taking a request and judging it: what was told
    /// before the request was published holds for it.
    pub(super) fn hear(&mut self) {
        let heard = self.shared.news.take();
        if heard.nothing() {
            return;
        }
        if heard.of(Piece::Size) {
            self.unit.resized(self.shared.hall.size());
        }
        if heard.of(Piece::Access) {
            self.unit.access_changed();
        }
        if heard.of(Piece::Reservations) {
            self.adopt_reservations();
        }
        if heard.of(Piece::Pool) {
            self.unit.look_at_pool();
        }
    }

    /// Files what the disk has finished; true when there was something.
    fn finish(&mut self) -> bool {
        self.shared.finished.take(&mut self.batch);
        let any = !self.batch.is_empty();
        // Taken from its end: what a panic leaves is then still there, to be filed by whoever clears up.
        self.batch.reverse();
        while let Some(completion) = self.batch.pop() {
            if completion.tag & 0xffff == OWN as u64 {
                self.file_own(completion);
                continue;
            }
            match self.inflight.file(completion) {
                Ok(Some(place)) => self.end_step(place),
                // It may have been the last that is this lane's own.
                Ok(None) => self.start_admitted(),
                Err(completion) => {
                    self.shared.figures.stray.add(1);
                    tracing::error!(lun = %self.name, tag = completion.tag, "the disk completed an operation twice");
                }
            }
        }
        any
    }

    /// Takes a bounded number of entries from the ring; true when there may be more.
    fn take(&mut self) -> bool {
        if self.closed {
            return false;
        }
        // Read before the ring is: what was published before the stop is then still taken.
        let stopping = self.shared.stopping.load(Ordering::Acquire);
        if stopping && self.shared.leaving.load(Ordering::Acquire) {
            self.closed = true;
            return false;
        }
        for _ in 0..BATCH {
            match self.consumer.next() {
                Ok(Entry::Command(command)) => self.begin(command),
                Ok(Entry::TaskManagement(notice)) => self.manage(&notice),
                Err(NextError::Empty) => {
                    self.closed = stopping;
                    return false;
                }
                Err(NextError::Corrupt(cause)) => {
                    self.closed = true;
                    self.shared.figures.corrupt.store(true, Ordering::Relaxed);
                    tracing::error!(
                        lun = %self.name, %cause, in_flight = self.inflight.len(),
                        "the peer wrote nonsense into the ring of this LUN: it is taken down, other LUNs go on"
                    );
                    return false;
                }
            }
        }
        true
    }

    /// Publishes the turn's answers and figures.
    pub(super) fn publish(&mut self) {
        let task_aborted_status = self.unit.task_aborted_status();
        if self.shared.task_aborted_status.load(Ordering::Relaxed) != task_aborted_status {
            self.shared.task_aborted_status.store(task_aborted_status, Ordering::Relaxed);
        }
        self.shared.figures.in_flight.set(self.inflight.len() as u64);
        self.shared.figures.held_back.set(self.ranges.waiting() as u64);
        self.shared.figures.ring.set(self.consumer.usage());
        if self.consumer.commit() == Kick::Needed {
            self.shared.figures.commits.add(1);
            self.producer.ring();
        }
    }

    fn begin(&mut self, command: Command) {
        self.hear();
        let code = command.cdb().first().copied().unwrap_or_default();
        self.shared.figures.commands[usize::from(code)].add(1);
        match self.unit.execute(command.cdb(), command.nexus(), &View(&command)) {
            Step::Done(reply) => self.answer(command, reply, self.now, Moved::default()),
            Step::Io { io, exclusive, then } => {
                let place = self.inflight.insert(Flight {
                    command,
                    then: None,
                    results: SmallVec::new(),
                    pending: 0,
                    away: Vec::new(),
                    span: None,
                    taken: self.now,
                    aborted: false,
                    moved: Moved::default(),
                });
                self.claim(place, io, exclusive, then);
            }
        }
    }

    /// Launches a step, or lets it wait for its range. A range that is wanted alone by a step that writes at once is sealed:
    /// what is written in one piece is not read in halves.
    fn claim(&mut self, place: usize, io: Work, exclusive: Option<Range<u64>>, then: Continuation) {
        let Some(flight) = self.inflight.get(place) else { return };
        flight.then = Some(then);
        let span = touched(&io);
        let claim = match (exclusive, &span) {
            (Some(range), Some(Claim { kind: Kind::Write, .. })) => Claim { range, kind: Kind::Sealed },
            (Some(range), _) => Claim { range, kind: Kind::Exclusive },
            (None, Some(span)) if !self.ranges.idle() => span.clone(),
            (None, _) => return self.launch(place, io, span),
        };
        let spans = self.inflight.spans().chain(self.guests.spans());
        if let Some(io) = self.ranges.claim(place, claim, io, spans) {
            self.launch(place, io, span);
        }
    }

    /// Hands the operations of a step to the disk.
    fn launch(&mut self, place: usize, io: Work, span: Option<Claim>) {
        let Some(flight) = self.inflight.get(place) else { return };
        flight.span = span;
        flight.pending = io.len();
        flight.results.clear();
        flight.results.extend(io.iter().map(|_| unfinished()));
        let visits = io.iter().enumerate().filter(|(_, io)| matches!(io, Io::Visit(_)));
        flight.away.clear();
        flight.away.extend(visits.map(|(ordinal, _)| ordinal as u16));
        if io.is_empty() || io.len() > MOST_OPERATIONS {
            return self.end_step(place);
        }
        let segments = flight.command.data().clone();
        let payload = is_payload(flight.command.cdb());
        // All at once: those that a panic leaves complete their operations when they are dropped.
        let completers: SmallVec<[Completer; 1]> = (0..io.len())
            .map(|ordinal| Completer::new(Arc::clone(&self.queue), self.inflight.tag(place, ordinal)))
            .collect();
        for (io, completer) in io.into_iter().zip(completers) {
            let io = match io {
                Io::SaveReservations(save) => {
                    self.save_reservations(*save, completer);
                    continue;
                }
                Io::EndCommands(commands) => {
                    self.end_commands(place, &commands, completer);
                    continue;
                }
                Io::SetTargetPortGroups(wishes) => {
                    self.set_target_port_groups(&wishes, completer);
                    continue;
                }
                Io::Visit(away) => {
                    Self::call(*away, completer);
                    continue;
                }
                Io::Background(milestone) => {
                    self.own.wait(milestone, completer);
                    continue;
                }
                io => io,
            };
            let Some(request) = self.request(place, io, &segments, payload) else {
                completer.complete(Err(Error::Unsupported), None);
                continue;
            };
            match &self.disk {
                Some(disk) => disk.submit(Operation { request, completer }),
                None => completer.complete(Err(Error::NotReady), None),
            }
        }
    }

    /// The disk has nothing of this command any more: the engine goes on, unless the command was aborted.
    pub(super) fn end_step(&mut self, place: usize) {
        let Some(flight) = self.inflight.get(place) else { return };
        flight.span = None;
        let aborted = flight.aborted;
        let step = match flight.then.take_if(|then| !aborted || then.binding()) {
            Some(then) => {
                let mut results = std::mem::take(&mut flight.results);
                self.unit.resume(then, &mut results, &View(&flight.command))
            }
            None => {
                self.end_aborted(place);
                return self.start_admitted();
            }
        };
        match step {
            _ if aborted => self.end_aborted(place),
            Step::Done(reply) => {
                if let Some(flight) = self.inflight.remove(place) {
                    self.ranges.release(place);
                    self.waits.ended(place);
                    self.answer(flight.command, reply, flight.taken, flight.moved);
                }
            }
            Step::Io { io, exclusive, then } => self.claim(place, io, exclusive, then),
        }
        self.start_admitted();
    }

    /// Answers an aborted command of which the disk has nothing.
    pub(super) fn end_aborted(&mut self, place: usize) {
        if let Some(flight) = self.inflight.remove(place) {
            self.ranges.release(place);
            if let Some(then) = &flight.then {
                self.unit.command_aborted(then);
            }
            self.waits.ended(place);
            self.answer_aborted(flight);
        }
    }

    /// TASK ABORTED, to a command that has left the table.
    pub(super) fn answer_aborted(&mut self, flight: Flight) {
        self.shared.figures.aborted.add(1);
        let reply =
            Reply { status: TASK_ABORTED, sense: SmallVec::new(), data_in: DataIn::None, transfer: Some(0) };
        self.answer(flight.command, reply, flight.taken, Moved::default());
    }

    /// Launches the steps whose range has become free.
    pub(super) fn start_admitted(&mut self) {
        if std::mem::replace(&mut self.starting, true) {
            return;
        }
        while self.ranges.waiting() > 0 {
            let spans = || self.inflight.spans().chain(self.guests.spans());
            let Some((place, _, io)) = self.ranges.next_admitted(spans) else { break };
            if place == OWN {
                self.launch_own(io);
                continue;
            }
            let span = touched(&io);
            if let Some((io, span)) = self.launch_if_guest(place, io, span) {
                self.launch(place, io, span);
            }
        }
        self.starting = false;
    }

    pub(super) fn answer(&mut self, command: Command, reply: Reply, taken: Instant, moved: Moved) {
        let Reply { status, sense, data_in, mut transfer } = reply;
        let class = opcode::class(command.cdb());
        let figures = &self.shared.figures;
        figures.answered(class, status, &sense, self.now - taken);
        if status == 0 {
            figures.bytes_read.add(moved.read);
            figures.bytes_written.add(moved.written);
        }
        let (offset, bytes) = match data_in {
            DataIn::Bytes(bytes) => (0, bytes),
            DataIn::Tail { offset, bytes } => (offset, bytes),
            DataIn::None | DataIn::InPlace => (0, Vec::new()),
        };
        if !bytes.is_empty() {
            let data = command.data();
            let room = data.len().saturating_sub(offset).min(bytes.len());
            if room > 0 {
                data.copy_in(offset, &bytes[..room]);
            }
            if matches!(class, Class::Read | Class::Write) {
                figures.bytes_copied.add(room as u64);
            }
            transfer = transfer.or(Some(offset + bytes.len()));
        }
        self.consumer.complete(command, Response { status, transfer, sense });
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        self.close_hall();
        // Reactors shut down under a running lane, or it has failed twice over. Its commands' memory is still lent to the
        // disk, so they are neither answered nor dropped.
        if !self.inflight.is_empty() || self.own.at_work() {
            tracing::error!(lun = %self.name, commands = self.inflight.len(), "a lane was dropped with commands in flight");
            Box::leak(Box::new(std::mem::take(&mut self.inflight)));
            return self.producer.ended(false);
        }
        // Whoever waits for what is left in the ring must learn that it never ends.
        let stopped = self.shared.stopping.load(Ordering::Acquire) && self.closed && !self.wrecked;
        self.producer.ended(stopped && self.consumer.leave());
    }
}
