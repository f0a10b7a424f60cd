//! The registry as bytes, for a store: JSON with a version. A version that is not known is refused, never guessed at.
//!
//! Version 1 had one entry for a registration at all target ports; it is read as one at each of those that there are, of
//! which the one that it was made through holds what it held.

use std::collections::BTreeSet;
use std::iter;

use serde::{Deserialize, Serialize};

use super::registry::{InitiatorPort, Kind, MOST_REGISTRANTS, Port, Registrant, Registry};
use super::transport_id::hexadecimal;
use crate::names;

/// The version that is written.
const VERSION: u32 = 2;
/// The oldest version that is read.
const OLDEST: u32 = 1;

/// Why stored reservations cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// Not what was once written.
    #[error("the stored reservations are damaged: {0}")]
    Damaged(String),
    /// Written by a later release.
    #[error("the stored reservations have version {0}; this release reads up to {VERSION}")]
    Version(u32),
}

#[derive(Deserialize)]
struct Head {
    version: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    version: u32,
    generation: u32,
    aptpl: bool,
    #[serde(rename = "type")]
    kind: Option<u8>,
    registrants: Vec<Entry>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    initiator: String,
    isid: String,
    target_port: u16,
    /// In version 1, and only there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    all_target_ports: Option<bool>,
    key: u64,
    holds: bool,
}

/// The bytes of a registry.
pub(super) fn encode(registry: &Registry) -> Vec<u8> {
    let registrants = registry.registrants.iter().map(|registrant| Entry {
        initiator: registrant.port.initiator.name.clone(),
        isid: registrant.port.initiator.isid.iter().map(|byte| format!("{byte:02x}")).collect(),
        target_port: registrant.port.target,
        all_target_ports: None,
        key: registrant.key,
        holds: registrant.holds,
    });
    let saved = Saved {
        version: VERSION,
        generation: registry.generation,
        aptpl: registry.aptpl,
        kind: registry.reservation.map(Kind::code),
        registrants: registrants.collect(),
    };
    // Numbers, texts and lists only: nothing here can fail.
    serde_json::to_vec(&saved).unwrap_or_default()
}

/// The registry of some bytes, of a unit with these target ports; no bytes are a unit that never had one.
pub(super) fn decode(bytes: &[u8], target_ports: &BTreeSet<u16>) -> Result<Registry, Unreadable> {
    if bytes.is_empty() {
        return Ok(Registry::default());
    }
    let damaged = |error: serde_json::Error| Unreadable::Damaged(error.to_string());
    let head: Head = serde_json::from_slice(bytes).map_err(damaged)?;
    if !(OLDEST..=VERSION).contains(&head.version) {
        return Err(Unreadable::Version(head.version));
    }
    let saved: Saved = serde_json::from_slice(bytes).map_err(damaged)?;
    check(saved, target_ports).ok_or_else(|| Unreadable::Damaged("it contradicts itself".into()))
}

/// What [`Registry`] promises of itself.
fn check(saved: Saved, target_ports: &BTreeSet<u16>) -> Option<Registry> {
    let reservation = match saved.kind {
        None => None,
        Some(code) => Some(Kind::from_code(code)?),
    };
    let mut registrants: Vec<Registrant> = Vec::new();
    for entry in saved.registrants {
        let initiator =
            InitiatorPort { name: names::normalize(&entry.initiator).ok()?, isid: hexadecimal(&entry.isid)? };
        let everywhere = match (saved.version, entry.all_target_ports) {
            (OLDEST, Some(everywhere)) => everywhere,
            (VERSION, None) => false,
            _ => return None,
        };
        let others = target_ports.iter().filter(|port| everywhere && **port != entry.target_port);
        for target in iter::once(entry.target_port).chain(others.copied()) {
            let port = Port { initiator: initiator.clone(), target };
            if entry.key == 0 || registrants.iter().any(|other| other.port == port) {
                return None;
            }
            let holds = entry.holds && target == entry.target_port;
            registrants.push(Registrant { port, key: entry.key, holds });
        }
    }
    let holders = registrants.iter().filter(|registrant| registrant.holds).count();
    let expected = usize::from(reservation.is_some_and(|kind| !kind.held_by_all()));
    let sound = holders == expected
        && registrants.len() <= MOST_REGISTRANTS
        && (reservation.is_none() || !registrants.is_empty());
    sound.then_some(Registry { generation: saved.generation, aptpl: saved.aptpl, registrants, reservation })
}
