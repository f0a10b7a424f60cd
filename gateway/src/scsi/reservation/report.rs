//! PERSISTENT RESERVE IN: the registry as parameter data.

use super::registry::Registry;
use super::transport_id;
use crate::scsi::cdb::Request;
use crate::scsi::device::{Answer, Device, conflict, parameter_data};
use crate::scsi::opcode::Flow;

/// PERSISTENT RESERVE IN (SPC-4): READ KEYS, READ RESERVATION, REPORT CAPABILITIES, READ FULL STATUS.
pub(in crate::scsi) fn persistent_reserve_in(device: &mut Device, request: &Request<'_>) -> Answer {
    device.reservations.forget_ended(&device.gate);
    // SPC-2: a unit that is held by RESERVE knows no persistent reservations, not even of the holder.
    if device.reservations.legacy.is_some() {
        return conflict(Flow::In);
    }
    let registry = &device.reservations.registry;
    let data = match request.cdb.byte(1) & 0x1F {
        0x00 => keys(registry),
        0x01 => reservation(registry),
        0x02 => capabilities(registry),
        _ => full_status(registry),
    };
    parameter_data(data, request.cdb.u16(7).into())
}

/// PRGENERATION and ADDITIONAL LENGTH before the descriptors.
fn with_header(registry: &Registry, descriptors: &[u8]) -> Vec<u8> {
    let mut data = registry.generation.to_be_bytes().to_vec();
    data.extend_from_slice(&(descriptors.len() as u32).to_be_bytes());
    data.extend_from_slice(descriptors);
    data
}

/// READ KEYS.
pub(super) fn keys(registry: &Registry) -> Vec<u8> {
    let keys: Vec<u8> =
        registry.registrants.iter().flat_map(|registrant| registrant.key.to_be_bytes()).collect();
    with_header(registry, &keys)
}

/// READ RESERVATION.
pub(super) fn reservation(registry: &Registry) -> Vec<u8> {
    let Some(kind) = registry.reservation else { return with_header(registry, &[]) };
    // SPC-4: the key of the holder; zero where all registrants hold.
    let holder = registry.registrants.iter().find(|registrant| registrant.holds);
    let mut descriptor = holder.map_or(0, |holder| holder.key).to_be_bytes().to_vec();
    descriptor.extend_from_slice(&[0; 5]);
    descriptor.push(kind.code());
    descriptor.extend_from_slice(&[0; 2]);
    with_header(registry, &descriptor)
}

/// REPORT CAPABILITIES.
pub(super) fn capabilities(registry: &Registry) -> Vec<u8> {
    const CRH: u8 = 0x10;
    const SIP_C: u8 = 0x08;
    const ATP_C: u8 = 0x04;
    const PTPL_C: u8 = 0x01;
    const TMV: u8 = 0x80;
    /// ALLOW COMMANDS: TEST UNIT READY is let through always, MODE SENSE and its like through write exclusive types.
    const ALLOW: u8 = 0b011 << 4;
    let types = [0x80 | 0x40 | 0x20 | 0x08 | 0x02, 0x01];
    vec![0, 8, CRH | SIP_C | ATP_C | PTPL_C, TMV | ALLOW | u8::from(registry.aptpl), types[0], types[1], 0, 0]
}

/// READ FULL STATUS.
pub(super) fn full_status(registry: &Registry) -> Vec<u8> {
    let mut descriptors = Vec::new();
    for registrant in &registry.registrants {
        let id = transport_id::encode(&registrant.port.initiator);
        let holds = registry.holds(registrant);
        let kind = registry.reservation.filter(|_| holds).map_or(0, |kind| kind.code());
        descriptors.extend_from_slice(&registrant.key.to_be_bytes());
        descriptors.extend_from_slice(&[0; 4]);
        // ALL_TG_PT is zero: there is a descriptor for every nexus, which SPC-4 leaves to us.
        descriptors.push(u8::from(holds));
        descriptors.push(kind);
        descriptors.extend_from_slice(&[0; 4]);
        descriptors.extend_from_slice(&registrant.port.target.to_be_bytes());
        descriptors.extend_from_slice(&(id.len() as u32).to_be_bytes());
        descriptors.extend_from_slice(&id);
    }
    with_header(registry, &descriptors)
}
