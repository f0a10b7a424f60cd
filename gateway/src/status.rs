//! What a running gateway says of itself: the data behind `rbdgate status`, its tables and its metrics.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The whole. Sizes in bytes.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Status {
    /// Version of the running binary.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// Seconds since it started.
    pub uptime_seconds: u64,
    /// Addresses it listens on.
    pub listen: Vec<String>,
    /// The pool that all data areas share.
    pub memory: Memory,
    /// What the portal has counted.
    pub portal: Portal,
    /// Logged-in sessions.
    pub sessions: Vec<Session>,
    /// LUNs, also those whose disk is not there.
    pub luns: Vec<Lun>,
}

/// The pool.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Memory {
    /// Limit of `charged`.
    pub limit: u64,
    /// Resident memory of all command and data areas.
    pub charged: u64,
    /// Of that, held by commands.
    pub in_use: u64,
    /// Set aside for unsolicited data.
    pub reserved: u64,
}

/// What the portal has counted since the start.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Portal {
    /// PDUs received.
    pub pdus_in: u64,
    /// PDUs sent.
    pub pdus_out: u64,
    /// Rejects sent.
    pub rejects: u64,
    /// Header or data digests that did not match.
    pub digest_errors: u64,
    /// Logins completed.
    pub logins: u64,
    /// Logins refused.
    pub login_failures: u64,
    /// READ and WRITE bytes that the gateway copied; zero is the design.
    pub bytes_copied: u64,
}

impl Portal {
    /// Name, meaning and value of each counter.
    pub fn figures(&self) -> [(&'static str, &'static str, u64); 7] {
        [
            ("pdus_received", "iSCSI PDUs received", self.pdus_in),
            ("pdus_sent", "iSCSI PDUs sent", self.pdus_out),
            ("rejects", "Reject PDUs sent", self.rejects),
            ("digest_errors", "Digests that did not match", self.digest_errors),
            ("logins", "Logins completed", self.logins),
            ("login_failures", "Logins refused", self.login_failures),
            ("copied_bytes", "READ and WRITE bytes copied by the gateway", self.bytes_copied),
        ]
    }
}

/// One session.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Session {
    /// Initiator's iSCSI name.
    pub initiator: String,
    /// Target's iSCSI name.
    pub target: String,
    /// Initiator's address.
    pub peer: String,
    /// The initiator proved who it is.
    pub authenticated: bool,
    /// CRC32C on headers.
    pub header_digest: bool,
    /// CRC32C on data.
    pub data_digest: bool,
    /// Seconds since login.
    pub age_seconds: u64,
}

/// Whether a LUN can serve.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase", tag = "state", content = "reason")]
pub enum State {
    /// It serves.
    #[default]
    Online,
    /// Its disk could not be opened; tried again from time to time.
    Unavailable(String),
    /// Its ring was found corrupt, or a bug has hit its lane; it stays down until the gateway is restarted or the LUN is configured anew.
    Failed(String),
}

/// One LUN.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Lun {
    /// Target's iSCSI name.
    pub target: String,
    /// Number.
    pub lun: u16,
    /// Disk's name in the configuration.
    pub disk: String,
    /// Where its blocks are.
    pub store: String,
    /// Can it serve?
    #[serde(flatten)]
    pub state: State,
    /// Size of the disk.
    pub size: u64,
    /// Commands in flight.
    pub in_flight: u64,
    /// Commands waiting for memory.
    pub waiting: u64,
    /// Range of its data area.
    pub data_area: u64,
    /// Data area backed by memory.
    pub data_area_backed: u64,
    /// Data area held by commands.
    pub data_area_in_use: u64,
    /// Commands since the start.
    pub commands: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Commands answered CHECK CONDITION because the disk failed, was full or is write-protected.
    pub errors: u64,
    /// READ and WRITE bytes that went through the gateway's own memory: the ends of unaligned buffers.
    pub copied_bytes: u64,
    /// Time from the ring to the answer, by class of the opcode table.
    pub classes: BTreeMap<String, Latency>,
}

/// A histogram with fixed buckets.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Latency {
    /// All times together.
    pub sum_seconds: f64,
    /// Buckets, ascending; the last one has no upper bound.
    pub buckets: Vec<Bucket>,
}

/// One bucket.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Bucket {
    /// Upper bound; `f64::MAX` for the last.
    pub seconds: f64,
    /// Commands in this bucket alone.
    pub count: u64,
}
