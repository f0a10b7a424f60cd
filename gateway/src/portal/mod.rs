//! The iSCSI target (RFC 7143): a sans-IO protocol core and a thin tokio driver. Reaches SCSI only through the ring.
//!
//! # Vocabulary
//!
//! An *initiator* (a host) logs in to a *target* and has a *session*; here a session has one connection. Its commands go
//! to *logical units* by number; each is a [`Port`], the producing end of a TCMU ring. *Text keys* settle the terms.
//! *Immediate* data comes with a command, *unsolicited* data after it, *solicited* data when asked for by an *R2T*.
//!
//! # Where to read what
//!
//! | module | what |
//! |---|---|
//! | [`pdu`], [`text`] | bytes on the wire |
//! | [`login`], [`keys`], [`chap`], [`discovery`] | becoming a session, or learning of targets |
//! | `receive`, `transmit`, `window` | framing, sequence numbers, credit |
//! | `conn` | the core: one turn of one connection; `commands`, `transfer`, `management`, `control` are its parts |
//! | `port`, `inbox` | to and from the rings; who waits for whom |
//! | `socket`, `driver`, `server`, `registry` | sockets, tasks, sessions |
//!
//! # Invariants
//!
//! * READ and WRITE data is never copied: Data-Out is read from the socket into the command's blocks, Data-In is written
//!   to the socket from them, digests are computed over them in place.
//! * An aborted command is never answered. A task management response and a reinstating login wait until no ended
//!   command can change the medium any more.
//! * What a peer says never sizes an allocation beyond a fixed bound, and an unauthenticated peer holds next to nothing.
//! * Error recovery level 0: what cannot be mended ends the connection, and only that connection.

mod alive;
mod bank;
mod commands;
mod conn;
mod control;
mod driver;
mod inbox;
mod luns;
mod management;
mod order;
mod port;
mod receive;
mod registry;
mod sense;
mod server;
mod socket;
mod stats;
mod stream;
mod target;
mod task;
mod transfer;
mod transmit;
mod window;

pub mod chap;
pub mod discovery;
pub mod keys;
pub mod login;
pub mod pdu;
#[cfg(any(test, fuzzing))]
pub mod simulated;
pub mod text;

pub use inbox::{End, Ticket};
pub use port::Port;
pub use registry::SessionInfo;
pub use server::Server;
pub use stats::Stats;
pub use target::{Access, Auth, DigestPolicy, Directory, Grant, Limits, Parameters, Redirect, Target};
