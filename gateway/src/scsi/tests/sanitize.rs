//! SANITIZE (SBC-4).

use super::bench::{code, pattern, room_of};
use super::{Bench, cdb10, cdb16, sense};
use crate::disk::{Error, Outcome};
use crate::scsi::step::{Finished, Step, status};
use crate::scsi::{Milestone, Reset};

const BLOCK_ERASE: [u8; 10] = [0x48, 0x02, 0, 0, 0, 0, 0, 0, 0, 0];
const EXIT_FAILURE_MODE: [u8; 10] = [0x48, 0x1F, 0, 0, 0, 0, 0, 0, 0, 0];
const IMMED: u8 = 0x80;
const AUSE: u8 = 0x20;
const TEST_UNIT_READY: [u8; 6] = [0; 6];

fn with(flags: u8, cdb: [u8; 10]) -> [u8; 10] {
    let mut cdb = cdb;
    cdb[1] |= flags;
    cdb
}

fn overwrite(len: u16) -> [u8; 10] {
    with(0x01, cdb10(0x48, 0, len))
}

fn list(flags: u8, pattern: &[u8]) -> Vec<u8> {
    let [high, low] = (pattern.len() as u16).to_be_bytes();
    [&[flags, 0, high, low], pattern].concat()
}

#[test]
fn block_erase_leaves_every_block_unmapped_and_zero() {
    let mut bench = Bench::new();
    bench.writes(&cdb16(0x8A, 0, 64), &pattern(64 * 512));
    bench.writes(&cdb16(0x8A, 32768 - 8, 8), &pattern(8 * 512));
    let ended = bench.passes(&BLOCK_ERASE);
    assert_eq!(ended.io, ["background"]);
    assert!(bench.written.is_empty());
    assert_eq!(bench.note, None);
    let mut lba_status = cdb16(0x9E, 0, 64);
    lba_status[1] = 0x12;
    let status = bench.reads(&lba_status, 64);
    // GET LBA STATUS: one descriptor, deallocated, over the whole unit.
    assert_eq!((status[20], u32::from_be_bytes(status[16..20].try_into().unwrap())), (1, 32768));
}

#[test]
fn overwrite_repeats_the_pattern_in_every_block_and_inverts_it_between_passes() {
    // SBC-4, OVERWRITE parameter list: INVERT, OVERWRITE COUNT, INITIALIZATION PATTERN.
    let mut bench = Bench::new();
    let data = list(0x80 | 2, &[1, 2, 3]);
    bench.writes(&overwrite(7), &data);
    let last = bench.load((16 << 20) - 512, 512);
    assert_eq!((last[..4].to_vec(), last[511]), (vec![!1, !2, !3, !1], !2));
    assert_eq!(bench.load(0, 512), last);
    bench.writes(&overwrite(7), &list(3, &[1, 2, 3]));
    assert_eq!(bench.load(512, 512)[..4], [1, 2, 3, 1]);
}

#[test]
fn an_overwrite_without_a_count_or_with_a_wrong_pattern_is_refused() {
    let mut bench = Bench::new();
    for len in 0..5 {
        bench.fails_with(&overwrite(len), &list(1, &[0; 512])[..len.into()], sense::INVALID_FIELD_IN_CDB);
    }
    bench.fails_with(&overwrite(517), &list(1, &[0; 513]), sense::INVALID_FIELD_IN_CDB);
    bench.fails_with(&overwrite(516), &list(0, &[0; 512]), sense::INVALID_FIELD_IN_CDB);
    bench.fails_with(&overwrite(516), &[&[1, 0, 0, 0], &[0; 512][..]].concat(), sense::INVALID_FIELD_IN_CDB);
    bench.fails_with(&overwrite(516), &list(1, &[0; 512])[..515], sense::PARAMETER_LIST_LENGTH_ERROR);
    bench.fails_with(&overwrite(8), &[1, 0, 0, 5, 1, 2, 3, 4], sense::PARAMETER_LIST_LENGTH_ERROR);
    let with_list = with(0, [0x48, 0x02, 0, 0, 0, 0, 0, 0, 8, 0]);
    bench.fails_with(&with_list, &[0; 8], sense::INVALID_FIELD_IN_CDB);
    assert!(!bench.unit.is_busy() && bench.written.is_empty());
}

#[test]
fn while_it_runs_only_questions_are_answered_and_progress_is_told() {
    // SBC-4, sanitize operations: LOGICAL UNIT NOT READY, SANITIZE IN PROGRESS, with a progress indication.
    let mut bench = Bench::new();
    let mut cdb = overwrite(5);
    cdb[1] |= IMMED;
    // Two passes of one piece each.
    bench.writes(&cdb, &list(2, &[7]));
    bench.step_background();
    let busy = bench.fails(&TEST_UNIT_READY, sense::SANITIZE_IN_PROGRESS);
    assert_eq!(busy.sense[15..18], [0x80, 0x80, 0]);
    bench.fails(&cdb10(0x28, 0, 1), sense::SANITIZE_IN_PROGRESS);
    bench.fails(&cdb10(0x25, 0, 0), sense::SANITIZE_IN_PROGRESS);
    bench.fails(&[0x1B, 1, 0, 0, 1, 0], sense::SANITIZE_IN_PROGRESS);
    bench.fails(&BLOCK_ERASE, sense::SANITIZE_IN_PROGRESS);
    bench.fails(&[0x04, 0, 0, 0, 0, 0], sense::SANITIZE_IN_PROGRESS);
    let polled = bench.reads(&[0x03, 0, 0, 0, 18, 0], 18);
    assert_eq!((code(&polled), &polled[15..18]), ((2, 0x04, 0x1B), &[0x80, 0x80, 0][..]));
    bench.reads(&[0x12, 0, 0, 0, 96, 0], 96);
    bench.reads(&[0x1A, 0, 0x3F, 0, 255, 0], 255);
    // A nexus that comes later learns it too, after the power-on.
    let second = bench.second();
    let ended = bench.run_as(second.nexus(), &TEST_UNIT_READY, &mut room_of(0));
    assert_eq!(code(&ended.sense), (2, 0x04, 0x1B));
    bench.finish_background();
    bench.passes(&TEST_UNIT_READY);
    assert_eq!(bench.load(0, 512), [7; 512]);
}

#[test]
fn resets_do_not_stop_it() {
    let mut bench = Bench::new();
    bench.writes(&cdb16(0x8A, 0, 1), &pattern(512));
    bench.passes(&with(IMMED, BLOCK_ERASE));
    bench.unit.reset(Reset::LogicalUnit);
    bench.unit.reset(Reset::Target);
    bench.fails(&TEST_UNIT_READY, sense::SCSI_BUS_RESET_OCCURRED);
    bench.fails(&TEST_UNIT_READY, sense::SANITIZE_IN_PROGRESS);
    bench.finish_background();
    assert!(bench.written.is_empty());
    bench.passes(&TEST_UNIT_READY);
}

#[test]
fn a_failed_sanitize_keeps_the_medium_out_of_reach_until_another_succeeds() {
    // SBC-4: SANITIZE COMMAND FAILED; without AUSE only another sanitize ends that, and only one without AUSE.
    let mut bench = Bench::new();
    bench.writes(&cdb16(0x8A, 0, 1), &pattern(512));
    bench.passes(&with(IMMED, BLOCK_ERASE));
    bench.fault = Some(Error::Io(5));
    bench.finish_background();
    assert!(bench.note.is_some());
    for cdb in [&TEST_UNIT_READY[..], &cdb10(0x28, 0, 1), &cdb10(0x2A, 0, 0)] {
        bench.fails(cdb, sense::SANITIZE_COMMAND_FAILED);
    }
    assert_eq!(code(&bench.reads(&[0x03, 0, 0, 0, 18, 0], 18)), sense::SANITIZE_COMMAND_FAILED.code());
    bench.fails(&EXIT_FAILURE_MODE, sense::INVALID_FIELD_IN_CDB);
    bench.fails(&with(AUSE, BLOCK_ERASE), sense::INVALID_FIELD_IN_CDB);
    bench.passes(&BLOCK_ERASE);
    bench.passes(&TEST_UNIT_READY);
    assert_eq!(bench.note, None);
}

#[test]
fn a_failed_unrestricted_sanitize_can_be_left_as_it_is() {
    let mut bench = Bench::new();
    bench.passes(&EXIT_FAILURE_MODE);
    bench.writes(&cdb16(0x8A, 0, 1), &pattern(512));
    bench.passes(&with(IMMED | AUSE, BLOCK_ERASE));
    bench.fault = Some(Error::NoSpace);
    bench.finish_background();
    bench.fails(&TEST_UNIT_READY, sense::SANITIZE_COMMAND_FAILED);
    bench.passes(&EXIT_FAILURE_MODE);
    assert_eq!(bench.note, None);
    assert_eq!(bench.reads(&cdb10(0x28, 0, 1), 512), pattern(512));
}

#[test]
fn who_waits_for_a_sanitize_learns_that_it_failed() {
    let mut bench = Bench::new();
    let buffer = room_of(0);
    let nexus = bench.session.nexus();
    let Step::Io { io, then, .. } = bench.unit.execute(&BLOCK_ERASE, nexus, &buffer) else {
        panic!("answered at once")
    };
    assert_eq!(io.len(), 1);
    bench.fault = Some(Error::Io(5));
    bench.finish_background();
    let mut results = [Finished { result: Ok(Outcome::default()), buffer: None }];
    match bench.unit.resume(then, &mut results, &buffer) {
        Step::Done(reply) => {
            assert_eq!((reply.status, code(&reply.sense)), (status::CHECK_CONDITION, (3, 0x31, 0x03)));
        }
        Step::Io { .. } => panic!("goes on"),
    }
}

#[test]
fn a_sanitize_that_a_restart_has_interrupted_begins_anew_and_a_failed_one_stays_failed() {
    let mut bench = Bench::new();
    bench.writes(&cdb16(0x8A, 0, 1), &pattern(512));
    bench.passes(&with(IMMED, BLOCK_ERASE));
    let (note, written) = (bench.note.clone(), bench.written.clone());
    assert!(note.is_some());
    bench.unit.interrupt();
    assert!(!bench.step_background());
    bench.fails(&cdb10(0x28, 0, 1), sense::SANITIZE_COMMAND_FAILED);

    let mut next = Bench::new();
    (next.note, next.written) = (note.clone(), written);
    next.unit.recall(note.as_deref());
    next.fails(&cdb10(0x28, 0, 1), sense::SANITIZE_IN_PROGRESS);
    next.step_background();
    next.fault = Some(Error::Io(5));
    next.finish_background();
    let failed = next.note.clone();

    let mut last = Bench::new();
    last.unit.recall(failed.as_deref());
    assert!(!last.unit.is_busy());
    last.fails(&TEST_UNIT_READY, sense::SANITIZE_COMMAND_FAILED);
    last.passes(&BLOCK_ERASE);
    last.passes(&TEST_UNIT_READY);
}

#[test]
fn with_immed_it_is_answered_when_it_is_noted_and_refused_when_it_cannot_be() {
    // SBC-4, SANITIZE, IMMED: GOOD promises the operation, and it goes on after a power cycle.
    let mut bench = Bench::new();
    let ended = bench.passes(&with(IMMED, BLOCK_ERASE));
    assert_eq!(ended.io, ["noted"]);
    assert!(bench.note.is_some() && bench.unit.is_busy());
    bench.finish_background();

    let (buffer, nexus) = (room_of(0), bench.session.nexus());
    let Step::Io { then, .. } = bench.unit.execute(&with(IMMED, BLOCK_ERASE), nexus, &buffer) else {
        panic!("answered before it is noted")
    };
    bench.fault = Some(Error::Io(5));
    assert!(bench.step_background() && !bench.unit.has_reached(Milestone::Noted));
    bench.finish_background();
    assert!(bench.unit.has_reached(Milestone::Noted));
    match bench.unit.resume(then, &mut [], &buffer) {
        Step::Done(reply) => assert_eq!(code(&reply.sense), sense::SANITIZE_COMMAND_FAILED.code()),
        Step::Io { .. } => panic!("goes on"),
    }
}

#[test]
fn a_note_that_cannot_be_erased_is_a_failure_since_a_restart_would_erase_later_data() {
    let mut bench = Bench::new();
    bench.passes(&with(IMMED, BLOCK_ERASE));
    // Erased, flushed.
    for _ in 0..2 {
        bench.step_background();
    }
    bench.fault = Some(Error::Io(5));
    bench.finish_background();
    bench.fails(&TEST_UNIT_READY, sense::SANITIZE_COMMAND_FAILED);
}

#[test]
fn a_sanitize_takes_the_place_of_a_self_test() {
    let mut bench = Bench::new();
    bench.passes(&[0x1D, 0x40, 0, 0, 0, 0]);
    bench.step_background();
    let waits = bench.unit.go_on().unwrap();
    let (buffer, nexus) = (room_of(0), bench.session.nexus());
    let Step::Io { .. } = bench.unit.execute(&with(IMMED, BLOCK_ERASE), nexus, &buffer) else {
        panic!("answered before it is noted")
    };
    // The self-test's read comes back late, and counts for nothing.
    assert!(bench.unit.go_on().is_none());
    drop(waits);
    bench.unit.finished(&[]);
    bench.fails(&TEST_UNIT_READY, sense::SANITIZE_IN_PROGRESS);
    bench.finish_background();
    bench.passes(&TEST_UNIT_READY);
}
