//! A store that ends with the process.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::{Done, Listener, Outcome, Snapshot, Store, Unreadable};

/// State in memory; [`Memory::peer`] makes further holders of it.
pub struct Memory {
    shared: Arc<Mutex<Shared>>,
    own: Arc<Ear>,
}

#[derive(Default)]
struct Shared {
    snapshot: Snapshot,
    ears: Vec<Weak<Ear>>,
}

#[derive(Default)]
struct Ear(Mutex<Option<Listener>>);

impl Memory {
    /// A state of its own.
    pub fn new() -> Arc<Self> {
        Self::on(Arc::default())
    }

    /// Another holder of the same state, as another gateway would be.
    pub fn peer(&self) -> Arc<Self> {
        Self::on(Arc::clone(&self.shared))
    }

    fn on(shared: Arc<Mutex<Shared>>) -> Arc<Self> {
        let own = Arc::<Ear>::default();
        lock(&shared).ears.push(Arc::downgrade(&own));
        Arc::new(Self { shared, own })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Store for Memory {
    fn load(&self) -> Result<Snapshot, Unreadable> {
        Ok(lock(&self.shared).snapshot.clone())
    }

    fn save(&self, expected: u64, state: Vec<u8>, done: Done) {
        let (outcome, told) = {
            let mut shared = lock(&self.shared);
            if shared.snapshot.number == expected {
                shared.snapshot = Snapshot { number: expected + 1, state };
                shared.ears.retain(|ear| ear.strong_count() > 0);
                let others = shared.ears.iter().filter_map(Weak::upgrade);
                let others: Vec<_> = others.filter(|ear| !Arc::ptr_eq(ear, &self.own)).collect();
                (
                    Outcome::Saved(expected + 1),
                    others.into_iter().map(|ear| (ear, shared.snapshot.clone())).collect(),
                )
            } else {
                (Outcome::Changed(shared.snapshot.clone()), Vec::new())
            }
        };
        for (ear, snapshot) in told {
            if let Some(listener) = &*lock(&ear.0) {
                listener(snapshot);
            }
        }
        done(outcome);
    }

    fn on_change(&self, listener: Listener) {
        *lock(&self.own.0) = Some(listener);
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("number", &lock(&self.shared).snapshot.number).finish()
    }
}
