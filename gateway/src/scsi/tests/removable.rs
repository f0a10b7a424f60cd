//! START STOP UNIT, PREVENT ALLOW MEDIUM REMOVAL, and a unit whose medium is out; SEND DIAGNOSTIC.

use super::bench::{code, geometry, none};
use super::{Bench, cdb10, sense};
use crate::scsi::opcode::{self, Medium};
use crate::scsi::step::status;
use crate::scsi::{Reset, Settings};

const TEST_UNIT_READY: [u8; 6] = [0; 6];
const EJECT: [u8; 6] = [0x1B, 0, 0, 0, 0x02, 0];
const LOAD: [u8; 6] = [0x1B, 0, 0, 0, 0x03, 0];
const PREVENT: [u8; 6] = [0x1E, 0, 0, 0, 1, 0];
const ALLOW: [u8; 6] = [0x1E, 0, 0, 0, 0, 0];

fn removable() -> Bench {
    Bench::with(geometry(), Settings { removable: true, ..Settings::default() }, 1 << 20)
}

#[test]
fn a_removable_medium_is_ejected_and_loaded() {
    // SBC-3, START STOP UNIT.
    let mut bench = removable();
    for immed in [0, 1] {
        let (mut eject, mut load) = (EJECT, LOAD);
        (eject[1], load[1]) = (immed, immed);
        bench.passes(&eject);
        bench.fails(&TEST_UNIT_READY, sense::MEDIUM_NOT_PRESENT);
        bench.passes(&load);
        bench.passes(&TEST_UNIT_READY);
    }
}

#[test]
fn without_a_medium_every_command_that_needs_one_says_so() {
    let mut bench = removable();
    bench.passes(&EJECT);
    for row in opcode::all().iter().filter(|row| row.medium != Medium::Unused) {
        let mut cdb = vec![0; row.usage.len()];
        (cdb[0], cdb[1]) = (row.code, row.service_action.unwrap_or(0) as u8);
        bench.fails(&cdb, sense::MEDIUM_NOT_PRESENT);
    }
    // REQUEST SENSE reports the same as data; INQUIRY and MODE SENSE need no medium.
    assert_eq!(code(&bench.reads(&[3, 0, 0, 0, 18, 0], 18)), sense::MEDIUM_NOT_PRESENT.code());
    bench.reads(&[0x12, 0, 0, 0, 96, 0], 96);
    bench.reads(&[0x1A, 0, 0x3F, 0, 255, 0], 255);
}

#[test]
fn a_loaded_medium_is_news_to_the_other_initiators() {
    let mut bench = removable();
    let second = bench.second();
    bench.passes(&EJECT);
    bench.passes(&LOAD);
    bench.passes(&LOAD);
    bench.passes(&TEST_UNIT_READY);
    let ended = bench.run_as(second.nexus(), &TEST_UNIT_READY, &mut none());
    assert_eq!(code(&ended.sense), sense::NOT_READY_TO_READY_CHANGE.code());
    assert_eq!(bench.run_as(second.nexus(), &TEST_UNIT_READY, &mut none()).status, status::GOOD);
}

#[test]
fn no_initiator_can_eject_what_any_holds_in() {
    // SBC-3, PREVENT ALLOW MEDIUM REMOVAL.
    let mut bench = removable();
    let second = bench.second();
    bench.passes(&PREVENT);
    bench.fails(&EJECT, sense::MEDIUM_REMOVAL_PREVENTED);
    let ended = bench.run_as(second.nexus(), &EJECT, &mut none());
    assert_eq!(code(&ended.sense), sense::MEDIUM_REMOVAL_PREVENTED.code());
    bench.passes(&TEST_UNIT_READY);
    bench.run_as(second.nexus(), &PREVENT, &mut none());
    bench.passes(&ALLOW);
    bench.fails(&EJECT, sense::MEDIUM_REMOVAL_PREVENTED);
    // The end of a nexus ends what it has asked for.
    drop(second);
    bench.passes(&EJECT);
    // Nor can any load it.
    bench.passes(&PREVENT);
    bench.fails(&LOAD, sense::MEDIUM_REMOVAL_PREVENTED);
    bench.passes(&EJECT);
    bench.passes(&ALLOW);
    bench.passes(&LOAD);
    bench.fails(&[0x1E, 0, 0, 0, 2, 0], sense::INVALID_FIELD_IN_CDB);
}

#[test]
fn a_reset_lets_the_medium_go() {
    for (why, condition) in [
        (Reset::LogicalUnit, sense::BUS_DEVICE_RESET_FUNCTION_OCCURRED),
        (Reset::Target, sense::SCSI_BUS_RESET_OCCURRED),
    ] {
        let mut bench = removable();
        bench.passes(&PREVENT);
        bench.unit.reset(why);
        bench.fails(&TEST_UNIT_READY, condition);
        bench.passes(&EJECT);
    }
}

#[test]
fn power_conditions_and_a_stop_without_loej_change_nothing() {
    let mut bench = removable();
    for condition in 1..16 {
        bench.passes(&[0x1B, 1, 0, 0, condition << 4 | 0x02, 0]);
        bench.passes(&TEST_UNIT_READY);
    }
    bench.passes(&[0x1B, 0, 0, 0, 0, 0]);
    bench.reads(&cdb10(0x28, 0, 1), 512);
}

#[test]
fn a_fixed_disk_starts_and_stops_but_does_not_let_go() {
    let mut bench = Bench::new();
    bench.passes(&[0x1B, 0, 0, 0, 0, 0]);
    bench.passes(&[0x1B, 0, 0, 0, 1, 0]);
    bench.reads(&cdb10(0x28, 0, 1), 512);
    bench.fails(&EJECT, sense::INVALID_FIELD_IN_CDB);
    bench.fails(&LOAD, sense::INVALID_FIELD_IN_CDB);
    bench.fails(&PREVENT, sense::INVALID_COMMAND_OPERATION_CODE);
}
