//! From a response to what stands in the slot: READ_LEN, sense, and the rule that nothing stale leaves.
//!
//! **Nothing stale.** A recycled block holds bytes of an earlier command. A peer sends data-in of `read_len` bytes, or,
//! when READ_LEN does not count for it (no capability, zero, bidirectional), of the whole buffer. In the second case the
//! part of the buffer that the command did not fill is zeroed before the answer. A status other than GOOD without
//! `transfer` means that nothing was filled. With CHECK CONDITION and no valid READ_LEN no peer sends data at all, nor of
//! a buffer that is known to be data-out.

use std::ops::Range;
use std::sync::{Arc, Weak};

use smallvec::SmallVec;

use super::Command;
use crate::abi;
use crate::shm::{Lease, Mapping};
use crate::{Direction, Doorbell, Segments};

/// SAM status GOOD.
const GOOD: u8 = 0;
/// SAM status CHECK CONDITION.
const CHECK_CONDITION: u8 = 2;
/// Fixed-format sense: HARDWARE ERROR, INTERNAL TARGET FAILURE (SPC-4 table 52).
const INTERNAL_TARGET_FAILURE: [u8; 18] = [0x70, 0, 4, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x44, 0, 0, 0, 0, 0];

/// The answer to one command.
#[derive(Debug, Clone)]
pub struct Response {
    /// SAM status.
    pub status: u8,
    /// Bytes the command transfers by its CDB, in either direction: less than the buffer is a residual underflow, more
    /// an overflow. `None`: exactly the buffer with GOOD, nothing with any other status. Of data-in, only the first
    /// `transfer` bytes of the buffer are valid.
    pub transfer: Option<usize>,
    /// Sense data (at most 96 bytes are carried) with CHECK CONDITION.
    pub sense: SmallVec<[u8; 32]>,
}

impl Response {
    /// GOOD with the whole buffer transferred (or none there).
    pub fn good() -> Self {
        Self { status: GOOD, transfer: None, sense: SmallVec::new() }
    }

    /// GOOD after transferring `len` bytes; see [`Response::transfer`].
    pub fn good_with(len: usize) -> Self {
        Self { status: GOOD, transfer: Some(len), sense: SmallVec::new() }
    }

    /// A status without sense (BUSY, RESERVATION CONFLICT, TASK ABORTED, …).
    pub fn status(status: u8) -> Self {
        Self { status, transfer: None, sense: SmallVec::new() }
    }

    /// CHECK CONDITION with sense data.
    pub fn check_condition(sense: &[u8]) -> Self {
        Self { status: CHECK_CONDITION, transfer: None, sense: SmallVec::from_slice(sense) }
    }
}

/// An answer as it will stand in the slot, with what must be over before.
#[derive(Debug)]
pub(super) struct Withheld {
    pub(super) id: u16,
    pub(super) uflags: u8,
    pub(super) status: u8,
    pub(super) read_len: u32,
    pub(super) sense: SmallVec<[u8; 32]>,
    /// Bytes of its buffers.
    pub(super) room: usize,
    leases: [Weak<Lease>; 2],
    /// Parts of the buffer to zero first.
    rest: SmallVec<[Range<usize>; 1]>,
}

impl Withheld {
    /// The answer of a command that was dropped: internal target failure, without data.
    pub(super) fn failure(id: u16, data: Segments, bidi_data: Segments) -> Self {
        Self {
            id,
            uflags: 0,
            status: CHECK_CONDITION,
            read_len: 0,
            sense: SmallVec::from_slice(&INTERNAL_TARGET_FAILURE),
            room: data.len() + bidi_data.len(),
            leases: [data, bidi_data].map(|segments| segments.into_scatter().release(None)),
            rest: SmallVec::new(),
        }
    }

    /// True once nobody can reach the command's memory any more.
    pub(super) fn is_ready(&self) -> bool {
        self.leases.iter().all(Lease::is_over)
    }

    /// Zeroes what the command did not fill; its memory is still this ring's to write, and nobody else has it.
    pub(super) fn clear_rest(&self, mapping: &Mapping) {
        for range in &self.rest {
            mapping.fill(range.start, range.len(), 0);
        }
    }
}

/// Gives up the command's memory and says what its slot will hold.
pub(super) fn settle(
    command: &mut Command,
    response: Response,
    flags: u16,
    doorbell: Option<&Arc<dyn Doorbell>>,
) -> Withheld {
    let (data, bidi) = (std::mem::take(&mut command.data), std::mem::take(&mut command.bidi_data));
    let (data, bidi) = (data.into_scatter(), bidi.into_scatter());
    let Response { status, transfer, sense } = response;
    let says_len = transfer.is_some() && flags & abi::CAP_READ_LEN != 0;
    let heeded = says_len && transfer != Some(0) && bidi.len() == 0;
    let room = if bidi.len() > 0 { &bidi } else { &data };
    let is_out = command.direction == Direction::Out && bidi.len() == 0;
    let filled = transfer.unwrap_or(if status == GOOD { room.len() } else { 0 });
    let stale = !is_out && !heeded && status != CHECK_CONDITION && filled < room.len();
    let rest = if stale { room.ranges(filled, room.len() - filled).collect() } else { SmallVec::new() };
    Withheld {
        id: command.id,
        uflags: if says_len { abi::UFLAG_READ_LEN } else { 0 },
        status,
        read_len: if says_len { transfer.unwrap_or(0).try_into().unwrap_or(u32::MAX) } else { 0 },
        sense: if status == CHECK_CONDITION { sense } else { SmallVec::new() },
        room: data.len() + bidi.len(),
        leases: [data.release(doorbell), bidi.release(doorbell)],
        rest,
    }
}
