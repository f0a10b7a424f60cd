//! REPORT LUNS (SPC-4): the inventory of the initiator that asks.

use std::sync::Arc;

use ring::Nexus;

use super::cdb::{Cdb, Request};
use super::device::{Answer, Device, parameter_data};
use super::sense::{self, Sense};
use crate::nexus::Table;

/// REPORT LUNS.
pub(super) fn report_luns(device: &mut Device, request: &Request<'_>) -> Answer {
    let allocation = allocation(request.cdb)?;
    // A sender without a name (the kernel, which answers REPORT LUNS itself) has no inventory but what it talks to.
    let luns = known(&device.nexuses, request.nexus).unwrap_or_else(|| vec![device.settings.lun]);
    parameter_data(list(request.cdb, &luns)?, allocation)
}

/// The inventory that the nexus table has.
pub(super) fn known(nexuses: &Arc<Table>, nexus: Nexus) -> Option<Vec<u16>> {
    nexuses.get(nexus).map(|entry| entry.view.luns.clone())
}

/// ALLOCATION LENGTH, which has a minimum here.
pub(super) fn allocation(cdb: Cdb<'_>) -> Result<usize, Sense> {
    match cdb.u32(6) {
        0..16 => Err(sense::INVALID_FIELD_IN_CDB.at_cdb_byte(6)),
        allocation => Ok(allocation as usize),
    }
}

/// The parameter data: all of `luns`, or none where the CDB asks for well known logical units only.
pub(super) fn list(cdb: Cdb<'_>, luns: &[u16]) -> Result<Vec<u8>, Sense> {
    let luns = match cdb.byte(2) {
        0x00 | 0x02 => luns,
        0x01 => &[],
        _ => return Err(sense::INVALID_FIELD_IN_CDB.at_cdb_byte(2)),
    };
    let mut data = ((luns.len() * 8) as u32).to_be_bytes().to_vec();
    data.extend_from_slice(&[0; 4]);
    for lun in luns {
        let mut address = [0; 8];
        address[..2].copy_from_slice(&single_level(*lun).to_be_bytes());
        data.extend_from_slice(&address);
    }
    Ok(data)
}

/// The first level of a LUN (SAM-5, single level LUN structure): peripheral device addressing below 256, flat space
/// addressing from there on.
fn single_level(lun: u16) -> u16 {
    if lun < 256 { lun } else { 0x4000 | lun & 0x3FFF }
}
