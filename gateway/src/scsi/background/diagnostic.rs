//! SEND DIAGNOSTIC, RECEIVE DIAGNOSTIC RESULTS, and what self-tests leave in the log (SPC-4, self-test operations).
//!
//! The short test flushes the store and reads its first, middle and last blocks; the extended one reads it from end to end.
//! The default self-test (SELFTEST) is the short one, whose result no log keeps.

use std::time::Instant;

use smallvec::{SmallVec, smallvec};

use super::plan::{Kind, Plan};
use super::{Request, begin};
use crate::scsi::device::{Answer, Device, Settle, good, parameter_data};
use crate::scsi::limits;
use crate::scsi::sense::{self, Sense};
use crate::scsi::step::{Io, Memory};

/// A self-test, as the SELF-TEST CODE names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SelfTest(u8);

impl SelfTest {
    /// While a foreground test runs, commands wait.
    pub(super) fn foreground(self) -> bool {
        self.0 & 0b100 != 0
    }

    /// Reads everything.
    pub(super) fn extended(self) -> bool {
        self.0 & 0b010 != 0
    }
}

/// SELF-TEST CODE: abort the background self-test.
const ABORT: u8 = 0b100;

/// SEND DIAGNOSTIC. DEVOFFL and UNITOFFL allow what no test here needs.
pub(in crate::scsi) fn send(device: &mut Device, request: &Request<'_>) -> Answer {
    let cdb = request.cdb;
    let (code, page_format, self_test) = (cdb.byte(1) >> 5, cdb.bit(1, 0x10), cdb.bit(1, 0x04));
    let claimed = usize::from(cdb.u16(3));
    // SPC-4: SELFTEST goes with code zero, and neither a test nor a code goes with a parameter list.
    if self_test && code != 0 {
        return Err(sense::INVALID_FIELD_IN_CDB.at_cdb_bit(1, 7));
    }
    if claimed != 0 && (self_test || code != 0 || !page_format) {
        return Err(sense::INVALID_FIELD_IN_CDB.at_cdb_byte(3));
    }
    match code {
        0 if self_test => {
            let io = probes(device.blocks * device.block_size(), device.block_size());
            Settle::test().after_all(io)
        }
        0 => page(request, claimed),
        ABORT => {
            let background = device.background.runs_test(|test| !test.foreground());
            if background && device.background.abort_test(sense::NO_SENSE) {
                good(0)
            } else {
                Err(sense::INVALID_FIELD_IN_CDB.at_cdb_bit(1, 7))
            }
        }
        0b001 | 0b010 | 0b101 | 0b110 => {
            if device.background.runs() {
                return Err(sense::SELF_TEST_IN_PROGRESS);
            }
            let test = SelfTest(code);
            device.background.tests.begin(test);
            let plan = Plan { kind: Kind::SelfTest(test), overwrite: None };
            begin(device, plan, !test.foreground(), 0)
        }
        _ => Err(sense::INVALID_FIELD_IN_CDB.at_cdb_bit(1, 7)),
    }
}

/// The only page that may be sent asks for the list of pages.
fn page(request: &Request<'_>, claimed: usize) -> Answer {
    if claimed == 0 {
        return good(0);
    }
    let list = request.parameter_list(claimed, 4);
    match *list {
        [0, _, 0, 0] => good(claimed),
        [_, _, _, _] => Err(sense::INVALID_FIELD_IN_PARAMETER_LIST.at_list_byte(0)),
        _ => Err(sense::PARAMETER_LIST_LENGTH_ERROR),
    }
}

/// RECEIVE DIAGNOSTIC RESULTS: the list of pages, which has one entry.
pub(in crate::scsi) fn receive_results(_: &mut Device, request: &Request<'_>) -> Answer {
    let cdb = request.cdb;
    // PCV zero: whatever was asked for last, which can only have been this page.
    if cdb.byte(2) != 0 {
        return Err(sense::INVALID_FIELD_IN_CDB.at_cdb_byte(2));
    }
    parameter_data(vec![0, 0, 0, 1, 0], cdb.u16(3).into())
}

/// What the short test asks of the store.
pub(super) fn probes(size: u64, block: u64) -> SmallVec<[Io; 1]> {
    let len = size.min(limits::SCRATCH / 4);
    let mut io: SmallVec<[Io; 1]> = smallvec![Io::Flush];
    for at in [0, size / 2, size.saturating_sub(len)] {
        let offset = at.min(size.saturating_sub(len)) / block.max(1) * block;
        io.push(Io::Read { offset, into: Memory::Owned(vec![0; len as usize]) });
    }
    io
}

/// The last self-tests, newest first.
#[derive(Debug)]
pub(in crate::scsi) struct SelfTests {
    results: Vec<Record>,
    power_on: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    test: SelfTest,
    /// SELF-TEST RESULTS.
    result: u8,
    hours: u16,
    sense: Sense,
}

/// SELF-TEST RESULTS: completed without error; aborted by SEND DIAGNOSTIC; aborted otherwise; failed in an unknown
/// segment; in progress.
const COMPLETED: u8 = 0x0;
const ABORTED_BY_DIAGNOSTIC: u8 = 0x1;
const ABORTED: u8 = 0x2;
const FAILED: u8 = 0x7;
const IN_PROGRESS: u8 = 0xF;

impl Default for SelfTests {
    fn default() -> Self {
        Self { results: Vec::new(), power_on: Instant::now() }
    }
}

impl SelfTests {
    fn begin(&mut self, test: SelfTest) {
        let hours = u16::try_from(self.power_on.elapsed().as_secs() / 3600).unwrap_or(u16::MAX);
        self.results.insert(0, Record { test, result: IN_PROGRESS, hours, sense: sense::NO_SENSE });
        self.results.truncate(ENTRIES);
    }

    fn latest(&mut self, kind: &Kind) -> Option<&mut Record> {
        matches!(kind, Kind::SelfTest(_)).then_some(())?;
        self.results.first_mut().filter(|record| record.result == IN_PROGRESS)
    }

    pub(super) fn ended(&mut self, kind: &Kind, outcome: Result<(), Sense>) {
        if let Some(record) = self.latest(kind) {
            record.result = if outcome.is_ok() { COMPLETED } else { FAILED };
            record.sense = outcome.err().unwrap_or(sense::NO_SENSE);
        }
    }

    pub(super) fn aborted(&mut self, kind: &Kind, why: Sense) {
        if let Some(record) = self.latest(kind) {
            record.result = if why == sense::NO_SENSE { ABORTED_BY_DIAGNOSTIC } else { ABORTED };
        }
    }

    /// The parameters of the Self-Test Results log page: always twenty, unused ones all zeros.
    pub(in crate::scsi) fn parameters(&self) -> Vec<u8> {
        let mut page = Vec::with_capacity(ENTRIES * 20);
        for number in 0..ENTRIES {
            // Parameter code; FORMAT AND LINKING binary list; length.
            page.extend_from_slice(&[0, number as u8 + 1, 0x03, 0x10]);
            let mut body = [0; 16];
            if let Some(record) = self.results.get(number) {
                body[0] = record.test.0 << 5 | record.result;
                body[2..4].copy_from_slice(&record.hours.to_be_bytes());
                // ADDRESS OF FIRST FAILURE: not known.
                body[4..12].fill(0xFF);
                (body[12], body[13], body[14]) = record.sense.code();
            }
            page.extend_from_slice(&body);
        }
        page
    }
}

/// Entries of the log page.
const ENTRIES: usize = 20;
