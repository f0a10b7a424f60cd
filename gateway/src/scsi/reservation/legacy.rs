//! RESERVE and RELEASE, (6) and (10), as SPC-2 has them for whole logical units, with SPC-4's exceptions (Exceptions to
//! SPC-2 RESERVE and RELEASE behavior; CRH is one). Third parties, extents and elements are not there: their bits are
//! refused by the usage maps.

use ring::Nexus;

use super::registry::{Kind, Standing};
use super::service::{Pending, alone, awaits};
use crate::scsi::cdb::Request;
use crate::scsi::device::{Answer, Device, conflict, good};
use crate::scsi::opcode::Flow;

/// RESERVE.
pub(in crate::scsi) fn reserve(device: &mut Device, request: &Request<'_>) -> Answer {
    alone(device, request.nexus, |nexus| Pending::Reserve { nexus })
}

/// RELEASE.
pub(in crate::scsi) fn release(device: &mut Device, request: &Request<'_>) -> Answer {
    alone(device, request.nexus, |nexus| Pending::Release { nexus })
}

/// What persistent reservations say about a RESERVE or RELEASE.
enum Exception {
    /// There is no registration: SPC-2 counts.
    None,
    /// GOOD, and nothing happens.
    Ignored,
    /// RESERVATION CONFLICT.
    Conflict,
}

fn exception(device: &mut Device, nexus: Nexus) -> Exception {
    if device.reservations.registry.registrants.is_empty() {
        return Exception::None;
    }
    let shared = device.reservations.registry.reservation.is_some_and(Kind::open_to_registrants);
    match device.reservations.standing(nexus, &device.gate) {
        Standing::Holder => Exception::Ignored,
        Standing::Registered if shared => Exception::Ignored,
        _ => Exception::Conflict,
    }
}

/// RESERVE, once no other command changes reservations. Writes of others that are on their way are waited for: whoever
/// holds the unit must not find them later.
pub(super) fn reserve_now(device: &mut Device, nexus: Nexus) -> Answer {
    match exception(device, nexus) {
        Exception::Ignored => return good(0),
        Exception::Conflict => return conflict(Flow::None),
        Exception::None => {}
    }
    device.reservations.forget_ended(&device.gate);
    if device.reservations.legacy.is_some_and(|holder| holder != nexus) {
        return conflict(Flow::None);
    }
    device.reservations.legacy = Some(nexus);
    awaits(device, &[], 0)
}

/// RELEASE: whoever does not hold the unit releases nothing, and is told GOOD (SPC-2).
pub(super) fn release_now(device: &mut Device, nexus: Nexus) -> Answer {
    match exception(device, nexus) {
        Exception::Ignored => return good(0),
        Exception::Conflict => return conflict(Flow::None),
        Exception::None => {}
    }
    if device.reservations.legacy == Some(nexus) {
        device.reservations.legacy = None;
    }
    good(0)
}
