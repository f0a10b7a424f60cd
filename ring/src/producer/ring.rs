//! What the producer's lock guards: the giving end of the protocol, the commands in flight, and who waits for room.

use std::fs::File;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use super::pages::Pages;
use super::table::{InFlight, Table};
use super::{CommandId, Completion, Rejected, RejectedReason};
use crate::abi;
use crate::area::Area;
use crate::consumer::MAX_IOVECS;
use crate::protocol::{Geometry, Giver, Marks, NoRoom, Plan, command_len};
use crate::shm::{Mapping, punch};
use crate::{Corrupt, Extent, Nexus, TaskManagementKind, clock};

/// Longest CDB that SCSI has (SPC-4 4.2.5.1).
const MAX_CDB: usize = 260;

/// See the module.
#[derive(Debug)]
pub(super) struct Ring<T> {
    giver: Giver<Arc<Mapping>>,
    geometry: Geometry,
    table: Table<T>,
    pages: Pages,
    file: Arc<File>,
    /// Commands pushed, and published, since the start.
    pushed: u64,
    published: u64,
    closed: Option<Corrupt>,
    room: Vec<Waker>,
    /// Largest entry that was refused since room was last announced.
    wanted: usize,
    batch: Vec<Completion<T>>,
    quiet_since: Duration,
}

impl<T> Ring<T> {
    pub(super) fn new(mapping: Arc<Mapping>, file: Arc<File>, geometry: Geometry, pages: Pages) -> Self {
        Self {
            giver: Giver::new(mapping, geometry),
            geometry,
            table: Table::new(),
            pages,
            file,
            pushed: 0,
            published: 0,
            closed: None,
            room: Vec::new(),
            wanted: 0,
            batch: Vec::new(),
            quiet_since: clock::now(),
        }
    }

    pub(super) fn push(
        &mut self,
        area: &Area,
        cdb: &[u8],
        nexus: Nexus,
        data: Extent,
        context: T,
    ) -> Result<CommandId, Rejected<T>> {
        match self.room_for_command(cdb, &data) {
            Err(reason) => Err(Rejected { reason, data, context }),
            Ok((plan, id)) => {
                self.touch(area, plan);
                let marks = Marks { nexus, direction: data.direction() };
                self.giver.write_command(plan, id, marks, cdb, data.iovecs());
                self.pushed += 1;
                self.table.insert(id, InFlight { data, context, serial: self.pushed });
                Ok(id)
            }
        }
    }

    fn room_for_command(&mut self, cdb: &[u8], data: &Extent) -> Result<(Plan, CommandId), RejectedReason> {
        if self.closed.is_some() {
            return Err(RejectedReason::Closed);
        }
        if cdb.is_empty() || cdb.len() > MAX_CDB || data.pieces() > MAX_IOVECS as usize {
            return Err(RejectedReason::TooLarge);
        }
        let len = command_len(data.pieces(), cdb.len());
        let plan = self.giver.plan(len).map_err(|no_room| match no_room {
            NoRoom::Ever => RejectedReason::TooLarge,
            NoRoom::Now => RejectedReason::Full,
        });
        let found = plan.and_then(|plan| Ok((plan, self.table.next_id().ok_or(RejectedReason::Full)?)));
        if found == Err(RejectedReason::Full) {
            self.wanted = self.wanted.max(len);
        }
        found
    }

    pub(super) fn push_task_management(
        &mut self,
        area: &Area,
        kind: TaskManagementKind,
        ids: &[CommandId],
    ) -> bool {
        let len = (abi::TMR_IDS_OFFSET as usize + 2 * ids.len()).next_multiple_of(abi::ALIGN as usize);
        if self.closed.is_some() || ids.len() > usize::from(u16::MAX) {
            return false;
        }
        match self.giver.plan(len) {
            Ok(plan) => {
                self.touch(area, plan);
                self.giver.write_task_management(plan, kind as u8, ids);
                true
            }
            Err(_) => {
                self.wanted = self.wanted.max(len);
                false
            }
        }
    }

    /// Charges the pages that an entry takes; when the pool is short, makes room before they are written.
    fn touch(&mut self, area: &Area, plan: Plan) {
        let mut new = self.pages.touch(self.geometry.offset(plan.at) as usize, plan.len as usize);
        if plan.pad > 0 {
            let header = self.geometry.offset(self.geometry.size - plan.pad) as usize;
            new |= self.pages.touch(header, abi::HEADER_LEN as usize);
        }
        if new && area.pool.set_command(area.tenant, self.pages.bytes()) {
            area.pool.trim(false);
        }
    }

    pub(super) fn publish(&mut self) -> bool {
        self.published = self.pushed;
        self.giver.publish()
    }

    /// Keeps the memory of a batch for the next one, unless it is unusually large.
    pub(super) fn keep_batch(&mut self, batch: Vec<Completion<T>>) {
        const KEEP: usize = 1024;
        if batch.capacity() > self.batch.capacity() && batch.capacity() <= KEEP {
            self.batch = batch;
        }
    }

    /// Takes every answered command; closes the ring at the first nonsense, after those that were valid before it.
    pub(super) fn reap(&mut self) -> (Vec<Completion<T>>, Result<(), Corrupt>) {
        if let Some(cause) = &self.closed {
            return (Vec::new(), Err(cause.clone()));
        }
        let mut batch = std::mem::take(&mut self.batch);
        let before = self.table.len();
        let result = self.take_answers(&mut batch);
        if let Err(cause) = &result {
            self.closed = Some(cause.clone());
        }
        if before > 0 && self.table.len() == 0 {
            self.quiet_since = clock::now();
        }
        if batch.is_empty() {
            self.batch = std::mem::take(&mut batch);
        }
        (batch, result)
    }

    fn take_answers(&mut self, batch: &mut Vec<Completion<T>>) -> Result<(), Corrupt> {
        let tail = self.giver.load_tail()?;
        while let Some(answer) = self.giver.next_answer(tail)? {
            let (at, id) = (answer.at, answer.id);
            let command = self.table.remove(id, self.published).ok_or(Corrupt::UnknownId { at, id })?;
            let unknown_op = answer.uflags & abi::UFLAG_UNKNOWN_OP != 0;
            let has_len = answer.uflags & abi::UFLAG_READ_LEN != 0;
            batch.push(Completion {
                id,
                context: command.context,
                // As in the kernel: CHECK CONDITION, and no sense to copy.
                status: if unknown_op { 2 } else { answer.status },
                sense: answer.sense.filter(|_| !unknown_op),
                transfer: has_len.then_some(answer.read_len),
                unknown_op,
                data: command.data,
            });
        }
        Ok(())
    }

    /// Whom to wake: those waiting for room when the largest refused entry fits now, or everybody.
    pub(super) fn room_wakers(&mut self, all: bool) -> Vec<Waker> {
        if self.room.is_empty() || !(all || self.has_room()) {
            return Vec::new();
        }
        self.wanted = 0;
        std::mem::take(&mut self.room)
    }

    fn has_room(&mut self) -> bool {
        let len = self.wanted.max(command_len(0, 1));
        self.giver.plan(len) != Err(NoRoom::Now) && self.table.next_id().is_some()
    }

    pub(super) fn wait_room(&mut self, waker: &Waker) -> bool {
        if self.closed.is_some() || self.has_room() {
            return false;
        }
        if !self.room.iter().any(|other| other.will_wake(waker)) {
            self.room.push(waker.clone());
        }
        true
    }

    pub(super) fn in_flight(&self) -> usize {
        self.table.len()
    }

    pub(super) fn pages_backed(&self) -> u64 {
        self.pages.bytes()
    }

    pub(super) fn closed(&self) -> Option<&Corrupt> {
        self.closed.as_ref()
    }

    pub(super) fn quiet_for(&self) -> Option<Duration> {
        (self.table.len() == 0).then(|| clock::now().saturating_sub(self.quiet_since))
    }

    /// Punches command-area pages that hold no entry. A well-behaved consumer reads only between tail and head; any
    /// other finds zeros.
    pub(super) fn shrink(&mut self, area: &Area, only_quiet: bool) -> u64 {
        if self.closed.is_some() || (only_quiet && !self.giver.is_quiet()) {
            return 0;
        }
        let (base, size) = (self.geometry.base as usize, self.geometry.size as usize);
        let (start, len) = self.giver.free_part();
        let (start, len) = if self.giver.is_quiet() { (0, size) } else { (start as usize, len as usize) };
        let first = len.min(size - start);
        let mut give_back = |from: usize, len: usize| {
            self.pages.take(base + from, len, |offset, len| punch(&self.file, offset, len).is_ok())
        };
        let freed = give_back(start, first) + give_back(0, len - first);
        if freed > 0 {
            area.pool.set_command(area.tenant, self.pages.bytes());
        }
        freed
    }

    /// Leaves the blocks of every command in flight taken for ever.
    pub(super) fn strand(&mut self) {
        self.table.drain().for_each(|command| command.data.strand());
    }
}
