//! Commands through ring, lane, engine and store: data, order, errors, exclusive ranges, stopping.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rbdgate::disk::fault::{self, Fault, Verdict};
use rbdgate::disk::file::{FileDisk, Options, Workers};
use rbdgate::disk::memory::Memory;
use rbdgate::disk::{self, Disk, Request};
use rbdgate::nexus::{Entry, Ports, View};
use rbdgate::scsi::{Identity, Settings, Unit};
use tempfile::TempDir;

use crate::driver::*;

const SIZE: u64 = 64 << 20;

fn memory() -> Arc<dyn Disk> {
    Arc::new(Memory::new(SIZE, BLOCK as u32))
}

fn file(folder: &TempDir) -> Arc<dyn Disk> {
    let path = folder.path().join("disk.img");
    let options = Options { path, block_size: BLOCK as u32, create: Some(SIZE), read_only: false };
    Arc::new(FileDisk::open(&options, &Workers::start(4).unwrap()).unwrap())
}

fn fault(inner: Arc<dyn Disk>, settings: fault::Settings) -> Arc<Fault> {
    Arc::new(Fault::new(inner, settings).unwrap())
}

/// Withholds every write until the test releases it.
fn withhold_writes(fault: &Fault) {
    fault.set_rule(Some(Box::new(|request| match request {
        Request::Write { .. } | Request::CompareAndWrite { .. } => Verdict::Withhold,
        _ => Verdict::Pass,
    })));
}

#[test]
fn room_for_data_in_is_never_stored_by_a_write() {
    let reactors = reactors(1);
    let mut driver = Driver::start(reactors.pick(), memory(), &Setup::default());
    // The first command leaves its bytes behind in the block; the second one gets that block as room, unfilled.
    assert_eq!(driver.put(&write_16(0, 8), &pattern(1, 8 * BLOCK)).status, GOOD);
    let mut room = driver.allocate(8 * BLOCK);
    assert_eq!(content(&room), pattern(1, 8 * BLOCK), "not the block that held them");
    room.set_direction(ring::Direction::In);
    let (tag, _) = driver.submit(&write_16(1000, 8), room);
    driver.publish();
    let done = driver.wait(tag);
    assert_eq!(done.transfer, Some(0));
    assert_eq!(driver.get(&read_16(1000, 8), 8 * BLOCK).bytes(), vec![0; 8 * BLOCK]);
    driver.stop();
}

#[test]
fn what_was_written_is_read_back_and_no_payload_is_copied() {
    let folder = TempDir::new().unwrap();
    let reactors = reactors(2);
    for disk in [memory(), file(&folder)] {
        let mut driver = Driver::start(reactors.pick(), disk, &Setup::default());
        let sizes = [1u32, 7, 8, 9, 64, 255, 1024, 4096];
        for (index, blocks) in sizes.iter().enumerate() {
            let (lba, bytes) = (index as u64 * 5000, pattern(index as u64, *blocks as usize * BLOCK));
            assert_eq!(driver.put(&write_16(lba, *blocks), &bytes).status, GOOD);
            let done = driver.get(&read_16(lba, *blocks), bytes.len());
            assert!(done.status == GOOD && done.bytes() == bytes, "{blocks} blocks");
        }
        let stats = driver.lane.stats();
        let total = sizes.iter().map(|blocks| u64::from(*blocks) * BLOCK as u64).sum::<u64>();
        assert_eq!((stats.bytes_read, stats.bytes_written, stats.bytes_copied), (total, total, 0));
        assert_eq!((stats.answered, stats.in_flight, stats.failed.len()), (16, 0, 0));
        assert_eq!(stats.commands, [(0x88, 8), (0x8a, 8)]);
        driver.stop();
    }
}

#[test]
fn a_read_that_ends_within_a_block_is_counted_as_copied_in_its_last_part() {
    let reactors = reactors(1);
    let mut driver = Driver::start(reactors.pick(), memory(), &Setup::default());
    assert_eq!(driver.get(&read_16(0, 2), BLOCK + 100).status, GOOD);
    assert_eq!(driver.lane.stats().bytes_copied, 100);
    driver.stop();
}

#[test]
fn completions_out_of_order_each_reach_their_own_command() {
    let jitter = fault::Settings { jitter: Duration::from_millis(4), seed: 3, ..Default::default() };
    let reactors = reactors(1);
    let mut driver = Driver::start(reactors.pick(), fault(memory(), jitter), &Setup::default());
    let writes: Vec<_> =
        (0..200u64).map(|index| driver.send(&write_16(index * 8, 8), &pattern(index, 4096)).0).collect();
    for tag in writes {
        assert_eq!(driver.wait(tag).status, GOOD);
    }
    let reads: Vec<_> = (0..200u64).map(|index| driver.ask(&read_16(index * 8, 8), 4096).0).collect();
    for (index, tag) in reads.into_iter().enumerate() {
        assert!(driver.wait(tag).bytes() == pattern(index as u64, 4096), "{index}");
    }
    driver.stop();
}

#[test]
fn parameter_data_says_how_much_of_the_buffer_is_valid() {
    let reactors = reactors(1);
    let mut driver = Driver::start(reactors.pick(), memory(), &Setup::default());
    let done = driver.get(&INQUIRY, 4096);
    let len = done.transfer.expect("less than the buffer") as usize;
    assert!(done.status == GOOD && (36..=96).contains(&len));
    assert_eq!(&done.bytes()[8..15], b"LIO-ORG");
    let done = driver.get(&TEST_UNIT_READY, 4096);
    assert_eq!((done.status, done.transfer), (GOOD, Some(0)), "an earlier command's bytes would go out");
    let done = driver.get(&read_16(0, 1), 4096);
    assert_eq!((done.status, done.transfer), (GOOD, Some(512)));
    assert_eq!(done.bytes()[..512], [0; 512]);
    driver.stop();
}

#[test]
fn an_error_of_the_store_becomes_sense_data_and_is_counted() {
    let reactors = reactors(1);
    let fault = fault(memory(), fault::Settings::default());
    let mut driver = Driver::start(reactors.pick(), Arc::clone(&fault) as _, &Setup::default());
    fault.set_rule(Some(Box::new(|request| match request {
        Request::Write { .. } => Verdict::Fail(disk::Error::NoSpace),
        _ => Verdict::Pass,
    })));
    let done = driver.put(&write_16(0, 1), &[1; 512]);
    assert_eq!((done.status, done.sense_triple()), (CHECK_CONDITION, (7, 0x27, 7)));
    let stats = driver.lane.stats();
    assert_eq!((stats.sense_keys[7], stats.bytes_written), (1, 0));
    assert_eq!(stats.failed, [(CHECK_CONDITION, 1)]);
    driver.stop();
}

#[test]
fn a_new_size_is_a_unit_attention_and_then_the_capacity() {
    let reactors = reactors(1);
    let memory = Arc::new(Memory::new(SIZE, BLOCK as u32));
    let mut setup = Setup::default();
    let ports = Ports {
        initiator: "iqn.2026-01.example:i".into(),
        isid: [0; 6],
        target: "iqn.2026-01.example:t".into(),
        portal_group: 1,
    };
    let session = setup.nexuses.enter(Entry { ports, view: View { luns: vec![0], read_only: vec![] } });
    setup.nexus = session.nexus();
    let mut driver = Driver::start(reactors.pick(), Arc::clone(&memory) as _, &setup);
    assert_eq!(driver.get(&TEST_UNIT_READY, 0).sense_triple().0, 6, "power on");
    assert_eq!(driver.get(&TEST_UNIT_READY, 0).status, GOOD);
    memory.resize(SIZE * 2);
    eventually("the new size is announced", || {
        let done = driver.get(&TEST_UNIT_READY, 0);
        done.status == CHECK_CONDITION && done.sense_triple() == (6, 0x2a, 9)
    });
    let read_capacity_16 = [0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0];
    let last = u64::from_be_bytes(driver.get(&read_capacity_16, 32).bytes()[..8].try_into().unwrap());
    assert_eq!(last, SIZE * 2 / 512 - 1);
    driver.stop();
}

#[test]
fn of_many_compare_and_writes_on_one_block_exactly_one_wins() {
    let folder = TempDir::new().unwrap();
    let reactors = reactors(2);
    let mut driver = Driver::start(reactors.pick(), file(&folder), &Setup::default());
    let mut expected = vec![0; 512];
    for round in 0..20u64 {
        let tags: Vec<_> = (0..32u64)
            .map(|index| {
                let mine = pattern(round * 100 + index + 1, 512);
                let both: Vec<u8> = expected.iter().chain(&mine).copied().collect();
                (driver.send(&compare_and_write(7, 1), &both).0, mine)
            })
            .collect();
        let mut winners = Vec::new();
        for (tag, mine) in tags {
            let done = driver.wait(tag);
            match done.status {
                GOOD => winners.push(mine),
                _ => assert_eq!(done.sense_triple(), (0xe, 0x1d, 0)),
            }
        }
        assert_eq!(winners.len(), 1, "round {round}");
        expected = driver.get(&read_16(7, 1), 512).bytes();
        assert!(expected == winners[0], "round {round}: the winner's block is on the disk");
    }
    assert_eq!(driver.lane.stats().held_back, 0);
    driver.stop();
}

/// Twenty-four commands at a time, most of which compare with a value that is no longer there.
#[test]
fn counters_kept_by_compare_and_write_lose_no_increment_beside_plain_writes() {
    let folder = TempDir::new().unwrap();
    let reactors = reactors(2);
    let disk = file(&folder);
    let mut driver = Driver::start(reactors.pick(), disk, &Setup::default());
    let mut value = [0u64; 2];
    let mut running: Vec<(u64, usize)> = Vec::new();
    let mut won = [0u64; 2];
    let block = |value: u64| value.to_le_bytes().repeat(64);
    for turn in 0..400usize {
        let place = turn % 2;
        let both = [block(value[place]), block(value[place] + 1)].concat();
        running.push((driver.send(&compare_and_write(place as u64, 1), &both).0, place));
        // Writes beside the two counters overlap neither.
        running.push((driver.send(&write_16(2 + turn as u64, 1), &block(turn as u64)).0, usize::MAX));
        while running.len() > 24 {
            let (tag, place) = running.remove(0);
            let done = driver.wait(tag);
            if place < 2 && done.status == GOOD {
                won[place] += 1;
                value[place] = value[place].max(won[place]);
            }
        }
    }
    for (tag, place) in running {
        if driver.wait(tag).status == GOOD && place < 2 {
            won[place] += 1;
        }
    }
    for (place, won) in won.iter().enumerate() {
        let bytes = driver.get(&read_16(place as u64, 1), 512).bytes();
        assert!(*won > 0 && bytes == block(*won), "counter {place} lost an increment");
    }
    driver.stop();
}

#[test]
fn a_write_waits_for_the_exclusive_range_it_overlaps_and_others_do_not() {
    let folder = TempDir::new().unwrap();
    let reactors = reactors(1);
    let fault = fault(file(&folder), fault::Settings::default());
    let mut driver = Driver::start(reactors.pick(), Arc::clone(&fault) as _, &Setup::default());
    withhold_writes(&fault);
    let both = [vec![0; 512], vec![1; 512]].concat();
    let (swap, _) = driver.send(&compare_and_write(10, 1), &both);
    eventually("the swap's write is withheld", || fault.withheld() == 1);
    fault.set_rule(None);
    let (held, _) = driver.send(&write_16(8, 8), &[2; 4096]);
    assert_eq!(driver.put(&write_16(100, 1), &[3; 512]).status, GOOD, "apart from the range");
    assert_eq!(driver.get(&read_16(10, 1), 512).bytes(), [0; 512], "reads are not held back");
    assert!(!driver.is_done(held));
    assert_eq!(driver.lane.stats().held_back, 1);
    fault.release();
    assert_eq!(driver.wait(swap).status, GOOD);
    assert_eq!(driver.wait(held).status, GOOD);
    assert_eq!(driver.get(&read_16(10, 1), 512).bytes(), [2; 512], "the later write is on top");
    driver.stop();
}

#[test]
fn stopping_answers_what_is_on_the_ring_and_waits_for_the_disk() {
    let reactors = reactors(1);
    let fault = fault(memory(), fault::Settings::default());
    let mut driver = Driver::start(reactors.pick(), Arc::clone(&fault) as _, &Setup::default());
    withhold_writes(&fault);
    let tags: Vec<_> = (0..200u64).map(|index| driver.send(&write_16(index, 1), &[9; 512]).0).collect();
    let stopper = thread::spawn({
        let lane = driver.lane.clone();
        move || block_on(lane.stop())
    });
    eventually("everything is with the disk", || fault.withheld() == 200);
    thread::sleep(Duration::from_millis(20));
    assert!(!stopper.is_finished(), "the disk still has the commands");
    fault.release();
    stopper.join().unwrap();
    for tag in tags {
        assert_eq!(driver.wait(tag).status, GOOD);
    }
    driver.stop();
    assert_eq!(driver.lane.stats().in_flight, 0);
}

#[test]
fn a_disk_that_grows_between_the_making_of_its_unit_and_of_its_lane_is_seen_whole() {
    let (reactors, setup, disk) = (reactors(1), Setup::default(), memory());
    let identity = Identity::from_serial("grown");
    let unit = Unit::new(
        identity,
        disk.geometry().clone(),
        SIZE / 2,
        Arc::clone(&setup.nexuses),
        Settings { lun: 0, ..Settings::default() },
    );
    let mut driver = Driver::start_unit(reactors.pick(), disk, unit, &setup);
    let last = SIZE / BLOCK as u64 - 1;
    eventually("the last block is there", || driver.get(&read_16(last, 1), BLOCK).status == GOOD);
    driver.stop();
}
