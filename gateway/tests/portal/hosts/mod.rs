//! What hosts send, in the order they send it: claiming a disk, using it, giving space back, over real sessions.
//!
//! The sequences are written from the standards and from what is known of each host; every assertion names the clause.
//! Cluster reservations are beside their commands.

mod complaints;
mod copies;
mod esxi;
mod linux;
mod windows;

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use rbdgate::disk::file::{FileDisk, Options, Workers};

use crate::kit::initiator::{Answer, Initiator};
use crate::kit::{Bench, Setup, TARGET};

/// Blocks of the disk, 512 bytes each.
const BLOCKS: u64 = 1 << 18;

/// A thin disk on a sparse file behind a portal, as a configuration would serve it.
struct Served {
    bench: Bench,
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Served {
    fn new() -> Self {
        Self::of(BLOCKS, 512)
    }

    fn of(blocks: u64, block_size: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk.img");
        let create = Some(blocks * u64::from(block_size));
        let options = Options { path: path.clone(), block_size, create, read_only: false };
        let disk = FileDisk::open(&options, &Workers::start(2).unwrap()).unwrap();
        let setup = Setup { lanes: true, disk: Some(Arc::new(disk)), ..Setup::default() };
        Self { bench: Bench::with(setup), path, _folder: folder }
    }

    /// A host with a session of its own.
    fn host(&self, name: &str) -> Initiator {
        let mut host = Initiator::connect(self.bench.address);
        host.name = format!("iqn.2026-01.example:{name}");
        host.log_in(TARGET, &[]);
        host
    }

    /// Bytes that the store keeps for the disk.
    fn allocated(&self) -> u64 {
        std::fs::metadata(&self.path).unwrap().blocks() * 512
    }
}

/// TEST UNIT READY until the unit has told everything a new nexus must hear; what it told.
///
/// SAM-5, Unit attention conditions: the first commands of a new I_T nexus end with what it has to know.
fn attentions(host: &mut Initiator) -> Vec<(u8, u8, u8)> {
    let mut told = Vec::new();
    for _ in 0..8 {
        let answer = host.read(&[0; 6], 0);
        if answer.status == GOOD {
            return told;
        }
        assert_eq!(answer.status, CHECK_CONDITION);
        told.push(answer.sense().unwrap());
    }
    panic!("never ready: {told:?}");
}

/// SAM-5, Status codes.
const GOOD: u8 = 0x00;
const CHECK_CONDITION: u8 = 0x02;

/// The data of a command that must end well.
fn data(host: &mut Initiator, cdb: &[u8], expected: usize) -> Vec<u8> {
    let answer = host.read(cdb, expected);
    assert_eq!(answer.status, GOOD, "{cdb:02x?}: {:02x?}", answer.sense());
    // RFC 7143, SCSI Response, residuals: less than expected is an underflow of just that much.
    assert_eq!(answer.underflow.unwrap_or(0) as usize, expected - answer.data.len(), "{cdb:02x?}");
    answer.data
}

/// INQUIRY, vital product data. SPC-4, INQUIRY command: PAGE LENGTH counts what follows it, whatever was allocated.
fn page(host: &mut Initiator, code: u8) -> Vec<u8> {
    let page = data(host, &[0x12, 0x01, code, 0x02, 0x00, 0], 512);
    assert_eq!((page[0], page[1]), (0, code));
    assert_eq!(usize::from(u16::from_be_bytes([page[2], page[3]])), page.len() - 4);
    page
}

/// A service action of a 16-byte CDB with LBA and 32-bit length at their usual places.
fn cdb16(code: u8, byte1: u8, lba: u64, length: u32) -> [u8; 16] {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1]) = (code, byte1);
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[10..14].copy_from_slice(&length.to_be_bytes());
    cdb
}

fn read16(host: &mut Initiator, lba: u64, blocks: u32) -> Vec<u8> {
    data(host, &cdb16(0x88, 0, lba, blocks), blocks as usize * 512)
}

fn write16(host: &mut Initiator, lba: u64, bytes: &[u8]) {
    let answer = host.write(&cdb16(0x8A, 0, lba, (bytes.len() / 512) as u32), bytes, 0);
    assert_eq!(answer.status, GOOD, "{:02x?}", answer.sense());
}

/// COMPARE AND WRITE of one block.
fn compare_and_write(host: &mut Initiator, lba: u64, expected: &[u8], new: &[u8]) -> Answer {
    let mut cdb = cdb16(0x89, 0, lba, 0);
    cdb[13] = 1;
    host.write(&cdb, &[expected, new].concat(), 0)
}

/// UNMAP of these ranges.
fn unmap(host: &mut Initiator, ranges: &[(u64, u32)]) -> Answer {
    let mut list = vec![0; 8];
    let bytes = ranges.len() as u16 * 16;
    list[..2].copy_from_slice(&(bytes + 6).to_be_bytes());
    list[2..4].copy_from_slice(&bytes.to_be_bytes());
    for (lba, blocks) in ranges {
        list.extend_from_slice(&lba.to_be_bytes());
        list.extend_from_slice(&blocks.to_be_bytes());
        list.extend_from_slice(&[0; 4]);
    }
    let [high, low] = (list.len() as u16).to_be_bytes();
    host.write(&[0x42, 0, 0, 0, 0, 0, 0, high, low, 0], &list, 0)
}

/// Whether a command is supported, by REPORT SUPPORTED OPERATION CODES of one command.
fn supported(host: &mut Initiator, code: u8, service_action: Option<u16>) -> bool {
    let options = if service_action.is_some() { 0x02 } else { 0x01 };
    let [high, low] = service_action.unwrap_or(0).to_be_bytes();
    let answer = data(host, &[0xA3, 0x0C, options, code, high, low, 0, 0, 1, 0, 0, 0], 256);
    // SPC-4, One_command parameter data: SUPPORT 011b is as the standard says, 001b is not supported.
    match answer[1] & 0x07 {
        0b011 => true,
        0b001 => false,
        other => panic!("SUPPORT {other:03b} of {code:02x}"),
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}
