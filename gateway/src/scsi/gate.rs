//! What a command must pass before its handler sees it, and what the unit knows of each nexus.
//!
//! Order: unit attention, (CDB), reservation, access state of the port, medium, write protection. A nexus is known from its first
//! command until the nexus table no longer has it; what is kept for it is bounded: one entry per live nexus, each condition
//! at most once.
//!
//! Unit attention conditions (SAM-5) wait in the order in which they came about. A reset takes the place of what was
//! pending, and a pending power-on or nexus loss that of a reset, because the initiator starts over in any case. Which of
//! the three a nexus is greeted with depends on whether its initiator port has been here before. UA_INTLCK_CTRL is zero:
//! reporting a condition clears it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use ring::Nexus;
use smallvec::SmallVec;

use super::device::Device;
use super::opcode::{Attention, Medium, Opcode};
use super::sense::{self, Sense};
use crate::nexus::{Entry, News, Ports, Table};

/// Per-nexus state of one unit.
pub(super) struct Gate {
    nexuses: Arc<Table>,
    version: u64,
    known: BTreeMap<Nexus, Known>,
    /// The unit's number in its targets.
    lun: u16,
    /// The unit's target, where it is known; the table has nexuses of others too.
    target: Option<String>,
    /// Nexuses that were known and have ended, oldest first, and what their ports are greeted with when they come again.
    ended: VecDeque<(Arc<Entry>, Sense)>,
    /// Nexuses have ended since [`Gate::forgot`] was last asked.
    forgot: bool,
}

/// Ended nexuses that are remembered. One that has been forgotten is greeted as a new one, which SAM-5 allows.
const ENDED: usize = 256;

#[derive(Default)]
struct Known {
    /// `None` for [`Nexus::UNKNOWN`].
    entry: Option<Arc<Entry>>,
    /// `None` for [`Nexus::UNKNOWN`].
    news: Option<Arc<News>>,
    /// The changes of its inventory that a condition has been established for.
    changes: u64,
    /// Unit attention conditions, oldest first.
    attentions: SmallVec<[Sense; 1]>,
    /// Holds the medium in (PREVENT ALLOW MEDIUM REMOVAL).
    prevents_removal: bool,
    /// What it has written into its echo buffer.
    echo: Vec<u8>,
}

impl Known {
    /// One that is pending already is not doubled (SAM-5).
    fn establish(&mut self, condition: Sense) {
        if !self.attentions.contains(&condition) {
            self.attentions.push(condition);
        }
    }

    /// What the nexus' ports are told when they come again: of the lost nexus, unless they have yet to learn of a reset or
    /// the power-on, which are more (SAM-5, unit attention condition precedence).
    fn farewell(&self) -> Sense {
        let first = self.attentions.first().filter(|condition| condition.asc == sense::POWER_ON_OCCURRED.asc);
        first.copied().unwrap_or(sense::I_T_NEXUS_LOSS_OCCURRED)
    }

    fn hear(&mut self, lun: u16) {
        let Some(news) = &self.news else { return };
        let (changes, cleared) = (news.changes(), news.take_cleared(lun));
        if std::mem::replace(&mut self.changes, changes) != changes {
            self.establish(sense::REPORTED_LUNS_DATA_HAS_CHANGED);
        }
        if cleared {
            self.establish(sense::COMMANDS_CLEARED_BY_ANOTHER_INITIATOR);
        }
    }
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
    pub(super) fn new(nexuses: Arc<Table>, lun: u16) -> Self {
        Self {
            version: nexuses.version(),
            nexuses,
            known: BTreeMap::new(),
            lun,
            target: None,
            ended: VecDeque::new(),
            forgot: false,
        }
    }

    /// The nexus under which the unit files the sender. One it has not met is greeted with POWER ON OCCURRED, or with I_T
    /// NEXUS LOSS OCCURRED when its initiator port was here before (RFC 7143, loss of nexus notification); one that the
    /// table does not have is [`Nexus::UNKNOWN`], which every sender without a name shares, and which is not greeted: who
    /// writes no nexus (the kernel) reports power-on itself.
    pub(super) fn identify(&mut self, nexus: Nexus) -> Nexus {
        let version = self.nexuses.version();
        if version != self.version {
            self.version = version;
            self.refresh();
        }
        if self.known.contains_key(&nexus) {
            return nexus;
        }
        match (self.nexuses.get(nexus), self.nexuses.news(nexus)) {
            (Some(entry), Some(news)) => {
                let greeting = self.was_here(&entry).unwrap_or(sense::POWER_ON_OCCURRED);
                // What happened before it came is no news to it.
                news.take_cleared(self.lun);
                let known = Known {
                    entry: Some(entry),
                    changes: news.changes(),
                    news: Some(news),
                    attentions: SmallVec::from_buf([greeting]),
                    ..Known::default()
                };
                self.known.insert(nexus, known);
                nexus
            }
            _ => {
                self.known.entry(Nexus::UNKNOWN).or_default();
                Nexus::UNKNOWN
            }
        }
    }

    /// What a nexus is greeted with if another one has, or had, the same ports. A session that has been replaced may live
    /// on for as long as the disk has one of its commands.
    fn was_here(&mut self, entry: &Entry) -> Option<Sense> {
        if let Some(index) = self.ended.iter().position(|(ended, _)| ended.ports == entry.ports) {
            return self.ended.remove(index).map(|(_, greeting)| greeting);
        }
        let same = |known: &&Known| known.entry.as_ref().is_some_and(|known| known.ports == entry.ports);
        self.known.values().find(same).map(Known::farewell)
    }

    /// Forgets the nexuses that have ended, looks the others' views up again, and hears their news.
    fn refresh(&mut self) {
        self.forgot = true;
        let Self { nexuses, known, ended, lun, .. } = self;
        known.retain(|nexus, known| {
            let entry = nexuses.get(*nexus);
            match (&entry, &known.entry) {
                (Some(_), _) => known.hear(*lun),
                (None, Some(gone)) => ended.push_back((Arc::clone(gone), known.farewell())),
                (None, None) => {}
            }
            known.entry = entry;
            known.entry.is_some() || *nexus == Nexus::UNKNOWN
        });
        ended.drain(..ended.len().saturating_sub(ENDED));
    }

    /// Whether nexuses may have ended since this was last asked.
    pub(super) fn forgot(&mut self) -> bool {
        std::mem::take(&mut self.forgot)
    }

    /// Whether the unit has met the nexus, and it has not ended.
    pub(super) fn knows(&self, nexus: Nexus) -> bool {
        self.known.contains_key(&nexus)
    }

    /// Every nexus that the unit has met.
    pub(super) fn known(&self) -> Vec<Nexus> {
        self.known.keys().copied().collect()
    }

    /// Who a nexus connects; `None` for a sender without a name.
    pub(super) fn ports(&self, nexus: Nexus) -> Option<&Ports> {
        self.entry(nexus).map(|entry| &entry.ports)
    }

    fn entry(&self, nexus: Nexus) -> Option<&Entry> {
        self.known.get(&nexus)?.entry.as_deref()
    }

    /// Which target the unit belongs to.
    pub(super) fn of_target(&mut self, name: &str) {
        self.target = Some(name.into());
    }

    /// Every live nexus of the unit's target, whether the unit has met it or not.
    pub(super) fn live(&self) -> Vec<(Nexus, Arc<Entry>)> {
        let mut live = self.nexuses.live();
        if let Some(target) = &self.target {
            live.retain(|(_, entry)| entry.ports.target == *target);
        }
        live
    }

    /// Establishes a unit attention condition for one nexus; behind the power-on, for one that the unit has yet to meet.
    pub(super) fn establish_for(&mut self, nexus: Nexus, condition: Sense) {
        if self.identify(nexus) != nexus {
            return;
        }
        if let Some(known) = self.known.get_mut(&nexus) {
            known.establish(condition);
        }
    }

    /// Establishes a unit attention condition.
    pub(super) fn establish(&mut self, condition: Sense, audience: Audience) {
        for (nexus, known) in &mut self.known {
            if audience != Audience::Others(*nexus) {
                known.establish(condition);
            }
        }
    }

    /// Establishes a reset condition, which takes the place of every other (SAM-5), and undoes what nexuses have
    /// asked of the unit. Without a condition somebody else tells them.
    pub(super) fn reset(&mut self, condition: Option<Sense>) {
        for known in self.known.values_mut() {
            known.prevents_removal = false;
        }
        let Some(condition) = condition else { return };
        for known in self.known.values_mut() {
            // A nexus that has yet to learn of the power-on loses nothing by hearing only of that.
            if known.attentions.first() != Some(&sense::POWER_ON_OCCURRED) {
                known.attentions = SmallVec::from_buf([condition]);
            }
        }
        for (_, greeting) in &mut self.ended {
            if *greeting != sense::POWER_ON_OCCURRED {
                *greeting = condition;
            }
        }
    }

    /// Takes the oldest pending condition.
    pub(super) fn take_attention(&mut self, nexus: Nexus) -> Option<Sense> {
        let known = self.known.get_mut(&nexus)?;
        while !known.attentions.is_empty() {
            let condition = known.attentions.remove(0);
            // SPC-4, REPORT LUNS: asked at any unit, it clears this condition at all of them.
            let stale = condition == sense::REPORTED_LUNS_DATA_HAS_CHANGED
                && known.news.as_ref().is_some_and(|news| !news.inventory_is_unknown());
            if !stale {
                return Some(condition);
            }
        }
        None
    }

    /// Whether the initiator's view has the unit read-only.
    pub(super) fn read_only(&self, nexus: Nexus) -> bool {
        self.entry(nexus).is_some_and(|entry| entry.view.read_only.contains(&self.lun))
    }

    /// The nexus' echo buffer.
    pub(super) fn echo(&self, nexus: Nexus) -> Option<&[u8]> {
        Some(&self.known.get(&nexus)?.echo)
    }

    /// Fills the nexus' echo buffer.
    pub(super) fn set_echo(&mut self, nexus: Nexus, bytes: Vec<u8>) {
        if let Some(known) = self.known.get_mut(&nexus) {
            known.echo = bytes;
        }
    }

    /// Whether the unit is in the initiator's view.
    pub(super) fn sees(&self, nexus: Nexus) -> bool {
        self.entry(nexus).is_some_and(|entry| entry.view.luns.contains(&self.lun))
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
    device.background.admit(row, device.size())?;
    if row.medium == Medium::Write && device.write_protected(nexus) {
        return Err(sense::WRITE_PROTECTED);
    }
    Ok(())
}
