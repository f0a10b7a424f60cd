//! Lanes driven through their rings, over the local disks: real producer, real engine, real stores.

#![expect(clippy::unwrap_used, reason = "a test")]

mod access;
mod background;
mod commands;
mod copies;
mod corrupt;
mod data_area;
mod driver;
mod kernel;
mod reservations;
mod tasks;
mod wreck;
