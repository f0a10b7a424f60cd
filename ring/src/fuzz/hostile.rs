//! A peer that writes any bytes anywhere in the shared memory, at any time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Script;
use crate::protocol::{Geometry, mailbox};
use crate::shm::{Mapping, Words, create_sealed};
use crate::{
    Command, Completion, Consumer, Corrupt, Entry, Extent, NextError, Nexus, Options, Pool, Producer,
    Request, Response, TaskManagementKind, create,
};

/// Mailbox and a small ring in one page, then sixteen pages of data.
const RING: Geometry = Geometry { base: 128, size: 4096 - 128 };
const LEN: usize = 17 * 4096;

/// A consumer under a hostile producer: never panics, never hangs, touches nothing but this mapping, stays corrupt.
pub fn consumer(script: &[u8]) {
    let mut script = Script(script);
    let file = create_sealed(LEN as u64).expect("memfd");
    let mapping = Arc::new(Mapping::new(&file, LEN).expect("mapping"));
    let flags = u16::from(script.byte()) | 1;
    mailbox::initialise(&*mapping, 2, flags, RING);
    if script.byte() == 0 {
        (0..32).for_each(|word| mapping.store(word * 4, script.word(), Ordering::Relaxed));
    }
    let Ok(mut consumer) = Consumer::over(Arc::clone(&mapping)) else { return };
    let mut head = 0;
    let mut taken: Vec<Command> = Vec::new();
    while !script.is_empty() {
        match script.byte() % 8 {
            0 => {
                let at = script.below(LEN / 4) as u32 * 4;
                mapping.store(at, script.word(), Ordering::Relaxed);
            }
            1 => mailbox::set_head(&*mapping, script.word() % (RING.size + 16)),
            2..=4 => head = plausible_entry(&mapping, head, &mut script),
            5 => {
                let _ = consumer.commit();
            }
            6 if !taken.is_empty() => {
                let command = taken.swap_remove(script.below(taken.len()));
                consumer.complete(command, response(&mut script));
            }
            _ => take(&mut consumer, &mut taken),
        }
    }
    assert!(taken.len() <= RING.size as usize / 112);
    assert_eq!(consumer.outstanding(), taken.len());
    for command in taken {
        consumer.complete(command, Response::good());
    }
    let _ = consumer.commit();
    assert_eq!(consumer.outstanding(), 0);
}

fn take(consumer: &mut Consumer, taken: &mut Vec<Command>) {
    let was_corrupt = consumer.corrupt().cloned();
    match consumer.next() {
        Ok(Entry::Command(command)) => {
            assert!(was_corrupt.is_none());
            let data = command.data().clone();
            assert!(data.len() <= 16 * 4096 * 256);
            let mut copy = vec![0; data.len().min(5000)];
            data.copy_out(0, &mut copy);
            data.fill(0, data.len().min(100), 7);
            assert!(command.cdb().len() <= 263);
            taken.push(command);
        }
        Ok(Entry::TaskManagement(notice)) => assert!(notice.ids.len() <= 2048),
        Err(NextError::Empty) => assert!(was_corrupt.is_none()),
        Err(NextError::Corrupt(cause)) => {
            assert!(was_corrupt.is_none_or(|was| was == cause));
            assert!(!cause.to_string().is_empty());
        }
    }
}

fn response(script: &mut Script<'_>) -> Response {
    match script.byte() % 4 {
        0 => Response::good(),
        1 => Response::good_with(script.below(70_000)),
        2 => Response::check_condition(&[0x70; 200][..script.below(200)]),
        _ => Response::status(script.byte()),
    }
}

/// Writes an entry that is nearly right, and publishes it; where the next one goes.
fn plausible_entry(mapping: &Mapping, head: u32, script: &mut Script<'_>) -> u32 {
    let iovecs = u32::from(script.byte() % 8);
    let len = (48 + iovecs * 16).max(112) + 16;
    let to_end = RING.size - head;
    let store = |at: u32, value: u32| mapping.store(RING.offset(at), value, Ordering::Relaxed);
    let at = if len > to_end {
        store(head, to_end);
        0
    } else {
        head
    };
    let words = [len | 1, script.word() & 0xff, iovecs, 0, 0, 0, RING.offset(at) + len - 16, 0, 1, 0, 0, 0];
    for (offset, word) in (0..).step_by(4).zip(words) {
        store(at + offset, word);
    }
    for iovec in 0..iovecs {
        let (base, size) = (4096 * (1 + u32::from(script.byte() % 17)), u32::from(script.byte()) * 17);
        for (word, value) in (0..4).zip([base, 0, size, 0]) {
            store(at + 48 + iovec * 16 + word * 4, value);
        }
    }
    store(at + len - 16, u32::from(script.byte()));
    if script.byte() < 24 {
        let word = script.below(len as usize / 4) as u32;
        store(at + word * 4, script.word());
    }
    let head = RING.advance(at, len);
    mailbox::set_head(mapping, head);
    head
}

/// A producer over a hostile consumer: never panics, never hangs, completes nothing twice and nothing that it did not
/// send, frees no block of a command in flight; the pool's books and another LUN stay sound.
pub fn producer(script: &[u8]) {
    let mut script = Script(script);
    let pool = Pool::new(1 << 20);
    let options =
        Options { command_area: 4096, data_area: 256 << 10, largest_command: 16 << 10, ..Options::default() };
    let (producer, _peer) = create::<u32>(&options, &pool).expect("memfd");
    let (other, mut other_consumer) = create::<u32>(&options, &pool).expect("memfd");
    let mapping = producer.mapping();
    let mut in_flight = BTreeMap::new();
    let (mut context, mut closed) = (0, None::<Corrupt>);
    while !script.is_empty() {
        match script.byte() % 8 {
            0 => mapping.store(script.below(LEN / 4) as u32 * 4, script.word(), Ordering::Relaxed),
            1 => mailbox::set_tail(&*mapping, script.word() % (RING.size + 16)),
            2 => {
                let honest = mailbox::head(&*mapping);
                mailbox::set_tail(&*mapping, honest);
            }
            3 => {
                let _ = producer.publish();
            }
            4 => {
                assert!(closed.is_none() || !producer.wait_room(std::task::Waker::noop()));
                producer.push_task_management(TaskManagementKind::LunReset, &[1, 2, 3]);
                pool.reclaim_idle(std::time::Duration::ZERO);
            }
            5 | 6 => {
                context += 1;
                push(&producer, context, script.below(20_000), &mut in_flight);
            }
            _ => reap(&producer, &mut in_flight, &mut closed),
        }
        let mut blocks = BTreeMap::new();
        for (start, len) in in_flight.values().flatten() {
            assert!(blocks.insert(*start, *len).is_none());
        }
    }
    let held: u64 =
        in_flight.values().flatten().map(|(_, len): &(u64, u64)| len.next_multiple_of(4096)).sum();
    assert_eq!(producer.usage().in_use, held);
    assert_eq!(producer.usage().in_flight, in_flight.len());
    round_trip(&other, &mut other_consumer);
    drop(producer);
    assert_eq!(pool.usage().in_use, held, "blocks that a peer may still write were freed");
}

fn push(producer: &Producer<u32>, context: u32, len: usize, in_flight: &mut BTreeMap<u32, Vec<(u64, u64)>>) {
    let Ok(data) = producer.try_allocate(len) else { return };
    let blocks = data.iovecs().collect();
    let request = Request { cdb: &[0x2a; 10], nexus: Nexus::UNKNOWN, data, context };
    if producer.push(request).is_ok() {
        in_flight.insert(context, blocks);
    }
}

fn reap(
    producer: &Producer<u32>,
    in_flight: &mut BTreeMap<u32, Vec<(u64, u64)>>,
    closed: &mut Option<Corrupt>,
) {
    let result = producer.reap(|Completion { context, data, .. }| {
        let blocks = in_flight.remove(&context).expect("completed twice, or never sent");
        assert_eq!(data.iovecs().collect::<Vec<_>>(), blocks);
    });
    if let Err(cause) = result {
        assert!(closed.as_ref().is_none_or(|was| *was == cause));
        assert_eq!(producer.corrupt().as_ref(), Some(&cause));
        *closed = Some(cause);
    }
}

fn round_trip(producer: &Producer<u32>, consumer: &mut Consumer) {
    let data = producer.try_allocate(4096).unwrap_or_else(|error| panic!("the other LUN starves: {error}"));
    let request = Request { cdb: &[0; 6], nexus: Nexus::UNKNOWN, data, context: 1 };
    assert!(producer.push(request).is_ok());
    let _ = producer.publish();
    let Ok(Entry::Command(command)) = consumer.next() else { panic!("the other LUN stopped") };
    consumer.complete(command, Response::good());
    let _ = consumer.commit();
    assert_eq!(producer.reap(|completion| drop::<Extent>(completion.data)), Ok(1));
}
