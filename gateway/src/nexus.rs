//! The nexus table: which initiator port and target port a nexus id stands for.
//!
//! The portal enters a nexus at login and removes it at the end of the session; the SCSI engine looks names up. An id is
//! recycled, with the next generation, only when none of its commands is in flight.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ring::Nexus;

/// Both ends of one I_T nexus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ports {
    /// iSCSI name of the initiator.
    pub initiator: String,
    /// The initiator's session id (RFC 7143 section 11.12.5).
    pub isid: [u8; 6],
    /// iSCSI name of the target.
    pub target: String,
    /// Target portal group tag.
    pub portal_group: u16,
}

/// What an initiator sees and may do; the portal fills it from the target's access rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// LUNs in the initiator's inventory (REPORT LUNS).
    pub luns: Vec<u16>,
    /// Of them, those it may not write.
    pub read_only: Vec<u16>,
}

/// One live nexus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Who it connects.
    pub ports: Ports,
    /// What the initiator may see.
    pub view: View,
}

/// The table, shared by the portal and every LUN.
#[derive(Debug, Default)]
pub struct Table {
    slots: Mutex<Slots>,
    version: AtomicU64,
}

#[derive(Debug, Default)]
struct Slots {
    live: BTreeMap<u32, (u32, Arc<Entry>)>,
    free: Vec<(u32, u32)>,
    next: u32,
}

impl Table {
    /// An empty table.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Enters a nexus. The handle keeps the id; hold a clone for every command in flight.
    pub fn enter(self: &Arc<Self>, entry: Entry) -> Handle {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let (id, generation) = slots.free.pop().unwrap_or_else(|| {
            slots.next += 1;
            (slots.next, 0)
        });
        slots.live.insert(id, (generation, Arc::new(entry)));
        Handle(Arc::new(Registration { table: Arc::clone(self), nexus: Nexus::new(id, generation) }))
    }

    /// The nexus' ends and view, or `None` when it is gone (or [`Nexus::UNKNOWN`]).
    pub fn get(&self, nexus: Nexus) -> Option<Arc<Entry>> {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots
            .live
            .get(&nexus.id())
            .filter(|(generation, _)| *generation == nexus.generation())
            .map(|(_, entry)| Arc::clone(entry))
    }

    /// Replaces what an initiator sees (a changed configuration).
    pub fn set_view(&self, nexus: Nexus, view: View) {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((generation, entry)) = slots.live.get_mut(&nexus.id())
            && *generation == nexus.generation()
        {
            *entry = Arc::new(Entry { ports: entry.ports.clone(), view });
            self.version.fetch_add(1, Ordering::Release);
        }
    }

    /// Changes whenever an entry that [`Table::get`] has returned may no longer be what it returns: a reader that keeps
    /// entries looks again only then, and takes no lock otherwise.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Every live nexus with its ends and view.
    pub fn live(&self) -> Vec<(Nexus, Arc<Entry>)> {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let live = slots.live.iter();
        live.map(|(id, (generation, entry))| (Nexus::new(*id, *generation), Arc::clone(entry))).collect()
    }

    /// Live nexuses.
    pub fn len(&self) -> usize {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).live.len()
    }

    /// True when no nexus is live.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Keeps a nexus id from being recycled.
#[derive(Clone, Debug)]
pub struct Handle(Arc<Registration>);

impl Handle {
    /// The id to write into ring entries.
    pub fn nexus(&self) -> Nexus {
        self.0.nexus
    }
}

#[derive(Debug)]
struct Registration {
    table: Arc<Table>,
    nexus: Nexus,
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut slots = self.table.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.live.remove(&self.nexus.id());
        self.table.version.fetch_add(1, Ordering::Release);
        slots.free.push((self.nexus.id(), self.nexus.generation().wrapping_add(1)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str) -> Entry {
        let ports = Ports {
            initiator: name.into(),
            isid: [0; 6],
            target: "iqn.2026-01.example:t".into(),
            portal_group: 1,
        };
        Entry { ports, view: View::default() }
    }

    #[test]
    fn an_id_is_recycled_with_the_next_generation_once_its_last_command_is_gone() {
        let table = Table::new();
        let session = table.enter(entry("iqn.2026-01.example:a"));
        let (in_flight, old) = (session.clone(), session.nexus());
        drop(session);
        assert_ne!(table.enter(entry("iqn.2026-01.example:b")).nexus().id(), old.id());
        assert!(table.get(old).is_some());
        drop(in_flight);
        assert!(table.get(old).is_none());
        let next: Vec<_> = (0..2).map(|_| table.enter(entry("iqn.2026-01.example:c"))).collect();
        let reused = next.iter().find(|handle| handle.nexus().id() == old.id()).map(Handle::nexus);
        assert_eq!(reused, Some(Nexus::new(old.id(), old.generation() + 1)));
    }

    #[test]
    fn the_version_moves_when_a_view_changes_and_when_a_nexus_ends() {
        let table = Table::new();
        let session = table.enter(entry("iqn.2026-01.example:a"));
        let entered = table.version();
        table.set_view(session.nexus(), View { luns: vec![1], read_only: vec![] });
        let changed = table.version();
        drop(session);
        assert_ne!(entered, changed);
        assert_ne!(changed, table.version());
    }

    #[test]
    fn an_unknown_nexus_is_nobody() {
        assert!(Table::new().get(Nexus::UNKNOWN).is_none());
    }
}
