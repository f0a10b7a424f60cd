//! Counts the operations in flight of one store, so that closing it can wait for the last of them.
//!
//! One atomic word: the top bit says closed, the rest counts. An open gate costs one addition to pass and one to leave;
//! the lock is only for the closer that sleeps.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

const CLOSED: u64 = 1 << 63;

/// The gate of one store.
#[derive(Debug, Default)]
pub(super) struct Gate {
    state: AtomicU64,
    sleeping: Mutex<()>,
    emptied: Condvar,
}

/// One operation inside; dropping it leaves.
#[derive(Debug)]
pub(super) struct Pass(Arc<Gate>);

impl Gate {
    /// Goes in, unless the gate is closed.
    pub(super) fn enter(self: &Arc<Self>) -> Option<Pass> {
        // Counted first and checked afterwards, so that a closer cannot miss an operation that is just coming in.
        let before = self.state.fetch_add(1, Ordering::AcqRel);
        let pass = Pass(Arc::clone(self));
        (before & CLOSED == 0).then_some(pass)
    }

    /// Lets nobody in any more.
    pub(super) fn close(&self) {
        self.state.fetch_or(CLOSED, Ordering::AcqRel);
    }

    /// Sleeps until a closed gate is empty.
    pub(super) fn wait_empty(&self) {
        let mut guard = self.sleeping.lock().unwrap_or_else(PoisonError::into_inner);
        while self.state.load(Ordering::Acquire) & !CLOSED != 0 {
            guard = self.emptied.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if self.0.state.fetch_sub(1, Ordering::AcqRel) == CLOSED + 1 {
            // Taking the lock orders this after a closer's last look at the count.
            drop(self.0.sleeping.lock().unwrap_or_else(PoisonError::into_inner));
            self.0.emptied.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn closing_waits_for_the_last_one_and_lets_nobody_else_in() {
        let gate = Arc::new(Gate::default());
        let inside = gate.enter().unwrap();
        gate.close();
        assert!(gate.enter().is_none());
        let closer = thread::spawn({
            let gate = Arc::clone(&gate);
            move || gate.wait_empty()
        });
        thread::sleep(Duration::from_millis(20));
        assert!(!closer.is_finished());
        drop(inside);
        closer.join().unwrap();
    }
}
