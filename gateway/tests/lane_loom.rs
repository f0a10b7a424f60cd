//! Every interleaving of the lane's inbox, on the file that runs: `lane/inbox.rs` with loom's atomics and locks.
//!
//! loom reports a task that sleeps for ever as a deadlock, so "the test ends" is the assertion that no wake is lost.

use loom::sync::Arc;
use loom::thread;

#[path = "../src/lane/inbox.rs"]
mod inbox;

mod sync {
    pub(super) use loom::sync::Mutex;
    pub(super) use loom::sync::atomic::{AtomicBool, Ordering};
}

use inbox::{Bell, List};

/// Threads are preempted at most this often in one run: enough for every lost wake there can be, and quick.
fn model(check: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(check);
}

struct Inbox {
    bell: Bell,
    list: List<u32>,
}

fn inbox() -> Arc<Inbox> {
    Arc::new(Inbox { bell: Bell::new(), list: List::new() })
}

/// As the lane's task does it: sleep until rung, take everything; until `count` items have come.
fn take_all(inbox: &Inbox, count: usize) -> Vec<u32> {
    let (mut taken, mut batch) = (Vec::new(), Vec::new());
    while taken.len() < count {
        loom::future::block_on(std::future::poll_fn(|context| inbox.bell.poll_rung(context)));
        inbox.list.take(&mut batch);
        taken.append(&mut batch);
    }
    taken
}

fn push(inbox: &Inbox, item: u32) {
    if inbox.list.push(item) {
        inbox.bell.ring();
    }
}

#[test]
fn every_item_of_two_threads_reaches_a_task_that_sleeps() {
    model(|| {
        let inbox = inbox();
        let other = thread::spawn({
            let inbox = Arc::clone(&inbox);
            move || push(&inbox, 1)
        });
        let third = thread::spawn({
            let inbox = Arc::clone(&inbox);
            move || push(&inbox, 2)
        });
        let mut taken = take_all(&inbox, 2);
        taken.sort_unstable();
        assert_eq!(taken, [1, 2]);
        other.join().unwrap();
        third.join().unwrap();
    });
}

#[test]
fn items_of_one_thread_arrive_in_order_however_they_are_batched() {
    model(|| {
        let inbox = inbox();
        let other = thread::spawn({
            let inbox = Arc::clone(&inbox);
            move || (1..=3).for_each(|item| push(&inbox, item))
        });
        assert_eq!(take_all(&inbox, 3), [1, 2, 3]);
        other.join().unwrap();
    });
}

/// The producer's side: it publishes (a plain store here) and rings; the lane looks after it was rung.
#[test]
fn a_ring_before_or_during_sleep_is_never_lost() {
    use loom::sync::atomic::{AtomicUsize, Ordering};

    model(|| {
        let inbox = inbox();
        let head = Arc::new(AtomicUsize::new(0));
        let producer = thread::spawn({
            let (inbox, head) = (Arc::clone(&inbox), Arc::clone(&head));
            move || {
                for value in 1..=2 {
                    head.store(value, Ordering::Release);
                    inbox.bell.ring();
                }
            }
        });
        while head.load(Ordering::Acquire) < 2 {
            loom::future::block_on(std::future::poll_fn(|context| inbox.bell.poll_rung(context)));
        }
        producer.join().unwrap();
    });
}
