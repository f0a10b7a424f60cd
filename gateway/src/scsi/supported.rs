//! What the unit can do: REPORT SUPPORTED OPERATION CODES and … TASK MANAGEMENT FUNCTIONS (SPC-4).

use super::cdb::Request;
use super::device::{Answer, Device, parameter_data};
use super::opcode::{self, Opcode};
use super::sense;

/// REPORT SUPPORTED OPERATION CODES.
pub(super) fn operation_codes(device: &mut Device, request: &Request<'_>) -> Answer {
    let cdb = request.cdb;
    let timeouts = cdb.bit(2, 0x80);
    let (code, action) = (cdb.byte(3), cdb.u16(4));
    let data = match cdb.byte(2) & 0x07 {
        0b000 => every_command(device, timeouts),
        option @ 0b001..=0b011 => {
            let rows = opcode::rows_of(code);
            let has_actions = rows.iter().any(|row| row.service_action.is_some());
            // 001b asks for an operation code without service actions, 010b for one with them; 011b takes either.
            if (option == 0b001 && has_actions) || (option == 0b010 && !rows.is_empty() && !has_actions) {
                return Err(sense::INVALID_FIELD_IN_CDB.at_cdb_byte(2));
            }
            let row = rows.iter().find(|row| match row.service_action {
                Some(own) => own == action,
                None => option == 0b001 || action == 0,
            });
            one_command(row.filter(|row| device.offers(row)), timeouts)
        }
        _ => return Err(sense::INVALID_FIELD_IN_CDB.at_cdb_bit(2, 2)),
    };
    parameter_data(data, cdb.u32(6) as usize)
}

/// The all_commands format (SPC-4).
fn every_command(device: &Device, timeouts: bool) -> Vec<u8> {
    let mut data = vec![0; 4];
    for row in opcode::all().iter().filter(|row| device.offers(row)) {
        let [action_high, action_low] = row.service_action.unwrap_or(0).to_be_bytes();
        let [length_high, length_low] = (row.usage.len() as u16).to_be_bytes();
        let flags = u8::from(timeouts) << 1 | u8::from(row.service_action.is_some());
        data.extend_from_slice(&[row.code, 0, action_high, action_low, 0, flags, length_high, length_low]);
        if timeouts {
            data.extend_from_slice(&TIMEOUTS);
        }
    }
    let length = (data.len() - 4) as u32;
    data[..4].copy_from_slice(&length.to_be_bytes());
    data
}

/// The one_command format (SPC-4).
fn one_command(row: Option<&Opcode>, timeouts: bool) -> Vec<u8> {
    /// SUPPORT: not supported.
    const UNSUPPORTED: u8 = 0b001;
    /// SUPPORT: supported in conformance with a standard.
    const STANDARD: u8 = 0b011;
    let Some(row) = row else { return vec![0, UNSUPPORTED, 0, 0] };
    let [high, low] = (row.usage.len() as u16).to_be_bytes();
    let mut data = vec![0, u8::from(timeouts) << 7 | STANDARD, high, low];
    data.extend_from_slice(row.usage);
    if timeouts {
        data.extend_from_slice(&TIMEOUTS);
    }
    data
}

/// The command timeouts descriptor (SPC-4): no command has a nominal time or a recommended timeout.
const TIMEOUTS: [u8; 12] = [0, 0x0A, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS: ABORT TASK, ABORT TASK SET, CLEAR TASK SET, LOGICAL UNIT RESET, and (since
/// iSCSI has it) TARGET RESET.
pub(super) fn task_management_functions(_: &mut Device, request: &Request<'_>) -> Answer {
    const FUNCTIONS: u8 = 0x80 | 0x40 | 0x10 | 0x08 | 0x02;
    let extended = request.cdb.bit(2, 0x80);
    let mut data = vec![FUNCTIONS, 0, 0, 0];
    if extended {
        data[3] = 0x0C;
        data.resize(16, 0);
    }
    parameter_data(data, request.cdb.u32(6) as usize)
}
