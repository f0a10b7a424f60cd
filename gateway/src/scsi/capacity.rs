//! READ CAPACITY and GET LBA STATUS (SBC-3).

use smallvec::SmallVec;

use super::cdb::{Request, Span};
use super::device::{Answer, Device, Then, parameter_data};
use super::fault::{self, Access};
use super::limits;
use super::sense;
use super::step::{Finished, Io, Step};
use crate::disk::{AllocationExtent, Error};

/// READ CAPACITY(10): the last block that its fields can name.
pub(super) fn read_capacity_10(device: &mut Device, _: &Request<'_>) -> Answer {
    let last = u32::try_from(last_block(device)).unwrap_or(u32::MAX);
    let mut data = last.to_be_bytes().to_vec();
    data.extend_from_slice(&device.geometry.block_size.to_be_bytes());
    parameter_data(data, 8)
}

/// READ CAPACITY(16).
pub(super) fn read_capacity_16(device: &mut Device, request: &Request<'_>) -> Answer {
    let geometry = &device.geometry;
    let mut data = vec![0; 32];
    data[..8].copy_from_slice(&last_block(device).to_be_bytes());
    data[8..12].copy_from_slice(&geometry.block_size.to_be_bytes());
    // LOGICAL BLOCKS PER PHYSICAL BLOCK EXPONENT.
    data[13] = (u64::from(geometry.physical_block_size) / device.block_size()).checked_ilog2().unwrap_or(0)
        as u8
        & 0x0F;
    if let Some(provisioning) = &geometry.provisioning {
        // LBPME, LBPRZ; LOWEST ALIGNED LOGICAL BLOCK ADDRESS is zero.
        data[14] = 0x80 | u8::from(provisioning.reads_zero) << 6;
    }
    parameter_data(data, request.cdb.u32(10) as usize)
}

fn last_block(device: &Device) -> u64 {
    device.blocks.saturating_sub(1)
}

/// Where GET LBA STATUS goes on.
#[derive(Debug)]
pub(super) struct LbaStatus {
    asked: Span,
    allocation: usize,
}

/// GET LBA STATUS: what the store says of as many blocks as one answer covers.
pub(super) fn get_lba_status(device: &mut Device, request: &Request<'_>) -> Answer {
    let lba = request.cdb.u64(2);
    let allocation = request.cdb.u32(10) as usize;
    if lba >= device.blocks {
        return Err(sense::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE.at_cdb_byte(2));
    }
    let block = device.block_size();
    let blocks = (device.blocks - lba).min(limits::LBA_STATUS / block);
    let limit = (allocation.saturating_sub(8) / 16).clamp(1, limits::LBA_STATUS_DESCRIPTORS);
    let io = Io::Allocation { offset: lba * block, len: blocks * block, limit };
    let then = Then::LbaStatus(LbaStatus { asked: Span { lba, blocks }, allocation });
    Ok(Step::Io { io: SmallVec::from_buf([io]), exclusive: None, then })
}

impl LbaStatus {
    pub(super) fn resume(self, device: &Device, results: &[Finished]) -> Answer {
        let Span { lba, blocks } = self.asked;
        let block = device.block_size();
        let mut extents = match results.first().map(|finished| &finished.result) {
            Some(Ok(outcome)) => outcome.extents.clone(),
            // A store that cannot say has everything mapped, for all the initiator may rely on.
            Some(Err(Error::Unsupported)) | None => Vec::new(),
            Some(Err(error)) => return Err(fault::sense(error, Access::Read)),
        };
        let end = lba + blocks;
        // Behind the last extent, and without any, all is mapped for all the initiator may rely on.
        extents.truncate(limits::LBA_STATUS_DESCRIPTORS);
        if extents.is_empty() {
            extents.push(AllocationExtent { range: lba * block..end * block, allocated: true });
        }
        let mut data = vec![0; 8];
        let mut next = lba;
        for extent in extents {
            // A block that is allocated in part is mapped: it goes with its allocated neighbour.
            let upto =
                if extent.allocated { extent.range.end.div_ceil(block) } else { extent.range.end / block };
            let upto = upto.min(end);
            if upto > next {
                data.extend_from_slice(&next.to_be_bytes());
                data.extend_from_slice(&((upto - next) as u32).to_be_bytes());
                // PROVISIONING STATUS: mapped, or deallocated.
                data.extend_from_slice(&[u8::from(!extent.allocated), 0, 0, 0]);
                next = upto;
            }
        }
        let length = (data.len() - 4) as u32;
        data[..4].copy_from_slice(&length.to_be_bytes());
        parameter_data(data, self.allocation)
    }
}
