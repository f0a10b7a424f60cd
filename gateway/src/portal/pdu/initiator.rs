//! PDUs that an initiator sends (RFC 7143 sections 11.2 to 11.19, opcodes 00h to 10h).

use super::{Bits, Byte, Cdb, Field, Flag, Half, Header, Isid, Long, Word, pdu};

pdu! {
    /// NOP-Out (11.18): a ping, or the answer to one.
    NopOut = 0x00, always 1 & 0x80 {
        /// I bit.
        immediate: bool = Flag(0, 0x40),
        /// LUN; meaningful only with a target transfer tag.
        lun: u64 = Long(8),
        /// `NO_TAG`: wants no answer.
        task_tag: u32 = Word(16),
        /// Of the NOP-In it answers, or `NO_TAG`.
        transfer_tag: u32 = Word(20),
        /// Not consumed by an immediate one.
        cmd_sn: u32 = Word(24),
        /// What the initiator expects next.
        exp_stat_sn: u32 = Word(28),
    }
}

pdu! {
    /// SCSI Command (11.3).
    ScsiCommand = 0x01 {
        /// I bit.
        immediate: bool = Flag(0, 0x40),
        /// F bit: no unsolicited Data-Out follows.
        last: bool = Flag(1, 0x80),
        /// R bit: data-in expected.
        read: bool = Flag(1, 0x40),
        /// W bit: data-out expected.
        write: bool = Flag(1, 0x20),
        /// Task attribute: 0 untagged, 1 simple, 2 ordered, 3 head of queue, 4 ACA.
        attribute: u8 = Bits(1, 0x07, 0),
        /// Logical unit number.
        lun: u64 = Long(8),
        /// Initiator task tag.
        task_tag: u32 = Word(16),
        /// Expected Data Transfer Length, bytes.
        expected_len: u32 = Word(20),
        /// Its place in the order of commands.
        cmd_sn: u32 = Word(24),
        /// What the initiator expects next.
        exp_stat_sn: u32 = Word(28),
        /// The first 16 bytes of the CDB; the rest is in an AHS.
        cdb: [u8; 16] = Cdb(32),
    }
}

pdu! {
    /// Task Management Function Request (11.5).
    TaskManagementRequest = 0x02, always 1 & 0x80 {
        /// I bit.
        immediate: bool = Flag(0, 0x40),
        /// 1 abort task, 2 abort task set, 3 clear ACA, 4 clear task set, 5 LUN reset, 6 and 7 target warm and cold
        /// reset, 8 task reassign.
        function: u8 = Bits(1, 0x7f, 0),
        /// Logical unit number.
        lun: u64 = Long(8),
        /// Initiator task tag of this request.
        task_tag: u32 = Word(16),
        /// The task that ABORT TASK and TASK REASSIGN mean.
        referenced_tag: u32 = Word(20),
        /// Its place in the order of commands.
        cmd_sn: u32 = Word(24),
        /// What the initiator expects next.
        exp_stat_sn: u32 = Word(28),
        /// CmdSN of the task that ABORT TASK means.
        ref_cmd_sn: u32 = Word(32),
        /// For TASK REASSIGN.
        exp_data_sn: u32 = Word(36),
    }
}

pdu! {
    /// Login Request (11.12). Always immediate.
    LoginRequest = 0x03, always 0 & 0x40 {
        /// T bit: ready to leave the stage.
        transit: bool = Flag(1, 0x80),
        /// C bit: the text goes on in the next request.
        more: bool = Flag(1, 0x40),
        /// Current stage: 0 security, 1 operational, 3 full feature.
        stage: u8 = Bits(1, 0x0c, 2),
        /// Next stage, with T.
        next_stage: u8 = Bits(1, 0x03, 0),
        /// Highest version supported (0).
        version_max: u8 = Byte(2),
        /// Lowest version supported (0).
        version_min: u8 = Byte(3),
        /// The initiator's part of the session id.
        isid: [u8; 6] = Isid(8),
        /// The target's part; 0 for a new session.
        tsih: u16 = Half(14),
        /// The same in every request of one login.
        task_tag: u32 = Word(16),
        /// Connection id.
        cid: u16 = Half(20),
        /// CmdSN of the first command after the login.
        cmd_sn: u32 = Word(24),
        /// What the initiator expects next.
        exp_stat_sn: u32 = Word(28),
    }
}

pdu! {
    /// Text Request (11.10).
    TextRequest = 0x04 {
        /// I bit.
        immediate: bool = Flag(0, 0x40),
        /// F bit: the last of its sequence.
        last: bool = Flag(1, 0x80),
        /// C bit: the text goes on in the next request.
        more: bool = Flag(1, 0x40),
        /// As in the answer that carried the transfer tag.
        lun: u64 = Long(8),
        /// Initiator task tag.
        task_tag: u32 = Word(16),
        /// `NO_TAG` at the start, else as the target said.
        transfer_tag: u32 = Word(20),
        /// Its place in the order of commands.
        cmd_sn: u32 = Word(24),
        /// What the initiator expects next.
        exp_stat_sn: u32 = Word(28),
    }
}

pdu! {
    /// SCSI Data-Out (11.7).
    DataOut = 0x05 {
        /// F bit: the last of its sequence.
        last: bool = Flag(1, 0x80),
        /// As in the R2T.
        lun: u64 = Long(8),
        /// The command's tag.
        task_tag: u32 = Word(16),
        /// The R2T's tag; `NO_TAG` when unsolicited.
        transfer_tag: u32 = Word(20),
        /// What the initiator expects next.
        exp_stat_sn: u32 = Word(28),
        /// Number within its sequence, from 0.
        data_sn: u32 = Word(36),
        /// Where in the command's data.
        offset: u32 = Word(40),
    }
}

pdu! {
    /// Logout Request (11.14).
    LogoutRequest = 0x06, always 1 & 0x80 {
        /// I bit.
        immediate: bool = Flag(0, 0x40),
        /// 0 close the session, 1 close a connection, 2 remove a connection for recovery.
        reason: u8 = Bits(1, 0x7f, 0),
        /// Initiator task tag.
        task_tag: u32 = Word(16),
        /// The connection meant by reasons 1 and 2.
        cid: u16 = Half(20),
        /// Its place in the order of commands.
        cmd_sn: u32 = Word(24),
        /// What the initiator expects next.
        exp_stat_sn: u32 = Word(28),
    }
}

pdu! {
    /// SNACK Request (11.16): refused, as error recovery level 0 has none.
    Snack = 0x10, always 1 & 0x80 {
        /// What is asked for again.
        kind: u8 = Bits(1, 0x0f, 0),
        /// Logical unit number.
        lun: u64 = Long(8),
        /// Initiator task tag.
        task_tag: u32 = Word(16),
        /// Target transfer tag or SNACK tag.
        transfer_tag: u32 = Word(20),
        /// What the initiator expects next.
        exp_stat_sn: u32 = Word(28),
        /// First number missing.
        begin: u32 = Word(40),
        /// How many are missing.
        run: u32 = Word(44),
    }
}
