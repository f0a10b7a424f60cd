//! VERIFY and WRITE AND VERIFY.

use super::bench::{out, pattern};
use super::{Bench, cdb10, cdb12, cdb16, sense};
use crate::disk::Error;
use crate::scsi::step::status;

/// Sets BYTCHK (SBC-3, VERIFY (10)).
fn bytchk<const N: usize>(mut cdb: [u8; N], value: u8) -> [u8; N] {
    cdb[1] |= value << 1;
    cdb
}

#[test]
fn bytchk_00_reads_the_medium_and_compares_nothing() {
    let mut bench = Bench::new();
    let ended = bench.writes(&cdb10(0x2F, 0, 2), &pattern(1024));
    assert_eq!((ended.io, ended.transfer), (vec!["read 0+1024".into()], 0));
    bench.fault = Some(Error::Io(5));
    bench.fails(&cdb10(0x2F, 0, 2), sense::UNRECOVERED_READ_ERROR);
}

#[test]
fn bytchk_01_compares_byte_for_byte_and_tells_where_they_differ() {
    let mut bench = Bench::new();
    let mut data = pattern(3 * 512);
    bench.store(512, &data);
    bench.writes(&bytchk(cdb10(0x2F, 1, 3), 1), &data);
    bench.writes(&bytchk(cdb12(0xAF, 1, 3), 1), &data);
    bench.writes(&bytchk(cdb16(0x8F, 1, 3), 1), &data);
    data[1300] ^= 1;
    let ended =
        bench.fails_with(&bytchk(cdb10(0x2F, 1, 3), 1), &data, sense::MISCOMPARE_DURING_VERIFY_OPERATION);
    assert_eq!(ended.sense[0], 0xF0);
    assert_eq!(ended.sense[3..7], 1300_u32.to_be_bytes());
}

#[test]
fn bytchk_11_compares_every_block_with_the_one_that_was_sent() {
    let mut bench = Bench::new();
    let block = pattern(512);
    bench.store(0, &block.repeat(4));
    let ended = bench.writes(&bytchk(cdb16(0x8F, 0, 4), 3), &block);
    assert_eq!(ended.transfer, 512);
    let mut other = block.clone();
    other[7] ^= 0xFF;
    bench.store(2 * 512, &other);
    let ended =
        bench.fails_with(&bytchk(cdb16(0x8F, 0, 4), 3), &block, sense::MISCOMPARE_DURING_VERIFY_OPERATION);
    assert_eq!(ended.sense[3..7], (2 * 512 + 7_u32).to_be_bytes());
    bench.fails_with(
        &bytchk(cdb16(0x8F, 0, 4), 3),
        &block[..100],
        sense::INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT,
    );
}

#[test]
fn bytchk_10_is_reserved() {
    Bench::new().fails_with(&bytchk(cdb10(0x2F, 0, 1), 2), &pattern(512), sense::INVALID_FIELD_IN_CDB);
}

#[test]
fn a_long_verification_goes_piece_by_piece() {
    let mut bench = Bench::new();
    let mut data = pattern(5 << 19);
    bench.store(0, &data);
    let cdb = bytchk(cdb16(0x8F, 0, 5 << 10), 1);
    let ended = bench.writes(&cdb, &data);
    assert_eq!(ended.io, ["read 0+1048576", "read 1048576+1048576", "read 2097152+524288"]);
    // The offset is counted from the first byte of the command, not of the piece.
    data[(2 << 20) + 5] ^= 1;
    let ended = bench.fails_with(&cdb, &data, sense::MISCOMPARE_DURING_VERIFY_OPERATION);
    assert_eq!(ended.sense[3..7], ((2 << 20) + 5_u32).to_be_bytes());
}

#[test]
fn what_has_come_of_the_data_is_compared_to_the_byte() {
    let mut bench = Bench::new();
    let data = pattern(1024);
    bench.store(0, &data);
    let ended = bench.run(&bytchk(cdb10(0x2F, 0, 2), 1), &mut out(&data[..700]));
    assert_eq!((ended.status, ended.transfer), (status::GOOD, 1024));
    let mut wrong = data[..700].to_vec();
    wrong[699] ^= 1;
    bench.fails_with(&bytchk(cdb10(0x2F, 0, 2), 1), &wrong, sense::MISCOMPARE_DURING_VERIFY_OPERATION);
}

#[test]
fn write_and_verify_writes_to_stable_storage_and_reads_back_with_the_range_held() {
    let mut bench = Bench::new();
    let data = pattern(1024);
    for check in [0, 1] {
        for ended in [
            bench.writes(&bytchk(cdb10(0x2E, 2, 2), check), &data),
            bench.writes(&bytchk(cdb12(0xAE, 2, 2), check), &data),
            bench.writes(&bytchk(cdb16(0x8E, 2, 2), check), &data),
        ] {
            assert_eq!(ended.io, ["write 1024+1024 fua", "read 1024+1024"]);
            assert!(ended.exclusive);
        }
    }
    assert_eq!(bench.load(1024, 1024), data);
    assert!(bench.passes(&cdb10(0x2E, 0, 0)).io.is_empty());
    bench.fails_with(&bytchk(cdb10(0x2E, 0, 1), 3), &pattern(512), sense::INVALID_FIELD_IN_CDB);
}

#[test]
fn out_of_range_and_too_long_are_refused() {
    let mut bench = Bench::new();
    let last = (16 << 20) / 512 - 1;
    for code in [0x2F, 0x2E] {
        bench.fails_with(&cdb10(code, last, 2), &pattern(1024), sense::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE);
    }
    bench.fails(&cdb16(0x8F, u64::MAX, 1), sense::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE);
    bench.fails(&cdb16(0x8F, 0, 16385), sense::INVALID_FIELD_IN_CDB);
}
