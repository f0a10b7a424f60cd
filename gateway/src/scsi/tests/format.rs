//! FORMAT UNIT (SBC-4).

use super::bench::{code, pattern};
use super::{Bench, cdb10, cdb16, sense};
use crate::disk::Error;

const FORMAT: [u8; 6] = [0x04, 0, 0, 0, 0, 0];
const WITH_LIST: [u8; 6] = [0x04, 0x10, 0, 0, 0, 0];
const WITH_LONG_LIST: [u8; 6] = [0x04, 0x30, 0, 0, 0, 0];

fn filled() -> Bench {
    let mut bench = Bench::new();
    bench.writes(&cdb16(0x8A, 100, 64), &pattern(64 * 512));
    bench
}

#[test]
fn a_format_leaves_zeros_and_gives_the_space_back() {
    for (cdb, list) in [(FORMAT, &[][..]), (WITH_LIST, &[0; 4]), (WITH_LONG_LIST, &[0; 8])] {
        let mut bench = filled();
        bench.writes(&cdb, list);
        assert!(bench.written.is_empty());
        assert_eq!(bench.reads(&cdb10(0x28, 100, 1), 512), [0; 512]);
        assert_eq!(bench.note, None);
    }
}

#[test]
fn with_immed_it_is_answered_at_once_and_commands_wait() {
    // SBC-4: LOGICAL UNIT NOT READY, FORMAT IN PROGRESS, with a progress indication.
    let mut bench = filled();
    bench.writes(&WITH_LIST, &[0, 0x82, 0, 0]);
    let busy = bench.fails(&cdb10(0x28, 0, 1), sense::FORMAT_IN_PROGRESS);
    assert_eq!(busy.sense[15], 0x80);
    assert_eq!(code(&bench.reads(&[0x03, 0, 0, 0, 18, 0], 18)), (2, 0x04, 0x04));
    bench.finish_background();
    assert!(bench.written.is_empty());
    bench.passes(&[0; 6]);
}

#[test]
fn an_initialization_pattern_is_written_everywhere() {
    let mut bench = filled();
    bench.writes(&WITH_LIST, &[0, 0x88, 0, 0, 0, 1, 0, 2, 0xAB, 0xCD]);
    assert_eq!(bench.load((16 << 20) - 512, 512), [0xAB, 0xCD].repeat(256));
}

#[test]
fn protection_information_and_defect_lists_are_refused() {
    let mut bench = filled();
    for list in [[1, 0x80, 0, 0], [0, 0x20, 0, 0], [0, 0, 0, 4]] {
        bench.fails_with(&WITH_LIST, &list, sense::INVALID_FIELD_IN_PARAMETER_LIST);
    }
    bench.fails_with(&WITH_LONG_LIST, &[0, 0, 0, 1, 0, 0, 0, 0], sense::INVALID_FIELD_IN_PARAMETER_LIST);
    bench.fails_with(&WITH_LIST, &[0, 0, 0], sense::PARAMETER_LIST_LENGTH_ERROR);
    bench.fails_with(&WITH_LONG_LIST, &[0; 7], sense::PARAMETER_LIST_LENGTH_ERROR);
    bench.fails(&[0x04, 0x80, 0, 0, 0, 0], sense::INVALID_FIELD_IN_CDB);
    assert_eq!(bench.written.len(), 64);
}

#[test]
fn a_format_that_failed_is_made_good_by_another() {
    let mut bench = filled();
    bench.writes(&WITH_LIST, &[0, 0x02, 0, 0]);
    bench.fault = Some(Error::Io(5));
    bench.finish_background();
    bench.fails(&cdb10(0x28, 0, 1), sense::FORMAT_COMMAND_FAILED);
    bench.passes(&FORMAT);
    bench.reads(&cdb10(0x28, 0, 1), 512);
}
