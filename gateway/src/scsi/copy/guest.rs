//! The other side of a copy between units: what a unit lets another unit's command do with its blocks.

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
    let (cdb, offset, buffer, writes) = match call {
        Call::Read { offset, buffer } => (&READ, offset, buffer, false),
        Call::Write { offset, buffer } => (&WRITE, offset, buffer, true),
    };
    let Some(row) = opcode::find(cdb) else { return Err((Error::Unsupported, buffer)) };
    let nexus = device.gate.identify(nexus);
    if !device.gate.sees(nexus) {
        return Err((Error::NotReady, buffer));
    }
    let barred = if writes {
        device.reservations.keeps_writes_out(nexus, &device.gate)
    } else {
        device.reservations.keeps_reads_out(nexus, &device.gate)
    };
    if barred {
        return Err((Error::Io(libc::EACCES), buffer));
    }
    let admitted = alua::admit(device, row, cdb, nexus).and_then(|()| gate::admit(device, row, nexus));
    if let Err(sense) = admitted {
        return Err((refusal(sense), buffer));
    }
    let (block, len) = (device.block_size(), buffer.len() as u64);
    let whole = len > 0 && offset.is_multiple_of(block) && len.is_multiple_of(block);
    if !whole || offset.checked_add(len).is_none_or(|end| end > device.blocks * block) {
        return Err((Error::OutOfRange, buffer));
    }
    Ok(match writes {
        true => store(device, offset, buffer),
        false => Io::Read { offset, into: Memory::Owned(buffer) },
    })
}

fn refusal(sense: Sense) -> Error {
    match sense.key {
        key::DATA_PROTECT => Error::ReadOnly,
        key::NOT_READY => Error::NotReady,
        _ => Error::Io(libc::EACCES),
    }
}
