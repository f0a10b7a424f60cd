//! Task management: which commands a notice ends, and how.
//!
//! A notice stands in the ring behind every command it can be about, so all of them have been taken when it is read. A
//! command that waits for a range is answered TASK ABORTED at once. One whose operations the disk has is answered when the
//! disk has given them back, because until then its memory is lent; nothing further is started for it. The peer answers
//! its initiator only then (RFC 7143 4.2.3.3 asks for exactly that).

use ring::{TaskManagement, TaskManagementKind as Kind};

use super::pump::Pump;
use crate::scsi::Reset;

impl Pump {
    /// Carries out one notice.
    pub(super) fn manage(&mut self, notice: &TaskManagement) {
        let ended = match notice.kind {
            Kind::AbortTask | Kind::AbortTaskSet => {
                self.inflight.places(|flight| notice.ids.contains(&flight.command.id()))
            }
            // These end every command, whoever sent it, listed or not.
            Kind::ClearTaskSet | Kind::LunReset | Kind::TargetWarmReset | Kind::TargetColdReset => {
                self.inflight.places(|_| true)
            }
            Kind::ClearAca | Kind::Unknown => return,
        };
        tracing::debug!(lun = %self.name, kind = ?notice.kind, commands = ended.len(), "task management");
        for place in ended {
            self.abort(place);
        }
        match notice.kind {
            Kind::LunReset => self.unit.reset(Reset::LogicalUnit),
            Kind::TargetWarmReset | Kind::TargetColdReset => self.unit.reset(Reset::Target),
            _ => {}
        }
        self.start_admitted();
    }

    pub(super) fn abort(&mut self, place: usize) {
        let Some(flight) = self.inflight.get(place) else { return };
        flight.aborted = true;
        // What the unit does on its own goes on (SBC-4, sanitize operations); only the command is ended.
        if self.abandon(place) {
            return;
        }
        let Some(flight) = self.inflight.get(place) else { return };
        if flight.pending == 0 && self.ranges.withdraw(place).is_some() {
            self.end_aborted(place);
        }
    }
}
