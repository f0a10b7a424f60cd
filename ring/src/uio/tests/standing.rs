//! What one process leaves in a ring, and another finds.

use super::super::Standing;
use super::*;
use crate::{Consumer, RingUsage};

const NAME: &str = "tcm-user/0/a";

fn standing(bench: &Bench) -> Standing {
    bench.find(NAME).claim().unwrap().standing()
}

fn take(consumer: &mut Consumer) -> crate::Command {
    match consumer.next() {
        Ok(Entry::Command(command)) => command,
        other => panic!("no command: {other:?}"),
    }
}

#[test]
fn a_ring_that_nobody_has_had_is_new() {
    let bench = Bench::new();
    let kernel = bench.device(0, NAME);
    assert_eq!(standing(&bench), Standing::New);
    // Had by somebody who left no word.
    mailbox::set_head(&kernel, COMMAND);
    assert_eq!(standing(&bench), Standing::Unknown);
    mailbox::set_tail(&kernel, COMMAND);
    assert_eq!(standing(&bench), Standing::Unknown);
}

#[test]
fn what_a_predecessor_that_left_in_order_has_not_taken_is_taken() {
    let bench = Bench::new();
    let kernel = bench.device(0, NAME);
    let (device, mut consumer) = bench.find(NAME).open().unwrap();
    for (slot, id) in (0..3).zip([7, 8, 9]) {
        write_command(&kernel, slot * COMMAND, id);
    }
    mailbox::set_head(&kernel, 2 * COMMAND);
    // The second one is answered first, and so into the first one's slot.
    let (first, second) = (take(&mut consumer), take(&mut consumer));
    consumer.complete(second, Response::good());
    assert!(!consumer.leave(), "an answer is to come");
    let _ = consumer.commit();
    assert!(!consumer.leave());
    consumer.complete(first, Response::good());
    assert!(!consumer.leave(), "an answer is not published");
    let _ = consumer.commit();
    mailbox::set_head(&kernel, 3 * COMMAND);
    assert!(consumer.leave());
    assert!(matches!(consumer.next(), Err(NextError::Empty)), "what comes now is the successor's");
    drop((device, consumer));

    assert!(matches!(standing(&bench), Standing::Left(ago) if ago < Duration::from_secs(60)));
    let (_device, mut consumer) = bench.find(NAME).open().unwrap();
    let command = take(&mut consumer);
    assert_eq!(command.id(), 9);
    consumer.complete(command, Response::good());
    let _ = consumer.commit();
    assert_eq!(mailbox::tail(&kernel), 3 * COMMAND);
}

#[test]
fn what_a_predecessor_that_died_has_left_is_unknown() {
    let bench = Bench::new();
    let kernel = bench.device(0, NAME);
    write_command(&kernel, 0, 7);
    write_command(&kernel, COMMAND, 8);
    mailbox::set_head(&kernel, 2 * COMMAND);
    let (device, mut consumer) = bench.find(NAME).open().unwrap();
    let (first, second) = (take(&mut consumer), take(&mut consumer));
    consumer.complete(second, Response::good());
    let _ = consumer.commit();
    // Dead: the first one's entry is overwritten, and the second one's stands there, answered.
    Box::leak(Box::new(first));
    drop((device, consumer));
    assert_eq!(mailbox::tail(&kernel), COMMAND);
    assert_eq!(standing(&bench), Standing::Unknown);

    // The kernel's reset_ring.
    mailbox::set_head(&kernel, 0);
    mailbox::set_tail(&kernel, 0);
    assert_eq!(standing(&bench), Standing::Unknown, "whoever resets knows that it did");
    let (_device, mut consumer) = bench.find(NAME).open().unwrap();
    assert!(matches!(consumer.next(), Err(NextError::Empty)));
    assert!(consumer.leave());
}

#[test]
fn a_ring_that_somebody_else_has_had_since_is_unknown() {
    let bench = Bench::new();
    let kernel = bench.device(0, NAME);
    let (device, mut consumer) = bench.find(NAME).open().unwrap();
    assert!(consumer.leave());
    drop((device, consumer));
    assert!(matches!(standing(&bench), Standing::Left(_)));
    mailbox::set_head(&kernel, COMMAND);
    assert!(matches!(standing(&bench), Standing::Left(_)), "only the kernel has done something");
    mailbox::set_tail(&kernel, COMMAND);
    assert_eq!(standing(&bench), Standing::Unknown);
}

#[test]
fn a_ring_says_how_full_it_is() {
    let bench = Bench::new();
    let kernel = bench.device(0, NAME);
    let (_device, mut consumer) = bench.find(NAME).open().unwrap();
    let data = len() - PAGE;
    let empty = RingUsage { ring: RING.size.into(), ring_in_use: 0, data, data_in_use: 0 };
    assert_eq!(consumer.usage(), empty);
    write_command(&kernel, 0, 7);
    // One iovec, of 512 bytes at the start of the data area.
    for (word, value) in [(8, 1), (48, PAGE as u32), (56, 512)] {
        kernel.store(RING.offset(word), value, Ordering::Relaxed);
    }
    mailbox::set_head(&kernel, COMMAND);
    let command = take(&mut consumer);
    assert_eq!(consumer.usage(), RingUsage { ring_in_use: COMMAND.into(), data_in_use: 512, ..empty });
    consumer.complete(command, Response::good());
    let _ = consumer.commit();
    assert_eq!(consumer.usage(), empty);
}
