//! Where the reservations of a unit are kept outside of the memory of its device server.
//!
//! A store has one *state* for one unit: bytes that only the SCSI engine understands, and their *number*, which grows with
//! every change. Saving names the number that it replaces: whoever is late is handed what is there instead. What a store
//! has reported as saved is there after a crash, as far as the store outlives one at all.

mod file;
mod memory;

use std::fmt;

pub use file::{Directory, File};
pub use memory::Memory;

/// A state and its number. Number 0 is no state at all: nothing was ever saved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Counts the changes.
    pub number: u64,
    /// What was saved.
    pub state: Vec<u8>,
}

/// What became of a save.
#[derive(Debug)]
pub enum Outcome {
    /// It is there, under this number.
    Saved(u64),
    /// The number was not the expected one; nothing was saved, and this is there.
    Changed(Snapshot),
    /// Nothing can be said to have been saved; the words are for the log.
    Failed(String),
}

/// Called once, on any thread; must not block.
pub type Done = Box<dyn FnOnce(Outcome) + Send>;

/// Called on any thread, with what another holder of the same state has saved; must not block.
pub type Listener = Box<dyn Fn(Snapshot) + Send + Sync>;

/// Why a state cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unreadable(String);

/// The reservations' store of one unit.
///
/// ```
/// use rbdgate::cluster::reservations::{Memory, Outcome, Store};
///
/// let store = Memory::new();
/// store.save(0, b"first".to_vec(), Box::new(|outcome| assert!(matches!(outcome, Outcome::Saved(1)))));
/// store.save(0, b"late".to_vec(), Box::new(|outcome| match outcome {
///     Outcome::Changed(there) => assert_eq!(there.state, b"first"),
///     _ => panic!(),
/// }));
/// assert_eq!(store.load().unwrap().state, b"first");
/// ```
pub trait Store: Send + Sync + fmt::Debug {
    /// What is there. May block: asked once, before the unit serves.
    fn load(&self) -> Result<Snapshot, Unreadable>;

    /// Puts `state` in the place of the state with the number `expected`. Returns at once; `done` is called when it is
    /// settled, possibly before this returns.
    fn save(&self, expected: u64, state: Vec<u8>, done: Done);

    /// Who is told of changes that others make; takes the place of an earlier listener.
    fn on_change(&self, listener: Listener);
}
