//! READ BUFFER and WRITE BUFFER (SPC-4).

use super::bench::{pattern, room_of};
use super::{Bench, sense};
use crate::scsi::step::status;

fn read(mode: u8, id: u8, offset: u32, len: u32) -> [u8; 10] {
    buffer(0x3C, mode, id, offset, len)
}

fn write(mode: u8, id: u8, offset: u32, len: u32) -> [u8; 10] {
    buffer(0x3B, mode, id, offset, len)
}

fn buffer(code: u8, mode: u8, id: u8, offset: u32, len: u32) -> [u8; 10] {
    let (offset, len) = (offset.to_be_bytes(), len.to_be_bytes());
    [code, mode, id, offset[1], offset[2], offset[3], len[1], len[2], len[3], 0]
}

#[test]
fn what_is_written_into_the_data_buffer_is_what_everybody_reads() {
    let mut bench = Bench::new();
    assert_eq!(bench.reads(&read(0x02, 0, 100, 8), 8), [0; 8]);
    bench.writes(&write(0x02, 0, 1000, 600), &pattern(600));
    assert_eq!(bench.reads(&read(0x02, 0, 1000, 600), 600), pattern(600));
    assert_eq!(bench.reads(&read(0x02, 0, 998, 4), 4), [0, 0, pattern(2)[0], pattern(2)[1]]);
    let second = bench.second();
    let ended = bench.run_as(second.nexus(), &read(0x02, 0, 1000, 4), &mut room_of(4));
    assert_eq!(ended.data, pattern(4));
}

#[test]
fn the_descriptor_says_how_much_there_is_and_nothing_beyond_is_touched() {
    // SPC-4, READ BUFFER descriptor mode: OFFSET BOUNDARY, BUFFER CAPACITY.
    let mut bench = Bench::new();
    assert_eq!(bench.reads(&read(0x03, 0, 0, 4), 4), [0, 1, 0, 0]);
    assert_eq!(bench.reads(&read(0x03, 9, 0, 4), 4), [0; 4]);
    assert_eq!(bench.reads(&read(0x02, 0, 65535, 100), 100), [0]);
    bench.fails(&read(0x02, 0, 65536, 1), sense::INVALID_FIELD_IN_CDB);
    bench.fails(&read(0x02, 1, 0, 1), sense::INVALID_FIELD_IN_CDB);
    bench.fails_with(&write(0x02, 0, 65000, 600), &pattern(600), sense::INVALID_FIELD_IN_CDB);
    bench.fails_with(
        &write(0x02, 0, 0, 600),
        &pattern(599),
        sense::INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT,
    );
    // An allocation length of 16 MiB costs no 16 MiB.
    assert_eq!(bench.reads(&read(0x02, 0, 0, 0xFF_FFFF), 70_000).len(), 65536);
}

#[test]
fn the_echo_buffer_returns_what_the_same_nexus_has_written_last() {
    // SPC-4, echo buffer: COMMAND SEQUENCE ERROR before the first WRITE BUFFER; EBOS, so no other nexus overwrites it.
    let mut bench = Bench::new();
    bench.fails(&read(0x0A, 0, 0, 64), sense::COMMAND_SEQUENCE_ERROR);
    bench.writes(&write(0x0A, 0, 0, 300), &pattern(300));
    let second = bench.second();
    let ended = bench.run_as(second.nexus(), &read(0x0A, 0, 0, 64), &mut room_of(64));
    assert_eq!(ended.status, status::CHECK_CONDITION);
    assert_eq!(bench.reads(&read(0x0A, 0, 0, 4096), 4096), pattern(300));
    assert_eq!(bench.reads(&read(0x0B, 0, 0, 4), 4), [0x01, 0, 0x10, 0]);
    bench.fails_with(&write(0x0A, 0, 0, 4097), &pattern(4097), sense::INVALID_FIELD_IN_CDB);
}

#[test]
fn no_other_mode_is_there_above_all_no_microcode() {
    let mut bench = Bench::new();
    for mode in (0..32).filter(|mode| !matches!(mode, 0x02 | 0x0A)) {
        bench.fails(&write(mode, 0, 0, 0), sense::INVALID_FIELD_IN_CDB);
        if !matches!(mode, 0x03 | 0x0B) {
            bench.fails(&read(mode, 0, 0, 4), sense::INVALID_FIELD_IN_CDB);
        }
    }
}

#[test]
fn defect_lists_are_empty_in_the_format_that_was_asked_for() {
    // SBC-3, READ DEFECT DATA (10) and (12).
    let mut bench = Bench::new();
    assert_eq!(bench.reads(&[0x37, 0, 0x1D, 0, 0, 0, 0, 0, 32, 0], 32), [0, 0x1D, 0, 0]);
    let twelve = [0xB7, 0x0D, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0];
    assert_eq!(bench.reads(&twelve, 32), [0, 0x0D, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bench.reads(&[0x37, 0, 0x08, 0, 0, 0, 0, 0, 3, 0], 32), [0, 0x08, 0]);
}
