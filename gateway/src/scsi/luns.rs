//! REPORT LUNS (SPC-4): the inventory of the initiator that asks, and the well known logical unit of that name.

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

/// The inventory that the nexus table has; from now on the initiator knows it.
pub(super) fn known(nexuses: &Arc<Table>, nexus: Nexus) -> Option<Vec<u16>> {
    nexuses.news(nexus)?.tell_inventory();
    nexuses.get(nexus).map(|entry| entry.view.luns.clone())
}

/// ALLOCATION LENGTH, which has a minimum here.
pub(super) fn allocation(cdb: Cdb<'_>) -> Result<usize, Sense> {
    match cdb.u32(6) {
        0..16 => Err(sense::INVALID_FIELD_IN_CDB.at_cdb_byte(6)),
        allocation => Ok(allocation as usize),
    }
}

/// REPORT LUNS well known logical unit (SAM-5, well known logical unit addressing).
const WELL_KNOWN: u16 = 0xC101;

/// The parameter data (SPC-4, SELECT REPORT field): the logical units, the well known ones, or all of them.
pub(super) fn list(cdb: Cdb<'_>, luns: &[u16]) -> Result<Vec<u8>, Sense> {
    let (luns, well_known): (&[u16], &[u16]) = match cdb.byte(2) {
        0x00 => (luns, &[]),
        0x01 => (&[], &[WELL_KNOWN]),
        0x02 => (luns, &[WELL_KNOWN]),
        _ => return Err(sense::INVALID_FIELD_IN_CDB.at_cdb_byte(2)),
    };
    let first_levels = luns.iter().map(|lun| single_level(*lun)).chain(well_known.iter().copied());
    let mut data = vec![0; 8];
    for first_level in first_levels {
        data.extend_from_slice(&first_level.to_be_bytes());
        data.extend_from_slice(&[0; 6]);
    }
    let length = (data.len() - 8) as u32;
    data[..4].copy_from_slice(&length.to_be_bytes());
    Ok(data)
}

/// The first level of a LUN (SAM-5, single level LUN structure): peripheral device addressing below 256, flat space
/// addressing from there on.
fn single_level(lun: u16) -> u16 {
    if lun < 256 { lun } else { 0x4000 | lun & 0x3FFF }
}
