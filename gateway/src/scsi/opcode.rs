//! The opcode table: everything that is true of a command before its CDB is read.
//!
//! One row per command and service action. Dispatch, the check of reserved bits, REPORT SUPPORTED OPERATION CODES, the
//! gate (unit attention, medium, write protection) and metric labels all read this table and nothing else, so none of
//! them can disagree with another about which commands exist.

use super::cdb::Request;
use super::device::{Answer, Device};
use super::{capacity, compare, condition, inquiry, luns, mode, provision, supported, transfer, verify};

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
    /// Asks what the unit is.
    Query,
    /// Changes the unit's state.
    Control,
    /// Not in the table.
    Unknown,
}

impl Class {
    /// Every class, in order.
    pub const ALL: [Self; 9] = [
        Self::Read,
        Self::Write,
        Self::Verify,
        Self::Atomic,
        Self::Flush,
        Self::Provision,
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
            requires: Requires::Nothing,
            run,
        }
    }

    /// The low bits of byte 1 are a service action.
    const fn action(self) -> Self {
        Self { service_action: Some((self.usage[1] & SERVICE_ACTION) as u16), ..self }
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
    &TABLE
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

// Byte 1 of the usage maps: RDPROTECT, WRPROTECT and VRPROTECT (0xE0) are not there, the disk has no protection
// information; nor ANCHOR (ANC_SUP is zero), nor NACA in the CONTROL byte (NORMACA is zero). FUA_NV and SYNC_NV, obsolete
// since SBC-3, may be set and change nothing. GROUP NUMBER may be set and is ignored (GROUP_SUP is zero).
#[rustfmt::skip]
static TABLE: [Opcode; 39] = [
    Opcode::new(&[0x00, 0, 0, 0, 0, 0], "test_unit_ready", Class::Query, condition::test_unit_ready)
        .medium(Medium::Read),
    Opcode::new(&[0x03, 0x01, 0, 0, 0xFF, 0], "request_sense", Class::Query, condition::request_sense)
        .data(Flow::In).attention(Attention::Returned),
    Opcode::new(&[0x08, 0x1F, 0xFF, 0xFF, 0xFF, 0], "read_6", Class::Read, transfer::read)
        .reads().data(Flow::In),
    Opcode::new(&[0x0A, 0x1F, 0xFF, 0xFF, 0xFF, 0], "write_6", Class::Write, transfer::write)
        .writes().data(Flow::Out),
    Opcode::new(&[0x12, 0x01, 0xFF, 0xFF, 0xFF, 0], "inquiry", Class::Query, inquiry::inquiry)
        .data(Flow::In).attention(Attention::Passed),
    Opcode::new(&[0x15, 0x11, 0, 0, 0xFF, 0], "mode_select_6", Class::Control, mode::select)
        .data(Flow::Out).reservation(Reservation::Write),
    Opcode::new(&[0x1A, 0x08, 0xFF, 0xFF, 0xFF, 0], "mode_sense_6", Class::Query, mode::sense)
        .data(Flow::In),
    Opcode::new(&[0x1B, 0x01, 0, 0x0F, 0xF7, 0], "start_stop_unit", Class::Control, condition::start_stop_unit)
        .reservation(Reservation::Special),
    Opcode::new(&[0x1D, 0x17, 0, 0, 0, 0], "send_diagnostic", Class::Control, condition::send_diagnostic)
        .reservation(Reservation::Write),
    Opcode::new(&[0x1E, 0, 0, 0, 0x01, 0], "prevent_allow_medium_removal", Class::Control,
            condition::prevent_allow_medium_removal)
        .reservation(Reservation::Special).requires(Requires::Removable),
    Opcode::new(&[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], "read_capacity_10", Class::Query, capacity::read_capacity_10)
        .medium(Medium::Read).data(Flow::In),
    Opcode::new(&[0x28, 0x1A, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0xFF, 0xFF, 0], "read_10", Class::Read, transfer::read)
        .reads().data(Flow::In),
    Opcode::new(&[0x2A, 0x1A, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0xFF, 0xFF, 0], "write_10", Class::Write, transfer::write)
        .writes().data(Flow::Out),
    Opcode::new(&[0x2E, 0x12, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0xFF, 0xFF, 0], "write_and_verify_10", Class::Write,
            verify::write_and_verify)
        .writes().data(Flow::Out),
    Opcode::new(&[0x2F, 0x16, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0xFF, 0xFF, 0], "verify_10", Class::Verify, verify::verify)
        .reads().data(Flow::Out),
    Opcode::new(&[0x34, 0x02, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0xFF, 0xFF, 0], "pre_fetch_10", Class::Read,
            transfer::pre_fetch)
        .reads(),
    Opcode::new(&[0x35, 0x06, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0xFF, 0xFF, 0], "synchronize_cache_10", Class::Flush,
            transfer::synchronize_cache)
        .medium(Medium::Read).reservation(Reservation::Write),
    Opcode::new(&[0x41, 0x08, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0xFF, 0xFF, 0], "write_same_10", Class::Provision,
            provision::write_same)
        .writes().data(Flow::Out),
    Opcode::new(&[0x42, 0, 0, 0, 0, 0, 0x1F, 0xFF, 0xFF, 0], "unmap", Class::Provision, provision::unmap)
        .writes().data(Flow::Out).requires(Requires::Thin),
    Opcode::new(&[0x55, 0x11, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0], "mode_select_10", Class::Control, mode::select)
        .data(Flow::Out).reservation(Reservation::Write),
    Opcode::new(&[0x5A, 0x18, 0xFF, 0xFF, 0, 0, 0, 0xFF, 0xFF, 0], "mode_sense_10", Class::Query, mode::sense)
        .data(Flow::In),
    Opcode::new(&[0x88, 0x1A, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0],
            "read_16", Class::Read, transfer::read)
        .reads().data(Flow::In),
    Opcode::new(&[0x89, 0x1A, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0xFF, 0x1F, 0],
            "compare_and_write", Class::Atomic, compare::compare_and_write)
        .writes().data(Flow::Out),
    Opcode::new(&[0x8A, 0x1A, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0],
            "write_16", Class::Write, transfer::write)
        .writes().data(Flow::Out),
    Opcode::new(&[0x8B, 0x1A, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0],
            "orwrite_16", Class::Atomic, compare::orwrite)
        .writes().data(Flow::Out),
    Opcode::new(&[0x8E, 0x12, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0],
            "write_and_verify_16", Class::Write, verify::write_and_verify)
        .writes().data(Flow::Out),
    Opcode::new(&[0x8F, 0x16, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0],
            "verify_16", Class::Verify, verify::verify)
        .reads().data(Flow::Out),
    Opcode::new(&[0x90, 0x02, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0],
            "pre_fetch_16", Class::Read, transfer::pre_fetch)
        .reads(),
    Opcode::new(&[0x91, 0x06, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0],
            "synchronize_cache_16", Class::Flush, transfer::synchronize_cache)
        .medium(Medium::Read).reservation(Reservation::Write),
    Opcode::new(&[0x93, 0x09, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0],
            "write_same_16", Class::Provision, provision::write_same)
        .writes().data(Flow::Out),
    Opcode::new(&[0x9E, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0], "read_capacity_16", Class::Query,
            capacity::read_capacity_16)
        .action().medium(Medium::Read).data(Flow::In),
    Opcode::new(&[0x9E, 0x12, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0],
            "get_lba_status", Class::Query, capacity::get_lba_status)
        .action().reads().data(Flow::In).requires(Requires::Thin),
    Opcode::new(&[0xA0, 0, 0xFF, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0], "report_luns", Class::Query, luns::report_luns)
        .data(Flow::In).attention(Attention::Passed),
    Opcode::new(&[0xA3, 0x0C, 0x87, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0],
            "report_supported_operation_codes", Class::Query, supported::operation_codes)
        .action().data(Flow::In),
    Opcode::new(&[0xA3, 0x0D, 0x80, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0],
            "report_supported_task_management_functions", Class::Query, supported::task_management_functions)
        .action().data(Flow::In),
    Opcode::new(&[0xA8, 0x1A, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0], "read_12", Class::Read,
            transfer::read)
        .reads().data(Flow::In),
    Opcode::new(&[0xAA, 0x1A, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0], "write_12", Class::Write,
            transfer::write)
        .writes().data(Flow::Out),
    Opcode::new(&[0xAE, 0x12, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0], "write_and_verify_12",
            Class::Write, verify::write_and_verify)
        .writes().data(Flow::Out),
    Opcode::new(&[0xAF, 0x16, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0], "verify_12", Class::Verify,
            verify::verify)
        .reads().data(Flow::Out),
];
