//! Errors of the store, as the initiator hears of them.

use super::bench::pattern;
use super::{Bench, Sense, cdb10, cdb16, sense};
use crate::disk::Error;

/// Each error, with its sense data for a read and for a write.
fn errors() -> Vec<(Error, Sense, Sense)> {
    let same = |error, sense| (error, sense, sense);
    vec![
        same(Error::OutOfRange, sense::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE),
        same(Error::NoSpace, sense::SPACE_ALLOCATION_FAILED_WRITE_PROTECT),
        same(Error::ReadOnly, sense::WRITE_PROTECTED),
        same(Error::Fenced, sense::TARGET_PORT_IN_STANDBY_STATE),
        same(Error::NotReady, sense::BECOMING_READY),
        same(Error::Unsupported, sense::INVALID_FIELD_IN_CDB),
        (Error::Io(5), sense::UNRECOVERED_READ_ERROR, sense::WRITE_ERROR),
    ]
}

#[test]
fn every_error_of_the_store_reaches_the_initiator_as_sense_data() {
    let mut bench = Bench::new();
    for (error, reading, writing) in errors() {
        let mut fails = |cdb: &[u8], data: &[u8], sense: Sense| {
            bench.fault = Some(error.clone());
            bench.fails_with(cdb, data, sense);
            assert_eq!(bench.fault, None, "the command asked nothing of the disk");
        };
        fails(&cdb10(0x2F, 0, 1), &[], reading);
        let data = pattern(512);
        fails(&cdb10(0x2A, 0, 1), &data, writing);
        fails(&cdb10(0x2E, 0, 1), &data, writing);
        fails(&cdb10(0x35, 0, 1), &[], writing);
        fails(&cdb10(0x41, 0, 1), &data, writing);
        fails(&cdb10(0x41, 0, 1), &[0; 512], writing);
        fails(&cdb16(0x8B, 0, 1), &data, reading);
    }
}

#[test]
fn a_failed_read_returns_no_data() {
    let mut bench = Bench::new();
    bench.fault = Some(Error::Io(5));
    let ended = bench.run(&cdb10(0x28, 0, 2), &mut super::bench::room_of(700));
    assert_eq!(super::bench::code(&ended.sense), sense::UNRECOVERED_READ_ERROR.code());
    assert_eq!((ended.transfer, ended.data.len()), (0, 0));
}

#[test]
fn a_disk_that_shrank_unnoticed_answers_for_itself() {
    // The size may change at any time; the disk checks (see `disk`).
    let mut bench = Bench::new();
    bench.fault = Some(Error::OutOfRange);
    bench.fails_with(&cdb10(0x2A, 0, 1), &pattern(512), sense::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE);
}
