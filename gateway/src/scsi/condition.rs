//! The unit's condition: TEST UNIT READY, REQUEST SENSE, START STOP UNIT, PREVENT ALLOW MEDIUM REMOVAL.

use super::cdb::Request;
use super::device::{Answer, Device, good, parameter_data};
use super::gate::Audience;
use super::sense;

/// TEST UNIT READY (SPC-4): the gate has looked.
pub(super) fn test_unit_ready(_: &mut Device, _: &Request<'_>) -> Answer {
    good(0)
}

/// REQUEST SENSE (SPC-4): a pending unit attention, else why the unit is not ready, else NO SENSE; as data, with
/// GOOD status.
pub(super) fn request_sense(device: &mut Device, request: &Request<'_>) -> Answer {
    let descriptor = request.cdb.bit(1, 0x01);
    let idle = if device.ejected {
        sense::MEDIUM_NOT_PRESENT
    } else {
        device.background.pollable(device.size()).unwrap_or(sense::NO_SENSE)
    };
    let sense = device.gate.take_attention(request.nexus).unwrap_or(idle);
    parameter_data(sense.encode(descriptor).to_vec(), request.cdb.byte(4).into())
}

/// START STOP UNIT (SBC-3).
///
/// A unit that several hosts share is not stopped because one of them shuts down: START=0 without LOEJ changes nothing,
/// nor do power conditions, of which there is only one. LOEJ moves the medium of a removable unit.
pub(super) fn start_stop_unit(device: &mut Device, request: &Request<'_>) -> Answer {
    let byte = request.cdb.byte(4);
    let (power_condition, load_eject, start) = (byte >> 4, byte & 0x02 != 0, byte & 0x01 != 0);
    // SBC-3: with a power condition, START and LOEJ are ignored.
    if power_condition != 0 || !load_eject {
        return good(0);
    }
    if !device.settings.removable {
        return Err(sense::INVALID_FIELD_IN_CDB.at_cdb_bit(4, 1));
    }
    let moves = start == device.ejected;
    // A medium that is held stays where it is: out too, if it was out when it was asked for.
    if moves && device.gate.removal_prevented() {
        return Err(sense::MEDIUM_REMOVAL_PREVENTED);
    }
    if moves && start {
        device.gate.establish(sense::NOT_READY_TO_READY_CHANGE, Audience::Others(request.nexus));
    }
    device.ejected = !start;
    good(0)
}

/// PREVENT ALLOW MEDIUM REMOVAL (SBC-3), per nexus.
pub(super) fn prevent_allow_medium_removal(device: &mut Device, request: &Request<'_>) -> Answer {
    device.gate.prevent_removal(request.nexus, request.cdb.bit(4, 0x01));
    good(0)
}
