//! What a unit does without a command, at the lane: it waits for what is in flight, survives the command that began it, and
//! gives way to a stop.

use std::sync::Arc;

use rbdgate::disk::fault::{Fault, Settings, Verdict};
use rbdgate::disk::file::{FileDisk, Options, Workers};
use rbdgate::disk::memory::Memory;
use rbdgate::disk::{Disk, Request};
use ring::TaskManagementKind as Kind;
use tempfile::TempDir;

use crate::driver::*;

const SIZE: u64 = 64 << 20;
const BLOCK_ERASE: [u8; 10] = [0x48, 0x02, 0, 0, 0, 0, 0, 0, 0, 0];
/// With IMMED.
const AT_ONCE: [u8; 10] = [0x48, 0x82, 0, 0, 0, 0, 0, 0, 0, 0];
const SANITIZE_IN_PROGRESS: (u8, u8, u8) = (0x2, 0x04, 0x1B);

/// A store that withholds what `held` picks.
fn store(held: fn(&Request) -> bool) -> Arc<Fault> {
    let fault = Fault::new(Arc::new(Memory::new(SIZE, BLOCK as u32)), Settings::default()).unwrap();
    fault.set_rule(Some(Box::new(
        move |request| if held(request) { Verdict::Withhold } else { Verdict::Pass },
    )));
    Arc::new(fault)
}

fn release(fault: &Fault) {
    fault.set_rule(None);
    fault.release();
}

#[test]
fn a_sanitize_begins_when_the_writes_in_flight_have_landed_and_wipes_them_too() {
    let reactors = reactors(1);
    let fault = store(|request| matches!(request, Request::Write { .. }));
    let mut driver = Driver::start(reactors.pick(), Arc::clone(&fault) as _, &Setup::default());
    let (write, _) = driver.send(&write_16(10, 1), &[7; 512]);
    eventually("the write is withheld", || fault.withheld() == 1);
    let (sanitize, _) = driver.ask(&BLOCK_ERASE, 0);
    assert_eq!(driver.get(&read_16(0, 1), 512).sense_triple(), SANITIZE_IN_PROGRESS);
    assert!(!driver.is_done(sanitize));
    release(&fault);
    assert_eq!(driver.wait(write).status, GOOD);
    assert_eq!(driver.wait(sanitize).status, GOOD);
    assert_eq!(driver.get(&read_16(10, 1), 512).bytes(), [0; 512]);
    driver.stop();
}

#[test]
fn task_management_ends_the_command_and_not_the_sanitize() {
    // SBC-4, sanitize operations: not affected by task management.
    let reactors = reactors(1);
    let fault = store(|request| matches!(request, Request::WriteZeroes { .. }));
    let mut driver = Driver::start(reactors.pick(), Arc::clone(&fault) as _, &Setup::default());
    assert_eq!(driver.put(&write_16(10, 1), &[7; 512]).status, GOOD);
    let (sanitize, id) = driver.ask(&BLOCK_ERASE, 0);
    eventually("it is at the disk", || fault.withheld() == 1);
    assert!(driver.producer.push_task_management(Kind::AbortTask, &[id]));
    driver.publish();
    assert_eq!(driver.wait(sanitize).status, TASK_ABORTED);
    assert!(driver.producer.push_task_management(Kind::LunReset, &[]));
    driver.publish();
    assert_eq!(driver.get(&TEST_UNIT_READY, 0).status, CHECK_CONDITION);
    assert_eq!(driver.get(&TEST_UNIT_READY, 0).sense_triple(), SANITIZE_IN_PROGRESS);
    release(&fault);
    eventually("it ends", || driver.get(&TEST_UNIT_READY, 0).status == GOOD);
    assert_eq!(driver.get(&read_16(10, 1), 512).bytes(), [0; 512]);
    driver.stop();
}

#[test]
fn a_lane_stops_in_the_middle_of_a_sanitize_and_answers_who_waits() {
    let reactors = reactors(1);
    let fault = store(|request| matches!(request, Request::WriteZeroes { .. }));
    let mut driver = Driver::start(reactors.pick(), Arc::clone(&fault) as _, &Setup::default());
    let (sanitize, _) = driver.ask(&BLOCK_ERASE, 0);
    eventually("it is at the disk", || fault.withheld() == 1);
    let lane = driver.lane.clone();
    let stopping = std::thread::spawn(move || block_on(lane.stop()));
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert!(!stopping.is_finished(), "the disk still has a request");
    release(&fault);
    stopping.join().unwrap();
    assert_eq!(driver.wait(sanitize).sense_triple(), SANITIZE_IN_PROGRESS);
}

#[test]
fn a_sanitize_that_has_not_begun_when_the_lane_stops_is_not_forgotten() {
    // SBC-4, sanitize operations: one that was answered GOOD goes on after a power cycle.
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("disk.img");
    let options = Options { path, block_size: 512, create: Some(1 << 20), read_only: false };
    let file = FileDisk::open(&options, &Workers::start(1).unwrap()).unwrap();
    let fault = Arc::new(Fault::new(Arc::new(file), Settings::default()).unwrap());
    fault.set_rule(Some(Box::new(|request| match request {
        Request::Write { .. } => Verdict::Withhold,
        _ => Verdict::Pass,
    })));
    let reactors = reactors(1);
    let mut driver = Driver::start(reactors.pick(), Arc::clone(&fault) as _, &Setup::default());
    let (write, _) = driver.send(&write_16(10, 1), &[7; 512]);
    eventually("the write is withheld", || fault.withheld() == 1);
    assert_eq!(driver.get(&AT_ONCE, 0).status, GOOD);
    let lane = driver.lane.clone();
    let stopping = std::thread::spawn(move || block_on(lane.stop()));
    std::thread::sleep(std::time::Duration::from_millis(20));
    release(&fault);
    stopping.join().unwrap();
    assert_eq!(driver.wait(write).status, GOOD);
    fault.close();
    let file = FileDisk::open(&options, &Workers::start(1).unwrap()).unwrap();
    assert!(file.note().is_some(), "whoever opens the disk next begins it anew");
}

#[test]
fn with_immed_a_sanitize_is_answered_when_a_crash_would_no_longer_forget_it() {
    // SBC-4, sanitize operations: one that was answered GOOD goes on after a power cycle.
    for (cdb, list) in [(&AT_ONCE[..], &[][..]), (&[0x04, 0x10, 0, 0, 0, 0], &[0, 0x82, 0, 0])] {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("disk.img");
        let options = Options { path, block_size: 512, create: Some(1 << 20), read_only: false };
        let file = FileDisk::open(&options, &Workers::start(1).unwrap()).unwrap();
        let fault = Arc::new(Fault::new(Arc::new(file), Settings::default()).unwrap());
        fault.set_rule(Some(Box::new(|request| match request {
            Request::Note { note: Some(_) } | Request::WriteZeroes { .. } => Verdict::Withhold,
            _ => Verdict::Pass,
        })));
        let reactors = reactors(1);
        let mut driver = Driver::start(reactors.pick(), Arc::clone(&fault) as _, &Setup::default());
        let (begun, _) = driver.send(cdb, list);
        eventually("the note is withheld", || fault.withheld() == 1);
        assert_eq!(driver.get(&TEST_UNIT_READY, 0).status, CHECK_CONDITION, "it is under way");
        assert!(!driver.is_done(begun), "nobody would know of it after a crash");
        fault.release();
        assert_eq!(driver.wait(begun).status, GOOD);
        // What a crash leaves now: the note stands beside the file.
        assert!(folder.path().join("disk.img.unfinished").exists());
        eventually("it is at work", || fault.withheld() == 1);
        release(&fault);
        eventually("it ends", || driver.get(&TEST_UNIT_READY, 0).status == GOOD);
        driver.stop();
    }
}

#[test]
fn a_sanitize_goes_on_over_the_size_that_the_disk_has_got_meanwhile() {
    // SBC-4, SANITIZE, OVERWRITE: every block of the medium. Pieces of 16 MiB, two passes; resized in the middle of the last
    // pass, and within its last piece.
    for (at, size) in [(24 << 20, 20 << 20), (40 << 20, 36 << 20), (40 << 20, 100 << 20), (48 << 20, 8 << 20)]
    {
        let memory = Arc::new(Memory::new(SIZE, BLOCK as u32));
        let fault = Arc::new(Fault::new(Arc::clone(&memory) as _, Settings::default()).unwrap());
        let seen = std::sync::atomic::AtomicU64::new(0);
        fault.set_rule(Some(Box::new(move |request| match request {
            Request::WriteSame { offset, len, .. } if *offset <= at && at < offset + len => {
                let pass = seen.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                if pass == 1 { Verdict::Withhold } else { Verdict::Pass }
            }
            _ => Verdict::Pass,
        })));
        let reactors = reactors(1);
        let mut driver = Driver::start(reactors.pick(), Arc::clone(&fault) as _, &Setup::default());
        let overwrite = [0x48, 0x01, 0, 0, 0, 0, 0, 0, 5, 0];
        let (sanitize, _) = driver.send(&overwrite, &[2, 0, 0, 1, 0xA5]);
        eventually("the piece is withheld", || fault.withheld() == 1);
        memory.resize(size);
        release(&fault);
        assert_eq!(driver.wait(sanitize).status, GOOD, "{at} {size}");
        assert_eq!(driver.get(&TEST_UNIT_READY, 0).sense_triple(), (6, 0x2A, 9));
        for lba in [0, size / 1024, size / 512 - 1] {
            assert_eq!(driver.get(&read_16(lba, 1), 512).bytes(), [0xA5; 512], "{lba} of {size}");
        }
        driver.stop();
    }
}

#[test]
fn a_sanitize_is_not_over_before_what_has_grown_during_its_flush_is_covered() {
    let memory = Arc::new(Memory::new(SIZE, BLOCK as u32));
    let fault = Arc::new(Fault::new(Arc::clone(&memory) as _, Settings::default()).unwrap());
    fault.set_rule(Some(Box::new(|request| match request {
        Request::Flush => Verdict::Withhold,
        _ => Verdict::Pass,
    })));
    let reactors = reactors(1);
    let mut driver = Driver::start(reactors.pick(), Arc::clone(&fault) as _, &Setup::default());
    let (sanitize, _) = driver.send(&[0x48, 0x01, 0, 0, 0, 0, 0, 0, 5, 0], &[1, 0, 0, 1, 0xA5]);
    eventually("the flush is withheld", || fault.withheld() == 1);
    memory.resize(SIZE + (1 << 20));
    release(&fault);
    assert_eq!(driver.wait(sanitize).status, GOOD);
    driver.get(&TEST_UNIT_READY, 0);
    assert_eq!(driver.get(&read_16((SIZE >> 9) + 2047, 1), 512).bytes(), [0xA5; 512]);
    driver.stop();
}

#[test]
fn a_read_does_not_see_half_of_an_atomic_write() {
    // SBC-4, atomic write operations.
    let reactors = reactors(1);
    let fault = store(|request| matches!(request, Request::WriteAtomic { .. }));
    let mut driver = Driver::start(reactors.pick(), Arc::clone(&fault) as _, &Setup::default());
    let mut cdb = write_16(8, 0);
    (cdb[0], cdb[13]) = (0x9C, 8);
    let (write, _) = driver.send(&cdb, &[7; 4096]);
    eventually("it is at the disk", || fault.withheld() == 1);
    let (read, _) = driver.ask(&read_16(12, 8), 4096);
    assert_eq!(driver.get(&read_16(64, 1), 512).status, GOOD);
    assert!(!driver.is_done(read), "it waits for the write");
    release(&fault);
    assert_eq!(driver.wait(write).status, GOOD);
    assert_eq!(driver.wait(read).bytes()[..2048], [7; 2048]);
    driver.stop();
}

#[test]
fn a_background_self_test_leaves_the_medium_to_everybody() {
    let reactors = reactors(1);
    let fault = store(|_| false);
    let mut driver = Driver::start(reactors.pick(), Arc::clone(&fault) as _, &Setup::default());
    assert_eq!(driver.get(&[0x1D, 0x40, 0, 0, 0, 0], 0).status, GOOD);
    assert_eq!(driver.put(&write_16(10, 1), &[7; 512]).status, GOOD);
    let results = [0x4D, 0, 0x50, 0, 0, 0, 0, 0x10, 0, 0];
    eventually("it has ended well", || driver.get(&results, 4096).bytes()[8] == 0x40);
    driver.stop();
}
