//! What the kernel tells its ring's owners over generic netlink, and what they answer.
//!
//! The kernel announces a device that was enabled, is being removed or shall be changed. Where it was told that answers come
//! (machine-wide, by SET_FEATURES, and per device, `nl_reply_supported`), whoever caused the event waits in the kernel until
//! the device's owner has answered, without a limit. Several owners can share a machine: an answer for another owner's
//! device would break what that one does, so none is given.

mod codec;
mod socket;
mod task;

use std::fmt;
use std::io;
use std::time::Duration;

pub use codec::{Change, Event, Kind};
pub(super) use socket::Socket;
pub use task::{Listener, Owner};

/// A connection to the kernel's events: the real socket, or the simulated kernel's.
pub trait Channel: Send + fmt::Debug {
    /// The next event; `None` when the time is over first.
    fn receive(&mut self, limit: Duration) -> io::Result<Option<Event>>;

    /// Answers one. `status`: 0, or a negative errno. Nobody waiting for it is no error.
    fn answer(&mut self, event: &Event, status: i32) -> io::Result<()>;

    /// Says whether the kernel shall wait for answers at all, for every TCMU device of the machine.
    fn set_replies(&mut self, replies: bool) -> io::Result<()>;
}
