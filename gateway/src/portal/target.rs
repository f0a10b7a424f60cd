//! What is served, to whom and how: targets, access rules and parameters. Immutable snapshots; a change is a new one.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::Port;
use super::chap::Chap;
use crate::nexus::View;
use crate::reactor::Reactor;

/// Everything that can be logged in to.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    /// By normalised iSCSI name.
    pub targets: BTreeMap<String, Arc<Target>>,
    /// What a discovery session must prove.
    pub discovery: Auth,
    /// Targets that are served elsewhere.
    pub redirects: BTreeMap<String, Redirect>,
    /// Where every other target is served instead of here.
    pub elsewhere: Option<Redirect>,
}

impl Directory {
    /// Where a login to `target` is to go instead; its own redirection counts before the whole gateway's.
    pub fn redirect(&self, target: &str) -> Option<Redirect> {
        self.redirects.get(target).or(self.elsewhere.as_ref()).copied()
    }
}

/// Login redirection (RFC 7143 section 11.13.5): the login is refused, with another `TargetAddress`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// Where the target is served.
    pub address: SocketAddr,
    /// For good (status 0102h: initiators forget the old address), or for this login (0101h).
    pub permanent: bool,
}

/// One iSCSI target with its logical units.
#[derive(Clone, Debug)]
pub struct Target {
    /// Normalised iSCSI name (see [`crate::names::normalize`]).
    pub name: String,
    /// Portal group tag.
    pub group: u16,
    /// Where discovery says it is; empty: at the address that the initiator asked.
    pub addresses: Vec<SocketAddr>,
    /// Logical units by number.
    pub luns: BTreeMap<u16, Arc<Port>>,
    /// Answers for every other number.
    pub absent: Arc<Port>,
    /// The REPORT LUNS well known logical unit; `None`: there is none.
    pub well_known: Option<Arc<Port>>,
    /// Who may log in.
    pub access: Access,
    /// What is offered in negotiation, and limits.
    pub parameters: Parameters,
    /// Where its connections run: beside its lanes.
    pub reactor: Reactor,
}

/// Who may log in to a target.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// By normalised initiator name.
    pub initiators: BTreeMap<String, Grant>,
    /// For initiators not named.
    pub anyone: Option<Grant>,
}

impl Access {
    /// The rule for an initiator, if it may log in at all.
    pub fn grant(&self, initiator: &str) -> Option<&Grant> {
        self.initiators.get(initiator).or(self.anyone.as_ref())
    }
}

/// What one initiator must prove and may see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// Proof of who it is.
    pub auth: Auth,
    /// Its logical units.
    pub view: View,
}

/// Proof of identity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Auth {
    /// The name is believed.
    #[default]
    None,
    /// CHAP, one-way or mutual.
    Chap(Arc<Chap>),
}

/// When CRC32C digests are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DigestPolicy {
    /// As the initiator prefers.
    #[default]
    Either,
    /// Never.
    Never,
    /// Always: an initiator that cannot is refused.
    Required,
}

/// Negotiation offers and limits of one target. Lengths in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// `HeaderDigest`.
    pub header_digest: DigestPolicy,
    /// `DataDigest`.
    pub data_digest: DigestPolicy,
    /// Longest data segment taken (`MaxRecvDataSegmentLength`), 512 to 16777215.
    pub max_recv_data_segment_length: u32,
    /// `MaxBurstLength` at most.
    pub max_burst_length: u32,
    /// `FirstBurstLength` at most.
    pub first_burst_length: u32,
    /// `InitialR2T`: true forbids unsolicited Data-Out.
    pub initial_r2t: bool,
    /// `ImmediateData`: false forbids it.
    pub immediate_data: bool,
    /// `MaxOutstandingR2T` at most.
    pub max_outstanding_r2t: u16,
    /// Commands one session may have at once (the CmdSN window), 1 to 256.
    pub queue_depth: u16,
    /// How many of them before it has shown that it wants more. Each may bring `first_burst_length` bytes unasked, for which
    /// memory is set aside: hundreds of idle sessions must not hold what busy ones need.
    pub initial_depth: u16,
    /// Silence after which the initiator is pinged; zero: never.
    pub nop_interval: Duration,
    /// Silence after a ping after which the connection is dropped.
    pub nop_timeout: Duration,
    /// How long solicited or unsolicited data may stay out.
    pub data_out_timeout: Duration,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            header_digest: DigestPolicy::Either,
            data_digest: DigestPolicy::Either,
            max_recv_data_segment_length: 256 << 10,
            max_burst_length: 1 << 20,
            first_burst_length: 256 << 10,
            initial_r2t: false,
            immediate_data: true,
            max_outstanding_r2t: 8,
            queue_depth: 128,
            initial_depth: 4,
            nop_interval: Duration::from_secs(5),
            nop_timeout: Duration::from_secs(5),
            data_out_timeout: Duration::from_secs(20),
        }
    }
}

/// Bounds of a [`super::Server`].
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections in any state.
    pub connections: usize,
    /// Of them, those that have not logged in yet.
    pub unauthenticated: usize,
    /// Of those, the ones from one address: it cannot take every place.
    pub unauthenticated_per_address: usize,
    /// Normal sessions.
    pub sessions: usize,
    /// Of them, those of one initiator, whatever targets they are with.
    pub sessions_per_initiator: usize,
    /// Discovery sessions, of anybody.
    pub discoveries: usize,
    /// How long a discovery session may last: it is for asking once.
    pub discovery_time: Duration,
    /// From the accepted connection to the end of its login.
    pub login_timeout: Duration,
    /// How long a reinstating login waits for the writes of the session it ends.
    pub reinstatement_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 4096,
            unauthenticated: 256,
            unauthenticated_per_address: 64,
            sessions: 2048,
            sessions_per_initiator: 256,
            discoveries: 256,
            discovery_time: Duration::from_secs(60),
            login_timeout: Duration::from_secs(15),
            reinstatement_timeout: Duration::from_secs(60),
        }
    }
}
