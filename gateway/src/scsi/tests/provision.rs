//! UNMAP and WRITE SAME.

use super::bench::{code, geometry, pattern, room_of};
use super::{Bench, cdb10, cdb16, sense};
use crate::disk::{Error, Geometry};
use crate::scsi::Settings;

fn unmap(list: usize) -> [u8; 10] {
    cdb10(0x42, 0, list as u16)
}

/// An UNMAP parameter list (SBC-3).
fn list(ranges: &[(u64, u32)]) -> Vec<u8> {
    let bytes = (ranges.len() * 16) as u16;
    let mut list = (bytes + 6).to_be_bytes().to_vec();
    list.extend_from_slice(&bytes.to_be_bytes());
    list.extend_from_slice(&[0; 4]);
    for (lba, blocks) in ranges {
        list.extend_from_slice(&lba.to_be_bytes());
        list.extend_from_slice(&blocks.to_be_bytes());
        list.extend_from_slice(&[0; 4]);
    }
    list
}

fn thick() -> Bench {
    Bench::with(Geometry { provisioning: None, ..geometry() }, Settings::default(), 16 << 20)
}

#[test]
fn unmap_discards_every_range_of_the_list_and_no_neighbour() {
    let mut bench = Bench::new();
    bench.store(0, &pattern(8192));
    let list = list(&[(1, 2), (5, 0), (8, 4)]);
    let ended = bench.writes(&unmap(list.len()), &list);
    assert_eq!(ended.io, ["discard 512+1024", "discard 4096+2048"]);
    let left: Vec<u64> = bench.written.keys().copied().collect();
    assert_eq!(left, [0, 3, 4, 5, 6, 7, 12, 13, 14, 15]);
}

#[test]
fn a_failed_discard_fails_the_unmap() {
    let mut bench = Bench::new();
    let list = list(&[(0, 1), (8, 1)]);
    bench.fault = Some(Error::Io(5));
    bench.fails_with(&unmap(list.len()), &list, sense::WRITE_ERROR);
}

#[test]
fn nothing_to_unmap_is_no_error() {
    // SBC-3, UNMAP: a list or range of nothing is no error.
    let mut bench = Bench::new();
    assert!(bench.passes(&unmap(0)).io.is_empty());
    for ranges in [&[][..], &[(0, 0)], &[(32768, 0)]] {
        let list = list(ranges);
        assert!(bench.writes(&unmap(list.len()), &list).io.is_empty());
    }
}

#[test]
fn no_descriptor_is_read_beyond_the_list_whatever_it_claims() {
    let mut bench = Bench::new();
    let whole = list(&[(0, 1), (1, 1)]);
    // Claims two descriptors, brings one; by the CDB's length, and by what has come.
    bench.fails_with(&unmap(24), &whole, sense::PARAMETER_LIST_LENGTH_ERROR);
    bench.fails_with(&unmap(40), &whole[..24], sense::PARAMETER_LIST_LENGTH_ERROR);
    bench.fails_with(&unmap(7), &whole[..7], sense::PARAMETER_LIST_LENGTH_ERROR);
    bench.fails_with(&unmap(40), &[], sense::PARAMETER_LIST_LENGTH_ERROR);
    let mut greedy = whole.clone();
    greedy[2..4].copy_from_slice(&0xFFF0_u16.to_be_bytes());
    bench.fails_with(&unmap(40), &greedy, sense::INVALID_FIELD_IN_PARAMETER_LIST);
    // A part of a descriptor at the end is ignored.
    let mut ragged = whole.clone();
    ragged[2..4].copy_from_slice(&31_u16.to_be_bytes());
    assert_eq!(bench.writes(&unmap(40), &ragged).io, ["discard 0+512"]);
}

#[test]
fn unmap_keeps_to_the_limits_it_advertises() {
    let huge = Bench::with(geometry(), Settings::default(), 4 << 40);
    let mut bench = huge;
    let most = list(&[(0, 1 << 20)]);
    bench.writes(&unmap(24), &most);
    let over = list(&[(0, 1 << 20), (1 << 21, 1)]);
    bench.fails_with(&unmap(40), &over, sense::INVALID_FIELD_IN_PARAMETER_LIST);
    let many = list(&[(0, 1); 257]);
    bench.fails_with(&unmap(many.len()), &many, sense::INVALID_FIELD_IN_PARAMETER_LIST);
    let full = list(&[(0, 1); 256]);
    assert_eq!(bench.writes(&unmap(full.len()), &full).io.len(), 256);
}

#[test]
fn unmap_out_of_range_discards_nothing() {
    let mut bench = Bench::new();
    bench.store(0, &pattern(512));
    for wrong in [(32767, 2), (u64::MAX, u32::MAX), (1 << 63, 1)] {
        let list = list(&[(0, 1), wrong]);
        bench.fails_with(&unmap(40), &list, sense::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE);
    }
    assert_eq!(bench.written.len(), 1);
    let mut anchor = unmap(24);
    anchor[1] = 1;
    bench.fails_with(&anchor, &list(&[(0, 1)]), sense::INVALID_FIELD_IN_CDB);
}

#[test]
fn a_fully_provisioned_disk_has_no_unmap() {
    let mut bench = thick();
    bench.fails_with(&unmap(24), &list(&[(0, 1)]), sense::INVALID_COMMAND_OPERATION_CODE);
    let mut cdb = cdb16(0x93, 0, 1);
    cdb[1] = 0x08;
    bench.fails_with(&cdb, &[0; 512], sense::INVALID_FIELD_IN_CDB);
}

#[test]
fn write_same_repeats_its_block() {
    let mut bench = Bench::new();
    let block = pattern(512);
    assert_eq!(bench.writes(&cdb10(0x41, 3, 5), &block).io, ["same 1536+2560"]);
    assert_eq!(bench.load(1536, 2560), block.repeat(5));
    assert_eq!(bench.writes(&cdb16(0x93, 3, 5), &block).transfer, 512);
}

#[test]
fn write_same_of_zeros_becomes_a_range_of_zeros_deallocated_only_on_demand() {
    let mut bench = Bench::new();
    for (unmap, io) in [(0x00, "zeroes 0+1024"), (0x08, "zeroes 0+1024 deallocate")] {
        let (mut ten, mut sixteen) = (cdb10(0x41, 0, 2), cdb16(0x93, 0, 2));
        (ten[1], sixteen[1]) = (unmap, unmap);
        assert_eq!(bench.writes(&ten, &[0; 512]).io, [io]);
        assert_eq!(bench.writes(&sixteen, &[0; 512]).io, [io]);
        // NDOB: no data-out, and none is looked at.
        sixteen[1] |= 0x01;
        let ended = bench.passes(&sixteen);
        assert_eq!((ended.io, ended.transfer), (vec![io.to_string()], 0));
    }
    let mut ndob = cdb10(0x41, 0, 2);
    ndob[1] = 0x01;
    bench.fails(&ndob, sense::INVALID_FIELD_IN_CDB);
}

#[test]
fn write_same_with_unmap_never_loses_a_block_that_is_not_zeros() {
    // SBC-3, WRITE SAME and LBPRZ: what is read afterwards is the block that was sent.
    let mut bench = Bench::new();
    let mut cdb = cdb16(0x93, 0, 4);
    cdb[1] = 0x08;
    let block = pattern(512);
    assert_eq!(bench.writes(&cdb, &block).io, ["same 0+2048"]);
    assert_eq!(bench.load(0, 2048), block.repeat(4));
}

#[test]
fn ranges_of_zeros_are_made_stable_too_when_the_cache_is_off() {
    let mut bench = Bench::new();
    // SBC-3, Caching mode page: WCE zero.
    let select = [&[0; 4][..], &[0x08, 0x12], &[0; 18]].concat();
    bench.writes(&[0x15, 0x10, 0, 0, 24, 0], &select);
    assert_eq!(bench.writes(&cdb16(0x93, 0, 2), &[0; 512]).io, ["zeroes 0+1024", "flush"]);
    assert_eq!(bench.writes(&cdb16(0x93, 0, 2), &[7; 512]).io, ["same 0+1024 fua"]);
    let list = list(&[(0, 1)]);
    assert_eq!(bench.writes(&unmap(list.len()), &list).io, ["discard 0+512", "flush"]);
}

#[test]
fn write_same_refuses_what_it_says_it_does() {
    let mut bench = Bench::with(geometry(), Settings::default(), 1 << 40);
    let block = [1; 512];
    // WSNZ, MAXIMUM WRITE SAME LENGTH.
    bench.fails_with(&cdb16(0x93, 0, 0), &block, sense::INVALID_FIELD_IN_CDB);
    bench.fails_with(&cdb16(0x93, 0, (16 << 11) + 1), &block, sense::INVALID_FIELD_IN_CDB);
    bench.fails_with(&cdb16(0x93, u64::MAX, 0), &block, sense::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE);
    bench.fails_with(&cdb16(0x93, 1 << 31, 1), &block, sense::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE);
    // ANCHOR, LBDATA, PBDATA.
    for bit in [0x10, 0x04, 0x02] {
        let mut cdb = cdb10(0x41, 0, 1);
        cdb[1] = bit;
        bench.fails_with(&cdb, &block, sense::INVALID_FIELD_IN_CDB);
    }
    for len in [0, 256, 1024] {
        let data = vec![1; len];
        bench.fails_with(&cdb10(0x41, 0, 1), &data, sense::INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT);
    }
    assert!(bench.written.is_empty());
}

#[test]
fn write_same_without_data_that_is_said_to_read_changes_nothing() {
    let mut bench = Bench::new();
    bench.store(0, &pattern(512));
    let mut cdb = cdb16(0x93, 0, 1);
    cdb[1] = 0x01;
    let ended = bench.run(&cdb, &mut room_of(512));
    assert_eq!(code(&ended.sense), sense::INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT.code());
    assert_eq!(bench.load(0, 512), pattern(512));
}
