//! LOG SENSE (SPC-4; SBC-3, log parameters).

use super::bench::geometry;
use super::{Bench, sense};
use crate::disk::{Error, Geometry, Usage};
use crate::scsi::Settings;

fn log_sense(page: u8, subpage: u8, pointer: u16, allocation: u16) -> [u8; 10] {
    let ([p1, p2], [a1, a2]) = (pointer.to_be_bytes(), allocation.to_be_bytes());
    [0x4D, 0, 0x40 | page, subpage, 0, p1, p2, a1, a2, 0]
}

#[test]
fn the_supported_pages_are_those_that_answer() {
    for thin in [true, false] {
        let provisioning = geometry().provisioning.filter(|_| thin);
        let mut bench = Bench::with(Geometry { provisioning, ..geometry() }, Settings::default(), 1 << 20);
        let list = bench.reads(&log_sense(0, 0, 0, 255), 255);
        let expected: &[u8] = if thin { &[0x00, 0x0C, 0x10, 0x2F] } else { &[0x00, 0x10, 0x2F] };
        assert_eq!(list[..3], [0, 0, 0]);
        assert_eq!(&list[4..], expected);
        for page in 0..64 {
            if expected.contains(&page) {
                let data = bench.reads(&log_sense(page, 0, 0, 4096), 4096);
                assert_eq!(data[0] & 0x3F, page);
                assert_eq!(usize::from(u16::from_be_bytes([data[2], data[3]])) + 4, data.len());
            } else {
                bench.fails(&log_sense(page, 0, 0, 255), sense::INVALID_FIELD_IN_CDB);
            }
        }
        let all = bench.reads(&log_sense(0, 0xFF, 0, 255), 255);
        // SPC-4, Supported Log Pages and Subpages: SPF, then a pair for each.
        assert_eq!(all[..2], [0x40, 0xFF]);
        assert_eq!(all.len(), 4 + 2 * (expected.len() + 1));
        assert_eq!(all[4..8], [0, 0, 0, 0xFF]);
        bench.fails(&log_sense(0, 1, 0, 255), sense::INVALID_FIELD_IN_CDB);
    }
}

#[test]
fn the_provisioning_page_counts_what_the_store_knows() {
    // SBC-3, Logical Block Provisioning log page: available (shared) and used (dedicated) LBA mapping resources, counted in
    // threshold sets, which the THRESHOLD EXPONENT of VPD B2h makes 1 MiB here.
    let mut bench = Bench::new();
    assert_eq!(bench.reads(&log_sense(0x0C, 0, 0, 255), 255), [0x8C, 0, 0, 0]);
    bench.usage = Usage { used: Some((3 << 20) + 1), available: Some((7 << 20) - 1), pool: None };
    let page = bench.reads(&log_sense(0x0C, 0, 0, 255), 255);
    assert_eq!(page[4..16], [0, 1, 0x03, 8, 0, 0, 0, 6, 2, 0, 0, 0]);
    assert_eq!(page[16..], [0, 2, 0x03, 8, 0, 0, 0, 4, 1, 0, 0, 0]);
    assert_eq!(bench.reads(&log_sense(0x0C, 0, 2, 255), 255)[4..8], [0, 2, 0x03, 8]);
    bench.fails(&log_sense(0x0C, 0, 3, 255), sense::INVALID_FIELD_IN_CDB);
    bench.usage = Usage { used: None, available: Some(u64::MAX), pool: None };
    assert_eq!(bench.reads(&log_sense(0x0C, 0, 0, 255), 255)[8..12], [0xFF; 4]);
    bench.fault = Some(Error::Io(5));
    bench.fails(&log_sense(0x0C, 0, 0, 255), sense::UNRECOVERED_READ_ERROR);
}

#[test]
fn no_exception_is_reported_and_no_temperature() {
    // SPC-4, Informational Exceptions log page.
    let mut bench = Bench::new();
    assert_eq!(bench.reads(&log_sense(0x2F, 0, 0, 255), 255), [0xAF, 0, 0, 8, 0, 0, 3, 4, 0, 0, 0xFF, 0]);
}

#[test]
fn nothing_can_be_saved() {
    let mut bench = Bench::new();
    let mut cdb = log_sense(0x2F, 0, 0, 255);
    cdb[1] = 0x01;
    bench.fails(&cdb, sense::INVALID_FIELD_IN_CDB);
}
