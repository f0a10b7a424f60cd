//! Cursor arithmetic at its edges.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use proptest::prelude::*;

use super::{Answer, Geometry, Giver, Marks, NoRoom, Plan, Taker, command_len};
use crate::shm::Words;
use crate::{Direction, Nexus};

struct Memory(Vec<AtomicU32>);

impl Words for Memory {
    fn load(&self, offset: u32, order: Ordering) -> u32 {
        self.0[offset as usize / 4].load(order)
    }

    fn store(&self, offset: u32, value: u32, order: Ordering) {
        self.0[offset as usize / 4].store(value, order);
    }
}

fn ends(size: u32) -> (Giver<Arc<Memory>>, Taker<Arc<Memory>>) {
    let ring = Geometry { base: 128, size };
    let memory = Arc::new(Memory((0..(128 + size) / 4).map(|_| AtomicU32::new(0)).collect()));
    (Giver::new(Arc::clone(&memory), ring), Taker::attach(memory, ring).unwrap())
}

fn push(giver: &mut Giver<Arc<Memory>>, id: u16) {
    let plan = giver.plan(command_len(0, 6)).unwrap();
    let marks = Marks { nexus: Nexus::UNKNOWN, direction: Direction::Unknown };
    giver.write_command(plan, id, marks, &[0; 6], std::iter::empty());
    giver.publish();
}

fn take(taker: &mut Taker<Arc<Memory>>) -> Option<u16> {
    let mut words = Vec::new();
    taker.next(&mut words).unwrap().map(|_| words[1] as u16)
}

fn answer(taker: &mut Taker<Arc<Memory>>, id: u16) {
    assert!(taker.answer(&Answer { id, uflags: 0, status: 0, read_len: 0, sense: &[] }));
    taker.publish();
}

fn reap(giver: &mut Giver<Arc<Memory>>) -> Vec<u16> {
    let tail = giver.load_tail().unwrap();
    std::iter::from_fn(|| giver.next_answer(tail).unwrap()).map(|done| done.id).collect()
}

#[test]
fn one_byte_stays_free_so_a_ring_of_two_entries_takes_one() {
    let (mut giver, mut taker) = ends(240);
    push(&mut giver, 1);
    assert_eq!(giver.plan(120), Err(NoRoom::Now), "equal cursors would mean empty");
    assert_eq!(take(&mut taker), Some(1));
    answer(&mut taker, 1);
    assert_eq!(reap(&mut giver), [1]);
    assert_eq!(
        giver.plan(120),
        Ok(Plan { pad: 0, at: 120, len: 120 }),
        "an entry may end where the ring ends"
    );
    push(&mut giver, 2);
    assert_eq!(take(&mut taker), Some(2));
    answer(&mut taker, 2);
    assert_eq!(reap(&mut giver), [2]);
    assert_eq!(giver.plan(120), Ok(Plan { pad: 0, at: 0, len: 120 }));
}

#[test]
fn what_is_left_at_the_end_is_padded_and_counts() {
    let (mut giver, mut taker) = ends(368);
    for id in 1..=3 {
        push(&mut giver, id);
        assert_eq!(take(&mut taker), Some(id));
    }
    assert_eq!(giver.plan(120), Err(NoRoom::Now));
    answer(&mut taker, 3);
    assert_eq!(reap(&mut giver), [3]);
    // 8 bytes of filler and 120 of entry are more than the 120 free and the 8 at the end, less one.
    assert_eq!(giver.plan(120), Err(NoRoom::Now));
    answer(&mut taker, 1);
    assert_eq!(reap(&mut giver), [1]);
    assert_eq!(giver.plan(120), Ok(Plan { pad: 8, at: 0, len: 120 }));
    assert_eq!(giver.plan(185), Err(NoRoom::Ever), "more than half the ring");
}

#[test]
fn an_answer_without_a_command_finds_no_slot() {
    let (mut giver, mut taker) = ends(368);
    let plan = giver.plan(40).unwrap();
    giver.write_task_management(plan, 1, &[1, 2, 3]);
    giver.publish();
    assert_eq!(take(&mut taker), Some(0));
    assert!(!taker.answer(&Answer { id: 1, uflags: 0, status: 0, read_len: 0, sense: &[] }));
    assert!(taker.publish());
    assert!(reap(&mut giver).is_empty() && giver.is_quiet());
}

proptest! {
    #[test]
    fn going_a_distance_arrives(size in (1u32..1 << 20).prop_map(|size| size * 8), a: u32, b: u32) {
        let ring = Geometry { base: 128, size };
        let (from, to) = (a % size, b % size);
        let distance = ring.distance(from, to);
        prop_assert!(distance < size);
        prop_assert_eq!(ring.advance(from, distance), to);
        prop_assert_eq!((from + distance) % size, to);
    }
}
