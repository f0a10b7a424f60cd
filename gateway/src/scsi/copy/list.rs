//! The parameter list of EXTENDED COPY(LID1) (SPC-4): bytes in, descriptors out.

use super::limits;
use crate::scsi::cdb::field;
use crate::scsi::sense::{self, Sense};

/// A parameter list, every field checked by itself. What the descriptors name is looked up later.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct List {
    /// LIST IDENTIFIER; `None` when the initiator will not ask for results.
    pub(super) id: Option<u8>,
    pub(super) targets: Vec<Target>,
    pub(super) segments: Vec<Segment>,
}

/// A CSCD descriptor (target descriptor), identification descriptor format.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// CODE SET, ASSOCIATION and DESIGNATOR TYPE.
    pub(super) kind: (u8, u8, u8),
    pub(super) designator: Vec<u8>,
    /// NUL: no device at all.
    pub(super) null: bool,
    /// PERIPHERAL DEVICE TYPE.
    pub(super) device: u8,
    /// DISK BLOCK LENGTH; 0: not said.
    pub(super) block: u32,
    /// Where the descriptor stands in the parameter list.
    pub(super) at: u16,
}

/// A block → block segment descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) source: u16,
    pub(super) destination: u16,
    /// BLOCK DEVICE NUMBER OF BLOCKS counts blocks of the destination (DC).
    pub(super) destination_counts: bool,
    pub(super) blocks: u16,
    pub(super) source_lba: u64,
    pub(super) destination_lba: u64,
    /// Where the descriptor stands in the parameter list.
    pub(super) at: u16,
}

/// The CSCD descriptor id that stands for the copy manager's own unit.
pub(super) const SELF: u16 = 0xFFFF;

const HEADER: usize = 16;
const TARGET: usize = 32;
const SEGMENT: usize = 28;

/// Identification descriptor CSCD descriptor.
pub(super) const IDENTIFICATION: u8 = 0xE4;
/// Copy from block device to block device.
pub(super) const BLOCK_TO_BLOCK: u8 = 0x02;

/// The longest parameter list that is looked at.
pub(super) const LONGEST: usize = HEADER + limits::LIST;

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(field(bytes, at))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(field(bytes, at))
}

/// Reads a parameter list of `claimed` bytes, of which `bytes` are there.
pub(super) fn parse(bytes: &[u8], claimed: usize) -> Result<List, Sense> {
    if bytes.len() < HEADER || claimed > LONGEST {
        return Err(sense::PARAMETER_LIST_LENGTH_ERROR);
    }
    let wrong = |at: usize| sense::INVALID_FIELD_IN_PARAMETER_LIST.at_list_byte(at as u16);
    let id = match bytes[1] >> 3 & 0b11 {
        // The initiator may ask for results: held (00b), or given up if need be (10b).
        0b00 | 0b10 => Some(bytes[0]),
        0b11 if bytes[0] == 0 => None,
        0b11 => return Err(wrong(0)),
        _ => return Err(wrong(1)),
    };
    let targets = usize::from(u16_at(bytes, 2));
    let segments = u32::from_be_bytes(field(bytes, 8)) as usize;
    let inline = u32::from_be_bytes(field(bytes, 12)) as usize;
    if !targets.is_multiple_of(TARGET) {
        return Err(wrong(2));
    }
    if targets / TARGET > limits::TARGETS {
        return Err(sense::TOO_MANY_TARGET_DESCRIPTORS.at_list_byte(2));
    }
    // The shortest segment descriptor has eight bytes.
    if segments > limits::SEGMENTS * 32 {
        return Err(sense::TOO_MANY_SEGMENT_DESCRIPTORS.at_list_byte(8));
    }
    if inline > 0 {
        return Err(sense::INLINE_DATA_LENGTH_EXCEEDED.at_list_byte(12));
    }
    if HEADER + targets + segments > bytes.len() {
        return Err(sense::PARAMETER_LIST_LENGTH_ERROR);
    }
    let (targets, rest) = bytes[HEADER..].split_at(targets);
    let starts = (HEADER..).step_by(TARGET);
    let found: Vec<_> = targets.chunks_exact(TARGET).zip(starts).map(target).collect::<Result<_, _>>()?;
    let segments = read_segments(&rest[..segments], HEADER + targets.len())?;
    Ok(List { id, targets: found, segments })
}

fn target((bytes, at): (&[u8], usize)) -> Result<Target, Sense> {
    const NULL_DEVICE: u8 = 0x20;
    let wrong = |byte: usize| sense::INVALID_FIELD_IN_PARAMETER_LIST.at_list_byte((at + byte) as u16);
    if bytes[0] != IDENTIFICATION {
        return Err(sense::UNSUPPORTED_TARGET_DESCRIPTOR_TYPE_CODE.at_list_byte(at as u16));
    }
    // LU ID TYPE is not looked at: it qualifies addresses of ports, and a designator names the unit by itself.
    let len = usize::from(bytes[7]);
    let designator = bytes.get(8..8 + len).filter(|_| len <= 20).ok_or(wrong(7))?;
    Ok(Target {
        kind: (bytes[4] & 0x0F, bytes[5] >> 4 & 0b11, bytes[5] & 0x0F),
        designator: designator.to_vec(),
        null: bytes[1] & NULL_DEVICE != 0,
        device: bytes[1] & 0x1F,
        block: u32::from_be_bytes(field(bytes, 28)) & 0xFF_FFFF,
        at: at as u16,
    })
}

fn read_segments(bytes: &[u8], start: usize) -> Result<Vec<Segment>, Sense> {
    let mut segments = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let place = start + at;
        let wrong = |byte: usize| sense::INVALID_FIELD_IN_PARAMETER_LIST.at_list_byte((place + byte) as u16);
        if segments.len() == limits::SEGMENTS {
            return Err(sense::TOO_MANY_SEGMENT_DESCRIPTORS.at_list_byte(8));
        }
        let bytes = &bytes[at..];
        if bytes[0] != BLOCK_TO_BLOCK {
            return Err(sense::UNSUPPORTED_SEGMENT_DESCRIPTOR_TYPE_CODE.at_list_byte(place as u16));
        }
        // A descriptor that the list's length cuts off.
        if bytes.len() < SEGMENT {
            return Err(sense::PARAMETER_LIST_LENGTH_ERROR);
        }
        if usize::from(u16_at(bytes, 2)) != SEGMENT - 4 {
            return Err(wrong(2));
        }
        let segment = Segment {
            source: u16_at(bytes, 4),
            destination: u16_at(bytes, 6),
            destination_counts: bytes[1] & 0x02 != 0,
            blocks: u16_at(bytes, 10),
            source_lba: u64_at(bytes, 12),
            destination_lba: u64_at(bytes, 20),
            at: place as u16,
        };
        segments.push(segment);
        at += SEGMENT;
    }
    Ok(segments)
}
