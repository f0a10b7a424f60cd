//! Reservations: who may use a unit that several hosts share (SPC-4, Reservations).
//!
//! ```text
//!  PERSISTENT RESERVE OUT   order     parse()      CDB and parameter list → Order
//!                           registry  apply()      Order → Change, or why not; nothing is touched yet
//!                           service                saves the Change, makes it true, tells other nexuses, waits for
//!                                                  what they may no longer do, answers
//!  PERSISTENT RESERVE IN    report                 the registry as parameter data
//!  RESERVE, RELEASE         legacy                 SPC-2's, with the exceptions that SPC-4 makes
//!  every other command      conflict  meets()      the opcode table's column, and what the sender is to the reservation
//! ```
//!
//! A registration belongs to an initiator port (iSCSI name and ISID) at a target port: it outlives the session, and a
//! session of the same ports takes it up again. ALL_TG_PT makes one at each target port. The registry is kept outside of the gateway's memory (a *store*, which the
//! lane writes): a change is true when it has been stored, and answered only then.

mod conflict;
mod legacy;
mod order;
mod registry;
mod report;
mod saved;
mod service;
mod transport_id;

use std::collections::BTreeMap;

use ring::Nexus;

use super::device::Device;
use super::gate::Gate;

pub(super) use legacy::{release, reserve};
pub(super) use report::persistent_reserve_in;
pub use saved::Unreadable;
pub(super) use service::{Pending, adopt, persistent_reserve_out};

#[cfg(test)]
pub(super) use registry::MOST_REGISTRANTS;
use registry::{Port, Registry, Standing};

/// What one unit knows of its reservations.
#[derive(Debug, Default)]
pub(super) struct State {
    registry: Registry,
    /// The store's number of what `registry` was read from or last saved as.
    stored: u64,
    /// Who holds the unit by RESERVE (SPC-2).
    legacy: Option<Nexus>,
    /// What the nexuses that have been asked about are to the reservation; forgotten with every change.
    standings: BTreeMap<Nexus, Standing>,
}

impl State {
    /// What was stored before the unit was there, as a power on leaves it (SPC-4, Preserving persistent reservations and
    /// registrations).
    pub(super) fn after_power_on(device: &Device, stored: u64, bytes: &[u8]) -> Result<Self, Unreadable> {
        let registry = saved::decode(bytes, &service::target_ports(device))?.after_power_on();
        Ok(Self { registry, stored, ..Self::default() })
    }

    /// RESERVE ends with a reset, and with the nexus that holds it (SPC-2, Reservations); nothing else does.
    pub(super) fn reset(&mut self) {
        self.legacy = None;
    }

    /// Lets go of what belongs to nexuses that have ended.
    pub(super) fn forget_ended(&mut self, gate: &Gate) {
        self.legacy = self.legacy.filter(|holder| gate.knows(*holder));
        self.standings.retain(|nexus, _| gate.knows(*nexus));
    }

    fn standing(&mut self, nexus: Nexus, gate: &Gate) -> Standing {
        let registry = &self.registry;
        *self
            .standings
            .entry(nexus)
            .or_insert_with(|| gate.port(nexus).map_or(Standing::Stranger, |port| registry.standing(&port)))
    }

    /// Makes a stored registry the one that counts.
    fn replace(&mut self, registry: Registry, stored: u64) {
        self.registry = registry;
        self.stored = stored;
        self.standings.clear();
    }
}

impl Gate {
    /// The names of both ends of a nexus; `None` for a sender without any.
    fn port(&self, nexus: Nexus) -> Option<Port> {
        self.ports(nexus).map(Port::of)
    }

    /// Every live nexus by the names of its ends.
    fn live_ports(&self) -> Vec<(Nexus, Port)> {
        self.live().into_iter().map(|(nexus, entry)| (nexus, Port::of(&entry.ports))).collect()
    }
}
