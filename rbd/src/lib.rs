//! librados and librbd, opened at run time: clusters, pools, objects, images.
//!
//! ```text
//! Cluster ─ one client (connect, monitor commands, blocklist)
//!   └─ Pool ─ a pool or a namespace of it
//!        ├─ Object ─ versioned reads, transactions, omap, watch and notify, advisory locks
//!        └─ Image ─ header, snapshots, exclusive lock, asynchronous I/O from iovecs
//! ```
//!
//! Nothing is linked: [`Library::load`] opens `librados.so.2` and `librbd.so.1` when the first cluster is connected, and
//! says which package is missing when they are not there. Children keep their parents alive, so any order of dropping is right.
//!
//! # Threads and memory
//!
//! Everything is `Send + Sync`. Calls block, except those of [`aio`]; call them where blocking is allowed. Callbacks of C
//! run on a few threads that also complete everybody's I/O, so what runs there never blocks: aio closures are asked not to,
//! watch events are handled on a thread of the watch, a resize listener only gets a number.
//!
//! A buffer that librbd may touch is owned by its operation until librbd has called back: no timeout, no abort and no
//! fencing error hands it to anybody before.
//!
//! # Fencing
//!
//! A client that is blocklisted, or an image whose lock was taken over, gets errors that [`Error::is_fenced`]
//! recognises, and nothing it sends lands any more. It does not recover; connect anew.
//!
//! `unsafe` is confined to the `ffi` module.

pub mod aio;
mod cluster;
mod error;
mod ffi;
mod image;
mod lease;
mod lock;
mod object;
mod pool;
mod watch;

pub use aio::{Bytes, Compared, IoBuf};
pub use cluster::{Blocked, Cluster, Config, ConnectError, SETTINGS, plain_address};
pub use error::{Errno, Error, Kind, OUT_OF_RANGE, Op};
pub use ffi::library::{Library, LoadError};
pub use image::{CloseError, Image, Open, ResizeListener, Snapshot};
pub use lease::{Lock, Locker, Lockers, Renew};
pub use lock::{FENCE, Watcher};
pub use object::{Object, Transaction, Versioned};
pub use pool::{Features, NewImage, Pool};
pub use watch::{Answers, Event, Notification, Reply, Watch};
