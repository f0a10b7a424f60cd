//! What a lane counts. One writer, the lane's task; anybody may take a snapshot at any time.
//!
//! Counters only grow; *gauges* (in flight, held back) are the value of the moment. A snapshot is not one instant: a
//! command may be counted in one figure and not yet in another.

use std::iter::Sum;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ring::RingUsage;

use crate::scsi::opcode::Class;

/// Upper bounds of the latency buckets, microseconds; a last bucket takes what is slower.
pub const LATENCY_BOUNDS: [u64; 15] = [
    50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000,
    5_000_000,
];

const CLASSES: usize = Class::ALL.len();

/// A snapshot.
#[derive(Clone, Debug)]
pub struct Stats {
    /// Commands taken from the ring, by operation code.
    pub commands: Vec<(u8, u64)>,
    /// Commands answered.
    pub answered: u64,
    /// Answers by SAM status other than GOOD.
    pub failed: Vec<(u8, u64)>,
    /// CHECK CONDITIONs by sense key.
    pub sense_keys: [u64; 16],
    /// Payload bytes of commands answered GOOD, from disk to initiator.
    pub bytes_read: u64,
    /// Payload bytes of commands answered GOOD, from initiator to disk.
    pub bytes_written: u64,
    /// Payload bytes of READ and WRITE that went through memory of the gateway's own. Only an initiator whose buffer ends
    /// within a block makes them more than 0.
    pub bytes_copied: u64,
    /// From taking a command to answering it, by [`Class::index`].
    pub latency: [Latency; CLASSES],
    /// Commands taken and not answered (gauge).
    pub in_flight: u64,
    /// Of them, those that wait for a range (gauge).
    pub held_back: u64,
    /// How full the ring was at the end of the last turn (gauge).
    pub ring: RingUsage,
    /// Commands ended by task management.
    pub aborted: u64,
    /// Completions that nobody waited for; a store that breaks its contract.
    pub stray: u64,
    /// Times the lane published answers; `answered / commits` is the mean batch.
    pub commits: u64,
    /// The ring was found corrupt, and the lane takes no more from it.
    pub corrupt: bool,
    /// The lane has panicked, and answers everything with an error.
    pub wrecked: bool,
}

/// How busy a lane is, or all lanes together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Commands answered.
    pub answered: u64,
    /// Commands taken and not answered (gauge).
    pub in_flight: u64,
    /// The time that answered commands took, each from being taken, all together.
    pub busy: Duration,
}

impl Sum for Load {
    fn sum<I: Iterator<Item = Self>>(loads: I) -> Self {
        loads.fold(Self::default(), |all, load| Self {
            answered: all.answered + load.answered,
            in_flight: all.in_flight + load.in_flight,
            busy: all.busy + load.busy,
        })
    }
}

/// A histogram of durations.
#[derive(Clone, Debug, Default)]
pub struct Latency {
    /// Answers per bucket of [`LATENCY_BOUNDS`], and the slower ones.
    pub buckets: [u64; LATENCY_BOUNDS.len() + 1],
    /// All durations together.
    pub sum: Duration,
}

impl Latency {
    /// Answers in all buckets.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

/// One figure with one writer, so a plain load and store is enough to add.
#[derive(Debug, Default)]
pub(super) struct Figure(AtomicU64);

impl Figure {
    pub(super) fn add(&self, amount: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
    }

    pub(super) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// [`RingUsage`], figure by figure.
#[derive(Debug, Default)]
pub(super) struct Usage {
    ring: Figure,
    ring_in_use: Figure,
    data: Figure,
    data_in_use: Figure,
}

impl Usage {
    pub(super) fn set(&self, usage: RingUsage) {
        self.ring.set(usage.ring);
        self.ring_in_use.set(usage.ring_in_use);
        self.data.set(usage.data);
        self.data_in_use.set(usage.data_in_use);
    }

    fn get(&self) -> RingUsage {
        RingUsage {
            ring: self.ring.get(),
            ring_in_use: self.ring_in_use.get(),
            data: self.data.get(),
            data_in_use: self.data_in_use.get(),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Histogram {
    buckets: [Figure; LATENCY_BOUNDS.len() + 1],
    count: Figure,
    microseconds: Figure,
}

impl Histogram {
    pub(super) fn observe(&self, took: Duration) {
        let took = took.as_micros() as u64;
        self.buckets[LATENCY_BOUNDS.partition_point(|bound| *bound < took)].add(1);
        self.count.add(1);
        self.microseconds.add(took);
    }
}

/// The figures as the lane keeps them.
#[derive(Debug)]
pub(super) struct Figures {
    pub(super) commands: [Figure; 256],
    pub(super) statuses: [Figure; 256],
    pub(super) sense_keys: [Figure; 16],
    pub(super) bytes_read: Figure,
    pub(super) bytes_written: Figure,
    pub(super) bytes_copied: Figure,
    pub(super) latency: [Histogram; CLASSES],
    pub(super) in_flight: Figure,
    pub(super) held_back: Figure,
    pub(super) ring: Usage,
    pub(super) aborted: Figure,
    pub(super) stray: Figure,
    pub(super) commits: Figure,
    pub(super) corrupt: AtomicBool,
    pub(super) wrecked: AtomicBool,
}

impl Default for Figures {
    fn default() -> Self {
        Self {
            commands: std::array::from_fn(|_| Figure::default()),
            statuses: std::array::from_fn(|_| Figure::default()),
            sense_keys: Default::default(),
            bytes_read: Figure::default(),
            bytes_written: Figure::default(),
            bytes_copied: Figure::default(),
            latency: Default::default(),
            in_flight: Figure::default(),
            held_back: Figure::default(),
            ring: Usage::default(),
            aborted: Figure::default(),
            stray: Figure::default(),
            commits: Figure::default(),
            corrupt: AtomicBool::new(false),
            wrecked: AtomicBool::new(false),
        }
    }
}

impl Figures {
    /// Counts one answer: its status, its sense key if it has sense data, and how long it took.
    pub(super) fn answered(&self, class: Class, status: u8, sense: &[u8], took: Duration) {
        self.statuses[usize::from(status)].add(1);
        if let Some(key) = sense_key(sense) {
            self.sense_keys[usize::from(key)].add(1);
        }
        self.latency[class.index()].observe(took);
    }

    pub(super) fn load(&self) -> Load {
        Load {
            answered: self.latency.iter().map(|latency| latency.count.get()).sum(),
            in_flight: self.in_flight.get(),
            busy: Duration::from_micros(self.latency.iter().map(|latency| latency.microseconds.get()).sum()),
        }
    }

    pub(super) fn snapshot(&self) -> Stats {
        let some = |figures: &[Figure; 256], first: usize| -> Vec<(u8, u64)> {
            let counted =
                figures.iter().enumerate().skip(first).map(|(index, figure)| (index as u8, figure.get()));
            counted.filter(|(_, count)| *count > 0).collect()
        };
        Stats {
            commands: some(&self.commands, 0),
            answered: self.statuses.iter().map(Figure::get).sum(),
            failed: some(&self.statuses, 1),
            sense_keys: std::array::from_fn(|key| self.sense_keys[key].get()),
            bytes_read: self.bytes_read.get(),
            bytes_written: self.bytes_written.get(),
            bytes_copied: self.bytes_copied.get(),
            latency: std::array::from_fn(|class| Latency {
                buckets: std::array::from_fn(|bucket| self.latency[class].buckets[bucket].get()),
                sum: Duration::from_micros(self.latency[class].microseconds.get()),
            }),
            in_flight: self.in_flight.get(),
            held_back: self.held_back.get(),
            ring: self.ring.get(),
            aborted: self.aborted.get(),
            stray: self.stray.get(),
            commits: self.commits.get(),
            corrupt: self.corrupt.load(Ordering::Relaxed),
            wrecked: self.wrecked.load(Ordering::Relaxed),
        }
    }
}

/// The sense key of fixed (70h, 71h) or descriptor (72h, 73h) sense data (SPC-4 4.5).
fn sense_key(sense: &[u8]) -> Option<u8> {
    let at = match sense.first()? & 0x7f {
        0x70 | 0x71 => 2,
        0x72 | 0x73 => 1,
        _ => return None,
    };
    sense.get(at).map(|byte| byte & 0x0f)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_counts_in_the_first_bucket_that_holds_it() {
        let figures = Figures::default();
        for micros in [0, 50, 51, 5_000_000, 5_000_001] {
            figures.answered(Class::Read, 0, &[], Duration::from_micros(micros));
        }
        let latency = &figures.snapshot().latency[Class::Read.index()];
        assert_eq!((latency.buckets[0], latency.buckets[1]), (2, 1));
        assert_eq!((latency.buckets[14], latency.buckets[15]), (1, 1));
        assert_eq!(latency.count(), 5);
        let load = figures.load();
        assert_eq!((load.answered, load.in_flight, load.busy), (5, 0, Duration::from_micros(10_000_102)));
    }

    #[test]
    fn sense_keys_are_found_in_both_formats() {
        let figures = Figures::default();
        figures.answered(Class::Query, 2, &[0x70, 0, 0x05], Duration::ZERO);
        figures.answered(Class::Query, 2, &[0x72, 0x05], Duration::ZERO);
        figures.answered(Class::Query, 8, &[], Duration::ZERO);
        let stats = figures.snapshot();
        assert_eq!((stats.sense_keys[5], stats.answered), (2, 3));
        assert_eq!(stats.failed, [(2, 2), (8, 1)]);
    }
}
