//! Unit attentions, per nexus; write protection; what a unit remembers of nexuses.

use super::bench::{Buffer, code, entry, geometry, none, pattern, room_of};
use super::{Bench, Sense, cdb10, sense};
use crate::disk::Geometry;
use crate::nexus::{Handle, View};
use crate::scsi::step::status;
use crate::scsi::{Reset, Settings};
use ring::Nexus;

const TEST_UNIT_READY: [u8; 6] = [0; 6];

/// The unit attention that the next TEST UNIT READY reports, if any.
fn attention(bench: &mut Bench, nexus: Nexus) -> Option<(u8, u8, u8)> {
    let ended = bench.run_as(nexus, &TEST_UNIT_READY, &mut none());
    (ended.status == status::CHECK_CONDITION).then(|| code(&ended.sense))
}

fn reports(bench: &mut Bench, session: &Handle, conditions: &[Sense]) {
    for condition in conditions {
        assert_eq!(attention(bench, session.nexus()), Some(condition.code()));
    }
    assert_eq!(attention(bench, session.nexus()), None);
}

#[test]
fn a_new_nexus_hears_of_the_power_on_once() {
    // SAM-5, unit attention conditions; the bench has seen it for the first nexus.
    let mut bench = Bench::new();
    let first = bench.session.clone();
    reports(&mut bench, &first, &[]);
    let other = bench.nexuses.enter(entry("iqn.2026-01.example:other"));
    reports(&mut bench, &other, &[sense::POWER_ON_OCCURRED]);
}

#[test]
fn inquiry_and_report_luns_pass_a_unit_attention_and_leave_it() {
    // SPC-4, INQUIRY and REPORT LUNS.
    let mut bench = Bench::new();
    let other = bench.nexuses.enter(entry("iqn.2026-01.example:other"));
    for cdb in [&[0x12, 0, 0, 0, 96, 0][..], &[0xA0, 0, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0]] {
        assert_eq!(bench.run_as(other.nexus(), cdb, &mut room_of(96)).status, status::GOOD);
    }
    reports(&mut bench, &other, &[sense::POWER_ON_OCCURRED]);
}

#[test]
fn request_sense_returns_the_unit_attention_as_data_and_clears_it() {
    // SPC-4, REQUEST SENSE; SAM-5, unit attention conditions.
    let mut bench = Bench::new();
    let other = bench.nexuses.enter(entry("iqn.2026-01.example:other"));
    let request = |bench: &mut Bench, descriptor| {
        let ended = bench.run_as(other.nexus(), &[3, descriptor, 0, 0, 252, 0], &mut room_of(252));
        assert_eq!(ended.status, status::GOOD);
        ended.data
    };
    assert_eq!(code(&request(&mut bench, 0)), sense::POWER_ON_OCCURRED.code());
    assert_eq!(request(&mut bench, 1), [0x72, 0, 0, 0, 0, 0, 0, 0]);
    let fixed = request(&mut bench, 0);
    assert_eq!((fixed.len(), code(&fixed)), (18, (0, 0, 0)));
}

#[test]
fn a_command_that_meets_a_unit_attention_does_nothing_else() {
    let mut bench = Bench::new();
    bench.unit.resized(8 << 20);
    let ended = bench.fails_with(&cdb10(0x2A, 0, 1), &pattern(512), sense::CAPACITY_DATA_HAS_CHANGED);
    assert!(ended.io.is_empty());
    // An unknown operation code too (SAM-5: every command but three).
    bench.unit.resized(4 << 20);
    bench.fails(&[0xC0; 6], sense::CAPACITY_DATA_HAS_CHANGED);
    bench.fails(&[0xC0; 6], sense::INVALID_COMMAND_OPERATION_CODE);
}

#[test]
fn a_resize_is_told_to_every_nexus_once_and_moves_the_end() {
    let mut bench = Bench::new();
    let second = bench.second();
    let first = bench.session.clone();
    bench.size = 32 << 20;
    bench.unit.resized(32 << 20);
    bench.unit.resized(32 << 20);
    reports(&mut bench, &first, &[sense::CAPACITY_DATA_HAS_CHANGED]);
    reports(&mut bench, &second, &[sense::CAPACITY_DATA_HAS_CHANGED]);
    assert_eq!(bench.reads(&[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], 8)[..4], [0, 0, 0xFF, 0xFF]);
    bench.reads(&cdb10(0x28, 0xFFFF, 1), 512);
    bench.unit.resized(1 << 20);
    reports(&mut bench, &first, &[sense::CAPACITY_DATA_HAS_CHANGED]);
    bench.fails(&cdb10(0x28, 2048, 1), sense::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE);
}

#[test]
fn conditions_queue_in_order_and_never_twice() {
    let mut bench = Bench::new();
    let second = bench.second();
    bench.unit.resized(8 << 20);
    let first = bench.session.clone();
    reports(&mut bench, &first, &[sense::CAPACITY_DATA_HAS_CHANGED]);
    // WCE off, by the first initiator.
    let list = [&[0; 4][..], &[8, 18], &[0; 18]].concat();
    bench.writes(&[0x15, 0x10, 0, 0, 24, 0], &list);
    bench.unit.resized(4 << 20);
    reports(&mut bench, &second, &[sense::CAPACITY_DATA_HAS_CHANGED, sense::MODE_PARAMETERS_CHANGED]);
    reports(&mut bench, &first, &[sense::CAPACITY_DATA_HAS_CHANGED]);
}

#[test]
fn a_reset_replaces_what_was_pending() {
    // SAM-5: a reset clears what was pending before it.
    let mut bench = Bench::new();
    let second = bench.second();
    let newcomer = bench.nexuses.enter(entry("iqn.2026-01.example:new"));
    bench.run_as(newcomer.nexus(), &[0x12, 0, 0, 0, 96, 0], &mut room_of(96));
    bench.unit.resized(8 << 20);
    bench.unit.reset(Reset::LogicalUnit);
    reports(&mut bench, &second, &[sense::BUS_DEVICE_RESET_FUNCTION_OCCURRED]);
    reports(&mut bench, &newcomer, &[sense::POWER_ON_OCCURRED, sense::CAPACITY_DATA_HAS_CHANGED]);
    bench.unit.reset(Reset::Target);
    reports(&mut bench, &second, &[sense::SCSI_BUS_RESET_OCCURRED]);
}

#[test]
fn a_nexus_that_comes_back_is_a_new_one() {
    let mut bench = Bench::new();
    let old = bench.second();
    let id = old.nexus();
    drop(old);
    let again = bench.second();
    assert_eq!(again.nexus().id(), id.id());
    assert_ne!(again.nexus(), id);
    assert_eq!(attention(&mut bench, again.nexus()), None);
}

#[test]
fn an_initiator_port_that_logs_in_again_hears_of_the_lost_nexus() {
    // RFC 7143, loss of nexus notification; SAM-5, I_T nexus loss.
    let mut bench = Bench::new();
    let old = bench.nexuses.enter(entry("iqn.2026-01.example:other"));
    reports(&mut bench, &old, &[sense::POWER_ON_OCCURRED]);
    // Replaced while one of its commands keeps the old nexus.
    let new = bench.nexuses.enter(entry("iqn.2026-01.example:other"));
    reports(&mut bench, &new, &[sense::I_T_NEXUS_LOSS_OCCURRED]);
    drop((old, new));
    let newest = bench.nexuses.enter(entry("iqn.2026-01.example:other"));
    reports(&mut bench, &newest, &[sense::I_T_NEXUS_LOSS_OCCURRED]);
    let stranger = bench.nexuses.enter(entry("iqn.2026-01.example:stranger"));
    reports(&mut bench, &stranger, &[sense::POWER_ON_OCCURRED]);
    // What it has missed is more than a lost nexus (SAM-5, unit attention condition precedence).
    drop(stranger);
    let stranger = bench.nexuses.enter(entry("iqn.2026-01.example:passing"));
    bench.run_as(stranger.nexus(), &[0x12, 0, 0, 0, 96, 0], &mut room_of(96));
    drop(stranger);
    let stranger = bench.nexuses.enter(entry("iqn.2026-01.example:passing"));
    reports(&mut bench, &stranger, &[sense::POWER_ON_OCCURRED]);
    drop(stranger);
    bench.passes(&[0; 6]);
    bench.unit.reset(Reset::Target);
    let stranger = bench.nexuses.enter(entry("iqn.2026-01.example:passing"));
    reports(&mut bench, &stranger, &[sense::SCSI_BUS_RESET_OCCURRED]);
    let first = bench.session.clone();
    reports(&mut bench, &first, &[sense::SCSI_BUS_RESET_OCCURRED]);
    reports(&mut bench, &newest, &[sense::SCSI_BUS_RESET_OCCURRED]);
    drop(newest);
    let newest = bench.nexuses.enter(entry("iqn.2026-01.example:other"));
    bench.run_as(newest.nexus(), &[0x12, 0, 0, 0, 96, 0], &mut room_of(96));
    bench.unit.reset(Reset::LogicalUnit);
    reports(&mut bench, &newest, &[sense::BUS_DEVICE_RESET_FUNCTION_OCCURRED]);
}

#[test]
fn other_luns_in_the_view_are_news_until_report_luns_has_told_them() {
    // SPC-4, REPORT LUNS: REPORTED LUNS DATA HAS CHANGED.
    let mut bench = Bench::new();
    let (first, second) = (bench.session.clone(), bench.second());
    let view = |luns: &[u16]| View { luns: luns.to_vec(), read_only: vec![] };
    bench.nexuses.set_view(first.nexus(), view(&[0, 1]));
    reports(&mut bench, &first, &[sense::REPORTED_LUNS_DATA_HAS_CHANGED]);
    reports(&mut bench, &second, &[]);
    // Once per change, whatever else happens to the table.
    drop(bench.nexuses.enter(entry("iqn.2026-01.example:passing")));
    reports(&mut bench, &first, &[]);
    // Another unit behind the same number, and as many as before: a change all the same.
    bench.nexuses.set_view(first.nexus(), view(&[1]));
    bench.nexuses.set_view(first.nexus(), view(&[0, 1]));
    bench.unit.resized(8 << 20);
    let news = [sense::CAPACITY_DATA_HAS_CHANGED, sense::REPORTED_LUNS_DATA_HAS_CHANGED];
    reports(&mut bench, &first, &news);
    bench.nexuses.set_view(first.nexus(), view(&[1]));
    bench.reads(&super::cdb12(0xA0, 0, 64), 64);
    reports(&mut bench, &first, &[]);
    // Other rights in the same inventory are not.
    bench.nexuses.set_view(first.nexus(), View { luns: vec![1], read_only: vec![1] });
    reports(&mut bench, &first, &[]);
}

#[test]
fn commands_that_were_cleared_without_an_answer_are_told_of_once() {
    // SAM-5, CLEAR TASK SET and the TAS bit: COMMANDS CLEARED BY ANOTHER INITIATOR.
    let mut bench = Bench::new();
    let (first, second) = (bench.session.clone(), bench.second());
    bench.nexuses.cleared(second.nexus(), 1);
    bench.nexuses.cleared(first.nexus(), 2);
    reports(&mut bench, &second, &[sense::COMMANDS_CLEARED_BY_ANOTHER_INITIATOR]);
    reports(&mut bench, &first, &[]);
}

#[test]
fn senders_without_a_name_are_not_greeted_but_hear_what_changes() {
    let mut bench = Bench::new();
    assert_eq!(attention(&mut bench, Nexus::UNKNOWN), None);
    let gone = Nexus::new(4711, 9);
    bench.unit.resized(8 << 20);
    assert_eq!(attention(&mut bench, gone), Some(sense::CAPACITY_DATA_HAS_CHANGED.code()));
    assert_eq!(attention(&mut bench, Nexus::UNKNOWN), None);
}

/// Every command that changes the medium, with data it would take.
fn writing_commands() -> Vec<(Vec<u8>, Vec<u8>)> {
    let unmap = [&[0, 22, 0, 16, 0, 0, 0, 0][..], &[0; 8], &[0, 0, 0, 1], &[0; 4]].concat();
    let mut commands: Vec<(Vec<u8>, Vec<u8>)> =
        [0x2A_u8, 0x2E, 0x41].into_iter().map(|code| (cdb10(code, 0, 1).to_vec(), pattern(512))).collect();
    commands.extend([0xAA, 0xAE].map(|code| (super::cdb12(code, 0, 1).to_vec(), pattern(512))));
    commands.extend([0x8A, 0x8B, 0x8E, 0x93].map(|code| (super::cdb16(code, 0, 1).to_vec(), pattern(512))));
    commands.push((super::cdb6(0x0A, 0, 1).to_vec(), pattern(512)));
    commands.push((cdb10(0x42, 0, 24).to_vec(), unmap));
    let mut caw = super::cdb16(0x89, 0, 0).to_vec();
    caw[13] = 1;
    commands.push((caw, vec![0; 1024]));
    commands.push(super::copy::write_zero_token(1));
    let mut atomic = super::cdb16(0x9C, 0, 0).to_vec();
    atomic[13] = 2;
    commands.push((atomic, pattern(1024)));
    commands.push((vec![0x04, 0, 0, 0, 0, 0], vec![]));
    commands.push((vec![0x48, 0x01, 0, 0, 0, 0, 0, 0, 5, 0], vec![1, 0, 0, 1, 7]));
    commands.push((vec![0x48, 0x02, 0, 0, 0, 0, 0, 0, 0, 0], vec![]));
    commands.push((vec![0x48, 0x1F, 0, 0, 0, 0, 0, 0, 0, 0], vec![]));
    commands
}

#[test]
fn nothing_writes_to_a_unit_that_is_write_protected_for_whatever_reason() {
    // SBC-3, write protection: WRITE PROTECTED.
    let mut protected = vec![
        Bench::with(Geometry { read_only: true, ..geometry() }, Settings::default(), 1 << 20),
        Bench::with(geometry(), Settings { write_protected: true, ..Settings::default() }, 1 << 20),
        Bench::new(),
    ];
    let view = View { luns: vec![0, 1, 300], read_only: vec![1] };
    protected[2].nexuses.set_view(protected[2].session.nexus(), view);
    for bench in &mut protected {
        for (cdb, data) in writing_commands() {
            let ended = bench.fails_with(&cdb, &data, sense::WRITE_PROTECTED);
            assert!(ended.io.is_empty());
        }
        bench.reads(&cdb10(0x28, 0, 1), 512);
    }
    let mut open = Bench::new();
    for (cdb, data) in writing_commands() {
        open.writes(&cdb, &data);
        open.written.clear();
    }
    let table = crate::scsi::opcode::all();
    let writing = table.iter().filter(|row| row.medium == crate::scsi::opcode::Medium::Write).count();
    assert_eq!(writing, writing_commands().len());
}

#[test]
fn one_initiator_may_write_where_another_may_not() {
    let mut bench = Bench::new();
    let second = bench.second();
    bench.nexuses.set_view(second.nexus(), View { luns: vec![0, 1, 300], read_only: vec![1] });
    let mut data = Buffer { bytes: pattern(512), direction: crate::scsi::Direction::Unknown };
    let ended = bench.run_as(second.nexus(), &cdb10(0x2A, 0, 1), &mut data);
    assert_eq!(code(&ended.sense), sense::WRITE_PROTECTED.code());
    bench.writes(&cdb10(0x2A, 0, 1), &pattern(512));
    bench.nexuses.set_view(second.nexus(), View { luns: vec![0, 1, 300], read_only: vec![] });
    assert_eq!(bench.run_as(second.nexus(), &cdb10(0x2A, 0, 1), &mut data).status, status::GOOD);
}
