//! SANITIZE (SBC-4): OVERWRITE, BLOCK ERASE, EXIT FAILURE MODE.
//!
//! BLOCK ERASE gives every block back, which then reads as zeros and is deallocated. OVERWRITE leaves every block written
//! with the last pass's pattern. Either ends when the result is on stable storage.

use smallvec::smallvec;

use super::plan::{Kind, Overwrite, Plan};
use super::{Request, begin};
use crate::disk::Error;
use crate::scsi::device::{Answer, Device, Then, check, good};
use crate::scsi::fault::Access;
use crate::scsi::sense;
use crate::scsi::step::{Finished, Io, Step};

/// IMMED and AUSE of byte 1.
const IMMEDIATE: u8 = 0x80;
const UNRESTRICTED: u8 = 0x20;

/// OVERWRITE.
pub(in crate::scsi) fn overwrite(device: &mut Device, request: &Request<'_>) -> Answer {
    const HEADER: usize = 4;
    let block = device.block_size() as usize;
    let claimed = usize::from(request.cdb.u16(7));
    // SBC-4: a list without a pattern, or with more than a block of it, is an error of the CDB.
    if claimed <= HEADER || claimed > HEADER + block {
        return Err(sense::INVALID_FIELD_IN_CDB.at_cdb_byte(7));
    }
    let list = request.whole_parameter_list(claimed, HEADER + block)?;
    let Some((&[flags, _, high, low], pattern)) = list.split_first_chunk::<HEADER>() else {
        return Err(sense::PARAMETER_LIST_LENGTH_ERROR);
    };
    let (invert, count) = (flags & 0x80 != 0, flags & 0x1F);
    let length = usize::from(u16::from_be_bytes([high, low]));
    // Test suites and initiators look for these two as errors of the CDB, by which the list has come.
    if count == 0 || length == 0 || length > block {
        return Err(sense::INVALID_FIELD_IN_CDB.at_cdb_byte(7));
    }
    let Some(pattern) = pattern.get(..length) else {
        return Err(sense::PARAMETER_LIST_LENGTH_ERROR);
    };
    let block = repeat(pattern, block);
    let overwrite = Overwrite { block, count, invert };
    start(device, request, Some(overwrite), claimed)
}

/// BLOCK ERASE.
pub(in crate::scsi) fn block_erase(device: &mut Device, request: &Request<'_>) -> Answer {
    no_list(request)?;
    start(device, request, None, 0)
}

/// EXIT FAILURE MODE: only where the sanitize that failed was unrestricted. The medium then reads as it was left.
pub(in crate::scsi) fn exit_failure_mode(device: &mut Device, request: &Request<'_>) -> Answer {
    no_list(request)?;
    match device.background.failed.as_ref().map(|plan| &plan.kind) {
        Some(Kind::Sanitize { unrestricted: true }) => {}
        Some(_) => return Err(sense::INVALID_FIELD_IN_CDB.at_cdb_bit(1, 4)),
        None => return good(0),
    }
    Ok(Step::Io { io: smallvec![Io::Note(None)], exclusive: None, then: Then::ExitFailureMode })
}

/// The store has forgotten the failure.
pub(in crate::scsi) fn exited(device: &mut Device, results: &[Finished]) -> Answer {
    match results.first().map(|finished| &finished.result) {
        Some(Ok(_) | Err(Error::Unsupported)) => {}
        _ => check(results, Access::Write)?,
    }
    device.background.failed = None;
    good(0)
}

fn start(
    device: &mut Device,
    request: &Request<'_>,
    overwrite: Option<Overwrite>,
    transfer: usize,
) -> Answer {
    let unrestricted = request.cdb.bit(1, UNRESTRICTED);
    // SBC-4: a failed restricted sanitize is made good by a restricted one only.
    let failed = device.background.failed.as_ref().map(|plan| &plan.kind);
    if unrestricted && matches!(failed, Some(Kind::Sanitize { unrestricted: false })) {
        return Err(sense::INVALID_FIELD_IN_CDB.at_cdb_bit(1, 5));
    }
    device.background.abort_test(sense::SANITIZE_IN_PROGRESS);
    let plan = Plan { kind: Kind::Sanitize { unrestricted }, overwrite };
    begin(device, plan, request.cdb.bit(1, IMMEDIATE), transfer)
}

fn no_list(request: &Request<'_>) -> Result<(), sense::Sense> {
    match request.cdb.u16(7) {
        0 => Ok(()),
        _ => Err(sense::INVALID_FIELD_IN_CDB.at_cdb_byte(7)),
    }
}

/// A block of the pattern, repeated from the block's first byte on and cut at its last.
pub(super) fn repeat(pattern: &[u8], block: usize) -> Vec<u8> {
    pattern.iter().copied().cycle().take(block).collect()
}
