//! COMPARE AND WRITE and ORWRITE.

use super::bench::{geometry, pattern};
use super::{Bench, cdb16, sense};
use crate::disk::{Error, Geometry};
use crate::scsi::Settings;

fn caw(lba: u64, blocks: u8) -> [u8; 16] {
    let mut cdb = cdb16(0x89, lba, 0);
    cdb[13] = blocks;
    cdb
}

/// A disk that compares up to `native` bytes by itself, with a pattern in its first blocks.
fn bench(native: u32) -> (Bench, Vec<u8>, Vec<u8>) {
    let geometry = Geometry { compare_and_write: native, ..geometry() };
    let mut bench = Bench::with(geometry, Settings::default(), 16 << 20);
    let (old, new) = (pattern(4096), vec![0x5A; 4096]);
    bench.store(0, &old);
    (bench, old, new)
}

#[test]
fn equal_blocks_are_replaced_by_the_store_where_it_can_and_by_the_gateway_where_it_cannot() {
    // SBC-3, COMPARE AND WRITE: data-out is what must be there, then what shall be there.
    let (mut bench, old, new) = bench(512);
    let ended = bench.writes(&caw(1, 1), &[&old[512..1024], &new[..512]].concat());
    assert_eq!((ended.io, ended.exclusive), (vec!["caw 512+512".into()], false));
    let ended = bench.writes(&caw(2, 4), &[&old[1024..3072], &new[..2048]].concat());
    assert_eq!((ended.io, ended.exclusive), (vec!["read 1024+2048".into(), "write 1024+2048".into()], true));
    assert_eq!(ended.transfer, 4096);
    assert_eq!(bench.load(0, 4096), [&old[..512], &new[..2560], &old[3072..]].concat());
}

#[test]
fn a_miscompare_changes_nothing_and_says_at_which_byte() {
    for native in [0, 4096] {
        let (mut bench, mut old, new) = bench(native);
        old[300] ^= 1;
        let ended = bench.fails_with(
            &caw(0, 2),
            &[&old[..1024], &new[..1024]].concat(),
            sense::MISCOMPARE_DURING_VERIFY_OPERATION,
        );
        // VALID, and INFORMATION.
        assert_eq!(ended.sense[0], 0xF0);
        assert_eq!(ended.sense[3..7], 300_u32.to_be_bytes());
        old[300] ^= 1;
        assert_eq!(bench.load(0, 4096), old);
    }
}

#[test]
fn no_blocks_are_no_error_and_too_many_are() {
    // SBC-3, COMPARE AND WRITE: at most MAXIMUM COMPARE AND WRITE LENGTH, which is 128 here.
    let (mut bench, ..) = bench(512);
    assert!(bench.passes(&caw(0, 0)).io.is_empty());
    bench.writes(&caw(1024, 128), &vec![0; 2 * 128 * 512]);
    bench.fails_with(&caw(1024, 129), &vec![0; 2 * 129 * 512], sense::INVALID_FIELD_IN_CDB);
    bench.fails_with(&caw(u64::MAX, 1), &[0; 1024], sense::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE);
    bench.fails_with(&caw(32767, 2), &[0; 2048], sense::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE);
}

#[test]
fn data_that_is_not_twice_the_blocks_is_refused_before_anything_is_read() {
    let (mut bench, old, new) = bench(0);
    for len in [0, 512, 1023, 1025, 2048] {
        let data = [&old[..512], &new[..]].concat();
        let ended = bench.fails_with(&caw(0, 1), &data[..len], sense::INVALID_FIELD_IN_CDB);
        assert!(ended.io.is_empty());
    }
    // 256 blocks do not fit the field, and look like none.
    bench.fails_with(&caw(0, 0), &vec![0; 2 * 256 * 512], sense::INVALID_FIELD_IN_CDB);
}

#[test]
fn fua_is_kept_on_both_ways() {
    for (native, io) in [(512, "caw 0+512 fua"), (0, "write 0+512 fua")] {
        let (mut bench, old, new) = bench(native);
        let mut cdb = caw(0, 1);
        cdb[1] = 0x18;
        let ended = bench.writes(&cdb, &[&old[..512], &new[..512]].concat());
        assert_eq!(ended.io.last().unwrap(), io);
    }
}

#[test]
fn store_errors_are_read_or_write_errors_by_where_they_strike() {
    let (mut bench, old, new) = bench(0);
    bench.fault = Some(Error::Io(5));
    let data = [&old[..512], &new[..512]].concat();
    bench.fails_with(&caw(0, 1), &data, sense::UNRECOVERED_READ_ERROR);
    let (mut bench, ..) = self::bench(512);
    bench.fault = Some(Error::Io(5));
    bench.fails_with(&caw(0, 1), &data, sense::WRITE_ERROR);
}

#[test]
fn orwrite_ors_the_data_into_the_medium_with_the_range_held() {
    // SBC-3, ORWRITE (16).
    let mut bench = Bench::new();
    let (medium, data) = (pattern(9 * 512), vec![0xA6; 9 * 512]);
    bench.store(512, &medium);
    let ended = bench.writes(&cdb16(0x8B, 1, 9), &data);
    assert!(ended.exclusive);
    assert_eq!(ended.io, ["read 512+4608", "write 512+4608"]);
    let expected: Vec<u8> = medium.iter().map(|byte| byte | 0xA6).collect();
    assert_eq!(bench.load(512, 9 * 512), expected);
}

#[test]
fn a_long_orwrite_goes_piece_by_piece() {
    let mut bench = Bench::new();
    let data = pattern(3 << 19);
    let ended = bench.writes(&cdb16(0x8B, 0, 3 << 10), &data);
    assert_eq!(ended.io.len(), 4);
    assert_eq!(bench.load(0, data.len()), data);
    assert!(bench.passes(&cdb16(0x8B, 0, 0)).io.is_empty());
    bench.fails(&cdb16(0x8B, u64::MAX, 1), sense::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE);
}
