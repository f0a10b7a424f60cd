//! Where a connection hears from others: completions of its commands, and events from other sessions and the server.
//!
//! Vocabulary:
//! * An [`Inbox`] outlives its connection for as long as a command of it is in a ring; once closed it takes nothing:
//!   a completion that arrives then ends there, and its blocks are freed.
//! * A [`Hold`] is a promise to wait. Whoever must not answer yet (a task management response, a reinstating login)
//!   makes one; every command that has to end first keeps a clone; the last clone dropped fires it.
//! * A [`Guard`] is shared by all commands of one session at one LUN that may change the medium. Holds attached to it
//!   are dropped with it, so they fire when the last such command has come back, even if the connection is long gone.
//!
//! Locks here are held for a few instructions, and nothing is dropped under them.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Waker;

use ring::Completion;

use super::Port;
use super::target::Target;
use crate::nexus::Handle;

/// A promise to wait, fired when its last clone is dropped.
#[derive(Clone)]
pub(crate) struct Hold {
    _fires: Arc<Fires>,
}

struct Fires(Option<Box<dyn FnOnce() + Send + Sync>>);

impl Hold {
    /// `fire` runs once, on whatever thread drops the last clone.
    pub(crate) fn new(fire: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self { _fires: Arc::new(Fires(Some(Box::new(fire)))) }
    }
}

impl Drop for Fires {
    fn drop(&mut self) {
        if let Some(fire) = self.0.take() {
            fire();
        }
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hold")
    }
}

/// Shared by the commands of one session at one LUN that may change the medium.
#[derive(Debug)]
pub(crate) struct Guard {
    /// `None` once the LUN has failed: nothing is waited for any more.
    holds: Mutex<Option<Vec<Hold>>>,
}

impl Guard {
    fn new() -> Arc<Self> {
        Arc::new(Self { holds: Mutex::new(Some(Vec::new())) })
    }

    /// Makes `hold` wait for every command that shares this guard.
    pub(crate) fn attach(&self, hold: Hold) {
        let refused = match &mut *lock(&self.holds) {
            Some(holds) => {
                holds.push(hold);
                None
            }
            None => Some(hold),
        };
        drop(refused);
    }

    /// Lets go of every hold, now and later: the commands will never come back.
    pub(crate) fn void(&self) {
        let holds = lock(&self.holds).take();
        drop(holds);
    }
}

/// The context of a command in a ring.
#[derive(Debug)]
pub struct Ticket {
    pub(crate) inbox: Arc<Inbox>,
    /// Slot in the connection's task table, and that slot's serial.
    pub(crate) slot: u32,
    pub(crate) serial: u32,
    /// Held by commands that may change the medium.
    pub(crate) _guard: Option<Arc<Guard>>,
}

/// Why a connection is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The initiator closed it or logged out.
    Initiator,
    /// A new login took its place.
    Reinstated,
    /// The initiator was silent for too long.
    Silent,
    /// It broke the protocol.
    Protocol,
    /// The socket failed.
    Socket,
    /// The target, the initiator's right or its credentials are gone.
    Revoked,
    /// The server is shutting down.
    Shutdown,
    /// A target reset.
    Reset,
    /// It was asked to log out and did not.
    Overdue,
}

/// What others tell a connection.
#[derive(Debug)]
pub(crate) enum Event {
    /// End every command at a LUN (another nexus cleared or reset it).
    Abort { port: Arc<Port>, hold: Hold, cleared: bool },
    /// The task management function with this number may be answered.
    Released(u32),
    /// The ring of a LUN is corrupt, or its lane has ended.
    Failed(Arc<Port>),
    /// Close without further ado; the hold waits for commands that may still change the medium.
    Close { end: End, hold: Option<Hold> },
    /// Ask the initiator to log out; one that has not after a while is closed if that is to be enforced.
    Logout { enforce: bool },
    /// The target was configured anew.
    Retarget(Arc<Target>),
}

/// Where a connection hears from others.
pub(crate) struct Inbox {
    state: Mutex<State>,
    /// `None` for discovery.
    nexus: Option<Handle>,
}

#[derive(Default)]
struct State {
    completions: Vec<Completion<Ticket>>,
    events: Vec<Event>,
    waker: Option<Waker>,
    guards: Vec<(Weak<Port>, Weak<Guard>)>,
    closed: bool,
}

impl Inbox {
    pub(crate) fn new(nexus: Option<Handle>) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), nexus })
    }

    /// The session's nexus; kept while the inbox is.
    pub(crate) fn nexus(&self) -> ring::Nexus {
        self.nexus.as_ref().map_or(ring::Nexus::UNKNOWN, Handle::nexus)
    }

    /// Takes a completion; gives it back, to be dropped outside all locks, when the connection is gone.
    pub(crate) fn complete(&self, completion: Completion<Ticket>) -> Option<Completion<Ticket>> {
        let mut state = lock(&self.state);
        if state.closed {
            return Some(completion);
        }
        let first = state.completions.is_empty();
        state.completions.push(completion);
        let waker = if first { state.waker.clone() } else { None };
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        None
    }

    /// Tells the connection something. For a closed one, holds wait for what it left in the rings.
    pub(crate) fn post(&self, event: Event) {
        let mut state = lock(&self.state);
        if !state.closed {
            state.events.push(event);
            let waker = state.waker.clone();
            drop(state);
            if let Some(waker) = waker {
                waker.wake();
            }
            return;
        }
        let of = |port: Option<&Arc<Port>>| -> Vec<Arc<Guard>> {
            let wanted =
                |weak: &Weak<Port>| port.is_none_or(|port| std::ptr::eq(weak.as_ptr(), Arc::as_ptr(port)));
            let alive = state.guards.iter().filter(|(port, _)| wanted(port));
            alive.filter_map(|(_, guard)| guard.upgrade()).collect()
        };
        let (guards, hold) = match &event {
            Event::Abort { port, hold, .. } => (of(Some(port)), Some(hold.clone())),
            Event::Close { hold, .. } => (of(None), hold.clone()),
            Event::Failed(port) => (of(Some(port)), None),
            Event::Released(_) | Event::Logout { .. } | Event::Retarget(_) => (Vec::new(), None),
        };
        drop(state);
        for guard in guards {
            match (&hold, &event) {
                (Some(hold), _) => guard.attach(hold.clone()),
                (None, Event::Failed(_)) => guard.void(),
                (None, _) => {}
            }
        }
    }

    /// Swaps everything that has come in into the given (empty) vectors and registers whom to wake next time.
    pub(crate) fn collect(
        &self,
        waker: &Waker,
        completions: &mut Vec<Completion<Ticket>>,
        events: &mut Vec<Event>,
    ) {
        let mut state = lock(&self.state);
        std::mem::swap(&mut state.completions, completions);
        std::mem::swap(&mut state.events, events);
        match &mut state.waker {
            Some(known) => known.clone_from(waker),
            None => state.waker = Some(waker.clone()),
        }
    }

    /// A guard for the session's commands at a LUN, known to those who have to wait for them.
    pub(crate) fn guard(&self, port: &Arc<Port>) -> Arc<Guard> {
        let guard = Guard::new();
        let mut state = lock(&self.state);
        state.guards.retain(|(_, guard)| guard.strong_count() > 0);
        state.guards.push((Arc::downgrade(port), Arc::downgrade(&guard)));
        guard
    }

    /// Takes nothing from now on. Events that nobody has read are handled as [`Self::post`] does for a closed inbox.
    pub(crate) fn close(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        let (completions, events) =
            (std::mem::take(&mut state.completions), std::mem::take(&mut state.events));
        let waker = state.waker.take();
        drop(state);
        for event in events {
            self.post(event);
        }
        drop((completions, waker));
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox").field("nexus", &self.nexus()).finish_non_exhaustive()
    }
}

/// A poisoned lock is taken all the same: the data behind it is valid after every statement.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn counted() -> (Hold, Arc<AtomicUsize>) {
        let fired = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&fired);
        let hold = Hold::new(move || {
            count.fetch_add(1, Ordering::SeqCst);
        });
        (hold, fired)
    }

    #[test]
    fn a_hold_fires_once_with_its_last_clone() {
        let (hold, fired) = counted();
        let clone = hold.clone();
        drop(hold);
        assert_eq!(fired.load(Ordering::SeqCst), 0);
        drop(clone);
        assert_eq!(fired.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_guard_holds_until_its_last_command_is_back_or_will_never_be() {
        let guard = Guard::new();
        let command = Arc::clone(&guard);
        let (hold, fired) = counted();
        guard.attach(hold);
        drop(guard);
        assert_eq!(fired.load(Ordering::SeqCst), 0);
        drop(command);
        assert_eq!(fired.load(Ordering::SeqCst), 1);

        let (guard, (hold, fired)) = (Guard::new(), counted());
        guard.attach(hold.clone());
        guard.void();
        guard.attach(hold);
        assert_eq!(fired.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn events_that_a_closed_inbox_left_unread_let_go_of_their_holds() {
        let inbox = Inbox::new(None);
        let (hold, fired) = counted();
        inbox.post(Event::Close { end: End::Reinstated, hold: Some(hold) });
        assert_eq!(fired.load(Ordering::SeqCst), 0);
        inbox.close();
        assert_eq!(fired.load(Ordering::SeqCst), 1);
    }
}
