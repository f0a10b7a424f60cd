//! The commands that a lane has taken and not yet answered.
//!
//! A *place* is an index into the table. A *tag*, which an operation carries to the disk and back, is place, ordinal of
//! the operation within its step, and the place's *generation*; a place moves to the next generation whenever a step has
//! ended, so a completion that comes late or twice finds nobody.

use std::time::Instant;

use ring::Command;
use smallvec::SmallVec;

use super::ranges::Claim;
use crate::disk::{Completion, Error};
use crate::scsi::{Continuation, Finished};

/// One command between its first operation and its answer.
#[derive(Debug)]
pub(super) struct Flight {
    /// The must-complete token.
    pub(super) command: Command,
    /// Where the engine goes on; `None` only while it runs.
    pub(super) then: Option<Continuation>,
    /// Results of the running step, in the order of its operations.
    pub(super) results: SmallVec<[Finished; 1]>,
    /// Operations of the running step that the disk still has.
    pub(super) pending: usize,
    /// Those of them that other lanes have, by ordinal.
    pub(super) away: Vec<u16>,
    /// What the running step reads or writes; `None` again when only other lanes have operations of it. Kept for longer, it
    /// would let this lane's commands wait for another lane, and two lanes for each other.
    pub(super) span: Option<Claim>,
    /// When the lane took the command.
    pub(super) taken: Instant,
    /// Task management has ended it: nothing further is started, and the answer is TASK ABORTED.
    pub(super) aborted: bool,
    /// Bytes that operations have been asked to read into, or write from, the command's buffer.
    pub(super) moved: Moved,
}

/// Payload bytes of one command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Moved {
    /// Disk to buffer.
    pub(super) read: u64,
    /// Buffer to disk.
    pub(super) written: u64,
}

#[derive(Debug)]
struct Place {
    generation: u32,
    flight: Option<Flight>,
}

/// The table. Places are reused, last freed first.
#[derive(Debug, Default)]
pub(super) struct Inflight {
    places: Vec<Place>,
    free: Vec<usize>,
}

/// The most operations that one step may have.
pub(super) const MOST_OPERATIONS: usize = 1 << 16;

impl Inflight {
    /// Commands in the table.
    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes a command in.
    pub(super) fn insert(&mut self, flight: Flight) -> usize {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place { generation: 0, flight: None });
            self.places.len() - 1
        });
        self.places[place].flight = Some(flight);
        place
    }

    /// The command at a place.
    pub(super) fn get(&mut self, place: usize) -> Option<&mut Flight> {
        self.places.get_mut(place)?.flight.as_mut()
    }

    /// Takes a command out, to be answered.
    pub(super) fn remove(&mut self, place: usize) -> Option<Flight> {
        let slot = self.places.get_mut(place)?;
        let flight = slot.flight.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(place);
        Some(flight)
    }

    /// The tag of one operation of the running step.
    pub(super) fn tag(&self, place: usize, ordinal: usize) -> u64 {
        u64::from(self.places[place].generation) << 32 | (ordinal as u64) << 16 | place as u64
    }

    /// Files a completion: `Ok` with the place when it was the last of its step, `Ok(None)` when more are pending, and the
    /// completion back when nobody waits for it.
    pub(super) fn file(&mut self, completion: Completion) -> Result<Option<usize>, Completion> {
        let tag = completion.tag;
        let place = (tag & 0xffff) as usize;
        let ordinal = (tag >> 16 & 0xffff) as usize;
        let Some(Place { generation, flight: Some(flight) }) = self.places.get_mut(place) else {
            return Err(completion);
        };
        if *generation != (tag >> 32) as u32 || flight.pending == 0 {
            return Err(completion);
        }
        let Some(entry) = flight.results.get_mut(ordinal) else { return Err(completion) };
        *entry = Finished { result: completion.result, buffer: completion.buffer };
        flight.pending -= 1;
        if flight.pending > 0 {
            if !flight.away.is_empty() {
                flight.away.retain(|other| usize::from(*other) != ordinal);
                if flight.away.len() == flight.pending {
                    flight.span = None;
                }
            }
            return Ok(None);
        }
        *generation = generation.wrapping_add(1);
        Ok(Some(place))
    }

    /// The places of every command that `wanted` picks.
    pub(super) fn places(&self, wanted: impl Fn(&Flight) -> bool) -> SmallVec<[usize; 8]> {
        let taken = self.places.iter().enumerate();
        taken
            .filter(|(_, place)| place.flight.as_ref().is_some_and(&wanted))
            .map(|(place, _)| place)
            .collect()
    }

    /// What is at the disk now, by place.
    pub(super) fn spans(&self) -> impl Iterator<Item = (usize, Claim)> {
        let taken = self.places.iter().enumerate();
        taken.filter_map(|(place, slot)| Some((place, slot.flight.as_ref()?.span.clone()?)))
    }
}

/// A result that nobody has filled in yet.
pub(super) fn unfinished() -> Finished {
    Finished { result: Err(Error::Io(libc::EIO)), buffer: None }
}
