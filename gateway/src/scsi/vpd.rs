//! Vital product data (SPC-4, SBC-3).

use ring::Nexus;

use super::alua;
use super::copy;
use super::device::Device;
use super::identity::fill_ascii;
use super::inquiry::DIRECT_ACCESS;
use super::sense::{self, Sense};
use super::{limits, log};
use crate::nexus::Ports;

/// A page, its code, and what builds its contents behind the four-byte header.
type Page = (u8, fn(&Device, Nexus) -> Vec<u8>);

/// Ascending, as page 00h must list them.
const PAGES: [Page; 8] = [
    (0x00, supported_pages),
    (0x80, unit_serial_number),
    (0x83, device_identification),
    (0x86, extended_inquiry),
    (0x8F, copy::third_party_copy),
    (0xB0, block_limits),
    (0xB1, block_device_characteristics),
    (0xB2, logical_block_provisioning),
];

/// One page, whole.
pub(super) fn page(device: &Device, nexus: Nexus, code: u8) -> Result<Vec<u8>, Sense> {
    let (_, build) =
        PAGES.into_iter().find(|(own, _)| *own == code).ok_or(sense::INVALID_FIELD_IN_CDB.at_cdb_byte(2))?;
    Ok(with_header(DIRECT_ACCESS, code, &build(device, nexus)))
}

/// Puts the header before a page's contents.
pub(super) fn with_header(peripheral: u8, code: u8, contents: &[u8]) -> Vec<u8> {
    let [high, low] = (contents.len() as u16).to_be_bytes();
    let mut page = vec![peripheral, code, high, low];
    page.extend_from_slice(contents);
    page
}

fn supported_pages(_: &Device, _: Nexus) -> Vec<u8> {
    PAGES.iter().map(|(code, _)| *code).collect()
}

fn unit_serial_number(device: &Device, _: Nexus) -> Vec<u8> {
    let mut serial = vec![0; device.identity.serial.len().min(64)];
    fill_ascii(&mut serial, &device.identity.serial);
    serial
}

/// Designators (SPC-4): of the logical unit, and of the target port and device when the nexus says which they are.
fn device_identification(device: &Device, nexus: Nexus) -> Vec<u8> {
    let identity = &device.identity;
    let mut page = Vec::new();
    designator(&mut page, 0x01, ASSOCIATION_UNIT | 0x03, &identity.naa);
    designator(&mut page, 0x02, ASSOCIATION_UNIT | 0x01, &identity.t10());
    if let Some(entry) = device.nexuses.get(nexus) {
        target_designators(&mut page, &entry.ports, &device.ports.groups);
    }
    page
}

fn target_designators(page: &mut Vec<u8>, ports: &Ports, groups: &alua::Groups) {
    let [high, low] = ports.portal_group.to_be_bytes();
    // Relative target port identifier: the portal group's number, which is unique in the target and never 0.
    designator(page, ISCSI | 0x01, ASSOCIATION_PORT | 0x04, &[0, 0, high, low]);
    // Target port group.
    if let Some(group) = groups.of_port(ports.portal_group) {
        let [high, low] = group.id.to_be_bytes();
        designator(page, ISCSI | 0x01, ASSOCIATION_PORT | 0x05, &[0, 0, high, low]);
    }
    // SCSI name strings of the port (RFC 7143 4.4.2: name, ",t,0x", portal group tag) and of the target device.
    designator(
        page,
        ISCSI | 0x03,
        ASSOCIATION_PORT | 0x08,
        &name(&format!("{},t,0x{high:02x}{low:02x}", ports.target)),
    );
    page.extend_from_slice(&target_device(ports));
}

/// The designator of the target device.
pub(super) fn target_device(ports: &Ports) -> Vec<u8> {
    let mut page = Vec::new();
    designator(&mut page, ISCSI | 0x03, ASSOCIATION_DEVICE | 0x08, &name(&ports.target));
    page
}

/// Protocol identifier of iSCSI.
const ISCSI: u8 = 0x5 << 4;

const ASSOCIATION_UNIT: u8 = 0x00;
/// PIV, target port.
const ASSOCIATION_PORT: u8 = 0x80 | 0x10;
/// PIV, target device.
const ASSOCIATION_DEVICE: u8 = 0x80 | 0x20;

fn designator(page: &mut Vec<u8>, protocol_and_code_set: u8, kind: u8, bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(255)];
    page.extend_from_slice(&[protocol_and_code_set, kind, 0, bytes.len() as u8]);
    page.extend_from_slice(bytes);
}

/// A SCSI name string: NUL-terminated, padded to a multiple of four (SPC-4).
fn name(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.truncate(251);
    bytes.resize((bytes.len() / 4 + 1) * 4, 0);
    bytes
}

/// Extended INQUIRY Data (SPC-4).
fn extended_inquiry(device: &Device, _: Nexus) -> Vec<u8> {
    let mut page = vec![0; 0x3C];
    // HEADSUP, ORDSUP, SIMPSUP: every task attribute is taken.
    page[5 - 4] = 0x07;
    // V_SUP: a volatile cache.
    page[6 - 4] = u8::from(device.geometry.volatile_cache);
    // POA_SUP, HRA_SUP and VSA_SUP are zero: one capacity of one kind.
    page
}

/// Block Limits (SBC-3); `limits` has the reasons.
fn block_limits(device: &Device, _: Nexus) -> Vec<u8> {
    let block = device.block_size();
    let blocks = |bytes: u64| u32::try_from(bytes / block).unwrap_or(u32::MAX);
    let mut page = vec![0; 0x3C];
    let mut put = |at: usize, value: &[u8]| page[at - 4..at - 4 + value.len()].copy_from_slice(value);
    // WSNZ: WRITE SAME of no blocks is refused, not taken for the whole disk.
    put(4, &[0x01, compare_and_write_blocks(block)]);
    let optimal = u64::from(device.geometry.optimal_io_size).min(limits::TRANSFER);
    put(
        6,
        &u16::try_from(device.geometry.physical_block_size.max(1) as u64 / block)
            .unwrap_or(1)
            .max(1)
            .to_be_bytes(),
    );
    put(8, &blocks(limits::TRANSFER).to_be_bytes());
    put(12, &blocks(optimal).to_be_bytes());
    if let Some(provisioning) = &device.geometry.provisioning {
        put(20, &blocks(limits::UNMAP).to_be_bytes());
        put(24, &(limits::UNMAP_DESCRIPTORS as u32).to_be_bytes());
        put(28, &blocks(provisioning.granularity).max(1).to_be_bytes());
        // UGAVALID, and the alignment.
        put(32, &(0x8000_0000 | blocks(provisioning.alignment) & 0x7FFF_FFFF).to_be_bytes());
    }
    put(36, &(limits::WRITE_SAME / block).to_be_bytes());
    if let Some(promise) = device.atomic_write() {
        // No atomic boundaries: those two fields are zero.
        put(44, &blocks(promise.max).to_be_bytes());
        put(48, &blocks(promise.alignment).to_be_bytes());
        put(52, &blocks(promise.granularity).to_be_bytes());
    }
    page
}

/// MAXIMUM COMPARE AND WRITE LENGTH.
pub(super) fn compare_and_write_blocks(block: u64) -> u8 {
    u8::try_from(limits::COMPARE_AND_WRITE / block).unwrap_or(u8::MAX)
}

/// Block Device Characteristics (SBC-3): nothing rotates that the initiator should plan for.
fn block_device_characteristics(device: &Device, _: Nexus) -> Vec<u8> {
    let mut page = vec![0; 0x3C];
    page[5 - 4] = 0x01;
    if device.geometry.provisioning.is_some() {
        // WABEREQ: what SANITIZE has erased can be read.
        page[7 - 4] = 0x01 << 6;
    }
    // FUAB: FUA goes to the medium, SYNCHRONIZE CACHE makes the rest stable. VBULS: unmapped blocks can be verified.
    page[8 - 4] = 0x02 | 0x01;
    page
}

/// Logical Block Provisioning (SBC-3).
fn logical_block_provisioning(device: &Device, _: Nexus) -> Vec<u8> {
    let mut page = vec![0; 4];
    if let Some(provisioning) = &device.geometry.provisioning {
        // LBPU, LBPWS, LBPWS10; ANC_SUP zero; DP zero.
        page[0] = log::threshold_exponent(device.block_size());
        page[1] = 0x80 | 0x40 | 0x20 | u8::from(provisioning.reads_zero) << 2;
        page[2] = THIN;
    }
    page
}

/// PROVISIONING TYPE.
const THIN: u8 = 0x02;

#[cfg(test)]
mod tests {
    use super::name;

    #[test]
    fn a_name_string_always_ends_in_nul_and_fits_its_length_byte() {
        assert_eq!(name("iqn"), *b"iqn\0");
        assert_eq!(name("iqn."), *b"iqn.\0\0\0\0");
        assert_eq!(name(&"x".repeat(300)).len(), 252);
    }
}
