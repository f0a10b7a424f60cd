//! The portal over real TCP: a test initiator that does right and wrong, libiscsi's tools, devices that answer when told.

#![expect(clippy::unwrap_used, reason = "a test")]

mod aborted;
mod data;
mod discovery;
mod hosts;
mod inventory;
mod kit;
mod logins;
mod malformed;
mod management;
mod memory;
mod reservations;
mod restart;
mod sessions;
mod tools;
