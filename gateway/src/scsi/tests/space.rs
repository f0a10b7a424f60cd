//! The warning that a pool gets full (SBC-3, logical block provisioning thresholds).

use super::bench::{geometry, none};
use super::{Bench, sense};
use crate::disk::{Error, Usage};
use crate::scsi::Settings;
use crate::scsi::step::status;

const TEST_UNIT_READY: [u8; 6] = [0; 6];

fn watching() -> Bench {
    let settings = Settings { pool_threshold: Some(80), ..Settings::default() };
    Bench::with(geometry(), settings, 16 << 20)
}

/// Looks at a pool of 1000 MiB of which so much is free.
fn look(bench: &mut Bench, free: u64) {
    bench.usage = Usage { used: None, available: Some(free << 20), pool: Some(1000 << 20) };
    bench.unit.look_at_pool();
    assert!(bench.step_background());
    assert!(!bench.unit.is_busy());
}

#[test]
fn each_crossing_of_the_threshold_is_told_once_to_every_nexus() {
    // SBC-3: THIN PROVISIONING SOFT THRESHOLD REACHED.
    let mut bench = watching();
    let second = bench.second();
    look(&mut bench, 201);
    bench.passes(&TEST_UNIT_READY);
    look(&mut bench, 200);
    bench.fails(&TEST_UNIT_READY, sense::THIN_PROVISIONING_SOFT_THRESHOLD_REACHED);
    bench.passes(&TEST_UNIT_READY);
    assert_eq!(bench.run_as(second.nexus(), &TEST_UNIT_READY, &mut none()).status, status::CHECK_CONDITION);
    // Fuller yet, or hovering: no news.
    for free in [100, 205, 200] {
        look(&mut bench, free);
    }
    bench.passes(&TEST_UNIT_READY);
    for free in [500, 10] {
        look(&mut bench, free);
    }
    bench.fails(&TEST_UNIT_READY, sense::THIN_PROVISIONING_SOFT_THRESHOLD_REACHED);
}

#[test]
fn a_store_that_does_not_know_its_pool_or_fails_warns_nobody() {
    let mut bench = watching();
    bench.unit.look_at_pool();
    assert!(bench.step_background());
    bench.unit.look_at_pool();
    bench.fault = Some(Error::Io(5));
    assert!(bench.step_background());
    bench.passes(&TEST_UNIT_READY);
    assert!(watching().unit.watches_pool() && !Bench::new().unit.watches_pool());
}

#[test]
fn the_mode_page_has_the_threshold_once_the_pool_is_known() {
    // SBC-3, Logical Block Provisioning mode page: a threshold descriptor, counted in sets of 1 MiB.
    let mut bench = watching();
    let page = [0x1A, 0x08, 0x1C, 0x02, 255, 0];
    bench.fails(&page, sense::INVALID_FIELD_IN_CDB);
    look(&mut bench, 900);
    let data = bench.reads(&page, 255);
    assert_eq!(data[4..8], [0x5C, 0x02, 0, 20]);
    assert_eq!(data[20..28], [0x80, 0x01, 0, 0, 0, 0, 0, 200]);
    let changeable = bench.reads(&[0x1A, 0x08, 0x5C, 0x02, 255, 0], 255);
    assert_eq!(changeable[8..], [0; 20]);
    let all = bench.reads(&[0x1A, 0x08, 0x3F, 0xFF, 255, 0], 255);
    assert_eq!(all[all.len() - 24..], data[4..]);
    // MODE SELECT of what MODE SENSE returned changes nothing, and nothing else is taken.
    let mut list = [&[0; 4], &data[4..]].concat();
    bench.writes(&[0x15, 0x10, 0, 0, 28, 0], &list);
    list[27] = 1;
    bench.fails_with(&[0x15, 0x10, 0, 0, 28, 0], &list, sense::INVALID_FIELD_IN_PARAMETER_LIST);
}

#[test]
fn a_pool_is_looked_at_during_a_long_sanitize_too() {
    let mut bench = watching();
    bench.passes(&[0x48, 0x82, 0, 0, 0, 0, 0, 0, 0, 0]);
    bench.step_background();
    bench.usage = Usage { used: None, available: Some(1), pool: Some(1000) };
    bench.unit.look_at_pool();
    bench.finish_background();
    bench.fails(&TEST_UNIT_READY, sense::THIN_PROVISIONING_SOFT_THRESHOLD_REACHED);
    bench.passes(&TEST_UNIT_READY);
}
