//! Reservations at the lane: what a preemption waits for, that changes take turns, and what is stored counts.

use std::sync::{Arc, Mutex, mpsc};

use rbdgate::cluster::reservations::{self, Done, Listener, Outcome, Snapshot, Store, Unreadable};
use rbdgate::disk::Request;
use rbdgate::disk::fault::{Fault, Settings, Verdict};
use rbdgate::disk::memory::Memory;
use rbdgate::nexus::{Entry, Handle, Ports, View};
use ring::TaskManagementKind as Kind;

use crate::copies;
use crate::driver::*;

const RESERVATION_CONFLICT: u8 = 0x18;
const WRITE_EXCLUSIVE: u8 = 1;

/// A store whose saves end when the test says so.
#[derive(Default)]
struct Slow(Mutex<Vec<(u64, Done)>>);

impl std::fmt::Debug for Slow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Slow")
    }
}

impl Store for Slow {
    fn load(&self) -> Result<Snapshot, Unreadable> {
        Ok(Snapshot::default())
    }

    fn save(&self, expected: u64, _: Vec<u8>, done: Done) {
        self.0.lock().unwrap().push((expected, done));
    }

    fn on_change(&self, _: Listener) {}
}

impl Slow {
    fn waiting(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// Ends the oldest save.
    fn finish(&self) {
        let (expected, done) = self.0.lock().unwrap().remove(0);
        done(Outcome::Saved(expected + 1));
    }
}

fn session(setup: &Setup, name: &str) -> Handle {
    let ports = Ports {
        initiator: format!("iqn.2026-01.example:{name}"),
        isid: [0; 6],
        target: "iqn.2026-01.example:t".into(),
        portal_group: 1,
    };
    setup.nexuses.enter(Entry { ports, view: View { luns: vec![0], read_only: vec![] } })
}

/// A PERSISTENT RESERVE OUT, sent.
fn order(driver: &mut Driver, by: &Handle, action: u8, kind: u8, keys: (u64, u64)) -> u64 {
    driver.nexus = by.nexus();
    let mut list = keys.0.to_be_bytes().to_vec();
    list.extend(keys.1.to_be_bytes());
    list.resize(24, 0);
    driver.send(&[0x5F, action, kind, 0, 0, 0, 0, 0, 24, 0], &list).0
}

fn done(driver: &mut Driver, by: &Handle, action: u8, kind: u8, keys: (u64, u64)) {
    let tag = order(driver, by, action, kind, keys);
    assert_eq!(driver.wait(tag).status, GOOD);
}

fn writes(driver: &mut Driver, by: &Handle, lba: u64) -> u64 {
    driver.nexus = by.nexus();
    driver.send(&write_16(lba, 1), &[9; 512]).0
}

/// Two initiators that have heard of the power-on; a disk that withholds writes to the first MiB.
fn two(
    reservations: Arc<dyn Store>,
) -> (Arc<rbdgate::reactor::Reactors>, Arc<Fault>, Driver, Handle, Handle) {
    let (reactors, setup) = (reactors(1), Setup { reservations, ..Setup::default() });
    let fault = Arc::new(Fault::new(Arc::new(Memory::new(64 << 20, 512)), Settings::default()).unwrap());
    fault.set_rule(Some(Box::new(|request| match request {
        Request::Write { offset, .. } if *offset < 1 << 20 => Verdict::Withhold,
        _ => Verdict::Pass,
    })));
    let mut driver = Driver::start(reactors.pick(), Arc::clone(&fault) as _, &setup);
    let (first, second) = (session(&setup, "first"), session(&setup, "second"));
    for by in [&first, &second] {
        driver.nexus = by.nexus();
        assert_eq!(driver.get(&TEST_UNIT_READY, 0).status, CHECK_CONDITION, "power on");
    }
    (reactors, fault, driver, first, second)
}

/// Waits until the change counts: REGISTRATIONS PREEMPTED is told.
fn told(driver: &mut Driver, by: &Handle) {
    driver.nexus = by.nexus();
    let mut done = driver.get(&TEST_UNIT_READY, 0);
    while done.status == GOOD {
        done = driver.get(&TEST_UNIT_READY, 0);
    }
    assert_eq!(done.sense_triple(), (6, 0x2A, 5));
}

fn let_go(fault: &Fault) {
    fault.set_rule(None);
    fault.release();
}

#[test]
fn a_preemption_is_answered_when_no_write_of_the_preempted_nexus_can_land_any_more() {
    // SPC-4, PREEMPT: the new holder may trust in what it reads from then on.
    let (_reactors, fault, mut driver, first, second) = two(reservations::Memory::new());
    done(&mut driver, &first, 0, 0, (0, 1));
    done(&mut driver, &second, 0, 0, (0, 2));
    done(&mut driver, &first, 1, WRITE_EXCLUSIVE, (1, 0));
    let late = writes(&mut driver, &first, 0);
    eventually("the write is at the disk", || fault.withheld() == 1);
    let preempt = order(&mut driver, &second, 4, WRITE_EXCLUSIVE, (2, 1));
    told(&mut driver, &first);
    let refused = writes(&mut driver, &first, 4096);
    assert_eq!(driver.wait(refused).status, RESERVATION_CONFLICT);
    assert!(!driver.is_done(preempt) && !driver.is_done(late));
    let own = writes(&mut driver, &second, 4096);
    assert_eq!(driver.wait(own).status, GOOD, "nobody else waits");
    let_go(&fault);
    assert_eq!(driver.wait(late).status, GOOD, "it was admitted, and is not aborted");
    assert_eq!(driver.wait(preempt).status, GOOD);
    driver.stop();
}

#[test]
fn preempt_and_abort_ends_the_preempted_nexus_commands_before_it_is_answered() {
    // SPC-4, PREEMPT AND ABORT; SAM-5, aborting commands.
    let (_reactors, fault, mut driver, first, second) = two(reservations::Memory::new());
    done(&mut driver, &first, 0, 0, (0, 1));
    done(&mut driver, &second, 0, 0, (0, 2));
    let kept = writes(&mut driver, &second, 0);
    let late = writes(&mut driver, &first, 8);
    eventually("the writes are at the disk", || fault.withheld() == 2);
    let preempt = order(&mut driver, &second, 5, 0, (2, 1));
    told(&mut driver, &first);
    assert!(!driver.is_done(preempt) && !driver.is_done(late), "the disk has its memory");
    let_go(&fault);
    assert_eq!(driver.wait(late).status, TASK_ABORTED);
    assert_eq!(driver.wait(preempt).status, GOOD);
    assert_eq!(driver.wait(kept).status, GOOD);
    driver.stop();
}

/// MODE SELECT(6) of the control mode page: TAS is zero.
fn answer_no_aborted_commands(driver: &mut Driver, by: &Handle) {
    driver.nexus = by.nexus();
    let page = driver.get(&[0x1A, 0x08, 0x0A, 0, 255, 0], 255);
    assert_eq!(page.status, GOOD);
    let mut list = page.bytes();
    list.truncate(16);
    (list[0], list[2], list[4]) = (0, 0, 0x0A);
    list[4 + 5] &= !0x40;
    let (tag, _) = driver.send(&[0x15, 0x10, 0, 0, 16, 0], &list);
    assert_eq!(driver.wait(tag).status, GOOD);
}

#[test]
fn with_tas_at_zero_preempt_and_abort_tells_a_nexus_whose_commands_it_ended_and_no_other() {
    // SAM-5, commands aborted by PREEMPT AND ABORT: COMMANDS CLEARED BY ANOTHER INITIATOR where TAS is zero.
    for busy in [true, false] {
        let (_reactors, fault, mut driver, first, second) = two(reservations::Memory::new());
        answer_no_aborted_commands(&mut driver, &second);
        driver.nexus = first.nexus();
        assert_eq!(driver.get(&TEST_UNIT_READY, 0).sense_triple(), (6, 0x2A, 1), "mode parameters changed");
        done(&mut driver, &first, 0, 0, (0, 1));
        done(&mut driver, &second, 0, 0, (0, 2));
        let own = writes(&mut driver, &second, 0);
        let late = busy.then(|| writes(&mut driver, &first, 8));
        eventually("the writes are at the disk", || fault.withheld() == 1 + usize::from(busy));
        let preempt = order(&mut driver, &second, 5, 0, (2, 1));
        told(&mut driver, &first);
        let next = driver.get(&TEST_UNIT_READY, 0);
        if busy {
            assert_eq!(next.sense_triple(), (6, 0x2F, 0));
        }
        let last = if busy { driver.get(&TEST_UNIT_READY, 0) } else { next };
        assert_eq!(last.status, GOOD);
        driver.nexus = second.nexus();
        assert_eq!(driver.get(&TEST_UNIT_READY, 0).status, GOOD, "it knows what it did");
        let_go(&fault);
        for tag in [Some(own), Some(preempt)].into_iter().flatten() {
            assert_eq!(driver.wait(tag).status, GOOD);
        }
        if let Some(late) = late {
            assert_eq!(driver.wait(late).status, TASK_ABORTED, "the portal keeps it to itself");
        }
        driver.stop();
    }
}

#[test]
fn changes_take_turns_while_one_is_being_stored_and_nothing_else_waits() {
    let store = Arc::<Slow>::default();
    let (_reactors, _fault, mut driver, first, second) = two(Arc::clone(&store) as _);
    let one = order(&mut driver, &first, 0, 0, (0, 1));
    eventually("the first is being stored", || store.waiting() == 1);
    let two = order(&mut driver, &second, 6, 0, (0, 2));
    let three = order(&mut driver, &first, 1, WRITE_EXCLUSIVE, (1, 0));
    let write = writes(&mut driver, &second, 4096);
    assert_eq!(driver.wait(write).status, GOOD);
    assert!(
        !driver.is_done(one) && !driver.is_done(two) && !driver.is_done(three),
        "GOOD before it is stored"
    );
    assert_eq!(store.waiting(), 1);
    for tag in [one, two, three] {
        eventually("the next is being stored", || store.waiting() == 1);
        store.finish();
        assert_eq!(driver.wait(tag).status, GOOD);
    }
    driver.stop();
}

#[test]
fn thousands_of_refused_orders_behind_one_that_is_stored_are_all_answered() {
    let store = Arc::<Slow>::default();
    let (_reactors, _fault, mut driver, first, second) = two(Arc::clone(&store) as _);
    let slow = order(&mut driver, &first, 0, 0, (0, 1));
    eventually("it is being stored", || store.waiting() == 1);
    let waiting: Vec<_> = (0..5000).map(|_| order(&mut driver, &second, 3, 0, (5, 0))).collect();
    store.finish();
    assert_eq!(driver.wait(slow).status, GOOD);
    for tag in waiting {
        assert_eq!(driver.wait(tag).status, RESERVATION_CONFLICT);
    }
    driver.stop();
}

#[test]
fn an_aborted_order_that_was_stored_counts_all_the_same() {
    let store = Arc::<Slow>::default();
    let (_reactors, _fault, mut driver, first, second) = two(Arc::clone(&store) as _);
    let one = order(&mut driver, &first, 0, 0, (0, 1));
    eventually("it is being stored", || store.waiting() == 1);
    store.finish();
    assert_eq!(driver.wait(one).status, GOOD);
    let aborted = order(&mut driver, &first, 1, WRITE_EXCLUSIVE, (1, 0));
    let behind = order(&mut driver, &second, 0, 0, (0, 2));
    eventually("it is being stored", || store.waiting() == 1);
    assert!(driver.producer.push_task_management(Kind::LunReset, &[]));
    driver.publish();
    assert_eq!(driver.wait(behind).status, TASK_ABORTED, "it had not begun");
    assert!(!driver.is_done(aborted), "the store has it");
    store.finish();
    assert_eq!(driver.wait(aborted).status, TASK_ABORTED);
    driver.nexus = second.nexus();
    assert_eq!(driver.get(&TEST_UNIT_READY, 0).sense_triple(), (6, 0x29, 3));
    let refused = writes(&mut driver, &second, 4096);
    assert_eq!(driver.wait(refused).status, RESERVATION_CONFLICT);
    driver.stop();
}

#[test]
fn what_one_gateway_stores_another_one_keeps_to() {
    let here = reservations::Memory::new();
    let there = here.peer();
    let (_reactors, _fault, mut one, first, _) = two(here);
    let (_others, _disk, mut other, _, second) = two(there);
    done(&mut one, &first, 0, 0, (0, 1));
    done(&mut one, &first, 1, WRITE_EXCLUSIVE, (1, 0));
    let refused = writes(&mut other, &second, 4096);
    assert_eq!(other.wait(refused).status, RESERVATION_CONFLICT);
    one.stop();
    other.stop();
}

#[test]
fn what_was_told_before_a_command_came_holds_for_it_in_the_middle_of_a_turn_too() {
    let here = reservations::Memory::new();
    let there = here.peer();
    let (_reactors, _fault, mut one, first, _) = two(here);
    let (_others, disk, mut other, _, second) = two(there);
    let (is_here, at_disk) = mpsc::channel();
    let (go_on, until) = mpsc::channel::<()>();
    let until = Mutex::new(until);
    // The lane is held up within its turn.
    disk.set_rule(Some(Box::new(move |request| {
        if matches!(request, Request::Write { .. }) {
            is_here.send(()).unwrap();
            until.lock().unwrap().recv().unwrap();
        }
        Verdict::Pass
    })));
    done(&mut one, &first, 0, 0, (0, 1));
    let written = writes(&mut other, &second, 4096);
    at_disk.recv().unwrap();
    done(&mut one, &first, 1, WRITE_EXCLUSIVE, (1, 0));
    let refused = writes(&mut other, &second, 4096);
    go_on.send(()).unwrap();
    drop(go_on);
    assert_eq!(other.wait(written).status, GOOD);
    assert_eq!(other.wait(refused).status, RESERVATION_CONFLICT);
    one.stop();
    other.stop();
}

#[test]
fn a_reservation_waits_for_what_a_copy_from_another_lun_writes_and_keeps_the_next_one_out() {
    // SPC-4, EXTENDED COPY: the copy manager writes on behalf of the nexus that asked for the copy.
    let (reactors, mut setup) = (reactors(2), Setup::default());
    let copier = copies::initiator(&mut setup);
    let (slow, plain) = (copies::store(), copies::store());
    let (mut one, _one) = copies::lun(&reactors.all()[0], plain, 0, &setup);
    setup.reservations = reservations::Memory::new();
    let (mut two, _two) = copies::lun(&reactors.all()[1], Arc::clone(&slow), 1, &setup);
    let second = session(&setup, "second");
    two.nexus = second.nexus();
    assert_eq!(two.get(&TEST_UNIT_READY, 0).status, CHECK_CONDITION, "power on");
    assert_eq!(one.put(&write_16(0, 8), &pattern(1, 4096)).status, GOOD);
    done(&mut two, &second, 0, 0, (0, 2));

    slow.set_rule(Some(Box::new(|request| match request {
        Request::Write { .. } => Verdict::Withhold,
        _ => Verdict::Pass,
    })));
    let (copy, _) = copies::copy(&mut one, 1, (0, 1), 8, (0, 0));
    eventually("the copy writes", || slow.withheld() == 1);
    let reserve = order(&mut two, &second, 1, WRITE_EXCLUSIVE, (2, 0));
    two.nexus = copier.nexus();
    eventually("the reservation counts", || {
        two.put(&compare_and_write(4096, 1), &[1; 1024]).status == RESERVATION_CONFLICT
    });
    assert!(!two.is_done(reserve), "the copy can still write");
    let_go(&slow);
    assert_eq!(two.wait(reserve).status, GOOD);
    assert_eq!(one.wait(copy).status, GOOD);

    let (copy, _) = copies::copy(&mut one, 2, (0, 1), 8, (0, 64));
    assert_eq!(one.wait(copy).status, CHECK_CONDITION, "kept out");
    two.nexus = second.nexus();
    assert_eq!(two.get(&read_16(64, 8), 4096).bytes(), [0; 4096]);
    one.stop();
    two.stop();
}
