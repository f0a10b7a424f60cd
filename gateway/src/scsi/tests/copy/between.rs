//! Copies between units: what an initiator may reach, and nothing else.

use std::sync::Arc;

use super::{extended_copy, naa, neighbour, parameters, receive, segment};
use crate::disk::{Error, Geometry};
use crate::nexus::View;
use crate::scsi::Settings;
use crate::scsi::alua::State;
use crate::scsi::sense::Sense;
use crate::scsi::tests::alua::Cluster;
use crate::scsi::tests::bench::{SERIAL, geometry, pattern};
use crate::scsi::tests::{Bench, sense};

const OTHER: &str = "11111111-2222-4333-8444-555555555555";

/// LUN 0; the bench itself is LUN 1. An initiator's view has 0, 1 and 300.
fn second() -> Settings {
    Settings { lun: 0, ..Settings::default() }
}

fn list(ends: (u16, u16), blocks: u16) -> Vec<u8> {
    parameters(1, &[naa(SERIAL), naa(OTHER)], &[segment(ends, blocks, 3, 50)])
}

fn fails(bench: &mut Bench, list: &[u8], sense: Sense) {
    bench.fails_with(&extended_copy(list.len()), list, sense);
}

#[test]
fn blocks_go_to_another_unit_and_come_from_it() {
    let mut bench = Bench::new();
    let (other, _listing) = neighbour(&bench, OTHER, second(), geometry());
    bench.store(3 * 512, &pattern(6000 * 512));
    let there = list((0, 1), 6000);
    bench.writes(&extended_copy(there.len()), &there);
    assert!(other.0.lock().unwrap().load(50 * 512, 6000 * 512) == pattern(6000 * 512));
    assert_eq!(bench.reads(&receive(0x00, 1), 512)[4], 0x01);

    other.0.lock().unwrap().store(3 * 512, &pattern(70 * 512));
    let back = list((1, 0), 70);
    bench.writes(&extended_copy(back.len()), &back);
    assert_eq!(bench.load(50 * 512, 70 * 512), pattern(70 * 512));
}

#[test]
fn a_unit_outside_the_initiators_view_is_not_reachable() {
    // CVE-2020-28374: a copy manager that took every unit it knew for reachable.
    let mut bench = Bench::new();
    let (other, _listing) = neighbour(&bench, OTHER, Settings { lun: 7, ..second() }, geometry());
    other.0.lock().unwrap().store(0, &pattern(512 * 512));
    for ends in [(0, 1), (1, 0), (1, 1)] {
        fails(&mut bench, &list(ends, 1), sense::COPY_TARGET_DEVICE_NOT_REACHABLE);
    }
    assert!(bench.written.is_empty());
    // The view changes while the session goes on.
    let nexus = bench.session.nexus();
    bench.nexuses.set_view(nexus, View { luns: vec![1, 7], read_only: vec![] });
    bench.fails(&[0; 6], sense::REPORTED_LUNS_DATA_HAS_CHANGED);
    bench.writes(&extended_copy(list((1, 0), 1).len()), &list((1, 0), 1));
}

#[test]
fn a_unit_of_another_target_is_not_reachable_though_its_number_is_in_the_view() {
    let mut bench = Bench::new();
    let (other, listing) = neighbour(&bench, OTHER, second(), geometry());
    drop(listing);
    let _elsewhere = bench.units.enter(crate::units::Entry {
        target: "iqn.2026-01.example:elsewhere".into(),
        lun: 0,
        identity: crate::scsi::Identity::from_serial(OTHER),
        block_size: 512,
        door: other,
    });
    fails(&mut bench, &list((0, 1), 1), sense::COPY_TARGET_DEVICE_NOT_REACHABLE);
}

#[test]
fn a_sender_without_a_name_reaches_only_the_unit_it_speaks_to() {
    let mut bench = Bench::new();
    let (_other, _listing) = neighbour(&bench, OTHER, second(), geometry());
    let list = list((0, 1), 1);
    let mut data = super::bench::out(&list);
    let ended = bench.run_as(ring::Nexus::UNKNOWN, &extended_copy(list.len()), &mut data);
    assert_eq!(super::bench::code(&ended.sense), sense::COPY_TARGET_DEVICE_NOT_REACHABLE.code());
}

#[test]
fn a_unit_that_has_gone_is_not_reachable() {
    let mut bench = Bench::new();
    let (_other, listing) = neighbour(&bench, OTHER, second(), geometry());
    listing.withdraw();
    fails(&mut bench, &list((0, 1), 1), sense::COPY_TARGET_DEVICE_NOT_REACHABLE);
}

#[test]
fn the_other_units_write_protection_holds() {
    let mut bench = Bench::new();
    let protected = Settings { write_protected: true, ..second() };
    let (other, _listing) = neighbour(&bench, OTHER, protected, geometry());
    fails(&mut bench, &list((0, 1), 1), sense::THIRD_PARTY_DEVICE_FAILURE);
    assert!(other.0.lock().unwrap().written.is_empty());
    // Reading it is another matter.
    bench.writes(&extended_copy(list((1, 0), 1).len()), &list((1, 0), 1));
}

#[test]
fn a_view_that_is_read_only_holds_there_too() {
    let mut bench = Bench::new();
    let (other, _listing) = neighbour(&bench, OTHER, second(), geometry());
    let nexus = bench.session.nexus();
    bench.nexuses.set_view(nexus, View { luns: vec![0, 1], read_only: vec![0] });
    bench.fails(&[0; 6], sense::REPORTED_LUNS_DATA_HAS_CHANGED);
    fails(&mut bench, &list((0, 1), 1), sense::THIRD_PARTY_DEVICE_FAILURE);
    assert!(other.0.lock().unwrap().written.is_empty());
}

#[test]
fn a_unit_behind_a_port_that_does_not_serve_it_is_not_reachable() {
    // SPC-4, target port group access states: what a READ or WRITE in the copy's place would meet there.
    let mut bench = Bench::new();
    let (other, _listing) = neighbour(&bench, OTHER, second(), geometry());
    let cluster = Cluster::new(false);
    other.0.lock().unwrap().through(Arc::clone(&cluster) as _);
    for state in [State::Standby, State::Unavailable, State::Transitioning] {
        cluster.change(|groups| groups.groups[0].state = state);
        other.0.lock().unwrap().unit.access_changed();
        fails(&mut bench, &list((0, 1), 1), sense::COPY_TARGET_DEVICE_NOT_REACHABLE);
        fails(&mut bench, &list((1, 0), 1), sense::COPY_TARGET_DEVICE_NOT_REACHABLE);
    }
    assert!(other.0.lock().unwrap().written.is_empty());
}

#[test]
fn a_failure_over_there_is_a_third_party_device_failure() {
    let mut bench = Bench::new();
    let (other, _listing) = neighbour(&bench, OTHER, second(), geometry());
    other.0.lock().unwrap().fault = Some(Error::Io(5));
    fails(&mut bench, &list((0, 1), 1), sense::THIRD_PARTY_DEVICE_FAILURE);
    other.0.lock().unwrap().fault = Some(Error::NotReady);
    fails(&mut bench, &list((0, 1), 1), sense::COPY_TARGET_DEVICE_NOT_REACHABLE);
    other.0.lock().unwrap().fault = Some(Error::NoSpace);
    fails(&mut bench, &list((0, 1), 1), sense::SPACE_ALLOCATION_FAILED_WRITE_PROTECT);
}

#[test]
fn blocks_of_different_lengths_must_come_out_even() {
    // SPC-4, block device to block device: the number of blocks is the source's, or with DC the destination's.
    let mut bench = Bench::new();
    let large = Geometry { block_size: 4096, ..geometry() };
    let (other, _listing) = neighbour(&bench, OTHER, second(), large);
    bench.store(3 * 512, &pattern(16 * 512));
    fails(&mut bench, &list((0, 1), 9), sense::UNEXPECTED_INEXACT_SEGMENT);
    let exact = list((0, 1), 16);
    bench.writes(&extended_copy(exact.len()), &exact);
    assert_eq!(other.0.lock().unwrap().load(50 * 4096, 2 * 4096), pattern(16 * 512));
    let mut counted = list((0, 1), 1);
    counted[16 + 64 + 1] = 0x02;
    counted[16 + 64 + 27] = 60;
    bench.writes(&extended_copy(counted.len()), &counted);
    assert_eq!(other.0.lock().unwrap().load(60 * 4096, 4096), pattern(16 * 512)[..4096]);
}

#[test]
fn the_other_unit_still_greets_the_initiator() {
    // SAM-5: a unit attention condition is cleared by being reported, not by a copy in passing.
    let mut bench = Bench::new();
    let (other, _listing) = neighbour(&bench, OTHER, second(), geometry());
    let second = bench.second();
    let list = list((0, 1), 1);
    let mut data = super::bench::out(&list);
    assert_eq!(bench.run_as(second.nexus(), &extended_copy(list.len()), &mut data).status, 0);
    let mut nothing = super::bench::none();
    let first = other.0.lock().unwrap().run_as(second.nexus(), &[0; 6], &mut nothing);
    assert_eq!(super::bench::code(&first.sense), sense::POWER_ON_OCCURRED.code());
}
