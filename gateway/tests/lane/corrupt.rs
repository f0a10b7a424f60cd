//! A peer that writes nonsense takes down its own LUN and nothing else.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rbdgate::disk::Request;
use rbdgate::disk::fault::{Fault, Settings, Verdict};
use rbdgate::disk::memory::Memory;

use crate::driver::*;

/// Where `cmd_head` is in the mailbox (`struct tcmu_mailbox`).
const CMD_HEAD: u64 = 12;

fn scribble(driver: &Driver, head: u32) {
    let memory = File::from(driver.producer.as_fd().try_clone_to_owned().unwrap());
    memory.write_all_at(&head.to_le_bytes(), CMD_HEAD).unwrap();
    driver.doorbell.ring();
}

#[test]
fn a_corrupt_ring_takes_its_lane_down_after_what_is_in_flight_and_no_other() {
    let reactors = reactors(1);
    let fault = Arc::new(Fault::new(Arc::new(Memory::new(64 << 20, 512)), Settings::default()).unwrap());
    let mut broken = Driver::start(reactors.pick(), Arc::clone(&fault) as _, &Setup::default());
    let mut sound = Driver::start(reactors.pick(), Arc::new(Memory::new(64 << 20, 512)), &Setup::default());
    fault.set_rule(Some(Box::new(|request| match request {
        Request::Write { .. } => Verdict::Withhold,
        _ => Verdict::Pass,
    })));
    let (in_flight, _) = broken.send(&write_16(0, 1), &[1; 512]);
    eventually("the write is withheld", || fault.withheld() == 1);

    scribble(&broken, 0x1234_5677);
    eventually("the lane notices", || broken.lane.stats().corrupt);
    assert_eq!(sound.put(&write_16(5, 1), &[5; 512]).status, GOOD);
    assert_eq!(broken.lane.stats().in_flight, 1, "the disk still has the command's memory");
    let (never, _) = broken.ask(&read_16(0, 1), 512);
    assert!(!broken.is_done(never), "nothing more is taken");

    fault.release();
    assert_eq!(broken.wait(in_flight).status, GOOD);
    broken.stop();
    assert_eq!(broken.lane.stats().in_flight, 0);
    assert_eq!(sound.get(&read_16(5, 1), 512).bytes(), [5; 512]);
    assert!(!sound.lane.stats().corrupt);
    sound.stop();
}

#[test]
fn any_head_at_all_is_either_taken_or_called_corrupt() {
    let reactors = reactors(1);
    for head in [1, 8, 0x40, 0xffff_fff8, u32::MAX, 8 << 20] {
        let mut driver =
            Driver::start(reactors.pick(), Arc::new(Memory::new(1 << 20, 512)), &Setup::default());
        assert_eq!(driver.put(&write_16(0, 1), &[1; 512]).status, GOOD);
        scribble(&driver, head);
        eventually("the lane notices", || driver.lane.stats().corrupt);
        driver.stop();
    }
}
