//! The nexus table: which initiator port and target port a nexus id stands for.
//!
//! The portal enters a nexus at login and removes it at the end of the session; the SCSI engine looks names up. An id is
//! recycled, with the next generation, only when none of its commands is in flight.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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

/// What the logical units of a target have to tell one nexus together, and what became of it.
#[derive(Debug, Default)]
pub struct News {
    /// How often the inventory has changed.
    changes: AtomicU64,
    /// Up to which change REPORT LUNS has been asked, at any LUN.
    reported: AtomicU64,
    /// LUNs where commands were ended on another nexus' behalf, without an answer.
    cleared: Mutex<BTreeSet<u16>>,
}

impl News {
    /// How often the inventory has changed.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Whether the inventory is another one than REPORT LUNS has last told.
    pub fn inventory_is_unknown(&self) -> bool {
        self.reported.load(Ordering::Acquire) < self.changes()
    }

    /// The inventory is about to be told: call it before it is looked at.
    pub fn tell_inventory(&self) {
        self.reported.fetch_max(self.changes(), Ordering::AcqRel);
    }

    /// Whether commands at this LUN have been cleared since the last call.
    pub fn take_cleared(&self, lun: u16) -> bool {
        self.cleared.lock().unwrap_or_else(PoisonError::into_inner).remove(&lun)
    }
}

/// The table, shared by the portal and every LUN.
#[derive(Debug, Default)]
pub struct Table {
    slots: Mutex<Slots>,
    version: AtomicU64,
}

#[derive(Debug, Default)]
struct Slots {
    live: BTreeMap<u32, Live>,
    free: Vec<(u32, u32)>,
    next: u32,
}

#[derive(Debug)]
struct Live {
    generation: u32,
    entry: Arc<Entry>,
    news: Arc<News>,
}

impl Slots {
    fn get(&self, nexus: Nexus) -> Option<&Live> {
        self.live.get(&nexus.id()).filter(|live| live.generation == nexus.generation())
    }
}

impl Table {
    /// An empty table.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Enters a nexus. The handle keeps the id; hold a clone for every command in flight.
    pub fn enter(self: &Arc<Self>, entry: Entry) -> Handle {
        let mut slots = self.lock();
        let (id, generation) = slots.free.pop().unwrap_or_else(|| {
            slots.next += 1;
            (slots.next, 0)
        });
        slots.live.insert(id, Live { generation, entry: Arc::new(entry), news: Arc::default() });
        Handle(Arc::new(Registration { table: Arc::clone(self), nexus: Nexus::new(id, generation) }))
    }

    /// The nexus' ends and view, or `None` when it is gone (or [`Nexus::UNKNOWN`]).
    pub fn get(&self, nexus: Nexus) -> Option<Arc<Entry>> {
        self.lock().get(nexus).map(|live| Arc::clone(&live.entry))
    }

    /// What its logical units have to tell it together.
    pub fn news(&self, nexus: Nexus) -> Option<Arc<News>> {
        self.lock().get(nexus).map(|live| Arc::clone(&live.news))
    }

    /// Replaces what an initiator sees (a changed configuration). Other LUNs than before are news to it.
    pub fn set_view(&self, nexus: Nexus, view: View) {
        let mut slots = self.lock();
        if let Some(live) = slots.live.get_mut(&nexus.id())
            && live.generation == nexus.generation()
        {
            if live.entry.view.luns != view.luns {
                live.news.changes.fetch_add(1, Ordering::AcqRel);
            }
            live.entry = Arc::new(Entry { ports: live.entry.ports.clone(), view });
            self.version.fetch_add(1, Ordering::Release);
        }
    }

    /// Commands of this nexus at a LUN were ended on another's behalf, and not answered.
    pub fn cleared(&self, nexus: Nexus, lun: u16) {
        if let Some(live) = self.lock().get(nexus) {
            live.news.cleared.lock().unwrap_or_else(PoisonError::into_inner).insert(lun);
            self.version.fetch_add(1, Ordering::Release);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes whenever an entry that [`Table::get`] has returned may no longer be what it returns, or there is news: a
    /// reader that keeps entries looks again only then, and takes no lock otherwise.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Every live nexus with its ends and view.
    pub fn live(&self) -> Vec<(Nexus, Arc<Entry>)> {
        let slots = self.lock();
        let live = slots.live.iter();
        live.map(|(id, live)| (Nexus::new(*id, live.generation), Arc::clone(&live.entry))).collect()
    }

    /// Live nexuses.
    pub fn len(&self) -> usize {
        self.lock().live.len()
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
        let mut slots = self.table.lock();
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
    fn an_inventory_that_has_changed_is_news_until_it_has_been_told() {
        let table = Table::new();
        let session = table.enter(entry("iqn.2026-01.example:a"));
        let news = table.news(session.nexus()).unwrap();
        assert!(!news.inventory_is_unknown());
        table.set_view(session.nexus(), View { luns: vec![], read_only: vec![1] });
        assert!(!news.inventory_is_unknown());
        table.set_view(session.nexus(), View { luns: vec![1], read_only: vec![1] });
        assert!(news.inventory_is_unknown());
        news.tell_inventory();
        assert!(!news.inventory_is_unknown());
    }

    #[test]
    fn an_unknown_nexus_is_nobody() {
        assert!(Table::new().get(Nexus::UNKNOWN).is_none());
    }
}
