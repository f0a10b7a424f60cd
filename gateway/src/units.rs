//! The directory of logical units: how a command of one LUN reaches the blocks of another.
//!
//! A third-party copy is carried out by the lane of the LUN that was sent it, the *copy manager*. Blocks of another LUN
//! it reads and writes by *visits*: requests left at the other lane's door, which that lane admits (is the LUN in the
//! initiator's view, may it write, do reservations allow it), carries out among its own and completes to the visitor's
//! inbox like a disk. Lanes never wait for each other, so copies in opposite directions cannot lock each other up.
//!
//! The supervisor enters a LUN when its lane runs and takes it out before the lane is stopped. Whoever still holds an entry
//! then finds its door closed: visits end with [`Error::NotReady`](crate::disk::Error::NotReady).
//!
//! The directory also bounds the memory that all copies of the process use together.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ring::Nexus;

use crate::disk::Completer;
use crate::scsi::{Identity, Rods};

/// What is asked of another LUN. Offsets in bytes; the buffer comes back with the completion.
#[derive(Debug)]
pub enum Call {
    /// Fill the buffer from `offset`.
    Read {
        /// Where on the disk.
        offset: u64,
        /// As long as what is wanted.
        buffer: Vec<u8>,
    },
    /// Store the buffer at `offset`.
    Write {
        /// Where on the disk.
        offset: u64,
        /// The data.
        buffer: Vec<u8>,
    },
}

impl Call {
    /// Its buffer, as it is.
    pub fn into_buffer(self) -> Vec<u8> {
        match self {
            Self::Read { buffer, .. } | Self::Write { buffer, .. } => buffer,
        }
    }
}

/// One request for another LUN, on behalf of an initiator.
#[derive(Debug)]
pub struct Visit {
    /// Who wants it; the other LUN decides whether it may.
    pub nexus: Nexus,
    /// What.
    pub call: Call,
    /// Whom to tell.
    pub completer: Completer,
}

/// Where visits are left.
pub trait Door: Send + Sync {
    /// Takes a visit; never blocks. It is completed exactly once, on any thread, possibly at once.
    fn visit(&self, visit: Visit);

    /// The LUN's size now, bytes.
    fn size(&self) -> u64;
}

/// One LUN in the directory.
pub struct Entry {
    /// iSCSI name of its target.
    pub target: String,
    /// Its number there.
    pub lun: u16,
    /// What it is known by.
    pub identity: Identity,
    /// Logical block, bytes.
    pub block_size: u64,
    /// Its lane.
    pub door: Arc<dyn Door>,
}

/// The directory, shared by all LUNs.
#[derive(Debug)]
pub struct Table {
    entries: Mutex<Vec<Arc<Entry>>>,
    memory: AtomicU64,
    rods: Rods,
}

/// What all third-party copies together may hold, bytes.
const MEMORY: u64 = 64 << 20;

impl Default for Table {
    fn default() -> Self {
        Self { entries: Mutex::default(), memory: AtomicU64::new(MEMORY), rods: Rods::default() }
    }
}

impl Table {
    /// An empty directory.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Enters a LUN until the handle is dropped or [`Listing::withdraw`]n.
    pub fn enter(self: &Arc<Self>, entry: Entry) -> Listing {
        let entry = Arc::new(entry);
        self.lock().push(Arc::clone(&entry));
        Listing { table: Arc::clone(self), entry }
    }

    /// The first LUN that `wanted` picks.
    pub fn find(&self, wanted: impl Fn(&Entry) -> bool) -> Option<Arc<Entry>> {
        self.lock().iter().find(|entry| wanted(entry)).cloned()
    }

    /// Lends up to `wanted` bytes of the copies' memory, in multiples of `unit`, and less the less there is left, so that
    /// many copies can go on at once; `None` if not one unit is free.
    pub fn borrow(self: &Arc<Self>, wanted: u64, unit: u64) -> Option<Loan> {
        let mut bytes = 0;
        let lent = self.memory.fetch_update(Ordering::AcqRel, Ordering::Acquire, |free| {
            bytes = wanted.min((free / 8).max(unit)).min(free) / unit * unit;
            (bytes > 0).then(|| free - bytes)
        });
        lent.ok().map(|_| Loan { table: Arc::clone(self), bytes })
    }

    /// The tokens that stand for data of these LUNs.
    pub(crate) fn rods(&self) -> &Rods {
        &self.rods
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Entry>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps a LUN in the directory.
#[derive(Debug)]
pub struct Listing {
    table: Arc<Table>,
    entry: Arc<Entry>,
}

impl Listing {
    /// Takes the LUN out: no new copy finds it.
    pub fn withdraw(&self) {
        self.table.lock().retain(|entry| !Arc::ptr_eq(entry, &self.entry));
    }
}

impl Drop for Listing {
    fn drop(&mut self) {
        self.withdraw();
    }
}

/// Memory lent to one copy; given back when it is dropped.
#[derive(Debug)]
pub struct Loan {
    table: Arc<Table>,
    bytes: u64,
}

impl Loan {
    /// How much.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.table.memory.fetch_add(self.bytes, Ordering::AcqRel);
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").field("target", &self.target).field("lun", &self.lun).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Closed;

    impl Door for Closed {
        fn visit(&self, visit: Visit) {
            visit.completer.complete(Err(crate::disk::Error::NotReady), None);
        }

        fn size(&self) -> u64 {
            0
        }
    }

    fn entry(lun: u16) -> Entry {
        Entry {
            target: "iqn.2026-01.example:t".into(),
            lun,
            identity: Identity::from_serial(format!("disk{lun}")),
            block_size: 512,
            door: Arc::new(Closed),
        }
    }

    #[test]
    fn a_lun_is_found_from_its_entry_to_its_withdrawal() {
        let table = Table::new();
        let (first, second) = (table.enter(entry(1)), table.enter(entry(2)));
        assert!(table.find(|entry| entry.lun == 1).is_some());
        first.withdraw();
        first.withdraw();
        assert!(table.find(|entry| entry.lun == 1).is_none());
        drop(second);
        assert!(table.find(|_| true).is_none());
    }

    #[test]
    fn the_memory_of_all_copies_is_bounded_and_comes_back() {
        let table = Table::new();
        let loans: Vec<_> = std::iter::from_fn(|| table.borrow(4 << 20, 1 << 16)).collect();
        assert_eq!(loans.iter().map(Loan::bytes).sum::<u64>(), MEMORY);
        assert_eq!((loans[0].bytes(), loans.last().unwrap().bytes()), (4 << 20, 1 << 16));
        assert!(loans.len() > 32, "{}", loans.len());
        drop(loans);
        let part = table.borrow(100_000, 1 << 16).unwrap();
        assert_eq!(part.bytes(), 1 << 16);
    }
}
