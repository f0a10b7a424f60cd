//! From the words of an entry, copied out of the ring once, to a command or a notice. Pure: nothing shared is read here.

use std::ops::Range;

use smallvec::SmallVec;

use super::TaskManagement;
use crate::abi::{self, cdb_len};
use crate::protocol::Geometry;
use crate::{Corrupt, Direction, Nexus, TaskManagementKind};

/// Most iovecs of one command: 256 MiB in single 4 KiB pages. Bounds what a peer can make us allocate.
pub(crate) const MAX_IOVECS: u32 = 1 << 16;

/// Room for most CDBs without an allocation.
pub(super) type Cdb = SmallVec<[u8; 16]>;

/// A validated command entry.
#[derive(Debug)]
pub(super) struct Parsed<'a> {
    pub(super) id: u16,
    pub(super) nexus: Nexus,
    pub(super) direction: Direction,
    pub(super) cdb: Cdb,
    iovecs: &'a [[u32; 4]],
    data: usize,
}

impl Parsed<'_> {
    /// Ranges of the mapping: data-out, or room for data-in.
    pub(super) fn data(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        self.iovecs[..self.data].iter().map(range)
    }

    /// Ranges of the mapping: data-in of a bidirectional command.
    pub(super) fn bidi_data(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        self.iovecs[self.data..].iter().map(range)
    }

    /// True for a bidirectional command.
    pub(super) fn is_bidirectional(&self) -> bool {
        self.data < self.iovecs.len()
    }
}

fn base_and_len(iovec: &[u32; 4]) -> (u64, u64) {
    (long(iovec[0], iovec[1]), long(iovec[2], iovec[3]))
}

fn range(iovec: &[u32; 4]) -> Range<usize> {
    let (base, len) = base_and_len(iovec);
    base as usize..(base + len) as usize
}

fn long(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// Validates a command entry that stood at `at`; every iovec must lie in `area`.
pub(super) fn command<'a>(
    words: &'a [u32],
    at: u32,
    ring: Geometry,
    area: &Range<u64>,
) -> Result<Parsed<'a>, Corrupt> {
    let iov = abi::IOV_OFFSET as usize / 4;
    let most = ((words.len() - iov) / 4).min(MAX_IOVECS as usize) as u32;
    let count = u64::from(words[2]) + u64::from(words[3]);
    if count > u64::from(most) {
        return Err(Corrupt::IovecCount { at, count, most });
    }
    let iovecs = &words[iov..].as_chunks::<4>().0[..count as usize];
    for (index, iovec) in (0..).zip(iovecs) {
        let (base, len) = base_and_len(iovec);
        let end = base.checked_add(len);
        if base < area.start || end.is_none_or(|end| end > area.end) {
            return Err(Corrupt::Iovec { at, index, base, len });
        }
    }
    let cdb = copy_cdb(words, at, ring, count as usize)?;
    let nexus = Nexus(long(words[8], words[9]));
    let direction = match words[10] {
        1 => Direction::In,
        2 => Direction::Out,
        _ => Direction::Unknown,
    };
    Ok(Parsed { id: words[1] as u16, nexus, direction, cdb, iovecs, data: words[2] as usize })
}

/// The CDB with the length that its opcode has, cut at the end of the entry.
fn copy_cdb(words: &[u32], at: u32, ring: Geometry, iovecs: usize) -> Result<Cdb, Corrupt> {
    let cdb_off = long(words[6], words[7]);
    let first = u64::from(abi::IOV_OFFSET) + iovecs as u64 * u64::from(abi::IOVEC_LEN);
    let inside = cdb_off.checked_sub(u64::from(ring.offset(at)));
    let len = words.len() as u64 * 4;
    let Some(start) = inside.filter(|start| (first..len).contains(start)) else {
        return Err(Corrupt::CdbOffset { at, cdb_off });
    };
    let byte = |index: usize| words[index / 4].to_ne_bytes()[index % 4];
    let room = start as usize..(len as usize).min(start as usize + 264);
    let mut cdb: Cdb = room.clone().take(16).map(byte).collect();
    let whole = cdb_len(&cdb).unwrap_or(0).min(room.len());
    cdb.truncate(whole);
    cdb.extend(room.take(whole).skip(16).map(byte));
    Ok(cdb)
}

/// Validates a task-management entry that stood at `at`.
pub(super) fn task_management(words: &[u32], at: u32) -> Result<TaskManagement, Corrupt> {
    let len = words.len() as u32 * 4;
    let count = words.get(3).copied().unwrap_or(0);
    let room = len.checked_sub(abi::TMR_IDS_OFFSET).map(|bytes| bytes / 2);
    if room.is_none_or(|room| count > room) || count > u32::from(u16::MAX) + 1 {
        return Err(Corrupt::TaskManagement { at, len, count });
    }
    let ids = &words[abi::TMR_IDS_OFFSET as usize / 4..];
    let halves = ids.iter().flat_map(|word| {
        let [a, b, c, d] = word.to_ne_bytes();
        [u16::from_ne_bytes([a, b]), u16::from_ne_bytes([c, d])]
    });
    Ok(TaskManagement { kind: kind(words[2] as u8), ids: halves.take(count as usize).collect() })
}

fn kind(tmr_type: u8) -> TaskManagementKind {
    /// `TCMU_TMR_LUN_RESET_PRO`: commands that PREEMPT AND ABORT ends. No unit attention follows from it.
    const RESET_BY_RESERVATION: u8 = 128;
    match tmr_type {
        1 => TaskManagementKind::AbortTask,
        2 | RESET_BY_RESERVATION => TaskManagementKind::AbortTaskSet,
        3 => TaskManagementKind::ClearAca,
        4 => TaskManagementKind::ClearTaskSet,
        5 => TaskManagementKind::LunReset,
        6 => TaskManagementKind::TargetWarmReset,
        7 => TaskManagementKind::TargetColdReset,
        _ => TaskManagementKind::Unknown,
    }
}
