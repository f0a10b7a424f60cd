//! The other side of a copy between units: what a unit lets another unit's command do with its blocks.

use std::ops::Range;

use ring::Nexus;

use super::run::store;
use crate::disk::Error;
use crate::scsi::alua;
use crate::scsi::device::Device;
use crate::scsi::gate;
use crate::scsi::opcode;
use crate::scsi::sense::{Sense, key};
use crate::scsi::step::{Io, Memory};
use crate::units::Call;

/// READ(16) and WRITE(16): a visitor must pass what these pass.
const READ: [u8; 1] = [0x88];
const WRITE: [u8; 1] = [0x8A];

/// The request to the disk that a visit comes to, or why it is refused; the buffer then goes back as it was.
///
/// Unit attention conditions stay pending: it is the initiator's next command that reports them.
pub(in crate::scsi) fn admit(device: &mut Device, nexus: Nexus, call: Call) -> Result<Io, (Error, Vec<u8>)> {
    let (offset, buffer, writes) = match call {
        Call::Read { offset, buffer } => (offset, buffer, false),
        Call::Write { offset, buffer } => (offset, buffer, true),
    };
    let end = offset.checked_add(buffer.len() as u64);
    match end.ok_or(Error::OutOfRange).and_then(|end| check(device, nexus, &(offset..end), writes)) {
        Err(error) => Err((error, buffer)),
        Ok(()) if writes => Ok(store(device, offset, buffer)),
        Ok(()) => Ok(Io::Read { offset, into: Memory::Owned(buffer) }),
    }
}

/// Whether a visitor may read or write these bytes, as things are now.
pub(in crate::scsi) fn check(
    device: &mut Device,
    nexus: Nexus,
    range: &Range<u64>,
    writes: bool,
) -> Result<(), Error> {
    let cdb = if writes { &WRITE } else { &READ };
    let row = opcode::find(cdb).ok_or(Error::Unsupported)?;
    let nexus = device.gate.identify(nexus);
    if !device.gate.sees(nexus) {
        return Err(Error::NotReady);
    }
    let barred = if writes {
        device.reservations.keeps_writes_out(nexus, &device.gate)
    } else {
        device.reservations.keeps_reads_out(nexus, &device.gate)
    };
    if barred {
        return Err(Error::Io(libc::EACCES));
    }
    alua::admit(device, row, cdb, nexus).and_then(|()| gate::admit(device, row, nexus)).map_err(refusal)?;
    let block = device.block_size();
    let whole = !range.is_empty() && range.start.is_multiple_of(block) && range.end.is_multiple_of(block);
    if whole && range.end <= device.blocks * block { Ok(()) } else { Err(Error::OutOfRange) }
}

fn refusal(sense: Sense) -> Error {
    match sense.key {
        key::DATA_PROTECT => Error::ReadOnly,
        key::NOT_READY => Error::NotReady,
        _ => Error::Io(libc::EACCES),
    }
}
