//! Reservations through the whole unit: several initiators, their commands, and what they hear.

mod conflicts;
mod legacy;
mod model;
mod notices;
mod orders;
mod ports;
pub(super) mod reports;
mod storage;

use super::bench::{Ended, code, entry, none, out, room_of};
use super::{Bench, Sense, sense};
use crate::nexus::{Entry, Handle, Ports};
use crate::scsi::step::status;
use crate::scsi::tests::alua::Cluster;

/// Service actions of PERSISTENT RESERVE OUT (SPC-4).
pub(super) const REGISTER: u8 = 0;
pub(super) const RESERVE: u8 = 1;
pub(super) const RELEASE: u8 = 2;
pub(super) const CLEAR: u8 = 3;
pub(super) const PREEMPT: u8 = 4;
pub(super) const PREEMPT_AND_ABORT: u8 = 5;
pub(super) const REGISTER_AND_IGNORE: u8 = 6;
pub(super) const REGISTER_AND_MOVE: u8 = 7;

/// Types (SPC-4).
pub(super) const WE: u8 = 1;
pub(super) const EA: u8 = 3;
pub(super) const WERO: u8 = 5;
pub(super) const EARO: u8 = 6;
pub(super) const WEAR: u8 = 7;
pub(super) const EAAR: u8 = 8;

/// Byte 20 of the parameter list.
pub(super) const APTPL: u8 = 0x01;
pub(super) const ALL_TG_PT: u8 = 0x04;
pub(super) const SPEC_I_PT: u8 = 0x08;

pub(super) const CONFLICT: u8 = status::RESERVATION_CONFLICT;

/// The port of the first initiator of the bench.
pub(super) const FIRST: &str = "iqn.2026-01.example:first";

/// The CDB of a service action.
pub(super) fn cdb(action: u8, kind: u8, length: usize) -> [u8; 10] {
    let length = (length as u32).to_be_bytes();
    [0x5F, action, kind, 0, 0, length[0], length[1], length[2], length[3], 0]
}

/// A basic parameter list.
pub(super) fn list(key: u64, service_key: u64, flags: u8) -> Vec<u8> {
    let mut list = key.to_be_bytes().to_vec();
    list.extend_from_slice(&service_key.to_be_bytes());
    list.extend_from_slice(&[0, 0, 0, 0, flags, 0, 0, 0]);
    list
}

impl Bench {
    /// With two target ports, 3 and 4.
    pub(super) fn of_two_ports() -> Self {
        let mut bench = Self::new();
        bench.through(Cluster::new(false));
        bench
    }

    /// A session of an initiator port through a target port, which has heard of the power-on.
    pub(super) fn join(&mut self, initiator: &str, isid: u8, target_port: u16) -> Handle {
        let Entry { ports, view } = entry(initiator);
        let ports = Ports { isid: [0, 0, 0, 0, 0, isid], portal_group: target_port, ..ports };
        let session = self.nexuses.enter(Entry { ports, view });
        self.run_as(session.nexus(), &[0; 6], &mut none());
        session
    }

    /// A PERSISTENT RESERVE OUT; sent again where all it met was a unit attention.
    pub(super) fn order(&mut self, by: &Handle, action: u8, kind: u8, keys: (u64, u64), flags: u8) -> Ended {
        let list = list(keys.0, keys.1, flags);
        loop {
            let ended = self.run_as(by.nexus(), &cdb(action, kind, list.len()), &mut out(&list));
            if ended.sense.is_empty() || code(&ended.sense).0 != sense::key::UNIT_ATTENTION {
                return ended;
            }
        }
    }

    /// One that ends GOOD.
    pub(super) fn does(&mut self, by: &Handle, action: u8, kind: u8, keys: (u64, u64)) -> Ended {
        let ended = self.order(by, action, kind, keys, 0);
        assert_eq!(ended.status, status::GOOD, "{action} {kind} {keys:x?}: {:02x?}", ended.sense);
        ended
    }

    /// One that ends with RESERVATION CONFLICT, without sense data.
    pub(super) fn conflicts(&mut self, by: &Handle, action: u8, kind: u8, keys: (u64, u64)) {
        let ended = self.order(by, action, kind, keys, 0);
        assert_eq!((ended.status, ended.sense.len()), (CONFLICT, 0), "{action} {kind} {keys:x?}");
        assert!(ended.io.is_empty(), "a refused order was stored: {:?}", ended.io);
    }

    /// One that ends in CHECK CONDITION.
    pub(super) fn refuses(&mut self, by: &Handle, action: u8, kind: u8, keys: (u64, u64), sense: Sense) {
        let ended = self.order(by, action, kind, keys, 0);
        assert_eq!(ended.status, status::CHECK_CONDITION, "{action} {kind} {keys:x?}");
        assert_eq!(code(&ended.sense), sense.code(), "{action} {kind} {keys:x?}");
        assert!(ended.io.is_empty(), "a refused order was stored: {:?}", ended.io);
    }

    /// The status of some command of an initiator.
    pub(super) fn status(&mut self, by: &Handle, cdb: &[u8], data: &[u8]) -> u8 {
        let mut buffer = if data.is_empty() { room_of(4096) } else { out(data) };
        self.run_as(by.nexus(), cdb, &mut buffer).status
    }

    /// What a PERSISTENT RESERVE IN shows, to somebody who has no part in anything.
    pub(super) fn shows(&mut self, action: u8) -> Vec<u8> {
        let observer = self.join("iqn.2026-01.example:observer", 0xEE, 3);
        let cdb = [0x5E, action, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0];
        let ended = self.run_as(observer.nexus(), &cdb, &mut room_of(65535));
        assert_eq!(ended.status, status::GOOD, "{:02x?}", ended.sense);
        ended.data
    }

    /// PRGENERATION and every key.
    pub(super) fn keys(&mut self) -> (u32, Vec<u64>) {
        let data = self.shows(0);
        let number = |bytes: &[u8]| bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        assert_eq!(number(&data[4..8]) as usize, data.len() - 8);
        (number(&data[..4]) as u32, data[8..].chunks_exact(8).map(number).collect())
    }

    /// Holder's key and type.
    pub(super) fn reserved(&mut self) -> Option<(u64, u8)> {
        let data = self.shows(1);
        (data.len() == 24).then(|| {
            let key = data[8..16].iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
            (key, data[21])
        })
    }

    /// The next unit attention of an initiator.
    pub(super) fn hears(&mut self, by: &Handle) -> Option<(u8, u8, u8)> {
        let ended = self.run_as(by.nexus(), &[3, 0, 0, 0, 252, 0], &mut room_of(252));
        let heard = code(&ended.data);
        (heard.0 == sense::key::UNIT_ATTENTION).then_some(heard)
    }
}
