//! iSCSI protocol data units (RFC 7143 section 11): the 48-byte basic header segment and one struct per opcode.
//!
//! Vocabulary: the *header* is the BHS; *AHS* are additional header segments; the *data segment* follows them. A struct
//! here is a view of the header alone: lengths and the data segment are the framing's business (`receive`,
//! `transmit`). Decoding never fails: a field that holds a value unknown here keeps it, and whoever acts on
//! the field decides what it means. Encoding and decoding come from one field table per PDU, so they cannot disagree.

mod initiator;
mod target;
#[cfg(test)]
mod tests;

pub use initiator::{
    DataOut, LoginRequest, LogoutRequest, NopOut, ScsiCommand, Snack, TaskManagementRequest, TextRequest,
};
pub use target::{
    AsyncMessage, DataIn, LoginResponse, LogoutResponse, NopIn, R2t, Reject, ScsiResponse,
    TaskManagementResponse, TextResponse,
};

/// Bytes of the basic header segment.
pub const HEADER: usize = 48;

/// The reserved tag: "no task" as an initiator task tag, "unsolicited" as a target transfer tag.
pub const NO_TAG: u32 = 0xffff_ffff;

/// Offset of StatSN in every target PDU; ExpCmdSN and MaxCmdSN follow it.
pub const STAT_SN: usize = 24;

/// A raw basic header segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header(pub [u8; HEADER]);

impl Header {
    /// All zero but for the opcode.
    pub fn new(opcode: u8) -> Self {
        let mut bytes = [0; HEADER];
        bytes[0] = opcode;
        Self(bytes)
    }

    /// The opcode, without the I bit.
    pub fn opcode(&self) -> u8 {
        self.0[0] & 0x3f
    }

    /// The I bit: delivered at once, outside the command numbering.
    pub fn immediate(&self) -> bool {
        self.0[0] & 0x40 != 0
    }

    /// TotalAHSLength, in bytes (at most 1020).
    pub fn ahs_len(&self) -> usize {
        usize::from(self.0[4]) * 4
    }

    /// DataSegmentLength, in bytes without padding (below 16 MiB).
    pub fn data_len(&self) -> usize {
        usize::from(self.0[5]) << 16 | usize::from(self.0[6]) << 8 | usize::from(self.0[7])
    }

    /// Sets DataSegmentLength; only the low 24 bits count.
    pub fn set_data_len(&mut self, len: usize) {
        self.0[5..8].copy_from_slice(&(len as u32).to_be_bytes()[1..]);
    }

    /// Sets TotalAHSLength from bytes (a multiple of 4, at most 1020).
    pub fn set_ahs_len(&mut self, len: usize) {
        self.0[4] = (len / 4) as u8;
    }

    /// The initiator task tag, which every PDU has at the same place.
    pub fn task_tag(&self) -> u32 {
        self.word(16)
    }

    /// The big-endian word at `at`.
    pub fn word(&self, at: usize) -> u32 {
        u32::from_be_bytes([self.0[at], self.0[at + 1], self.0[at + 2], self.0[at + 3]])
    }

    /// Sets the big-endian word at `at`.
    pub fn set_word(&mut self, at: usize, value: u32) {
        self.0[at..at + 4].copy_from_slice(&value.to_be_bytes());
    }
}

/// Serial number arithmetic (RFC 1982 with 32 bits): whether `a` comes before `b`.
pub fn before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// Bytes of padding after `len` bytes of data.
pub fn padding(len: usize) -> usize {
    len.wrapping_neg() & 3
}

/// One field of a header: where it lies and how it is read and written.
trait Field {
    type Value;
    fn get(self, header: &Header) -> Self::Value;
    fn set(self, header: &mut Header, value: Self::Value);
}

/// A bit: (byte, mask).
struct Flag(usize, u8);
/// Some bits of a byte: (byte, mask, shift).
struct Bits(usize, u8, u32);
/// A byte.
struct Byte(usize);
/// A big-endian 16-bit number.
struct Half(usize);
/// A big-endian 32-bit number.
struct Word(usize);
/// Eight bytes as they are (a LUN), as a big-endian number.
struct Long(usize);
/// The six bytes of an ISID.
struct Isid(usize);
/// The sixteen bytes of a CDB.
struct Cdb(usize);

impl Field for Flag {
    type Value = bool;
    fn get(self, header: &Header) -> bool {
        header.0[self.0] & self.1 != 0
    }
    fn set(self, header: &mut Header, value: bool) {
        header.0[self.0] = header.0[self.0] & !self.1 | if value { self.1 } else { 0 };
    }
}

impl Field for Bits {
    type Value = u8;
    fn get(self, header: &Header) -> u8 {
        (header.0[self.0] & self.1) >> self.2
    }
    fn set(self, header: &mut Header, value: u8) {
        header.0[self.0] = header.0[self.0] & !self.1 | (value << self.2) & self.1;
    }
}

impl Field for Byte {
    type Value = u8;
    fn get(self, header: &Header) -> u8 {
        header.0[self.0]
    }
    fn set(self, header: &mut Header, value: u8) {
        header.0[self.0] = value;
    }
}

impl Field for Half {
    type Value = u16;
    fn get(self, header: &Header) -> u16 {
        u16::from_be_bytes([header.0[self.0], header.0[self.0 + 1]])
    }
    fn set(self, header: &mut Header, value: u16) {
        header.0[self.0..self.0 + 2].copy_from_slice(&value.to_be_bytes());
    }
}

impl Field for Word {
    type Value = u32;
    fn get(self, header: &Header) -> u32 {
        header.word(self.0)
    }
    fn set(self, header: &mut Header, value: u32) {
        header.set_word(self.0, value);
    }
}

impl Field for Long {
    type Value = u64;
    fn get(self, header: &Header) -> u64 {
        u64::from(header.word(self.0)) << 32 | u64::from(header.word(self.0 + 4))
    }
    fn set(self, header: &mut Header, value: u64) {
        header.0[self.0..self.0 + 8].copy_from_slice(&value.to_be_bytes());
    }
}

impl Field for Isid {
    type Value = [u8; 6];
    fn get(self, header: &Header) -> [u8; 6] {
        std::array::from_fn(|i| header.0[self.0 + i])
    }
    fn set(self, header: &mut Header, value: [u8; 6]) {
        header.0[self.0..self.0 + 6].copy_from_slice(&value);
    }
}

impl Field for Cdb {
    type Value = [u8; 16];
    fn get(self, header: &Header) -> [u8; 16] {
        std::array::from_fn(|i| header.0[self.0 + i])
    }
    fn set(self, header: &mut Header, value: [u8; 16]) {
        header.0[self.0..self.0 + 16].copy_from_slice(&value);
    }
}

/// Declares one PDU from its field table. `always` names bits that are one in every such PDU.
macro_rules! pdu {
    ($(#[$doc:meta])* $name:ident = $opcode:literal $(, always $byte:literal & $mask:literal)? {
        $($(#[$field_doc:meta])* $field:ident : $type:ty = $kind:ident ( $($place:expr),* )),* $(,)?
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        impl $name {
            /// The opcode.
            pub const OPCODE: u8 = $opcode;

            /// Reads the fields of a header with this opcode.
            pub fn decode(header: &Header) -> Self {
                Self { $($field: $kind($($place),*).get(header),)* }
            }

            /// The header, with no data segment.
            pub fn encode(&self) -> Header {
                let mut header = Header::new($opcode);
                $(header.0[$byte] |= $mask;)?
                $($kind($($place),*).set(&mut header, self.$field);)*
                header
            }
        }
    };
}
use pdu;
