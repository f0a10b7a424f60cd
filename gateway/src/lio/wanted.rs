//! What the kernel shall have: plain data, made from the configuration and the disks that are open.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use crate::secret::Secret;

/// Everything of one gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Backstores by name. `None`: it is in the configuration and its disk is not open (yet); what the kernel has of it
    /// stays as it is.
    pub backstores: BTreeMap<String, Option<Backstore>>,
    /// Targets by the name that the fabric knows them by.
    pub targets: BTreeMap<String, Target>,
}

/// One TCMU device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backstore {
    /// `dev_config`: whose it is, and which store it stands for; see [`names`](super::names).
    pub config: String,
    /// Bytes.
    pub size: u64,
    /// Logical block, bytes.
    pub block_size: u32,
    /// Largest command, logical blocks.
    pub max_sectors: u32,
    /// Sizes of its ring.
    pub area: Area,
    /// Unit serial number, as VPD page 80h has it.
    pub serial: String,
    /// After how long the kernel itself fails a command that was not answered; zero: never. See
    /// [`sizing::COMMAND_TIMEOUT`](super::sizing::COMMAND_TIMEOUT).
    pub command_timeout: Duration,
    /// How long a command waits for room before TASK SET FULL.
    pub full_timeout: Duration,
    /// PERSISTENT RESERVE and RESERVE are left to the kernel, which knows the initiators; its state is this machine's alone.
    pub reservations: bool,
    /// The kernel waits for our answers to its events about this device.
    pub replies: bool,
    /// Target port group, as REPORT TARGET PORT GROUPS names it.
    pub group: u16,
}

/// Sizes of a ring. They are fixed when the device is enabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// Data area, MiB: an address range, whose pages get memory when they are first used.
    pub data_mib: u32,
    /// Pages in a block of it.
    pub pages_per_block: u32,
    /// Mailbox and command area, MiB, 1 to 8; kernels before 5.18 have 8.
    pub ring_mib: u32,
}

/// What carries commands to a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fabric {
    /// iSCSI.
    Iscsi,
    /// This machine itself: the LUNs appear as its own disks.
    Loopback,
}

impl Fabric {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Iscsi, Self::Loopback];

    /// Its folder.
    pub fn folder(self) -> &'static str {
        match self {
            Self::Iscsi => "iscsi",
            Self::Loopback => "loopback",
        }
    }

    /// Its module.
    pub fn module(self) -> &'static str {
        match self {
            Self::Iscsi => "iscsi_target_mod",
            Self::Loopback => "tcm_loop",
        }
    }
}

/// One target with its one portal group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// What carries its commands.
    pub fabric: Fabric,
    /// Portal group tag.
    pub tag: u16,
    /// Where it listens.
    pub portals: Vec<SocketAddr>,
    /// Its LUNs.
    pub luns: BTreeMap<u16, Lun>,
    /// Initiators without an entry of their own may log in and use every LUN.
    pub open: bool,
    /// Initiators by name.
    pub acls: BTreeMap<String, Acl>,
    /// Whether its initiators prove who they are; all of them, or none.
    pub chap: bool,
    /// Attributes of the portal group, by their path in its folder: what login negotiation offers, and times.
    pub settings: BTreeMap<&'static str, String>,
    /// Attributes of each initiator, by their path in its folder.
    pub acl_settings: BTreeMap<&'static str, String>,
}

/// One LUN of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lun {
    /// Its backstore.
    pub backstore: String,
    /// Somebody answers its commands: it may be shown. One that is shown already stays so in any case.
    pub served: bool,
}

/// One initiator's rights.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acl {
    /// LUNs that it sees; `true`: may not write.
    pub luns: BTreeMap<u16, bool>,
    /// CHAP: its own name and secret.
    pub chap: Option<(String, Secret)>,
    /// The target's name and secret.
    pub mutual: Option<(String, Secret)>,
}
