//! The opcode table: everything that is true of a command before its CDB is read.
//!
//! One row per command and service action. Dispatch, the check of reserved bits, REPORT SUPPORTED OPERATION CODES, the
//! gate (unit attention, medium, write protection) and metric labels all read this table and nothing else, so none of
//! them can disagree with another about which commands exist.

mod paths;
mod table;

pub use self::paths::Paths;
use self::table::TABLE;
use super::cdb::Request;
use super::device::{Answer, Device};

/// Carries a command out, as far as it goes without the disk.
pub(super) type Handler = fn(&mut Device, &Request<'_>) -> Answer;

/// One command.
pub struct Opcode {
    /// Operation code.
    pub code: u8,
    /// Service action, for operation codes that have them.
    pub service_action: Option<u16>,
    /// CDB usage map (SPC-4, CDB USAGE DATA): for each byte the bits that may be set, except that operation code and
    /// service action stand there as they are. Its length is the CDB's.
    pub usage: &'static [u8],
    /// Name for people and metrics.
    pub name: &'static str,
    /// The kind of command, for metrics.
    pub class: Class,
    /// What it does to the medium.
    pub medium: Medium,
    /// Which way it moves data.
    pub data: Flow,
    /// How a pending unit attention meets it (SAM-5).
    pub attention: Attention,
    /// How another nexus' reservation meets it (SPC-4 and SBC-3, commands allowed in the presence of reservations).
    pub reservation: Reservation,
    /// Through which target ports it is carried out.
    pub paths: Paths,
    /// What a unit must have for the command to exist there.
    pub requires: Requires,
    pub(super) run: Handler,
}

/// Kinds of command, the values of a metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Moves blocks to the initiator.
    Read,
    /// Moves blocks to the disk.
    Write,
    /// Compares blocks with the initiator's.
    Verify,
    /// Reads, decides and writes as one (COMPARE AND WRITE, ORWRITE).
    Atomic,
    /// Makes writes stable.
    Flush,
    /// Gives space back, or fills ranges.
    Provision,
    /// Moves blocks from one place to another.
    Copy,
    /// Asks what the unit is.
    Query,
    /// Changes the unit's state.
    Control,
    /// Not in the table.
    Unknown,
}

impl Class {
    /// Every class, in order.
    pub const ALL: [Self; 10] = [
        Self::Read,
        Self::Write,
        Self::Verify,
        Self::Atomic,
        Self::Flush,
        Self::Provision,
        Self::Copy,
        Self::Query,
        Self::Control,
        Self::Unknown,
    ];

    /// Its place in [`Class::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The metric label.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Verify => "verify",
            Self::Atomic => "atomic",
            Self::Flush => "flush",
            Self::Provision => "provision",
            Self::Copy => "copy",
            Self::Query => "query",
            Self::Control => "control",
            Self::Unknown => "unknown",
        }
    }
}

/// What a command does to the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// Works without one.
    Unused,
    /// Needs one.
    Read,
    /// Needs one that may be written.
    Write,
}

/// Which way a command moves data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Not at all.
    None,
    /// To the initiator.
    In,
    /// From the initiator.
    Out,
}

/// How a pending unit attention meets a command (SAM-5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attention {
    /// Ends the command with CHECK CONDITION.
    Reported,
    /// Stays pending; the command is carried out.
    Passed,
    /// Is the command's parameter data (REQUEST SENSE).
    Returned,
}

/// How a reservation held by another nexus meets a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reservation {
    /// Never conflicts.
    Allowed,
    /// Conflicts with RESERVE (SPC-2) only.
    Legacy,
    /// Conflicts with exclusive access.
    Read,
    /// Conflicts with exclusive access and with write exclusive.
    Write,
    /// Depends on the CDB.
    Special,
}

/// What a unit must have for a command to exist there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requires {
    /// Nothing.
    Nothing,
    /// A thin store.
    Thin,
    /// A removable medium.
    Removable,
    /// Access states that initiators set.
    ExplicitAccess,
    /// A store that promises atomic writes.
    Atomic,
}

impl Opcode {
    const fn new(usage: &'static [u8], name: &'static str, class: Class, run: Handler) -> Self {
        Self {
            code: usage[0],
            service_action: None,
            usage,
            name,
            class,
            medium: Medium::Unused,
            data: Flow::None,
            attention: Attention::Reported,
            reservation: Reservation::Allowed,
            paths: Paths::of_command(usage[0], 0),
            requires: Requires::Nothing,
            run,
        }
    }

    /// Whether it makes, ends or reports reservations: RESERVE, RELEASE, PERSISTENT RESERVE IN and OUT.
    pub(super) fn is_reservation(&self) -> bool {
        matches!(self.code, 0x16 | 0x17 | 0x56 | 0x57 | 0x5E | 0x5F)
    }

    /// The low bits of byte 1 are a service action.
    const fn action(self) -> Self {
        let action = self.usage[1] & SERVICE_ACTION;
        Self { service_action: Some(action as u16), paths: Paths::of_command(self.code, action), ..self }
    }

    const fn reads(self) -> Self {
        Self { medium: Medium::Read, reservation: Reservation::Read, ..self }
    }

    const fn writes(self) -> Self {
        Self { medium: Medium::Write, reservation: Reservation::Write, ..self }
    }

    const fn data(self, data: Flow) -> Self {
        Self { data, ..self }
    }

    const fn attention(self, attention: Attention) -> Self {
        Self { attention, ..self }
    }

    const fn medium(self, medium: Medium) -> Self {
        Self { medium, ..self }
    }

    const fn reservation(self, reservation: Reservation) -> Self {
        Self { reservation, ..self }
    }

    const fn requires(self, requires: Requires) -> Self {
        Self { requires, ..self }
    }

    /// The bits of byte 1 that select the row rather than parametrise the command.
    pub(super) const fn service_action_mask(&self) -> u8 {
        if self.service_action.is_some() { SERVICE_ACTION } else { 0 }
    }
}

const SERVICE_ACTION: u8 = 0x1F;

/// The row of a CDB.
pub fn find(cdb: &[u8]) -> Option<&'static Opcode> {
    let rows = rows_of(*cdb.first()?);
    let action = u16::from(cdb.get(1).unwrap_or(&0) & SERVICE_ACTION);
    rows.iter().find(|row| row.service_action.is_none_or(|own| own == action))
}

/// All rows of an operation code: none, one, or one per service action.
pub(super) fn rows_of(code: u8) -> &'static [Opcode] {
    let rows = TABLE.get(usize::from(FIRST[usize::from(code)])..).unwrap_or(&[]);
    let end = rows.iter().position(|row| row.code != code).unwrap_or(rows.len());
    &rows[..end]
}

/// Every row, in order of operation code and service action.
pub fn all() -> &'static [Opcode] {
    TABLE
}

/// The command's name, for people and metrics.
pub fn label(cdb: &[u8]) -> &'static str {
    find(cdb).map_or("unknown", |row| row.name)
}

/// The kind of command, for metrics.
pub fn class(cdb: &[u8]) -> Class {
    find(cdb).map_or(Class::Unknown, |row| row.class)
}

/// Where each operation code's rows begin; the table's length where it has none.
static FIRST: [u8; 256] = {
    let mut first = [TABLE.len() as u8; 256];
    let mut index = TABLE.len();
    while index > 0 {
        index -= 1;
        first[TABLE[index].code as usize] = index as u8;
    }
    first
};
