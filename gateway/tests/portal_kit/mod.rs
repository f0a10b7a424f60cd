//! A portal over real TCP with devices behind it, for the tests of this folder.
#![allow(dead_code, clippy::expect_used, reason = "each test file uses its part of the kit")]

pub mod device;
pub mod initiator;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rbdgate::nexus;
use rbdgate::portal::{Access, Directory, Grant, Limits, Parameters, Port, Server, Target, Ticket};
use rbdgate::reactor::Reactors;
use ring::{Options, Pool};

use device::Device;

/// The target of most tests.
pub const TARGET: &str = "iqn.2026-01.example:disk";

/// What a test may choose.
pub struct Setup {
    pub parameters: Parameters,
    pub limits: Limits,
    pub listen: Vec<SocketAddr>,
    pub luns: u16,
    pub blocks: usize,
    pub pool: u64,
    pub options: Options,
    pub qfull_timeout: Duration,
    pub reactors: usize,
    pub access: Option<Access>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            parameters: Parameters::default(),
            limits: Limits::default(),
            listen: vec!["127.0.0.1:0".parse().unwrap()],
            luns: 1,
            blocks: 8192,
            pool: 1 << 30,
            options: Options { data_area: 64 << 20, ..Options::default() },
            qfull_timeout: Duration::from_secs(10),
            reactors: 2,
            access: None,
        }
    }
}

/// A running portal and its devices.
pub struct Bench {
    pub server: Option<Server>,
    pub address: SocketAddr,
    pub devices: Vec<Device>,
    pub ports: Vec<Arc<Port>>,
    pub pool: Pool,
    pub nexuses: Arc<nexus::Table>,
    pub reactors: Arc<Reactors>,
    pub directory: Directory,
}

impl Bench {
    pub fn new() -> Self {
        Self::with(Setup::default())
    }

    pub fn with(setup: Setup) -> Self {
        let reactors = Reactors::start(setup.reactors).unwrap();
        let pool = Pool::new(setup.pool);
        let nexuses = nexus::Table::new();
        let mut devices = Vec::new();
        let mut port = || {
            let (producer, consumer) = ring::create::<Ticket>(&setup.options, &pool).unwrap();
            let port = Port::new(producer, setup.qfull_timeout);
            let device = Device::start(consumer, setup.blocks, port.clone());
            port.connect_lane(device.bell());
            devices.push(device);
            port
        };
        let ports: Vec<_> = (0..setup.luns).map(|_| port()).collect();
        let absent = port();
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
            access,
            parameters: setup.parameters,
            reactor: reactors.all()[0].clone(),
        };
        let targets = BTreeMap::from([(TARGET.to_owned(), Arc::new(target))]);
        let directory = Directory { targets, ..Directory::default() };
        let server =
            Server::bind(&setup.listen, directory.clone(), nexuses.clone(), &reactors, setup.limits).unwrap();
        let address = server.addresses()[0];
        Self { server: Some(server), address, devices, ports, pool, nexuses, reactors, directory }
    }

    pub fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    /// Waits until nothing of any command is left.
    pub fn wait_idle(&self) {
        eventually("blocks or commands are left", || {
            let usage = self.pool.usage();
            usage.in_use == 0
        });
    }
}

/// Waits, generously, for something to come true.
pub fn eventually(what: &str, mut met: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !met() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// READ (10).
pub fn read10(lba: u32, blocks: u16) -> [u8; 10] {
    let (a, b) = (lba.to_be_bytes(), blocks.to_be_bytes());
    [0x28, 0, a[0], a[1], a[2], a[3], 0, b[0], b[1], 0]
}

/// WRITE (10).
pub fn write10(lba: u32, blocks: u16) -> [u8; 10] {
    let mut cdb = read10(lba, blocks);
    cdb[0] = 0x2a;
    cdb
}

/// Bytes that differ everywhere and from seed to seed.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
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
