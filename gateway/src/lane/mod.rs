//! A lane: one LUN, from its ring through the SCSI engine to its disk and back.
//!
//! ```text
//!  ring ──next()──► Command ──► unit.execute() ──► Step::Done ─────────────────────────► complete() ─┐
//!                                     │                                                    ▲         │ commit(), once
//!                                     ▼                                                    │         │ per turn, then
//!                                 Step::Io ──► ranges ──► disk.submit() … any thread …     │         ▼ one doorbell
//!                                     ▲                                 │                  │
//!                                     └── unit.resume() ◄── inflight ◄──┴── inbox ─────────┘
//! ```
//!
//! A lane is one task on one reactor and owns its consumer and its unit; nothing in it is locked. Other threads reach it
//! by the inbox only: the producer rings, the disk lists what it has finished. The task works in *turns*: what the disk has
//! finished, then a bounded number of commands, then one commit.
//!
//! Invariants: a command is answered exactly once, and only when the disk has none of its operations any more; payload of
//! READ and WRITE is never copied; an error stays with its LUN, a corrupt ring included.

mod access;
mod background;
mod inbox;
mod inflight;
pub mod kernel;
mod news;
mod pump;
mod ranges;
mod requests;
mod reservations;
mod stats;
mod sync;
mod tasks;
mod visit;
mod wreck;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use ring::{Consumer, Doorbell};
use tokio::sync::watch;

use self::inbox::{Bell, List};
use self::news::{News, Piece};
use self::pump::Pump;
use self::stats::Figures;
pub use self::stats::{LATENCY_BOUNDS, Latency, Load, Stats};
use self::visit::Hall;
use crate::cluster::reservations::{Snapshot, Store};
use crate::disk::{Completion, CompletionQueue, Disk};
use crate::reactor::Reactor;
use crate::scsi::Unit;
use crate::units::Door;

/// What a lane is made of.
pub struct Parts {
    /// Names the LUN in logs.
    pub name: String,
    /// The owning end of its ring.
    pub consumer: Consumer,
    /// Its device server.
    pub unit: Unit,
    /// Its store; `None` for the unit that answers for LUNs that do not exist.
    pub disk: Option<Arc<dyn Disk>>,
    /// Keeps its reservations; the unit has taken up what was there.
    pub reservations: Arc<dyn Store>,
    /// Rung after answers have been published.
    pub producer: Arc<dyn Doorbell>,
}

/// A handle on a running lane; clones refer to the same one. The lane runs on when all of them are dropped.
#[derive(Clone, Debug)]
pub struct Lane {
    shared: Arc<Shared>,
    ended: watch::Receiver<()>,
}

/// What other threads touch of a lane.
struct Shared {
    bell: Bell,
    finished: List<Completion>,
    figures: Figures,
    stopping: AtomicBool,
    /// With `stopping`: what is in the ring stays there.
    leaving: AtomicBool,
    news: News,
    /// TAS of the unit's control mode page, for whoever ends commands that are not in the ring yet.
    task_aborted_status: Arc<AtomicBool>,
    /// Another gateway has changed the reservations, to this; `news` says so without a lock.
    changed: Mutex<Option<Snapshot>>,
    hall: Hall,
}

/// Whether the lane has been told to stop.
fn stopping(shared: &Shared) -> bool {
    shared.stopping.load(Ordering::Acquire)
}

/// Tells the lane to stop.
fn stop_soon(shared: &Shared) {
    shared.stopping.store(true, Ordering::Release);
    shared.bell.ring();
}

/// How often a store's pool is looked at: soon enough for hosts to act on what fills within minutes.
const LOOK: Duration = Duration::from_secs(30);

/// Until the lane stops.
async fn look_often(lane: &Weak<Shared>) {
    let mut clock = tokio::time::interval(LOOK);
    clock.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        clock.tick().await;
        let Some(lane) = lane.upgrade().filter(|lane| !stopping(lane)) else { return };
        lane.news.tell(Piece::Pool);
        lane.bell.ring();
    }
}

/// Starts a lane on a reactor.
///
/// The disk's resize listener and the unit's listener for access states are taken. The task must have ended (see [`Lane::stop`]) before the reactors are shut down.
pub fn start(reactor: &Reactor, parts: Parts) -> Lane {
    let size = parts.disk.as_ref().map_or(0, |disk| disk.size());
    let shared = Arc::new(Shared {
        bell: Bell::new(),
        finished: List::new(),
        figures: Figures::default(),
        stopping: AtomicBool::new(false),
        leaving: AtomicBool::new(false),
        // Access states and the size may have changed since the unit was made.
        news: News::of(&[Piece::Access, Piece::Size]),
        task_aborted_status: Arc::new(AtomicBool::new(true)),
        changed: Mutex::default(),
        hall: Hall::new(size),
    });
    if let Some(disk) = &parts.disk {
        let lane = Arc::downgrade(&shared);
        disk.on_resize(Box::new(move |size| {
            if let Some(lane) = lane.upgrade() {
                lane.hall.resized(size);
                lane.news.tell(Piece::Size);
                lane.bell.ring();
            }
        }));
        // It may have changed before it was listened to; what the listener has been told meanwhile is newer.
        shared.hall.found(size, disk.size());
    }
    if let Some(source) = parts.unit.source() {
        let lane = Arc::downgrade(&shared);
        source.on_change(Box::new(move || {
            if let Some(lane) = lane.upgrade() {
                lane.news.tell(Piece::Access);
                lane.bell.ring();
            }
        }));
    }
    reservations::listen(&*parts.reservations, &shared);
    // Rung once at the start: the producer may have published before it knew the lane.
    shared.bell.ring();
    if parts.unit.watches_pool() {
        let lane = Arc::downgrade(&shared);
        reactor.spawn(move || async move { look_often(&lane).await });
    }
    let (running, ended) = watch::channel(());
    let pump = Pump::new(parts, Arc::clone(&shared));
    reactor.spawn(move || async move {
        pump.run().await;
        drop(running);
    });
    Lane { shared, ended }
}

impl Lane {
    /// What the producer rings after it has published. Cheap, and rings between two turns count once.
    pub fn doorbell(&self) -> Arc<dyn Doorbell> {
        Arc::clone(&self.shared) as _
    }

    /// Where other LUNs' commands leave requests for this one.
    pub fn door(&self) -> Arc<dyn Door> {
        Arc::clone(&self.shared) as _
    }

    /// Whether a command that another nexus has ended is answered TASK ABORTED (SAM-5, TAS), as it is now and will be.
    pub fn task_aborted_status(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.shared.task_aborted_status)
    }

    /// The lane's figures.
    pub fn stats(&self) -> Stats {
        self.shared.figures.snapshot()
    }

    /// The part of the figures that says how busy the lane is; cheap enough to be asked for often.
    pub fn load(&self) -> Load {
        self.shared.figures.load()
    }

    /// Takes what is on the ring, answers it when the disk has finished it, publishes the answers and ends the task. What
    /// is published afterwards stays on the ring. Dropping the future does not revoke the stop.
    ///
    /// Waits for as long as the disk takes; bound it by a timeout where that may be for ever.
    pub async fn stop(&self) {
        stop_soon(&self.shared);
        self.ended().await;
    }

    /// The same, without taking anything more: what is in the ring stays there for a successor, and the ring says so
    /// ([`ring::Consumer::leave`]).
    pub async fn leave(&self) {
        self.shared.leaving.store(true, Ordering::Release);
        self.stop().await;
    }

    /// Until the lane has ended: it was told to, its ring was found corrupt, or its device was removed.
    pub async fn ended(&self) {
        let mut ended = self.ended.clone();
        // Nothing is ever sent: the wait ends with an error when the task has dropped its end.
        while ended.changed().await.is_ok() {}
    }
}

impl Doorbell for Shared {
    fn ring(&self) {
        self.bell.ring();
    }
}

impl CompletionQueue for Shared {
    fn push(&self, completion: Completion) {
        if self.finished.push(completion) {
            self.bell.ring();
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("stopping", &self.stopping).finish_non_exhaustive()
    }
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").field("name", &self.name).finish_non_exhaustive()
    }
}
