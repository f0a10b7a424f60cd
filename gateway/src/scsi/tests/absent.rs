//! absent
