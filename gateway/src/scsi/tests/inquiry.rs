//! inquiry
