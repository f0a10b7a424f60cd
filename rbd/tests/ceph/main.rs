//! This crate against a real Ceph. `containers/dev/test` starts one and says where it is.

mod aio;
mod bench;
mod images;
mod io;
mod objects;
