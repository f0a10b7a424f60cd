//! What copies leave behind for RECEIVE COPY RESULTS: per nexus and list identifier, bounded in number.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ring::Nexus;

use super::limits;
use super::rod::Rod;
use crate::nexus::Table;
use crate::scsi::sense::{self, Sense};

/// How a copy stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    pub(super) status: Status,
    /// Segments that have been dealt with wholly.
    pub(super) segments: u16,
    /// Bytes written.
    pub(super) bytes: u64,
    /// Why it ended early; goes when it has been reported.
    pub(super) failure: Option<Sense>,
    /// There was less to copy than room for it.
    pub(super) residual: bool,
}

/// Which command a record is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    /// EXTENDED COPY(LID1).
    #[default]
    Copy,
    /// POPULATE TOKEN.
    Populate,
    /// WRITE USING TOKEN.
    WriteUsing,
}

/// COPY COMMAND STATUS (SPC-4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Status {
    #[default]
    InProgress,
    Good,
    Failed,
    /// Ended by task management, or because its unit went away.
    Terminated,
}

/// One copy's [`Progress`], shared by the copy and the list of records.
#[derive(Debug, Default)]
pub(super) struct Record {
    kind: Kind,
    progress: Mutex<Progress>,
    token: OnceLock<Arc<Rod>>,
    aborted: AtomicBool,
}

impl Record {
    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    /// The token that POPULATE TOKEN has made.
    pub(super) fn token(&self) -> Option<&Arc<Rod>> {
        self.token.get()
    }

    pub(super) fn set_token(&self, rod: Arc<Rod>) {
        // There is one token to a command.
        let _ = self.token.set(rod);
    }

    /// Asks the copy to end early.
    pub(super) fn abort(&self) {
        self.aborted.store(true, Ordering::Release);
    }

    pub(super) fn aborted(&self) -> bool {
        self.aborted.load(Ordering::Acquire)
    }

    pub(super) fn progress(&self) -> Progress {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut Progress)) {
        change(&mut self.progress.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn running(&self) -> bool {
        self.progress().status == Status::InProgress
    }
}

/// The copy's end of its record: when it goes before the copy has ended, the copy was terminated.
#[derive(Debug)]
pub(super) struct Running(pub(super) Arc<Record>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.change(|progress| {
            if progress.status == Status::InProgress {
                progress.status = Status::Terminated;
            }
        });
    }
}

/// Why no copy can be started now.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// Wrong, and stays so.
    Sense(Sense),
    /// Too many at once.
    Busy,
}

/// The records of one unit, oldest first.
#[derive(Debug, Default)]
pub(in crate::scsi) struct Records(Vec<(Nexus, u32, Arc<Record>)>);

/// The most records one unit keeps.
const MOST: usize = 1024;

impl Records {
    /// Opens a record. An earlier one of the same name gives way, if its copy has ended.
    pub(super) fn open(
        &mut self,
        nexuses: &Table,
        nexus: Nexus,
        id: u32,
        kind: Kind,
    ) -> Result<Running, Refused> {
        self.0.retain(|(owner, ..)| *owner == Nexus::UNKNOWN || nexuses.get(*owner).is_some());
        match self.find(nexus, id) {
            Some(earlier) if earlier.running() => return Err(Refused::Sense(sense::OPERATION_IN_PROGRESS)),
            Some(_) => self.0.retain(|(owner, own, _)| (*owner, *own) != (nexus, id)),
            None => {}
        }
        let own = self.0.iter().filter(|(owner, ..)| *owner == nexus).count();
        if own >= usize::from(limits::CONCURRENT) {
            self.forget(|owner| owner == nexus)?;
        }
        if self.0.len() >= MOST {
            self.forget(|_| true)?;
        }
        let record = Arc::new(Record { kind, ..Record::default() });
        self.0.push((nexus, id, Arc::clone(&record)));
        Ok(Running(record))
    }

    /// Makes room: the oldest ended copy goes.
    fn forget(&mut self, whose: impl Fn(Nexus) -> bool) -> Result<(), Refused> {
        let oldest = self.0.iter().position(|(owner, _, record)| whose(*owner) && !record.running());
        self.0.remove(oldest.ok_or(Refused::Busy)?);
        Ok(())
    }

    /// The record of a copy.
    pub(super) fn find(&self, nexus: Nexus, id: u32) -> Option<&Arc<Record>> {
        self.0.iter().find(|(owner, own, _)| (*owner, *own) == (nexus, id)).map(|(.., record)| record)
    }

    /// A reset: all that is held is discarded.
    pub(in crate::scsi) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_identifier_in_use_is_refused_and_one_of_an_ended_copy_is_free() {
        // SPC-4, LIST IDENTIFIER: OPERATION IN PROGRESS while the copy of that name goes on.
        let (table, mut records) = (Table::new(), Records::default());
        let running = records.open(&table, Nexus::UNKNOWN, 7, Kind::Copy).unwrap();
        assert_eq!(
            records.open(&table, Nexus::UNKNOWN, 7, Kind::Copy).unwrap_err(),
            Refused::Sense(sense::OPERATION_IN_PROGRESS)
        );
        drop(running);
        assert_eq!(
            records.find(Nexus::UNKNOWN, 7).unwrap().progress().status,
            Status::Terminated,
            "a copy that went without an end was terminated"
        );
        assert!(records.open(&table, Nexus::UNKNOWN, 7, Kind::Copy).is_ok());
    }

    #[test]
    fn records_are_bounded_and_only_ended_copies_make_room() {
        let (table, mut records) = (Table::new(), Records::default());
        let mut running: Vec<_> = (0..u32::from(limits::CONCURRENT))
            .map(|id| records.open(&table, Nexus::UNKNOWN, id, Kind::Copy).unwrap())
            .collect();
        assert_eq!(records.open(&table, Nexus::UNKNOWN, 100, Kind::Copy).unwrap_err(), Refused::Busy);
        running.remove(3);
        assert!(records.open(&table, Nexus::UNKNOWN, 100, Kind::Copy).is_ok());
        assert!(records.find(Nexus::UNKNOWN, 3).is_none(), "the ended one gave way");
        assert_eq!(records.0.len(), usize::from(limits::CONCURRENT));
    }
}
