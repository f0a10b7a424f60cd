//! Third-party copy (SPC-4, SBC-3): blocks move within a LUN, or between LUNs, without passing through the initiator.
//!
//! ```text
//!  EXTENDED COPY(LID1) ──► list     parse()    parameter list → descriptors; every field checked
//!                          plan     resolve()  descriptors → who and where; only what the initiator itself may reach
//!                          run      Copying    reads and writes, a bounded number of pieces at a time
//!                          record              how far it has come ──► results: RECEIVE COPY RESULTS
//! ```
//!
//! A token (ODX) splits the two halves: POPULATE TOKEN names the source, WRITE USING TOKEN the destination ([`token`],
//! [`rod`]); the copy itself is the same.
//!
//! The unit that is sent the command is the copy manager. Its own blocks it reads and writes like any command; blocks of
//! another LUN by [`Io::Visit`](super::Io::Visit), which that LUN's lane admits.
//!
//! *Reach*: a descriptor names this unit, or a LUN of the same target that stands in the initiator's own view. Whatever
//! else it names is not reachable, whether it exists or not (CVE-2020-28374 was a copy manager that did not ask).

mod guest;
mod list;
mod page;
mod plan;
mod record;
mod results;
mod rod;
mod run;
mod token;

pub(super) use self::guest::{admit, check};
pub(super) use self::page::third_party_copy;
pub(super) use self::record::Records;
pub(super) use self::results::{copy_status, failed_segment_details, operating_parameters};
pub(super) use self::rod::Own as OwnRods;
pub use self::rod::Rods;
pub(super) use self::run::{Copying, extended_copy};
pub(super) use self::token::{
    Populating, copy_operation_abort, populate_token, receive_rod_token_information, write_using_token,
};

/// What one parameter list may hold; RECEIVE COPY RESULTS with OPERATING PARAMETERS says the same to the initiator.
mod limits {
    /// MAXIMUM TARGET DESCRIPTOR COUNT.
    pub(super) const TARGETS: usize = 16;
    /// MAXIMUM SEGMENT DESCRIPTOR COUNT.
    pub(super) const SEGMENTS: usize = 64;
    /// MAXIMUM DESCRIPTOR LIST LENGTH, bytes.
    pub(super) const LIST: usize = TARGETS * 32 + SEGMENTS * 32;
    /// MAXIMUM SEGMENT LENGTH, bytes: what 16 bits of 4096-byte blocks come to.
    pub(super) const SEGMENT: u32 = 1 << 28;
    /// Bytes that are read and then written in one go.
    pub(super) const PIECE: u64 = crate::scsi::limits::SCRATCH;
    /// Memory that one copy wants, bytes.
    pub(super) const WINDOW: u64 = 4 * PIECE;
    /// The smallest piece, when the memory of all copies is nearly used up.
    pub(super) const SMALLEST: u64 = 64 << 10;
    /// MAXIMUM RANGE DESCRIPTORS of POPULATE TOKEN and WRITE USING TOKEN.
    pub(super) const RANGES: usize = 64;
    /// MAXIMUM TOKEN TRANSFER SIZE, bytes.
    pub(super) const TOKEN: u64 = 256 << 20;
    /// OPTIMAL TRANSFER COUNT of a token, bytes.
    pub(super) const OPTIMAL_TOKEN: u64 = 64 << 20;
    /// MAXIMUM CONCURRENT COPIES with list identifiers, of one nexus.
    pub(super) const CONCURRENT: u8 = 32;
}
