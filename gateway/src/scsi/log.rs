//! LOG SENSE and the log pages (SPC-4; SBC-3, log parameters).
//!
//! Nothing is counted that could be set or saved: there is no LOG SELECT, thresholds and defaults are the values
//! themselves.

use smallvec::smallvec;

use super::cdb::Request;
use super::device::{Answer, Device, Then, parameter_data};
use super::fault::{self, Access};
use super::sense;
use super::step::{Finished, Io, Step};
use crate::disk::{Error, Usage};

/// Pages and subpages, ascending, and whether only a thin unit has them.
const PAGES: [(u8, u8, bool); 5] = [
    (SUPPORTED, 0x00, false),
    (SUPPORTED, ALL_SUBPAGES, false),
    (PROVISIONING, 0x00, true),
    (SELF_TEST_RESULTS, 0x00, false),
    (INFORMATIONAL_EXCEPTIONS, 0x00, false),
];

const SUPPORTED: u8 = 0x00;
const PROVISIONING: u8 = 0x0C;
const SELF_TEST_RESULTS: u8 = 0x10;
const INFORMATIONAL_EXCEPTIONS: u8 = 0x2F;
const ALL_SUBPAGES: u8 = 0xFF;

/// What of a page was asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    /// PARAMETER POINTER.
    from: u16,
    allocation: usize,
}

/// LOG SENSE.
pub(super) fn sense(device: &mut Device, request: &Request<'_>) -> Answer {
    let cdb = request.cdb;
    let (code, subpage) = (cdb.byte(2) & 0x3F, cdb.byte(3));
    let asked = Asked { from: cdb.u16(5), allocation: cdb.u16(7).into() };
    let offered = |device: &Device| {
        let thin = device.geometry.provisioning.is_some();
        PAGES.into_iter().filter(move |(_, _, needs_thin)| thin || !needs_thin)
    };
    if !offered(device).any(|(own, ..)| own == code) {
        return Err(sense::INVALID_FIELD_IN_CDB.at_cdb_byte(2));
    }
    if !offered(device).any(|(own, own_subpage, _)| (own, own_subpage) == (code, subpage)) {
        return Err(sense::INVALID_FIELD_IN_CDB.at_cdb_byte(3));
    }
    let parameters = match (code, subpage) {
        (SUPPORTED, 0) => offered(device).filter(|page| page.1 == 0).map(|page| page.0).collect(),
        (SUPPORTED, _) => offered(device).flat_map(|page| [page.0, page.1]).collect(),
        (PROVISIONING, _) => {
            return Ok(Step::Io { io: smallvec![Io::Usage], exclusive: None, then: Then::Log(asked) });
        }
        (SELF_TEST_RESULTS, _) => device.background.tests.parameters(),
        // General: no exception, no temperature.
        _ => vec![0, 0, BINARY_LIST, 4, 0, 0, 0xFF, 0],
    };
    answer(code, subpage, parameters, asked)
}

/// FORMAT AND LINKING: a list in binary format.
const BINARY_LIST: u8 = 0x03;

impl Asked {
    /// The Logical Block Provisioning page, as far as the store knows.
    pub(super) fn resume(self, device: &Device, results: &[Finished]) -> Answer {
        let usage = match results.first().map(|finished| &finished.result) {
            Some(Ok(outcome)) => outcome.usage.as_deref().copied().unwrap_or_default(),
            Some(Err(Error::Unsupported)) | None => Usage::default(),
            Some(Err(error)) => return Err(fault::sense(error, Access::Read)),
        };
        let unit = threshold_set(device.block_size());
        let mut parameters = Vec::new();
        // SCOPE: what is used is this unit's, what is available is anybody's.
        let counts = [(AVAILABLE, usage.available, SHARED), (USED, usage.used, DEDICATED)];
        for (code, bytes, scope) in counts {
            let Some(bytes) = bytes else { continue };
            let sets = if code == USED { bytes.div_ceil(unit) } else { bytes / unit };
            parameters.extend_from_slice(&[0, code, BINARY_LIST, 8]);
            parameters.extend_from_slice(&u32::try_from(sets).unwrap_or(u32::MAX).to_be_bytes());
            parameters.extend_from_slice(&[scope, 0, 0, 0]);
        }
        answer(PROVISIONING, 0, parameters, self)
    }
}

/// Parameter codes of the Logical Block Provisioning page: LBA mapping resource counts.
const AVAILABLE: u8 = 0x01;
const USED: u8 = 0x02;

/// SCOPE.
const DEDICATED: u8 = 0x01;
const SHARED: u8 = 0x02;

/// THRESHOLD EXPONENT: resources are counted in sets of that power of two of blocks, which is 1 MiB.
pub(super) fn threshold_exponent(block: u64) -> u8 {
    (THRESHOLD_SET / block).checked_ilog2().unwrap_or(0) as u8
}

/// Bytes of a threshold set.
pub(super) fn threshold_set(block: u64) -> u64 {
    block << threshold_exponent(block)
}

const THRESHOLD_SET: u64 = 1 << 20;

/// Cuts what lies before PARAMETER POINTER off, and puts the header before the rest.
fn answer(code: u8, subpage: u8, parameters: Vec<u8>, asked: Asked) -> Answer {
    let parameters = if code == SUPPORTED {
        // Not a list of log parameters: there is nothing to point at.
        if asked.from != 0 {
            return Err(sense::INVALID_FIELD_IN_CDB.at_cdb_byte(5));
        }
        parameters
    } else {
        match from(&parameters, asked.from) {
            Some(rest) => rest.to_vec(),
            // SPC-4, PARAMETER POINTER: beyond the last parameter.
            None => return Err(sense::INVALID_FIELD_IN_CDB.at_cdb_byte(5)),
        }
    };
    // DS: no page is saved. SPF: a subpage format.
    let disable_save = if code == SUPPORTED { 0 } else { 0x80 };
    let subpage_format = u8::from(subpage != 0) << 6;
    let [high, low] = (parameters.len() as u16).to_be_bytes();
    let mut page = vec![disable_save | subpage_format | code, subpage, high, low];
    page.extend_from_slice(&parameters);
    parameter_data(page, asked.allocation)
}

/// The parameters from a code on; `None` when there is none, and one was asked for.
fn from(mut parameters: &[u8], code: u16) -> Option<&[u8]> {
    while let [high, low, _, len, ..] = *parameters {
        if u16::from_be_bytes([high, low]) >= code {
            return Some(parameters);
        }
        parameters = parameters.get(4 + usize::from(len)..)?;
    }
    (code == 0).then_some(parameters)
}
