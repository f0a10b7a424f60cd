//! A lane after a panic: a bug, ours or a store's. The unit's state can no longer be trusted, so nothing more is started;
//! but whoever waits is answered, and memory that the disk still has stays lent until the disk gives it back.
//!
//! What runs is answered INTERNAL TARGET FAILURE (TASK ABORTED, if it was aborted) when the disk has let go of it, what
//! comes LOGICAL UNIT NOT READY, MANUAL INTERVENTION REQUIRED at once. When nothing is left the lane ends, and whoever
//! produces into the ring is told. The LUN's siblings go on.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering;

use ring::{Command, Entry};

use super::background::{OWN, Own};
use super::inflight::Moved;
use super::pump::Pump;
use super::ranges::Ranges;
use super::reservations::Waits;
use crate::disk::Completion;
use crate::scsi::sense::{self, Sense};
use crate::scsi::{DataIn, Reply, status};

impl Pump {
    /// One turn, or what is left to do after one that has panicked; true when there is more to do at once.
    pub(super) fn turn_or_wreck(&mut self) -> bool {
        if self.wrecked {
            return self.clear_up();
        }
        match catch_unwind(AssertUnwindSafe(|| self.turn())) {
            Ok(more) => more,
            Err(panic) => {
                // Once is enough: what panics while it clears up cannot be helped.
                if let Err(again) = catch_unwind(AssertUnwindSafe(|| self.wreck())) {
                    drop(panic);
                    resume_unwind(again);
                }
                true
            }
        }
    }

    fn wreck(&mut self) {
        self.wrecked = true;
        self.shared.figures.wrecked.store(true, Ordering::Relaxed);
        tracing::error!(
            lun = %self.name, in_flight = self.inflight.len(),
            "this LUN has failed by a bug (the panic is reported before this): it is taken down, other LUNs go on"
        );
        self.close_hall();
        self.ranges = Ranges::new();
        // Dropped, these complete the operations of those who wait.
        self.waits = Waits::default();
        self.own.give_up();
        self.guests.forget_waiting();
        for place in self.inflight.places(|flight| flight.pending == 0) {
            self.end_wrecked(place);
        }
        self.publish();
    }

    fn clear_up(&mut self) -> bool {
        let mut finished = std::mem::take(&mut self.batch);
        finished.reverse();
        let mut new = Vec::new();
        self.shared.finished.take(&mut new);
        finished.extend(new);
        let any = !finished.is_empty();
        for completion in finished {
            self.file_wrecked(completion);
        }
        self.receive_done();
        let more = self.refuse_entries();
        self.publish();
        any || more
    }

    fn file_wrecked(&mut self, completion: Completion) {
        if completion.tag & 0xffff == OWN as u64 {
            Own::lost(&mut self.own);
        } else if let Ok(Some(place)) = self.inflight.file(completion) {
            self.end_wrecked(place);
        }
    }

    /// Answers what comes; true when there may be more.
    fn refuse_entries(&mut self) -> bool {
        for _ in 0..super::pump::BATCH {
            match self.consumer.next() {
                Ok(Entry::Command(command)) => self.refuse(command, sense::MANUAL_INTERVENTION_REQUIRED),
                Ok(Entry::TaskManagement(notice)) => {
                    for place in self.inflight.places(|flight| notice.ids.contains(&flight.command.id())) {
                        if let Some(flight) = self.inflight.get(place) {
                            flight.aborted = true;
                        }
                    }
                }
                Err(_nothing) => return false,
            }
        }
        true
    }

    fn end_wrecked(&mut self, place: usize) {
        let Some(flight) = self.inflight.remove(place) else { return };
        if flight.aborted {
            self.answer_aborted(flight);
        } else {
            self.refuse(flight.command, sense::INTERNAL_TARGET_FAILURE);
        }
    }

    fn refuse(&mut self, command: Command, sense: Sense) {
        let reply = Reply {
            status: status::CHECK_CONDITION,
            sense: sense.encode(false),
            data_in: DataIn::None,
            transfer: Some(0),
        };
        let now = self.now;
        self.answer(command, reply, now, Moved::default());
    }
}
