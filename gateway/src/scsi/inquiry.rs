//! INQUIRY (SPC-4): the standard data; the vital product data pages are in [`vpd`].

use super::alua;
use super::cdb::{Cdb, Request};
use super::device::{Answer, Device, parameter_data};
use super::identity::{Identity, fill_ascii};
use super::sense::{self, Sense};
use super::vpd;

/// INQUIRY.
pub(super) fn inquiry(device: &mut Device, request: &Request<'_>) -> Answer {
    let allocation = request.cdb.u16(3).into();
    let mut data = match requested(request.cdb)? {
        Some(page) => vpd::page(device, request.nexus, page)?,
        None => {
            let mut data = standard(DIRECT_ACCESS, device.settings.removable, &device.identity);
            data[5] |= device.ports.tpgs();
            data[6] |= device.ports.multip();
            data
        }
    };
    // SPC-4, unavailable state: the peripheral qualifier is 001b.
    if alua::state(device, request.nexus) == alua::State::Unavailable {
        data[0] |= 0x20;
    }
    parameter_data(data, allocation)
}

/// Which vital product data page is asked for, or `None` for the standard data.
pub(super) fn requested(cdb: Cdb<'_>) -> Result<Option<u8>, Sense> {
    let page = cdb.byte(2);
    match cdb.bit(1, 0x01) {
        true => Ok(Some(page)),
        false if page == 0 => Ok(None),
        false => Err(sense::INVALID_FIELD_IN_CDB.at_cdb_byte(2)),
    }
}

/// Peripheral qualifier 0, device type 0: a block device is here.
pub(super) const DIRECT_ACCESS: u8 = 0x00;

/// Peripheral qualifier 3, device type 1Fh: no logical unit can be here (SPC-4, PERIPHERAL QUALIFIER).
pub(super) const NOWHERE: u8 = 0x7F;

/// SPC-4.
const VERSION: u8 = 0x06;

/// SAM-5, iSCSI, SPC-4 and SBC-3, no revision claimed of any (SPC-4, VERSION DESCRIPTOR values).
const VERSION_DESCRIPTORS: [u16; 4] = [0x00A0, 0x0960, 0x0460, 0x04C0];

/// The standard INQUIRY data, 96 bytes.
pub(super) fn standard(peripheral: u8, removable: bool, identity: &Identity) -> Vec<u8> {
    let mut data = vec![0; 96];
    data[0] = peripheral;
    data[1] = u8::from(removable) << 7;
    data[2] = VERSION;
    // HISUP, and the only response format there is. NORMACA is zero.
    data[3] = 0x10 | 0x02;
    data[4] = 96 - 5;
    // 3PC: third-party copies.
    data[5] = 0x08;
    // CMDQUE.
    data[7] = 0x02;
    fill_ascii(&mut data[8..16], &identity.vendor);
    fill_ascii(&mut data[16..32], &identity.product);
    fill_ascii(&mut data[32..36], &identity.revision);
    for (place, version) in data[58..].chunks_exact_mut(2).zip(VERSION_DESCRIPTORS) {
        place.copy_from_slice(&version.to_be_bytes());
    }
    data
}
