//! REPORT TARGET PORT GROUPS and SET TARGET PORT GROUPS (SPC-4).

use smallvec::SmallVec;

use super::alua::{self, Groups, State, Wish};
use super::cdb::Request;
use super::device::{Answer, Device, Then, good, parameter_data};
use super::sense::{self, Sense};
use super::step::{Finished, Io, Step};
use crate::disk::Error;

/// PARAMETER DATA FORMAT: extended header.
const EXTENDED: u8 = 0b001;

/// REPORT TARGET PORT GROUPS.
pub(super) fn report(device: &mut Device, request: &Request<'_>) -> Answer {
    let groups = &device.ports.groups;
    let extended = request.cdb.byte(1) >> 5 == EXTENDED;
    let mut data = vec![0; if extended { 8 } else { 4 }];
    if extended {
        data[4] = EXTENDED << 4;
        data[5] = groups.transition_seconds;
    }
    for group in &groups.groups {
        let [high, low] = group.id.to_be_bytes();
        let count = u8::try_from(group.ports.len()).unwrap_or(u8::MAX);
        let state = u8::from(group.preferred) << 7 | group.state as u8;
        data.extend_from_slice(&[state, group.supported.bits(), high, low, 0, group.cause as u8, 0, count]);
        for port in group.ports.iter().take(count.into()) {
            let [high, low] = port.to_be_bytes();
            data.extend_from_slice(&[0, 0, high, low]);
        }
    }
    let length = (data.len() - 4) as u32;
    data[..4].copy_from_slice(&length.to_be_bytes());
    parameter_data(data, request.cdb.u32(6) as usize)
}

/// Descriptors that are looked at: more groups than that no target has.
const MOST: usize = 1024;

/// SET TARGET PORT GROUPS.
pub(super) fn set(device: &mut Device, request: &Request<'_>) -> Answer {
    let claimed = request.cdb.u32(6) as usize;
    // SPC-4: no data is no error, and changes nothing.
    if claimed == 0 {
        return good(0);
    }
    let list = request.whole_parameter_list(claimed, 4 + 4 * MOST)?;
    if list.len() < 4 || !list.len().is_multiple_of(4) {
        return Err(sense::PARAMETER_LIST_LENGTH_ERROR);
    }
    let descriptors = list.get(4..).unwrap_or_default().chunks_exact(4);
    let wishes: Result<Vec<Wish>, Sense> = descriptors
        .enumerate()
        .map(|(index, wish)| read(&device.ports.groups, wish, 4 + 4 * index))
        .collect();
    let wishes = wishes?;
    if wishes.is_empty() {
        return good(claimed);
    }
    let number = device.ports.setting(request.nexus, &wishes);
    let io = Io::SetTargetPortGroups(wishes.into());
    let then = Then::SetTargetPortGroups(Setting { number, transfer: claimed });
    Ok(Step::Io { io: SmallVec::from_buf([io]), exclusive: None, then })
}

/// One descriptor, at this byte of the list.
fn read(groups: &Groups, wish: &[u8], at: usize) -> Result<Wish, Sense> {
    let [state, _, high, low] = *wish else { return Err(sense::PARAMETER_LIST_LENGTH_ERROR) };
    let wrong = |byte: usize| sense::INVALID_FIELD_IN_PARAMETER_LIST.at_list_byte((at + byte) as u16);
    let id = u16::from_be_bytes([high, low]);
    let group = groups.groups.iter().find(|group| group.id == id).ok_or(wrong(2))?;
    let state =
        State::requestable(state & 0x0F).filter(|state| group.supported.contains(*state)).ok_or(wrong(0))?;
    Ok(Wish { group: id, state })
}

/// Where SET TARGET PORT GROUPS goes on.
#[derive(Debug)]
pub(super) struct Setting {
    /// Among the unit's.
    number: u64,
    transfer: usize,
}

impl Setting {
    /// The command was aborted: what it has asked for happens, but nobody waits for it.
    pub(super) fn aborted(&self, device: &mut Device) {
        device.ports.set(self.number);
    }

    pub(super) fn resume(self, device: &mut Device, results: &[Finished]) -> Answer {
        // While the sender still counts as the one that has asked for the change.
        alua::refresh(device);
        device.ports.set(self.number);
        match results.first().map(|finished| &finished.result) {
            Some(Ok(_)) => good(self.transfer),
            Some(Err(Error::NotReady)) => Err(sense::ASYMMETRIC_ACCESS_STATE_TRANSITION),
            Some(Err(_)) | None => Err(sense::SET_TARGET_PORT_GROUPS_COMMAND_FAILED),
        }
    }
}
