//! The synchronisation that [`super::inbox`] is written in. The loom test gives the same file loom's.

pub(super) use std::sync::Mutex;
pub(super) use std::sync::atomic::{AtomicBool, Ordering};
