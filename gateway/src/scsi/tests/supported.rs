//! supported
