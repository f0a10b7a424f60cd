//! What one command may ask for; the Block Limits page (VPD B0h) says the same to the initiator.

/// MAXIMUM TRANSFER LENGTH, bytes. READ and WRITE use the command's own buffer; what is read back and compared goes
/// through [`SCRATCH`].
pub(super) const TRANSFER: u64 = 8 << 20;

/// The largest piece of the engine's own memory that one command uses at a time, bytes.
pub(super) const SCRATCH: u64 = 1 << 20;

/// MAXIMUM UNMAP LBA COUNT, bytes, over all descriptors of one command. (Test suites distrust more than 2^20 blocks.)
pub(super) const UNMAP: u64 = 512 << 20;

/// MAXIMUM UNMAP BLOCK DESCRIPTOR COUNT.
pub(super) const UNMAP_DESCRIPTORS: usize = 256;

/// MAXIMUM WRITE SAME LENGTH, bytes: what a slow store still writes within a host's command timeout. (Test suites that see
/// 2^16 blocks or more here send a WRITE as long, whatever MAXIMUM TRANSFER LENGTH says.)
pub(super) const WRITE_SAME: u64 = 16 << 20;

/// MAXIMUM COMPARE AND WRITE LENGTH, bytes; at 512-byte blocks the field's one byte could say little more.
pub(super) const COMPARE_AND_WRITE: u64 = 64 << 10;

/// How far one GET LBA STATUS looks, bytes: asking a store about a range costs it an operation per object.
pub(super) const LBA_STATUS: u64 = 4 << 30;

/// LBA status descriptors in one answer.
pub(super) const LBA_STATUS_DESCRIPTORS: usize = 256;

/// What a background operation writes at a time, bytes: short enough that other LUNs of the store are served in between.
pub(super) const FILL: u64 = 16 << 20;

/// What a background operation zeroes or deallocates at a time, bytes.
pub(super) const ERASE: u64 = 1 << 30;

/// MAXIMUM ATOMIC TRANSFER LENGTH at most, bytes.
pub(super) const ATOMIC: u64 = 1 << 20;

/// The buffer that WRITE BUFFER fills and READ BUFFER shows, bytes.
pub(super) const BUFFER: usize = 64 << 10;

/// The echo buffer, bytes.
pub(super) const ECHO: usize = 4 << 10;
