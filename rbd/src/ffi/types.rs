//! The types and constants of the C headers that [`functions`](super::functions) needs, declared once.
//!
//! Each macro writes the Rust item and, for tests, its description, which `oracle` turns into C and
//! compares with the installed headers. Names are C's own, so that a reader can search both sides for them.
#![expect(non_camel_case_types, reason = "the names of the C headers")]

use std::ffi::{c_char, c_int, c_uint, c_void};

/// Opaque pointers.
macro_rules! handles {
    ($($name:ident)*) => {
        $(pub(crate) type $name = *mut c_void;)*
        #[cfg(test)]
        pub(super) const HANDLES: &[&str] = &[$(stringify!($name)),*];
    };
}

/// Function pointers that librados and librbd call.
macro_rules! callbacks {
    ($(type $name:ident = fn($($arg:ty),*) -> $ret:ty;)*) => {
        $(pub(crate) type $name = Option<unsafe extern "C" fn($($arg),*) -> $ret>;)*
        #[cfg(test)]
        pub(super) const CALLBACKS: &[(&str, &[&str], &str)] =
            &[$((stringify!($name), &[$(stringify!($arg)),*], stringify!($ret))),*];
    };
}

/// Structures by value: name in Rust, name in C, fields in order.
macro_rules! structs {
    ($($(#[$meta:meta])* struct $name:ident = $c:literal { $($field:ident: $ty:ty,)* })*) => {
        $(
            $(#[$meta])*
            #[repr(C)]
            #[derive(Clone, Copy)]
            pub(crate) struct $name { $(pub(crate) $field: $ty,)* }
        )*
        #[cfg(test)]
        pub(super) fn layouts() -> Vec<(&'static str, usize, Vec<(&'static str, usize)>)> {
            vec![$((
                $c,
                size_of::<$name>(),
                vec![$((stringify!($field), std::mem::offset_of!($name, $field))),*],
            )),*]
        }
    };
}

/// Numbers of `#define`s and enumerators.
macro_rules! constants {
    ($($name:ident: $ty:ty = $value:expr;)*) => {
        $(pub(crate) const $name: $ty = $value;)*
        #[cfg(test)]
        pub(super) const CONSTANTS: &[(&str, i128)] = &[$((stringify!($name), $value as i128)),*];
    };
}

handles! {
    rados_t rados_ioctx_t rados_write_op_t rados_read_op_t rados_omap_iter_t
    rbd_image_t rbd_image_options_t rbd_completion_t
}

/// A C enum: GCC and Clang give an enum without negative members the size and sign of `unsigned`.
pub(crate) type rbd_lock_mode_t = c_uint;

/// Another.
pub(crate) type rbd_config_source_t = c_uint;

callbacks! {
    type rados_watchcb2_t = fn(*mut c_void, u64, u64, u64, *mut c_void, usize) -> ();
    type rados_watcherrcb_t = fn(*mut c_void, u64, c_int) -> ();
    type rbd_callback_t = fn(rbd_completion_t, *mut c_void) -> ();
    type rbd_update_callback_t = fn(*mut c_void) -> ();
    type librbd_progress_fn_t = fn(u64, u64, *mut c_void) -> c_int;
    // Has no name in the header; only rbd_diff_iterate2 takes it.
    type rbdgate_diff_cb_t = fn(u64, usize, c_int, *mut c_void) -> c_int;
}

structs! {
    struct rbd_image_info_t = "rbd_image_info_t" {
        size: u64,
        obj_size: u64,
        num_objs: u64,
        order: c_int,
        block_name_prefix: [c_char; 24],
        parent_pool: i64,
        parent_name: [c_char; 96],
    }
    struct rbd_image_spec_t = "rbd_image_spec_t" {
        id: *mut c_char,
        name: *mut c_char,
    }
    struct rbd_snap_info_t = "rbd_snap_info_t" {
        id: u64,
        size: u64,
        name: *const c_char,
    }
    struct rbd_config_option_t = "rbd_config_option_t" {
        name: *mut c_char,
        value: *mut c_char,
        source: rbd_config_source_t,
    }
    struct rbd_image_watcher_t = "rbd_image_watcher_t" {
        addr: *mut c_char,
        id: i64,
        cookie: u64,
    }
}

constants! {
    LIBRADOS_CMPXATTR_OP_EQ: u8 = 1;
    LIBRADOS_CREATE_EXCLUSIVE: c_int = 1;
    LIBRADOS_CREATE_IDEMPOTENT: c_int = 0;
    LIBRADOS_LOCK_FLAG_MAY_RENEW: u8 = 1;
    LIBRADOS_LOCK_FLAG_MUST_RENEW: u8 = 2;
    RBD_IMAGE_OPTION_FEATURES: c_int = 1;
    RBD_IMAGE_OPTION_ORDER: c_int = 2;
    RBD_IMAGE_OPTION_STRIPE_UNIT: c_int = 3;
    RBD_IMAGE_OPTION_STRIPE_COUNT: c_int = 4;
    RBD_LOCK_MODE_EXCLUSIVE: rbd_lock_mode_t = 0;
    RBD_WRITE_ZEROES_FLAG_THICK_PROVISION: c_int = 1;
    RBD_FEATURE_LAYERING: u64 = 1 << 0;
    RBD_FEATURE_STRIPINGV2: u64 = 1 << 1;
    RBD_FEATURE_EXCLUSIVE_LOCK: u64 = 1 << 2;
    RBD_FEATURE_OBJECT_MAP: u64 = 1 << 3;
    RBD_FEATURE_FAST_DIFF: u64 = 1 << 4;
    RBD_FEATURE_DEEP_FLATTEN: u64 = 1 << 5;
    RBD_FEATURE_JOURNALING: u64 = 1 << 6;
    RBD_FEATURE_DATA_POOL: u64 = 1 << 7;
}
