//! Both ends of one ring, command by command.

use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::sync::atomic::Ordering;

use crate::shm::Words;
use crate::{
    AllocateError, Command, Consumer, Corrupt, Entry, Extent, Kick, NextError, Nexus, Options, Pool,
    Producer, RejectedReason, Request, Response, TaskManagementKind, create,
};

const MIB: usize = 1 << 20;

fn small() -> Options {
    Options { command_area: 4096, data_area: MIB, largest_command: 64 << 10, ..Options::default() }
}

fn ring(options: &Options) -> (Producer<u32>, Consumer, Pool) {
    let pool = Pool::new(64 << 20);
    let (producer, consumer) = create(options, &pool).unwrap();
    (producer, consumer, pool)
}

fn fill(extent: &mut Extent, byte: u8) {
    let len = extent.len();
    let mut slices = Vec::new();
    extent.io_slices_mut(0..len, &mut slices);
    slices.iter_mut().for_each(|slice| slice.fill(byte));
}

fn bytes(extent: &Extent) -> Vec<u8> {
    let mut slices: Vec<IoSlice<'_>> = Vec::new();
    extent.io_slices(0..extent.len(), &mut slices);
    slices.iter().flat_map(|slice| slice.to_vec()).collect()
}

fn push(producer: &Producer<u32>, cdb: &[u8], data: Extent, context: u32) -> u16 {
    producer.push(Request { cdb, nexus: Nexus::new(7, 3), data, context }).unwrap()
}

fn command(consumer: &mut Consumer) -> Command {
    match consumer.next().unwrap() {
        Entry::Command(command) => command,
        Entry::TaskManagement(notice) => panic!("{notice:?}"),
    }
}

fn reap(producer: &Producer<u32>) -> Vec<crate::Completion<u32>> {
    let mut all = Vec::new();
    producer.reap(|completion| all.push(completion)).unwrap();
    all
}

#[test]
fn a_write_arrives_whole_and_is_answered_with_its_context() {
    let (producer, mut consumer, _pool) = ring(&small());
    let mut data = producer.try_allocate(5000).unwrap();
    fill(&mut data, 0xa5);
    let id = push(&producer, &[0x2a, 0, 0, 0, 0, 1, 0, 0, 10, 0], data, 99);
    assert!(matches!(consumer.next(), Err(NextError::Empty)), "seen before it was published");
    assert_eq!(producer.publish(), Kick::Needed);
    assert_eq!(producer.publish(), Kick::Unneeded);

    let taken = command(&mut consumer);
    assert_eq!((taken.id(), taken.nexus()), (id, Nexus::new(7, 3)));
    assert_eq!(taken.cdb(), [0x2a, 0, 0, 0, 0, 1, 0, 0, 10, 0]);
    assert_eq!(taken.data().len(), 5000);
    assert_eq!(taken.data().compare(0, &[0xa5; 5000]), Ok(()));
    assert_eq!(consumer.outstanding(), 1);
    consumer.complete(taken, Response::good());
    assert!(reap(&producer).is_empty(), "seen before it was committed");
    assert_eq!(consumer.commit(), Kick::Needed);
    assert_eq!(consumer.commit(), Kick::Unneeded);

    let [done] = <[_; 1]>::try_from(reap(&producer)).unwrap();
    assert_eq!((done.id, done.context, done.status, done.transfer), (id, 99, 0, None));
    assert!(done.sense.is_none() && !done.unknown_op);
    drop(done);
    assert_eq!(producer.usage().in_use, 0);
}

#[test]
fn completes_out_of_order() {
    let (producer, mut consumer, _pool) = ring(&small());
    for context in 0..8 {
        push(&producer, &[0; 6], Extent::default(), context);
    }
    assert_eq!(producer.publish(), Kick::Needed);
    let mut commands: Vec<_> = (0..8).map(|_| command(&mut consumer)).collect();
    commands.swap(0, 5);
    commands.swap(1, 7);
    let order: Vec<_> = commands.iter().map(Command::id).collect();
    for command in commands {
        consumer.complete(command, Response::good());
    }
    assert_eq!(consumer.commit(), Kick::Needed);
    assert_eq!(reap(&producer).iter().map(|done| done.id).collect::<Vec<_>>(), order);
}

#[test]
fn wraps_many_times_in_a_ring_that_is_no_multiple_of_the_entries() {
    let (producer, mut consumer, _pool) = ring(&small());
    for round in 0..500u32 {
        let len = 6 + round as usize % 200;
        push(&producer, &vec![0; len], Extent::default(), round);
        assert_eq!(producer.publish(), Kick::Needed);
        let taken = command(&mut consumer);
        consumer.complete(taken, Response::good());
        assert_eq!(consumer.commit(), Kick::Needed);
        assert_eq!(reap(&producer)[0].context, round);
    }
}

#[test]
fn a_full_ring_refuses_and_wakes_when_there_is_room() {
    let (producer, mut consumer, _pool) = ring(&small());
    let mut pushed = 0;
    let rejected = loop {
        match producer.push(Request {
            cdb: &[0; 6],
            nexus: Nexus::UNKNOWN,
            data: Extent::default(),
            context: 5,
        }) {
            Ok(_) => pushed += 1,
            Err(rejected) => break rejected,
        }
    };
    assert_eq!((rejected.reason, rejected.context), (RejectedReason::Full, 5));
    assert_eq!(pushed, (4096 - 128 - 1) / 120);
    assert!(producer.wait_room(std::task::Waker::noop()));
    assert_eq!(producer.publish(), Kick::Needed);
    for _ in 0..2 {
        let taken = command(&mut consumer);
        consumer.complete(taken, Response::good());
    }
    assert_eq!(consumer.commit(), Kick::Needed);
    reap(&producer);
    assert!(!producer.wait_room(std::task::Waker::noop()));
    for _ in 2..pushed {
        let taken = command(&mut consumer);
        consumer.complete(taken, Response::good());
    }
    let _ = consumer.commit();
}

#[test]
fn a_task_management_notice_names_its_commands() {
    let (producer, mut consumer, _pool) = ring(&small());
    let id = push(&producer, &[0; 6], Extent::default(), 1);
    assert!(producer.push_task_management(TaskManagementKind::AbortTask, &[id, 77, 78]));
    assert_eq!(producer.publish(), Kick::Needed);
    let taken = command(&mut consumer);
    let Entry::TaskManagement(notice) = consumer.next().unwrap() else { panic!("a command") };
    assert_eq!(notice.kind, TaskManagementKind::AbortTask);
    assert_eq!(notice.ids.as_slice(), [id, 77, 78]);
    consumer.complete(taken, Response::status(0x40));
    assert_eq!(consumer.commit(), Kick::Needed);
    assert_eq!(reap(&producer)[0].status, 0x40);
    assert!(producer.shared.lock().quiet_for().is_some());
}

#[test]
fn an_allocation_beyond_the_area_can_never_be() {
    let (producer, _consumer, _pool) = ring(&small());
    assert_eq!(producer.try_allocate(MIB + 1).unwrap_err(), AllocateError::TooLarge);
    let all = producer.try_allocate(MIB).unwrap();
    assert_eq!(producer.try_allocate(1).unwrap_err(), AllocateError::Exhausted);
    drop(all);
    assert!(producer.try_allocate(1).is_ok());
}

#[test]
fn sockets_read_and_write_an_extent_in_place() {
    let (producer, _consumer, _pool) = ring(&small());
    let mut data = producer.try_allocate(10_000).unwrap();
    let mut slices: Vec<IoSliceMut<'_>> = Vec::new();
    data.io_slices_mut(4000..9000, &mut slices);
    for slice in &mut slices {
        std::io::repeat(3).read_exact(slice).unwrap();
    }
    let mut out: Vec<u8> = Vec::new();
    let mut slices = Vec::new();
    data.io_slices(3999..9001, &mut slices);
    let written: usize = slices.iter().map(|slice| out.write(slice).unwrap()).sum();
    assert_eq!(written, 5002);
    assert_eq!((out[0], out[1], out[5000], out[5001]), (0, 3, 3, 0));
    assert_eq!(bytes(&data).len(), 10_000);
}

fn reason(producer: &Producer<u32>, cdb: &[u8], data: Extent) -> RejectedReason {
    producer.push(Request { cdb, nexus: Nexus::UNKNOWN, data, context: 0 }).unwrap_err().reason
}

#[test]
fn an_entry_that_can_never_fit_is_refused_at_once() {
    let (producer, _consumer, pool) = ring(&small());
    let (other, _other_consumer) = create::<u32>(&small(), &pool).unwrap();
    assert_eq!(reason(&producer, &[], Extent::default()), RejectedReason::TooLarge);
    assert_eq!(reason(&producer, &[0x7f; 261], Extent::default()), RejectedReason::TooLarge);
    let foreign = other.try_allocate(10).unwrap();
    assert_eq!(reason(&producer, &[0; 6], foreign), RejectedReason::TooLarge, "data of another LUN");
    // 256 single blocks: an entry of more than half of this ring.
    let blocks: Vec<Extent> = (0..256).map(|_| producer.try_allocate(4096).unwrap()).collect();
    let odd: Vec<_> = blocks.into_iter().enumerate().filter(|(index, _)| index % 2 == 1).collect();
    let pieces = producer.try_allocate(128 * 4096).unwrap();
    assert_eq!((pieces.pieces(), odd.len()), (128, 128));
    assert_eq!(reason(&producer, &[0; 6], pieces), RejectedReason::TooLarge);
    let fits = producer.try_allocate(100 * 4096).unwrap();
    assert!(producer.push(Request { cdb: &[0; 6], nexus: Nexus::UNKNOWN, data: fits, context: 0 }).is_ok());
}

#[test]
fn the_longest_cdb_arrives_whole() {
    let (producer, mut consumer, _pool) = ring(&small());
    let mut cdb: Vec<u8> = (0..260u32).map(|at| at as u8).collect();
    (cdb[0], cdb[7]) = (0x7f, 252);
    push(&producer, &cdb, Extent::default(), 1);
    let _ = producer.publish();
    let taken = command(&mut consumer);
    assert_eq!(taken.cdb(), cdb);
    consumer.complete(taken, Response::good());
}

#[test]
fn all_65535_ids_can_be_in_flight() {
    let (producer, mut consumer, _pool) = ring(&Options::default());
    let mut ids: Vec<u16> =
        (0..65_535).map(|context| push(&producer, &[0; 6], Extent::default(), context)).collect();
    assert_eq!(reason(&producer, &[0; 6], Extent::default()), RejectedReason::Full);
    assert!(producer.wait_room(std::task::Waker::noop()));
    ids.sort_unstable();
    ids.dedup();
    assert_eq!((ids.len(), ids[0]), (65_535, 1));
    let _ = producer.publish();
    while let Ok(Entry::Command(taken)) = consumer.next() {
        consumer.complete(taken, Response::good());
    }
    let _ = consumer.commit();
    assert_eq!(reap(&producer).len(), 65_535);
    assert!(!producer.wait_room(std::task::Waker::noop()));
}

#[test]
fn an_id_rests_before_it_is_used_again() {
    let (producer, mut consumer, _pool) = ring(&small());
    let mut last = std::collections::BTreeMap::new();
    for round in 0..2000u32 {
        let id = push(&producer, &[0; 6], Extent::default(), round);
        if let Some(before) = last.insert(id, round) {
            assert!(round - before >= 256, "id {id} after {} commands", round - before);
        }
        let _ = producer.publish();
        let taken = command(&mut consumer);
        consumer.complete(taken, Response::good());
        let _ = consumer.commit();
        assert_eq!(reap(&producer).len(), 1);
    }
}

/// What the producer finds after `spoil` wrote into a ring with three commands of 120 bytes, all taken.
fn found(spoil: impl Fn(&dyn Fn(u32, u32))) -> Corrupt {
    let (producer, mut consumer, pool) = ring(&small());
    for context in 0..3 {
        let data = producer.try_allocate(4096).unwrap();
        push(&producer, &[0; 6], data, context);
    }
    let _ = producer.publish();
    let taken: Vec<_> = (0..3).map(|_| command(&mut consumer)).collect();
    let memory = producer.mapping();
    spoil(&|offset, value| memory.store(offset, value, Ordering::Relaxed));
    let mut answered = 0;
    let cause = producer.reap(|_| answered += 1).unwrap_err();
    assert_eq!(producer.reap(|_| panic!("closed")), Err(cause.clone()));
    assert_eq!(reason(&producer, &[0; 6], Extent::default()), RejectedReason::Closed);
    assert_eq!(producer.usage().in_use, (3 - answered) * 4096, "blocks in flight stay taken");
    assert!(pool.reclaim_idle(std::time::Duration::ZERO) == 0);
    for taken in taken {
        consumer.complete(taken, Response::good());
    }
    cause
}

#[test]
fn nonsense_from_the_consumer_closes_the_ring_and_is_named() {
    const TAIL: u32 = 64;
    let size = 4096 - 128;
    assert_eq!(found(|store| store(TAIL, 3968)), Corrupt::Tail { tail: 3968, size });
    assert_eq!(found(|store| store(TAIL, 121)), Corrupt::Tail { tail: 121, size });
    assert_eq!(found(|store| store(TAIL, 480)), Corrupt::TailOvertakes { tail: 480, reaped: 0, head: 360 });
    assert_eq!(found(|store| store(TAIL, 128)), Corrupt::TailInsideEntry { tail: 128, at: 120, len: 120 });
    let unknown = found(|store| {
        store(128 + 4, 77);
        store(TAIL, 120);
    });
    assert_eq!(unknown, Corrupt::UnknownId { at: 0, id: 77 });
    let twice = found(|store| {
        store(128 + 120 + 4, 1);
        store(TAIL, 240);
    });
    assert_eq!(twice, Corrupt::UnknownId { at: 120, id: 1 });
}

#[test]
fn a_command_that_is_not_published_cannot_be_answered() {
    let (producer, _consumer, _pool) = ring(&small());
    push(&producer, &[0; 6], Extent::default(), 0);
    let _ = producer.publish();
    let id = push(&producer, &[0; 6], Extent::default(), 1);
    producer.mapping().store(128 + 4, u32::from(id), Ordering::Relaxed);
    producer.mapping().store(64, 120, Ordering::Release);
    assert_eq!(producer.reap(drop), Err(Corrupt::UnknownId { at: 0, id }));
}

#[test]
fn options_out_of_range_are_named() {
    let pool = Pool::new(64 << 20);
    for (options, name) in [
        (Options { command_area: 0, ..small() }, "command_area"),
        (Options { block: 1000, ..small() }, "block"),
        (Options { data_area: 0, ..small() }, "block"),
        (Options { data_area: 2 << 40, ..small() }, "data_area"),
        (Options { floor: 2 * MIB, ..small() }, "floor"),
    ] {
        let Err(error) = create::<u32>(&options, &pool) else { panic!("{name} was accepted") };
        assert!(error.to_string().starts_with(name), "{error}");
    }
    assert_eq!(pool.usage().luns, 0);
}
