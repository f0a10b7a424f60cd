//! READ CAPACITY and GET LBA STATUS.

use super::bench::{geometry, pattern};
use super::{Bench, cdb16, sense};
use crate::disk::{AllocationExtent, Error, Geometry, Provisioning};
use crate::scsi::Settings;

fn read_capacity_16(allocation: u32) -> [u8; 16] {
    let mut cdb = cdb16(0x9E, 0, allocation);
    cdb[1] = 0x10;
    cdb
}

fn lba_status(lba: u64, allocation: u32) -> [u8; 16] {
    let mut cdb = cdb16(0x9E, lba, allocation);
    cdb[1] = 0x12;
    cdb
}

const READ_CAPACITY_10: [u8; 10] = [0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0];

fn disk(geometry: Geometry, size: u64) -> Bench {
    Bench::with(geometry, Settings::default(), size)
}

#[test]
fn read_capacity_names_the_last_block_and_the_block_length() {
    // SBC-3, READ CAPACITY (10) and (16).
    let mut bench = Bench::new();
    assert_eq!(bench.reads(&READ_CAPACITY_10, 8), [0, 0, 0x7F, 0xFF, 0, 0, 2, 0]);
    let long = bench.reads(&read_capacity_16(32), 32);
    assert_eq!(long[..12], [0, 0, 0, 0, 0, 0, 0x7F, 0xFF, 0, 0, 2, 0]);
    // 8 logical blocks per physical block; LBPME and LBPRZ.
    assert_eq!(long[12..16], [0, 3, 0xC0, 0]);
}

#[test]
fn a_disk_beyond_two_tib_says_so_in_read_capacity_10() {
    for (block_size, size, short) in [
        (512, 2 << 40, 0xFFFF_FFFF_u32),
        (512, (2 << 40) + 512, 0xFFFF_FFFF),
        (512, (2 << 40) - 512, 0xFFFF_FFFE),
        (4096, 3 << 40, (3 << 28) - 1),
        (4096, 64 << 40, 0xFFFF_FFFF),
    ] {
        let mut bench = disk(Geometry { block_size, ..geometry() }, size);
        assert_eq!(bench.reads(&READ_CAPACITY_10, 8)[..4], short.to_be_bytes());
        let last = size / u64::from(block_size) - 1;
        let long = bench.reads(&read_capacity_16(32), 32);
        assert_eq!(long[..8], last.to_be_bytes());
        assert_eq!(long[8..12], block_size.to_be_bytes());
        assert_eq!(long[13], if block_size == 512 { 3 } else { 0 });
    }
}

#[test]
fn read_capacity_16_says_how_the_disk_is_provisioned() {
    for (provisioning, bits) in [
        (None, 0x00),
        (Some(Provisioning { granularity: 4096, alignment: 0, reads_zero: false }), 0x80),
        (Some(Provisioning { granularity: 4096, alignment: 0, reads_zero: true }), 0xC0),
    ] {
        let mut bench = disk(Geometry { provisioning, ..geometry() }, 1 << 20);
        assert_eq!(bench.reads(&read_capacity_16(32), 32)[14], bits);
    }
}

#[test]
fn read_capacity_16_is_cut_to_its_allocation_length() {
    let mut bench = Bench::new();
    for allocation in [0, 1, 12, 31, 32, 100] {
        let ended = bench.run(&read_capacity_16(allocation), &mut super::bench::room_of(100));
        assert_eq!(ended.data.len(), 32.min(allocation as usize));
        assert_eq!(ended.transfer, 32.min(allocation as usize));
    }
    // SBC-3, READ CAPACITY (10): PMI and the LBA are obsolete.
    let mut pmi = READ_CAPACITY_10;
    pmi[8] = 1;
    bench.fails(&pmi, sense::INVALID_FIELD_IN_CDB);
}

#[test]
fn an_empty_disk_has_no_last_block_to_name() {
    let mut bench = disk(geometry(), 0);
    assert_eq!(bench.reads(&READ_CAPACITY_10, 8)[..4], [0; 4]);
    bench.fails(&super::cdb10(0x28, 0, 1), sense::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE);
}

/// (lba, blocks, provisioning status) of each LBA status descriptor (SBC-3).
fn descriptors(data: &[u8]) -> Vec<(u64, u32, u8)> {
    let length = u32::from_be_bytes(data[..4].try_into().unwrap()) as usize;
    assert_eq!(length + 4, data.len());
    data[8..]
        .chunks_exact(16)
        .map(|d| {
            (
                u64::from_be_bytes(d[..8].try_into().unwrap()),
                u32::from_be_bytes(d[8..12].try_into().unwrap()),
                d[12],
            )
        })
        .collect()
}

#[test]
fn get_lba_status_tells_mapped_blocks_from_deallocated_ones() {
    let mut bench = Bench::new();
    bench.store(4 * 512, &pattern(1024));
    bench.store(100 * 512, &pattern(512));
    let data = bench.reads(&lba_status(0, 1024), 1024);
    let expected = [(0, 4, 1), (4, 2, 0), (6, 94, 1), (100, 1, 0), (101, 32667, 1)];
    assert_eq!(descriptors(&data), expected);
    // From the middle, and with room for one descriptor only.
    assert_eq!(descriptors(&bench.reads(&lba_status(5, 24), 24)), [(5, 1, 0)]);
}

#[test]
fn get_lba_status_begins_with_the_block_that_was_asked_for_and_fails_beyond_the_last() {
    let mut bench = Bench::new();
    assert_eq!(descriptors(&bench.reads(&lba_status(32767, 24), 24)), [(32767, 1, 1)]);
    for lba in [32768, u64::MAX] {
        bench.fails(&lba_status(lba, 24), sense::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE);
    }
    assert_eq!(bench.reads(&lba_status(0, 0), 0).len(), 0);
    assert_eq!(bench.reads(&lba_status(0, 8), 8).len(), 8);
}

#[test]
fn a_store_that_cannot_say_has_everything_mapped_and_one_that_fails_fails_the_command() {
    let mut bench = Bench::new();
    bench.fault = Some(Error::Unsupported);
    assert_eq!(descriptors(&bench.reads(&lba_status(10, 1024), 1024)), [(10, 32758, 0)]);
    bench.fault = Some(Error::Io(5));
    bench.fails(&lba_status(10, 1024), sense::UNRECOVERED_READ_ERROR);
}

#[test]
fn get_lba_status_looks_only_so_far_at_a_time() {
    let mut bench = disk(Geometry { block_size: 4096, ..geometry() }, 1 << 44);
    bench.fault = Some(Error::Unsupported);
    assert_eq!(descriptors(&bench.reads(&lba_status(7, 1024), 1024)), [(7, 1 << 20, 0)]);
    let mut thick = disk(Geometry { provisioning: None, ..geometry() }, 1 << 20);
    // SPC-4: of an operation code with other service actions it is the service action that does not exist.
    thick.fails(&lba_status(0, 24), sense::INVALID_FIELD_IN_CDB);
}

#[test]
fn a_block_that_is_allocated_in_part_is_mapped() {
    let mut bench = Bench::new();
    let extents = [(0..700, true), (700..1500, false), (1500..2048, true), (2048..1 << 24, false)];
    let extents = extents.map(|(range, allocated)| AllocationExtent { range, allocated });
    bench.extents = Some(extents.to_vec());
    let expected = [(0, 2, 0), (2, 2, 0), (4, 32764, 1)];
    assert_eq!(descriptors(&bench.reads(&lba_status(0, 1024), 1024)), expected);
    // Nothing said, nothing lost.
    bench.extents = Some(Vec::new());
    assert_eq!(descriptors(&bench.reads(&lba_status(5, 1024), 1024)), [(5, 32763, 0)]);
}
