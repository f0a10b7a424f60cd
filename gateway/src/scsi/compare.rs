//! COMPARE AND WRITE and ORWRITE (SBC-3): read, decide, write, and nothing in between.

use std::ops::Range;

use smallvec::SmallVec;

use super::cdb::{Extent, Request, Span};
use super::device::{Answer, Device, Settle, Then, check, good};
use super::fault::Access;
use super::limits;
use super::sense;
use super::step::{Data, Finished, Io, Memory, Step};
use super::transfer::FUA;
use super::vpd::compare_and_write_blocks;

/// Where a COMPARE AND WRITE that the store cannot do by itself stands.
#[derive(Debug)]
pub(super) enum Compare {
    /// The blocks are being read.
    Reading {
        /// Where they are.
        extent: Extent,
        /// The write must reach stable storage.
        fua: bool,
    },
    /// They were equal; the second half of data-out is being written.
    Writing {
        /// Bytes the CDB calls for.
        transfer: usize,
    },
}

/// COMPARE AND WRITE. The store does it where it can (against writers on other gateways too); else the range is held while
/// the gateway does.
pub(super) fn compare_and_write(device: &mut Device, request: &Request<'_>) -> Answer {
    let cdb = request.cdb;
    let blocks = cdb.byte(13);
    if blocks > compare_and_write_blocks(device.block_size()) {
        return Err(sense::INVALID_FIELD_IN_CDB.at_cdb_byte(13));
    }
    let extent = device.locate(Span { lba: cdb.u64(2), blocks: blocks.into() })?;
    let len = extent.len as usize;
    // Half a comparison must not become a whole write, nor a count that did not fit its byte none at all.
    if request.data_out() != 2 * len {
        return Err(sense::INVALID_FIELD_IN_CDB.at_cdb_byte(13));
    }
    if len == 0 {
        return good(0);
    }
    let fua = cdb.bit(1, FUA) || device.write_through();
    if extent.len <= u64::from(device.geometry.compare_and_write) {
        let (mut compare, mut write) = (vec![0; len], vec![0; len]);
        request.data.copy_out(0, &mut compare);
        request.data.copy_out(len, &mut write);
        return Settle::write(None).after(Io::CompareAndWrite { offset: extent.offset, compare, write, fua });
    }
    Ok(Step::Io {
        io: SmallVec::from_buf([Io::Read { offset: extent.offset, into: Memory::Owned(vec![0; len]) }]),
        exclusive: Some(range(extent)),
        then: Then::Compare(Compare::Reading { extent, fua }),
    })
}

fn range(extent: Extent) -> Range<u64> {
    extent.offset..extent.offset + extent.len
}

impl Compare {
    pub(super) fn resume(self, results: &mut [Finished], data: &dyn Data) -> Answer {
        let (extent, fua) = match self {
            Self::Reading { extent, fua } => (extent, fua),
            Self::Writing { transfer } => {
                check(results, Access::Write)?;
                return good(transfer);
            }
        };
        check(results, Access::Read)?;
        let medium = results.first().and_then(|read| read.buffer.as_deref());
        let medium = medium.ok_or(sense::INTERNAL_TARGET_FAILURE)?;
        if let Err(at) = data.compare(0, medium) {
            // INFORMATION has the offset of the first byte that differs.
            return Err(sense::MISCOMPARE_DURING_VERIFY_OPERATION.with_information(at as u64));
        }
        let len = extent.len as usize;
        let from = Memory::Command { offset: len, len };
        Ok(Step::Io {
            io: SmallVec::from_buf([Io::Write { offset: extent.offset, from, fua }]),
            exclusive: None,
            then: Then::Compare(Self::Writing { transfer: 2 * len }),
        })
    }
}

/// Where an ORWRITE stands.
#[derive(Debug)]
pub(super) struct Or {
    /// Not read yet.
    left: Extent,
    /// The piece in hand.
    piece: Extent,
    /// Where the piece is in data-out.
    at: usize,
    /// The piece is being written, not read.
    writing: bool,
    fua: bool,
    /// Bytes the CDB calls for.
    transfer: usize,
}

/// ORWRITE(16), in pieces, with the range held.
pub(super) fn orwrite(device: &mut Device, request: &Request<'_>) -> Answer {
    let extent = device.locate_transfer(request.cdb.span())?;
    let block = device.block_size();
    let transfer = extent.len as usize;
    let len = extent.len.min(request.data_out() as u64) / block * block;
    let left = Extent { len, ..extent };
    let fua = request.cdb.bit(1, FUA) || device.write_through();
    let nothing = Extent { len: 0, ..extent };
    let step = Box::new(Or { left, piece: nothing, at: 0, writing: false, fua, transfer }).read(Vec::new())?;
    Ok(match step {
        Step::Io { io, then, .. } => Step::Io { io, exclusive: Some(range(left)), then },
        done @ Step::Done(_) => done,
    })
}

impl Or {
    pub(super) fn resume(mut self: Box<Self>, results: &mut [Finished], data: &dyn Data) -> Answer {
        let buffer = |results: &mut [Finished]| {
            let buffer = results.first_mut().and_then(|finished| finished.buffer.take());
            buffer.ok_or(sense::INTERNAL_TARGET_FAILURE)
        };
        if self.writing {
            check(results, Access::Write)?;
            self.at += self.piece.len as usize;
            self.writing = false;
            return self.read(buffer(results)?);
        }
        check(results, Access::Read)?;
        let mut medium = buffer(results)?;
        or_into(&mut medium, self.at, data);
        self.writing = true;
        let write = Io::Write { offset: self.piece.offset, from: Memory::Owned(medium), fua: self.fua };
        Ok(Step::Io { io: SmallVec::from_buf([write]), exclusive: None, then: Then::Or(self) })
    }

    /// Reads the next piece into `scratch`.
    fn read(mut self: Box<Self>, mut scratch: Vec<u8>) -> Answer {
        let len = self.left.len.min(limits::SCRATCH);
        if len == 0 {
            return good(self.transfer);
        }
        self.piece = Extent { len, ..self.left };
        self.left = Extent { offset: self.left.offset + len, len: self.left.len - len };
        scratch.resize(len as usize, 0);
        let read = Io::Read { offset: self.piece.offset, into: Memory::Owned(scratch) };
        Ok(Step::Io { io: SmallVec::from_buf([read]), exclusive: None, then: Then::Or(self) })
    }
}

/// ORs the data-out from `at` on into `medium`.
fn or_into(medium: &mut [u8], at: usize, data: &dyn Data) {
    let mut window = [0; 4096];
    for (index, part) in medium.chunks_mut(window.len()).enumerate() {
        let window = &mut window[..part.len()];
        data.copy_out(at + index * 4096, window);
        for (byte, or) in part.iter_mut().zip(window) {
            *byte |= *or;
        }
    }
}
