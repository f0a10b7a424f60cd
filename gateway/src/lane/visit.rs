//! Visits: what a lane does for commands of other LUNs (see [`crate::units`]).
//!
//! A visitor's request lands in the lane's *hall*, beside the inbox. It is a *guest* among the lane's own until the disk has
//! done it: it waits for ranges that a command holds alone, and holds such commands back, so that COMPARE AND WRITE stays
//! atomic against copies from elsewhere. Nothing here waits for another lane.
//!
//! Invariants: a visit is completed exactly once, also when the lane has ended or ends at the same moment; a lane ends only
//! when it has no guests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ring::Nexus;
use smallvec::SmallVec;

use super::Shared;
use super::inbox::List;
use super::pump::{Pump, Work};
use super::ranges::Claim;
use crate::disk::{Buffer, Completer, Completion, CompletionQueue, Error, Operation, Request};
use crate::scsi::{Away, Io, Memory};
use crate::units::{Door, Visit};

/// Where visitors leave their requests.
pub(super) struct Hall {
    visits: List<Visit>,
    done: List<Completion>,
    /// One of the lists may have something.
    knocked: AtomicBool,
    closed: AtomicBool,
    /// The disk's size, bytes.
    size: AtomicU64,
}

impl Hall {
    pub(super) fn new(size: u64) -> Self {
        Self {
            visits: List::new(),
            done: List::new(),
            knocked: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            size: AtomicU64::new(size),
        }
    }

    pub(super) fn resized(&self, size: u64) {
        self.size.store(size, Ordering::Release);
    }

    /// The disk, which had size `before`, has been found to have size `now`; nothing if it has been resized meanwhile.
    pub(super) fn found(&self, before: u64, now: u64) {
        let _ = self.size.compare_exchange(before, now, Ordering::AcqRel, Ordering::Acquire);
    }

    pub(super) fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    /// Refuses what is there, and whatever comes.
    fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.turn_away();
    }

    fn turn_away(&self) {
        let mut visits = Vec::new();
        self.visits.take(&mut visits);
        for visit in visits {
            visit.completer.complete(Err(Error::NotReady), Some(visit.call.into_buffer()));
        }
    }
}

impl Door for Shared {
    fn visit(&self, visit: Visit) {
        let first = self.hall.visits.push(visit);
        // The lane closes before it looks for the last time: either it finds the visit, or it is found closed here.
        if self.hall.closed.load(Ordering::Acquire) {
            return self.hall.turn_away();
        }
        self.hall.knocked.store(true, Ordering::Release);
        if first {
            self.bell.ring();
        }
    }

    fn size(&self) -> u64 {
        self.hall.size()
    }
}

/// Where the disk reports what guests have done.
struct Writes(Arc<Shared>);

impl CompletionQueue for Writes {
    fn push(&self, completion: Completion) {
        let first = self.0.hall.done.push(completion);
        self.0.hall.knocked.store(true, Ordering::Release);
        if first {
            self.0.bell.ring();
        }
    }
}

/// Requests of other LUNs that the disk has, or that wait for their range.
#[derive(Default)]
pub(super) struct Guests {
    places: Vec<Option<Guest>>,
    generation: u32,
}

struct Guest {
    /// On whose behalf.
    nexus: Nexus,
    completer: Completer,
    tag: u64,
    /// What is being read or written; `None` while it waits.
    span: Option<Claim>,
}

/// Owners of ranges from here on are guests; in-flight commands have places below.
const FIRST: usize = 1 << 16;

impl Guests {
    pub(super) fn is_empty(&self) -> bool {
        self.places.iter().all(Option::is_none)
    }

    /// What guests have at the disk now, by owner.
    pub(super) fn spans(&self) -> impl Iterator<Item = (usize, Claim)> {
        let taken = self.places.iter().enumerate();
        taken.filter_map(|(place, guest)| Some((FIRST + place, guest.as_ref()?.span.clone()?)))
    }

    /// What is being written, or waits to be, on behalf of one of `nexuses`; by owner.
    pub(super) fn owners<'a>(&'a self, nexuses: &'a [Nexus]) -> impl Iterator<Item = usize> + 'a {
        let taken = self.places.iter().enumerate();
        taken
            .filter(|(_, guest)| guest.as_ref().is_some_and(|guest| nexuses.contains(&guest.nexus)))
            .map(|(place, _)| FIRST + place)
    }

    /// After a panic: those that wait are turned away.
    pub(super) fn forget_waiting(&mut self) {
        for place in &mut self.places {
            drop(place.take_if(|guest| guest.span.is_none()));
        }
    }

    fn enter(&mut self, nexus: Nexus, completer: Completer) -> usize {
        let place = self.places.iter().position(Option::is_none).unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        self.generation = self.generation.wrapping_add(1);
        let tag = u64::from(self.generation) << 32 | place as u64;
        self.places[place] = Some(Guest { nexus, completer, tag, span: None });
        place
    }

    fn nexus(&self, place: usize) -> Option<Nexus> {
        Some(self.places.get(place)?.as_ref()?.nexus)
    }

    fn leave(&mut self, tag: u64) -> Option<Guest> {
        let place = self.places.get_mut((tag & 0xFFFF_FFFF) as usize)?;
        place.take_if(|guest| guest.tag == tag)
    }
}

impl Pump {
    /// Leaves a request at another lane's door.
    pub(super) fn call(away: Away, completer: Completer) {
        let Away { unit, nexus, call } = away;
        unit.door.visit(Visit { nexus, call, completer });
    }

    /// Sees to the hall; true when there was something.
    pub(super) fn receive(&mut self) -> bool {
        if !self.shared.hall.knocked.load(Ordering::Acquire) {
            return false;
        }
        self.shared.hall.knocked.store(false, Ordering::Release);
        self.receive_done();
        let mut visits = Vec::new();
        self.shared.hall.visits.take(&mut visits);
        for visit in visits {
            self.admit(visit);
        }
        self.start_admitted();
        true
    }

    /// Tells visitors what the disk has done for them.
    pub(super) fn receive_done(&mut self) {
        let mut done = Vec::new();
        self.shared.hall.done.take(&mut done);
        for completion in done {
            match self.guests.leave(completion.tag) {
                Some(guest) => {
                    self.waits.ended(FIRST + (completion.tag & 0xFFFF_FFFF) as usize);
                    guest.completer.complete(completion.result, completion.buffer);
                }
                None => {
                    tracing::error!(lun = %self.name, tag = completion.tag, "the disk completed a visitor's request twice");
                }
            }
        }
    }

    fn admit(&mut self, visit: Visit) {
        let Visit { nexus, call, completer } = visit;
        self.hear();
        if self.closed {
            return completer.complete(Err(Error::NotReady), Some(call.into_buffer()));
        }
        let io = match self.unit.visit(nexus, call) {
            Ok(io) => io,
            Err((error, buffer)) => return completer.complete(Err(error), Some(buffer)),
        };
        let Some(claim) = super::requests::touched(std::slice::from_ref(&io)) else {
            return self.submit(io, completer);
        };
        let place = self.guests.enter(nexus, completer);
        let work = SmallVec::from_buf([io]);
        let span = Some(claim.clone());
        let spans = self.inflight.spans().chain(self.guests.spans());
        if let Some(work) = self.ranges.claim(FIRST + place, claim, work, spans) {
            self.launch_guest(place, work, span);
        }
    }

    /// Launches a guest's step whose range has become free; the step back if `owner` is none.
    pub(super) fn launch_if_guest(
        &mut self,
        owner: usize,
        work: Work,
        span: Option<Claim>,
    ) -> Option<(Work, Option<Claim>)> {
        let Some(place) = owner.checked_sub(FIRST) else { return Some((work, span)) };
        // What was true when it came need not be true any more: a change that has been answered since holds for it.
        self.hear();
        let nexus = self.guests.nexus(place)?;
        match work.first().map_or(Ok(()), |io| self.unit.visit_again(nexus, io)) {
            Ok(()) => self.launch_guest(place, work, span),
            Err(error) => self.refuse_guest(place, work, error),
        }
        None
    }

    fn refuse_guest(&mut self, place: usize, work: Work, error: Error) {
        let Some(guest) = self.guests.places.get_mut(place).and_then(Option::take) else { return };
        self.waits.ended(FIRST + place);
        let buffer = work.into_iter().find_map(|io| match io {
            Io::Read { into: Memory::Owned(bytes), .. } | Io::Write { from: Memory::Owned(bytes), .. } => {
                Some(bytes)
            }
            _ => None,
        });
        guest.completer.complete(Err(error), buffer);
    }

    fn launch_guest(&mut self, place: usize, work: Work, span: Option<Claim>) {
        let Some(Some(guest)) = self.guests.places.get_mut(place) else { return };
        guest.span = span;
        let completer = Completer::new(Arc::new(Writes(Arc::clone(&self.shared))), guest.tag);
        if let Some(io) = work.into_iter().next() {
            self.submit(io, completer);
        }
    }

    /// Hands the disk one request with memory of its own.
    fn submit(&self, io: Io, completer: Completer) {
        let request = match io {
            Io::Read { offset, into: Memory::Owned(bytes) } => {
                Request::Read { offset, buffer: Buffer::Owned(bytes) }
            }
            Io::Write { offset, from: Memory::Owned(bytes), fua } => {
                Request::Write { offset, buffer: Buffer::Owned(bytes), fua }
            }
            Io::WriteZeroes { offset, len, deallocate } => Request::WriteZeroes { offset, len, deallocate },
            _ => return completer.complete(Err(Error::Unsupported), None),
        };
        match &self.disk {
            Some(disk) => disk.submit(Operation { request, completer }),
            None => completer.complete(Err(Error::NotReady), None),
        }
    }

    /// The lane takes no more visits.
    pub(super) fn close_hall(&self) {
        self.shared.hall.close();
    }
}
