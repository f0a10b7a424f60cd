//! The REPORT LUNS well known logical unit (SPC-4, well known logical units; SAM-5 has its address, C101h).

use std::sync::Arc;

use ring::Nexus;

use super::absent::report_luns;
use super::cdb::{self, Request};
use super::device::refusal;
use super::gate::Gate;
use super::identity::Identity;
use super::opcode::{self, Attention, Flow};
use super::sense::{self, Sense};
use super::step::{Data, Reply};
use super::unit::Reset;
use super::{inquiry, vpd};
use crate::nexus::Table;

/// Peripheral qualifier 0, device type 1Eh (SPC-4, PERIPHERAL DEVICE TYPE).
const WELL_KNOWN_LOGICAL_UNIT: u8 = 0x1E;

/// Answers for REPORT LUNS at the target as a whole.
pub(super) struct WellKnown {
    nexuses: Arc<Table>,
    identity: Identity,
    gate: Gate,
}

impl WellKnown {
    pub(super) fn new(nexuses: Arc<Table>) -> Self {
        // No logical unit of a target has this number.
        let gate = Gate::new(Arc::clone(&nexuses), u16::MAX);
        Self { nexuses, identity: Identity::from_serial(""), gate }
    }

    pub(super) fn execute(&mut self, cdb: &[u8], nexus: Nexus, data: &dyn Data) -> Reply {
        let nexus = self.gate.identify(nexus);
        let row = opcode::find(cdb).filter(|row| {
            matches!(row.name, "inquiry" | "report_luns" | "request_sense" | "test_unit_ready")
        });
        let flow = row.map_or(Flow::None, |row| row.data);
        let attends = row.is_none_or(|row| row.attention == Attention::Reported);
        let answer = match if attends { self.gate.take_attention(nexus) } else { None } {
            Some(condition) => Err(condition),
            None => {
                cdb::parse(row, cdb).and_then(|(row, cdb)| self.answer(&Request { row, cdb, nexus, data }))
            }
        };
        answer.unwrap_or_else(|sense| refusal(sense, false, flow))
    }

    fn answer(&mut self, request: &Request<'_>) -> Result<Reply, Sense> {
        let cdb = request.cdb;
        match request.row.name {
            "inquiry" => {
                let data = match inquiry::requested(cdb)? {
                    None => inquiry::standard(WELL_KNOWN_LOGICAL_UNIT, false, &self.identity),
                    Some(0x00) => vpd::with_header(WELL_KNOWN_LOGICAL_UNIT, 0x00, &[0x00, 0x83]),
                    Some(0x83) => {
                        // SPC-4, device identification of a well known logical unit: that of the target device.
                        let target = self.gate.ports(request.nexus).map(vpd::target_device);
                        vpd::with_header(WELL_KNOWN_LOGICAL_UNIT, 0x83, &target.unwrap_or_default())
                    }
                    Some(_) => return Err(sense::INVALID_FIELD_IN_CDB.at_cdb_byte(2)),
                };
                Ok(Reply::parameter_data(data, cdb.u16(3).into()))
            }
            "report_luns" => report_luns(&self.nexuses, request),
            "request_sense" => {
                let condition = self.gate.take_attention(request.nexus).unwrap_or(sense::NO_SENSE);
                Ok(Reply::parameter_data(condition.encode(cdb.bit(1, 0x01)).to_vec(), cdb.byte(4).into()))
            }
            _ => Ok(Reply::good(Some(0))),
        }
    }

    pub(super) fn reset(&mut self, why: Reset) {
        self.gate.reset(Some(why.condition()));
    }

    /// No command here has I/O, so none can be resumed.
    pub(super) fn nothing_pending(&self) -> Reply {
        refusal(sense::INTERNAL_TARGET_FAILURE, false, Flow::None)
    }
}
