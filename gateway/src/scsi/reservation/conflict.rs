//! Whether a reservation keeps a command out (SPC-4, and SBC-3: commands allowed in the presence of various
//! reservations; SPC-2 for RESERVE).

use ring::Nexus;

use super::State;
use super::registry::{Kind, Standing};
use crate::scsi::cdb::Cdb;
use crate::scsi::gate::Gate;
use crate::scsi::opcode::{Opcode, Reservation};

impl State {
    /// True when the command ends with RESERVATION CONFLICT. While nothing is reserved this is two comparisons.
    pub(in crate::scsi) fn conflicts(
        &mut self,
        row: &Opcode,
        cdb: Cdb<'_>,
        nexus: Nexus,
        gate: &Gate,
    ) -> bool {
        if let Some(holder) = self.legacy {
            return holder != nexus && keeps_out(row, cdb, Wall::Legacy);
        }
        let Some(kind) = self.registry.reservation else { return false };
        let wall = if kind.excludes_reads() { Wall::Exclusive } else { Wall::WriteExclusive };
        keeps_out(row, cdb, wall) && self.is_barred(kind, nexus, gate)
    }

    /// Whether reads of this nexus are kept out.
    pub(in crate::scsi) fn keeps_reads_out(&mut self, nexus: Nexus, gate: &Gate) -> bool {
        match (self.legacy, self.registry.reservation) {
            (Some(holder), _) => holder != nexus,
            (None, Some(kind)) => kind.excludes_reads() && self.is_barred(kind, nexus, gate),
            (None, None) => false,
        }
    }

    /// Whether writes of this nexus are kept out.
    pub(in crate::scsi) fn keeps_writes_out(&mut self, nexus: Nexus, gate: &Gate) -> bool {
        match (self.legacy, self.registry.reservation) {
            (Some(holder), _) => holder != nexus,
            (None, Some(kind)) => self.is_barred(kind, nexus, gate),
            (None, None) => false,
        }
    }

    /// Whether a reservation of this type is not the nexus' to use.
    fn is_barred(&mut self, kind: Kind, nexus: Nexus, gate: &Gate) -> bool {
        match self.standing(nexus, gate) {
            Standing::Holder => false,
            Standing::Registered => !kind.open_to_registrants(),
            Standing::Stranger => true,
        }
    }
}

/// What stands between a nexus without access and the unit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wall {
    WriteExclusive,
    Exclusive,
    Legacy,
}

fn keeps_out(row: &Opcode, cdb: Cdb<'_>, wall: Wall) -> bool {
    match row.reservation {
        Reservation::Allowed => false,
        Reservation::Legacy => wall == Wall::Legacy,
        Reservation::Read => wall != Wall::WriteExclusive,
        Reservation::Write => true,
        Reservation::Special => !match row.code {
            // START STOP UNIT that starts, and changes no power condition (SBC-3).
            0x1B => cdb.bit(4, 0x01) && cdb.byte(4) >> 4 == 0,
            // PREVENT ALLOW MEDIUM REMOVAL that allows (SBC-3).
            0x1E => cdb.byte(4) & 0x03 == 0,
            // RESERVE, RELEASE, PERSISTENT RESERVE IN and OUT: by what they ask for, in `legacy`, `report` and `registry`.
            0x16 | 0x17 | 0x56 | 0x57 | 0x5E | 0x5F => true,
            _ => false,
        },
    }
}
