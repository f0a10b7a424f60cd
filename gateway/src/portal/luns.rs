//! The logical units of one session: routing of LUN fields, and the order that task attributes ask for.
//!
//! Order is kept per nexus and LUN: ORDERED starts when everything before it has ended and holds back everything after
//! it; HEAD OF QUEUE starts at once; SIMPLE and untagged start when no ORDERED is before them (SAM-5 8.6).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::Port;
use super::inbox::{Guard, Inbox};
use super::target::Target;
use super::task::Key;
use crate::nexus::View;

/// ORDERED (RFC 7143 section 11.3.1).
pub(crate) const ORDERED: u8 = 2;
/// HEAD OF QUEUE.
pub(crate) const HEAD_OF_QUEUE: u8 = 3;

/// One LUN as a session uses it.
#[derive(Debug)]
pub(crate) struct Lun {
    pub(crate) port: Arc<Port>,
    guard: Option<Arc<Guard>>,
    started: usize,
    barrier: bool,
    waiting: VecDeque<(Key, u8)>,
    /// Something was pushed and not yet published.
    pub(crate) dirty: bool,
}

impl Lun {
    fn new(port: Arc<Port>) -> Self {
        Self { port, guard: None, started: 0, barrier: false, waiting: VecDeque::new(), dirty: false }
    }

    /// The guard of commands that may change the medium.
    pub(crate) fn guard(&mut self, inbox: &Inbox) -> Arc<Guard> {
        Arc::clone(self.guard.get_or_insert_with(|| inbox.guard(&self.port)))
    }

    /// The guard, if there ever was such a command.
    pub(crate) fn guarded(&self) -> Option<&Arc<Guard>> {
        self.guard.as_ref()
    }

    fn may_start(&self, attribute: u8) -> bool {
        match attribute {
            HEAD_OF_QUEUE => true,
            ORDERED => self.started == 0,
            _ => !self.barrier,
        }
    }

    fn start(&mut self, attribute: u8) {
        self.started += 1;
        self.barrier |= attribute == ORDERED;
    }

    /// A command has come: true if it may start now, else it is queued.
    pub(crate) fn enter(&mut self, key: Key, attribute: u8) -> bool {
        let now = self.may_start(attribute) && (self.waiting.is_empty() || attribute == HEAD_OF_QUEUE);
        if now {
            self.start(attribute);
        } else {
            self.waiting.push_back((key, attribute));
        }
        now
    }

    /// A started command has ended.
    pub(crate) fn leave(&mut self) {
        self.started = self.started.saturating_sub(1);
        if self.started == 0 {
            self.barrier = false;
        }
    }

    /// The next queued command that may start now. The caller starts it, or calls [`Self::leave`] if it is gone.
    pub(crate) fn next(&mut self) -> Option<Key> {
        let (_, attribute) = *self.waiting.front()?;
        if !self.may_start(attribute) {
            return None;
        }
        let (key, _) = self.waiting.pop_front()?;
        self.start(attribute);
        Some(key)
    }
}

/// The REPORT LUNS well known logical unit (SAM-5, well known logical unit addressing).
const WELL_KNOWN: u64 = 0xC101 << 48;

/// All LUNs of a session; index 0 answers for those that do not exist.
#[derive(Debug, Default)]
pub(crate) struct Luns {
    all: Vec<Lun>,
    numbers: BTreeMap<u16, usize>,
    /// Index of the REPORT LUNS well known logical unit.
    well_known: Option<usize>,
}

/// Index of the port that answers for LUNs which do not exist.
pub(crate) const ABSENT: usize = 0;

impl Luns {
    /// The LUNs of `target` that `view` shows; the session joins their ports.
    pub(crate) fn new(target: &Target, view: &View, inbox: &Arc<Inbox>) -> Self {
        let mut luns = Self {
            all: vec![Lun::new(Arc::clone(&target.absent))],
            numbers: BTreeMap::new(),
            well_known: None,
        };
        luns.retarget(target, view, inbox);
        luns
    }

    /// Routes anew. Commands in flight stay where they are.
    pub(crate) fn retarget(&mut self, target: &Target, view: &View, inbox: &Arc<Inbox>) {
        self.numbers.clear();
        for (number, port) in target.luns.iter().filter(|(number, _)| view.luns.contains(number)) {
            let index = self.index(port, inbox);
            self.numbers.insert(*number, index);
        }
        self.well_known = target.well_known.as_ref().map(|port| self.index(port, inbox));
    }

    fn place(&mut self, lun: Lun) -> usize {
        let vacant =
            self.all.iter().skip(1).position(|other| Arc::ptr_eq(&other.port, &self.all[ABSENT].port));
        match vacant.map(|position| position + 1) {
            Some(index) => {
                self.all[index] = lun;
                index
            }
            None => {
                self.all.push(lun);
                self.all.len() - 1
            }
        }
    }

    /// Lets go of ports that no number leads to any more, as soon as nothing of theirs is `used`.
    pub(crate) fn let_go(&mut self, used: impl Fn(usize) -> bool) {
        if self.all.len() <= self.numbers.len() + 1 + usize::from(self.well_known.is_some()) {
            return;
        }
        let absent = Arc::clone(&self.all[ABSENT].port);
        for (index, lun) in self.all.iter_mut().enumerate().skip(1) {
            let idle = lun.started == 0 && lun.waiting.is_empty() && !lun.dirty && !used(index);
            let routed =
                self.well_known == Some(index) || self.numbers.values().any(|number| *number == index);
            if idle && !routed && !Arc::ptr_eq(&lun.port, &absent) {
                *lun = Lun::new(Arc::clone(&absent));
            }
        }
        while self.all.len() > 1 && self.all.last().is_some_and(|lun| Arc::ptr_eq(&lun.port, &absent)) {
            self.all.pop();
        }
    }

    fn index(&mut self, port: &Arc<Port>, inbox: &Arc<Inbox>) -> usize {
        self.position(port).unwrap_or_else(|| {
            port.join(inbox);
            self.place(Lun::new(Arc::clone(port)))
        })
    }

    /// The number under which the session reaches the LUN at an index.
    pub(crate) fn number(&self, at: usize) -> Option<u16> {
        self.numbers.iter().find(|(_, index)| **index == at).map(|(number, _)| *number)
    }

    /// The index for a LUN field: peripheral or flat addressing of the first level, or extended addressing of the one well
    /// known logical unit (SAM-5 4.7).
    pub(crate) fn route(&self, lun: u64) -> usize {
        if lun == WELL_KNOWN {
            return self.well_known.unwrap_or(ABSENT);
        }
        let first = (lun >> 48) as u16;
        let number = match first >> 14 {
            0 if first >> 8 == 0 => first,
            1 => first & 0x3fff,
            _ => return ABSENT,
        };
        if lun << 16 != 0 {
            return ABSENT;
        }
        self.numbers.get(&number).copied().unwrap_or(ABSENT)
    }

    pub(crate) fn is_well_known(&self, at: usize) -> bool {
        self.well_known == Some(at)
    }

    pub(crate) fn get(&mut self, index: usize) -> &mut Lun {
        &mut self.all[index]
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Lun> {
        self.all.iter_mut()
    }

    /// Indices of the LUNs that exist for the session.
    pub(crate) fn visible(&self) -> Vec<usize> {
        self.numbers.values().copied().collect()
    }

    pub(crate) fn position(&self, port: &Arc<Port>) -> Option<usize> {
        self.all.iter().position(|lun| Arc::ptr_eq(&lun.port, port))
    }
}
