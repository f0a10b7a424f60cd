//! RECEIVE COPY RESULTS and the Third-party Copy page.

use super::{extended_copy, naa, parameters, receive, segment};
use crate::scsi::opcode;
use crate::scsi::step::{Step, status};
use crate::scsi::tests::bench::{SERIAL, out, pattern};
use crate::scsi::tests::{Bench, sense};

#[test]
fn operating_parameters_say_what_a_list_may_hold() {
    // SPC-4, RECEIVE COPY RESULTS with OPERATING PARAMETERS.
    let mut bench = Bench::new();
    let data = bench.reads(&receive(0x03, 0), 512);
    assert_eq!(data[..4], [0, 0, 0, 42]);
    assert_eq!(data[4], 1, "SNLID");
    assert_eq!((data[9], data[11]), (16, 64));
    assert_eq!(data[37], 9, "512-byte blocks");
    assert_eq!(data[43..], [2, 0x02, 0xE4]);
}

#[test]
fn a_copy_that_has_ended_says_how_many_segments_and_bytes() {
    // SPC-4, RECEIVE COPY RESULTS with COPY STATUS.
    let mut bench = Bench::new();
    bench.store(0, &pattern(512));
    let list = parameters(9, &[naa(SERIAL)], &[segment((0, 0), 2, 0, 9), segment((0, 0), 1, 0, 99)]);
    bench.writes(&extended_copy(list.len()), &list);
    assert_eq!(bench.reads(&receive(0x00, 9), 512), [0, 0, 0, 8, 0x01, 0, 2, 0, 0, 0, 6, 0]);
    let second = bench.second();
    // Another nexus' list identifiers are its own.
    let mut room = super::bench::room_of(512);
    let ended = bench.run_as(second.nexus(), &receive(0x00, 9), &mut room);
    assert_eq!(super::bench::code(&ended.sense), sense::INVALID_FIELD_IN_CDB.code());
    for action in [0x00, 0x04] {
        bench.fails(&receive(action, 8), sense::INVALID_FIELD_IN_CDB);
    }
}

#[test]
fn a_copy_under_way_shows_its_progress_and_keeps_its_list_identifier() {
    let mut bench = Bench::new();
    let blocks = 16 * 1024;
    bench.store(0, &pattern(blocks * 512));
    let list = parameters(3, &[naa(SERIAL)], &[segment((0, 0), blocks as u16, 0, blocks as u64)]);
    let mut data = out(&list);
    let nexus = bench.session.nexus();
    let mut step = bench.unit.execute(&extended_copy(list.len()), nexus, &data);
    // Two steps: read, then write and read.
    for _ in 0..2 {
        let Step::Io { io, then, .. } = step else { panic!("it has ended") };
        let mut results: Vec<_> = io.into_iter().map(|io| bench.carry_out(io, &mut data)).collect();
        step = bench.unit.resume(then, &mut results, &data);
    }
    assert_eq!(bench.reads(&receive(0x00, 3), 512), [0, 0, 0, 8, 0x00, 0, 0, 0, 0, 0x20, 0, 0]);
    bench.fails_with(&extended_copy(list.len()), &list, sense::OPERATION_IN_PROGRESS);
    // Task management ends it: the lane drops what it would have gone on with.
    drop(step);
    assert_eq!(bench.reads(&receive(0x00, 3), 512)[4], 0x02);
    bench.writes(&extended_copy(list.len()), &list);
}

#[test]
fn a_reset_discards_what_is_held() {
    let mut bench = Bench::new();
    let list = parameters(9, &[naa(SERIAL)], &[segment((0, 0), 2, 0, 9)]);
    bench.writes(&extended_copy(list.len()), &list);
    bench.unit.reset(crate::scsi::Reset::LogicalUnit);
    bench.fails(&[0; 6], sense::BUS_DEVICE_RESET_FUNCTION_OCCURRED);
    bench.fails(&receive(0x00, 9), sense::INVALID_FIELD_IN_CDB);
}

#[test]
fn the_third_party_copy_page_lists_every_row_of_the_table() {
    // SPC-4, Third-party Copy page: descriptors in ascending order, lengths in multiples of four.
    let mut bench = Bench::new();
    let page = bench.reads(&[0x12, 1, 0x8F, 4, 0, 0], 1024);
    assert_eq!(usize::from(u16::from_be_bytes([page[2], page[3]])) + 4, page.len());
    let mut rest = &page[4..];
    let mut descriptors = Vec::new();
    while let [a, b, c, d, contents @ ..] = rest {
        let len = usize::from(u16::from_be_bytes([*c, *d]));
        assert!(len.is_multiple_of(4));
        descriptors.push((u16::from_be_bytes([*a, *b]), contents[..len].to_vec()));
        rest = &contents[len..];
    }
    assert!(descriptors.is_sorted_by_key(|(kind, _)| *kind));
    let commands = &descriptors.iter().find(|(kind, _)| *kind == 0x0001).unwrap().1;
    for code in [0x83, 0x84] {
        let at = commands.iter().position(|byte| *byte == code).unwrap();
        let actions = &commands[at + 2..at + 2 + usize::from(commands[at + 1])];
        let rows = opcode::all().iter().filter(|row| row.code == code);
        assert!(rows.map(|row| row.service_action.unwrap() as u8).eq(actions.iter().copied()));
    }
    assert_eq!(bench.run(&[0; 6], &mut out(&[])).status, status::GOOD);
}
