//! `linux/target_core_user.h` as the kernel has it (5.15 and later), with its sizes and offsets asserted.
//!
//! ```text
//! 0        64       128 = cmdr_off                        cmdr_off + cmdr_size
//! ┌────────┬────────┬─────────────────────────────────────┬─────────────────────────┐
//! │ head … │ tail … │ entries, each a multiple of 8 bytes │ data area (iov offsets) │
//! └────────┴────────┴─────────────────────────────────────┴─────────────────────────┘
//! ```
//!
//! The structures are never laid over shared memory: they exist so that the compiler computes the offsets that the rest
//! of the crate reads and writes as words. All integers are in the machine's byte order.

use std::mem::{offset_of, size_of};

/// The only mailbox version there is (`TCMU_MAILBOX_VERSION`).
pub const MAILBOX_VERSION: u16 = 2;

/// Out-of-order completion: a response names its command by id.
pub const CAP_OOOC: u16 = 1 << 0;
/// A response may say how many bytes of data-in are valid.
pub const CAP_READ_LEN: u16 = 1 << 1;
/// Task-management notices may be delivered (Linux 5.10).
pub const CAP_TMR: u16 = 1 << 2;
/// Buffers may be kept after completion (Linux 5.15); rbdgate never asks for it.
pub const CAP_KEEP_BUF: u16 = 1 << 3;

/// Entry kinds, the low three bits of `len_op`.
pub mod op {
    /// Filler up to the end of the ring; may be as short as the 8-byte header.
    pub const PAD: u32 = 0;
    /// A SCSI command.
    pub const CMD: u32 = 1;
    /// A task-management notice.
    pub const TMR: u32 = 2;
    /// Bits of `len_op` that hold the kind; the others are the length.
    pub const MASK: u32 = 7;
}

/// `uflags`: the consumer does not know this entry kind.
pub const UFLAG_UNKNOWN_OP: u8 = 1;
/// `uflags`: `rsp.read_len` is valid.
pub const UFLAG_READ_LEN: u8 = 2;
/// `uflags`: the buffer stays allocated after completion.
pub const UFLAG_KEEP_BUF: u8 = 4;

/// Bytes of sense data in a response (`TCMU_SENSE_BUFFERSIZE`).
pub const SENSE_LEN: usize = 96;
/// Entries start and end on multiples of this (`TCMU_OP_ALIGN_SIZE`).
pub const ALIGN: u32 = 8;

/// `struct tcmu_mailbox`.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
pub struct Mailbox {
    /// [`MAILBOX_VERSION`].
    pub version: u16,
    /// `CAP_*` bits.
    pub flags: u16,
    /// Start of the command ring, in bytes from the start of the mapping.
    pub cmdr_off: u32,
    /// Size of the command ring in bytes; no power of two.
    pub cmdr_size: u32,
    /// Written by the producer: end of the valid entries, in bytes from `cmdr_off`.
    pub cmd_head: u32,
    pad: [u8; 48],
    /// Written by the consumer: end of the answered entries, in bytes from `cmdr_off`. On its own cache line.
    pub cmd_tail: u32,
}

/// `struct tcmu_cmd_entry_hdr`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct EntryHeader {
    /// Length in bytes (a multiple of 8) with the kind in the low bits.
    pub len_op: u32,
    /// The command's id.
    pub cmd_id: u16,
    /// Flags of the kernel; none is defined.
    pub kflags: u8,
    /// `UFLAG_*` bits, set by the consumer.
    pub uflags: u8,
}

/// `struct tcmu_cmd_entry`, request view, without its trailing iovecs.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CommandRequest {
    /// Kind CMD.
    pub hdr: EntryHeader,
    /// Iovecs of the buffer (data-out of a bidirectional command).
    pub iov_cnt: u32,
    /// Iovecs of data-in of a bidirectional command; they follow the others.
    pub iov_bidi_cnt: u32,
    /// Never set by any kernel.
    pub iov_dif_cnt: u32,
    pad: u32,
    /// The CDB, in bytes from the start of the mapping; inside the entry.
    pub cdb_off: u64,
    /// `__pad1`: zero from the kernel; this crate's producer puts the [`Nexus`](crate::Nexus) here.
    pub nexus: u64,
    /// `__pad2`: zero from the kernel; this crate's producer puts the [`Direction`](crate::Direction) into the low half.
    pub direction: u64,
}

/// `struct tcmu_cmd_entry`, response view.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CommandResponse {
    /// `len_op` is the slot's own; `cmd_id` names the command that is answered.
    pub hdr: EntryHeader,
    /// SAM status.
    pub scsi_status: u8,
    /// Zero.
    pub pad1: u8,
    /// Zero.
    pub pad2: u16,
    /// Valid bytes of data-in, with [`UFLAG_READ_LEN`].
    pub read_len: u32,
    /// Sense data with CHECK CONDITION.
    pub sense: [u8; SENSE_LEN],
}

/// `struct tcmu_tmr_entry`, without its trailing ids.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TaskManagementEntry {
    /// Kind TMR.
    pub hdr: EntryHeader,
    /// The function.
    pub tmr_type: u8,
    /// Zero.
    pub pad1: u8,
    /// Zero.
    pub pad2: u16,
    /// Ids that follow.
    pub cmd_cnt: u32,
    /// Zero.
    pub pad3: u64,
    /// Zero.
    pub pad4: u64,
}

/// `struct iovec` of a 64-bit kernel, as it stands in an entry.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Iovec {
    /// Bytes from the start of the mapping.
    pub base: u64,
    /// Length in bytes.
    pub len: u64,
}

/// Bytes of the mailbox, and `cmdr_off` of every known kernel.
pub const MAILBOX_LEN: u32 = size_of::<Mailbox>() as u32;
/// Bytes of an entry header: the shortest entry.
pub const HEADER_LEN: u32 = size_of::<EntryHeader>() as u32;
/// Bytes of a command entry before its CDB when it has at most four iovecs: room for a response.
pub const COMMAND_LEN: u32 = size_of::<CommandResponse>() as u32;
/// Offset of the iovecs in a command entry.
pub const IOV_OFFSET: u32 = size_of::<CommandRequest>() as u32;
/// Bytes of one iovec.
pub const IOVEC_LEN: u32 = size_of::<Iovec>() as u32;
/// Offset of the ids in a task-management entry.
pub const TMR_IDS_OFFSET: u32 = size_of::<TaskManagementEntry>() as u32;

const _: () = {
    assert!(size_of::<usize>() == 8, "a 32-bit process cannot share a ring with a 64-bit kernel");
    assert!(size_of::<Mailbox>() == 128);
    assert!(offset_of!(Mailbox, flags) == 2);
    assert!(offset_of!(Mailbox, cmdr_off) == 4);
    assert!(offset_of!(Mailbox, cmdr_size) == 8);
    assert!(offset_of!(Mailbox, cmd_head) == 12);
    assert!(offset_of!(Mailbox, cmd_tail) == 64);
    assert!(size_of::<EntryHeader>() == 8);
    assert!(offset_of!(EntryHeader, cmd_id) == 4);
    assert!(offset_of!(EntryHeader, uflags) == 7);
    assert!(size_of::<CommandRequest>() == 48);
    assert!(offset_of!(CommandRequest, iov_cnt) == 8);
    assert!(offset_of!(CommandRequest, iov_bidi_cnt) == 12);
    assert!(offset_of!(CommandRequest, iov_dif_cnt) == 16);
    assert!(offset_of!(CommandRequest, cdb_off) == 24);
    assert!(offset_of!(CommandRequest, nexus) == 32);
    assert!(offset_of!(CommandRequest, direction) == 40);
    assert!(size_of::<CommandResponse>() == 112);
    assert!(offset_of!(CommandResponse, scsi_status) == 8);
    assert!(offset_of!(CommandResponse, read_len) == 12);
    assert!(offset_of!(CommandResponse, sense) == 16);
    assert!(size_of::<TaskManagementEntry>() == 32);
    assert!(offset_of!(TaskManagementEntry, tmr_type) == 8);
    assert!(offset_of!(TaskManagementEntry, cmd_cnt) == 12);
    assert!(size_of::<Iovec>() == 16);
};

/// Length of a CDB by its opcode (SPC-4 4.2.5): by group, and 8 + additional length for the variable-length group.
/// `None` for an empty CDB; never more than 263.
///
/// The reserved and vendor-specific groups get what the kernel gives them.
pub fn cdb_len(cdb: &[u8]) -> Option<usize> {
    const BY_GROUP: [usize; 8] = [6, 10, 10, 12, 16, 12, 10, 10];
    let opcode = *cdb.first()?;
    if opcode == 0x7f {
        return Some(8 + usize::from(cdb.get(7).copied().unwrap_or(0)));
    }
    Some(BY_GROUP[usize::from(opcode >> 5)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cdb_has_the_length_of_its_group() {
        for (opcode, len) in
            [(0x00, 6), (0x28, 10), (0x4d, 10), (0x88, 16), (0xa8, 12), (0xc0, 10), (0xff, 10)]
        {
            assert_eq!(cdb_len(&[opcode; 6]), Some(len), "{opcode:#x}");
        }
        assert_eq!(cdb_len(&[]), None);
    }

    #[test]
    fn a_variable_length_cdb_says_its_length_itself() {
        assert_eq!(cdb_len(&[0x7f, 0, 0, 0, 0, 0, 0, 0x18]), Some(32));
        assert_eq!(cdb_len(&[0x7f, 0, 0, 0, 0, 0, 0, 0xff]), Some(263));
        assert_eq!(cdb_len(&[0x7f]), Some(8));
    }
}
