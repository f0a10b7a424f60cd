//! INQUIRY, the vital product data, and REPORT LUNS.

use super::bench::{SERIAL, geometry, none, room_of};
use super::{Bench, sense};
use crate::disk::{Geometry, Provisioning};
use crate::nexus::View;
use crate::scsi::Settings;

fn inquiry(page: Option<u8>, allocation: u16) -> [u8; 6] {
    let [high, low] = allocation.to_be_bytes();
    [0x12, u8::from(page.is_some()), page.unwrap_or(0), high, low, 0]
}

fn page(bench: &mut Bench, code: u8) -> Vec<u8> {
    let page = bench.reads(&inquiry(Some(code), 1024), 1024);
    // SPC-4, VPD page format: device type, page code, PAGE LENGTH.
    assert_eq!(page[..2], [0x00, code]);
    assert_eq!(usize::from(u16::from_be_bytes([page[2], page[3]])) + 4, page.len());
    page
}

fn u32_at(page: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(page[at..at + 4].try_into().unwrap())
}

#[test]
fn standard_data_says_what_the_unit_is() {
    // SPC-4, standard INQUIRY data.
    let mut bench = Bench::new();
    let data = bench.reads(&inquiry(None, 255), 255);
    assert_eq!(data.len(), 96);
    assert_eq!(data[..8], [0x00, 0x00, 0x06, 0x12, 91, 0x18, 0x00, 0x02]);
    assert_eq!(&data[8..36], b"LIO-ORG TCMU device     0002");
    assert_eq!(data[58..66], [0x00, 0xA0, 0x09, 0x60, 0x04, 0x60, 0x04, 0xC0]);
    let settings = Settings { removable: true, ..Settings::default() };
    let mut removable = Bench::with(geometry(), settings, 1 << 20);
    assert_eq!(removable.reads(&inquiry(None, 5), 5), [0x00, 0x80, 0x06, 0x12, 91]);
}

#[test]
fn every_length_of_allocation_cuts_and_none_is_an_error() {
    let mut bench = Bench::new();
    for allocation in [0, 1, 5, 36, 95, 96, 97, 0xFFFF] {
        let ended = bench.run(&inquiry(None, allocation), &mut room_of(70_000));
        assert_eq!(ended.transfer, 96.min(allocation.into()));
        assert_eq!(ended.data.len(), ended.transfer);
    }
}

#[test]
fn a_page_code_without_evpd_and_a_page_that_is_not_there_are_refused() {
    let mut bench = Bench::new();
    bench.fails(&[0x12, 0, 0x80, 0, 255, 0], sense::INVALID_FIELD_IN_CDB);
    for code in [0x01, 0x7F, 0x84, 0xB3, 0xFF] {
        let ended = bench.fails(&inquiry(Some(code), 255), sense::INVALID_FIELD_IN_CDB);
        assert_eq!(ended.sense[15..18], [0xC0, 0, 2]);
    }
    // CMDDT is obsolete.
    bench.fails(&[0x12, 2, 0, 0, 255, 0], sense::INVALID_FIELD_IN_CDB);
}

#[test]
fn the_supported_pages_are_ascending_and_all_there() {
    let mut bench = Bench::new();
    let pages = page(&mut bench, 0x00)[4..].to_vec();
    assert_eq!(pages, [0x00, 0x80, 0x83, 0x86, 0x8F, 0xB0, 0xB1, 0xB2]);
    for code in pages {
        page(&mut bench, code);
    }
    assert_eq!(page(&mut bench, 0x80)[4..], *SERIAL.as_bytes());
}

#[test]
fn the_identification_page_names_unit_port_and_target() {
    // SPC-4, Device Identification page; NAA, T10 vendor ID, relative target port, target port group, SCSI name strings.
    let mut bench = Bench::new();
    let page = page(&mut bench, 0x83);
    let mut designators = Vec::new();
    let mut rest = &page[4..];
    while let [codes, kind, _, len, tail @ ..] = rest {
        let (bytes, next) = tail.split_at(usize::from(*len));
        designators.push((*codes, *kind, bytes.to_vec()));
        rest = next;
    }
    let naa =
        [0x60, 0x01, 0x40, 0x58, 0xE9, 0xA1, 0xD6, 0xC1, 0x2F, 0x34, 0xA5, 0xB9, 0xC7, 0xD0, 0x12, 0x34];
    assert_eq!(designators[0], (0x01, 0x03, naa.to_vec()));
    assert_eq!(designators[1], (0x02, 0x01, format!("LIO-ORG {SERIAL}").into_bytes()));
    assert_eq!(designators[2], (0x51, 0x94, vec![0, 0, 0, 3]));
    assert_eq!(designators[3], (0x51, 0x95, vec![0, 0, 0, 3]));
    // SPC-4, SCSI name string designator: NUL-terminated, a multiple of four.
    assert_eq!(designators[4], (0x53, 0x98, b"iqn.2026-01.example:target,t,0x0003\0".to_vec()));
    assert_eq!(designators[5], (0x53, 0xA8, b"iqn.2026-01.example:target\0\0".to_vec()));
    assert_eq!(designators.len(), 6);
}

#[test]
fn a_sender_without_a_name_learns_nothing_of_ports() {
    let mut bench = Bench::new();
    let ended = bench.run_as(ring::Nexus::UNKNOWN, &inquiry(Some(0x83), 255), &mut room_of(255));
    assert_eq!(ended.data.len(), 4 + 20 + 4 + 8 + SERIAL.len());
}

#[test]
fn block_limits_are_those_the_commands_keep_to() {
    // SBC-3, Block Limits page.
    let mut bench = Bench::new();
    let page = page(&mut bench, 0xB0);
    assert_eq!(page.len(), 64);
    assert_eq!(page[4..6], [0x01, 128]);
    assert_eq!(page[6..8], [0, 8]);
    assert_eq!(u32_at(&page, 8), 16384);
    assert_eq!(u32_at(&page, 12), 8192);
    assert_eq!(u32_at(&page, 20), 1 << 20);
    assert_eq!(u32_at(&page, 24), 256);
    assert_eq!(u32_at(&page, 28), 128);
    assert_eq!(u32_at(&page, 32), 0x8000_0000);
    assert_eq!(page[36..44], (16_u64 << 11).to_be_bytes());
    // SBC-4: MAXIMUM ATOMIC TRANSFER LENGTH, ATOMIC ALIGNMENT, ATOMIC TRANSFER LENGTH GRANULARITY; no atomic boundary.
    let atomic: Vec<u32> = (44..64).step_by(4).map(|at| u32_at(&page, at)).collect();
    assert_eq!(atomic, [64, 4, 2, 0, 0]);
}

#[test]
fn a_store_without_a_promise_has_no_atomic_write() {
    let geometry = Geometry { atomic_write: None, ..geometry() };
    let mut bench = Bench::with(geometry, Settings::default(), 1 << 20);
    assert_eq!(page(&mut bench, 0xB0)[44..], [0; 20]);
    bench.fails(&super::cdb16(0x9C, 0, 0), sense::INVALID_COMMAND_OPERATION_CODE);
}

#[test]
fn block_limits_of_a_4096_byte_disk_that_is_fully_provisioned() {
    let geometry = Geometry { block_size: 4096, optimal_io_size: 0, provisioning: None, ..geometry() };
    let mut bench = Bench::with(geometry, Settings::default(), 1 << 30);
    let page = page(&mut bench, 0xB0);
    assert_eq!(page[4..8], [0x01, 16, 0, 1]);
    assert_eq!((u32_at(&page, 8), u32_at(&page, 12)), (2048, 0));
    assert_eq!(page[20..36], [0; 16]);
}

#[test]
fn the_provisioning_page_says_thin_and_which_ways_there_are_to_unmap() {
    // SBC-3, Logical Block Provisioning page: THRESHOLD EXPONENT of 1 MiB; LBPU, LBPWS, LBPWS10, LBPRZ; PROVISIONING TYPE 2.
    let mut bench = Bench::new();
    assert_eq!(page(&mut bench, 0xB2)[4..], [11, 0xE4, 2, 0]);
    let provisioning = Some(Provisioning { granularity: 1 << 20, alignment: 512, reads_zero: false });
    let mut bench = Bench::with(Geometry { provisioning, ..geometry() }, Settings::default(), 1 << 20);
    assert_eq!(page(&mut bench, 0xB2)[4..], [11, 0xE0, 2, 0]);
    assert_eq!(u32_at(&page(&mut bench, 0xB0), 32), 0x8000_0001);
    let mut bench = Bench::with(Geometry { provisioning: None, ..geometry() }, Settings::default(), 1 << 20);
    assert_eq!(page(&mut bench, 0xB2)[4..], [0; 4]);
}

#[test]
fn the_medium_does_not_rotate_and_the_cache_is_volatile_if_the_disk_says_so() {
    let mut bench = Bench::new();
    // SBC-4, Block Device Characteristics page: MEDIUM ROTATION RATE, WABEREQ, FUAB and VBULS.
    assert_eq!(page(&mut bench, 0xB1)[4..9], [0, 1, 0, 0x40, 0x03]);
    let extended = page(&mut bench, 0x86);
    assert_eq!((extended.len(), extended[5], extended[6]), (64, 0x07, 0x01));
    let mut bench =
        Bench::with(Geometry { volatile_cache: false, ..geometry() }, Settings::default(), 1 << 20);
    assert_eq!(page(&mut bench, 0x86)[6], 0);
}

fn report_luns(select: u8, allocation: u32) -> [u8; 12] {
    let mut cdb = super::cdb12(0xA0, 0, allocation);
    cdb[2] = select;
    cdb
}

#[test]
fn report_luns_lists_what_this_initiator_may_see() {
    // SPC-4, REPORT LUNS; SAM-5, single level LUN structure.
    let mut bench = Bench::new();
    let list = bench.reads(&report_luns(0, 1024), 1024);
    assert_eq!(list[..8], [0, 0, 0, 24, 0, 0, 0, 0]);
    assert_eq!(list[8..16], [0; 8]);
    assert_eq!(list[16..18], [0, 1]);
    assert_eq!(list[24..26], [0x41, 0x2C]);
    // SPC-4, SELECT REPORT field; SAM-5, well known logical unit addressing.
    let well_known = [0xC1, 0x01, 0, 0, 0, 0, 0, 0];
    let all = bench.reads(&report_luns(2, 1024), 1024);
    assert_eq!((all[3], &all[8..32], &all[32..]), (32, &list[8..], &well_known[..]));
    assert_eq!(
        bench.reads(&report_luns(1, 1024), 1024),
        [&[0, 0, 0, 8, 0, 0, 0, 0], &well_known[..]].concat()
    );
    bench.fails(&report_luns(3, 1024), sense::INVALID_FIELD_IN_CDB);
    bench.fails(&report_luns(0, 15), sense::INVALID_FIELD_IN_CDB);
    assert_eq!(bench.reads(&report_luns(0, 16), 16), list[..16]);
    let view = View { luns: vec![7], read_only: vec![] };
    bench.nexuses.set_view(bench.session.nexus(), view);
    assert_eq!(bench.reads(&report_luns(0, 1024), 1024)[3], 8);
    let ended = bench.run_as(ring::Nexus::UNKNOWN, &report_luns(0, 64), &mut room_of(64));
    assert_eq!(ended.data[..10], [0, 0, 0, 8, 0, 0, 0, 0, 0, 1]);
    assert_eq!(bench.run(&report_luns(0, 64), &mut none()).transfer, 16);
}
