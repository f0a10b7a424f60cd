//! Which commands a reservation keeps out, held against the standards' tables and not against our own.

use super::*;
use crate::disk::Geometry;
use crate::scsi::Settings;
use crate::scsi::opcode::{self, Opcode};
use crate::scsi::tests::bench::geometry;

/// How SPC-4 and SBC-3 list a command (Commands that are allowed in the presence of various reservations).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listed {
    /// Allowed throughout.
    Allowed,
    /// Allowed with write exclusive types only.
    Reads,
    /// Conflict, unless the sender may use the unit.
    Writes,
    /// Not listed: decides for itself.
    Itself,
}

fn listed(row: &Opcode) -> Listed {
    match (row.code, row.service_action) {
        // TEST UNIT READY, REQUEST SENSE, INQUIRY, READ CAPACITY, LOG SENSE, REPORT LUNS.
        (0x00 | 0x03 | 0x12 | 0x25 | 0x4D | 0xA0, _) | (0x9E, Some(0x10)) => Listed::Allowed,
        // REPORT IDENTIFYING INFORMATION, … TARGET PORT GROUPS, … ALIASES, … PRIORITY, … TIMESTAMP.
        (0xA3, Some(0x05 | 0x0A | 0x0B | 0x0E | 0x0F)) => Listed::Allowed,
        // PERSISTENT RESERVE IN.
        (0x5E, _) => Listed::Allowed,
        // READ, VERIFY, PRE-FETCH, GET LBA STATUS.
        (0x08 | 0x28 | 0xA8 | 0x88 | 0x2F | 0xAF | 0x8F | 0x34 | 0x90, _) | (0x9E, Some(0x12)) => {
            Listed::Reads
        }
        // MODE SENSE, READ BUFFER, RECEIVE COPY RESULTS, RECEIVE DIAGNOSTIC RESULTS, READ DEFECT DATA, REPORT SUPPORTED
        // OPERATION CODES and … TASK MANAGEMENT FUNCTIONS: what ALLOW COMMANDS of REPORT CAPABILITIES is about.
        (0x1A | 0x5A | 0x3C | 0x9B | 0x1C | 0x37 | 0xB7 | 0x84, _) | (0xA3, Some(0x0C | 0x0D)) => {
            Listed::Reads
        }
        // WRITE, WRITE AND VERIFY, COMPARE AND WRITE, ORWRITE, WRITE SAME, UNMAP, WRITE ATOMIC, SYNCHRONIZE CACHE.
        (0x0A | 0x2A | 0xAA | 0x8A | 0x2E | 0xAE | 0x8E | 0x89 | 0x8B | 0x41 | 0x93 | 0x42 | 0x9C, _) => {
            Listed::Writes
        }
        (0x35 | 0x91, _) => Listed::Writes,
        // MODE SELECT, LOG SELECT, SEND DIAGNOSTIC, WRITE BUFFER, FORMAT UNIT, SANITIZE, EXTENDED COPY, SET ….
        (0x15 | 0x55 | 0x4C | 0x1D | 0x3B | 0x04 | 0x48 | 0xA4, _) | (0x83, Some(0x00)) => Listed::Writes,
        // START STOP UNIT without START, PREVENT ALLOW MEDIUM REMOVAL with PREVENT: see the tests below.
        (0x1B, _) => Listed::Writes,
        (0x1E, _) => Listed::Allowed,
        _ => Listed::Itself,
    }
}

/// The shortest CDB of a row that could be one.
fn plain(row: &Opcode) -> Vec<u8> {
    let mut cdb = vec![0; row.usage.len()];
    (cdb[0], cdb[1]) = (row.code, row.service_action.unwrap_or(0) as u8);
    cdb
}

fn bench() -> Bench {
    let settings = Settings { removable: true, lun: 1, ..Settings::default() };
    let mut bench = Bench::with(Geometry { compare_and_write: 512, ..geometry() }, settings, 1 << 20);
    // SET TARGET PORT GROUPS is there only where states can be set.
    bench.through(Cluster::new(true));
    bench
}

#[test]
fn every_command_meets_every_reservation_as_the_standards_list_it() {
    for kind in [WE, EA, WERO, EARO, WEAR, EAAR] {
        let mut bench = bench();
        let holder = bench.session.clone();
        let registered = bench.join("iqn.2026-01.example:registered", 0, 3);
        let stranger = bench.join("iqn.2026-01.example:stranger", 0, 3);
        bench.does(&registered, REGISTER, 0, (0, 2));
        bench.does(&holder, REGISTER, 0, (0, 1));
        bench.does(&holder, RESERVE, kind, (1, 0));
        let excludes_reads = matches!(kind, EA | EARO | EAAR);
        for row in opcode::all() {
            let barred = match listed(row) {
                Listed::Itself => continue,
                Listed::Allowed => false,
                Listed::Reads => excludes_reads,
                Listed::Writes => true,
            };
            let cdb = plain(row);
            let mut run = |by: &Handle| bench.run_as(by.nexus(), &cdb, &mut none()).status == CONFLICT;
            assert_eq!(run(&stranger), barred, "{} with type {kind} from a stranger", row.name);
            let shut = barred && matches!(kind, WE | EA);
            assert_eq!(run(&registered), shut, "{} with type {kind} from a registrant", row.name);
            assert!(!run(&holder), "{} with type {kind} from the holder", row.name);
        }
    }
}

#[test]
fn nothing_conflicts_while_nothing_is_reserved() {
    let mut bench = bench();
    let first = bench.session.clone();
    let second = bench.join("iqn.2026-01.example:second", 0, 3);
    bench.does(&first, REGISTER, 0, (0, 1));
    for row in opcode::all().iter().filter(|row| listed(row) != Listed::Itself) {
        assert_ne!(bench.run_as(second.nexus(), &plain(row), &mut none()).status, CONFLICT, "{}", row.name);
    }
}

#[test]
fn a_unit_is_started_and_its_medium_let_go_by_anybody() {
    // SBC-3, Reservations: START STOP UNIT with START one and POWER CONDITION zero; PREVENT ALLOW MEDIUM REMOVAL with
    // PREVENT zero.
    let mut bench = bench();
    let first = bench.session.clone();
    let second = bench.join("iqn.2026-01.example:second", 0, 3);
    bench.does(&first, REGISTER, 0, (0, 1));
    bench.does(&first, RESERVE, EA, (1, 0));
    for (cdb, conflict) in [
        ([0x1B, 0, 0, 0, 0x01, 0], false),
        ([0x1B, 0, 0, 0, 0x03, 0], false),
        ([0x1B, 0, 0, 0, 0x00, 0], true),
        ([0x1B, 0, 0, 0, 0x02, 0], true),
        ([0x1B, 0, 0, 0, 0x21, 0], true),
        ([0x1E, 0, 0, 0, 0, 0], false),
        ([0x1E, 0, 0, 0, 1, 0], true),
    ] {
        assert_eq!(bench.status(&second, &cdb, &[]) == CONFLICT, conflict, "{cdb:02x?}");
    }
}

#[test]
fn a_conflict_comes_before_write_protection_and_range_and_after_a_unit_attention() {
    // SAM-5 and SPC-4: the order in which a command is looked at.
    let mut bench = bench();
    let first = bench.session.clone();
    let second = bench.join("iqn.2026-01.example:second", 0, 3);
    bench.does(&first, REGISTER, 0, (0, 1));
    bench.does(&first, RESERVE, WE, (1, 0));
    let beyond = super::super::cdb10(0x2A, u32::MAX, 1);
    assert_eq!(bench.status(&second, &beyond, &[0; 512]), CONFLICT);
    bench.unit.resized(2 << 20);
    assert_eq!(bench.status(&second, &beyond, &[0; 512]), status::CHECK_CONDITION);
    let mut reserved_bit = beyond;
    reserved_bit[1] = 0x80;
    assert_eq!(bench.status(&second, &reserved_bit, &[0; 512]), status::CHECK_CONDITION);
    assert_eq!(bench.status(&second, &beyond, &[0; 512]), CONFLICT);
}
