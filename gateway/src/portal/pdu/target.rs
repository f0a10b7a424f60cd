//! PDUs that a target sends (RFC 7143 sections 11.4 to 11.19, opcodes 20h to 3fh).
//!
//! StatSN, ExpCmdSN and MaxCmdSN are fields like others here; the sender stamps them when the PDU's turn has come.

use super::{Bits, Byte, Field, Flag, Half, Header, Isid, Long, Word, pdu};

pdu! {
    /// NOP-In (11.19): a ping, the answer to one, or just new sequence numbers.
    NopIn = 0x20, always 1 & 0x80 {
        /// As in the NOP-Out, or of the ping.
        lun: u64 = Long(8),
        /// Of the NOP-Out it answers, or `NO_TAG`.
        task_tag: u32 = Word(16),
        /// `NO_TAG`: wants no answer.
        transfer_tag: u32 = Word(20),
        /// Status sequence number.
        stat_sn: u32 = Word(24),
        /// Next command expected.
        exp_cmd_sn: u32 = Word(28),
        /// Last command that would be taken.
        max_cmd_sn: u32 = Word(32),
    }
}

pdu! {
    /// SCSI Response (11.4).
    ScsiResponse = 0x21, always 1 & 0x80 {
        /// o bit: the read part of a bidirectional command wanted to transfer more than expected.
        bidirectional_overflow: bool = Flag(1, 0x10),
        /// u bit: it transferred less.
        bidirectional_underflow: bool = Flag(1, 0x08),
        /// O bit: the command wanted to transfer more than expected.
        overflow: bool = Flag(1, 0x04),
        /// U bit: the command transferred less than expected.
        underflow: bool = Flag(1, 0x02),
        /// 0: completed at the target.
        response: u8 = Byte(2),
        /// SAM status.
        status: u8 = Byte(3),
        /// The command's tag.
        task_tag: u32 = Word(16),
        /// Status sequence number.
        stat_sn: u32 = Word(24),
        /// Next command expected.
        exp_cmd_sn: u32 = Word(28),
        /// Last command that would be taken.
        max_cmd_sn: u32 = Word(32),
        /// Data-In and R2T PDUs sent for the command.
        exp_data_sn: u32 = Word(36),
        /// Bytes over or under of the read part of a bidirectional command.
        bidirectional_residual: u32 = Word(40),
        /// Bytes over or under.
        residual: u32 = Word(44),
    }
}

pdu! {
    /// Task Management Function Response (11.6).
    TaskManagementResponse = 0x22, always 1 & 0x80 {
        /// 0 complete, 1 no such task, 2 no such LUN, 5 not supported, 255 rejected.
        response: u8 = Byte(2),
        /// The request's tag.
        task_tag: u32 = Word(16),
        /// Status sequence number.
        stat_sn: u32 = Word(24),
        /// Next command expected.
        exp_cmd_sn: u32 = Word(28),
        /// Last command that would be taken.
        max_cmd_sn: u32 = Word(32),
    }
}

pdu! {
    /// Login Response (11.13).
    LoginResponse = 0x23 {
        /// T bit: the stage is left.
        transit: bool = Flag(1, 0x80),
        /// C bit: the text goes on in the next response.
        more: bool = Flag(1, 0x40),
        /// Current stage.
        stage: u8 = Bits(1, 0x0c, 2),
        /// Next stage, with T.
        next_stage: u8 = Bits(1, 0x03, 0),
        /// Highest version supported (0).
        version_max: u8 = Byte(2),
        /// Version in use (0).
        version_active: u8 = Byte(3),
        /// As in the request.
        isid: [u8; 6] = Isid(8),
        /// The target's part of the session id; in the last response of a login.
        tsih: u16 = Half(14),
        /// As in the request.
        task_tag: u32 = Word(16),
        /// Status sequence number.
        stat_sn: u32 = Word(24),
        /// Next command expected.
        exp_cmd_sn: u32 = Word(28),
        /// Last command that would be taken.
        max_cmd_sn: u32 = Word(32),
        /// 0 success, 1 redirection, 2 the initiator's error, 3 the target's error.
        status_class: u8 = Byte(36),
        /// Which of its class.
        status_detail: u8 = Byte(37),
    }
}

pdu! {
    /// Text Response (11.11).
    TextResponse = 0x24 {
        /// F bit: the last of its sequence.
        last: bool = Flag(1, 0x80),
        /// C bit: the text goes on.
        more: bool = Flag(1, 0x40),
        /// As in the request.
        lun: u64 = Long(8),
        /// As in the request.
        task_tag: u32 = Word(16),
        /// `NO_TAG` when the exchange is over.
        transfer_tag: u32 = Word(20),
        /// Status sequence number.
        stat_sn: u32 = Word(24),
        /// Next command expected.
        exp_cmd_sn: u32 = Word(28),
        /// Last command that would be taken.
        max_cmd_sn: u32 = Word(32),
    }
}

pdu! {
    /// SCSI Data-In (11.7).
    DataIn = 0x25 {
        /// F bit: the last of its sequence.
        last: bool = Flag(1, 0x80),
        /// A bit: acknowledgement wanted (not at error recovery level 0).
        acknowledge: bool = Flag(1, 0x40),
        /// O bit, with S.
        overflow: bool = Flag(1, 0x04),
        /// U bit, with S.
        underflow: bool = Flag(1, 0x02),
        /// S bit: carries the command's status.
        has_status: bool = Flag(1, 0x01),
        /// SAM status, with S.
        status: u8 = Byte(3),
        /// With A only.
        lun: u64 = Long(8),
        /// The command's tag.
        task_tag: u32 = Word(16),
        /// `NO_TAG` without A.
        transfer_tag: u32 = Word(20),
        /// Status sequence number, with S.
        stat_sn: u32 = Word(24),
        /// Next command expected.
        exp_cmd_sn: u32 = Word(28),
        /// Last command that would be taken.
        max_cmd_sn: u32 = Word(32),
        /// Number among the command's Data-In PDUs, from 0.
        data_sn: u32 = Word(36),
        /// Where in the command's data.
        offset: u32 = Word(40),
        /// Bytes over or under, with S.
        residual: u32 = Word(44),
    }
}

pdu! {
    /// Logout Response (11.15).
    LogoutResponse = 0x26, always 1 & 0x80 {
        /// 0 closed, 1 no such connection, 2 recovery not supported, 3 cleanup failed.
        response: u8 = Byte(2),
        /// The request's tag.
        task_tag: u32 = Word(16),
        /// Status sequence number.
        stat_sn: u32 = Word(24),
        /// Next command expected.
        exp_cmd_sn: u32 = Word(28),
        /// Last command that would be taken.
        max_cmd_sn: u32 = Word(32),
        /// Seconds before a new login.
        time_to_wait: u16 = Half(40),
        /// Seconds that tasks are kept.
        time_to_retain: u16 = Half(42),
    }
}

pdu! {
    /// Ready To Transfer (11.8).
    R2t = 0x31, always 1 & 0x80 {
        /// As in the command.
        lun: u64 = Long(8),
        /// The command's tag.
        task_tag: u32 = Word(16),
        /// To be named by the Data-Out PDUs.
        transfer_tag: u32 = Word(20),
        /// Next status sequence number (not consumed).
        stat_sn: u32 = Word(24),
        /// Next command expected.
        exp_cmd_sn: u32 = Word(28),
        /// Last command that would be taken.
        max_cmd_sn: u32 = Word(32),
        /// Number among the command's R2Ts, from 0.
        r2t_sn: u32 = Word(36),
        /// Where in the command's data.
        offset: u32 = Word(40),
        /// Bytes wanted.
        desired_len: u32 = Word(44),
    }
}

pdu! {
    /// Asynchronous Message (11.9).
    AsyncMessage = 0x32, always 1 & 0x80 {
        /// Logical unit number, for SCSI events.
        lun: u64 = Long(8),
        /// Always `NO_TAG`.
        task_tag: u32 = Word(16),
        /// Status sequence number.
        stat_sn: u32 = Word(24),
        /// Next command expected.
        exp_cmd_sn: u32 = Word(28),
        /// Last command that would be taken.
        max_cmd_sn: u32 = Word(32),
        /// 0 SCSI event, 1 logout wanted, 2 connection will be dropped, 3 all connections, 4 renegotiate.
        event: u8 = Byte(36),
        /// The event's details.
        code: u8 = Byte(37),
        /// First parameter.
        parameter1: u16 = Half(38),
        /// Second parameter.
        parameter2: u16 = Half(40),
        /// Third parameter.
        parameter3: u16 = Half(42),
    }
}

pdu! {
    /// Reject (11.17). Its data segment is the header of the PDU refused.
    Reject = 0x3f, always 1 & 0x80 {
        /// Why; see [`Reject`]'s constants.
        reason: u8 = Byte(2),
        /// Always `NO_TAG`.
        task_tag: u32 = Word(16),
        /// Status sequence number.
        stat_sn: u32 = Word(24),
        /// Next command expected.
        exp_cmd_sn: u32 = Word(28),
        /// Last command that would be taken.
        max_cmd_sn: u32 = Word(32),
        /// For a refused Data-Out: R2TSN expected or DataSN.
        data_sn: u32 = Word(36),
    }
}

/// Reasons of a Reject (11.17.1).
impl Reject {
    /// The data digest did not match.
    pub const DATA_DIGEST: u8 = 0x02;
    /// SNACK refused.
    pub const SNACK: u8 = 0x03;
    /// The PDU broke the protocol.
    pub const PROTOCOL: u8 = 0x04;
    /// No such opcode here.
    pub const UNSUPPORTED: u8 = 0x05;
    /// Too many immediate commands.
    pub const TOO_MANY_IMMEDIATE: u8 = 0x06;
    /// The tag is in use.
    pub const TASK_IN_PROGRESS: u8 = 0x07;
    /// A field holds a value it must not.
    pub const INVALID_FIELD: u8 = 0x09;
    /// The operation would take more than the target gives (long text exchanges).
    pub const LONG_OPERATION: u8 = 0x0a;
    /// A logout is under way.
    pub const WAITING_FOR_LOGOUT: u8 = 0x0c;
}
