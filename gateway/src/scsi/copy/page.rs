//! The Third-party Copy page (VPD 8Fh; SPC-4): what of third-party copy there is here.

use ring::Nexus;

use super::limits;
use super::list::{BLOCK_TO_BLOCK, IDENTIFICATION, SELF};
use super::rod;
use crate::scsi::device::Device;
use crate::scsi::opcode;

/// The page's contents behind its header: descriptors in order of their types.
pub(in crate::scsi) fn third_party_copy(device: &Device, _: Nexus) -> Vec<u8> {
    let mut page = Vec::new();
    descriptor(&mut page, 0x0000, &block_device_rod_limits(device));
    descriptor(&mut page, 0x0001, &supported_commands(device));
    descriptor(&mut page, 0x0004, &parameter_data());
    descriptor(&mut page, 0x0008, &[2, BLOCK_TO_BLOCK, IDENTIFICATION]);
    let [high, low] = SELF.to_be_bytes();
    descriptor(&mut page, 0x000C, &[0, 2, high, low]);
    descriptor(&mut page, 0x0106, &rod_token_features());
    descriptor(&mut page, 0x0108, &rod_types());
    descriptor(&mut page, 0x8001, &general_copy_operations(device));
    page
}

/// Type, length, contents, and zeros up to a multiple of four bytes.
fn descriptor(page: &mut Vec<u8>, kind: u16, contents: &[u8]) {
    let len = contents.len().next_multiple_of(4);
    page.extend_from_slice(&kind.to_be_bytes());
    page.extend_from_slice(&(len as u16).to_be_bytes());
    page.extend_from_slice(contents);
    page.resize(page.len() + len - contents.len(), 0);
}

/// Block Device ROD Limits (SBC-3): Windows offers no offloaded copy without it.
fn block_device_rod_limits(device: &Device) -> Vec<u8> {
    let block = device.block_size();
    let mut data = vec![0; 32];
    data[6..8].copy_from_slice(&(limits::RANGES as u16).to_be_bytes());
    data[8..12].copy_from_slice(&rod::LONGEST_TIMEOUT.to_be_bytes());
    data[12..16].copy_from_slice(&rod::DEFAULT_TIMEOUT.to_be_bytes());
    data[16..24].copy_from_slice(&(limits::TOKEN / block).to_be_bytes());
    data[24..32].copy_from_slice(&(limits::OPTIMAL_TOKEN / block).to_be_bytes());
    data
}

/// ROD Token Features: how long tokens live, and how much a ROD of a block device may hold.
fn rod_token_features() -> Vec<u8> {
    let mut data = vec![0; 44];
    // REMOTE TOKENS is zero: none of another copy manager, so none of another gateway.
    // MINIMUM TOKEN LIFETIME is zero: nothing is promised; a write ends it at any time, and so does a change of owner.
    data[16..20].copy_from_slice(&u32::MAX.to_be_bytes());
    data[20..24].copy_from_slice(&rod::LONGEST_TIMEOUT.to_be_bytes());
    let mut block = vec![0; 48];
    block[3] = 44;
    block[8..16].copy_from_slice(&limits::TOKEN.to_be_bytes());
    for at in [16, 24, 32] {
        block[at..at + 8].copy_from_slice(&limits::OPTIMAL_TOKEN.to_be_bytes());
    }
    data[42..44].copy_from_slice(&(block.len() as u16).to_be_bytes());
    data.extend_from_slice(&block);
    data
}

/// Supported ROD Token and ROD Types.
fn rod_types() -> Vec<u8> {
    const IN: u8 = 0x02;
    const OUT: u8 = 0x01;
    let types = [(rod::CHANGE_VULNERABLE, IN | OUT), (rod::ZERO, IN)];
    let mut data = vec![0, 0, 0, types.len() as u8 * 64];
    for (kind, uses) in types {
        let start = data.len();
        data.resize(start + 64, 0);
        data[start..start + 4].copy_from_slice(&kind.to_be_bytes());
        data[start + 4] = uses;
    }
    data
}

/// Supported Commands: EXTENDED COPY and RECEIVE COPY RESULTS with their service actions, as the opcode table has them.
fn supported_commands(device: &Device) -> Vec<u8> {
    let mut list = Vec::new();
    for code in [0x83, 0x84] {
        let rows = opcode::rows_of(code).iter().filter(|row| device.offers(row));
        let actions: Vec<u8> = rows.filter_map(|row| row.service_action).map(|action| action as u8).collect();
        list.extend_from_slice(&[code, actions.len() as u8]);
        list.extend_from_slice(&actions);
    }
    list.insert(0, list.len() as u8);
    list
}

/// Parameter Data: limits of one parameter list.
fn parameter_data() -> Vec<u8> {
    let mut data = vec![0; 28];
    data[4..6].copy_from_slice(&(limits::TARGETS as u16).to_be_bytes());
    data[6..8].copy_from_slice(&(limits::SEGMENTS as u16).to_be_bytes());
    data[8..12].copy_from_slice(&(limits::LIST as u32).to_be_bytes());
    data
}

/// General Copy Operations.
fn general_copy_operations(device: &Device) -> Vec<u8> {
    let mut data = vec![0; 32];
    data[..4].copy_from_slice(&u32::from(limits::CONCURRENT).to_be_bytes());
    data[4..8].copy_from_slice(&u32::from(limits::CONCURRENT).to_be_bytes());
    data[8..12].copy_from_slice(&limits::SEGMENT.to_be_bytes());
    data[12] = device.block_size().trailing_zeros() as u8;
    data
}
