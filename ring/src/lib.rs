//! The TCMU ring of one LUN: its ABI, both of its ends, and a data area that grows and shrinks.
//!
//! ```text
//!        Producer<T>                         shared memory (memfd or /dev/uioN)                Consumer
//!  allocate() → Extent      ┌─────────┬──────────────────────┬───────────────────────┐   next() → Entry
//!  push(Request) ─────────► │ mailbox │ command area (ring)  │ data area (blocks)    │ ──► Command{cdb, data}
//!  publish() → Kick         └─────────┴──────────────────────┴───────────────────────┘   complete(Response)
//!  reap(|Completion|) ◄──────────────────────────────────────────────────────────────── commit() → Kick
//! ```
//!
//! This crate knows the ABI, shared memory and the global [`Pool`]; it knows no SCSI, Ceph, runtime or configuration.

pub mod abi;
mod area;
mod consumer;
mod corrupt;
mod extent;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod pool;
mod producer;
mod protocol;
mod segments;
mod shm;

pub use consumer::{Command, Consumer, Entry, NextError, OpenError, Response, TaskManagement};
pub use corrupt::Corrupt;
pub use extent::Extent;
pub use pool::{Pool, PoolUsage, Reserve};
pub use producer::{
    Allocate, AllocateError, AreaUsage, CommandId, Completion, CreateError, Options, Producer, Rejected,
    RejectedReason, Request, create,
};
pub use segments::Segments;

/// Identity of the I_T nexus that sent a command: `generation << 32 | id`, carried in `req.__pad1`.
///
/// Zero means unknown, which is what the kernel writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Nexus(pub u64);

impl Nexus {
    /// The value the kernel leaves in the word: the sender is not known.
    pub const UNKNOWN: Self = Self(0);

    /// A nexus from its table index (never 0 for a known nexus) and that index' generation.
    pub fn new(id: u32, generation: u32) -> Self {
        Self(u64::from(generation) << 32 | u64::from(id))
    }

    /// The table index.
    pub fn id(self) -> u32 {
        self.0 as u32
    }

    /// How often the index had been given out before.
    pub fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// Which way a command's buffer is carried: low half of the request's `__pad2` word (zero from the kernel).
///
/// The consumer needs it to tell data-out from room for data-in: room holds whatever it held before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum Direction {
    /// The producer does not say.
    #[default]
    Unknown = 0,
    /// From the device server to the initiator.
    In = 1,
    /// From the initiator to the device server.
    Out = 2,
}

/// Whether the peer must be woken after a batch was published.
#[must_use = "a peer that is not kicked sleeps on"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kick {
    /// Something was published: ring the peer's doorbell once.
    Needed,
    /// Nothing was published.
    Unneeded,
}

/// How one end wakes the other: a task wake in the process, an eventfd, or the four-byte write to `/dev/uioN`.
pub trait Doorbell: Send + Sync {
    /// Wakes the peer. Cheap, never blocks, may be called from any thread.
    fn ring(&self);
}

/// Task-management functions as TCMU numbers them (`enum tcmu_tmr_type`, Linux 5.10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum TaskManagementKind {
    /// The kernel could not map its function.
    Unknown = 0,
    /// ABORT TASK.
    AbortTask = 1,
    /// ABORT TASK SET.
    AbortTaskSet = 2,
    /// CLEAR ACA.
    ClearAca = 3,
    /// CLEAR TASK SET.
    ClearTaskSet = 4,
    /// LOGICAL UNIT RESET.
    LunReset = 5,
    /// TARGET WARM RESET.
    TargetWarmReset = 6,
    /// TARGET COLD RESET.
    TargetColdReset = 7,
}
