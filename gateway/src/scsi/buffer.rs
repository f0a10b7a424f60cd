//! READ BUFFER and WRITE BUFFER (SPC-4): a data buffer that all share, an echo buffer for each nexus. For tests of the way
//! between host and gateway; nothing of the unit depends on what is in them.

use super::cdb::Request;
use super::device::{Answer, Device, good, parameter_data};
use super::limits;
use super::sense::{self, Sense};

/// MODE.
const DATA: u8 = 0x02;
const DESCRIPTOR: u8 = 0x03;
const ECHO: u8 = 0x0A;
const ECHO_DESCRIPTOR: u8 = 0x0B;

const WRONG_MODE: Sense = sense::INVALID_FIELD_IN_CDB.at_cdb_bit(1, 4);

/// READ BUFFER.
pub(super) fn read(device: &mut Device, request: &Request<'_>) -> Answer {
    let cdb = request.cdb;
    let (id, offset, allocation) = (cdb.byte(2), cdb.u24(3), cdb.u24(6));
    match cdb.byte(1) {
        DATA => {
            let offset = data_offset(id, offset)?;
            let len = allocation.min(limits::BUFFER - offset).min(request.room());
            let held = device.buffer.get(offset..).unwrap_or(&[]);
            let mut data = held[..held.len().min(len)].to_vec();
            // Nobody has written there.
            data.resize(len, 0);
            parameter_data(data, allocation)
        }
        // OFFSET BOUNDARY: any byte. An id that is not there has no capacity.
        DESCRIPTOR => {
            let [_, high, middle, low] = (limits::BUFFER as u32).to_be_bytes();
            let descriptor = if id == 0 { vec![0, high, middle, low] } else { vec![0; 4] };
            parameter_data(descriptor, allocation)
        }
        ECHO => {
            let echo = device.gate.echo(request.nexus).filter(|echo| !echo.is_empty());
            parameter_data(echo.ok_or(sense::COMMAND_SEQUENCE_ERROR)?.to_vec(), allocation)
        }
        // EBOS: the buffer is the nexus' own.
        ECHO_DESCRIPTOR => {
            let [high, low] = (limits::ECHO as u16).to_be_bytes();
            parameter_data(vec![0x01, 0, high, low], allocation)
        }
        _ => Err(WRONG_MODE),
    }
}

/// WRITE BUFFER.
pub(super) fn write(device: &mut Device, request: &Request<'_>) -> Answer {
    let cdb = request.cdb;
    let (id, offset, claimed) = (cdb.byte(2), cdb.u24(3), cdb.u24(6));
    match cdb.byte(1) {
        DATA => {
            let offset = data_offset(id, offset)?;
            if claimed > limits::BUFFER - offset {
                return Err(sense::INVALID_FIELD_IN_CDB.at_cdb_byte(6));
            }
            let list = whole(request, claimed)?;
            if device.buffer.len() < offset + list.len() {
                device.buffer.resize(offset + list.len(), 0);
            }
            device.buffer[offset..offset + list.len()].copy_from_slice(&list);
            good(claimed)
        }
        ECHO => {
            if claimed > limits::ECHO {
                return Err(sense::INVALID_FIELD_IN_CDB.at_cdb_byte(6));
            }
            let list = whole(request, claimed)?;
            device.gate.set_echo(request.nexus, list);
            good(claimed)
        }
        _ => Err(WRONG_MODE),
    }
}

/// BUFFER OFFSET of the one data buffer.
fn data_offset(id: u8, offset: usize) -> Result<usize, Sense> {
    match id {
        0 if offset < limits::BUFFER => Ok(offset),
        0 => Err(sense::INVALID_FIELD_IN_CDB.at_cdb_byte(3)),
        _ => Err(sense::INVALID_FIELD_IN_CDB.at_cdb_byte(2)),
    }
}

/// The data, all of which must have come.
fn whole(request: &Request<'_>, claimed: usize) -> Result<Vec<u8>, Sense> {
    let list = request.whole_parameter_list(claimed, limits::BUFFER);
    list.map_err(|_cut_short| sense::INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT)
}
