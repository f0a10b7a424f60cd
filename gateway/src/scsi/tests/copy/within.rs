//! Copies within one unit.

use super::{all_but, extended_copy, naa, parameters, receive, segment};
use crate::disk::Error;
use crate::scsi::Settings;
use crate::scsi::step::status;
use crate::scsi::tests::bench::{SERIAL, geometry, out, pattern};
use crate::scsi::tests::{Bench, sense};

fn copies(bench: &mut Bench, segments: &[[u8; 28]]) -> super::bench::Ended {
    let list = parameters(1, &[naa(SERIAL)], segments);
    bench.writes(&extended_copy(list.len()), &list)
}

#[test]
fn blocks_arrive_where_the_segment_says() {
    let mut bench = Bench::new();
    bench.store(0, &pattern(8 * 512));
    copies(&mut bench, &[segment((0, 0), 8, 0, 100)]);
    assert_eq!(bench.load(100 * 512, 8 * 512), pattern(8 * 512));
    assert_eq!(bench.load(0, 8 * 512), pattern(8 * 512));
}

#[test]
fn the_copy_managers_own_unit_needs_no_descriptor() {
    // SPC-4, CSCD descriptor ID values: FFFFh.
    let mut bench = Bench::new();
    bench.store(0, &pattern(512));
    let list = parameters(1, &[], &[segment((0xFFFF, 0xFFFF), 1, 0, 9)]);
    bench.writes(&extended_copy(list.len()), &list);
    assert_eq!(bench.load(9 * 512, 512), pattern(512));
}

#[test]
fn a_unit_is_found_by_its_t10_designator_too_where_it_fits() {
    // SPC-4, identification descriptor CSCD descriptor: any designator that the Device Identification page shows.
    let Bench { nexuses, units, session, .. } = Bench::new();
    let settings = Settings { lun: 1, ..Settings::default() };
    let mut bench = Bench::shared("disk", geometry(), settings, 1 << 20, session, (nexuses, units));
    bench.store(0, &pattern(512));
    let mut target = [0; 32];
    (target[0], target[4], target[5], target[7]) = (0xE4, 2, 1, 12);
    target[8..20].copy_from_slice(b"LIO-ORG disk");
    let list = parameters(1, &[target], &[segment((0, 0), 1, 0, 9)]);
    bench.writes(&extended_copy(list.len()), &list);
    assert_eq!(bench.load(9 * 512, 512), pattern(512));
}

#[test]
fn a_large_segment_goes_in_pieces_and_reads_while_it_writes() {
    // 7 MiB and a block: more than what is held at once.
    let mut bench = Bench::new();
    let blocks = 14 * 1024 + 1;
    bench.store(0, &pattern(blocks * 512));
    let ended = copies(&mut bench, &[segment((0, 0), blocks as u16, 0, 16 * 1024)]);
    assert_eq!(bench.load(16 * 1024 * 512, blocks * 512), pattern(blocks * 512));
    let writes = ended.io.iter().filter(|io| io.starts_with("write")).count();
    assert_eq!((ended.io.len(), writes), (16, 8));
    assert!(ended.io[2].starts_with("write") && ended.io[4].starts_with("read"), "{:?}", ended.io);
}

#[test]
fn overlapping_ranges_end_up_as_if_all_had_been_read_first() {
    for (from, to) in [(0_u64, 3_000_u64), (3_000, 0), (0, 1), (1, 0), (5, 5)] {
        let mut bench = Bench::new();
        let blocks = 12_000;
        bench.store(from * 512, &pattern(blocks * 512));
        copies(&mut bench, &[segment((0, 0), blocks as u16, from, to)]);
        assert!(bench.load(to * 512, blocks * 512) == pattern(blocks * 512), "{from} to {to}");
    }
}

#[test]
fn a_segment_sees_what_the_one_before_it_has_written() {
    // SPC-4: segment descriptors are processed in their order.
    let mut bench = Bench::new();
    bench.store(0, &pattern(4 * 512));
    copies(&mut bench, &[segment((0, 0), 4, 0, 100), segment((0, 0), 4, 100, 200)]);
    assert_eq!(bench.load(200 * 512, 4 * 512), pattern(4 * 512));
}

#[test]
fn zeros_stay_holes_on_a_thin_disk() {
    let mut bench = Bench::new();
    bench.store(100 * 512, &pattern(512));
    let ended = copies(&mut bench, &[segment((0, 0), 1, 0, 100)]);
    assert_eq!(ended.io, ["read 0+512", "zeroes 51200+512 deallocate"]);
    assert!(bench.written.is_empty());
}

#[test]
fn with_the_write_cache_off_a_copy_is_stable_before_it_is_answered() {
    let mut bench = Bench::new();
    // MODE SELECT(6), caching page with WCE zero.
    let mut page = vec![0; 24];
    (page[4], page[5]) = (0x08, 0x12);
    bench.writes(&[0x15, 0x10, 0, 0, 24, 0], &page);
    let ended = copies(&mut bench, &[segment((0, 0), 1, 0, 100)]);
    assert_eq!(ended.io, ["read 0+512", "write 51200+512 fua"]);
}

#[test]
fn nothing_to_copy_is_no_error() {
    // SPC-4, EXTENDED COPY: PARAMETER LIST LENGTH of zero; descriptor lists of length zero; no blocks.
    let mut bench = Bench::new();
    bench.passes(&extended_copy(0));
    for list in [parameters(1, &[], &[]), parameters(2, &[naa(SERIAL)], &[])] {
        assert!(bench.writes(&extended_copy(list.len()), &list).io.is_empty());
    }
    assert!(copies(&mut bench, &[segment((0, 0), 0, 5, 5)]).io.is_empty());
}

#[test]
fn a_unit_that_may_not_be_written_is_no_destination() {
    let settings = Settings { lun: 1, write_protected: true, ..Settings::default() };
    let mut bench = Bench::with(geometry(), settings, 1 << 20);
    let list = parameters(1, &[naa(SERIAL)], &[segment((0, 0), 1, 0, 9)]);
    let ended = bench.fails_with(&extended_copy(list.len()), &list, sense::THIRD_PARTY_DEVICE_FAILURE);
    assert!(ended.io.is_empty());
}

#[test]
fn a_failure_names_the_segment_and_is_kept_for_the_asking() {
    let mut bench = Bench::new();
    bench.store(0, &pattern(512));
    bench.fault = Some(Error::Io(5));
    let list = parameters(7, &[naa(SERIAL)], &[segment((0, 0), 0, 0, 0), segment((0, 0), 1, 0, 9)]);
    let ended = bench.fails_with(&extended_copy(list.len()), &list, sense::THIRD_PARTY_DEVICE_FAILURE);
    // SPC-4, errors detected during processing of segment descriptors: third and fourth byte of COMMAND-SPECIFIC
    // INFORMATION.
    assert_eq!(ended.sense[8..12], [0, 0, 0, 1]);
    let status = bench.reads(&receive(0x00, 7), 512);
    assert_eq!(status, [0, 0, 0, 8, 0x02, 0, 1, 0, 0, 0, 0, 0]);
    let details = bench.reads(&receive(0x04, 7), 512);
    assert_eq!((details[56], details[59]), (status::CHECK_CONDITION, 18));
    assert_eq!(details[60..], ended.sense);
    // SPC-4, FAILED SEGMENT DETAILS: reported once.
    assert_eq!(bench.reads(&receive(0x04, 7), 512), [0, 0, 0, 0]);
}

#[test]
fn out_of_space_looks_as_it_does_to_a_write() {
    // SBC-3, thin provisioning: what VMware pauses a virtual machine on.
    let mut bench = Bench::new();
    bench.fault = Some(Error::NoSpace);
    let list = parameters(1, &[naa(SERIAL)], &[segment((0, 0), 1, 0, 9)]);
    bench.fails_with(&extended_copy(list.len()), &list, sense::SPACE_ALLOCATION_FAILED_WRITE_PROTECT);
}

#[test]
fn when_all_memory_of_copies_is_lent_the_answer_is_busy() {
    let mut bench = Bench::new();
    let all = all_but(&bench, 0);
    let list = parameters(1, &[naa(SERIAL)], &[segment((0, 0), 1, 0, 9)]);
    assert_eq!(bench.run(&extended_copy(list.len()), &mut out(&list)).status, status::BUSY);
    drop(all);
    bench.writes(&extended_copy(list.len()), &list);
}

#[test]
fn little_memory_makes_small_pieces_and_the_same_copy() {
    let mut bench = Bench::new();
    bench.store(0, &pattern(1024 * 512));
    let most = all_but(&bench, 64 << 10);
    let ended = copies(&mut bench, &[segment((0, 0), 1024, 0, 512)]);
    assert_eq!(bench.load(512 * 512, 1024 * 512), pattern(1024 * 512));
    assert_eq!(ended.io.len(), 16);
    drop(most);
}
