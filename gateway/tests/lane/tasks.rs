//! Task management at the lane: what is answered at once, what waits for the disk, and that no memory the disk still has
//! is ever given to another command.

use std::sync::Arc;

use rbdgate::disk::Request;
use rbdgate::disk::fault::{Fault, Settings, Verdict};
use rbdgate::disk::memory::Memory;
use rbdgate::nexus::{Entry, Ports, View};
use ring::TaskManagementKind as Kind;

use crate::driver::*;

const SIZE: u64 = 64 << 20;

/// A store whose lane emulates COMPARE AND WRITE, and that withholds what reaches the first MiB.
fn store() -> Arc<Fault> {
    let geometry = {
        let plain = Memory::new(SIZE, BLOCK as u32);
        rbdgate::disk::Geometry { compare_and_write: 0, ..rbdgate::disk::Disk::geometry(&plain).clone() }
    };
    let fault = Fault::new(Arc::new(Memory::with_geometry(SIZE, geometry)), Settings::default()).unwrap();
    withhold_first_mebibyte(&fault);
    Arc::new(fault)
}

fn withhold_first_mebibyte(fault: &Fault) {
    fault.set_rule(Some(Box::new(|request| match request {
        Request::Read { offset, .. } | Request::Write { offset, .. } if *offset < 1 << 20 => {
            Verdict::Withhold
        }
        _ => Verdict::Pass,
    })));
}

#[test]
fn a_command_that_waits_for_its_range_is_aborted_at_once_and_one_at_the_disk_when_it_comes_back() {
    let (reactors, fault) = (reactors(1), store());
    let mut driver = Driver::start(reactors.pick(), Arc::clone(&fault) as _, &Setup::default());
    let both = vec![0; 1024];
    let (at_disk, first) = driver.send(&compare_and_write(10, 1), &both);
    eventually("its read is withheld", || fault.withheld() == 1);
    let (waiting, second) = driver.send(&compare_and_write(10, 1), &both);
    let (behind, _) = driver.send(&write_16(10, 1), &[7; 512]);
    assert!(driver.producer.push_task_management(Kind::AbortTask, &[second, first]));
    driver.publish();
    assert_eq!(driver.wait(waiting).status, TASK_ABORTED);
    assert!(!driver.is_done(at_disk), "the disk has its memory");
    fault.set_rule(None);
    fault.release();
    assert_eq!(driver.wait(at_disk).status, TASK_ABORTED);
    assert_eq!(driver.wait(behind).status, GOOD);
    assert_eq!(driver.get(&read_16(10, 1), 512).bytes(), [7; 512], "the aborted swap wrote nothing");
    assert_eq!(driver.lane.stats().aborted, 2);
    driver.stop();
}

#[test]
fn an_abort_of_what_is_not_there_changes_nothing() {
    let (reactors, fault) = (reactors(1), store());
    let mut driver = Driver::start(reactors.pick(), Arc::clone(&fault) as _, &Setup::default());
    for kind in [Kind::AbortTask, Kind::AbortTaskSet, Kind::ClearTaskSet, Kind::ClearAca, Kind::Unknown] {
        assert!(driver.producer.push_task_management(kind, &[4242, 1]));
        driver.publish();
    }
    assert_eq!(driver.put(&write_16(4096, 1), &[7; 512]).status, GOOD);
    assert_eq!(driver.lane.stats().aborted, 0);
    driver.stop();
}

#[test]
fn a_reset_ends_every_command_and_tells_every_nexus() {
    let (reactors, fault) = (reactors(1), store());
    let mut setup = Setup::default();
    let ports = Ports {
        initiator: "iqn.2026-01.example:i".into(),
        isid: [0; 6],
        target: "iqn.2026-01.example:t".into(),
        portal_group: 1,
    };
    let session = setup.nexuses.enter(Entry { ports, view: View { luns: vec![0], read_only: vec![] } });
    setup.nexus = session.nexus();
    let mut driver = Driver::start(reactors.pick(), Arc::clone(&fault) as _, &setup);
    assert_eq!(driver.get(&TEST_UNIT_READY, 0).status, CHECK_CONDITION, "power on");
    let tags: Vec<_> = (0..10u64).map(|index| driver.send(&write_16(index, 1), &[1; 512]).0).collect();
    eventually("everything is withheld", || fault.withheld() == 10);
    assert!(driver.producer.push_task_management(Kind::LunReset, &[]));
    driver.publish();
    let done = driver.get(&TEST_UNIT_READY, 0);
    assert_eq!((done.status, done.sense_triple()), (CHECK_CONDITION, (6, 0x29, 3)));
    assert_eq!(driver.get(&TEST_UNIT_READY, 0).status, GOOD);
    fault.set_rule(None);
    fault.release();
    for tag in tags {
        assert_eq!(driver.wait(tag).status, TASK_ABORTED);
    }
    driver.stop();
}

/// Withheld reads are the dangerous ones: when they are released, the store writes into their blocks.
#[test]
fn ten_thousand_commands_after_an_abort_reuse_no_withheld_block() {
    let (reactors, fault) = (reactors(2), store());
    let mut driver = Driver::start(reactors.pick(), Arc::clone(&fault) as _, &Setup::default());
    let mut lent = Vec::new();
    let mut withheld = Vec::new();
    for index in 0..32u64 {
        let data = driver.allocate(16 * 1024);
        lent.extend(addresses(&data));
        withheld.push(driver.submit(&read_16(index * 32, 32), data));
    }
    eventually("all reads are withheld", || fault.withheld() == 32);
    let ids: Vec<_> = withheld.iter().map(|(_, id)| *id).collect();
    assert!(driver.producer.push_task_management(Kind::AbortTaskSet, &ids));
    driver.publish();

    let mut running = std::collections::VecDeque::new();
    for index in 0..10_000u64 {
        let lba = 4096 + index % 512 * 16;
        let len = 512 << (index % 5);
        let mut data = driver.allocate(len);
        let clash = addresses(&data)
            .iter()
            .any(|new| lent.iter().any(|old| new.start < old.end && old.start < new.end));
        assert!(!clash, "command {index} was given memory that the disk still has");
        fill(&mut data, &pattern(index, len));
        running.push_back(driver.submit(&write_16(lba, (len / BLOCK) as u32), data).0);
        if running.len() == 48 {
            let tag = running.pop_front().unwrap();
            assert_eq!(driver.wait(tag).status, GOOD);
        }
    }
    for tag in running {
        assert_eq!(driver.wait(tag).status, GOOD);
    }
    assert_eq!(fault.withheld(), 32);
    assert!(withheld.iter().all(|(tag, _)| !driver.is_done(*tag)), "answered before the disk gave it back");
    assert_eq!(driver.lane.stats().in_flight, 32);
    fault.set_rule(None);
    fault.release();
    for (tag, _) in withheld {
        assert_eq!(driver.wait(tag).status, TASK_ABORTED);
    }
    driver.stop();
    assert_eq!(driver.producer.usage().in_use, 0);
}
