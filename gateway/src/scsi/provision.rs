//! UNMAP and WRITE SAME (SBC-3).

use smallvec::SmallVec;

use super::cdb::{Request, Span};
use super::device::{Answer, Device, Settle, good};
use super::limits;
use super::sense::{self, Sense};
use super::step::{Direction, Io};

/// UNMAP: each descriptor's range is given back. Whatever the list claims, no descriptor beyond its end is read.
pub(super) fn unmap(device: &mut Device, request: &Request<'_>) -> Answer {
    const HEADER: usize = 8;
    const DESCRIPTOR: usize = 16;
    let claimed = usize::from(request.cdb.u16(7));
    // SBC-3: no parameter list is no error.
    if claimed == 0 {
        return good(0);
    }
    let list = request.parameter_list(claimed, HEADER + DESCRIPTOR * limits::UNMAP_DESCRIPTORS);
    let (header, descriptors) =
        list.split_first_chunk::<HEADER>().ok_or(sense::PARAMETER_LIST_LENGTH_ERROR)?;
    let bytes = usize::from(u16::from_be_bytes([header[2], header[3]]));
    // A length that is no multiple of a descriptor's covers only the whole ones.
    let count = bytes / DESCRIPTOR;
    if count > limits::UNMAP_DESCRIPTORS {
        return Err(sense::INVALID_FIELD_IN_PARAMETER_LIST.at_list_byte(2));
    }
    if HEADER + count * DESCRIPTOR > claimed.min(request.data_out()) {
        return Err(sense::PARAMETER_LIST_LENGTH_ERROR);
    }
    let mut io = SmallVec::new();
    let mut total = 0;
    for descriptor in descriptors.chunks_exact(DESCRIPTOR).take(count) {
        let extent = device.locate(Span::of_descriptor(descriptor))?;
        total += extent.len;
        if total > limits::UNMAP {
            return Err(sense::INVALID_FIELD_IN_PARAMETER_LIST);
        }
        if extent.len > 0 {
            io.push(Io::Discard { offset: extent.offset, len: extent.len });
        }
    }
    if io.is_empty() {
        return good(claimed);
    }
    let transfer = (claimed != request.data.len()).then_some(claimed);
    Settle::write(transfer).flushed(device.write_through()).after_all(io)
}

/// WRITE SAME(10), (16).
///
/// A block of zeros becomes a range of zeros, deallocated if UNMAP says so and the store is thin; any other block is
/// written as often as asked, whatever UNMAP says: what is read afterwards must be that block.
pub(super) fn write_same(device: &mut Device, request: &Request<'_>) -> Answer {
    let cdb = request.cdb;
    let unmap = cdb.bit(1, 0x08);
    // NDOB is in the 16-byte CDB only; in the other the usage map has refused it.
    let no_data = cdb.bit(1, 0x01);
    if unmap && device.geometry.provisioning.is_none() {
        return Err(sense::INVALID_FIELD_IN_CDB.at_cdb_bit(1, 3));
    }
    // A transport does not wait for a command that is said to read before it reports an abort.
    if no_data && request.data.direction() == Direction::In && !request.data.is_empty() {
        return Err(sense::INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT);
    }
    let extent = device.locate(cdb.span())?;
    // WSNZ is one: no blocks is not all blocks.
    if extent.len == 0 || extent.len > limits::WRITE_SAME {
        return Err(sense::INVALID_FIELD_IN_CDB);
    }
    let pattern = if no_data { None } else { pattern(device, request)? };
    let fua = device.write_through();
    let (offset, len) = (extent.offset, extent.len);
    let (io, flush) = match pattern {
        Some(pattern) => (Io::WriteSame { offset, len, pattern, fua }, false),
        None => (Io::WriteZeroes { offset, len, deallocate: unmap }, fua),
    };
    Settle::write(no_data.then_some(0)).flushed(flush).after(io)
}

/// The block of data-out, or `None` if it is zeros.
fn pattern(device: &Device, request: &Request<'_>) -> Result<Option<Vec<u8>>, Sense> {
    let mut pattern = vec![0; device.block_size() as usize];
    if request.data_out() != pattern.len() {
        return Err(sense::INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT);
    }
    request.data.copy_out(0, &mut pattern);
    Ok(pattern.iter().any(|byte| *byte != 0).then_some(pattern))
}
