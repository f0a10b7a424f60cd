//! The device server behind LUNs that do not exist (SAM-5, incorrect logical unit selection).

use std::sync::Arc;

use ring::Nexus;

use super::cdb::{self, Request};
use super::device::refusal;
use super::identity::Identity;
use super::opcode::{self, Attention, Flow};
use super::sense::{self, Sense};
use super::step::{Data, Reply};
use super::{inquiry, luns, vpd};
use crate::nexus::Table;

/// Answers what may be asked of a LUN that is not there.
pub(super) struct Absent {
    nexuses: Arc<Table>,
    identity: Identity,
}

impl Absent {
    pub(super) fn new(nexuses: Arc<Table>) -> Self {
        Self { nexuses, identity: Identity::from_serial("") }
    }

    pub(super) fn execute(&self, cdb: &[u8], nexus: Nexus, data: &dyn Data) -> Reply {
        let row = opcode::find(cdb);
        let flow = row.map_or(Flow::None, |row| row.data);
        let answer = match row {
            Some(row) if row.attention != Attention::Reported => cdb::parse(Some(row), cdb)
                .and_then(|(row, cdb)| self.answer(&Request { row, cdb, nexus, data })),
            _ => Err(sense::LOGICAL_UNIT_NOT_SUPPORTED),
        };
        answer.unwrap_or_else(|sense| refusal(sense, false, flow))
    }

    /// The commands that a missing logical unit answers are those that a unit attention does not hold up.
    fn answer(&self, request: &Request<'_>) -> Result<Reply, Sense> {
        let cdb = request.cdb;
        match request.row.name {
            "inquiry" => {
                let data = match inquiry::requested(cdb)? {
                    None => inquiry::standard(inquiry::NOWHERE, false, &self.identity),
                    Some(0x00) => vpd::with_header(inquiry::NOWHERE, 0x00, &[0x00]),
                    Some(_) => return Err(sense::INVALID_FIELD_IN_CDB.at_cdb_byte(2)),
                };
                Ok(Reply::parameter_data(data, cdb.u16(3).into()))
            }
            "report_luns" => report_luns(&self.nexuses, request),
            "request_sense" => {
                let sense = sense::LOGICAL_UNIT_NOT_SUPPORTED.encode(cdb.bit(1, 0x01));
                Ok(Reply::parameter_data(sense.to_vec(), cdb.byte(4).into()))
            }
            _ => Err(sense::LOGICAL_UNIT_NOT_SUPPORTED),
        }
    }

    /// No command here has I/O, so none can be resumed.
    pub(super) fn nothing_pending(&self) -> Reply {
        refusal(sense::INTERNAL_TARGET_FAILURE, false, Flow::None)
    }
}

/// REPORT LUNS, at a unit that is none of those in the inventory.
pub(super) fn report_luns(nexuses: &Arc<Table>, request: &Request<'_>) -> Result<Reply, Sense> {
    let allocation = luns::allocation(request.cdb)?;
    let luns = luns::known(nexuses, request.nexus).unwrap_or_default();
    Ok(Reply::parameter_data(luns::list(request.cdb, &luns)?, allocation))
}
