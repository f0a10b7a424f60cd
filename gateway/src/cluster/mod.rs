//! What gateways share, or one gateway keeps from one run to the next.

pub mod reservations;
