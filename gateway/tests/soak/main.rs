//! The soak: sixteen connections over real TCP against a gateway in this process, with a file behind it. Random sizes and
//! offsets, every read verified, sessions cut off at random in the middle of their commands. Afterwards nothing may be
//! left: no command, no block, no descriptor, no memory above its floor; and no byte of payload may have been copied.
//!
//! `RBDGATE_SOAK_SECONDS` says how long (10). `containers/dev/soak` does the same to the built program, with RBD too.

#![expect(clippy::unwrap_used, reason = "a test")]

#[expect(dead_code, reason = "the portal's tests use the rest")]
#[path = "../portal/kit/mod.rs"]
mod kit;
mod worker;

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rbdgate::disk::Disk;
use rbdgate::disk::file::{FileDisk, Options, Workers};
use tempfile::TempDir;

use kit::{Bench, Setup, eventually};
use worker::{REGION, Worker};

const CONNECTIONS: u64 = 16;
const MIB: u64 = 1 << 20;

/// A figure of `/proc/self/status`, in bytes.
fn memory(figure: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(figure)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn seconds() -> u64 {
    std::env::var("RBDGATE_SOAK_SECONDS").map_or(10, |text| text.parse().unwrap())
}

#[test]
fn after_hours_of_abuse_in_seconds_no_byte_is_wrong_and_nothing_is_left() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("disk.img");
    let size = CONNECTIONS * REGION as u64;
    let options = Options { path, block_size: 512, create: Some(size), read_only: false };
    let disk: Arc<dyn Disk> = Arc::new(FileDisk::open(&options, &Workers::start_default().unwrap()).unwrap());
    // Sixteen connections want up to 64 MiB at a time: the pool is what they compete for.
    let bench = Bench::with(Setup { disk: Some(disk), lanes: true, pool: 24 * MIB, ..Setup::default() });
    let (files, shared, own) = (descriptors(), memory("RssShmem:"), memory("RssAnon:"));

    let deadline = Instant::now() + Duration::from_secs(seconds());
    let workers: Vec<_> = (0..CONNECTIONS)
        .map(|number| {
            let address = bench.address;
            thread::spawn(move || Worker::new(number, address).run(deadline))
        })
        .collect();
    let mut most = 0;
    while workers.iter().any(|worker| !worker.is_finished()) {
        most = most.max(bench.pool.usage().charged);
        thread::sleep(Duration::from_millis(50));
    }
    let done: Vec<_> = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
    let (commands, cuts) = done.iter().fold((0, 0), |sum, done| (sum.0 + done.commands, sum.1 + done.cuts));
    println!("{commands} commands, {cuts} sessions cut off, at most {} KiB of the pool", most >> 10);
    assert!(
        done.iter().all(|done| done.commands > 0) && cuts > 0,
        "every connection worked, some were cut off"
    );
    assert!(most > 2 * MIB, "the area grew under load: {most}");

    eventually("sessions or nexuses are left", || {
        bench.server().sessions().is_empty() && bench.nexuses.is_empty()
    });
    eventually("commands are left", || bench.lanes.iter().all(|lane| lane.stats().in_flight == 0));
    bench.wait_idle();
    eventually("descriptors are left", || descriptors() <= files);
    eventually("memory is left", || {
        bench.pool.reclaim_idle(Duration::ZERO);
        bench.pool.usage().charged <= MIB && memory("RssShmem:") <= shared + MIB
    });
    let grown = memory("RssAnon:").saturating_sub(own);
    println!("{} KiB of private memory more than before the first session", grown >> 10);
    // The initiators live in this process too: sixteen threads with buffers of a mebibyte leave their heaps behind.
    assert!(grown < 64 * MIB, "{grown}");
    let usage = bench.pool.usage();
    assert_eq!((usage.in_use, usage.reserved, usage.waiting_luns), (0, 0, 0), "{usage:?}");
    let copied = bench.lanes.iter().map(|lane| lane.stats().bytes_copied).sum::<u64>();
    assert_eq!((copied, bench.server().stats().bytes_copied), (0, 0));
}
