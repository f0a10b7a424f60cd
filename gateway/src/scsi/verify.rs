//! VERIFY and WRITE AND VERIFY (SBC-3).
//!
//! The medium is read back in pieces of bounded size, one after the other, and compared where BYTCHK asks for it.

use smallvec::SmallVec;

use super::cdb::{Extent, Request};
use super::device::{Answer, Device, Then, check, good};
use super::fault::Access;
use super::limits;
use super::sense;
use super::step::{Data, Finished, Io, Memory, Step};

/// What the medium is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Against {
    /// Nothing: that it can be read is enough (BYTCHK 00b).
    Nothing,
    /// The data-out, as far as it goes (01b).
    Data {
        /// Bytes that have come.
        len: usize,
    },
    /// One block of data-out, repeated (11b).
    OneBlock {
        /// Its length.
        len: usize,
    },
}

/// Where a verification stands.
#[derive(Debug)]
pub(super) struct Progress {
    against: Against,
    /// Not read yet.
    left: Extent,
    /// Read and found good, bytes.
    done: usize,
    /// Data-out is being written; reading has not begun.
    writing: bool,
    /// Bytes the CDB calls for.
    transfer: usize,
}

/// VERIFY(10), (12), (16).
pub(super) fn verify(device: &mut Device, request: &Request<'_>) -> Answer {
    let extent = device.locate_transfer(request.cdb.span())?;
    let block = device.block_size();
    let come = request.data_out();
    let (against, left, transfer) = match request.cdb.byte(1) >> 1 & 0x03 {
        0b00 => (Against::Nothing, extent, 0),
        0b01 => {
            let len = come.min(extent.len as usize);
            let blocks = (len as u64).div_ceil(block);
            (Against::Data { len }, Extent { len: blocks * block, ..extent }, extent.len as usize)
        }
        0b11 if extent.len > 0 && come < block as usize => {
            return Err(sense::INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT);
        }
        0b11 => (Against::OneBlock { len: block as usize }, extent, block.min(extent.len) as usize),
        _ => return Err(sense::INVALID_FIELD_IN_CDB.at_cdb_bit(1, 2)),
    };
    Box::new(Progress { against, left, done: 0, writing: false, transfer }).next(Vec::new())
}

/// WRITE AND VERIFY(10), (12), (16). The range is held until the data has been read back: another write in between would
/// look like a medium that lies.
pub(super) fn write_and_verify(device: &mut Device, request: &Request<'_>) -> Answer {
    let extent = device.locate_transfer(request.cdb.span())?;
    let block = device.block_size() as usize;
    let transfer = extent.len as usize;
    let len = transfer.min(request.data_out()) / block * block;
    if len == 0 {
        return good(transfer);
    }
    let against = if request.cdb.bit(1, 0x02) { Against::Data { len } } else { Against::Nothing };
    let left = Extent { len: len as u64, ..extent };
    let from = Memory::Command { offset: 0, len };
    Ok(Step::Io {
        io: SmallVec::from_buf([Io::Write { offset: extent.offset, from, fua: true }]),
        exclusive: Some(left.offset..left.offset + left.len),
        then: Then::Verify(Box::new(Progress { against, left, done: 0, writing: true, transfer })),
    })
}

impl Progress {
    pub(super) fn resume(mut self: Box<Self>, results: &mut [Finished], data: &dyn Data) -> Answer {
        if self.writing {
            check(results, Access::Write)?;
            self.writing = false;
            return self.next(Vec::new());
        }
        check(results, Access::Read)?;
        let piece = results.first_mut().and_then(|read| read.buffer.take());
        let piece = piece.ok_or(sense::INTERNAL_TARGET_FAILURE)?;
        if let Err(at) = self.compare(&piece, data) {
            // INFORMATION has the offset of the first byte that differs.
            return Err(sense::MISCOMPARE_DURING_VERIFY_OPERATION.with_information((self.done + at) as u64));
        }
        self.done += piece.len();
        self.next(piece)
    }

    /// The next piece, read into `scratch`.
    fn next(mut self: Box<Self>, mut scratch: Vec<u8>) -> Answer {
        let len = self.left.len.min(limits::SCRATCH);
        if len == 0 {
            return good(self.transfer);
        }
        scratch.resize(len as usize, 0);
        let read = Io::Read { offset: self.left.offset, into: Memory::Owned(scratch) };
        self.left = Extent { offset: self.left.offset + len, len: self.left.len - len };
        Ok(Step::Io { io: SmallVec::from_buf([read]), exclusive: None, then: Then::Verify(self) })
    }

    fn compare(&self, piece: &[u8], data: &dyn Data) -> Result<(), usize> {
        match self.against {
            Against::Nothing => Ok(()),
            Against::Data { len } => {
                let here = piece.len().min(len.saturating_sub(self.done));
                data.compare(self.done, &piece[..here])
            }
            Against::OneBlock { len } => piece
                .chunks(len)
                .enumerate()
                .try_for_each(|(index, block)| data.compare(0, block).map_err(|at| index * len + at)),
        }
    }
}
