//! What a command must pass before its handler sees it, and what the unit knows of each nexus.
//!
//! Order: unit attention, (CDB), access state of the port, medium, write protection. A nexus is known from its first command until the nexus table
//! no longer has it; what is kept for it is bounded: one entry per live nexus, each condition at most once.

use std::collections::BTreeMap;
use std::sync::Arc;

use ring::Nexus;
use smallvec::SmallVec;

use super::device::Device;
use super::opcode::{Attention, Medium, Opcode};
use super::sense::{self, Sense};
use crate::nexus::{Entry, Table};

/// Per-nexus state of one unit.
pub(super) struct Gate {
    nexuses: Arc<Table>,
    version: u64,
    known: BTreeMap<Nexus, Known>,
}

#[derive(Default)]
struct Known {
    /// `None` for [`Nexus::UNKNOWN`].
    entry: Option<Arc<Entry>>,
    /// Unit attention conditions, oldest first.
    attentions: SmallVec<[Sense; 1]>,
    /// Holds the medium in (PREVENT ALLOW MEDIUM REMOVAL).
    prevents_removal: bool,
}

/// Whom a unit attention condition is established for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Audience {
    /// Every nexus.
    Everyone,
    /// Every nexus but the one that caused it.
    Others(Nexus),
}

impl Gate {
    pub(super) fn new(nexuses: Arc<Table>) -> Self {
        Self { version: nexuses.version(), nexuses, known: BTreeMap::new() }
    }

    /// The nexus under which the unit files the sender. One it has not met is greeted with POWER ON OCCURRED; one that
    /// the table does not have is [`Nexus::UNKNOWN`], which every sender without a name shares, and which is not
    /// greeted: who writes no nexus (the kernel) reports power-on itself.
    pub(super) fn identify(&mut self, nexus: Nexus) -> Nexus {
        let version = self.nexuses.version();
        if version != self.version {
            self.version = version;
            self.refresh();
        }
        if self.known.contains_key(&nexus) {
            return nexus;
        }
        match self.nexuses.get(nexus) {
            Some(entry) => {
                let attentions = SmallVec::from_buf([sense::POWER_ON_OCCURRED]);
                self.known.insert(nexus, Known { entry: Some(entry), attentions, prevents_removal: false });
                nexus
            }
            None => {
                self.known.entry(Nexus::UNKNOWN).or_default();
                Nexus::UNKNOWN
            }
        }
    }

    /// Forgets the nexuses that have ended and looks the others' views up again.
    fn refresh(&mut self) {
        let table = &self.nexuses;
        self.known.retain(|nexus, known| {
            known.entry = table.get(*nexus);
            known.entry.is_some() || *nexus == Nexus::UNKNOWN
        });
    }

    /// Establishes a unit attention condition. One that is pending already is not doubled (SAM-5).
    pub(super) fn establish(&mut self, condition: Sense, audience: Audience) {
        for (nexus, known) in &mut self.known {
            let spared = audience == Audience::Others(*nexus);
            if !spared && !known.attentions.contains(&condition) {
                known.attentions.push(condition);
            }
        }
    }

    /// Establishes a reset condition, which takes the place of every other (SAM-5), and undoes what nexuses have
    /// asked of the unit.
    pub(super) fn reset(&mut self, condition: Sense) {
        for known in self.known.values_mut() {
            // A nexus that has yet to learn of the power-on loses nothing by hearing only of that.
            if known.attentions.first() != Some(&sense::POWER_ON_OCCURRED) {
                known.attentions = SmallVec::from_buf([condition]);
            }
            known.prevents_removal = false;
        }
    }

    /// Takes the oldest pending condition.
    pub(super) fn take_attention(&mut self, nexus: Nexus) -> Option<Sense> {
        let attentions = &mut self.known.get_mut(&nexus)?.attentions;
        if attentions.is_empty() { None } else { Some(attentions.remove(0)) }
    }

    /// Who a nexus is, if it has a name.
    pub(super) fn entry(&self, nexus: Nexus) -> Option<&Entry> {
        self.known.get(&nexus)?.entry.as_deref()
    }

    /// Whether the initiator's view has this LUN read-only.
    pub(super) fn read_only(&self, nexus: Nexus, lun: u16) -> bool {
        let entry = self.known.get(&nexus).and_then(|known| known.entry.as_ref());
        entry.is_some_and(|entry| entry.view.read_only.contains(&lun))
    }

    /// Records whether the nexus holds the medium in.
    pub(super) fn prevent_removal(&mut self, nexus: Nexus, prevent: bool) {
        if let Some(known) = self.known.get_mut(&nexus) {
            known.prevents_removal = prevent;
        }
    }

    /// Whether any nexus holds the medium in.
    pub(super) fn removal_prevented(&self) -> bool {
        self.known.values().any(|known| known.prevents_removal)
    }
}

/// Reports a pending unit attention condition, if the command is one that does (SAM-5).
pub(super) fn attend(device: &mut Device, row: Option<&Opcode>, nexus: Nexus) -> Result<(), Sense> {
    match row.map_or(Attention::Reported, |row| row.attention) {
        Attention::Reported => device.gate.take_attention(nexus).map_or(Ok(()), Err),
        Attention::Passed | Attention::Returned => Ok(()),
    }
}

/// Checks what the unit's state allows.
pub(super) fn admit(device: &Device, row: &Opcode, nexus: Nexus) -> Result<(), Sense> {
    if row.medium != Medium::Unused && device.ejected {
        return Err(sense::MEDIUM_NOT_PRESENT);
    }
    if row.medium == Medium::Write && device.write_protected(nexus) {
        return Err(sense::WRITE_PROTECTED);
    }
    Ok(())
}
