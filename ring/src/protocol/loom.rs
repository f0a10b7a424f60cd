//! The protocol under the model checker: every order in which two threads' words can become visible.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p rbdgate-ring --lib --release loom`

use std::sync::atomic::{AtomicUsize, Ordering};

use loom::sync::Arc;
use loom::sync::atomic::AtomicU32;
use loom::thread;

use super::{Answer, Geometry, Giver, Marks, Taker, command_len};
use crate::shm::Words;
use crate::{Direction, Nexus};

/// Room for two entries of 120 bytes, and a filler at the end: no multiple of an entry.
const RING: Geometry = Geometry { base: 128, size: 264 };
/// The data area: one word for each command.
const DATA: u32 = RING.base + RING.size;
const LEN: u32 = DATA + 16;

struct Memory(Vec<AtomicU32>);

impl Words for Memory {
    fn load(&self, offset: u32, order: Ordering) -> u32 {
        self.0[offset as usize / 4].load(order)
    }

    fn store(&self, offset: u32, value: u32, order: Ordering) {
        self.0[offset as usize / 4].store(value, order);
    }
}

impl Words for Arc<Memory> {
    fn load(&self, offset: u32, order: Ordering) -> u32 {
        (**self).load(offset, order)
    }

    fn store(&self, offset: u32, value: u32, order: Ordering) {
        (**self).store(offset, value, order);
    }
}

fn memory() -> Arc<Memory> {
    Arc::new(Memory((0..LEN / 4).map(|_| AtomicU32::new(0)).collect()))
}

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 100_000;
    builder.preemption_bound = Some(3);
    let runs = std::sync::Arc::new(AtomicUsize::new(0));
    let count = std::sync::Arc::clone(&runs);
    builder.check(move || {
        count.fetch_add(1, Ordering::Relaxed);
        model();
    });
    assert!(runs.load(Ordering::Relaxed) > 10, "hardly any order was tried: {runs:?}");
    println!("{runs:?} runs");
}

fn push(giver: &mut Giver<Arc<Memory>>, memory: &Memory, id: u16) -> bool {
    let Ok(plan) = giver.plan(command_len(0, 6)) else { return false };
    memory.store(DATA + u32::from(id) % 4 * 4, 0x100 + u32::from(id), Ordering::Relaxed);
    let marks = Marks { nexus: Nexus(u64::from(id) << 32), direction: Direction::Unknown };
    giver.write_command(plan, id, marks, &[u8::try_from(id).unwrap(); 6], std::iter::empty());
    giver.publish()
}

/// Takes one command, if there is one, and checks that all of it and its data are there.
fn take(taker: &mut Taker<Arc<Memory>>, memory: &Memory) -> Option<u16> {
    let mut words = Vec::new();
    taker.next(&mut words).unwrap()?;
    let id = words[1] as u16;
    assert_eq!(words.len(), 30);
    assert_eq!(words[9], u32::from(id), "the nexus of another entry");
    assert_eq!(words[28], u32::from_ne_bytes([id as u8; 4]), "the CDB of another entry");
    let data = DATA + u32::from(id) % 4 * 4;
    assert_eq!(memory.load(data, Ordering::Relaxed), 0x100 + u32::from(id), "data-out is not there yet");
    memory.store(data, 0x200 + u32::from(id), Ordering::Relaxed);
    Some(id)
}

fn answer(taker: &mut Taker<Arc<Memory>>, id: u16) {
    assert!(taker.answer(&Answer { id, uflags: 2, status: 8, read_len: u32::from(id), sense: &[] }));
}

fn reap(giver: &mut Giver<Arc<Memory>>, memory: &Memory, into: &mut Vec<u16>) {
    let tail = giver.load_tail().unwrap();
    while let Some(done) = giver.next_answer(tail).unwrap() {
        assert_eq!((done.status, done.uflags, done.read_len), (8, 2, u32::from(done.id)), "half an answer");
        let data = memory.load(DATA + u32::from(done.id) % 4 * 4, Ordering::Relaxed);
        assert_eq!(data, 0x200 + u32::from(done.id), "data-in is not there yet");
        into.push(done.id);
    }
}

#[test]
fn what_was_written_before_head_and_tail_is_seen_after_them() {
    check(|| {
        let memory = memory();
        let mut giver = Giver::new(Arc::clone(&memory), RING);
        // Attached here: the checker looks for reorderings around the last access to a word only.
        let mut taker = Taker::attach(Arc::clone(&memory), RING).unwrap();
        let consumer = thread::spawn({
            let memory = Arc::clone(&memory);
            move || {
                for _ in 0..2 {
                    if let Some(id) = take(&mut taker, &memory) {
                        answer(&mut taker, id);
                        taker.publish();
                    }
                }
            }
        });
        assert!(push(&mut giver, &memory, 1));
        let mut done = Vec::new();
        assert!(push(&mut giver, &memory, 2));
        reap(&mut giver, &memory, &mut done);
        consumer.join().unwrap();
        reap(&mut giver, &memory, &mut done);
        assert!([vec![], vec![1], vec![1, 2]].contains(&done), "{done:?}");
    });
}

#[test]
fn a_slot_is_reused_only_after_its_answer_was_read() {
    check(|| {
        let memory = memory();
        let mut giver = Giver::new(Arc::clone(&memory), RING);
        let mut done = Vec::new();
        let (mut pushed, mut next) = (0, 1);
        while push(&mut giver, &memory, next) {
            (pushed, next) = (pushed + 1, next + 1);
        }
        assert_eq!(pushed, 2);
        // Attached here: the checker looks for reorderings around the last access to a word only.
        let mut taker = Taker::attach(Arc::clone(&memory), RING).unwrap();
        let consumer = thread::spawn({
            let memory = Arc::clone(&memory);
            move || {
                // Both are taken before either is answered, so answers land in slots of other commands.
                let ids = [take(&mut taker, &memory), take(&mut taker, &memory)].map(Option::unwrap);
                answer(&mut taker, ids[1]);
                taker.publish();
                answer(&mut taker, ids[0]);
                taker.publish();
                let third = take(&mut taker, &memory);
                third.inspect(|id| {
                    answer(&mut taker, *id);
                    taker.publish();
                })
            }
        });
        reap(&mut giver, &memory, &mut done);
        // Wraps over a filler into the first slot, if that is free already.
        let third = push(&mut giver, &memory, 3);
        assert!(!third || !done.is_empty());
        let taken = consumer.join().unwrap();
        reap(&mut giver, &memory, &mut done);
        assert_eq!(done, [2, 1].into_iter().chain(taken).collect::<Vec<_>>());
    });
}
