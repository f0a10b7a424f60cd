//! RECEIVE COPY RESULTS (SPC-4): how a copy stands, why it failed, and what copies may ask for.

use super::limits;
use super::list::{BLOCK_TO_BLOCK, IDENTIFICATION};
use super::record::{Record, Status};
use crate::scsi::cdb::Request;
use crate::scsi::device::{Answer, Device, parameter_data};
use crate::scsi::sense;
use crate::scsi::step::status;

/// The record that LIST IDENTIFIER names.
fn record<'a>(device: &'a Device, request: &Request<'_>) -> Result<&'a Record, sense::Sense> {
    let found = device.copies.find(request.nexus, request.cdb.byte(2).into());
    found.map(AsRef::as_ref).ok_or(sense::INVALID_FIELD_IN_CDB.at_cdb_byte(2))
}

/// COPY STATUS(LID1).
pub(in crate::scsi) fn copy_status(device: &mut Device, request: &Request<'_>) -> Answer {
    let progress = record(device, request)?.progress();
    let mut data = vec![0; 12];
    data[3] = 8;
    // HDD is zero: nothing that is held has been discarded.
    data[4] = match progress.status {
        Status::InProgress => 0x00,
        Status::Good => 0x01,
        Status::Failed | Status::Terminated => 0x02,
    };
    data[5..7].copy_from_slice(&progress.segments.to_be_bytes());
    // TRANSFER COUNT UNITS: bytes, or KiB where they are too many.
    let (units, count) = match u32::try_from(progress.bytes) {
        Ok(bytes) => (0x00, bytes),
        Err(_) => (0x01, u32::try_from(progress.bytes >> 10).unwrap_or(u32::MAX)),
    };
    data[7] = units;
    data[8..12].copy_from_slice(&count.to_be_bytes());
    parameter_data(data, request.cdb.u32(10) as usize)
}

/// FAILED SEGMENT DETAILS: once, then they are discarded.
pub(in crate::scsi) fn failed_segment_details(device: &mut Device, request: &Request<'_>) -> Answer {
    let descriptor = device.mode.descriptor_sense();
    let mut failure = None;
    record(device, request)?.change(|progress| failure = progress.failure.take());
    let mut data = vec![0; 4];
    if let Some(failure) = failure {
        let sense = failure.encode(descriptor);
        data.resize(60, 0);
        data[56] = status::CHECK_CONDITION;
        data[58..60].copy_from_slice(&(sense.len() as u16).to_be_bytes());
        data.extend_from_slice(&sense);
        let available = (data.len() - 4) as u32;
        data[..4].copy_from_slice(&available.to_be_bytes());
    }
    parameter_data(data, request.cdb.u32(10) as usize)
}

/// OPERATING PARAMETERS.
pub(in crate::scsi) fn operating_parameters(device: &mut Device, request: &Request<'_>) -> Answer {
    let mut data = vec![0; 44];
    let mut put = |at: usize, value: &[u8]| data[at..at + value.len()].copy_from_slice(value);
    // SNLID: a list identifier is not needed.
    put(4, &[0x01]);
    put(8, &(limits::TARGETS as u16).to_be_bytes());
    put(10, &(limits::SEGMENTS as u16).to_be_bytes());
    put(12, &(limits::LIST as u32).to_be_bytes());
    put(16, &limits::SEGMENT.to_be_bytes());
    // No inline data, no held data, no stream devices.
    put(34, &u16::from(limits::CONCURRENT).to_be_bytes());
    put(36, &[limits::CONCURRENT]);
    // DATA SEGMENT GRANULARITY, a power of two: whole blocks.
    put(37, &[device.block_size().trailing_zeros() as u8]);
    let descriptors = [BLOCK_TO_BLOCK, IDENTIFICATION];
    put(43, &[descriptors.len() as u8]);
    data.extend_from_slice(&descriptors);
    let available = (data.len() - 4) as u32;
    data[..4].copy_from_slice(&available.to_be_bytes());
    parameter_data(data, request.cdb.u32(10) as usize)
}
