//! Commands through a ring and back, with both ends in one thread.

use std::io::IoSlice;
use std::time::Duration;

use ring::{
    Completion, Consumer, Entry, Extent, Kick, NextError, Nexus, Options, Pool, Producer, Request, Response,
    create,
};

fn small() -> Options {
    Options { command_area: 16 << 10, data_area: 1 << 20, ..Options::default() }
}

fn ring(options: &Options, pool: &Pool) -> (Producer<u32>, Consumer) {
    create(options, pool).unwrap()
}

fn push(producer: &Producer<u32>, context: u32, data: Extent) {
    let cdb = [0x28, 0, 0, 0, 0, context as u8, 0, 0, 1, 0];
    producer.push(Request { cdb: &cdb, nexus: Nexus::new(7, 1), data, context }).unwrap();
    assert_eq!(producer.publish(), Kick::Needed);
}

fn next(consumer: &mut Consumer) -> ring::Command {
    match consumer.next().unwrap() {
        Entry::Command(command) => command,
        other => panic!("{other:?}"),
    }
}

fn reap(producer: &Producer<u32>) -> Vec<Completion<u32>> {
    let mut all = Vec::new();
    producer.reap(|completion| all.push(completion)).unwrap();
    all
}

fn bytes(extent: &Extent) -> Vec<u8> {
    let mut slices: Vec<IoSlice<'_>> = Vec::new();
    extent.io_slices(0..extent.len(), &mut slices);
    slices.iter().flat_map(|slice| slice.to_vec()).collect()
}

#[test]
fn data_goes_there_and_back() {
    let (producer, mut consumer) = ring(&small(), &Pool::new(1 << 30));
    push(&producer, 1, producer.try_allocate(5000).unwrap());
    let command = next(&mut consumer);
    assert_eq!((command.nexus(), command.cdb().len(), command.data().len()), (Nexus::new(7, 1), 10, 5000));
    command.data().copy_in(4990, b"0123456789");
    consumer.complete(command, Response::good());
    assert_eq!(consumer.commit(), Kick::Needed);
    let done = reap(&producer);
    assert_eq!((done[0].context, done[0].status, done[0].transfer), (1, 0, None));
    assert_eq!(&bytes(&done[0].data)[4990..], b"0123456789");
}

#[test]
fn answers_may_come_in_any_order_over_many_turns_of_the_ring() {
    let (producer, mut consumer) = ring(&small(), &Pool::new(1 << 30));
    let (mut open, mut expected, mut got) = (Vec::new(), Vec::new(), Vec::new());
    for turn in 0..20_000u32 {
        push(&producer, turn, producer.try_allocate((turn as usize * 37) % 9000).unwrap());
        expected.push(turn);
        open.push(next(&mut consumer));
        while open.len() > (turn % 30) as usize {
            let command = open.swap_remove((turn as usize * 7) % open.len());
            consumer.complete(command, Response::status(8));
        }
        let _ = consumer.commit();
        got.extend(reap(&producer).iter().map(|completion| completion.context));
    }
    for command in open {
        consumer.complete(command, Response::good());
    }
    let _ = consumer.commit();
    got.extend(reap(&producer).iter().map(|completion| completion.context));
    got.sort_unstable();
    assert_eq!(got, expected);
    assert!(matches!(consumer.next(), Err(NextError::Empty)));
    assert_eq!((producer.usage().in_flight, producer.usage().in_use), (0, 0));
}

#[test]
fn an_idle_area_gives_its_memory_back() {
    let pool = Pool::new(1 << 30);
    let (producer, mut consumer) = ring(&small(), &pool);
    let mut extent = producer.try_allocate(1 << 20).unwrap();
    extent.zero();
    push(&producer, 1, extent);
    let command = next(&mut consumer);
    assert_eq!(pool.reclaim_idle(Duration::ZERO), 0, "a command is in flight");
    consumer.complete(command, Response::good());
    let _ = consumer.commit();
    reap(&producer);
    assert!(producer.resident().unwrap() >= 1 << 20);
    for _ in 0..3 {
        pool.reclaim_idle(Duration::ZERO);
    }
    assert!(producer.resident().unwrap() <= 4096, "{}", producer.resident().unwrap());
    assert_eq!(pool.usage().charged, 4096);
}

#[test]
fn an_extent_can_be_lengthened_by_another() {
    let (producer, mut consumer) = ring(&small(), &Pool::new(1 << 30));
    let gap = [producer.try_allocate(4096).unwrap(), producer.try_allocate(4096).unwrap()];
    let [mut first, between] = gap;
    first.append(producer.try_allocate(10_000).unwrap());
    assert_eq!((first.len(), first.pieces()), (14_096, 2));
    drop(between);
    push(&producer, 1, first);
    let command = next(&mut consumer);
    command.data().copy_in(4090, b"across the seam");
    consumer.complete(command, Response::good());
    let _ = consumer.commit();
    let done = reap(&producer);
    assert_eq!(&bytes(&done[0].data)[4090..4105], b"across the seam");
    drop(done);
    assert_eq!(producer.usage().in_use, 0);
}
