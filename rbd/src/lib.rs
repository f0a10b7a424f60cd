#![doc = "librados and librbd"]
mod error;
mod ffi;
