//! The pool: who gets memory, who waits, and what becomes of memory that nobody needs.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crate::{
    Allocate, AllocateError, Consumer, CreateError, Entry, Extent, Nexus, Options, Pool, Producer, Request,
    Response, create,
};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
/// One page: what the mailbox of each LUN takes.
const PAGE: u64 = 4096;

type Lun = (Producer<u32>, Consumer);

fn lun(pool: &Pool) -> Lun {
    create(&Options { data_area: 64 * MIB, largest_command: 256 * KIB, ..Options::default() }, pool).unwrap()
}

/// A pool whose limit leaves `data` bytes beside the mailboxes of its LUNs.
fn luns<const N: usize>(data: usize) -> (Pool, [Lun; N]) {
    let pool = Pool::new(data as u64 + N as u64 * PAGE);
    let luns = std::array::from_fn(|_| lun(&pool));
    (pool, luns)
}

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn poll(future: Pin<&mut Allocate>) -> Poll<Result<Extent, AllocateError>> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn waiting(producer: &Producer<u32>, len: usize) -> Pin<Box<Allocate>> {
    let mut future = Box::pin(producer.allocate(len));
    assert!(poll(future.as_mut()).is_pending(), "{len} bytes did not have to wait");
    future
}

fn is_ready(future: &mut Pin<Box<Allocate>>) -> bool {
    match poll(future.as_mut()) {
        Poll::Ready(result) => {
            // Frees it again.
            result.unwrap();
            true
        }
        Poll::Pending => false,
    }
}

fn touch(extent: &mut Extent) {
    extent.zero();
}

fn round_trip((producer, consumer): &mut Lun, data: Extent) {
    producer.push(Request { cdb: &[0; 6], nexus: Nexus::UNKNOWN, data, context: 0 }).unwrap();
    let _ = producer.publish();
    let Ok(Entry::Command(command)) = consumer.next() else { panic!("no command") };
    consumer.complete(command, Response::good());
    let _ = consumer.commit();
    assert_eq!(producer.reap(drop), Ok(1));
}

#[test]
fn nothing_is_backed_before_it_is_used_and_freed_memory_stays_hot() {
    let (pool, [(producer, _consumer)]) = luns(8 * MIB);
    assert_eq!(pool.usage().charged, PAGE);
    let mut extent = producer.try_allocate(MIB).unwrap();
    touch(&mut extent);
    assert_eq!(pool.usage().charged, PAGE + MIB as u64);
    assert_eq!(producer.resident().unwrap(), PAGE + MIB as u64);
    drop(extent);
    let usage = pool.usage();
    assert_eq!((usage.charged, usage.in_use), (PAGE + MIB as u64, 0));
    assert_eq!(producer.usage().backed, MIB as u64);
}

#[test]
fn an_idle_lun_gives_its_memory_back_down_to_the_floor() {
    let pool = Pool::new(64 << 20);
    let options = Options { floor: 64 * KIB, ..Options::default() };
    let mut lun: Lun = create(&options, &pool).unwrap();
    for _ in 0..200 {
        let mut data = lun.0.try_allocate(MIB).unwrap();
        touch(&mut data);
        round_trip(&mut lun, data);
    }
    assert!(lun.0.usage().command_area_backed > PAGE);
    assert_eq!(pool.reclaim_idle(Duration::from_secs(3600)), 0, "not idle long enough");
    let held = lun.0.try_allocate(1).unwrap();
    assert_eq!(pool.reclaim_idle(Duration::ZERO), 0, "a command is active");
    drop(held);
    assert!(pool.reclaim_idle(Duration::ZERO) > 0);
    assert_eq!(lun.0.usage().backed, 64 * KIB as u64);
    assert_eq!(lun.0.usage().command_area_backed, PAGE);
    assert_eq!(pool.usage().charged, lun.0.resident().unwrap());
    let data = lun.0.try_allocate(MIB).unwrap();
    round_trip(&mut lun, data);
}

#[test]
fn a_lun_with_a_command_on_the_ring_is_not_idle() {
    let (pool, [mut lun]) = luns(8 * MIB);
    drop(lun.0.try_allocate(MIB).unwrap());
    lun.0.push(Request { cdb: &[0; 6], nexus: Nexus::UNKNOWN, data: Extent::default(), context: 0 }).unwrap();
    assert_eq!(pool.reclaim_idle(Duration::ZERO), 0);
    let _ = lun.0.publish();
    let Ok(Entry::Command(command)) = lun.1.next() else { panic!("no command") };
    lun.1.complete(command, Response::good());
    let _ = lun.1.commit();
    assert_eq!(lun.0.reap(drop), Ok(1));
    assert_eq!(pool.reclaim_idle(Duration::ZERO), MIB as u64);
}

#[test]
fn a_busy_lun_takes_the_memory_of_idle_ones_first() {
    let (pool, [idle, busy, hungry]) = luns(4 * MIB);
    drop(idle.0.try_allocate(MIB).unwrap());
    drop(busy.0.try_allocate(2 * MIB).unwrap());
    let held = busy.0.try_allocate(4 * KIB).unwrap();
    let mut extents: Vec<Extent> = Vec::new();
    for _ in 0..8 {
        extents.push(hungry.0.try_allocate(256 * KIB).unwrap());
    }
    assert_eq!((idle.0.usage().backed, busy.0.usage().backed), (0, 2 * MIB as u64));
    extents.push(hungry.0.try_allocate(256 * KIB).unwrap());
    assert_eq!(busy.0.usage().backed, 2 * MIB as u64 - 256 * KIB as u64);
    assert!(pool.usage().charged <= pool.usage().limit);
    drop(held);
}

#[test]
fn commands_wait_in_order_of_their_lun_and_exactly_one_is_woken() {
    let (pool, [(producer, _consumer)]) = luns(MIB);
    let mut held: Vec<Extent> = (0..4).map(|_| producer.try_allocate(256 * KIB).unwrap()).collect();
    let counts: Vec<_> = (0..3).map(|_| Arc::new(Count::default())).collect();
    let mut futures: Vec<_> = counts
        .iter()
        .map(|count| {
            let mut future = Box::pin(producer.allocate(256 * KIB));
            let waker = Waker::from(Arc::clone(count));
            assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            future
        })
        .collect();
    assert_eq!(producer.usage().waiting, 3);
    assert_eq!(producer.try_allocate(1).unwrap_err(), AllocateError::Exhausted, "nobody overtakes");
    held.pop();
    let woken: Vec<_> = counts.iter().map(|count| count.0.load(Ordering::Relaxed)).collect();
    assert_eq!(woken, [1, 0, 0]);
    // The first gives its place up although it was granted: the second gets it.
    drop(futures.remove(0));
    assert_eq!(counts[1].0.load(Ordering::Relaxed), 1);
    assert_eq!(counts[2].0.load(Ordering::Relaxed), 0);
    drop(futures.pop());
    assert!(is_ready(&mut futures[0]));
    assert_eq!((pool.usage().waiting_luns, producer.usage().waiting), (0, 0));
}

#[test]
fn a_lun_whose_disk_hangs_leaves_the_others_their_reserve() {
    let (_pool, [hung, second, third]) = luns(4 * MIB);
    let mut stuck = Vec::new();
    while let Ok(extent) = hung.0.try_allocate(64 * KIB) {
        stuck.push(extent);
    }
    assert_eq!(stuck.len() * 64 * KIB, 4 * MIB - 2 * 256 * KIB, "all but the reserves of the other two");
    let _waits = waiting(&hung.0, 64 * KIB);
    for lun in [&second, &third] {
        for _ in 0..100 {
            assert!(lun.0.try_allocate(256 * KIB).is_ok());
        }
    }
}

#[test]
fn nobody_exceeds_a_fair_share_while_another_waits() {
    let (_pool, [greedy, modest]) = luns(4 * MIB);
    let mut much: Vec<Extent> = (0..15).map(|_| greedy.0.try_allocate(256 * KIB).unwrap()).collect();
    let _first = modest.0.try_allocate(256 * KIB).unwrap();
    let mut more = waiting(&modest.0, 512 * KIB);
    much.pop();
    assert_eq!(
        greedy.0.try_allocate(4 * KIB).unwrap_err(),
        AllocateError::Exhausted,
        "it has more than its half"
    );
    much.pop();
    assert!(is_ready(&mut more), "what the greedy one frees goes to the other");
    assert!(greedy.0.try_allocate(256 * KIB).is_ok(), "nobody waits any more");
}

#[test]
fn eight_busy_luns_under_a_small_limit_all_make_progress() {
    let (pool, luns) = luns::<8>(MIB);
    let mut waits: Vec<Vec<Pin<Box<Allocate>>>> =
        luns.iter().map(|lun| (0..4).map(|_| Box::pin(lun.0.allocate(192 * KIB))).collect()).collect();
    let mut served = [0; 8];
    for _ in 0..400 {
        let mut extents = Vec::new();
        for ((lun, waits), served) in luns.iter().zip(&mut waits).zip(&mut served) {
            for wait in waits {
                if let Poll::Ready(extent) = poll(wait.as_mut()) {
                    extents.push(extent.unwrap());
                    touch(extents.last_mut().unwrap());
                    *served += 1;
                    *wait = Box::pin(lun.0.allocate(192 * KIB));
                }
            }
        }
        let resident: u64 = luns.iter().map(|lun| lun.0.resident().unwrap()).sum();
        assert!(resident <= pool.usage().limit, "{resident}");
        assert!(!extents.is_empty(), "nobody is served");
    }
    let (least, most) = (served.iter().min().unwrap(), served.iter().max().unwrap());
    assert!(*least > 100 && most - least <= most / 4, "unfair: {served:?}");
}

#[test]
fn a_limit_of_one_command_serves_one_after_the_other() {
    let pool = Pool::new(256 * KIB as u64);
    let luns = [lun(&pool), lun(&pool)];
    assert_eq!(luns[0].0.try_allocate(256 * KIB + 1).unwrap_err(), AllocateError::TooLarge);
    let first = luns[0].0.try_allocate(256 * KIB).unwrap();
    let mut second = waiting(&luns[1].0, 256 * KIB);
    drop(first);
    assert!(is_ready(&mut second));
    let mut too_large = pin!(luns[1].0.allocate(256 * KIB + 1));
    assert!(matches!(poll(too_large.as_mut()), Poll::Ready(Err(AllocateError::TooLarge))));
}

#[test]
fn the_limit_can_be_changed_while_commands_wait() {
    let (pool, [(producer, _consumer)]) = luns(MIB);
    let held = producer.try_allocate(MIB).unwrap();
    let (mut small, mut large) = (waiting(&producer, 512 * KIB), waiting(&producer, MIB));
    pool.set_limit(2 * MIB as u64);
    assert!(is_ready(&mut small));
    pool.set_limit(512 * KIB as u64);
    assert!(matches!(poll(large.as_mut()), Poll::Ready(Err(AllocateError::TooLarge))));
    assert_eq!(producer.usage().backed, MIB as u64, "a command holds it");
    drop(held);
    assert!(
        pool.usage().charged <= 512 * KIB as u64,
        "what was beyond the limit went as soon as it was free"
    );
}

#[test]
fn a_reserve_is_there_when_it_is_used() {
    let (pool, [(producer, _consumer), other]) = luns(2 * MIB);
    let mut reserve = pool.try_reserve(64 * KIB).unwrap();
    assert_eq!(pool.usage().reserved, 64 * KIB as u64);
    assert!(pool.try_reserve(2 * MIB).is_none());
    let mut all = Vec::new();
    while let Ok(extent) = other.0.try_allocate(64 * KIB) {
        all.push(extent);
    }
    let extent = producer.allocate_from(&mut reserve, 10_000).unwrap();
    assert_eq!((extent.len(), reserve.remaining()), (10_000, 64 * KIB - 12 * KIB));
    let _waits = waiting(&other.0, 64 * KIB);
    assert!(pool.try_reserve(1).is_none(), "somebody waits");
    drop(reserve);
    assert_eq!(pool.usage().reserved, 0);
}

#[test]
fn command_area_pages_are_charged_and_given_back_under_pressure() {
    let (pool, [mut busy, other]) = luns(MIB);
    for _ in 0..2000 {
        round_trip(&mut busy, Extent::default());
    }
    let area = busy.0.usage().command_area_backed;
    assert_eq!(area, (128 + 2000 * 120u64).next_multiple_of(PAGE));
    assert_eq!(pool.usage().charged, area + PAGE);
    let _held = other.0.try_allocate(512 * KIB).unwrap();
    pool.set_limit(600 * KIB as u64);
    assert_eq!(busy.0.usage().command_area_backed, PAGE);
    round_trip(&mut busy, Extent::default());
}

#[test]
fn a_preallocated_area_is_charged_once_and_never_shrinks() {
    let pool = Pool::new(4 << 20);
    let options = Options { data_area: 2 * MIB, preallocate: true, ..Options::default() };
    let (producer, _consumer) = create::<u32>(&options, &pool).unwrap();
    assert_eq!(pool.usage().charged, PAGE + 2 * MIB as u64);
    assert_eq!(producer.resident().unwrap(), pool.usage().charged);
    assert!(matches!(
        create::<u32>(&Options { data_area: 3 * MIB, ..options }, &pool),
        Err(CreateError::Option(text)) if text.contains("preallocate")
    ));
    drop(producer.try_allocate(2 * MIB).unwrap());
    assert_eq!(pool.reclaim_idle(Duration::ZERO), 0);
    assert_eq!(pool.usage().charged, PAGE + 2 * MIB as u64);
}

#[test]
fn withheld_completions_keep_their_blocks_through_ten_thousand_commands() {
    let (pool, [mut lun]) = luns(8 * MIB);
    let mut withheld = Vec::new();
    let mut blocks = Vec::new();
    for mark in 1..=16u8 {
        let mut data = lun.0.try_allocate(64 * KIB).unwrap();
        let mut slices = Vec::new();
        data.io_slices_mut(0..64 * KIB, &mut slices);
        slices.iter_mut().for_each(|slice| slice.fill(mark));
        blocks.extend(data.iovecs());
        lun.0.push(Request { cdb: &[0x2a; 10], nexus: Nexus::UNKNOWN, data, context: 0 }).unwrap();
        let _ = lun.0.publish();
        let Ok(Entry::Command(command)) = lun.1.next() else { panic!("no command") };
        withheld.push((mark, command));
    }
    for round in 0..10_000 {
        let mut data = lun.0.try_allocate(64 * KIB).unwrap();
        let overlaps =
            |(base, len): (u64, u64)| blocks.iter().any(|(at, size)| base < at + size && *at < base + len);
        assert!(!data.iovecs().any(overlaps), "round {round}");
        if round % 100 == 0 {
            touch(&mut data);
            pool.reclaim_idle(Duration::ZERO);
            pool.set_limit(8 * MIB as u64 + round);
        }
        round_trip(&mut lun, data);
    }
    for (mark, command) in withheld {
        assert_eq!(command.data().compare(0, &[mark; 64 * KIB]), Ok(()), "another command wrote here");
        lun.1.complete(command, Response::good());
    }
    let _ = lun.1.commit();
    assert_eq!(lun.0.reap(drop), Ok(16));
}

#[test]
fn punched_memory_reads_as_zeros() {
    let (pool, [(producer, _consumer)]) = luns(8 * MIB);
    let mut data = producer.try_allocate(MIB).unwrap();
    let mut slices = Vec::new();
    data.io_slices_mut(0..MIB, &mut slices);
    slices.iter_mut().for_each(|slice| slice.fill(0xee));
    drop(data);
    pool.reclaim_idle(Duration::ZERO);
    let data = producer.try_allocate(MIB).unwrap();
    let mut slices = Vec::new();
    data.io_slices(0..MIB, &mut slices);
    assert!(slices.iter().all(|slice| slice.iter().all(|byte| *byte == 0)));
}

#[test]
fn memory_is_accounted_for_until_it_is_unmapped() {
    let (pool, [(producer, consumer)]) = luns(8 * MIB);
    drop(producer.try_allocate(MIB).unwrap());
    drop(producer);
    assert_eq!(pool.usage().charged, PAGE, "free blocks go with the last producer");
    drop(consumer);
    assert_eq!((pool.usage().charged, pool.usage().luns), (0, 0));
}
