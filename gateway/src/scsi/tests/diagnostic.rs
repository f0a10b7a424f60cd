//! SEND DIAGNOSTIC, RECEIVE DIAGNOSTIC RESULTS and the Self-Test Results log page (SPC-4, self-test operations).

use super::bench::code;
use super::{Bench, cdb10, sense};
use crate::disk::Error;
use crate::scsi::Reset;

fn test(code: u8) -> [u8; 6] {
    [0x1D, code << 5, 0, 0, 0, 0]
}

/// The newest entry: code and result, sense.
fn newest(bench: &mut Bench) -> (u8, u8, [u8; 3]) {
    let page = bench.reads(&[0x4D, 0, 0x50, 0, 0, 0, 0, 0x10, 0, 0], 4096);
    assert_eq!(page.len(), 4 + 20 * 20);
    assert_eq!(page[4..8], [0, 1, 3, 0x10]);
    (page[8] >> 5, page[8] & 0xF, page[20..23].try_into().unwrap())
}

#[test]
fn the_default_self_test_asks_the_store_and_leaves_no_record() {
    let mut bench = Bench::new();
    let ended = bench.passes(&[0x1D, 0x04, 0, 0, 0, 0]);
    assert_eq!(ended.io[0], "flush");
    assert_eq!(newest(&mut bench), (0, 0, [0; 3]));
    bench.fault = Some(Error::Io(5));
    bench.fails(&[0x1D, 0x04, 0, 0, 0, 0], sense::LOGICAL_UNIT_FAILED_SELF_TEST);
    bench.fails(&[0x1D, 0x24, 0, 0, 0, 0], sense::INVALID_FIELD_IN_CDB);
}

#[test]
fn a_foreground_test_is_answered_at_its_end_and_recorded() {
    let mut bench = Bench::new();
    bench.passes(&test(0b101));
    assert_eq!(newest(&mut bench), (0b101, 0, [0; 3]));
    bench.passes(&test(0b110));
    assert_eq!(newest(&mut bench), (0b110, 0, [0; 3]));
    for code in [0b011, 0b111] {
        bench.fails(&test(code), sense::INVALID_FIELD_IN_CDB);
    }
}

#[test]
fn a_background_test_lets_others_work_and_says_how_far_it_is() {
    let mut bench = Bench::new();
    bench.passes(&test(0b010));
    assert_eq!(newest(&mut bench), (0b010, 0xF, [0; 3]));
    for _ in 0..8 {
        assert!(bench.step_background());
    }
    bench.reads(&cdb10(0x28, 0, 1), 512);
    let polled = bench.reads(&[0x03, 0, 0, 0, 18, 0], 18);
    // SPC-4, pollable sense data: NO SENSE, SELF-TEST IN PROGRESS, half of 16 MiB.
    assert_eq!((code(&polled), &polled[15..18]), ((0, 0x04, 0x09), &[0x80, 0x80, 0][..]));
    bench.fails(&test(0b001), sense::SELF_TEST_IN_PROGRESS);
    bench.finish_background();
    assert_eq!(newest(&mut bench), (0b010, 0, [0; 3]));
    bench.passes(&[0; 6]);
}

#[test]
fn a_background_test_is_aborted_by_send_diagnostic_and_by_a_reset() {
    let mut bench = Bench::new();
    bench.fails(&test(0b100), sense::INVALID_FIELD_IN_CDB);
    bench.passes(&test(0b001));
    bench.passes(&test(0b100));
    assert!(!bench.unit.is_busy());
    assert_eq!(newest(&mut bench).1, 1);
    bench.passes(&test(0b010));
    bench.step_background();
    bench.unit.reset(Reset::LogicalUnit);
    assert!(!bench.step_background());
    bench.fails(&[0; 6], sense::BUS_DEVICE_RESET_FUNCTION_OCCURRED);
    assert_eq!(newest(&mut bench).1, 2);
}

#[test]
fn a_test_that_fails_says_so_in_the_log_and_to_who_waits() {
    let mut bench = Bench::new();
    bench.passes(&test(0b001));
    bench.fault = Some(Error::Io(5));
    bench.finish_background();
    assert_eq!(newest(&mut bench), (0b001, 7, [4, 0x3E, 3]));
    bench.reads(&cdb10(0x28, 0, 1), 512);
}

#[test]
fn twenty_results_are_kept_newest_first() {
    let mut bench = Bench::new();
    for _ in 0..30 {
        bench.passes(&test(0b101));
    }
    bench.passes(&test(0b110));
    let page = bench.reads(&[0x4D, 0, 0x50, 0, 0, 0, 0, 0x10, 0, 0], 4096);
    let codes: Vec<u8> = page[4..].chunks(20).map(|entry| entry[4] >> 5).collect();
    assert_eq!((codes.len(), codes[0]), (20, 0b110));
    assert!(codes[1..].iter().all(|code| *code == 0b101));
}

#[test]
fn the_only_diagnostic_page_lists_itself() {
    let mut bench = Bench::new();
    bench.writes(&[0x1D, 0x10, 0, 0, 4, 0], &[0, 0, 0, 0]);
    assert_eq!(bench.reads(&[0x1C, 0x01, 0, 0, 64, 0], 64), [0, 0, 0, 1, 0]);
    assert_eq!(bench.reads(&[0x1C, 0x00, 0, 0, 64, 0], 64), [0, 0, 0, 1, 0]);
    bench.fails(&[0x1C, 0x01, 0x3F, 0, 64, 0], sense::INVALID_FIELD_IN_CDB);
    bench.fails_with(&[0x1D, 0x10, 0, 0, 4, 0], &[0x3F, 0, 0, 0], sense::INVALID_FIELD_IN_PARAMETER_LIST);
    bench.fails_with(&[0x1D, 0x10, 0, 0, 4, 0], &[0, 0], sense::PARAMETER_LIST_LENGTH_ERROR);
    bench.fails_with(&[0x1D, 0x00, 0, 0, 4, 0], &[0; 4], sense::INVALID_FIELD_IN_CDB);
}
