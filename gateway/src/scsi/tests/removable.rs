//! removable
