//! mode
