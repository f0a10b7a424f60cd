//! Both ends and the pool from many threads at once: no wake is lost, and nobody's bytes change under him.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use ring::{
    Consumer, Doorbell, Entry, Extent, NextError, Nexus, Options, Pool, Producer, Rejected, RejectedReason,
    Request, Response, create,
};

const PATIENCE: Duration = Duration::from_secs(60);
const PAGE: usize = 4096;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl Doorbell for Unpark {
    fn ring(&self) {
        self.0.unpark();
    }
}

fn waker() -> Waker {
    Waker::from(Arc::new(Unpark(thread::current())))
}

/// Runs a future on this thread; a lost wake is a failure.
fn block_on<F: Future>(future: F) -> F::Output {
    let (mut future, waker, deadline) = (pin!(future), waker(), Instant::now() + PATIENCE);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        thread::park_timeout(PATIENCE);
        assert!(Instant::now() < deadline, "a wake was lost");
    }
}

fn fill(extent: &mut Extent, byte: u8) {
    let (len, mut slices) = (extent.len(), Vec::new());
    extent.io_slices_mut(0..len, &mut slices);
    slices.iter_mut().for_each(|slice| slice.fill(byte));
}

fn is_filled(extent: &Extent, byte: u8) -> bool {
    let mut slices = Vec::new();
    extent.io_slices(0..extent.len(), &mut slices);
    slices.iter().all(|slice| slice.iter().all(|found| *found == byte))
}

#[test]
fn allocations_of_many_threads_under_a_small_limit_all_come_and_never_overlap() {
    let pool = Pool::new(40 * PAGE as u64);
    let options = Options { data_area: 24 * PAGE, largest_command: 8 * PAGE, ..Options::default() };
    let luns: Vec<_> = (0..4).map(|_| create::<()>(&options, &pool).unwrap()).collect();
    let stop = Arc::new(AtomicBool::new(false));
    let tuner = thread::spawn({
        let (pool, stop) = (pool.clone(), Arc::clone(&stop));
        move || {
            for limit in (20..60).cycle() {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                pool.set_limit(limit * PAGE as u64);
                pool.reclaim_idle(Duration::ZERO);
                thread::yield_now();
            }
        }
    });
    let workers: Vec<_> = (0..8u8)
        .map(|worker| {
            let producer = luns[usize::from(worker) % 4].0.clone();
            thread::spawn(move || {
                for round in 0..500usize {
                    let len = 1 + (round * 2741 + usize::from(worker) * 997) % (15 * PAGE);
                    let mut extent = block_on(producer.allocate(len)).unwrap();
                    fill(&mut extent, worker);
                    thread::yield_now();
                    assert!(is_filled(&extent, worker), "somebody else has these blocks");
                }
            })
        })
        .collect();
    for worker in workers {
        worker.join().unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    tuner.join().unwrap();
    assert_eq!((pool.usage().in_use, pool.usage().waiting_luns), (0, 0));
}

#[test]
fn a_lane_on_one_thread_and_sessions_on_others_lose_nothing() {
    const COMMANDS: u32 = 4000;
    let options = Options {
        command_area: 2 * PAGE,
        data_area: 64 * PAGE,
        largest_command: 8 * PAGE,
        ..Options::default()
    };
    let (producer, consumer) = create::<u32>(&options, &Pool::new(48 * PAGE as u64)).unwrap();
    let (bell, answers) = mpsc::sync_channel(1);
    let lane = thread::spawn(move || lane(consumer, COMMANDS, &bell));
    let lane_bell = lane.thread().clone();
    let sessions: Vec<_> = (0..4u32)
        .map(|session| {
            let (producer, lane_bell) = (producer.clone(), lane_bell.clone());
            thread::spawn(move || {
                for context in (session..COMMANDS).step_by(4) {
                    send(&producer, context);
                    if producer.publish() == ring::Kick::Needed {
                        lane_bell.unpark();
                    }
                }
            })
        })
        .collect();
    let (mut seen, mut done) = (vec![false; COMMANDS as usize], 0);
    while done < COMMANDS as usize {
        answers.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{done} answers, then silence"));
        done += producer
            .reap(|answer| {
                assert!(is_filled(&answer.data, !(answer.context as u8)));
                assert!(!std::mem::replace(&mut seen[answer.context as usize], true), "answered twice");
            })
            .unwrap();
    }
    sessions.into_iter().for_each(|session| session.join().unwrap());
    lane.join().unwrap();
    assert_eq!(producer.usage().in_flight, 0);
}

/// Answers out of order; every seventh buffer is let go by another thread only after the command was completed.
fn lane(mut consumer: Consumer, commands: u32, bell: &mpsc::SyncSender<()>) {
    consumer.set_release_doorbell(Arc::new(Unpark(thread::current())));
    let (late, holder) = mpsc::channel();
    let holder = thread::spawn(move || holder.into_iter().for_each(drop::<ring::Segments>));
    let (mut answered, mut taken, deadline) = (0, Vec::new(), Instant::now() + PATIENCE);
    while answered < commands || consumer.withheld() > 0 {
        assert!(Instant::now() < deadline, "{answered} commands came");
        match consumer.next() {
            Ok(Entry::Command(command)) => taken.push(command),
            Ok(Entry::TaskManagement(notice)) => panic!("{notice:?}"),
            Err(NextError::Corrupt(cause)) => panic!("{cause}"),
            Err(NextError::Empty) => {
                while let Some(command) = taken.pop() {
                    let data = command.data();
                    let mut bytes = vec![0; data.len()];
                    data.copy_out(0, &mut bytes);
                    bytes.iter_mut().for_each(|byte| *byte = !*byte);
                    data.copy_in(0, &bytes);
                    if answered % 7 == 0 {
                        late.send(data.clone()).unwrap();
                    }
                    consumer.complete(command, Response::good());
                    answered += 1;
                }
                if consumer.commit() == ring::Kick::Needed {
                    let _ = bell.try_send(());
                } else {
                    thread::park_timeout(Duration::from_secs(1));
                }
            }
        }
    }
    drop(late);
    holder.join().unwrap();
    let _ = bell.try_send(());
}

fn send(producer: &Producer<u32>, context: u32) {
    let mut data = block_on(producer.allocate(1 + context as usize * 31 % (8 * PAGE))).unwrap();
    fill(&mut data, context as u8);
    let mut request = Request { cdb: &[0x2a; 10], nexus: Nexus::UNKNOWN, data, context };
    let deadline = Instant::now() + PATIENCE;
    loop {
        match producer.push(request) {
            Ok(_) => return,
            Err(Rejected { reason, data, context }) => {
                assert_eq!(reason, RejectedReason::Full);
                assert!(Instant::now() < deadline, "no room came up");
                if producer.wait_room(&waker()) {
                    thread::park_timeout(PATIENCE);
                }
                request = Request { cdb: &[0x2a; 10], nexus: Nexus::UNKNOWN, data, context };
            }
        }
    }
}
