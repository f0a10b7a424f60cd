//! A portal over real TCP with devices behind it, for the tests of this folder.

pub(crate) mod device;
pub(crate) mod initiator;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rbdgate::cluster::reservations;
use rbdgate::disk::Disk;
use rbdgate::disk::memory::Memory;
use rbdgate::lane::{self, Lane};
use rbdgate::nexus;
use rbdgate::portal::{Access, Directory, Grant, Limits, Parameters, Port, Server, Target, Ticket};
use rbdgate::reactor::Reactors;
use rbdgate::scsi::{Identity, Settings, Unit};
use rbdgate::units;
use ring::{Consumer, Options, Pool, Producer};

use device::Device;

/// The target of most tests.
pub(crate) const TARGET: &str = "iqn.2026-01.example:disk";

/// What a test may choose.
pub(crate) struct Setup {
    pub(crate) parameters: Parameters,
    pub(crate) limits: Limits,
    pub(crate) listen: Vec<SocketAddr>,
    pub(crate) luns: u16,
    pub(crate) blocks: usize,
    pub(crate) pool: u64,
    pub(crate) options: Options,
    pub(crate) qfull_timeout: Duration,
    pub(crate) reactors: usize,
    pub(crate) access: Option<Access>,
    /// Real lanes with disks in memory instead of [`Device`]s.
    pub(crate) lanes: bool,
    /// With lanes: the disk of every LUN.
    pub(crate) disk: Option<Arc<dyn Disk>>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            // The initiator here sends without a look at MaxCmdSN.
            parameters: Parameters { initial_depth: 32, ..Parameters::default() },
            limits: Limits::default(),
            listen: vec!["127.0.0.1:0".parse().unwrap()],
            luns: 1,
            blocks: 8192,
            pool: 1 << 30,
            options: Options { data_area: 64 << 20, ..Options::default() },
            qfull_timeout: Duration::from_secs(10),
            reactors: 2,
            access: None,
            lanes: false,
            disk: None,
        }
    }
}

/// A running portal and its devices.
pub(crate) struct Bench {
    pub(crate) server: Option<Server>,
    pub(crate) address: SocketAddr,
    pub(crate) devices: Vec<Device>,
    pub(crate) producers: Vec<Producer<Ticket>>,
    pub(crate) pool: Pool,
    pub(crate) nexuses: Arc<nexus::Table>,
    /// Outlives everything that runs on it.
    _reactors: Arc<Reactors>,
    pub(crate) directory: Directory,
    pub(crate) lanes: Vec<Lane>,
    /// The LUNs among which copies find their ends.
    _listings: Vec<units::Listing>,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with(Setup::default())
    }

    pub(crate) fn with(setup: Setup) -> Self {
        let reactors = Reactors::start(setup.reactors).unwrap();
        let pool = Pool::new(setup.pool);
        let nexuses = nexus::Table::new();
        let (mut devices, mut lanes, mut producers) = (Vec::new(), Vec::new(), Vec::new());
        let (units, mut listings) = (units::Table::new(), Vec::new());
        let mut port = |number: Option<u16>| {
            let (producer, consumer) = ring::create::<Ticket>(&setup.options, &pool).unwrap();
            let port = Port::new(producer.clone(), setup.qfull_timeout);
            producers.push(producer);
            if setup.lanes {
                let disk = number.map(|_| setup.disk.clone().unwrap_or_else(|| memory(setup.blocks)));
                let parts = parts(consumer, number, disk, &nexuses, &units, port.clone());
                let lane = lane::start(&reactors.all()[0], parts);
                if let Some(lun) = number {
                    let entry = units::Entry {
                        target: TARGET.into(),
                        lun,
                        identity: identity(lun),
                        block_size: 512,
                        door: lane.door(),
                    };
                    listings.push(units.enter(entry));
                }
                port.connect_lane(lane.doorbell());
                port.connect_task_aborted_status(lane.task_aborted_status());
                lanes.push(lane);
            } else {
                let device = Device::start(consumer, setup.blocks, port.clone());
                port.connect_lane(device.bell());
                devices.push(device);
            }
            port
        };
        let ports: Vec<_> = (0..setup.luns).map(|number| port(Some(number))).collect();
        let absent = port(None);
        let well_known = setup.lanes.then(|| {
            let (producer, consumer) = ring::create::<Ticket>(&setup.options, &pool).unwrap();
            let port = Port::new(producer, setup.qfull_timeout);
            let unit = Unit::well_known(Arc::clone(&nexuses));
            let parts = lane::Parts {
                name: "well known".into(),
                consumer,
                unit,
                disk: None,
                reservations: reservations::Memory::new(),
                producer: port.clone(),
            };
            let lane = lane::start(&reactors.all()[0], parts);
            port.connect_lane(lane.doorbell());
            lanes.push(lane);
            port
        });
        let luns: BTreeMap<_, _> = (0..setup.luns).zip(ports.iter().cloned()).collect();
        let view = nexus::View { luns: luns.keys().copied().collect(), read_only: Vec::new() };
        let anyone = Some(Grant { view, ..Grant::default() });
        let access = setup.access.unwrap_or(Access { anyone, ..Access::default() });
        let target = Target {
            name: TARGET.into(),
            group: 1,
            addresses: Vec::new(),
            luns,
            absent,
            well_known,
            access,
            parameters: setup.parameters,
            reactor: reactors.all()[0].clone(),
        };
        let targets = BTreeMap::from([(TARGET.to_owned(), Arc::new(target))]);
        let directory = Directory { targets, ..Directory::default() };
        let server =
            Server::bind(&setup.listen, directory.clone(), nexuses.clone(), &reactors, setup.limits).unwrap();
        let address = server.addresses()[0];
        Self {
            server: Some(server),
            address,
            devices,
            producers,
            pool,
            nexuses,
            _reactors: reactors,
            directory,
            lanes,
            _listings: listings,
        }
    }

    pub(crate) fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    /// Waits until nothing of any command is left.
    pub(crate) fn wait_idle(&self) {
        eventually("blocks or commands are left", || {
            let usage = self.pool.usage();
            usage.in_use == 0
        });
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        drop(self.server.take());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for lane in self.lanes.drain(..) {
            runtime.block_on(lane.stop());
        }
    }
}

fn memory(blocks: usize) -> Arc<dyn Disk> {
    Arc::new(Memory::new((blocks * device::BLOCK) as u64, 512))
}

fn identity(lun: u16) -> Identity {
    Identity::from_serial(format!("{lun:08x}-0000-4000-8000-000000000000"))
}

/// A lane over a disk, or the one for LUNs that do not exist.
fn parts(
    consumer: Consumer,
    number: Option<u16>,
    disk: Option<Arc<dyn Disk>>,
    nexuses: &Arc<nexus::Table>,
    units: &Arc<units::Table>,
    producer: Arc<Port>,
) -> lane::Parts {
    let unit = match (&disk, number) {
        (Some(disk), Some(lun)) => {
            let settings = Settings { lun, ..Settings::default() };
            Unit::new(identity(lun), disk.geometry().clone(), disk.size(), Arc::clone(nexuses), settings)
                .joined(Arc::clone(units))
        }
        _ => Unit::absent(Arc::clone(nexuses)),
    };
    let reservations = reservations::Memory::new();
    lane::Parts { name: format!("{number:?}"), consumer, unit, disk, reservations, producer }
}

/// Waits, generously, for something to come true.
pub(crate) fn eventually(what: &str, mut met: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !met() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// READ (10).
pub(crate) fn read10(lba: u32, blocks: u16) -> [u8; 10] {
    let (a, b) = (lba.to_be_bytes(), blocks.to_be_bytes());
    [0x28, 0, a[0], a[1], a[2], a[3], 0, b[0], b[1], 0]
}

/// WRITE (10).
pub(crate) fn write10(lba: u32, blocks: u16) -> [u8; 10] {
    let mut cdb = read10(lba, blocks);
    cdb[0] = 0x2a;
    cdb
}

/// Bytes that differ everywhere and from seed to seed.
pub(crate) fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}
