//! The YAML file as written: shapes only, unknown keys refused, every value with its place in the file.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use serde::Deserialize;
use serde_yaml::Spanned;

use super::quantity::{Bytes, Time};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) frontend: Option<Frontend>,
    pub(super) listen: Option<Spanned<Vec<Spanned<String>>>>,
    pub(super) admin: Option<Admin>,
    pub(super) discovery: Option<Discovery>,
    pub(super) redirect: Option<Redirect>,
    pub(super) limits: Option<Limits>,
    pub(super) state: Option<PathBuf>,
    pub(super) reactors: Option<Spanned<usize>>,
    pub(super) gather: Option<bool>,
    #[serde(default)]
    pub(super) disks: BTreeMap<String, Spanned<Disk>>,
    #[serde(default)]
    pub(super) targets: Vec<Spanned<Target>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Admin {
    pub(super) listen: Option<SocketAddr>,
    pub(super) control: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Discovery {
    pub(super) chap: Option<Spanned<Chap>>,
    pub(super) mutual_chap: Option<Spanned<Chap>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Limits {
    pub(super) memory: Option<Spanned<Bytes>>,
    pub(super) data_area: Option<Spanned<Bytes>>,
    pub(super) command_area: Option<Spanned<Bytes>>,
    pub(super) block: Option<Spanned<Bytes>>,
    pub(super) largest_command: Option<Spanned<Bytes>>,
    pub(super) idle_floor: Option<Spanned<Bytes>>,
    pub(super) idle_shrink: Option<Time>,
    pub(super) qfull_timeout: Option<Time>,
    pub(super) connections: Option<Spanned<usize>>,
    pub(super) sessions: Option<Spanned<usize>>,
    pub(super) sessions_per_initiator: Option<Spanned<usize>>,
    pub(super) logins: Option<Spanned<usize>>,
    pub(super) logins_per_address: Option<Spanned<usize>>,
    pub(super) login_timeout: Option<Time>,
    pub(super) nop_interval: Option<Time>,
    pub(super) nop_timeout: Option<Time>,
    pub(super) data_out_timeout: Option<Time>,
    pub(super) shutdown_grace: Option<Time>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Disk {
    pub(super) rbd: Option<Rbd>,
    pub(super) file: Option<LocalFile>,
    pub(super) memory: Option<Memory>,
    pub(super) read_only: Option<bool>,
    pub(super) block_size: Option<Spanned<u32>>,
    pub(super) physical_block_size: Option<Spanned<u32>>,
    pub(super) pool_threshold: Option<Spanned<u8>>,
    pub(super) serial: Option<Spanned<String>>,
    pub(super) vendor: Option<Spanned<String>>,
    pub(super) product: Option<Spanned<String>>,
    pub(super) removable: Option<bool>,
    pub(super) fault: Option<Fault>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rbd {
    pub(super) pool: Spanned<String>,
    pub(super) image: Spanned<String>,
    pub(super) namespace: Option<Spanned<String>>,
    pub(super) conf: Option<PathBuf>,
    pub(super) client: Option<Spanned<String>>,
    pub(super) keyring: Option<PathBuf>,
    pub(super) create: Option<Spanned<Bytes>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LocalFile {
    pub(super) path: PathBuf,
    pub(super) size: Option<Spanned<Bytes>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Memory {
    pub(super) size: Spanned<Bytes>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Fault {
    pub(super) latency: Option<Time>,
    pub(super) bandwidth: Option<Spanned<Bytes>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Target {
    pub(super) name: Spanned<String>,
    pub(super) frontend: Option<Frontend>,
    pub(super) portal_group: Option<Spanned<u16>>,
    pub(super) addresses: Option<Vec<Spanned<String>>>,
    pub(super) luns: BTreeMap<u16, Spanned<String>>,
    pub(super) open: Option<bool>,
    #[serde(default)]
    pub(super) initiators: Vec<Spanned<Initiator>>,
    pub(super) redirect: Option<Redirect>,
    pub(super) parameters: Option<Parameters>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Redirect {
    pub(super) address: Spanned<String>,
    pub(super) permanent: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Initiator {
    pub(super) name: Spanned<String>,
    pub(super) chap: Option<Spanned<Chap>>,
    pub(super) mutual_chap: Option<Spanned<Chap>>,
    pub(super) luns: Option<Vec<Spanned<u16>>>,
    #[serde(default)]
    pub(super) read_only: Vec<Spanned<u16>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Chap {
    pub(super) user: Spanned<String>,
    pub(super) secret: Option<Spanned<String>>,
    pub(super) secret_file: Option<Spanned<PathBuf>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameters {
    pub(super) header_digest: Option<Spanned<Digest>>,
    pub(super) data_digest: Option<Spanned<Digest>>,
    pub(super) initial_r2t: Option<bool>,
    pub(super) immediate_data: Option<bool>,
    pub(super) first_burst_length: Option<Spanned<Bytes>>,
    pub(super) max_burst_length: Option<Spanned<Bytes>>,
    pub(super) max_recv_data_segment_length: Option<Spanned<Bytes>>,
    pub(super) max_outstanding_r2t: Option<Spanned<u16>>,
    pub(super) command_window: Option<Spanned<u16>>,
}

/// What takes a target's commands from the initiators.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Frontend {
    /// The gateway itself.
    #[default]
    Portal,
    /// The kernel's iSCSI target.
    Lio,
    /// The kernel, for this machine alone: the LUNs appear as its own disks.
    Loopback,
}

/// Which digests a target agrees to.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Digest {
    /// CRC32C when the initiator wants it.
    #[default]
    Allowed,
    /// Never.
    None,
    /// Logins without CRC32C are refused.
    Required,
}

/// An address to listen on or to advertise, `IP`, `IP:PORT` or `[IPv6]:PORT`; port 3260 when left out.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse::<SocketAddr>()
        .or_else(|_| text.trim_matches(['[', ']']).parse::<IpAddr>().map(|ip| SocketAddr::new(ip, 3260)))
        .map_err(|_not_an_address| {
            format!("\"{text}\" is not an address; write IP:PORT, [IPv6]:PORT, or an IP for port 3260")
        })
}

/// Whether an initiator can be sent to an address: neither a wildcard nor port 0 can be connected to.
pub(crate) fn is_reachable(address: SocketAddr) -> bool {
    !address.ip().is_unspecified() && address.port() != 0
}
