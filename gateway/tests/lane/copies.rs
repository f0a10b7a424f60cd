//! Third-party copies through lanes: another LUN's blocks are that LUN's lane's business.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rbdgate::disk::fault::{Fault, Settings as Faults, Verdict};
use rbdgate::disk::memory::Memory;
use rbdgate::disk::{Disk, Geometry, Request};
use rbdgate::nexus::{Entry, Handle, Ports, View};
use rbdgate::reactor::Reactor;
use rbdgate::scsi::{Identity, Settings};
use rbdgate::units;
use ring::TaskManagementKind as Kind;

use crate::driver::*;

const SIZE: u64 = 64 << 20;
const TARGET: &str = "iqn.2026-01.example:t";

/// A thin store whose lane emulates COMPARE AND WRITE.
pub(crate) fn store() -> Arc<Fault> {
    let plain = Memory::new(SIZE, BLOCK as u32);
    let geometry = Geometry { compare_and_write: 0, ..Disk::geometry(&plain).clone() };
    Arc::new(Fault::new(Arc::new(Memory::with_geometry(SIZE, geometry)), Faults::default()).unwrap())
}

/// An initiator that sees LUN 0 and LUN 1.
pub(crate) fn initiator(setup: &mut Setup) -> Handle {
    let ports = Ports {
        initiator: "iqn.2026-01.example:i".into(),
        isid: [0; 6],
        target: TARGET.into(),
        portal_group: 1,
    };
    let session = setup.nexuses.enter(Entry { ports, view: View { luns: vec![0, 1], read_only: vec![] } });
    setup.nexus = session.nexus();
    session
}

/// A LUN that copies find, and that has greeted the initiator.
pub(crate) fn lun(
    reactor: &Reactor,
    disk: Arc<Fault>,
    number: u16,
    setup: &Setup,
) -> (Driver, units::Listing) {
    let serial = format!("lun{number}");
    let settings = Settings { lun: number, ..Settings::default() };
    let mut driver = Driver::start_as(reactor, disk, setup, &serial, settings);
    assert_eq!(driver.get(&TEST_UNIT_READY, 0).status, CHECK_CONDITION, "power on");
    let listing = setup.units.enter(units::Entry {
        target: TARGET.into(),
        lun: number,
        identity: Identity::from_serial(serial),
        block_size: BLOCK as u64,
        door: driver.lane.door(),
    });
    (driver, listing)
}

/// EXTENDED COPY(LID1) of one segment between the LUNs of these numbers; returns the test's tag and the ring's id.
pub(crate) fn copy(
    driver: &mut Driver,
    id: u8,
    (source, destination): (u8, u8),
    blocks: u16,
    (from, to): (u64, u64),
) -> (u64, ring::CommandId) {
    let mut list = vec![0; 16 + 64 + 28];
    (list[0], list[3], list[11]) = (id, 64, 28);
    for number in 0..2 {
        let target = &mut list[16 + number * 32..][..32];
        (target[0], target[4], target[5], target[7]) = (0xE4, 1, 3, 16);
        target[8..24].copy_from_slice(&Identity::from_serial(format!("lun{number}")).naa);
    }
    let segment = &mut list[80..];
    (segment[0], segment[3], segment[5], segment[7]) = (2, 24, source, destination);
    segment[10..12].copy_from_slice(&blocks.to_be_bytes());
    segment[12..20].copy_from_slice(&from.to_be_bytes());
    segment[20..28].copy_from_slice(&to.to_be_bytes());
    let mut cdb = [0; 16];
    (cdb[0], cdb[13]) = (0x83, list.len() as u8);
    driver.send(&cdb, &list)
}

#[test]
fn copies_in_opposite_directions_at_once_all_end() {
    for count in [1, 2] {
        let (reactors, mut setup) = (reactors(count), Setup::default());
        let _session = initiator(&mut setup);
        let (mut first, _one) = lun(&reactors.all()[0], store(), 0, &setup);
        let (mut second, _two) = lun(&reactors.all()[count - 1], store(), 1, &setup);
        let (ours, theirs) = (pattern(1, 4 << 20), pattern(2, 4 << 20));
        assert_eq!(first.put(&write_16(0, 8192), &ours).status, GOOD);
        assert_eq!(second.put(&write_16(0, 8192), &theirs).status, GOOD);
        let copies: Vec<_> = (0..16)
            .map(|id| {
                let at = 16384 + u64::from(id % 8) * 8192;
                let there = copy(&mut first, id, (0, 1), 8192, (0, at)).0;
                (there, copy(&mut second, id, (1, 0), 8192, (0, at)).0)
            })
            .collect();
        for (there, back) in copies {
            // BUSY: more copies than all their memory.
            assert!([GOOD, 0x08].contains(&first.wait(there).status));
            assert!([GOOD, 0x08].contains(&second.wait(back).status));
        }
        assert!(first.get(&read_16(16384, 8192), 4 << 20).bytes() == theirs);
        assert!(second.get(&read_16(16384, 8192), 4 << 20).bytes() == ours);
        assert_eq!(first.lane.stats().stray + second.lane.stats().stray, 0);
        first.stop();
        second.stop();
    }
}

#[test]
fn a_copy_from_elsewhere_waits_for_a_compare_and_write_in_progress() {
    let (reactors, mut setup) = (reactors(1), Setup::default());
    let _session = initiator(&mut setup);
    let slow = store();
    let (mut first, _one) = lun(reactors.pick(), store(), 0, &setup);
    let (mut second, _two) = lun(reactors.pick(), Arc::clone(&slow), 1, &setup);
    let copied = pattern(1, 8 * BLOCK);
    assert_eq!(first.put(&write_16(0, 8), &copied).status, GOOD);
    slow.set_rule(Some(Box::new(|request| match request {
        Request::Read { .. } => Verdict::Withhold,
        _ => Verdict::Pass,
    })));
    // Zeros are there, and sevens shall be.
    let (swap, _) = second.send(&compare_and_write(3, 1), &[vec![0; BLOCK], vec![7; BLOCK]].concat());
    eventually("its read is withheld", || slow.withheld() == 1);
    let (there, _) = copy(&mut first, 1, (0, 1), 8, (0, 0));
    eventually("the visitor waits", || second.lane.stats().held_back == 1);
    assert!(!first.is_done(there), "written between a comparison and its write");
    slow.set_rule(None);
    slow.release();
    assert_eq!(second.wait(swap).status, GOOD);
    assert_eq!(first.wait(there).status, GOOD);
    assert!(second.get(&read_16(0, 8), 8 * BLOCK).bytes() == copied);
    first.stop();
    second.stop();
}

#[test]
fn a_visitor_that_has_waited_is_admitted_anew() {
    let (reactors, mut setup) = (reactors(1), Setup::default());
    let session = initiator(&mut setup);
    let slow = store();
    let (mut first, _one) = lun(reactors.pick(), store(), 0, &setup);
    let (mut second, _two) = lun(reactors.pick(), Arc::clone(&slow), 1, &setup);
    assert_eq!(first.put(&write_16(0, 8), &pattern(1, 8 * BLOCK)).status, GOOD);
    slow.set_rule(Some(Box::new(|request| match request {
        Request::Read { .. } => Verdict::Withhold,
        _ => Verdict::Pass,
    })));
    let (swap, _) = second.send(&compare_and_write(3, 1), &[vec![0; BLOCK], vec![7; BLOCK]].concat());
    eventually("its read is withheld", || slow.withheld() == 1);
    let (there, _) = copy(&mut first, 1, (0, 1), 8, (0, 0));
    eventually("the visitor waits", || second.lane.stats().held_back == 1);
    // The operator makes the LUN read-only for this initiator meanwhile.
    setup.nexuses.set_view(session.nexus(), View { luns: vec![0, 1], read_only: vec![1] });
    slow.set_rule(None);
    slow.release();
    assert_eq!(second.wait(swap).status, GOOD);
    assert_eq!(first.wait(there).status, CHECK_CONDITION);
    assert_eq!(second.get(&read_16(0, 1), BLOCK).bytes(), [0; BLOCK], "nothing was copied");
    first.stop();
    second.stop();
}

#[test]
fn a_compare_and_write_waits_for_a_copy_that_is_writing() {
    let (reactors, mut setup) = (reactors(2), Setup::default());
    let _session = initiator(&mut setup);
    let slow = store();
    let (mut first, _one) = lun(reactors.pick(), store(), 0, &setup);
    let (mut second, _two) = lun(reactors.pick(), Arc::clone(&slow), 1, &setup);
    assert_eq!(first.put(&write_16(0, 8), &pattern(1, 8 * BLOCK)).status, GOOD);
    slow.set_rule(Some(Box::new(|request| match request {
        Request::Write { .. } => Verdict::Withhold,
        _ => Verdict::Pass,
    })));
    let (there, _) = copy(&mut first, 1, (0, 1), 8, (0, 0));
    eventually("its write is withheld", || slow.withheld() == 1);
    let (swap, _) = second.send(&compare_and_write(3, 1), &vec![0; 2 * BLOCK]);
    eventually("it waits", || second.lane.stats().held_back == 1);
    slow.set_rule(None);
    slow.release();
    assert_eq!(first.wait(there).status, GOOD);
    // It has compared with what was copied.
    assert_eq!(second.wait(swap).sense_triple(), (0xE, 0x1D, 0));
    first.stop();
    second.stop();
}

#[test]
fn an_aborted_copy_starts_nothing_further_and_leaves_the_rest_as_it_was() {
    let (reactors, mut setup) = (reactors(1), Setup::default());
    let _session = initiator(&mut setup);
    let slow = store();
    let (mut first, _one) = lun(reactors.pick(), Arc::clone(&slow), 0, &setup);
    for at in 0..4 {
        assert_eq!(first.put(&write_16(at * 8192, 8192), &pattern(at, 4 << 20)).status, GOOD);
    }
    let seen = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&seen);
    slow.set_rule(Some(Box::new(move |request| match request {
        Request::Write { .. } => {
            count.fetch_add(1, Ordering::Relaxed);
            Verdict::Withhold
        }
        _ => Verdict::Pass,
    })));
    let (tag, id) = copy(&mut first, 1, (0, 0), 32768, (0, 65536));
    eventually("writes are withheld", || slow.withheld() == 2);
    assert!(first.producer.push_task_management(Kind::AbortTask, &[id]));
    first.publish();
    assert_eq!(first.get(&TEST_UNIT_READY, 0).status, GOOD, "the notice has been read");
    assert!(!first.is_done(tag), "the disk has what it writes");
    slow.release();
    assert_eq!(first.wait(tag).status, TASK_ABORTED);
    assert_eq!(seen.load(Ordering::Relaxed), 2, "nothing was started after the abort");
    slow.set_rule(None);
    assert!(first.get(&read_16(65536 + 4096, 2048), 1 << 20).bytes().iter().all(|byte| *byte == 0));
    // RECEIVE COPY RESULTS with COPY STATUS: completed with errors.
    let mut status = [0; 16];
    (status[0], status[2], status[13]) = (0x84, 1, 12);
    assert_eq!(first.get(&status, 12).bytes()[4], 0x02);
    first.stop();
}

#[test]
fn a_lun_whose_lane_has_stopped_is_not_reachable_and_holds_nobody_up() {
    let (reactors, mut setup) = (reactors(2), Setup::default());
    let _session = initiator(&mut setup);
    let (mut first, _one) = lun(reactors.pick(), store(), 0, &setup);
    let (mut second, _two) = lun(reactors.pick(), store(), 1, &setup);
    assert_eq!(first.put(&write_16(0, 8), &pattern(1, 8 * BLOCK)).status, GOOD);
    let running: Vec<_> = (0..16).map(|id| copy(&mut first, id, (0, 1), 8192, (0, 8192)).0).collect();
    second.stop();
    for tag in running {
        let done = first.wait(tag);
        let refused = done.status == CHECK_CONDITION && done.sense_triple() == (0xA, 0x0D, 0x02);
        assert!([GOOD, 0x08].contains(&done.status) || refused);
    }
    let (late, _) = copy(&mut first, 20, (0, 1), 8, (0, 0));
    assert_eq!(first.wait(late).sense_triple(), (0xA, 0x0D, 0x02));
    assert!(second.try_reap().is_ok());
    first.stop();
}

#[test]
fn a_lane_stops_only_when_its_guests_have_left() {
    let (reactors, mut setup) = (reactors(2), Setup::default());
    let _session = initiator(&mut setup);
    let slow = store();
    let (mut first, _one) = lun(reactors.pick(), store(), 0, &setup);
    let (second, _two) = lun(reactors.pick(), Arc::clone(&slow), 1, &setup);
    assert_eq!(first.put(&write_16(0, 8), &pattern(1, 8 * BLOCK)).status, GOOD);
    slow.set_rule(Some(Box::new(|_| Verdict::Withhold)));
    let (there, _) = copy(&mut first, 1, (0, 1), 8, (0, 0));
    eventually("its write is withheld", || slow.withheld() == 1);
    let lane = second.lane;
    let stopping = std::thread::spawn(move || block_on(lane.stop()));
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert!(!stopping.is_finished(), "a guest's write is at the disk");
    slow.set_rule(None);
    slow.release();
    stopping.join().unwrap();
    assert_eq!(first.wait(there).status, GOOD);
    first.stop();
}

#[test]
fn what_a_copy_waits_for_elsewhere_keeps_nobody_from_its_own_blocks() {
    // Else commands of two LUNs that copy into each other could wait for each other for ever.
    for direction in [(0, 1), (1, 0)] {
        let (reactors, mut setup) = (reactors(2), Setup::default());
        let _session = initiator(&mut setup);
        let there = store();
        let (mut first, _one) = lun(reactors.pick(), store(), 0, &setup);
        let (mut second, _two) = lun(reactors.pick(), Arc::clone(&there), 1, &setup);
        for driver in [&mut first, &mut second] {
            for at in (0..32768).step_by(8192) {
                assert_eq!(driver.put(&write_16(at, 8192), &pattern(at, 4 << 20)).status, GOOD);
            }
        }
        // The first pieces are read, then the next ones while those are written: one of it here, the other there.
        let passed = AtomicUsize::new(if direction == (0, 1) { 0 } else { 2 });
        there.set_rule(Some(Box::new(move |request| match request {
            Request::Read { .. } | Request::Write { .. }
                if passed
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
                    .is_err() =>
            {
                Verdict::Withhold
            }
            _ => Verdict::Pass,
        })));
        let (copying, _) = copy(&mut first, 1, direction, 32768, (0, 0));
        eventually("the other LUN has some of it", || there.withheld() > 0);
        let mut cdb = write_16(0, 0);
        for at in (0..32768).step_by(1024) {
            (cdb[0], cdb[13]) = (0x9C, 8);
            cdb[2..10].copy_from_slice(&u64::to_be_bytes(at));
            assert_eq!(first.put(&cdb, &[7; 4096]).status, GOOD, "WRITE ATOMIC at block {at}");
        }
        assert!(!first.is_done(copying));
        there.set_rule(None);
        there.release();
        assert_eq!(first.wait(copying).status, GOOD);
        first.stop();
        second.stop();
    }
}
