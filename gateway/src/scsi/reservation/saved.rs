//! The registry as bytes, for a store: JSON with a version. A version that is not known is refused, never guessed at.

use serde::{Deserialize, Serialize};

use super::registry::{InitiatorPort, Kind, MOST_REGISTRANTS, Port, Registrant, Registry};
use super::transport_id::hexadecimal;
use crate::names;

/// The version that is written.
const VERSION: u32 = 1;

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
    all_target_ports: bool,
    key: u64,
    holds: bool,
}

/// The bytes of a registry.
pub(super) fn encode(registry: &Registry) -> Vec<u8> {
    let registrants = registry.registrants.iter().map(|registrant| Entry {
        initiator: registrant.port.initiator.name.clone(),
        isid: registrant.port.initiator.isid.iter().map(|byte| format!("{byte:02x}")).collect(),
        target_port: registrant.port.target,
        all_target_ports: registrant.all_target_ports,
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

/// The registry of some bytes; no bytes are a unit that never had one.
pub(super) fn decode(bytes: &[u8]) -> Result<Registry, Unreadable> {
    if bytes.is_empty() {
        return Ok(Registry::default());
    }
    let damaged = |error: serde_json::Error| Unreadable::Damaged(error.to_string());
    let head: Head = serde_json::from_slice(bytes).map_err(damaged)?;
    if head.version != VERSION {
        return Err(Unreadable::Version(head.version));
    }
    let saved: Saved = serde_json::from_slice(bytes).map_err(damaged)?;
    check(saved).ok_or_else(|| Unreadable::Damaged("it contradicts itself".into()))
}

/// What [`Registry`] promises of itself.
fn check(saved: Saved) -> Option<Registry> {
    let reservation = match saved.kind {
        None => None,
        Some(code) => Some(Kind::from_code(code)?),
    };
    let mut registrants: Vec<Registrant> = Vec::new();
    for entry in saved.registrants {
        let initiator =
            InitiatorPort { name: names::normalize(&entry.initiator).ok()?, isid: hexadecimal(&entry.isid)? };
        let port = Port { initiator, target: entry.target_port };
        let twice = registrants
            .iter()
            .any(|other| other.is(&port) || entry.all_target_ports && other.port.initiator == port.initiator);
        if twice || entry.key == 0 {
            return None;
        }
        registrants.push(Registrant {
            port,
            all_target_ports: entry.all_target_ports,
            key: entry.key,
            holds: entry.holds,
        });
    }
    let holders = registrants.iter().filter(|registrant| registrant.holds).count();
    let expected = usize::from(reservation.is_some_and(|kind| !kind.held_by_all()));
    let sound = holders == expected
        && registrants.len() <= MOST_REGISTRANTS
        && (reservation.is_none() || !registrants.is_empty());
    sound.then_some(Registry { generation: saved.generation, aptpl: saved.aptpl, registrants, reservation })
}
