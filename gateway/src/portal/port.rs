//! One LUN as the portal sees it: the producing end of its ring, and who is attached.
//!
//! The lane rings the port's doorbell after it has committed answers; the port reaps them and hands each to the inbox
//! of its connection, which wakes the connection's task once for a batch. A ring found corrupt fails the LUN alone.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use ring::{Doorbell, Kick, Producer};

use super::inbox::{End, Event, Hold, Inbox, Ticket};
use super::sense::Sense;

/// The portal's end of one LUN.
pub struct Port {
    producer: Producer<Ticket>,
    lane: OnceLock<Arc<dyn Doorbell>>,
    /// Sessions that can reach the LUN, those with commands left in the ring included.
    members: Mutex<Vec<Weak<Inbox>>>,
    /// See [`Port::connect_task_aborted_status`].
    task_aborted_status: OnceLock<Arc<AtomicBool>>,
    qfull_timeout: Duration,
    /// Why the LUN answers nothing any more.
    failure: OnceLock<Sense>,
    this: Weak<Self>,
}

impl Port {
    /// A port over a ring. `qfull_timeout`: how long a command waits for room before it gets TASK SET FULL.
    pub fn new(producer: Producer<Ticket>, qfull_timeout: Duration) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            producer,
            lane: OnceLock::new(),
            task_aborted_status: OnceLock::new(),
            members: Mutex::default(),
            qfull_timeout,
            failure: OnceLock::new(),
            this: Weak::clone(this),
        })
    }

    /// Says whom to wake when entries were published. The first call counts.
    pub fn connect_lane(&self, lane: Arc<dyn Doorbell>) {
        // A second lane for one ring would be a second consumer, which cannot be.
        let _ = self.lane.set(lane);
    }

    /// Says where the logical unit's TAS bit can be read (SAM-5): whether commands that another nexus has ended are
    /// answered TASK ABORTED. Without it they are. The first call counts.
    pub fn connect_task_aborted_status(&self, status: Arc<AtomicBool>) {
        let _ = self.task_aborted_status.set(status);
    }

    /// The TAS bit.
    pub(crate) fn answers_aborted(&self) -> bool {
        self.task_aborted_status.get().is_none_or(|status| status.load(Ordering::Relaxed))
    }

    /// Whether the LUN answers nothing any more: its ring was found corrupt, or its lane has ended.
    pub fn failed(&self) -> bool {
        self.failure.get().is_some()
    }

    /// What commands are told then.
    pub(crate) fn failure(&self) -> Option<Sense> {
        self.failure.get().copied()
    }

    pub(crate) fn producer(&self) -> &Producer<Ticket> {
        &self.producer
    }

    pub(crate) fn qfull_timeout(&self) -> Duration {
        self.qfull_timeout
    }

    /// Shows the consumer what was pushed.
    pub(crate) fn publish(&self) {
        if self.producer.publish() == Kick::Needed
            && let Some(lane) = self.lane.get()
        {
            lane.ring();
        }
    }

    /// Enters a session that can reach this LUN.
    pub(crate) fn join(&self, inbox: &Arc<Inbox>) {
        let mut members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        members.retain(|member| member.strong_count() > 0);
        members.push(Arc::downgrade(inbox));
    }

    /// Ends the commands of every other session at this LUN; `hold` waits for those that may change the medium. `cleared`:
    /// by CLEAR TASK SET, which is told to those who lose commands without an answer.
    pub(crate) fn abort_others(self: &Arc<Self>, own: &Arc<Inbox>, hold: &Hold, cleared: bool) {
        for member in self.members().iter().filter(|member| !Arc::ptr_eq(member, own)) {
            member.post(Event::Abort { port: Arc::clone(self), hold: hold.clone(), cleared });
        }
    }

    /// Closes every other session that can reach this LUN (TARGET COLD RESET).
    pub(crate) fn close_others(&self, own: &Arc<Inbox>) {
        for member in self.members().iter().filter(|member| !Arc::ptr_eq(member, own)) {
            member.post(Event::Close { end: End::Reset, hold: None });
        }
    }

    fn members(&self) -> Vec<Arc<Inbox>> {
        let members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        members.iter().filter_map(Weak::upgrade).collect()
    }

    fn fail(&self, sense: Sense) {
        // Known before the members are looked at, so that a command pushed meanwhile is either refused or ended by this.
        if self.failure.set(sense).is_ok()
            && let Some(this) = self.this.upgrade()
        {
            for member in self.members() {
                member.post(Event::Failed(Arc::clone(&this)));
            }
        }
    }
}

impl Doorbell for Port {
    fn ring(&self) {
        // Completions for connections that are gone are dropped (and their blocks freed) outside the ring's locks.
        let mut orphans = Vec::new();
        let reaped = self.producer.reap(|completion| {
            let inbox = Arc::clone(&completion.context.inbox);
            orphans.extend(inbox.complete(completion));
        });
        if reaped.is_err() {
            tracing::error!("the ring of a LUN is corrupt; the LUN has failed");
            self.fail(Sense::FAILED);
        }
    }

    fn ended(&self, in_order: bool) {
        // Replaced or removed: the initiator tries again and finds what has taken its place.
        self.fail(if in_order { Sense::BECOMING_READY } else { Sense::FAILED });
    }
}

impl std::fmt::Debug for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Port").field("failed", &self.failed()).finish_non_exhaustive()
    }
}
