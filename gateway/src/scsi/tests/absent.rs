//! What a LUN that does not exist answers.

use std::sync::Arc;

use super::bench::{Buffer, code, entry, room_of};
use super::{cdb10, cdb12, sense};
use crate::nexus::{Handle, Table};
use crate::scsi::Unit;
use crate::scsi::opcode;
use crate::scsi::step::{DataIn, Reply, Step, status};
use ring::Nexus;

struct Nothing {
    unit: Unit,
    session: Handle,
}

impl Nothing {
    fn new() -> Self {
        let nexuses = Table::new();
        let session = nexuses.enter(entry("iqn.2026-01.example:first"));
        Self { unit: Unit::absent(Arc::clone(&nexuses)), session }
    }

    fn run(&mut self, cdb: &[u8]) -> Reply {
        self.run_as(self.session.nexus(), cdb)
    }

    fn run_as(&mut self, nexus: Nexus, cdb: &[u8]) -> Reply {
        let data: Buffer = room_of(255);
        match self.unit.execute(cdb, nexus, &data) {
            Step::Done(reply) => reply,
            Step::Io { .. } => panic!("there is no disk"),
        }
    }
}

fn bytes(reply: Reply) -> Vec<u8> {
    assert_eq!(reply.status, status::GOOD);
    match reply.data_in {
        DataIn::Bytes(bytes) => bytes,
        other => panic!("{other:?}"),
    }
}

#[test]
fn inquiry_says_that_there_is_nothing() {
    // SPC-4, INQUIRY: peripheral qualifier 3, device type 1Fh.
    let mut nothing = Nothing::new();
    let data = bytes(nothing.run(&[0x12, 0, 0, 0, 255, 0]));
    assert_eq!((data.len(), data[0]), (96, 0x7F));
    assert_eq!(bytes(nothing.run(&[0x12, 0, 0, 0, 5, 0])).len(), 5);
    assert_eq!(bytes(nothing.run(&[0x12, 1, 0, 0, 255, 0])), [0x7F, 0, 0, 1, 0]);
    let reply = nothing.run(&[0x12, 1, 0x83, 0, 255, 0]);
    assert_eq!(code(&reply.sense), sense::INVALID_FIELD_IN_CDB.code());
}

#[test]
fn report_luns_has_the_inventory_of_the_initiator() {
    let mut nothing = Nothing::new();
    let list = bytes(nothing.run(&cdb12(0xA0, 0, 255)));
    assert_eq!((list.len(), list[3]), (32, 24));
    let reply = nothing.run_as(Nexus::UNKNOWN, &cdb12(0xA0, 0, 255));
    assert_eq!(bytes(reply), [0; 8]);
}

#[test]
fn request_sense_has_the_reason_as_data() {
    // SPC-4, REQUEST SENSE.
    let mut nothing = Nothing::new();
    assert_eq!(code(&bytes(nothing.run(&[3, 0, 0, 0, 252, 0]))), sense::LOGICAL_UNIT_NOT_SUPPORTED.code());
    assert_eq!(bytes(nothing.run(&[3, 1, 0, 0, 252, 0]))[..4], [0x72, 5, 0x25, 0]);
}

#[test]
fn everything_else_is_for_a_unit_that_is_not_there() {
    // SAM-5, incorrect logical unit selection. What ESXi takes for a permanent loss.
    let mut nothing = Nothing::new();
    for row in opcode::all().iter().filter(|row| row.attention == opcode::Attention::Reported) {
        let reply = nothing.run(row.usage);
        assert_eq!(reply.status, status::CHECK_CONDITION);
        assert_eq!(code(&reply.sense), sense::LOGICAL_UNIT_NOT_SUPPORTED.code(), "{}", row.name);
    }
    for cdb in [&[][..], &[0xC0; 16], &cdb10(0x28, 0, 1)[..3], &[0x12]] {
        assert_eq!(nothing.run(cdb).status, status::CHECK_CONDITION);
    }
    nothing.unit.resized(1 << 20);
    nothing.unit.reset(crate::scsi::Reset::LogicalUnit);
    assert_eq!(code(&nothing.run(&[0; 6]).sense), sense::LOGICAL_UNIT_NOT_SUPPORTED.code());
}
