//! Commands in flight by id.

use std::collections::VecDeque;

use super::CommandId;
use crate::Extent;

/// Free ids that are kept apart before one is used again, so that an answer given twice finds nobody.
const REST: usize = 256;

/// A command in flight.
#[derive(Debug)]
pub(super) struct InFlight<T> {
    pub(super) data: Extent,
    pub(super) context: T,
    /// Counts pushes: tells whether it was published.
    pub(super) serial: u64,
}

/// Commands in flight; ids go round, so that one is not used again soon.
#[derive(Debug)]
pub(super) struct Table<T> {
    slots: Vec<Option<InFlight<T>>>,
    free: VecDeque<CommandId>,
    len: usize,
}

impl<T> Table<T> {
    pub(super) fn new() -> Self {
        Self { slots: Vec::new(), free: VecDeque::new(), len: 0 }
    }

    /// The id that [`Self::insert`] will use; `None` when all 65,535 are in flight.
    pub(super) fn next_id(&mut self) -> Option<CommandId> {
        if self.free.len() < REST && self.slots.len() < usize::from(CommandId::MAX) {
            self.slots.push(None);
            // At most `CommandId::MAX` slots, so the id fits. A new id goes before those that rest.
            self.free.push_front(self.slots.len() as CommandId);
        }
        self.free.front().copied()
    }

    /// Puts a command under the id that [`Self::next_id`] said.
    pub(super) fn insert(&mut self, id: CommandId, command: InFlight<T>) {
        self.free.pop_front();
        self.slots[usize::from(id) - 1] = Some(command);
        self.len += 1;
    }

    /// Takes a command out; `None` when no such id is in flight or it is not published.
    pub(super) fn remove(&mut self, id: CommandId, published: u64) -> Option<InFlight<T>> {
        let slot = self.slots.get_mut(usize::from(id).checked_sub(1)?)?;
        let command = slot.take_if(|command| command.serial <= published)?;
        self.free.push_back(id);
        self.len -= 1;
        Some(command)
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn drain(&mut self) -> impl Iterator<Item = InFlight<T>> + '_ {
        self.slots.iter_mut().filter_map(Option::take)
    }
}
