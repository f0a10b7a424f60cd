//! What reservations ask of a lane: to store them, and to end commands that a change of theirs concerns.

use std::sync::Arc;

use super::news::Piece;
use super::pump::Pump;
use crate::cluster::reservations::{Outcome, Snapshot};
use crate::disk::{Completer, Error};
use crate::scsi::opcode::{self, Reservation};
use crate::scsi::{EndCommands, Ending, SaveReservations, Stored};

/// Steps that wait until other commands, or writes for other lanes, have ended.
#[derive(Debug, Default)]
pub(super) struct Waits(Vec<(Vec<usize>, Completer)>);

impl Waits {
    /// Completes `completer` when the commands at all of `places` have ended.
    fn add(&mut self, places: Vec<usize>, completer: Completer) {
        if places.is_empty() {
            return completer.complete(Ok(Default::default()), None);
        }
        self.0.push((places, completer));
    }

    /// The command at `place` has been answered.
    pub(super) fn ended(&mut self, place: usize) {
        for index in (0..self.0.len()).rev() {
            let Some((places, _)) = self.0.get_mut(index) else { continue };
            places.retain(|other| *other != place);
            if places.is_empty() {
                let (_, completer) = self.0.swap_remove(index);
                completer.complete(Ok(Default::default()), None);
            }
        }
    }
}

impl Pump {
    /// Hands the unit's reservations to their store.
    pub(super) fn save_reservations(&self, save: SaveReservations, completer: Completer) {
        let SaveReservations { expected, state, outcome } = save;
        let lun = self.name.clone();
        let done = move |result| {
            let (stored, result) = match result {
                Outcome::Saved(number) => (Stored::Saved { number }, Ok(Default::default())),
                Outcome::Changed(Snapshot { number, state }) => {
                    (Stored::Changed { number, state }, Ok(Default::default()))
                }
                Outcome::Failed(reason) => {
                    tracing::error!(%lun, %reason, "reservations could not be stored: the command is refused");
                    (Stored::Failed, Err(Error::Io(libc::EIO)))
                }
            };
            // Nobody else fills it in.
            let _ = outcome.set(stored);
            completer.complete(result, None);
        };
        self.reservations.save(expected, state, Box::new(done));
    }

    /// Aborts the commands of some nexuses, or waits for their writes; all but the one at `place`, which asks for it.
    pub(super) fn end_commands(&mut self, place: usize, commands: &EndCommands, completer: Completer) {
        let wanted = self.inflight.places(|flight| {
            let writes = || {
                opcode::find(flight.command.cdb()).is_some_and(|row| row.reservation == Reservation::Write)
            };
            commands.nexuses.contains(&flight.command.nexus()) && (commands.how == Ending::Abort || writes())
        });
        let places: Vec<usize> = wanted.into_iter().filter(|other| *other != place).collect();
        // What other lanes write here for these nexuses cannot be aborted here, only waited for.
        let guests = self.guests.owners(&commands.nexuses);
        let awaited = places.iter().copied().chain(guests).collect();
        self.waits.add(awaited, completer);
        if commands.how == Ending::Abort {
            tracing::debug!(lun = %self.name, commands = places.len(), "preempted");
            self.tell_cleared(place, &places);
            for other in places {
                self.abort(other);
            }
        }
    }

    /// Commands that end without an answer (TAS is zero) are told by a unit attention condition, except to the nexus that
    /// ended its own (SAM-5, commands aborted by PREEMPT AND ABORT; SPC-4, control mode page, TAS).
    fn tell_cleared(&mut self, place: usize, ended: &[usize]) {
        if self.unit.task_aborted_status() {
            return;
        }
        let by = self.inflight.get(place).map(|flight| flight.command.nexus());
        for other in ended {
            // Task management that came first has its own word for it.
            let Some(flight) = self.inflight.get(*other).filter(|flight| !flight.aborted) else { continue };
            let nexus = flight.command.nexus();
            if by != Some(nexus) {
                self.unit.commands_cleared(nexus);
            }
        }
    }

    /// Takes up what another gateway has made of the reservations.
    pub(super) fn adopt_reservations(&mut self) {
        let changed = self.shared.changed.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        let Some(Snapshot { number, state }) = changed else { return };
        if let Err(error) = self.unit.reservations_changed(number, &state) {
            tracing::error!(lun = %self.name, %error, "reservations of another gateway are not understood");
        }
    }
}

/// Lets the store report changes to a lane.
pub(super) fn listen(store: &dyn crate::cluster::reservations::Store, shared: &Arc<super::Shared>) {
    let lane = Arc::downgrade(shared);
    store.on_change(Box::new(move |snapshot| {
        if let Some(lane) = lane.upgrade() {
            let mut changed = lane.changed.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if changed.as_ref().is_none_or(|earlier| earlier.number < snapshot.number) {
                *changed = Some(snapshot);
            }
            drop(changed);
            lane.news.tell(Piece::Reservations);
            lane.bell.ring();
        }
    }));
}
