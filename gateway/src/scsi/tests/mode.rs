//! MODE SENSE and MODE SELECT.

use super::bench::{geometry, none, out, pattern, room_of};
use super::{Bench, cdb10, sense};
use crate::disk::Geometry;
use crate::nexus::View;
use crate::scsi::Settings;
use crate::scsi::step::status;

fn sense6(page: u8, subpage: u8) -> [u8; 6] {
    [0x1A, 0x08, page, subpage, 255, 0]
}

fn sense10(flags: u8, page: u8, subpage: u8) -> [u8; 10] {
    [0x5A, flags, page, subpage, 0, 0, 0, 4, 0, 0]
}

fn select6(list: &[u8]) -> [u8; 6] {
    [0x15, 0x10, 0, 0, list.len() as u8, 0]
}

/// One page without header or block descriptor.
fn page(bench: &mut Bench, page: u8) -> Vec<u8> {
    bench.reads(&sense6(page, 0), 255)[4..].to_vec()
}

/// A MODE SELECT(6) list of one page, as MODE SENSE returned it, changed.
fn changed(bench: &mut Bench, code: u8, change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut page = page(bench, code);
    change(&mut page);
    [&[0; 4][..], &page].concat()
}

#[test]
fn the_pages_are_those_of_the_standards() {
    // SBC-3, Read-Write Error Recovery and Caching; SPC-4, Control and Informational Exceptions Control.
    let mut bench = Bench::new();
    assert_eq!(page(&mut bench, 0x01), [0x01, 0x0A, 0xC0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(page(&mut bench, 0x08)[..4], [0x08, 0x12, 0x04, 0]);
    assert_eq!(page(&mut bench, 0x0A), [0x0A, 0x0A, 0x02, 0x10, 0, 0x40, 0, 0, 0xFF, 0xFF, 0, 0]);
    assert_eq!(page(&mut bench, 0x1C)[..4], [0x1C, 0x0A, 0x08, 0]);
    let all = page(&mut bench, 0x3F);
    assert_eq!(all.len(), 12 + 20 + 12 + 12);
    let with_subpages = bench.reads(&sense6(0x3F, 0xFF), 255)[4..].to_vec();
    assert_eq!(with_subpages.len(), all.len() + 32);
    assert_eq!(bench.reads(&sense6(0x0A, 0x01), 255)[4..8], [0x4A, 0x01, 0, 28]);
    assert_eq!(bench.reads(&sense6(0x0A, 0xFF), 255).len(), 4 + 12 + 32);
}

#[test]
fn ialuae_says_what_tpgs_says_of_implicit_access_states_and_cannot_be_changed() {
    // SPC-4, Control Extension mode page, IALUAE; standard INQUIRY data, TPGS.
    for implicit in [true, false] {
        let cluster = super::alua::Cluster::new(true);
        cluster.change(|groups| groups.implicit = implicit);
        let mut bench = Bench::new();
        bench.through(cluster);
        let tpgs = bench.reads(&[0x12, 0, 0, 0, 96, 0], 96)[5] & 0x10;
        let extension = bench.reads(&sense6(0x0A, 0x01), 255)[4..].to_vec();
        assert_eq!((extension[4], tpgs), (u8::from(implicit), u8::from(implicit) << 4));
        assert_eq!(bench.reads(&sense6(0x4A, 0x01), 255)[8..], [0; 28]);
        let mut list = [&[0; 4][..], &extension].concat();
        bench.writes(&select6(&list), &list);
        list[8] ^= 1;
        bench.fails_with(&select6(&list), &list, sense::INVALID_FIELD_IN_PARAMETER_LIST);
    }
}

#[test]
fn pages_that_are_not_there_and_saved_values_are_refused() {
    let mut bench = Bench::new();
    for (page, subpage) in [(0x02, 0), (0x00, 0), (0x0A, 0x02), (0x3F, 0x01), (0x08, 0x01)] {
        bench.fails(&sense6(page, subpage), sense::INVALID_FIELD_IN_CDB);
    }
    bench.fails(&sense6(0xC0 | 0x08, 0), sense::SAVING_PARAMETERS_NOT_SUPPORTED);
}

#[test]
fn changeable_values_are_a_mask_of_what_mode_select_takes() {
    let mut bench = Bench::new();
    assert_eq!(page(&mut bench, 0x40 | 0x08)[..4], [0x08, 0x12, 0x04, 0]);
    assert_eq!(page(&mut bench, 0x40 | 0x0A), [0x0A, 0x0A, 0x04, 0, 0x08, 0x40, 0, 0, 0, 0, 0, 0]);
    assert_eq!(page(&mut bench, 0x40 | 0x01)[2..], [0; 10]);
    let uncached = Geometry { volatile_cache: false, ..geometry() };
    let mut bench = Bench::with(uncached, Settings::default(), 1 << 20);
    assert_eq!(page(&mut bench, 0x40 | 0x08)[2], 0);
    assert_eq!(page(&mut bench, 0x08)[2], 0);
    let list = changed(&mut bench, 0x08, |page| page[2] = 0x04);
    bench.fails_with(&select6(&list), &list, sense::INVALID_FIELD_IN_PARAMETER_LIST);
}

#[test]
fn default_values_stay_when_current_ones_change_and_come_back_with_a_reset() {
    let mut bench = Bench::new();
    let list = changed(&mut bench, 0x08, |page| page[2] = 0);
    bench.writes(&select6(&list), &list);
    assert_eq!(page(&mut bench, 0x08)[2], 0);
    assert_eq!(page(&mut bench, 0x80 | 0x08)[2], 0x04);
    bench.unit.reset(crate::scsi::Reset::Target);
    bench.fails(&[0; 6], sense::SCSI_BUS_RESET_OCCURRED);
    assert_eq!(page(&mut bench, 0x08)[2], 0x04);
}

#[test]
fn headers_and_block_descriptors_have_the_form_the_cdb_asks_for() {
    // SPC-4, mode parameter header; SBC-3, block descriptors.
    let mut bench = Bench::new();
    let six = bench.reads(&[0x1A, 0, 0x0A, 0, 255, 0], 255);
    assert_eq!(six[..12], [23, 0, 0x10, 8, 0, 0, 0x80, 0, 0, 0, 2, 0]);
    let ten = bench.reads(&sense10(0x00, 0x0A, 0), 255);
    assert_eq!(ten[..16], [0, 26, 0, 0x10, 0, 0, 0, 8, 0, 0, 0x80, 0, 0, 0, 2, 0]);
    let long = bench.reads(&sense10(0x10, 0x0A, 0), 255);
    assert_eq!(long[..8], [0, 34, 0, 0x10, 1, 0, 0, 16]);
    assert_eq!(long[8..24], [0, 0, 0, 0, 0, 0, 0x80, 0, 0, 0, 0, 0, 0, 0, 2, 0]);
    let without = bench.reads(&sense10(0x18, 0x0A, 0), 255);
    assert_eq!(without[..8], [0, 18, 0, 0x10, 0, 0, 0, 0]);
    let mut big = Bench::with(geometry(), Settings::default(), 4 << 40);
    assert_eq!(big.reads(&[0x1A, 0, 0x0A, 0, 255, 0], 255)[4..8], [0xFF; 4]);
}

#[test]
fn an_allocation_length_shorter_than_the_header_cuts_it() {
    let mut bench = Bench::new();
    for allocation in [0, 1, 3, 4, 50] {
        let ended = bench.run(&[0x1A, 0, 0x3F, 0, allocation, 0], &mut room_of(255));
        assert_eq!((ended.status, ended.data.len()), (status::GOOD, allocation.into()));
        // MODE DATA LENGTH is not cut.
        if allocation > 0 {
            assert_eq!(ended.data[0], 3 + 8 + 56);
        }
    }
}

#[test]
fn wp_says_whether_this_initiator_may_write() {
    let wp = |bench: &mut Bench| bench.reads(&sense6(0x0A, 0), 255)[2] & 0x80 != 0;
    let mut bench = Bench::new();
    assert!(!wp(&mut bench));
    bench.nexuses.set_view(bench.session.nexus(), View { luns: vec![0, 1, 300], read_only: vec![1] });
    assert!(wp(&mut bench));
    bench.nexuses.set_view(bench.session.nexus(), View { luns: vec![0, 1, 300], read_only: vec![300] });
    assert!(!wp(&mut bench));
    let list = changed(&mut bench, 0x0A, |page| page[4] = 0x08);
    bench.writes(&select6(&list), &list);
    assert!(wp(&mut bench));
    bench.fails_with(&cdb10(0x2A, 0, 1), &pattern(512), sense::WRITE_PROTECTED);
    bench.reads(&cdb10(0x28, 0, 1), 512);
}

#[test]
fn d_sense_turns_sense_data_into_descriptors() {
    let mut bench = Bench::new();
    let list = changed(&mut bench, 0x0A, |page| page[2] |= 0x04);
    bench.writes(&select6(&list), &list);
    let ended = bench.fails(&cdb10(0x28, u32::MAX, 1), sense::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE);
    assert_eq!(ended.sense, [0x72, 5, 0x21, 0, 0, 0, 0, 0]);
}

#[test]
fn a_change_is_news_to_the_other_initiators_only() {
    // SPC-4, MODE SELECT: MODE PARAMETERS CHANGED for every other nexus.
    let mut bench = Bench::new();
    let second = bench.second();
    let list = changed(&mut bench, 0x08, |page| page[2] = 0);
    bench.writes(&select6(&list), &list);
    bench.passes(&[0; 6]);
    let ended = bench.run_as(second.nexus(), &[0; 6], &mut none());
    assert_eq!(super::bench::code(&ended.sense), sense::MODE_PARAMETERS_CHANGED.code());
    // The same again changes nothing.
    bench.writes(&select6(&list), &list);
    assert_eq!(bench.run_as(second.nexus(), &[0; 6], &mut none()).status, status::GOOD);
}

#[test]
fn what_mode_sense_returned_may_be_sent_back() {
    let mut bench = Bench::new();
    let mut six = bench.reads(&[0x1A, 0, 0x3F, 0xFF, 255, 0], 255);
    six[0] = 0;
    // PS.
    six[12] |= 0x80;
    bench.writes(&select6(&six), &six);
    for flags in [0x00, 0x08, 0x10] {
        let mut ten = bench.reads(&sense10(flags, 0x3F, 0xFF), 1024);
        ten[..2].fill(0);
        bench.writes(&[0x55, 0x10, 0, 0, 0, 0, 0, 0, ten.len() as u8, 0], &ten);
    }
}

#[test]
fn a_list_with_any_fault_changes_nothing() {
    let mut bench = Bench::new();
    let good = changed(&mut bench, 0x08, |page| page[2] = 0);
    let wrong = sense::INVALID_FIELD_IN_PARAMETER_LIST;
    let short = sense::PARAMETER_LIST_LENGTH_ERROR;
    let control = page(&mut bench, 0x0A);
    let mut unchangeable = control.clone();
    unchangeable[5] = 0xC0;
    let mut wrong_length = control.clone();
    wrong_length[1] = 0x0B;
    for (rest, sense) in [
        (&unchangeable[..], wrong),
        (&wrong_length[..], wrong),
        (&control[..11], short),
        (&control[..1], short),
        (&[0x4A][..], short),
        (&[0x02, 0x0E][..], wrong),
        (&[0x3F][..], wrong),
        (&[0; 2][..], wrong),
    ] {
        let list = [&good, rest].concat();
        bench.fails_with(&select6(&list), &list, sense);
    }
    assert_eq!(page(&mut bench, 0x08)[2], 0x04);
}

#[test]
fn parameter_list_lengths_are_checked_against_what_has_come() {
    let mut bench = Bench::new();
    let list = changed(&mut bench, 0x08, |page| page[2] = 0);
    bench.passes(&[0x15, 0x10, 0, 0, 0, 0]);
    for (claimed, sent) in [(24, 23), (24, 0), (3, 3), (255, 24)] {
        let sent = &list[..sent];
        bench.fails_with(&[0x15, 0x10, 0, 0, claimed, 0], sent, sense::PARAMETER_LIST_LENGTH_ERROR);
    }
    // More than the CDB claims is not looked at.
    let ended = bench.run(&[0x15, 0x10, 0, 0, 4, 0], &mut out(&list));
    assert_eq!((ended.status, ended.transfer), (status::GOOD, 4));
    assert_eq!(page(&mut bench, 0x08)[2], 0x04);
    // SP; PF zero.
    bench.fails_with(&[0x15, 0x11, 0, 0, 24, 0], &list, sense::INVALID_FIELD_IN_CDB);
    bench.fails_with(&[0x15, 0x00, 0, 0, 24, 0], &list, sense::INVALID_FIELD_IN_CDB);
}

#[test]
fn the_block_descriptor_can_change_neither_length_nor_capacity() {
    let mut bench = Bench::new();
    let blocks = 32768_u32.to_be_bytes();
    for (count, length, fine) in [
        (blocks, [0, 0, 2, 0], true),
        ([0; 4], [0, 0, 2, 0], true),
        ([0xFF; 4], [0, 0, 2, 0], true),
        ([0, 0, 0, 1], [0, 0, 2, 0], false),
        (blocks, [0, 0, 16, 0], false),
    ] {
        let list = [[0, 0, 0, 8], count, length].concat();
        if fine {
            bench.writes(&select6(&list), &list);
        } else {
            bench.fails_with(&select6(&list), &list, sense::INVALID_FIELD_IN_PARAMETER_LIST);
        }
    }
    let list = [0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0];
    bench.fails_with(&select6(&list), &list, sense::INVALID_FIELD_IN_PARAMETER_LIST);
}
