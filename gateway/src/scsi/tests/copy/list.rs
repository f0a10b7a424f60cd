//! Parameter lists that are refused.

use super::{extended_copy, naa, parameters, segment};
use crate::scsi::sense::Sense;
use crate::scsi::tests::bench::{Ended, SERIAL};
use crate::scsi::tests::{Bench, sense};

fn refused(list: &[u8], sense: Sense) -> Ended {
    let mut bench = Bench::new();
    let ended = bench.fails_with(&extended_copy(list.len()), list, sense);
    assert!(ended.io.is_empty(), "something was done for a list that is wrong");
    ended
}

fn valid() -> Vec<u8> {
    parameters(1, &[naa(SERIAL)], &[segment((0, 0), 1, 0, 9)])
}

#[test]
fn a_list_that_ends_too_early_is_refused() {
    // SPC-4: PARAMETER LIST LENGTH ERROR when a header or descriptor is truncated.
    for len in 1..valid().len() {
        refused(&valid()[..len], sense::PARAMETER_LIST_LENGTH_ERROR);
    }
}

#[test]
fn a_list_longer_than_what_came_is_judged_by_what_came() {
    let mut bench = Bench::new();
    bench.fails_with(&extended_copy(200), &valid()[..60], sense::PARAMETER_LIST_LENGTH_ERROR);
    bench.fails_with(&extended_copy(1 << 20), &valid(), sense::PARAMETER_LIST_LENGTH_ERROR);
    bench.fails_with(&extended_copy(u32::MAX as usize), &valid(), sense::PARAMETER_LIST_LENGTH_ERROR);
}

#[test]
fn a_field_of_the_header_that_is_wrong_is_named() {
    let mut list = valid();
    list[1] = 0b01 << 3;
    assert_eq!(refused(&list, sense::INVALID_FIELD_IN_PARAMETER_LIST).sense[15..18], [0x80, 0, 1]);
    // SPC-4, LIST ID USAGE 11b: the list identifier is zero.
    let mut list = valid();
    list[1] = 0b11 << 3;
    assert_eq!(refused(&list, sense::INVALID_FIELD_IN_PARAMETER_LIST).sense[15..18], [0x80, 0, 0]);
    let mut list = valid();
    list[3] = 31;
    assert_eq!(refused(&list, sense::INVALID_FIELD_IN_PARAMETER_LIST).sense[15..18], [0x80, 0, 2]);
    let mut list = valid();
    list[15] = 1;
    refused(&list, sense::INLINE_DATA_LENGTH_EXCEEDED);
}

#[test]
fn no_list_identifier_is_needed() {
    let mut list = valid();
    (list[0], list[1]) = (0, 0b11 << 3);
    Bench::new().writes(&extended_copy(list.len()), &list);
}

#[test]
fn more_descriptors_than_the_operating_parameters_allow_are_refused() {
    let list = parameters(1, &[naa(SERIAL); 17], &[segment((0, 0), 1, 0, 9)]);
    refused(&list, sense::TOO_MANY_TARGET_DESCRIPTORS);
    let list = parameters(1, &[naa(SERIAL)], &[segment((0, 0), 1, 0, 9); 65]);
    refused(&list, sense::TOO_MANY_SEGMENT_DESCRIPTORS);
    let list = parameters(1, &[naa(SERIAL); 16], &[segment((15, 0), 1, 0, 9); 64]);
    Bench::new().writes(&extended_copy(list.len()), &list);
}

#[test]
fn descriptors_of_other_kinds_are_refused_by_name() {
    let mut list = valid();
    list[16] = 0xE0;
    refused(&list, sense::UNSUPPORTED_TARGET_DESCRIPTOR_TYPE_CODE);
    let mut list = valid();
    list[48] = 0x03;
    refused(&list, sense::UNSUPPORTED_SEGMENT_DESCRIPTOR_TYPE_CODE);
    let mut list = valid();
    list[51] = 23;
    assert_eq!(refused(&list, sense::INVALID_FIELD_IN_PARAMETER_LIST).sense[15..18], [0x80, 0, 50]);
}

#[test]
fn a_designator_longer_than_its_field_is_refused() {
    let mut list = valid();
    list[16 + 7] = 21;
    assert_eq!(refused(&list, sense::INVALID_FIELD_IN_PARAMETER_LIST).sense[15..18], [0x80, 0, 23]);
}

#[test]
fn a_block_length_that_is_not_the_units_is_refused_and_none_is_not() {
    // SPC-4, device type specific parameters of block devices: DISK BLOCK LENGTH.
    let mut list = valid();
    list[16 + 30] = 0x10;
    assert_eq!(refused(&list, sense::INVALID_FIELD_IN_PARAMETER_LIST).sense[15..18], [0x80, 0, 16 + 29]);
    list[16 + 30] = 0x02;
    Bench::new().writes(&extended_copy(list.len()), &list);
}

#[test]
fn what_cannot_be_reached_is_named_by_segment_and_field() {
    let second = segment((0, 0), 1, 0, 9);
    let nowhere = sense::COPY_TARGET_DEVICE_NOT_REACHABLE;
    // SPC-4, segment pointer sense key specific data: SD, and the field in the segment descriptor.
    for (wrong, byte) in [
        (segment((1, 0), 1, 0, 9), 4),
        (segment((0, 1), 1, 0, 9), 6),
        (segment((0, 0), 1, 32 * 1024, 9), 12),
        (segment((0, 0), 2, 0, 32 * 1024 - 1), 20),
        (segment((0, 0), 1, u64::MAX, 0), 12),
    ] {
        let ended = refused(&parameters(1, &[naa(SERIAL)], &[second, wrong]), nowhere);
        assert_eq!(ended.sense[8..12], [0, 0, 0, 1]);
        assert_eq!(ended.sense[15..18], [0xA0, 0, byte]);
    }
    refused(&parameters(1, &[naa("nobody")], &[second]), nowhere);
    let mut null = naa(SERIAL);
    null[1] = 0x20;
    refused(&parameters(1, &[null], &[second]), nowhere);
    let mut tape = naa(SERIAL);
    tape[1] = 0x01;
    refused(&parameters(1, &[tape], &[second]), sense::INCORRECT_COPY_TARGET_DEVICE_TYPE);
}
