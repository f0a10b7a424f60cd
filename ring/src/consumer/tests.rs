//! The consumer over a ring that the test writes word by word, as any producer might.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::protocol::{Geometry, mailbox};
use crate::shm::{Mapping, Words, create_sealed};
use crate::{
    Command, Consumer, Corrupt, Doorbell, Entry, Kick, NextError, Nexus, OpenError, Response,
    TaskManagementKind, abi,
};

const RING: Geometry = Geometry { base: 128, size: 4096 - 128 };
const LEN: usize = 5 * 4096;

/// A ring written by hand; every capability unless said otherwise.
struct Bench {
    memory: Arc<Mapping>,
    head: u32,
}

impl Bench {
    fn with_flags(flags: u16) -> (Self, Consumer) {
        let memory = Arc::new(Mapping::new(&create_sealed(LEN as u64).unwrap(), LEN).unwrap());
        mailbox::initialise(&*memory, 2, flags, RING);
        let consumer = Consumer::over(Arc::clone(&memory)).unwrap();
        (Self { memory, head: 0 }, consumer)
    }

    fn new() -> (Self, Consumer) {
        Self::with_flags(0xf)
    }

    fn put(&self, at: u32, words: &[u32]) {
        for (offset, word) in (RING.offset(at)..).step_by(4).zip(words) {
            self.memory.store(offset, *word, Ordering::Relaxed);
        }
    }

    fn get(&self, at: u32, word: u32) -> u32 {
        self.memory.load(RING.offset(at) + word, Ordering::Relaxed)
    }

    /// A command of 128 bytes with up to four iovecs and room for 16 bytes of CDB.
    fn command(&mut self, id: u16, cdb: &[u8], iovecs: &[(u32, u32)]) -> u32 {
        let at = self.head;
        let mut words = [0; 32];
        (words[0], words[1], words[2]) = (128 | abi::op::CMD, u32::from(id), iovecs.len() as u32);
        words[6] = RING.offset(at) + 112;
        for (iovec, (base, len)) in words[12..].chunks_mut(4).zip(iovecs) {
            (iovec[0], iovec[2]) = (*base, *len);
        }
        for (word, bytes) in words[28..].iter_mut().zip(cdb.chunks(4)) {
            let mut four = [0; 4];
            four[..bytes.len()].copy_from_slice(bytes);
            *word = u32::from_ne_bytes(four);
        }
        self.put(at, &words);
        self.advance(128);
        at
    }

    fn advance(&mut self, len: u32) {
        self.head = RING.advance(self.head, len);
        mailbox::set_head(&*self.memory, self.head);
    }
}

fn take(consumer: &mut Consumer) -> Command {
    match consumer.next() {
        Ok(Entry::Command(command)) => command,
        other => panic!("{other:?}"),
    }
}

fn cause(consumer: &mut Consumer) -> Corrupt {
    let Err(NextError::Corrupt(cause)) = consumer.next() else { panic!("not corrupt") };
    assert!(
        matches!(consumer.next(), Err(NextError::Corrupt(again)) if again == cause),
        "it did not stay corrupt"
    );
    cause
}

#[test]
fn passes_over_a_pad_of_8_bytes_and_answers_in_the_next_slot() {
    let (mut ring, mut consumer) = Bench::new();
    ring.put(0, &[8 | abi::op::PAD, 0]);
    ring.advance(8);
    let at = ring.command(9, &[0; 6], &[]);
    let command = take(&mut consumer);
    consumer.complete(command, Response::status(8));
    assert_eq!(consumer.commit(), Kick::Needed);
    assert_eq!((ring.get(at, 0), ring.get(at, 4), ring.get(at, 8)), (128 | 1, 9, 8));
    assert_eq!(mailbox::tail(&*ring.memory), 136);
}

#[test]
fn an_unknown_entry_is_marked_and_passed_over() {
    let (mut ring, mut consumer) = Bench::new();
    ring.put(0, &[24 | 5, 3]);
    ring.advance(24);
    assert!(matches!(consumer.next(), Err(NextError::Empty)));
    assert_eq!(ring.get(0, 4) >> 24, u32::from(abi::UFLAG_UNKNOWN_OP));
    assert_eq!(consumer.commit(), Kick::Needed);
    assert_eq!(mailbox::tail(&*ring.memory), 24);
}

#[test]
fn an_answer_takes_the_slot_at_the_tail_and_leaves_its_length_alone() {
    let (mut ring, mut consumer) = Bench::new();
    let (first, second) = (ring.command(1, &[0; 6], &[]), ring.command(2, &[0; 6], &[]));
    let commands = [take(&mut consumer), take(&mut consumer)];
    // What the producer writes there afterwards is not believed.
    ring.put(first, &[8]);
    let [one, two] = commands;
    consumer.complete(two, Response::check_condition(&[0x72, 5]));
    consumer.complete(one, Response::good());
    assert_eq!(consumer.commit(), Kick::Needed);
    assert_eq!((ring.get(first, 0), ring.get(first, 4), ring.get(first, 8)), (8, 2, 2));
    assert_eq!(ring.get(first, 16) & 0xffff, 0x0572);
    assert_eq!(ring.get(first, 108), 0, "sense is padded with zeros, not with what stood there");
    assert_eq!((ring.get(second, 4), ring.get(second, 8)), (1, 0));
    assert_eq!(mailbox::tail(&*ring.memory), 256);
}

#[test]
fn nothing_is_read_again_after_it_was_taken() {
    let (mut ring, mut consumer) = Bench::new();
    let at = ring.command(7, &[0x88, 1, 2], &[(8192, 100)]);
    let command = take(&mut consumer);
    ring.put(at, &[u32::MAX; 32]);
    assert_eq!((command.id(), command.nexus()), (7, Nexus::UNKNOWN));
    assert_eq!(command.cdb()[..3], [0x88, 1, 2]);
    assert_eq!((command.cdb().len(), command.data().len()), (16, 100));
    consumer.complete(command, Response::good());
}

#[test]
fn a_variable_length_cdb_ends_at_the_end_of_its_entry() {
    let (mut ring, mut consumer) = Bench::new();
    ring.command(1, &[0x7f, 0, 0, 0, 0, 0, 0, 200], &[]);
    let command = take(&mut consumer);
    assert_eq!(command.cdb().len(), 16);
    consumer.complete(command, Response::good());
}

#[test]
fn read_len_says_how_much_is_valid() {
    let (mut ring, mut consumer) = Bench::new();
    let at = ring.command(1, &[0x12], &[(4096, 255)]);
    ring.memory.fill(4096, 255, 0xee);
    let command = take(&mut consumer);
    command.data().copy_in(0, &[1; 36]);
    consumer.complete(command, Response::good_with(36));
    assert_eq!((ring.get(at, 4) >> 24, ring.get(at, 12)), (u32::from(abi::UFLAG_READ_LEN), 36));
}

#[test]
fn stale_bytes_are_zeroed_where_read_len_does_not_count() {
    let stale_with = |flags, response: Response, bidirectional: bool, direction: u32| {
        let (mut ring, mut consumer) = Bench::with_flags(flags);
        let at = ring.command(1, &[0x12], &[(4096, 255), (8192, 255)]);
        if bidirectional {
            ring.put(at + 8, &[1, 1]);
        }
        ring.put(at + 40, &[direction]);
        ring.memory.fill(4096, 8192, 0xee);
        let command = take(&mut consumer);
        consumer.complete(command, response);
        let mut data = [0; 510];
        ring.memory.copy_out(4096, &mut data[..255]);
        ring.memory.copy_out(8192, &mut data[255..]);
        data.iter().filter(|byte| **byte == 0xee).count()
    };
    let stale = |flags, response, bidirectional| stale_with(flags, response, bidirectional, 0);
    assert_eq!(stale(0xf, Response::good_with(300), false), 510, "READ_LEN counts: nothing to do");
    assert_eq!(stale(0xf, Response::good_with(0), false), 0, "a length of 0 counts as none");
    assert_eq!(stale(1, Response::good_with(300), false), 300, "no capability");
    assert_eq!(stale(1, Response::good(), false), 510, "all of it is valid");
    assert_eq!(stale(0xf, Response::good_with(5), true), 255 + 5, "bidirectional: only data-in, but always");
    assert_eq!(stale(0xf, Response::status(8), false), 0, "an error fills nothing");
    assert_eq!(stale(0xf, Response::check_condition(&[0x70]), false), 510, "no peer sends data with sense");
    assert_eq!(stale_with(0xf, Response::status(8), false, 1), 0, "known to be data-in");
    assert_eq!(
        stale_with(0xf, Response::status(8), false, 2),
        510,
        "known to be data-out: nothing goes back"
    );
    assert_eq!(
        stale_with(0xf, Response::status(8), true, 2),
        255,
        "but data-in of a bidirectional command does"
    );
}

#[test]
fn every_nonsense_has_its_name_and_place() {
    let broken = |offset: u32, value: u32| {
        let (mut ring, mut consumer) = Bench::new();
        let at = ring.command(1, &[0; 6], &[(4096, 10)]);
        ring.put(at + offset, &[value]);
        cause(&mut consumer)
    };
    assert_eq!(broken(0, 136 | 1), Corrupt::EntryLength { at: 0, len: 136, available: 128 });
    assert_eq!(broken(0, 1), Corrupt::EntryLength { at: 0, len: 0, available: 128 });
    assert_eq!(
        broken(0, 104 | 1),
        Corrupt::CommandLength { at: 0, len: 104, least: 112, most: RING.size / 2 }
    );
    assert_eq!(broken(8, 6), Corrupt::IovecCount { at: 0, count: 6, most: 5 });
    assert_eq!(broken(12, u32::MAX), Corrupt::IovecCount { at: 0, count: 1 + u64::from(u32::MAX), most: 5 });
    assert_eq!(broken(48, 4088), Corrupt::Iovec { at: 0, index: 0, base: 4088, len: 10 });
    assert_eq!(broken(60, 1), Corrupt::Iovec { at: 0, index: 0, base: 4096, len: (1 << 32) + 10 });
    assert_eq!(broken(24, RING.base + 128), Corrupt::CdbOffset { at: 0, cdb_off: 256 });
    assert_eq!(broken(24, RING.base + 56), Corrupt::CdbOffset { at: 0, cdb_off: 184 });
}

#[test]
fn a_head_outside_or_behind_is_corrupt() {
    for head in [RING.size, u32::MAX, 4] {
        let (ring, mut consumer) = Bench::new();
        mailbox::set_head(&*ring.memory, head);
        assert_eq!(cause(&mut consumer), Corrupt::Head { head, size: RING.size });
    }
    let (mut ring, mut consumer) = Bench::new();
    ring.command(1, &[0; 6], &[]);
    let command = take(&mut consumer);
    mailbox::set_head(&*ring.memory, 64);
    assert_eq!(cause(&mut consumer), Corrupt::HeadOvertakes { head: 64, consumed: 128, tail: 0 });
    consumer.complete(command, Response::good());
    assert_eq!(consumer.commit(), Kick::Needed, "what was taken is still answered");
}

#[test]
fn one_id_twice_in_flight_is_corrupt() {
    let (mut ring, mut consumer) = Bench::new();
    ring.command(5, &[0; 6], &[]);
    ring.command(5, &[0; 6], &[]);
    let command = take(&mut consumer);
    assert_eq!(cause(&mut consumer), Corrupt::DuplicateId { at: 128, id: 5 });
    consumer.complete(command, Response::good());
}

#[test]
fn a_notice_that_counts_more_ids_than_it_holds_is_corrupt() {
    let (mut ring, mut consumer) = Bench::new();
    ring.put(0, &[40 | abi::op::TMR, 0, 5, 5, 0, 0, 0, 0, 0x0002_0001, 0x0004_0003]);
    ring.advance(40);
    assert_eq!(cause(&mut consumer), Corrupt::TaskManagement { at: 0, len: 40, count: 5 });
    let (mut ring, mut consumer) = Bench::new();
    ring.put(0, &[40 | abi::op::TMR, 0, 128, 3, 0, 0, 0, 0, 0x0002_0001, 0x0004_0003]);
    ring.advance(40);
    let Ok(Entry::TaskManagement(notice)) = consumer.next() else { panic!("no notice") };
    assert_eq!(
        (notice.kind, notice.ids.as_slice()),
        (TaskManagementKind::AbortTaskSet, [1, 2, 3].as_slice())
    );
}

#[test]
#[should_panic(expected = "dropped without an answer")]
fn dropping_a_command_is_a_bug() {
    let (mut ring, mut consumer) = Bench::new();
    ring.command(1, &[0; 6], &[]);
    drop(take(&mut consumer));
}

#[test]
fn a_dropped_command_is_answered_with_an_internal_failure() {
    let (mut ring, mut consumer) = Bench::new();
    let at = ring.command(1, &[0; 6], &[(4096, 10)]);
    let command = take(&mut consumer);
    let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(command)));
    assert!(dropped.is_err());
    assert_eq!(consumer.outstanding(), 1);
    assert_eq!(consumer.commit(), Kick::Needed);
    assert_eq!((ring.get(at, 4), ring.get(at, 8)), (1, 2));
    assert_eq!(
        (ring.get(at, 16) & 0xff, ring.get(at, 16) >> 16 & 0xf, ring.get(at, 28) & 0xff),
        (0x70, 4, 0x44)
    );
    assert_eq!(consumer.outstanding(), 0);
}

#[test]
fn a_command_of_another_ring_is_not_answered_here() {
    let (mut ring, mut consumer) = Bench::new();
    let (_other_ring, mut other) = Bench::new();
    ring.command(1, &[0; 6], &[]);
    let command = take(&mut consumer);
    let refused =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| other.complete(command, Response::good())));
    assert!(refused.is_err());
    assert_eq!(other.commit(), Kick::Unneeded);
    assert_eq!(consumer.commit(), Kick::Needed, "its own ring answers it");
}

#[derive(Default)]
struct Count(AtomicUsize);

impl Doorbell for Count {
    fn ring(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn an_answer_waits_until_nobody_can_reach_the_buffer() {
    let (mut ring, mut consumer) = Bench::new();
    let bell = Arc::new(Count::default());
    consumer.set_release_doorbell(bell.clone());
    let first = ring.command(1, &[0; 6], &[(4096, 100)]);
    let second = ring.command(2, &[0; 6], &[(8192, 100)]);
    let (one, two) = (take(&mut consumer), take(&mut consumer));
    let in_disk = one.data().slice(10, 5);
    consumer.complete(one, Response::good_with(0));
    consumer.complete(two, Response::good());
    assert_eq!(consumer.commit(), Kick::Needed);
    assert_eq!((ring.get(first, 4), mailbox::tail(&*ring.memory)), (2, 128), "the other one is not held up");
    assert_eq!((consumer.withheld(), consumer.outstanding()), (1, 1));
    in_disk.fill(0, 5, 0xee);
    assert_eq!(bell.0.load(Ordering::Relaxed), 0);
    drop(in_disk);
    assert_eq!(bell.0.load(Ordering::Relaxed), 1);
    assert_eq!(consumer.commit(), Kick::Needed);
    assert_eq!(ring.get(second, 4) & 0xffff, 1);
    let mut data = [1; 100];
    ring.memory.copy_out(4096, &mut data);
    assert_eq!(data, [0; 100], "zeroed after the last write, not before");
}

#[test]
fn a_ring_that_does_not_fit_its_file_is_refused() {
    let memory = Arc::new(Mapping::new(&create_sealed(LEN as u64).unwrap(), LEN).unwrap());
    let open = |version, flags, base, size| {
        mailbox::initialise(&*memory, version, flags, Geometry { base, size });
        Consumer::over(Arc::clone(&memory)).err()
    };
    assert!(matches!(open(1, 1, 128, 3968), Some(OpenError::Version(1))));
    assert!(matches!(open(2, 2, 128, 3968), Some(OpenError::Capabilities(2))));
    for (base, size) in [(128, 0), (128, LEN as u32), (120, 400), (132, 400), (128, 401), (u32::MAX - 7, 400)]
    {
        assert!(matches!(open(2, 1, base, size), Some(OpenError::Layout { .. })), "{base} {size}");
    }
    assert!(open(2, 1, 128, 3968).is_none());
}
