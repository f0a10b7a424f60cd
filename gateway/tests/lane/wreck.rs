//! A lane that a bug has hit: it answers everything, lends memory for as long as the disk has it, and troubles nobody else.

use std::sync::Arc;

use rbdgate::disk::fault::{Fault, Settings, Verdict};
use rbdgate::disk::memory::Memory;
use rbdgate::disk::{Disk, Request};
use ring::TaskManagementKind as Kind;

use crate::driver::*;

/// Withholds writes to the first MiB, and has a bug in reads of the last block.
fn store() -> Arc<Fault> {
    let fault = Fault::new(Arc::new(Memory::new(8 << 20, BLOCK as u32)), Settings::default()).unwrap();
    fault.set_rule(Some(Box::new(|request| match request {
        Request::Write { offset, .. } if *offset < 1 << 20 => Verdict::Withhold,
        Request::Read { offset, .. } if *offset == (8 << 20) - 512 => panic!("a bug in the store"),
        _ => Verdict::Pass,
    })));
    Arc::new(fault)
}

const LAST: u64 = (8 << 20) / 512 - 1;

#[test]
fn a_lane_that_panics_answers_its_commands_and_the_others_go_on() {
    let reactors = reactors(1);
    let (fault, setup) = (store(), Setup::default());
    let mut driver = Driver::start(reactors.pick(), Arc::clone(&fault) as _, &setup);
    let sibling: Arc<dyn Disk> = Arc::new(Memory::new(8 << 20, BLOCK as u32));
    let mut sibling = Driver::start(reactors.pick(), sibling, &setup);
    let (written, id) = driver.send(&write_16(0, 1), &pattern(1, 512));
    let (aborted, aborted_id) = driver.send(&write_16(8, 1), &pattern(2, 512));
    eventually("both writes are withheld", || fault.withheld() == 2);
    // SPC-4, sense keys: HARDWARE ERROR, INTERNAL TARGET FAILURE; then NOT READY, MANUAL INTERVENTION REQUIRED.
    assert_eq!(driver.get(&read_16(LAST, 1), 512).sense_triple(), (4, 0x44, 0));
    assert_eq!(driver.get(&read_16(0, 1), 512).sense_triple(), (2, 4, 3));
    assert!(driver.lane.stats().wrecked);
    assert!(!driver.is_done(written), "the disk has its memory");
    assert!(driver.producer.push_task_management(Kind::AbortTask, &[aborted_id]));
    driver.publish();
    assert_eq!(driver.get(&TEST_UNIT_READY, 0).sense_triple(), (2, 4, 3));
    fault.set_rule(None);
    fault.release();
    assert_eq!(driver.wait(written).sense_triple(), (4, 0x44, 0));
    assert_eq!(driver.wait(aborted).status, TASK_ABORTED);
    assert_ne!(id, aborted_id);
    assert_eq!(sibling.put(&write_16(0, 1), &pattern(3, 512)).status, GOOD);
    driver.stop();
    sibling.stop();
}
