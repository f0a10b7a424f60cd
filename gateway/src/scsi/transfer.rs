//! READ, WRITE, PRE-FETCH and SYNCHRONIZE CACHE: blocks between the command's own buffer and the disk.
//!
//! The CDB may call for more bytes than the initiator's buffer holds, or fewer. What fits is moved, and the reply says
//! how many bytes the CDB calls for; the transport makes a residual count of the two (RFC 7143 11.4.5). A READ moves
//! exactly the bytes that fit. A WRITE stores whole blocks: one that has come only in part is left as it was.

use smallvec::{SmallVec, smallvec};

use super::cdb::{Request, Span};
use super::device::{Answer, Device, Settle, Then, check, good, parameter_data};
use super::fault::Access;
use super::sense;
use super::step::{DataIn, Finished, Io, Memory, Reply, Step};

/// READ(6), (10), (12), (16) (SBC-3). Nothing is cached here, so DPO and FUA are met as it is.
pub(super) fn read(device: &mut Device, request: &Request<'_>) -> Answer {
    let extent = device.locate_transfer(request.cdb.span())?;
    let wanted = extent.len as usize;
    let block = device.block_size() as usize;
    let moved = wanted.min(request.room());
    let rest = moved % block;
    let whole = moved - rest;
    let transfer = (wanted != request.data.len()).then_some(wanted);

    let mut io: SmallVec<[Io; 1]> = SmallVec::new();
    if whole > 0 {
        io.push(Io::Read { offset: extent.offset, into: Memory::Command { offset: 0, len: whole } });
    }
    if rest > 0 {
        let scratch = Memory::Owned(vec![0; block]);
        io.push(Io::Read { offset: extent.offset + whole as u64, into: scratch });
        let then = Then::Tail(Tail { whole, rest, transfer });
        return Ok(Step::Io { io, exclusive: None, then });
    }
    if io.is_empty() {
        return good(wanted);
    }
    Settle::read(transfer).after_all(io)
}

/// Where a READ goes on whose buffer ends within a block.
#[derive(Debug)]
pub(super) struct Tail {
    whole: usize,
    rest: usize,
    transfer: Option<usize>,
}

impl Tail {
    pub(super) fn resume(self, results: &mut [Finished]) -> Answer {
        check(results, Access::Read)?;
        let mut bytes =
            results.last_mut().and_then(|last| last.buffer.take()).ok_or(sense::INTERNAL_TARGET_FAILURE)?;
        bytes.truncate(self.rest);
        let data_in = match self.whole {
            0 => DataIn::Bytes(bytes),
            offset => DataIn::Tail { offset, bytes },
        };
        Ok(Step::Done(Reply { data_in, ..Reply::good(self.transfer) }))
    }
}

/// WRITE(6), (10), (12), (16) (SBC-3).
pub(super) fn write(device: &mut Device, request: &Request<'_>) -> Answer {
    let extent = device.locate_transfer(request.cdb.span())?;
    let wanted = extent.len as usize;
    let block = device.block_size() as usize;
    let moved = wanted.min(request.data_out()) / block * block;
    if moved == 0 {
        return good(wanted);
    }
    let transfer = (wanted != request.data.len()).then_some(wanted);
    // WRITE(6) has no FUA bit: its byte 1 is a part of the address.
    let fua = (request.cdb.len() > 6 && request.cdb.bit(1, FUA)) || device.write_through();
    let from = Memory::Command { offset: 0, len: moved };
    Settle::write(transfer).after(Io::Write { offset: extent.offset, from, fua })
}

/// WRITE ATOMIC(16) (SBC-4), within what the store promises. The range is held, so that no reader sees half of it either.
pub(super) fn write_atomic(device: &mut Device, request: &Request<'_>) -> Answer {
    let cdb = request.cdb;
    let extent = device.locate(Span { lba: cdb.u64(2), blocks: cdb.u16(12).into() })?;
    let Some(promise) = device.atomic_write() else { return Err(sense::INVALID_COMMAND_OPERATION_CODE) };
    if extent.len > promise.max || !extent.len.is_multiple_of(promise.granularity) {
        return Err(sense::INVALID_FIELD_IN_CDB.at_cdb_byte(12));
    }
    if !extent.offset.is_multiple_of(promise.alignment) {
        return Err(sense::INVALID_FIELD_IN_CDB.at_cdb_byte(2));
    }
    let len = extent.len as usize;
    // What has come only in part is not to be stored in part.
    if request.data_out() != len {
        return Err(sense::INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT);
    }
    if len == 0 {
        return good(0);
    }
    let fua = cdb.bit(1, FUA) || device.write_through();
    let from = Memory::Command { offset: 0, len };
    let io = smallvec![Io::WriteAtomic { offset: extent.offset, from, fua }];
    let exclusive = Some(extent.offset..extent.offset + extent.len);
    Ok(Step::Io { io, exclusive, then: Then::Settle(Settle::write(None)) })
}

/// READ DEFECT DATA(10), (12) (SBC-3): the lists are empty. Replacing what wears out is the store's business.
pub(super) fn read_defect_data(_: &mut Device, request: &Request<'_>) -> Answer {
    let cdb = request.cdb;
    // PLISTV, GLISTV and the format, as asked for.
    if cdb.len() == 10 {
        let valid = cdb.byte(2);
        return parameter_data(vec![0, valid, 0, 0], cdb.u16(7).into());
    }
    let valid = cdb.byte(1);
    parameter_data(vec![0, valid, 0, 0, 0, 0, 0, 0], cdb.u32(6) as usize)
}

/// FUA in byte 1 of the block commands.
pub(super) const FUA: u8 = 0x08;

/// PRE-FETCH (SBC-3). There is no cache to fill: GOOD, as where not all blocks fit.
pub(super) fn pre_fetch(device: &mut Device, request: &Request<'_>) -> Answer {
    device.locate(request.cdb.span())?;
    good(0)
}

/// SYNCHRONIZE CACHE (SBC-3): the whole disk, whatever range is named. With IMMED too the answer waits for the
/// store, so that it never claims what a failure may still take back.
pub(super) fn synchronize_cache(device: &mut Device, request: &Request<'_>) -> Answer {
    device.locate(request.cdb.span())?;
    Settle::write(Some(0)).after_all(smallvec![Io::Flush])
}
