//! How other threads reach a lane: a bell that wakes its task, and a list of finished operations.
//!
//! *Ringing* never blocks for longer than it takes to clone a waker, and rings between two looks of the lane cost one
//! atomic swap. *Listing* is a push under a lock that is held for a few instructions; only the push that finds the list
//! empty rings. The lane takes the whole list at once.
//!
//! Invariants, checked by loom over this very file (`tests/lane_loom.rs`): a ring before the lane sleeps keeps it awake,
//! a ring while it sleeps wakes it, and an item pushed is either in the list the lane takes or has rung after that.

use std::sync::PoisonError;
use std::task::{Context, Poll, Waker};

use super::sync::{AtomicBool, Mutex, Ordering};

/// Wakes one task from any thread.
#[derive(Debug)]
pub(super) struct Bell {
    rung: AtomicBool,
    sleeper: Mutex<Option<Waker>>,
}

/// Items for one taker.
#[derive(Debug)]
pub(super) struct List<T> {
    items: Mutex<Vec<T>>,
}

impl Bell {
    pub(super) fn new() -> Self {
        Self { rung: AtomicBool::new(false), sleeper: Mutex::new(None) }
    }

    /// Wakes the task, now or at its next look.
    pub(super) fn ring(&self) {
        if self.rung.swap(true, Ordering::AcqRel) {
            return;
        }
        let waker = self.sleeper.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Ready when the bell has rung since the last time; then it is silent again.
    pub(super) fn poll_rung(&self, context: &Context<'_>) -> Poll<()> {
        if self.rung.swap(false, Ordering::AcqRel) {
            return Poll::Ready(());
        }
        {
            let mut sleeper = self.sleeper.lock().unwrap_or_else(PoisonError::into_inner);
            if !sleeper.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
                *sleeper = Some(context.waker().clone());
            }
        }
        // A ring before the waker was left has not seen it.
        if self.rung.swap(false, Ordering::AcqRel) { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl<T> List<T> {
    pub(super) fn new() -> Self {
        Self { items: Mutex::new(Vec::new()) }
    }

    /// Appends; true when the list was empty, that is when the taker has to be woken.
    #[must_use = "the first item must ring the bell"]
    pub(super) fn push(&self, item: T) -> bool {
        let mut items = self.items.lock().unwrap_or_else(PoisonError::into_inner);
        items.push(item);
        items.len() == 1
    }

    /// Exchanges the list with an empty one, whose memory it then grows in.
    pub(super) fn take(&self, into: &mut Vec<T>) {
        debug_assert!(into.is_empty(), "items would be taken twice");
        std::mem::swap(&mut *self.items.lock().unwrap_or_else(PoisonError::into_inner), into);
    }
}
