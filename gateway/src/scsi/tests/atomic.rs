//! WRITE ATOMIC(16) (SBC-4): within the promise, whole or not at all.

use super::bench::pattern;
use super::{Bench, cdb16, sense};

/// The bench's store promises 64 blocks, in pairs, from every fourth block on.
fn atomic(lba: u64, blocks: u16) -> [u8; 16] {
    let mut cdb = cdb16(0x9C, lba, 0);
    cdb[12..14].copy_from_slice(&blocks.to_be_bytes());
    cdb
}

#[test]
fn an_atomic_write_is_one_request_with_its_range_held() {
    let mut bench = Bench::new();
    let data = pattern(64 * 512);
    let ended = bench.writes(&atomic(8, 64), &data);
    assert_eq!(ended.io, ["atomic 4096+32768"]);
    assert!(ended.exclusive);
    assert_eq!(bench.load(4096, data.len()), data);
    let mut fua = atomic(8, 2);
    fua[1] = 0x08;
    assert_eq!(bench.writes(&fua, &data[..1024]).io, ["atomic 4096+1024 fua"]);
    assert!(bench.writes(&atomic(8, 0), &[]).io.is_empty());
}

#[test]
fn what_the_store_does_not_promise_is_refused() {
    // SBC-4, WRITE ATOMIC (16): MAXIMUM ATOMIC TRANSFER LENGTH, granularity and alignment are errors of the CDB.
    let mut bench = Bench::new();
    let too_long = bench.fails_with(&atomic(0, 66), &pattern(66 * 512), sense::INVALID_FIELD_IN_CDB);
    assert_eq!(too_long.sense[15..18], [0xC0, 0, 12]);
    bench.fails_with(&atomic(0, 3), &pattern(3 * 512), sense::INVALID_FIELD_IN_CDB);
    let misaligned = bench.fails_with(&atomic(2, 2), &pattern(1024), sense::INVALID_FIELD_IN_CDB);
    assert_eq!(misaligned.sense[15..18], [0xC0, 0, 2]);
    let mut boundary = atomic(0, 2);
    boundary[11] = 1;
    bench.fails_with(&boundary, &pattern(1024), sense::INVALID_FIELD_IN_CDB);
    bench.fails(&atomic(32768, 4), sense::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE);
    bench.fails(&atomic(u64::MAX - 3, 0), sense::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE);
    assert!(bench.written.is_empty());
}

#[test]
fn half_the_data_is_not_written_at_all() {
    let mut bench = Bench::new();
    for len in [0, 512, 1023, 2048] {
        bench.fails_with(&atomic(0, 2), &pattern(len), sense::INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT);
    }
    assert!(bench.written.is_empty());
}
