//! What an initiator learns of its LUNs while they change, over real sessions, lanes and disks in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use rbdgate::disk::Disk;
use rbdgate::disk::memory::Memory;
use rbdgate::nexus::View;
use rbdgate::portal::{Access, Directory, Grant, Target};

use crate::kit::initiator::{Answer, Initiator};
use crate::kit::{Bench, Setup, TARGET};

const TEST_UNIT_READY: [u8; 6] = [0; 6];
const GOOD: (u8, Option<(u8, u8, u8)>) = (0, None);

fn bench(luns: u16) -> Bench {
    Bench::with(Setup { luns, lanes: true, ..Setup::default() })
}

/// Sends a command without data-out to a LUN field.
fn ask(initiator: &mut Initiator, lun: u64, cdb: &[u8], room: usize) -> Answer {
    let mut command = initiator.command(cdb, room > 0, false, room);
    command.lun = lun;
    initiator.send(command.encode(), &[], &[]);
    initiator.finish(command.task_tag, &[])
}

fn ready(initiator: &mut Initiator, lun: u64) -> (u8, Option<(u8, u8, u8)>) {
    let answer = ask(initiator, lun, &TEST_UNIT_READY, 0);
    (answer.status, answer.sense())
}

fn check(code: (u8, u8, u8)) -> (u8, Option<(u8, u8, u8)>) {
    (2, Some(code))
}

fn report_luns(initiator: &mut Initiator, lun: u64, select: u8) -> Vec<u8> {
    let answer = ask(initiator, lun, &[0xA0, 0, select, 0, 0, 0, 0, 0, 1, 0, 0, 0], 256);
    assert_eq!(answer.status, 0);
    answer.data
}

/// The same target, of which everybody sees only these LUNs.
fn narrowed(bench: &Bench, luns: &[u16]) -> Directory {
    let target = &bench.directory.targets[TARGET];
    let view = View { luns: luns.to_vec(), read_only: Vec::new() };
    let anyone = Some(Grant { view, ..Grant::default() });
    let access = Access { anyone, ..Access::default() };
    let target = Target { access, ..Target::clone(target) };
    Directory { targets: BTreeMap::from([(TARGET.to_owned(), Arc::new(target))]), ..Directory::default() }
}

const POWER_ON: (u8, u8, u8) = (6, 0x29, 0);
const LUNS_CHANGED: (u8, u8, u8) = (6, 0x3F, 0x0E);

#[test]
fn a_lun_that_is_taken_out_is_lost_for_good_and_the_others_say_that_the_inventory_has_changed() {
    // SPC-4, REPORT LUNS; SAM-5, incorrect logical unit selection: LOGICAL UNIT NOT SUPPORTED is what ESXi takes for a
    // permanent device loss.
    let bench = bench(3);
    let mut initiator = Initiator::session(bench.address, TARGET);
    for lun in 0..3_u64 {
        assert_eq!(ready(&mut initiator, lun << 48), check(POWER_ON));
    }
    bench.server().apply(narrowed(&bench, &[0, 1]));
    assert_eq!(ready(&mut initiator, 2 << 48), check((5, 0x25, 0)));
    assert_eq!(ready(&mut initiator, 0), check(LUNS_CHANGED));
    assert_eq!(ready(&mut initiator, 0), GOOD);
    // Asked at one unit, it is no news at the others.
    assert_eq!(report_luns(&mut initiator, 0, 0)[3], 16);
    assert_eq!(ready(&mut initiator, 1 << 48), GOOD);
    bench.server().apply(narrowed(&bench, &[0, 1, 2]));
    assert_eq!(ready(&mut initiator, 1 << 48), check(LUNS_CHANGED));
    assert_eq!(ready(&mut initiator, 1 << 48), GOOD);
    assert_eq!(ready(&mut initiator, 0), check(LUNS_CHANGED));
    assert_eq!(report_luns(&mut initiator, 1 << 48, 0)[3], 24);
    assert_eq!(ready(&mut initiator, 2 << 48), GOOD);
}

#[test]
fn lun_0_answers_report_luns_and_inquiry_though_it_does_not_exist() {
    // SPC-4, REPORT LUNS; SAM-5, LUN 0 address.
    let bench = bench(2);
    bench.server().apply(narrowed(&bench, &[1]));
    let mut initiator = Initiator::session(bench.address, TARGET);
    assert_eq!(report_luns(&mut initiator, 0, 0), [0, 0, 0, 8, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(ask(&mut initiator, 0, &[0x12, 0, 0, 0, 96, 0], 96).data[0], 0x7F);
    // Also there the inventory is told, for the units that exist.
    assert_eq!(ready(&mut initiator, 1 << 48), check(POWER_ON));
    bench.server().apply(narrowed(&bench, &[0, 1]));
    report_luns(&mut initiator, 5 << 48, 0);
    assert_eq!(ready(&mut initiator, 1 << 48), GOOD);
}

#[test]
fn the_report_luns_well_known_unit_is_listed_and_answers_its_four_commands() {
    // SPC-4, well known logical units; SAM-5, well known logical unit addressing.
    const WELL_KNOWN: u64 = 0xC101 << 48;
    let bench = bench(1);
    let mut initiator = Initiator::session(bench.address, TARGET);
    let listed = [0, 0, 0, 8, 0, 0, 0, 0, 0xC1, 0x01, 0, 0, 0, 0, 0, 0];
    assert_eq!(report_luns(&mut initiator, WELL_KNOWN, 1), listed);
    assert_eq!(report_luns(&mut initiator, WELL_KNOWN, 2)[3], 16);
    assert_eq!(ask(&mut initiator, WELL_KNOWN, &[0x12, 0, 0, 0, 96, 0], 96).data[0], 0x1E);
    let page = ask(&mut initiator, WELL_KNOWN, &[0x12, 1, 0x83, 0, 255, 0], 255).data;
    assert_eq!((page[0], page[1], &page[4..7]), (0x1E, 0x83, &[0x53, 0xA8, 0][..]));
    assert_eq!(ask(&mut initiator, WELL_KNOWN, &[3, 0, 0, 0, 18, 0], 18).data[12], 0x29);
    assert_eq!(ready(&mut initiator, WELL_KNOWN), GOOD);
    let read = [0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    assert_eq!(ask(&mut initiator, WELL_KNOWN, &read, 512).sense(), Some((5, 0x20, 0)));
    bench.server().apply(narrowed(&bench, &[]));
    assert_eq!(ready(&mut initiator, WELL_KNOWN), check(LUNS_CHANGED));
    // Its neighbours are nobody.
    assert_eq!(ready(&mut initiator, 0xC102 << 48), check((5, 0x25, 0)));
}

#[test]
fn an_initiator_port_that_logs_in_again_is_told_of_the_lost_nexus() {
    // RFC 7143, loss of nexus notification; SAM-5, I_T nexus loss.
    let bench = bench(1);
    let mut initiator = Initiator::session(bench.address, TARGET);
    assert_eq!(ready(&mut initiator, 0), check(POWER_ON));
    assert_eq!(initiator.log_out(0), 0);
    drop(initiator);
    let mut again = Initiator::session(bench.address, TARGET);
    assert_eq!(ready(&mut again, 0), check((6, 0x29, 0x07)));
    // Reinstated: the old session has not been closed.
    let mut reinstated = Initiator::session(bench.address, TARGET);
    assert_eq!(ready(&mut reinstated, 0), check((6, 0x29, 0x07)));
    // SAM-5, hard reset: told to those whom it has thrown out, too.
    assert_eq!(reinstated.manage(7, &rbdgate::portal::pdu::ScsiCommand::default()), 0);
    assert!(reinstated.closed());
    let mut after = Initiator::session(bench.address, TARGET);
    assert_eq!(ready(&mut after, 0), check((6, 0x29, 0x02)));
    let mut other = Initiator::connect(bench.address);
    other.isid[5] = 9;
    other.log_in(TARGET, &[]);
    assert_eq!(ready(&mut other, 0), check(POWER_ON));
}

#[test]
fn a_resize_is_told_to_every_session_once_and_read_capacity_follows() {
    // SBC-3, READ CAPACITY: CAPACITY DATA HAS CHANGED.
    let disk = Arc::new(Memory::new(1 << 20, 512));
    let setup = Setup { lanes: true, disk: Some(Arc::clone(&disk) as _), ..Setup::default() };
    let bench = Bench::with(setup);
    let mut sessions = [1, 2].map(|number| {
        let mut initiator = Initiator::connect(bench.address);
        initiator.isid[5] = number;
        initiator.log_in(TARGET, &[]);
        assert_eq!(ready(&mut initiator, 0), check(POWER_ON));
        initiator
    });
    Disk::resize(&*disk, 8 << 20, false).unwrap();
    for initiator in &mut sessions {
        assert_eq!(ready(initiator, 0), check((6, 0x2A, 0x09)));
        assert_eq!(ready(initiator, 0), GOOD);
        let capacity = ask(initiator, 0, &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], 8).data;
        assert_eq!(capacity[..4], 16383_u32.to_be_bytes());
        assert_eq!(ask(initiator, 0, &[0x28, 0, 0, 0, 0x3F, 0xFF, 0, 0, 1, 0], 512).status, 0);
    }
    // The same size again is no news.
    Disk::resize(&*disk, 8 << 20, false).unwrap();
    assert!(Disk::resize(&*disk, 4 << 20, false).is_err());
    assert_eq!(ready(&mut sessions[0], 0), GOOD);
    Disk::resize(&*disk, 4 << 20, true).unwrap();
    assert_eq!(ready(&mut sessions[0], 0), check((6, 0x2A, 0x09)));
    // SBC-3: LOGICAL BLOCK ADDRESS OUT OF RANGE.
    let beyond = [0x28, 0, 0, 0, 0x3F, 0xFF, 0, 0, 1, 0];
    assert_eq!(ask(&mut sessions[0], 0, &beyond, 512).sense(), Some((5, 0x21, 0)));
}
