//! One LUN as it is in production, with jobs at its producing end: ring, lane, engine, and a store behind a decorator that
//! makes it slow and narrow. What differs between rigs is the ring's sizes alone, the *layout*.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rbdgate::cluster::reservations::Memory as Reservations;
use rbdgate::disk::Disk;
use rbdgate::disk::fault::{Fault, Settings as Store};
use rbdgate::disk::memory::Memory;
use rbdgate::lane::{self, Lane, Parts};
use rbdgate::nexus::Table;
use rbdgate::reactor::Reactors;
use rbdgate::scsi::{Identity, Settings, Unit};
use ring::{Completion, Doorbell, Options, Pool, Producer};

use crate::job::{Context, Job, Load};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const GIB: usize = 1 << 30;

/// Bytes of the disk that the jobs visit.
pub(crate) const VISITED: u64 = 128 << 20;

/// Sizes of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// 64 KiB of commands and 1 MiB of data, all of it backed at the start: what the mailing list complains about.
    Fixed,
    /// The defaults: 8 MiB of commands, 1 GiB of address space for data, nothing backed at the start.
    Dynamic,
    /// 8 MiB of commands and 1 GiB of data, all of it backed at the start.
    Preallocated,
}

impl Layout {
    fn options(self) -> Options {
        let (command_area, data_area, preallocate) = match self {
            Self::Fixed => (64 * KIB, MIB, true),
            Self::Dynamic => return Options::default(),
            Self::Preallocated => (8 * MIB, GIB, true),
        };
        // What was backed at the start stays.
        Options { command_area, data_area, preallocate, floor: data_area, ..Options::default() }
    }
}

/// One running LUN.
pub(crate) struct Rig {
    pub(crate) layout: Layout,
    producer: Producer<Context>,
    lane: Lane,
    pool: Pool,
    router: Arc<Router>,
    _reactors: Arc<Reactors>,
}

/// What one run has shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    /// Payload, bytes per second.
    pub(crate) rate: f64,
    /// The most data-area bytes that were backed, looked at every few milliseconds.
    pub(crate) resident: u64,
}

/// Takes answers off the ring on the lane's thread and hands them to the jobs, as the portal hands them to connections.
#[derive(Default)]
pub(crate) struct Router {
    producer: Mutex<Option<Producer<Context>>>,
    jobs: Mutex<Vec<Arc<Inbox>>>,
}

/// One job's answers.
#[derive(Default)]
pub(crate) struct Inbox {
    state: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    answers: VecDeque<Completion<Context>>,
    woken: bool,
}

impl Rig {
    pub(crate) fn start(layout: Layout, store: Store) -> Self {
        let pool = Pool::new(2 * GIB as u64);
        let (producer, consumer) = ring::create(&layout.options(), &pool).expect("a ring");
        let disk: Arc<dyn Disk> = Arc::new(Memory::new(VISITED, 512));
        let disk: Arc<dyn Disk> = Arc::new(Fault::new(disk, store).expect("a timer thread"));
        let unit = Unit::new(
            Identity::from_serial("bench"),
            disk.geometry().clone(),
            disk.size(),
            Table::new(),
            Settings::default(),
        );
        let router = Arc::<Router>::default();
        *lock(&router.producer) = Some(producer.clone());
        let reactors = Reactors::start(1).expect("a reactor thread");
        let name = format!("{layout:?}");
        let parts = Parts {
            name,
            consumer,
            unit,
            disk: Some(disk),
            reservations: Reservations::new(),
            producer: Arc::clone(&router) as _,
        };
        let lane = lane::start(reactors.pick(), parts);
        Self { layout, producer, lane, pool, router, _reactors: reactors }
    }

    /// Runs a load from an idle ring, shrunk as a LUN is that nobody has used for a while.
    pub(crate) fn run(&self, load: &Load) -> Figures {
        // The first look finds the ring touched since the last run, the second one finds it idle.
        self.pool.reclaim_idle(Duration::ZERO);
        self.pool.reclaim_idle(Duration::ZERO);
        let inboxes: Vec<_> = (0..load.jobs).map(|_| Arc::<Inbox>::default()).collect();
        (*lock(&self.router.jobs)).clone_from(&inboxes);
        let running = AtomicBool::new(true);
        let mut resident = 0;
        let moved = std::thread::scope(|scope| {
            let jobs: Vec<_> = inboxes
                .iter()
                .enumerate()
                .map(|(index, inbox)| {
                    Job::new(index, self.producer.clone(), self.lane.doorbell(), Arc::clone(inbox), load)
                })
                .collect();
            let begin = Instant::now();
            let spawn = |job: Job| {
                let running = &running;
                scope.spawn(move || job.run(begin, running))
            };
            let jobs: Vec<_> = jobs.into_iter().map(spawn).collect();
            let end = begin + load.time.unwrap_or(Duration::from_secs(600));
            while Instant::now() < end && jobs.iter().any(|job| !job.is_finished()) {
                std::thread::sleep(Duration::from_millis(5));
                resident = resident.max(self.producer.usage().backed);
            }
            running.store(false, Ordering::Release);
            inboxes.iter().for_each(|inbox| inbox.wake());
            jobs.into_iter().map(|job| job.join().expect("a job that ends")).collect::<Vec<_>>()
        });
        lock(&self.router.jobs).clear();
        let bytes: u64 = moved.iter().map(|moved| moved.bytes).sum();
        let rate = bytes as f64 / moved.iter().map(|moved| moved.seconds).fold(1e-9, f64::max);
        Figures { rate, resident }
    }

    /// Payload bytes the gateway has copied.
    pub(crate) fn copied(&self) -> u64 {
        self.lane.stats().bytes_copied
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(self.lane.stop());
        lock(&self.router.producer).take();
    }
}

impl Doorbell for Router {
    fn ring(&self) {
        let producer = lock(&self.producer);
        let Some(producer) = producer.as_ref() else { return };
        let jobs = lock(&self.jobs);
        let mut rung = [false; 64];
        producer
            .reap(|completion| {
                let job = completion.context.job;
                lock(&jobs[job].state).answers.push_back(completion);
                rung[job] = true;
            })
            .expect("a ring in order");
        for (job, _) in rung.iter().enumerate().filter(|(_, rung)| **rung) {
            jobs[job].wake();
        }
    }
}

impl Inbox {
    /// Wakes the job.
    pub(crate) fn wake(&self) {
        lock(&self.state).woken = true;
        self.changed.notify_one();
    }

    /// Takes the answers.
    pub(crate) fn take(&self, into: &mut VecDeque<Completion<Context>>) {
        let mut state = lock(&self.state);
        state.woken = false;
        into.append(&mut state.answers);
    }

    /// Sleeps until woken since the last [`Inbox::take`].
    pub(crate) fn sleep(&self) {
        let state = lock(&self.state);
        drop(self.changed.wait_while(state, |state| !state.woken).unwrap_or_else(PoisonError::into_inner));
    }
}

impl std::task::Wake for Inbox {
    fn wake(self: Arc<Self>) {
        Self::wake(&self);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
