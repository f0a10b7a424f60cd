//! Reading a CDB: fields by position, and the one layout that all block commands share.

use super::opcode::Opcode;
use super::sense::{self, Sense};
use super::step::{Data, Direction};

use ring::Nexus;

/// One command on its way through the engine: checked against its row of the opcode table.
pub(super) struct Request<'a> {
    /// Its row.
    pub(super) row: &'static Opcode,
    /// Its CDB, of exactly the row's length.
    pub(super) cdb: Cdb<'a>,
    /// Who sent it.
    pub(super) nexus: Nexus,
    /// Its buffer.
    pub(super) data: &'a dyn Data,
}

impl Request<'_> {
    /// Bytes of data-out that have come.
    pub(super) fn data_out(&self) -> usize {
        if self.data.direction() == Direction::In { 0 } else { self.data.len() }
    }

    /// Room for data-in.
    pub(super) fn room(&self) -> usize {
        if self.data.direction() == Direction::Out { 0 } else { self.data.len() }
    }

    /// The parameter list, of which at most `limit` bytes are looked at: as long as the CDB says (`claimed`), and no
    /// longer than what has come.
    pub(super) fn parameter_list(&self, claimed: usize, limit: usize) -> Vec<u8> {
        let mut list = vec![0; claimed.min(self.data_out()).min(limit)];
        if !list.is_empty() {
            self.data.copy_out(0, &mut list);
        }
        list
    }

    /// [`Request::parameter_list`], all of which must have come, and be no longer than `limit`.
    pub(super) fn whole_parameter_list(&self, claimed: usize, limit: usize) -> Result<Vec<u8>, Sense> {
        let list = self.parameter_list(claimed, limit);
        if list.len() == claimed { Ok(list) } else { Err(sense::PARAMETER_LIST_LENGTH_ERROR) }
    }
}

/// Looks a CDB up and checks it against the usage map of its row (SPC-4: a set bit in a reserved field is an
/// invalid field; the map that REPORT SUPPORTED OPERATION CODES shows is the truth).
pub(super) fn parse<'a>(
    row: Option<&'static Opcode>,
    cdb: &'a [u8],
) -> Result<(&'static Opcode, Cdb<'a>), Sense> {
    let row = row.ok_or(sense::INVALID_COMMAND_OPERATION_CODE)?;
    let Some(bytes) = cdb.get(..row.usage.len()) else {
        return Err(sense::INVALID_FIELD_IN_CDB.at_cdb_byte(cdb.len() as u16));
    };
    for (index, (byte, mask)) in bytes.iter().zip(row.usage).enumerate().skip(1) {
        let mask = if index == 1 { mask | row.service_action_mask() } else { *mask };
        let reserved = byte & !mask;
        if reserved != 0 {
            return Err(
                sense::INVALID_FIELD_IN_CDB.at_cdb_bit(index as u16, 7 - reserved.leading_zeros() as u8)
            );
        }
    }
    Ok((row, Cdb(bytes)))
}

/// The bytes of a field, in a CDB or a parameter list; zeros where there are none.
pub(super) fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut field = [0; N];
    if let Some(found) = bytes.get(at..at + N) {
        field.copy_from_slice(found);
    }
    field
}

/// A CDB.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cdb<'a>(&'a [u8]);

impl Cdb<'_> {
    fn field<const N: usize>(self, at: usize) -> [u8; N] {
        field(self.0, at)
    }

    /// Bytes.
    pub(super) fn len(self) -> usize {
        self.0.len()
    }

    /// One byte.
    pub(super) fn byte(self, at: usize) -> u8 {
        u8::from_be_bytes(self.field(at))
    }

    /// Whether any bit of `mask` is set in the byte.
    pub(super) fn bit(self, at: usize, mask: u8) -> bool {
        self.byte(at) & mask != 0
    }

    /// Two bytes.
    pub(super) fn u16(self, at: usize) -> u16 {
        u16::from_be_bytes(self.field(at))
    }

    /// Three bytes.
    pub(super) fn u24(self, at: usize) -> usize {
        let [high, middle, low] = self.field(at);
        u32::from_be_bytes([0, high, middle, low]) as usize
    }

    /// Four bytes.
    pub(super) fn u32(self, at: usize) -> u32 {
        u32::from_be_bytes(self.field(at))
    }

    /// Eight bytes.
    pub(super) fn u64(self, at: usize) -> u64 {
        u64::from_be_bytes(self.field(at))
    }

    /// LOGICAL BLOCK ADDRESS and TRANSFER LENGTH (or verification length, number of blocks, …) of the block commands:
    /// at the same places in every CDB of one size (SPC-4, typical CDB formats).
    pub(super) fn span(self) -> Span {
        let (lba, blocks) = match self.0.len() {
            6 => {
                // READ (6) and WRITE (6): 21 bits, and zero stands for 256 blocks.
                let lba = self.u32(0) & 0x1F_FFFF;
                let blocks = self.byte(4);
                (lba.into(), if blocks == 0 { 256 } else { blocks.into() })
            }
            10 => (self.u32(2).into(), self.u16(7).into()),
            12 => (self.u32(2).into(), self.u32(6).into()),
            _ => (self.u64(2), self.u32(10).into()),
        };
        Span { lba, blocks }
    }
}

/// A stretch of logical blocks as a CDB or a descriptor names it; nothing about it is checked yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// First block.
    pub(super) lba: u64,
    /// How many.
    pub(super) blocks: u64,
}

impl Span {
    /// Of a block device range descriptor (SBC-3, UNMAP and POPULATE TOKEN parameter lists): LBA, number of blocks.
    pub(super) fn of_descriptor(descriptor: &[u8]) -> Self {
        let blocks = u32::from_be_bytes(field(descriptor, 8));
        Self { lba: u64::from_be_bytes(field(descriptor, 0)), blocks: blocks.into() }
    }
}

/// A [`Span`] that lies within the disk, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    /// First byte.
    pub(super) offset: u64,
    /// How many.
    pub(super) len: u64,
}
