//! From descriptors to blocks: which unit each names, whether the initiator may reach it, and where the bytes are.

use std::sync::Arc;

use ring::Nexus;

use super::list::{List, SELF, Segment, Target};
use crate::scsi::device::Device;
use crate::scsi::identity::Identity;
use crate::scsi::sense::{self, Sense};
use crate::units;

/// One side of a copy.
#[derive(Clone, Debug)]
pub(super) enum End {
    /// The unit that carries the copy out.
    Own,
    /// Another unit of the same target.
    Other(Arc<units::Entry>),
    /// Zeros without end; a source only.
    Zeroes,
}

impl End {
    fn block_size(&self, device: &Device) -> u64 {
        match self {
            Self::Own | Self::Zeroes => device.block_size(),
            Self::Other(entry) => entry.block_size.max(1),
        }
    }

    fn size(&self, device: &Device) -> u64 {
        match self {
            Self::Own => device.blocks * device.block_size(),
            Self::Other(entry) => entry.door.size(),
            Self::Zeroes => u64::MAX,
        }
    }

    /// Where `len` bytes from block `lba` on are, if the unit has them.
    fn locate(&self, device: &Device, lba: u64, len: u64) -> Option<u64> {
        let start = lba.checked_mul(self.block_size(device))?;
        start.checked_add(len).filter(|end| *end <= self.size(device)).map(|_| start)
    }

    fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Own, Self::Own) => true,
            (Self::Other(one), Self::Other(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

/// A stretch of bytes to be copied. Offsets and length are whole blocks of both ends.
#[derive(Clone, Debug)]
pub(super) struct Move {
    pub(super) source: End,
    pub(super) destination: End,
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) len: u64,
    /// What the pieces' lengths must be multiples of.
    pub(super) block: u64,
}

impl Move {
    /// Whether the last piece must go first: the destination overlaps the part of the source behind it, and what is there
    /// must have been read before it is written. The result is then as if the whole segment had been read first.
    pub(super) fn backward(&self) -> bool {
        self.source.same(&self.destination) && self.to > self.from && self.to < self.from + self.len
    }
}

/// What a list asks for, in order. Nothing is copied unless all of it can be.
pub(super) fn resolve(device: &Device, nexus: Nexus, list: &List) -> Result<Vec<Move>, Sense> {
    let moves = list.segments.iter().enumerate();
    moves.map(|(number, segment)| plan(device, nexus, list, segment, number as u16)).collect()
}

fn plan(device: &Device, nexus: Nexus, list: &List, segment: &Segment, number: u16) -> Result<Move, Sense> {
    let end = |id: u16, byte: u16| {
        if id == SELF {
            return Ok(End::Own);
        }
        let nowhere = sense::COPY_TARGET_DEVICE_NOT_REACHABLE.at_segment(number).at_segment_byte(byte);
        let target = list.targets.get(usize::from(id)).filter(|target| !target.null).ok_or(nowhere)?;
        if target.device != 0 {
            return Err(sense::INCORRECT_COPY_TARGET_DEVICE_TYPE.at_segment(number).at_segment_byte(byte));
        }
        let end = reach(device, nexus, target).ok_or(nowhere)?;
        // Numbers of blocks that were meant for blocks of another size would name other bytes.
        if target.block != 0 && u64::from(target.block) != end.block_size(device) {
            return Err(sense::INVALID_FIELD_IN_PARAMETER_LIST.at_list_byte(target.at + 29));
        }
        Ok(end)
    };
    let (source, destination) = (end(segment.source, 4)?, end(segment.destination, 6)?);
    let (read, written) = (source.block_size(device), destination.block_size(device));
    let len = u64::from(segment.blocks) * if segment.destination_counts { written } else { read };
    // Blocks that the device does not have are out of reach.
    let beyond = sense::COPY_TARGET_DEVICE_NOT_REACHABLE.at_segment(number);
    let from = source.locate(device, segment.source_lba, len).ok_or(beyond.at_segment_byte(12))?;
    let to = destination.locate(device, segment.destination_lba, len).ok_or(beyond.at_segment_byte(20))?;
    if !len.is_multiple_of(read) || !len.is_multiple_of(written) {
        return Err(sense::UNEXPECTED_INEXACT_SEGMENT.at_segment(number).at_segment_byte(10));
    }
    if matches!(destination, End::Own) && device.write_protected(nexus) {
        return Err(sense::THIRD_PARTY_DEVICE_FAILURE.at_segment(number).at_segment_byte(6));
    }
    Ok(Move { source, destination, from, to, len, block: read.max(written) })
}

/// The unit a descriptor names, if the initiator could use it itself.
fn reach(device: &Device, nexus: Nexus, target: &Target) -> Option<End> {
    reach_named(device, nexus, |identity| names(target, identity))
}

/// The unit that has this NAA designator, if the initiator could use it itself.
pub(super) fn reach_naa(device: &Device, nexus: Nexus, naa: &[u8; 16]) -> Option<End> {
    reach_named(device, nexus, |identity| identity.naa == *naa)
}

fn reach_named(device: &Device, nexus: Nexus, named: impl Fn(&Identity) -> bool) -> Option<End> {
    if named(&device.identity) {
        return Some(End::Own);
    }
    let initiator = device.nexuses.get(nexus)?;
    let entry = device.units.find(|entry| {
        entry.target == initiator.ports.target
            && initiator.view.luns.contains(&entry.lun)
            && named(&entry.identity)
    })?;
    Some(End::Other(entry))
}

/// Whether the designator is one that the unit shows in its Device Identification page.
fn names(target: &Target, identity: &Identity) -> bool {
    match target.kind {
        // NAA, binary.
        (1, 0, 3) => target.designator == identity.naa,
        // T10 vendor id, ASCII.
        (2, 0, 1) => target.designator == identity.t10(),
        _ => false,
    }
}
