//! The YAML file → checked types that cannot be invalid. Knows nothing else of the gateway.
//!
//! Unknown keys are refused; every problem names its line, the field and what is accepted, and all of them are
//! reported at once.

mod check;
mod quantity;
mod raw;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use check::{CONTROL, STATE};
pub use quantity::{Bytes, Time};
pub use raw::{Digest, Frontend};
pub(crate) use raw::{address, is_reachable};

use crate::secret::Secret;

/// A whole, valid configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Where the portal listens.
    pub listen: Vec<SocketAddr>,
    /// Where metrics, health and the control socket are.
    pub admin: Admin,
    /// Who may discover targets.
    pub discovery: Login,
    /// Where logins to every target go instead, unless the target says so itself.
    pub redirect: Option<Redirect>,
    /// Memory, times and counts.
    pub limits: Limits,
    /// Folder of what is kept from one run to the next (reservations); `None`: nothing is.
    pub state: Option<PathBuf>,
    /// Reactor threads; 0: one per core.
    pub reactors: usize,
    /// While there is one command at a time, the threads share a core if that is faster.
    pub gather: bool,
    /// Disks by their name in the file.
    pub disks: BTreeMap<String, Disk>,
    /// Targets by iSCSI name.
    pub targets: BTreeMap<String, Target>,
}

/// The local administration ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// Address of `/metrics` and `/health`; `None`: not served.
    pub listen: Option<SocketAddr>,
    /// Unix socket of `rbdgate status`, `rbdgate reload` and `rbdgate disk`.
    pub control: PathBuf,
}

/// Memory, times and counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Pool of all data and command areas; `None`: the smaller of 2 GiB and a quarter of the memory there is.
    pub memory: Option<u64>,
    /// Address range of one LUN's data area.
    pub data_area: u64,
    /// One LUN's command area.
    pub command_area: u64,
    /// Data-area block.
    pub block: u64,
    /// The largest command expected.
    pub largest_command: u64,
    /// What an idle LUN keeps.
    pub idle_floor: u64,
    /// After how long without a command a LUN is idle.
    pub idle_shrink: Duration,
    /// How long a command waits for memory before TASK SET FULL.
    pub qfull_timeout: Duration,
    /// TCP connections.
    pub connections: usize,
    /// Sessions.
    pub sessions: usize,
    /// Of them, those of one initiator.
    pub sessions_per_initiator: usize,
    /// Connections that have not logged in yet.
    pub logins: usize,
    /// Of them, those from one address.
    pub logins_per_address: usize,
    /// A login must be done within this.
    pub login_timeout: Duration,
    /// A silent connection is pinged after this.
    pub nop_interval: Duration,
    /// An unanswered ping drops it after this.
    pub nop_timeout: Duration,
    /// Solicited data must have come within this.
    pub data_out_timeout: Duration,
    /// How long a shutdown waits for commands and logouts.
    pub shutdown_grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            memory: None,
            data_area: 1 << 30,
            command_area: 8 << 20,
            block: 4096,
            largest_command: 1 << 20,
            idle_floor: 0,
            idle_shrink: seconds(5),
            qfull_timeout: seconds(30),
            connections: 4096,
            sessions: 2048,
            sessions_per_initiator: 256,
            logins: 256,
            logins_per_address: 64,
            login_timeout: seconds(15),
            nop_interval: seconds(5),
            nop_timeout: seconds(5),
            data_out_timeout: seconds(20),
            shutdown_grace: seconds(10),
        }
    }
}

/// One disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// Where its blocks are.
    pub store: Store,
    /// Refuse every write.
    pub read_only: bool,
    /// Logical block, bytes: 512 or 4096.
    pub block_size: u32,
    /// Physical block, bytes: 512 or 4096, and not below the logical one. 512 with 512 is what hosts call 512n, 4096 with
    /// 512 is 512e, 4096 with 4096 is 4Kn.
    pub physical_block_size: u32,
    /// Percent of the store's pool (or file system) in use from which hosts are warned.
    pub pool_threshold: Option<u8>,
    /// Unit serial number (VPD 80h) and seed of the NAA name; by default made from the store's name.
    pub serial: Option<String>,
    /// T10 vendor identification, at most 8 characters.
    pub vendor: Option<String>,
    /// Product identification, at most 16 characters.
    pub product: Option<String>,
    /// Present a removable medium.
    pub removable: bool,
    /// Deliberate slowness, for tests and benchmarks.
    pub fault: Option<Fault>,
}

/// Where a disk's blocks are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Store {
    /// An RBD image.
    Rbd(Rbd),
    /// A sparse local file.
    File {
        /// The file.
        path: PathBuf,
        /// Made with this size when missing, grown when smaller.
        size: Option<u64>,
    },
    /// Memory; lost at exit.
    Memory {
        /// Its size, bytes.
        size: u64,
    },
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rbd(rbd) => match &rbd.namespace {
                Some(namespace) => write!(f, "rbd:{}/{namespace}/{}", rbd.pool, rbd.image),
                None => write!(f, "rbd:{}/{}", rbd.pool, rbd.image),
            },
            Self::File { path, .. } => write!(f, "file:{}", path.display()),
            Self::Memory { size } => write!(f, "memory:{}", Bytes(*size)),
        }
    }
}

/// An RBD image and how to reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rbd {
    /// Pool.
    pub pool: String,
    /// Image.
    pub image: String,
    /// Namespace within the pool.
    pub namespace: Option<String>,
    /// Ceph's configuration file.
    pub conf: PathBuf,
    /// cephx user, without `client.`.
    pub client: String,
    /// Its keyring, when the configuration file does not say.
    pub keyring: Option<PathBuf>,
    /// Make the image with this size when it is missing.
    pub create: Option<u64>,
}

/// Deliberate slowness.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fault {
    /// Every request takes at least this long.
    pub latency: Duration,
    /// Bytes a second that all requests share.
    pub bandwidth: Option<u64>,
}

/// One target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// What takes its commands from the initiators.
    pub frontend: Frontend,
    /// Portal group tag.
    pub portal_group: u16,
    /// Addresses that discovery names; empty: the one the initiator has connected to.
    pub addresses: Vec<SocketAddr>,
    /// LUN → disk name.
    pub luns: BTreeMap<u16, String>,
    /// Initiators without an entry of their own may log in without authentication and use every LUN.
    pub open: bool,
    /// Initiators by iSCSI name.
    pub initiators: BTreeMap<String, Initiator>,
    /// Where its logins go instead.
    pub redirect: Option<Redirect>,
    /// What login negotiation offers.
    pub parameters: Parameters,
}

/// Where a target is served instead of here (RFC 7143 section 11.13.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// The other address.
    pub address: SocketAddr,
    /// For good, or for the login at hand.
    pub permanent: bool,
}

/// One initiator's rights on a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Initiator {
    /// How it proves who it is.
    pub login: Login,
    /// LUNs it sees; `None`: all.
    pub luns: Option<Vec<u16>>,
    /// Of them, those it may not write.
    pub read_only: Vec<u16>,
}

/// How a peer proves who it is, and we to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Login {
    /// The initiator's credentials; `None`: no authentication.
    pub chap: Option<Chap>,
    /// Ours, for mutual CHAP; only together with `chap`.
    pub mutual: Option<Chap>,
}

/// A CHAP name and secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chap {
    /// CHAP_N.
    pub user: String,
    /// The secret.
    pub secret: Secret,
}

/// What login negotiation offers (RFC 7143 section 13). Bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// HeaderDigest.
    pub header_digest: Digest,
    /// DataDigest.
    pub data_digest: Digest,
    /// InitialR2T.
    pub initial_r2t: bool,
    /// ImmediateData.
    pub immediate_data: bool,
    /// FirstBurstLength.
    pub first_burst_length: u32,
    /// MaxBurstLength.
    pub max_burst_length: u32,
    /// MaxRecvDataSegmentLength that we declare.
    pub max_recv_data_segment_length: u32,
    /// MaxOutstandingR2T.
    pub max_outstanding_r2t: u16,
    /// Commands a session may have outstanding (MaxCmdSN window).
    pub command_window: u16,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            header_digest: Digest::Allowed,
            data_digest: Digest::Allowed,
            initial_r2t: false,
            immediate_data: true,
            first_burst_length: 256 << 10,
            max_burst_length: 1 << 20,
            max_recv_data_segment_length: 256 << 10,
            max_outstanding_r2t: 8,
            command_window: 128,
        }
    }
}

/// One thing that is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Line, from 1; 0 when it concerns the file as a whole.
    pub line: u64,
    /// The field, as a path (`targets[0].luns.1`).
    pub field: String,
    /// What is wrong and what is accepted.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.line, self.field.as_str()) {
            (0, "") => f.write_str(&self.message),
            (0, field) => write!(f, "{field}: {}", self.message),
            (line, "") => write!(f, "line {line}: {}", self.message),
            (line, field) => write!(f, "line {line}, {field}: {}", self.message),
        }
    }
}

/// Why a configuration was refused.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Not YAML, or not of the right shape; the text points at the place.
    #[error("{0}")]
    Shape(String),
    /// Everything that is wrong with a well-formed file.
    #[error("{}", list(.0))]
    Invalid(Vec<Problem>),
}

fn list(problems: &[Problem]) -> String {
    problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("\n")
}

impl Config {
    /// Reads and checks a file. Relative paths in it are taken from its folder.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let text =
            std::fs::read_to_string(path).map_err(|source| Error::Read { path: path.into(), source })?;
        Self::parse(&text, path.parent().unwrap_or_else(|| Path::new(".")))
    }

    /// Checks a file's text; relative paths in it are taken from `folder`.
    pub fn parse(text: &str, folder: &Path) -> Result<Self, Error> {
        let options = serde_yaml::options! { strict_booleans: true };
        let file = serde_yaml::from_str_with_options(text, options)
            .map_err(|error| Error::Shape(error.to_string()))?;
        check::check(file, folder).map_err(Error::Invalid)
    }
}

#[cfg(test)]
mod tests;
