//! READ, WRITE, residuals, PRE-FETCH, SYNCHRONIZE CACHE.

use super::bench::{Buffer, geometry, out, pattern, room_of};
use super::{Bench, cdb6, cdb10, cdb12, cdb16, sense};
use crate::scsi::Settings;
use crate::scsi::step::{Direction, status};

#[test]
fn every_write_is_read_back_by_every_read() {
    let mut bench = Bench::new();
    let data = pattern(4 * 512);
    bench.writes(&cdb6(0x0A, 4, 4), &data);
    bench.writes(&cdb10(0x2A, 8, 4), &data);
    bench.writes(&cdb12(0xAA, 12, 4), &data);
    bench.writes(&cdb16(0x8A, 16, 4), &data);
    for lba in [4, 8, 12, 16] {
        assert_eq!(bench.reads(&cdb6(0x08, lba, 4), 2048), data);
        assert_eq!(bench.reads(&cdb10(0x28, lba, 4), 2048), data);
        assert_eq!(bench.reads(&cdb12(0xA8, lba, 4), 2048), data);
        assert_eq!(bench.reads(&cdb16(0x88, lba.into(), 4), 2048), data);
    }
}

#[test]
fn a_length_of_zero_is_256_blocks_in_the_six_byte_cdbs_and_none_in_the_others() {
    // SBC-3, READ (6) and WRITE (6) against READ (10).
    let mut bench = Bench::new();
    let data = pattern(256 * 512);
    assert_eq!(bench.writes(&cdb6(0x0A, 0, 0), &data).io, ["write 0+131072"]);
    assert_eq!(bench.reads(&cdb6(0x08, 0, 0), 256 * 512), data);
    for ended in [bench.passes(&cdb10(0x28, 0, 0)), bench.passes(&cdb16(0x8A, 0, 0))] {
        assert_eq!((ended.io.len(), ended.transfer), (0, 0));
    }
}

#[test]
fn the_address_of_read_6_has_21_bits() {
    let mut bench = Bench::with(geometry(), Settings::default(), 2 << 30);
    let data = pattern(512);
    bench.writes(&cdb6(0x0A, 0x1F_FFFF, 1), &data);
    assert_eq!(bench.reads(&cdb16(0x88, 0x1F_FFFF, 1), 512), data);
}

#[test]
fn no_access_reaches_beyond_the_last_block() {
    // SBC-3, access beyond the capacity: LBA OUT OF RANGE.
    let mut bench = Bench::new();
    let last = (16 << 20) / 512 - 1;
    bench.reads(&cdb10(0x28, last, 1), 512);
    let beyond = sense::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE;
    bench.fails(&cdb10(0x28, last, 2), beyond);
    bench.fails(&cdb10(0x28, last + 1, 1), beyond);
    bench.fails(&cdb10(0x28, last + 2, 0), beyond);
    bench.fails(&cdb10(0x28, u32::MAX, 0xFFFF), beyond);
    bench.fails(&cdb12(0xA8, u32::MAX, u32::MAX), beyond);
    bench.fails(&cdb16(0x88, u64::MAX, u32::MAX), beyond);
    bench.fails(&cdb16(0x88, 1 << 63, 0), beyond);
    bench.fails_with(&cdb10(0x2A, last, 2), &pattern(1024), beyond);
    bench.fails_with(&cdb16(0x8A, u64::MAX, 1), &pattern(512), beyond);
    assert!(bench.written.is_empty());
}

#[test]
fn more_than_maximum_transfer_length_is_refused() {
    // SBC-3, Block Limits page.
    let mut bench = Bench::new();
    bench.fails(&cdb16(0x88, 0, 16385), sense::INVALID_FIELD_IN_CDB);
    assert_eq!(bench.reads(&cdb16(0x88, 0, 16384), 8 << 20).len(), 8 << 20);
}

#[test]
fn works_with_4096_byte_blocks_and_beyond_2_tib() {
    let size = 5 << 40;
    let mut bench =
        Bench::with(crate::disk::Geometry { block_size: 4096, ..geometry() }, Settings::default(), size);
    let data = pattern(8192);
    let last = size / 4096 - 2;
    assert_eq!(bench.writes(&cdb16(0x8A, last, 2), &data).io, [format!("write {}+8192", size - 8192)]);
    assert_eq!(bench.reads(&cdb16(0x88, last, 2), 8192), data);
    bench.fails(&cdb16(0x88, last, 3), sense::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE);
    bench.writes(&cdb10(0x2A, last as u32, 2), &data);
}

#[test]
fn protection_fields_and_reserved_bits_are_refused_and_dpo_fua_group_accepted() {
    let mut bench = Bench::new();
    for protect in 1..8 {
        for code in [0x28, 0x2A, 0x2E, 0x2F, 0x41] {
            let mut cdb = cdb10(code, 0, 1);
            cdb[1] = protect << 5;
            let ended = bench.fails_with(&cdb, &pattern(512), sense::INVALID_FIELD_IN_CDB);
            // SPC-4, field pointer sense key specific data: the field pointer names byte 1 of the CDB.
            assert_eq!(ended.sense[15] & 0xC0, 0xC0);
            assert_eq!(ended.sense[16..18], [0, 1]);
        }
    }
    for flags in [0x10, 0x08, 0x18, 0x02, 0x1A] {
        let mut cdb = cdb10(0x28, 0, 1);
        (cdb[1], cdb[6]) = (flags, 0x1F);
        bench.reads(&cdb, 512);
    }
    let mut naca = cdb10(0x28, 0, 1);
    naca[9] = 0x04;
    bench.fails(&naca, sense::INVALID_FIELD_IN_CDB);
}

#[test]
fn fua_reaches_the_disk_and_so_does_a_cache_that_was_turned_off() {
    let mut bench = Bench::new();
    let mut fua = cdb10(0x2A, 0, 1);
    fua[1] = 0x08;
    assert_eq!(bench.writes(&fua, &pattern(512)).io, ["write 0+512 fua"]);
    assert_eq!(bench.writes(&cdb10(0x2A, 0, 1), &pattern(512)).io, ["write 0+512"]);
    // SBC-3, Caching mode page: WCE zero.
    let mut select = vec![0; 4];
    select.extend_from_slice(&[0x08, 0x12]);
    select.extend_from_slice(&[0; 18]);
    assert_eq!(
        bench.writes(&[0x15, 0x10, 0, 0, 24, 0], &select).io,
        ["flush"],
        "what was answered before is stable too"
    );
    assert_eq!(bench.writes(&[0x15, 0x10, 0, 0, 24, 0], &select).io, [""; 0], "off already");
    assert_eq!(bench.writes(&cdb10(0x2A, 0, 1), &pattern(512)).io, ["write 0+512 fua"]);
    // The bit that is FUA elsewhere is an address bit in WRITE(6).
    bench.unit.reset(crate::scsi::Reset::LogicalUnit);
    bench.fails(&[0; 6], sense::BUS_DEVICE_RESET_FUNCTION_OCCURRED);
    bench.fails_with(&cdb6(0x0A, 0x08_0000, 1), &pattern(512), sense::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE);
}

#[test]
fn a_read_into_less_room_than_the_cdb_asks_for_moves_exactly_what_fits() {
    // RFC 7143 11.4.5: the transport reports transfer − room as overflow.
    let mut bench = Bench::new();
    let data = pattern(4096);
    bench.store(0, &data);
    for room in [0, 1, 200, 511, 512, 513, 1024, 1500, 2047, 2048, 2049, 10000] {
        let ended = bench.run(&cdb10(0x28, 0, 4), &mut room_of(room));
        assert_eq!(ended.status, status::GOOD);
        assert_eq!(ended.transfer, 2048);
        assert_eq!(ended.data, data[..room.min(2048)], "room {room}");
    }
}

#[test]
fn a_write_with_less_data_than_the_cdb_asks_for_stores_whole_blocks_of_it_and_no_more() {
    let mut bench = Bench::new();
    for (sent, stored) in [(0, 0), (200, 0), (512, 1), (1000, 1), (1024, 2), (2048, 2), (10000, 2)] {
        bench.written.clear();
        let ended = bench.run(&cdb10(0x2A, 0, 2), &mut out(&pattern(sent)));
        assert_eq!((ended.status, ended.transfer), (status::GOOD, 1024), "{sent}");
        assert_eq!(bench.written.len(), stored, "{sent}");
    }
}

#[test]
fn a_write_whose_buffer_is_room_for_data_in_stores_nothing_of_it() {
    let mut bench = Bench::new();
    let ended = bench.run(&cdb10(0x2A, 0, 1), &mut room_of(512));
    assert_eq!(ended.status, status::GOOD);
    assert!(bench.written.is_empty());
    // Nor is what the room last held taken for data-in.
    assert_eq!((ended.transfer, ended.data.len()), (0, 0));
    // The reverse: a READ sent with data-out is carried out, and returns nothing.
    let mut data = Buffer { bytes: pattern(512), direction: Direction::Out };
    let ended = bench.run(&cdb10(0x28, 0, 1), &mut data);
    assert_eq!((ended.status, ended.transfer, ended.data.len()), (status::GOOD, 0, 0));
    assert_eq!(data.bytes, pattern(512));
}

#[test]
fn synchronize_cache_flushes_and_checks_its_range() {
    let mut bench = Bench::new();
    let last = (16 << 20) / 512 - 1;
    assert_eq!(bench.passes(&cdb10(0x35, 0, 0)).io, ["flush"]);
    assert_eq!(bench.passes(&cdb16(0x91, last, 1)).io, ["flush"]);
    let mut immed = cdb10(0x35, 0, 1);
    immed[1] = 0x02;
    assert_eq!(bench.passes(&immed).io, ["flush"]);
    bench.fails(&cdb10(0x35, last as u32, 2), sense::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE);
    bench.fails(&cdb16(0x91, u64::MAX, 1), sense::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE);
}

#[test]
fn pre_fetch_checks_its_range_and_asks_nothing_of_the_disk() {
    let mut bench = Bench::new();
    for immed in [0, 2] {
        let mut cdb = cdb10(0x34, 0, 256);
        (cdb[1], cdb[6]) = (immed, 3);
        assert!(bench.passes(&cdb).io.is_empty());
    }
    assert!(bench.passes(&cdb16(0x90, 0, 0)).io.is_empty());
    bench.fails(&cdb16(0x90, 1 << 40, 1), sense::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE);
}
