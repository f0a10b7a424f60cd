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
//!
//! # Memory
//!
//! | bytes | what | written by |
//! |---|---|---|
//! | 0..64 | mailbox: version, capabilities, place of the ring, `cmd_head` | producer |
//! | 64..128 | `cmd_tail`, on its own cache line | consumer |
//! | 128..`command_area` (8 MiB) | entries; a slot is a request until it is consumed, then room for some response | both, in turn |
//! | `command_area`.. + `data_area` (1 GiB) | blocks that the requests' iovecs name | whoever has the command |
//!
//! Nothing is backed at first. A block is backed when it is first handed out and stays so until the [`Pool`] needs the
//! memory or the LUN idles; the command area is backed page by page as the head moves, and given back too.
//!
//! # Cursors
//!
//! All are byte positions in the ring, cyclic; at least one byte stays free, so that equal cursors mean empty.
//!
//! ```text
//! consumer:  published tail ≤ private tail ≤ consumed ≤ head (as last loaded)
//! producer:  reaped ≤ published head ≤ private head
//! ```
//!
//! Both ends remember the lengths of the slots between their cursors. Neither reads the other's idea of them, nor its own
//! back from shared memory.
//!
//! | what | store | load | so that |
//! |---|---|---|---|
//! | `cmd_head` | Release, by [`Producer::publish`] | Acquire, by [`Consumer::next`] | entries and data-out before it are seen |
//! | `cmd_tail` | Release, by [`Consumer::commit`] | Acquire, by [`Producer::reap`] | responses and data-in before it are seen |
//! | entry and response words, bulk bytes of the consumer | Relaxed | Relaxed | no access is a data race, whatever the peer does |
//! | an [`Extent`]'s bytes | plain | plain | only while its owner has the blocks alone |
//!
//! # Whose bytes are they
//!
//! * A block belongs to at most one command: from allocation until the [`Completion`]'s extent is dropped. If an answer
//!   never comes, or comes wrong, it stays taken until the memory is unmapped.
//! * A [`Command`] is a must-complete token, and its answer is held back while any clone of its [`Segments`] lives: what
//!   a slow disk still writes can never be another command's memory.
//! * No byte of an earlier command gets out: a response says how much of the buffer is valid, and where that does not
//!   count for the producer, the rest is zeroed. See [`Response::transfer`].
//!
//! # Trust
//!
//! Either end survives a peer that writes anything anywhere at any time: the ring becomes [`Corrupt`], for this LUN alone.
//! A peer can spoil the data of commands on the rings that it has mapped, and nothing else.
//!
//! ```
//! use ring::{Entry, Nexus, Options, Pool, Request, Response, create};
//!
//! let pool = Pool::new(64 << 20);
//! let (producer, mut consumer) = create(&Options::default(), &pool)?;
//!
//! // The portal: room for a READ of 4 KiB, one entry, one doorbell.
//! let data = producer.try_allocate(4096)?;
//! let cdb = [0x28, 0, 0, 0, 0, 0, 0, 0, 8, 0];
//! let request = Request { cdb: &cdb, nexus: Nexus::new(1, 0), data, context: "task 7" };
//! producer.push(request).map_err(|rejected| rejected.reason)?;
//! let _kick = producer.publish();
//!
//! // The lane: the buffer goes to the disk as iovecs; here the "disk" fills it.
//! while let Ok(Entry::Command(command)) = consumer.next() {
//!     command.data().fill(0, 4096, 0xd1);
//!     consumer.complete(command, Response::good());
//! }
//! let _kick = consumer.commit();
//!
//! // The portal again: the blocks are its own and go to the socket as they are.
//! producer.reap(|done| {
//!     assert_eq!((done.context, done.status), ("task 7", 0));
//!     let mut slices = Vec::new();
//!     done.data.io_slices(0..done.data.len(), &mut slices);
//!     assert!(slices.iter().all(|slice| slice.iter().all(|byte| *byte == 0xd1)));
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod abi;
mod area;
mod clock;
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
pub mod uio;

pub use consumer::{Command, Consumer, Entry, NextError, OpenError, Response, RingUsage, TaskManagement};
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

    /// Tells the peer that this end has stopped for good: nothing that is in the ring or comes into it will be carried
    /// out, and of what was carried out nothing is under way any more. `in_order`: it was told to, and nothing was wrong.
    fn ended(&self, in_order: bool) {
        let _ = in_order;
    }
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
