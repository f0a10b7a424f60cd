//! Drives a lane from its ring's producing end, as the portal and the kernel do: blocks are allocated and filled, entries
//! pushed and published, answers reaped. For tests that wait; nothing here is clever.

use std::collections::HashMap;
use std::io::{IoSlice, IoSliceMut};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use rbdgate::cluster::reservations::{Memory, Store};
use rbdgate::disk::Disk;
use rbdgate::lane::{self, Lane, Parts};
use rbdgate::nexus::Table;
use rbdgate::reactor::{Reactor, Reactors};
use rbdgate::scsi::{Identity, Settings, Unit};
use rbdgate::units;
use ring::{CommandId, Corrupt, Doorbell, Extent, Kick, Nexus, Options, Pool, Producer, Request};

pub(crate) const BLOCK: usize = 512;
pub(crate) const GOOD: u8 = 0x00;
pub(crate) const CHECK_CONDITION: u8 = 0x02;
pub(crate) const TASK_ABORTED: u8 = 0x40;

/// How long anything may take before a test gives up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// One answered command.
pub(crate) struct Done {
    pub(crate) status: u8,
    pub(crate) sense: Option<[u8; 96]>,
    pub(crate) transfer: Option<u32>,
    pub(crate) data: Extent,
}

impl Done {
    /// Sense key, additional sense code and qualifier.
    pub(crate) fn sense_triple(&self) -> (u8, u8, u8) {
        let sense = self.sense.expect("sense data");
        if sense[0] & 0x7f >= 0x72 {
            (sense[1], sense[2], sense[3])
        } else {
            (sense[2], sense[12], sense[13])
        }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        content(&self.data)
    }
}

/// Counts rings, for threads that sleep.
#[derive(Default)]
pub(crate) struct Bell {
    rung: Mutex<u64>,
    changed: Condvar,
}

impl Doorbell for Bell {
    fn ring(&self) {
        *self.rung.lock().unwrap() += 1;
        self.changed.notify_all();
    }
}

/// One LUN: its ring, its lane, and what has been answered.
pub(crate) struct Driver {
    pub(crate) producer: Producer<u64>,
    pub(crate) lane: Lane,
    pub(crate) nexus: Nexus,
    bell: Arc<Bell>,
    pub(crate) doorbell: Arc<dyn Doorbell>,
    done: HashMap<u64, Done>,
    next: u64,
}

/// What a test varies.
pub(crate) struct Setup {
    pub(crate) options: Options,
    pub(crate) pool: Pool,
    pub(crate) nexuses: Arc<Table>,
    pub(crate) nexus: Nexus,
    pub(crate) reservations: Arc<dyn Store>,
    pub(crate) units: Arc<units::Table>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            options: Options { data_area: 64 << 20, ..Options::default() },
            pool: Pool::new(256 << 20),
            nexuses: Table::new(),
            nexus: Nexus::UNKNOWN,
            reservations: Memory::new(),
            units: units::Table::new(),
        }
    }
}

impl Driver {
    pub(crate) fn start(reactor: &Reactor, disk: Arc<dyn Disk>, setup: &Setup) -> Self {
        Self::start_as(reactor, disk, setup, "test", Settings::default())
    }

    /// A unit of this serial number.
    pub(crate) fn start_as(
        reactor: &Reactor,
        disk: Arc<dyn Disk>,
        setup: &Setup,
        serial: &str,
        settings: Settings,
    ) -> Self {
        let unit = Unit::new(
            Identity::from_serial(serial),
            disk.geometry().clone(),
            disk.size(),
            Arc::clone(&setup.nexuses),
            settings,
        )
        .joined(Arc::clone(&setup.units));
        Self::start_unit(reactor, disk, unit, setup)
    }

    /// This unit.
    pub(crate) fn start_unit(reactor: &Reactor, disk: Arc<dyn Disk>, unit: Unit, setup: &Setup) -> Self {
        let (producer, consumer) = ring::create(&setup.options, &setup.pool).unwrap();
        let bell = Arc::<Bell>::default();
        let parts = Parts {
            name: "test".into(),
            consumer,
            unit,
            disk: Some(disk),
            reservations: Arc::clone(&setup.reservations),
            producer: Arc::clone(&bell) as _,
        };
        let lane = lane::start(reactor, parts);
        let doorbell = lane.doorbell();
        Self { producer, lane, nexus: setup.nexus, bell, doorbell, done: HashMap::new(), next: 0 }
    }

    /// Allocates, waiting for blocks if need be.
    pub(crate) fn allocate(&mut self, len: usize) -> Extent {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Ok(extent) = self.producer.try_allocate(len) {
                return extent;
            }
            assert!(Instant::now() < deadline, "no blocks within a minute");
            self.pump(Duration::from_millis(5));
        }
    }

    /// Pushes and publishes one command; gives the test's tag and the ring's id.
    pub(crate) fn submit(&mut self, cdb: &[u8], mut data: Extent) -> (u64, CommandId) {
        self.next += 1;
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.producer.push(Request { cdb, nexus: self.nexus, data, context: self.next }) {
                Ok(id) => {
                    self.publish();
                    return (self.next, id);
                }
                Err(rejected) => {
                    assert!(Instant::now() < deadline, "no room within a minute: {}", rejected.reason);
                    data = rejected.data;
                    self.pump(Duration::from_millis(5));
                }
            }
        }
    }

    pub(crate) fn publish(&self) {
        if self.producer.publish() == Kick::Needed {
            self.doorbell.ring();
        }
    }

    /// A command with `out` as its data.
    pub(crate) fn send(&mut self, cdb: &[u8], out: &[u8]) -> (u64, CommandId) {
        let mut data = self.allocate(out.len());
        fill(&mut data, out);
        self.submit(cdb, data)
    }

    /// A command with room for `room` bytes, which hold garbage before.
    pub(crate) fn ask(&mut self, cdb: &[u8], room: usize) -> (u64, CommandId) {
        let mut data = self.allocate(room);
        fill(&mut data, &vec![0xee; room]);
        self.submit(cdb, data)
    }

    /// Reaps; waits for a ring first when there is nothing.
    fn pump(&mut self, wait: Duration) {
        let before = *self.bell.rung.lock().unwrap();
        if self.try_reap().unwrap() > 0 {
            return;
        }
        let rung = self.bell.rung.lock().unwrap();
        drop(self.bell.changed.wait_timeout_while(rung, wait, |rung| *rung == before).unwrap());
    }

    pub(crate) fn try_reap(&mut self) -> Result<usize, Corrupt> {
        let done = &mut self.done;
        self.producer.reap(|completion| {
            let answer = Done {
                status: completion.status,
                sense: completion.sense,
                transfer: completion.transfer,
                data: completion.data,
            };
            assert!(done.insert(completion.context, answer).is_none(), "answered twice");
        })
    }

    pub(crate) fn is_done(&mut self, tag: u64) -> bool {
        self.pump(Duration::from_millis(1));
        self.done.contains_key(&tag)
    }

    pub(crate) fn wait(&mut self, tag: u64) -> Done {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(done) = self.done.remove(&tag) {
                return done;
            }
            assert!(Instant::now() < deadline, "no answer within a minute");
            self.pump(Duration::from_millis(50));
        }
    }

    /// Sends data and waits.
    pub(crate) fn put(&mut self, cdb: &[u8], out: &[u8]) -> Done {
        let (tag, _) = self.send(cdb, out);
        self.wait(tag)
    }

    /// Asks for data and waits.
    pub(crate) fn get(&mut self, cdb: &[u8], room: usize) -> Done {
        let (tag, _) = self.ask(cdb, room);
        self.wait(tag)
    }

    /// Stops the lane from outside of any runtime.
    pub(crate) fn stop(&self) {
        block_on(self.lane.stop());
    }
}

/// Waits until `ready`, or fails.
pub(crate) fn eventually(what: &str, mut ready: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !ready() {
        assert!(Instant::now() < deadline, "not within a minute: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

pub(crate) fn reactors(count: usize) -> Arc<Reactors> {
    Reactors::start(count).unwrap()
}

pub(crate) fn fill(extent: &mut Extent, bytes: &[u8]) {
    let mut slices: Vec<IoSliceMut<'_>> = Vec::new();
    extent.io_slices_mut(0..bytes.len(), &mut slices);
    let mut rest = bytes;
    for slice in &mut slices {
        let (now, later) = rest.split_at(slice.len());
        slice.copy_from_slice(now);
        rest = later;
    }
    assert!(rest.is_empty());
}

pub(crate) fn content(extent: &Extent) -> Vec<u8> {
    let mut slices: Vec<IoSlice<'_>> = Vec::new();
    extent.io_slices(0..extent.len(), &mut slices);
    slices.iter().flat_map(|slice| slice.iter().copied()).collect()
}

/// Where an extent lies in memory.
pub(crate) fn addresses(extent: &Extent) -> Vec<std::ops::Range<usize>> {
    let mut slices: Vec<IoSlice<'_>> = Vec::new();
    extent.io_slices(0..extent.len(), &mut slices);
    slices.iter().map(|slice| slice.as_ptr() as usize..slice.as_ptr() as usize + slice.len()).collect()
}

pub(crate) fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut word = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let words = (0..len.div_ceil(8)).flat_map(|_| {
        word = word.wrapping_mul(0xd129_0a8c_3f58_1b4d).wrapping_add(0x2545_f491_4f6c_dd1d);
        word.to_le_bytes()
    });
    words.take(len).collect()
}

fn cdb_16(opcode: u8, flags: u8, lba: u64, blocks: u32) -> [u8; 16] {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1]) = (opcode, flags);
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
    cdb
}

pub(crate) fn read_16(lba: u64, blocks: u32) -> [u8; 16] {
    cdb_16(0x88, 0, lba, blocks)
}

pub(crate) fn write_16(lba: u64, blocks: u32) -> [u8; 16] {
    cdb_16(0x8a, 0, lba, blocks)
}

/// COMPARE AND WRITE.
pub(crate) fn compare_and_write(lba: u64, blocks: u8) -> [u8; 16] {
    let mut cdb = cdb_16(0x89, 0, lba, 0);
    cdb[13] = blocks;
    cdb
}

pub(crate) const TEST_UNIT_READY: [u8; 6] = [0; 6];
pub(crate) const INQUIRY: [u8; 6] = [0x12, 0, 0, 0, 96, 0];
