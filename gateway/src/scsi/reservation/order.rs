//! PERSISTENT RESERVE OUT as it comes: CDB and parameter list → [`Order`].

use super::registry::{InitiatorPort, Kind, MOST_REGISTRANTS, Port};
use super::transport_id;
use crate::scsi::cdb::Request;
use crate::scsi::sense::{self, Sense};

/// Service actions (SPC-4, PERSISTENT RESERVE OUT service actions).
pub(super) mod action {
    pub(in super::super) const REGISTER: u8 = 0x00;
    pub(in super::super) const RESERVE: u8 = 0x01;
    pub(in super::super) const RELEASE: u8 = 0x02;
    pub(in super::super) const CLEAR: u8 = 0x03;
    pub(in super::super) const PREEMPT: u8 = 0x04;
    pub(in super::super) const PREEMPT_AND_ABORT: u8 = 0x05;
    pub(in super::super) const REGISTER_AND_IGNORE_EXISTING_KEY: u8 = 0x06;
}

/// The basic parameter list, and the one of REGISTER AND MOVE up to its TransportID.
const LIST: usize = 24;

/// No parameter list is longer: TransportIDs for every registration that there can be.
const LONGEST_LIST: usize = LIST + 4 + MOST_REGISTRANTS * transport_id::LONGEST;

/// What an initiator asks of the registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) action: Action,
    /// RESERVATION KEY.
    pub(super) key: u64,
    /// SERVICE ACTION RESERVATION KEY.
    pub(super) service_key: u64,
    /// SCOPE and TYPE.
    pub(super) scope_and_type: u8,
    /// APTPL.
    pub(super) aptpl: bool,
}

/// The service action with what only it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Register {
        ignore_existing: bool,
        /// The sender's, and with ALL_TG_PT every other.
        target_ports: Vec<u16>,
        /// SPEC_I_PT: to be registered beside the sender; possibly nobody.
        others: Option<Vec<InitiatorPort>>,
    },
    Reserve,
    Release,
    Clear,
    Preempt {
        abort: bool,
    },
    Move {
        to: Port,
        /// UNREG.
        unregister: bool,
    },
}

/// Who else there is, for the names that a parameter list may leave incomplete.
pub(super) trait Neighbours {
    /// The one initiator port that an iSCSI name now stands for; `None` when it has none, or several.
    fn port_of(&self, name: &str) -> Option<InitiatorPort>;

    /// The target port that the command has come through.
    fn own_target_port(&self) -> u16;

    /// Every target port through which the unit is reached.
    fn target_ports(&self) -> Vec<u16>;
}

impl Order {
    /// The type that is asked for; SCOPE is always the logical unit.
    pub(super) fn kind(&self) -> Result<Kind, Sense> {
        if self.scope_and_type >> 4 != 0 {
            return Err(sense::INVALID_FIELD_IN_CDB.at_cdb_bit(2, 7));
        }
        Kind::from_code(self.scope_and_type & 0x0F).ok_or(sense::INVALID_FIELD_IN_CDB.at_cdb_bit(2, 3))
    }
}

/// Reads the command.
pub(super) fn parse(request: &Request<'_>, neighbours: &dyn Neighbours) -> Result<Order, Sense> {
    let cdb = request.cdb;
    let claimed = cdb.u32(5) as usize;
    let list = request.whole_parameter_list(claimed, LONGEST_LIST)?;
    read(cdb.byte(1) & 0x1F, cdb.byte(2), &list, neighbours)
}

/// Reads the parameter list of a service action.
pub(super) fn read(
    service_action: u8,
    scope_and_type: u8,
    list: &[u8],
    neighbours: &dyn Neighbours,
) -> Result<Order, Sense> {
    let (head, rest) = list.split_first_chunk::<LIST>().ok_or(sense::PARAMETER_LIST_LENGTH_ERROR)?;
    let [k0, k1, k2, k3, k4, k5, k6, k7, s0, s1, s2, s3, s4, s5, s6, s7, tail @ ..] = *head;
    let order = |action, aptpl| Order {
        action,
        key: u64::from_be_bytes([k0, k1, k2, k3, k4, k5, k6, k7]),
        service_key: u64::from_be_bytes([s0, s1, s2, s3, s4, s5, s6, s7]),
        scope_and_type,
        aptpl,
    };
    let registers = matches!(service_action, action::REGISTER | action::REGISTER_AND_IGNORE_EXISTING_KEY);
    let flags = tail[4];
    let target_ports = || match flags & ALL_TG_PT {
        0 => vec![neighbours.own_target_port()],
        _ => neighbours.target_ports(),
    };
    // SPC-4: SPEC_I_PT goes with REGISTER alone; without it the list has 24 bytes, except for REGISTER AND MOVE.
    let specifies = flags & SPEC_I_PT != 0;
    let action = match service_action {
        action::REGISTER if specifies => Action::Register {
            ignore_existing: false,
            target_ports: target_ports(),
            others: Some(others(rest, neighbours)?),
        },
        action::REGISTER | action::REGISTER_AND_IGNORE_EXISTING_KEY if specifies => {
            return Err(sense::INVALID_FIELD_IN_PARAMETER_LIST.at_list_byte(20));
        }
        _ if service_action <= action::REGISTER_AND_IGNORE_EXISTING_KEY && !rest.is_empty() => {
            return Err(sense::PARAMETER_LIST_LENGTH_ERROR);
        }
        action::REGISTER | action::REGISTER_AND_IGNORE_EXISTING_KEY => Action::Register {
            ignore_existing: service_action != action::REGISTER,
            target_ports: target_ports(),
            others: None,
        },
        action::RESERVE => Action::Reserve,
        action::RELEASE => Action::Release,
        action::CLEAR => Action::Clear,
        action::PREEMPT | action::PREEMPT_AND_ABORT => {
            Action::Preempt { abort: service_action == action::PREEMPT_AND_ABORT }
        }
        _ => {
            let to = move_to([tail[2], tail[3]], [tail[4], tail[5], tail[6], tail[7]], rest, neighbours)?;
            return Ok(order(Action::Move { to, unregister: tail[1] & UNREG != 0 }, tail[1] & APTPL != 0));
        }
    };
    Ok(order(action, registers && flags & APTPL != 0))
}

const SPEC_I_PT: u8 = 0x08;
const ALL_TG_PT: u8 = 0x04;
const APTPL: u8 = 0x01;
const UNREG: u8 = 0x02;

/// The additional parameter data of SPEC_I_PT: a length and TransportIDs.
fn others(rest: &[u8], neighbours: &dyn Neighbours) -> Result<Vec<InitiatorPort>, Sense> {
    let (length, mut ids) = rest.split_first_chunk::<4>().ok_or(sense::PARAMETER_LIST_LENGTH_ERROR)?;
    if u32::from_be_bytes(*length) as usize != ids.len() {
        return Err(sense::PARAMETER_LIST_LENGTH_ERROR);
    }
    let mut others = Vec::new();
    while !ids.is_empty() {
        let at = list_byte(LIST + rest.len() - ids.len());
        let (id, length) =
            transport_id::decode(ids).ok_or(sense::INVALID_FIELD_IN_PARAMETER_LIST.at_list_byte(at))?;
        others.push(id.resolve(neighbours).ok_or(sense::INVALID_FIELD_IN_PARAMETER_LIST.at_list_byte(at))?);
        ids = ids.get(length..).unwrap_or_default();
    }
    Ok(others)
}

/// The nexus that REGISTER AND MOVE names.
fn move_to(
    target_port: [u8; 2],
    length: [u8; 4],
    rest: &[u8],
    neighbours: &dyn Neighbours,
) -> Result<Port, Sense> {
    if u32::from_be_bytes(length) as usize != rest.len() || rest.len() < transport_id::SHORTEST {
        return Err(sense::PARAMETER_LIST_LENGTH_ERROR);
    }
    let target = u16::from_be_bytes(target_port);
    if !neighbours.target_ports().contains(&target) {
        return Err(sense::INVALID_FIELD_IN_PARAMETER_LIST.at_list_byte(18));
    }
    let invalid = sense::INVALID_FIELD_IN_PARAMETER_LIST.at_list_byte(list_byte(LIST));
    let (id, length) = transport_id::decode(rest).ok_or(invalid)?;
    if length != rest.len() {
        return Err(invalid);
    }
    Ok(Port { initiator: id.resolve(neighbours).ok_or(invalid)?, target })
}

fn list_byte(at: usize) -> u16 {
    u16::try_from(at).unwrap_or(u16::MAX)
}
