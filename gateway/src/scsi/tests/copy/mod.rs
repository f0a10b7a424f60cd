//! Third-party copy (SPC-4): what is copied, what is refused, and what is said of it afterwards.

mod between;
mod list;
mod model;
mod status;
pub(super) mod token;
mod within;

use std::sync::{Arc, Mutex};

use super::Bench;
use super::bench;
use crate::disk::Geometry;
use crate::scsi::{Identity, Settings};
use crate::units::{Door, Entry, Listing, Loan, Visit};

/// EXTENDED COPY(LID1) with a parameter list of this length.
pub(super) fn extended_copy(len: usize) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[0] = 0x83;
    cdb[10..14].copy_from_slice(&(len as u32).to_be_bytes());
    cdb
}

/// WRITE USING TOKEN of zeros over the first blocks: CDB and parameter list.
pub(super) fn write_zero_token(blocks: u32) -> (Vec<u8>, Vec<u8>) {
    let list = token::destination(&token::zero_token(), 0, &[(0, blocks)]);
    (token::cdb(0x11, 1, list.len()).to_vec(), list)
}

/// RECEIVE COPY RESULTS with a service action and a list identifier.
pub(super) fn receive(action: u8, id: u8) -> [u8; 16] {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1], cdb[2], cdb[12]) = (0x84, action, id, 0x02);
    cdb
}

/// A parameter list: header, CSCD descriptors, segment descriptors.
pub(super) fn parameters(id: u8, targets: &[[u8; 32]], segments: &[[u8; 28]]) -> Vec<u8> {
    let mut list = vec![0; 16];
    list[0] = id;
    list[2..4].copy_from_slice(&((targets.len() * 32) as u16).to_be_bytes());
    list[8..12].copy_from_slice(&((segments.len() * 28) as u32).to_be_bytes());
    list.extend(targets.iter().flatten());
    list.extend(segments.iter().flatten());
    list
}

/// The identification descriptor CSCD descriptor of a NAA designator.
pub(super) fn naa(serial: &str) -> [u8; 32] {
    let mut target = [0; 32];
    target[0] = 0xE4;
    (target[4], target[5], target[7]) = (1, 3, 16);
    target[8..24].copy_from_slice(&Identity::from_serial(serial).naa);
    target
}

/// A block → block segment descriptor.
pub(super) fn segment(ends: (u16, u16), blocks: u16, from: u64, to: u64) -> [u8; 28] {
    let mut segment = [0; 28];
    (segment[0], segment[3]) = (0x02, 24);
    segment[4..6].copy_from_slice(&ends.0.to_be_bytes());
    segment[6..8].copy_from_slice(&ends.1.to_be_bytes());
    segment[10..12].copy_from_slice(&blocks.to_be_bytes());
    segment[12..20].copy_from_slice(&from.to_be_bytes());
    segment[20..28].copy_from_slice(&to.to_be_bytes());
    segment
}

/// Lends all memory of copies but this much.
pub(super) fn all_but(bench: &Bench, spare: u64) -> Vec<Loan> {
    let mut left = (64 << 20) - spare;
    let mut loans = Vec::new();
    while left > 0 {
        loans.push(bench.units.borrow(left, 1).unwrap());
        left -= loans.last().unwrap().bytes();
    }
    loans
}

/// Another unit, whose lane answers at once.
pub(super) struct Neighbour(pub(super) Mutex<Bench>);

impl Door for Neighbour {
    fn visit(&self, visit: Visit) {
        let mut bench = self.0.lock().unwrap();
        match bench.unit.visit(visit.nexus, visit.call) {
            Ok(io) => {
                let finished = bench.carry_out(io, &mut bench::none());
                visit.completer.complete(finished.result, finished.buffer);
            }
            Err((error, buffer)) => visit.completer.complete(Err(error), Some(buffer)),
        }
    }

    fn size(&self) -> u64 {
        self.0.lock().unwrap().size
    }
}

/// A unit beside `bench`, in the same target.
pub(super) fn neighbour(
    bench: &Bench,
    serial: &str,
    settings: Settings,
    geometry: Geometry,
) -> (Arc<Neighbour>, Listing) {
    let shared = (Arc::clone(&bench.nexuses), Arc::clone(&bench.units));
    let block_size = geometry.block_size.into();
    let other = Bench::shared(serial, geometry, settings, 16 << 20, bench.session.clone(), shared);
    let other = Arc::new(Neighbour(Mutex::new(other)));
    let listing = bench.units.enter(Entry {
        target: "iqn.2026-01.example:target".into(),
        lun: settings.lun,
        identity: Identity::from_serial(serial),
        block_size,
        door: Arc::clone(&other) as _,
    });
    (other, listing)
}
