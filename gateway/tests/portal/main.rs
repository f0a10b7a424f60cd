//! The portal over real TCP: a test initiator that does right and wrong, libiscsi's tools, devices that answer when told.

mod kit;
mod tools;
