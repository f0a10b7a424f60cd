//! `linux/target_core_user.h` as the kernel has it (Linux 5.15 and later), with its sizes and offsets asserted.
//!
//! All words are in host byte order. Offsets are in bytes from the start of the structure they belong to.

/// Version that the mailbox carries (`TCMU_MAILBOX_VERSION`).
pub const MAILBOX_VERSION: u16 = 2;

/// The mailbox at the start of the mapping (`struct tcmu_mailbox`).
pub mod mailbox {
    /// Size: `cmd_tail` is aligned to 64.
    pub const SIZE: usize = 128;
    /// `version`, u16.
    pub const VERSION: usize = 0;
    /// `flags`, u16.
    pub const FLAGS: usize = 2;
    /// `cmdr_off`, u32: offset of the command ring from the start of the mapping.
    pub const CMDR_OFF: usize = 4;
    /// `cmdr_size`, u32: bytes of the command ring; not a power of two.
    pub const CMDR_SIZE: usize = 8;
    /// `cmd_head`, u32: written by the producer.
    pub const CMD_HEAD: usize = 12;
    /// `cmd_tail`, u32: written by the consumer.
    pub const CMD_TAIL: usize = 64;

    /// Commands may be completed out of order (`TCMU_MAILBOX_FLAG_CAP_OOOC`).
    pub const CAP_OOOC: u16 = 1 << 0;
    /// `read_len` is honoured (`TCMU_MAILBOX_FLAG_CAP_READ_LEN`, Linux 4.20).
    pub const CAP_READ_LEN: u16 = 1 << 1;
    /// Task-management entries may come (`TCMU_MAILBOX_FLAG_CAP_TMR`, Linux 5.10).
    pub const CAP_TMR: u16 = 1 << 2;
    /// A command's buffer can be kept beyond its completion (`TCMU_MAILBOX_FLAG_CAP_KEEP_BUF`, Linux 5.15).
    pub const CAP_KEEP_BUF: u16 = 1 << 3;
}

/// The header of every entry (`struct tcmu_cmd_entry_hdr`).
pub mod header {
    /// Size, and the smallest entry there is (a pad).
    pub const SIZE: usize = 8;
    /// `len_op`, u32: length in bits 31 to 3, opcode in bits 2 to 0.
    pub const LEN_OP: usize = 0;
    /// `cmd_id`, u16.
    pub const CMD_ID: usize = 4;
    /// `kflags`, u8.
    pub const KFLAGS: usize = 6;
    /// `uflags`, u8.
    pub const UFLAGS: usize = 7;

    /// Bits of `len_op` that hold the opcode.
    pub const OP_MASK: u32 = 0x7;
    /// Filler up to the end of the ring.
    pub const OP_PAD: u32 = 0;
    /// A SCSI command.
    pub const OP_CMD: u32 = 1;
    /// A task-management notice.
    pub const OP_TMR: u32 = 2;

    /// The consumer does not know the opcode.
    pub const UFLAG_UNKNOWN_OP: u8 = 1 << 0;
    /// `read_len` is set.
    pub const UFLAG_READ_LEN: u8 = 1 << 1;
    /// The buffer is kept.
    pub const UFLAG_KEEP_BUF: u8 = 1 << 2;
}

/// A command (`struct tcmu_cmd_entry`): request and response share the bytes after the header.
pub mod command {
    /// Size of the structure; iovecs beyond the fourth, and the CDB, follow it.
    pub const SIZE: usize = 112;

    /// `req.iov_cnt`, u32.
    pub const IOV_CNT: usize = 8;
    /// `req.iov_bidi_cnt`, u32.
    pub const IOV_BIDI_CNT: usize = 12;
    /// `req.iov_dif_cnt`, u32: never set by any kernel.
    pub const IOV_DIF_CNT: usize = 16;
    /// `req.cdb_off`, u64, aligned to 8: offset of the CDB from the start of the mapping.
    pub const CDB_OFF: usize = 24;
    /// `req.__pad1`, u64: the nexus id of our producer; zero from the kernel.
    pub const NEXUS: usize = 32;
    /// `req.iov[]`.
    pub const IOV: usize = 48;
    /// Size of one `struct iovec` on 64-bit systems.
    pub const IOV_SIZE: usize = 16;

    /// `rsp.scsi_status`, u8.
    pub const SCSI_STATUS: usize = 8;
    /// `rsp.read_len`, u32.
    pub const READ_LEN: usize = 12;
    /// `rsp.sense_buffer`.
    pub const SENSE: usize = 16;
    /// Bytes of `rsp.sense_buffer` (`TCMU_SENSE_BUFFERSIZE`).
    pub const SENSE_SIZE: usize = 96;
}

/// A task-management notice (`struct tcmu_tmr_entry`, Linux 5.10).
pub mod task_management {
    /// Size without ids.
    pub const SIZE: usize = 32;
    /// `tmr_type`, u8.
    pub const TYPE: usize = 8;
    /// `cmd_cnt`, u32.
    pub const CMD_CNT: usize = 12;
    /// `cmd_ids[]`, u16 each.
    pub const CMD_IDS: usize = 32;
}

/// The structures themselves, only to hold the offsets above against them.
mod layout {
    use super::{command, header, mailbox, task_management};
    use std::mem::{offset_of, size_of};

    #[repr(C, align(64))]
    struct Aligned(u32);

    #[repr(C)]
    struct Mailbox {
        version: u16,
        flags: u16,
        cmdr_off: u32,
        cmdr_size: u32,
        cmd_head: u32,
        cmd_tail: Aligned,
    }

    #[repr(C)]
    struct Header {
        len_op: u32,
        cmd_id: u16,
        kflags: u8,
        uflags: u8,
    }

    #[repr(C)]
    struct Iovec {
        base: u64,
        len: u64,
    }

    #[repr(C)]
    struct Request {
        header: Header,
        iov_cnt: u32,
        iov_bidi_cnt: u32,
        iov_dif_cnt: u32,
        cdb_off: u64,
        pad1: u64,
        pad2: u64,
        iov: [Iovec; 4],
    }

    #[repr(C)]
    struct Response {
        header: Header,
        scsi_status: u8,
        pad1: u8,
        pad2: u16,
        read_len: u32,
        sense: [u8; 96],
    }

    #[repr(C)]
    struct TaskManagement {
        header: Header,
        kind: u8,
        pad1: u8,
        pad2: u16,
        cmd_cnt: u32,
        pad3: u64,
        pad4: u64,
        cmd_ids: [u16; 0],
    }

    const _: () = {
        assert!(size_of::<Mailbox>() == mailbox::SIZE);
        assert!(offset_of!(Mailbox, version) == mailbox::VERSION);
        assert!(offset_of!(Mailbox, flags) == mailbox::FLAGS);
        assert!(offset_of!(Mailbox, cmdr_off) == mailbox::CMDR_OFF);
        assert!(offset_of!(Mailbox, cmdr_size) == mailbox::CMDR_SIZE);
        assert!(offset_of!(Mailbox, cmd_head) == mailbox::CMD_HEAD);
        assert!(offset_of!(Mailbox, cmd_tail) == mailbox::CMD_TAIL);
        assert!(size_of::<Header>() == header::SIZE);
        assert!(offset_of!(Header, cmd_id) == header::CMD_ID);
        assert!(offset_of!(Header, kflags) == header::KFLAGS);
        assert!(offset_of!(Header, uflags) == header::UFLAGS);
        assert!(size_of::<Request>() == command::SIZE);
        assert!(offset_of!(Request, iov_cnt) == command::IOV_CNT);
        assert!(offset_of!(Request, iov_bidi_cnt) == command::IOV_BIDI_CNT);
        assert!(offset_of!(Request, iov_dif_cnt) == command::IOV_DIF_CNT);
        assert!(offset_of!(Request, cdb_off) == command::CDB_OFF);
        assert!(offset_of!(Request, pad1) == command::NEXUS);
        assert!(offset_of!(Request, iov) == command::IOV);
        assert!(size_of::<Iovec>() == command::IOV_SIZE);
        assert!(size_of::<Response>() == command::SIZE);
        assert!(offset_of!(Response, scsi_status) == command::SCSI_STATUS);
        assert!(offset_of!(Response, read_len) == command::READ_LEN);
        assert!(offset_of!(Response, sense) == command::SENSE);
        assert!(size_of::<TaskManagement>() == task_management::SIZE);
        assert!(offset_of!(TaskManagement, kind) == task_management::TYPE);
        assert!(offset_of!(TaskManagement, cmd_cnt) == task_management::CMD_CNT);
        assert!(offset_of!(TaskManagement, cmd_ids) == task_management::CMD_IDS);
    };
}
