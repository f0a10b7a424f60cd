//! The disk contract (`rbdgate::disk`), run against every store that needs no cluster. Buffers here are the gateway's own;
//! segments of a data area are driven through the same stores by the lane tests.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use rbdgate::disk::fault::{Fault, Settings, Verdict};
use rbdgate::disk::file::{FileDisk, Options, Workers};
use rbdgate::disk::memory::Memory;
use rbdgate::disk::{
    Buffer, Completer, Completion, CompletionQueue, Disk, Error, Operation, Outcome, Request,
};
use tempfile::TempDir;

const SIZE: u64 = 4 << 20;
const BLOCK: usize = 512;

/// Collects completions of any thread.
#[derive(Default)]
struct Inbox {
    done: Mutex<Vec<Completion>>,
    more: Condvar,
}

impl CompletionQueue for Inbox {
    fn push(&self, completion: Completion) {
        self.done.lock().unwrap().push(completion);
        self.more.notify_all();
    }
}

impl Inbox {
    fn take(&self, tag: u64) -> Completion {
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut done = self.done.lock().unwrap();
        loop {
            if let Some(index) = done.iter().position(|completion| completion.tag == tag) {
                return done.swap_remove(index);
            }
            let left =
                deadline.checked_duration_since(Instant::now()).expect("no completion within a minute");
            done = self.more.wait_timeout(done, left).unwrap().0;
        }
    }
}

struct Bench {
    disk: Arc<dyn Disk>,
    inbox: Arc<Inbox>,
    next: u64,
    _folder: Option<TempDir>,
}

impl Bench {
    fn new(disk: Arc<dyn Disk>, folder: Option<TempDir>) -> Self {
        Self { disk, inbox: Arc::default(), next: 0, _folder: folder }
    }

    fn start(&mut self, request: Request) -> u64 {
        self.next += 1;
        let queue: Arc<dyn CompletionQueue> = Arc::clone(&self.inbox) as _;
        self.disk.submit(Operation { request, completer: Completer::new(queue, self.next) });
        self.next
    }

    fn run(&mut self, request: Request) -> Result<Outcome, Error> {
        let tag = self.start(request);
        self.inbox.take(tag).result
    }

    fn read(&mut self, offset: u64, len: usize) -> Vec<u8> {
        // The buffer starts with garbage: what a store does not fill shows.
        let tag = self.start(Request::Read { offset, buffer: Buffer::Owned(vec![0xee; len]) });
        let completion = self.inbox.take(tag);
        completion.result.unwrap();
        completion.buffer.expect("an owned buffer comes back")
    }

    fn write(&mut self, offset: u64, bytes: Vec<u8>) {
        self.run(Request::Write { offset, buffer: Buffer::Owned(bytes), fua: false }).unwrap();
    }
}

/// Every store, each with its name.
fn stores() -> Vec<(&'static str, Bench)> {
    let folder = TempDir::new().unwrap();
    let options = Options {
        path: folder.path().join("disk.img"),
        block_size: BLOCK as u32,
        create: Some(SIZE),
        read_only: false,
    };
    let file = FileDisk::open(&options, &Workers::start(4).unwrap()).unwrap();
    let jitter = Settings { jitter: Duration::from_millis(1), seed: 7, ..Settings::default() };
    let slow = Fault::new(Arc::new(Memory::new(SIZE, BLOCK as u32)), jitter).unwrap();
    vec![
        ("memory", Bench::new(Arc::new(Memory::new(SIZE, BLOCK as u32)), None)),
        ("file", Bench::new(Arc::new(file), Some(folder))),
        ("fault", Bench::new(Arc::new(slow), None)),
    ]
}

fn each_store(check: impl Fn(&str, &mut Bench)) {
    for (name, mut bench) in stores() {
        check(name, &mut bench);
    }
}

fn pattern(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|index| (index as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}

#[test]
fn what_was_never_written_reads_as_zeros() {
    each_store(|name, bench| assert_eq!(bench.read(SIZE - 8192, 8192), [0; 8192], "{name}"));
}

#[test]
fn what_was_written_is_read_back_across_any_border() {
    each_store(|name, bench| {
        let bytes = pattern(1, 200 * 1024);
        bench.write(63 * 1024, bytes.clone());
        assert!(bench.read(63 * 1024, bytes.len()) == bytes, "{name}");
        assert_eq!(bench.read(62 * 1024, 1024), [0; 1024], "{name}");
        assert_eq!(bench.read(263 * 1024, 1024), [0; 1024], "{name}");
    });
}

#[test]
fn refuses_a_range_outside_the_disk_and_gives_the_buffer_back() {
    each_store(|name, bench| {
        for offset in [SIZE, SIZE - 512, u64::MAX - 1023] {
            let tag = bench.start(Request::Read { offset, buffer: Buffer::Owned(vec![0; 1024]) });
            let completion = bench.inbox.take(tag);
            assert_eq!(completion.result.unwrap_err(), Error::OutOfRange, "{name} {offset}");
            assert_eq!(completion.buffer.map(|buffer| buffer.len()), Some(1024), "{name}");
        }
    });
}

#[test]
fn write_same_repeats_its_pattern_over_the_whole_range() {
    each_store(|name, bench| {
        let block = pattern(9, BLOCK);
        let len = 3 << 20;
        bench.run(Request::WriteSame { offset: 1024, len, pattern: block.clone(), fua: true }).unwrap();
        assert!(bench.read(1024, len as usize).chunks(BLOCK).all(|chunk| chunk == block), "{name}");
        assert_eq!(bench.read(1024 + len, 512), [0; 512], "{name}");
    });
}

#[test]
fn zeroed_and_discarded_ranges_read_as_zeros_to_the_byte() {
    each_store(|name, bench| {
        let requests = [
            Request::WriteZeroes { offset: 5120, len: 150 * 1024, deallocate: false },
            Request::WriteZeroes { offset: 5120, len: 150 * 1024, deallocate: true },
            Request::Discard { offset: 5120, len: 150 * 1024 },
        ];
        for request in requests {
            bench.write(0, pattern(3, 256 * 1024));
            bench.run(request).unwrap();
            let mut expected = pattern(3, 256 * 1024);
            expected[5120..5120 + 150 * 1024].fill(0);
            assert!(bench.read(0, 256 * 1024) == expected, "{name}");
        }
    });
}

#[test]
fn an_allocation_answer_covers_the_range_in_order_and_finds_the_data() {
    each_store(|name, bench| {
        bench.write(1 << 20, vec![1; 128 * 1024]);
        let request = Request::Allocation { offset: 512, len: SIZE - 512, limit: 100 };
        let extents = bench.run(request).unwrap().extents;
        assert_eq!(extents.first().map(|extent| extent.range.start), Some(512), "{name}");
        assert!(extents.windows(2).all(|pair| pair[0].range.end == pair[1].range.start), "{name}");
        assert_eq!(extents.last().map(|extent| extent.range.end), Some(SIZE), "{name}");
        let allocated: Vec<_> = extents.iter().filter(|extent| extent.allocated).collect();
        assert!(allocated.len() == 1 && allocated[0].range.contains(&(1 << 20)), "{name}: {extents:?}");
        let request = Request::Allocation { offset: 0, len: SIZE, limit: 1 };
        assert_eq!(bench.run(request).unwrap().extents.len(), 1, "{name}");
    });
}

#[test]
fn many_requests_in_flight_are_each_completed_once() {
    each_store(|name, bench| {
        let tags: Vec<_> = (0..256u64)
            .map(|index| {
                let buffer = Buffer::Owned(pattern(index as u8, 4096));
                bench.start(Request::Write { offset: index * 4096, buffer, fua: index % 64 == 0 })
            })
            .collect();
        for tag in tags {
            assert!(bench.inbox.take(tag).result.is_ok(), "{name}");
        }
        bench.run(Request::Flush).unwrap();
        for index in 0..256u64 {
            assert!(bench.read(index * 4096, 4096) == pattern(index as u8, 4096), "{name} {index}");
        }
        assert!(bench.inbox.done.lock().unwrap().is_empty(), "{name}: a second completion");
    });
}

#[test]
fn a_closed_disk_has_completed_everything_and_takes_nothing_more() {
    each_store(|name, bench| {
        let tags: Vec<_> = (0..64u64)
            .map(|index| {
                let buffer = Buffer::Owned(vec![1; 4096]);
                bench.start(Request::Write { offset: index * 4096, buffer, fua: false })
            })
            .collect();
        bench.disk.close();
        assert_eq!(bench.inbox.done.lock().unwrap().len(), tags.len(), "{name}");
        assert_eq!(bench.run(Request::Flush).unwrap_err(), Error::NotReady, "{name}");
    });
}

#[test]
fn compare_and_write_changes_the_disk_only_on_a_match() {
    let mut bench = Bench::new(Arc::new(Memory::new(SIZE, BLOCK as u32)), None);
    let offset = 64 * 1024 - 512;
    let request = |compare: Vec<u8>, byte| {
        let write = vec![byte; compare.len()];
        Request::CompareAndWrite { offset, compare, write, fua: false }
    };
    bench.run(request(vec![0; 1024], 5)).unwrap();
    let mut wrong = vec![5; 1024];
    wrong[700] = 4;
    assert_eq!(bench.run(request(wrong, 6)).unwrap_err(), Error::Miscompare(700));
    assert_eq!(bench.read(offset, 1024), [5; 1024]);
}

#[test]
fn a_withheld_request_is_carried_out_only_when_it_is_released() {
    let fault = Arc::new(Fault::new(Arc::new(Memory::new(SIZE, 512)), Settings::default()).unwrap());
    let mut bench = Bench::new(Arc::clone(&fault) as _, None);
    fault.set_rule(Some(Box::new(|request| match request {
        Request::Write { .. } => Verdict::Withhold,
        Request::Flush => Verdict::Fail(Error::NoSpace),
        _ => Verdict::Pass,
    })));
    let tag = bench.start(Request::Write { offset: 0, buffer: Buffer::Owned(vec![8; 512]), fua: false });
    assert_eq!(bench.run(Request::Flush).unwrap_err(), Error::NoSpace);
    assert_eq!((bench.read(0, 512), fault.withheld()), (vec![0; 512], 1));
    assert_eq!(fault.release(), 1);
    bench.inbox.take(tag).result.unwrap();
    assert_eq!(bench.read(0, 512), [8; 512]);
}

#[test]
fn errors_come_at_the_rate_asked_for_and_the_same_every_time() {
    let run = || {
        let settings = Settings { errors: Some((250_000, Error::Io(5))), seed: 42, ..Settings::default() };
        let mut bench =
            Bench::new(Arc::new(Fault::new(Arc::new(Memory::new(SIZE, 512)), settings).unwrap()), None);
        (0..1000).map(|_| bench.run(Request::Flush).is_err()).collect::<Vec<_>>()
    };
    let failed = run();
    assert!((150..350).contains(&failed.iter().filter(|failed| **failed).count()));
    assert_eq!(failed, run());
}

#[test]
fn latency_and_the_shared_pipe_bound_when_a_request_may_be_answered() {
    let settings =
        Settings { latency: Duration::from_millis(30), bandwidth: Some(10 << 20), ..Settings::default() };
    let mut bench =
        Bench::new(Arc::new(Fault::new(Arc::new(Memory::new(SIZE, 512)), settings).unwrap()), None);
    let start = Instant::now();
    bench.read(0, 512);
    assert!(start.elapsed() >= Duration::from_millis(30));
    let start = Instant::now();
    let tags: Vec<_> = (0..8)
        .map(|_| bench.start(Request::Read { offset: 0, buffer: Buffer::Owned(vec![0; 128 * 1024]) }))
        .collect();
    for tag in tags {
        bench.inbox.take(tag).result.unwrap();
    }
    assert!(start.elapsed() >= Duration::from_millis(100), "8 x 128 KiB at 10 MiB/s take 100 ms");
}

/// One step of a random script: kind, block, blocks, byte.
fn script() -> impl Strategy<Value = Vec<(u8, u64, u64, u8)>> {
    prop::collection::vec((0..5u8, 0..2048u64, 1..300u64, any::<u8>()), 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn any_script_leaves_the_same_bytes_as_a_plain_array(script in script()) {
        for (name, mut bench) in stores().into_iter().take(2) {
            let mut model = vec![0u8; 2400 * BLOCK];
            for (kind, block, blocks, byte) in &script {
                let (offset, len) = (block * BLOCK as u64, blocks * BLOCK as u64);
                let place = &mut model[offset as usize..(offset + len) as usize];
                let request = match kind {
                    0 | 1 => Request::Write { offset, buffer: Buffer::Owned(vec![*byte; len as usize]), fua: *kind == 1 },
                    2 => Request::WriteSame { offset, len, pattern: vec![*byte; BLOCK], fua: false },
                    3 => Request::Discard { offset, len },
                    _ => Request::WriteZeroes { offset, len, deallocate: byte % 2 == 0 },
                };
                place.fill(if *kind < 3 { *byte } else { 0 });
                bench.run(request).unwrap();
            }
            prop_assert!(bench.read(0, model.len()) == model, "{}", name);
        }
    }
}
