//! What a unit does without a command (SANITIZE, FORMAT UNIT, self-tests): its requests beside those of commands.
//!
//! It has a place of its own, which no command ever has, and waits in line for its range as commands do. Commands that wait
//! for it have an operation in flight that the disk does not have; task management takes that back at once.

use std::sync::Arc;

use smallvec::SmallVec;

use super::inflight::unfinished;
use super::pump::{Pump, Work};
use super::ranges::{Claim, Kind};
use super::stopping;
use crate::disk::{Completer, Completion, Error, Operation, Outcome};
use crate::scsi::{Finished, Milestone};

/// The place of the unit's own requests.
pub(super) const OWN: usize = 0xffff;

/// The unit's own requests, and who waits for their end.
#[derive(Debug, Default)]
pub(super) struct Own {
    /// Told from late completions of earlier requests.
    generation: u32,
    results: SmallVec<[Finished; 1]>,
    /// Requests that the disk has.
    pending: usize,
    /// They wait for their range.
    queued: bool,
    /// The range is held.
    holds: bool,
    /// Commands' operations that end when it has come so far.
    waiting: Vec<(Milestone, Completer)>,
}

impl Own {
    /// True while the disk has a request.
    pub(super) fn at_work(&self) -> bool {
        self.pending > 0
    }

    /// A command's operation ends when the unit's has come so far.
    pub(super) fn wait(&mut self, milestone: Milestone, completer: Completer) {
        self.waiting.push((milestone, completer));
    }

    /// After a panic: nothing more is waited for.
    pub(super) fn give_up(&mut self) {
        self.waiting.clear();
        (self.queued, self.holds) = (false, false);
    }

    /// After a panic: the disk has given back one of the requests, which nobody wants any more.
    pub(super) fn lost(&mut self) {
        self.pending = self.pending.saturating_sub(1);
    }

    /// Takes back the wait of the command at `place`; false when it does not wait.
    fn withdraw(&mut self, place: usize) -> bool {
        let waits = |(_, completer): &(Milestone, Completer)| (completer.tag() & 0xffff) as usize == place;
        let Some(index) = self.waiting.iter().position(waits) else { return false };
        self.waiting.swap_remove(index).1.forget();
        true
    }
}

impl Pump {
    /// Starts what the unit wants next, and ends the waits when it wants no more.
    pub(super) fn go_on(&mut self) {
        if !self.unit.is_busy() && !self.own.holds && self.own.waiting.is_empty() {
            return;
        }
        if self.own.pending == 0 {
            if stopping(&self.shared) && !self.unit.owes_note() {
                if std::mem::take(&mut self.own.queued) {
                    self.ranges.withdraw(OWN);
                }
                self.unit.interrupt();
            } else if !self.own.queued
                && let Some(next) = self.unit.go_on()
            {
                match next.exclusive.filter(|_| !self.own.holds) {
                    Some(range) => {
                        let claim = Claim { range, kind: Kind::Sealed };
                        let spans = self.inflight.spans().chain(self.guests.spans());
                        let admitted = self.ranges.claim(OWN, claim, next.io, spans);
                        match admitted {
                            Some(io) => self.launch_own(io),
                            None => self.own.queued = true,
                        }
                        self.own.holds = true;
                    }
                    None => self.launch_own(next.io),
                }
            }
        }
        if !self.unit.is_busy() && self.own.pending == 0 && std::mem::take(&mut self.own.holds) {
            self.ranges.release(OWN);
            self.start_admitted();
        }
        self.settle();
    }

    /// Hands the unit's requests to the disk.
    pub(super) fn launch_own(&mut self, io: Work) {
        self.own.queued = false;
        self.own.generation = self.own.generation.wrapping_add(1);
        self.own.pending = io.len();
        self.own.results = io.iter().map(|_| unfinished()).collect();
        let nothing = ring::Segments::default();
        for (ordinal, io) in io.into_iter().enumerate() {
            let tag = u64::from(self.own.generation) << 32 | (ordinal as u64) << 16 | OWN as u64;
            let completer = Completer::new(Arc::clone(&self.queue), tag);
            match (self.request(OWN, io, &nothing, false), &self.disk) {
                (Some(request), Some(disk)) => disk.submit(Operation { request, completer }),
                _ => completer.complete(Err(Error::NotReady), None),
            }
        }
    }

    /// Files one of its completions.
    pub(super) fn file_own(&mut self, completion: Completion) {
        let ordinal = (completion.tag >> 16 & 0xffff) as usize;
        let current = self.own.pending > 0 && self.own.generation == (completion.tag >> 32) as u32;
        let Some(place) = self.own.results.get_mut(ordinal).filter(|_| current) else {
            tracing::error!(lun = %self.name, tag = completion.tag, "the disk completed an operation twice");
            return;
        };
        *place = Finished { result: completion.result, buffer: completion.buffer };
        self.own.pending -= 1;
        if self.own.pending == 0 {
            let results = std::mem::take(&mut self.own.results);
            // A store that has been cut may refuse before it tells.
            if let Some(disk) = &self.disk
                && results.iter().any(|finished| finished.result.is_err())
            {
                self.unit.resized(disk.size());
            }
            self.unit.finished(&results);
            // At once: the next command may begin another operation.
            self.settle();
        }
    }

    /// Lets the commands go on that have waited for what has come.
    fn settle(&mut self) {
        if self.own.waiting.is_empty() {
            return;
        }
        let unit = &self.unit;
        // A test that was aborted counts as over, though the disk still has a request of it.
        let (come, waiting): (Vec<_>, Vec<_>) = std::mem::take(&mut self.own.waiting)
            .into_iter()
            .partition(|(milestone, _)| unit.has_reached(*milestone));
        self.own.waiting = waiting;
        for (_, completer) in come {
            let tag = completer.tag();
            completer.forget();
            let completion = Completion { tag, result: Ok(Outcome::default()), buffer: None };
            if let Ok(Some(place)) = self.inflight.file(completion) {
                self.end_step(place);
            }
        }
    }

    /// Ends the wait of an aborted command; false when it does not wait.
    pub(super) fn abandon(&mut self, place: usize) -> bool {
        let waited = self.own.withdraw(place);
        if waited {
            self.unit.abandoned();
            self.end_aborted(place);
        }
        waited
    }
}
