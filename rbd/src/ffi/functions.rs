//! Every C function this crate calls, declared once: name and signature.
//!
//! From one declaration the macro makes the field of a table of function pointers, the lookup of the symbol in the opened
//! library, and (in tests) the description that `oracle` checks against the installed headers.
//! `optional` ones may be absent from the library; they become `Option`s.

use std::ffi::{c_char, c_int, c_uchar, c_void};

use libc::{iovec, ssize_t, time_t, timeval};
use libloading::os::unix::Library as Dlopened;

use super::types::*;

/// One declaration, as text: name, parameter types, return type (empty: void), optional.
#[cfg(test)]
pub(super) struct Declaration {
    pub(super) name: &'static str,
    pub(super) args: &'static [&'static str],
    pub(super) ret: &'static str,
    pub(super) optional: bool,
}

/// What the library does not have.
pub(super) struct MissingSymbol(pub(super) &'static str);

macro_rules! functions {
    (
        $(#[$meta:meta])* struct $table:ident, $declarations:ident;
        $(fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)?;)*
        optional { $(fn $oname:ident($($oarg:ident: $oty:ty),* $(,)?) $(-> $oret:ty)?;)* }
    ) => {
        $(#[$meta])*
        pub(crate) struct $table {
            $(pub(crate) $name: unsafe extern "C" fn($($arg: $ty),*) $(-> $ret)?,)*
            $(pub(crate) $oname: Option<unsafe extern "C" fn($($oarg: $oty),*) $(-> $oret)?>,)*
        }

        impl $table {
            /// Looks every symbol up. The pointers are valid as long as `library` stays open, which
            /// [`Library`](super::library::Library) sees to.
            pub(super) fn resolve(library: &Dlopened) -> Result<Self, MissingSymbol> {
                Ok(Self {
                    $($name: {
                        // SAFETY: the symbol is a C function with this signature (the oracle test compares it with
                        // the header), and these symbols never change their signature within one soname.
                        let found = unsafe { library.get(concat!(stringify!($name), "\0").as_bytes()) };
                        *found.map_err(|_missing| MissingSymbol(stringify!($name)))?
                    },)*
                    $($oname: {
                        // SAFETY: as above.
                        let found = unsafe { library.get(concat!(stringify!($oname), "\0").as_bytes()) };
                        found.ok().map(|symbol| *symbol)
                    },)*
                })
            }
        }

        #[cfg(test)]
        pub(super) const $declarations: &[Declaration] = &[
            $(Declaration {
                name: stringify!($name), args: &[$(stringify!($ty)),*],
                ret: stringify!($($ret)?), optional: false,
            },)*
            $(Declaration {
                name: stringify!($oname), args: &[$(stringify!($oty)),*],
                ret: stringify!($($oret)?), optional: true,
            },)*
        ];
    };
}

functions! {
    /// `librados.so.2`.
    struct Rados, RADOS;

    fn rados_version(major: *mut c_int, minor: *mut c_int, extra: *mut c_int);
    fn rados_create2(cluster: *mut rados_t, clustername: *const c_char, name: *const c_char, flags: u64) -> c_int;
    fn rados_conf_read_file(cluster: rados_t, path: *const c_char) -> c_int;
    fn rados_conf_set(cluster: rados_t, option: *const c_char, value: *const c_char) -> c_int;
    fn rados_conf_get(cluster: rados_t, option: *const c_char, buf: *mut c_char, len: usize) -> c_int;
    fn rados_connect(cluster: rados_t) -> c_int;
    fn rados_shutdown(cluster: rados_t);
    fn rados_cluster_fsid(cluster: rados_t, buf: *mut c_char, len: usize) -> c_int;
    fn rados_get_instance_id(cluster: rados_t) -> u64;
    fn rados_getaddrs(cluster: rados_t, addrs: *mut *mut c_char) -> c_int;
    fn rados_mon_command(
        cluster: rados_t, cmd: *mut *const c_char, cmdlen: usize, inbuf: *const c_char, inbuflen: usize,
        outbuf: *mut *mut c_char, outbuflen: *mut usize, outs: *mut *mut c_char, outslen: *mut usize,
    ) -> c_int;
    fn rados_buffer_free(buf: *mut c_char);
    fn rados_wait_for_latest_osdmap(cluster: rados_t) -> c_int;
    fn rados_pool_list(cluster: rados_t, buf: *mut c_char, len: usize) -> c_int;

    fn rados_ioctx_create(cluster: rados_t, pool_name: *const c_char, ioctx: *mut rados_ioctx_t) -> c_int;
    fn rados_ioctx_create2(cluster: rados_t, pool_id: i64, ioctx: *mut rados_ioctx_t) -> c_int;
    fn rados_ioctx_destroy(io: rados_ioctx_t);
    fn rados_ioctx_get_id(io: rados_ioctx_t) -> i64;
    fn rados_ioctx_set_namespace(io: rados_ioctx_t, nspace: *const c_char);
    fn rados_set_pool_full_try(io: rados_ioctx_t);
    fn rados_get_last_version(io: rados_ioctx_t) -> u64;

    fn rados_create_write_op() -> rados_write_op_t;
    fn rados_release_write_op(op: rados_write_op_t);
    fn rados_write_op_assert_exists(op: rados_write_op_t);
    fn rados_write_op_assert_version(op: rados_write_op_t, ver: u64);
    fn rados_write_op_cmpxattr(
        op: rados_write_op_t, name: *const c_char, comparison_operator: u8, value: *const c_char, value_len: usize,
    );
    fn rados_write_op_omap_cmp2(
        op: rados_write_op_t, key: *const c_char, comparison_operator: u8, val: *const c_char, key_len: usize,
        val_len: usize, prval: *mut c_int,
    );
    fn rados_write_op_setxattr(op: rados_write_op_t, name: *const c_char, value: *const c_char, value_len: usize);
    fn rados_write_op_rmxattr(op: rados_write_op_t, name: *const c_char);
    fn rados_write_op_create(op: rados_write_op_t, exclusive: c_int, category: *const c_char);
    fn rados_write_op_write_full(op: rados_write_op_t, buffer: *const c_char, len: usize);
    fn rados_write_op_remove(op: rados_write_op_t);
    fn rados_write_op_omap_set2(
        op: rados_write_op_t, keys: *const *const c_char, vals: *const *const c_char, key_lens: *const usize,
        val_lens: *const usize, num: usize,
    );
    fn rados_write_op_omap_rm_keys2(
        op: rados_write_op_t, keys: *const *const c_char, key_lens: *const usize, keys_len: usize,
    );
    fn rados_write_op_omap_clear(op: rados_write_op_t);
    fn rados_write_op_operate(
        op: rados_write_op_t, io: rados_ioctx_t, oid: *const c_char, mtime: *mut time_t, flags: c_int,
    ) -> c_int;

    fn rados_create_read_op() -> rados_read_op_t;
    fn rados_release_read_op(op: rados_read_op_t);
    fn rados_read_op_stat(op: rados_read_op_t, psize: *mut u64, pmtime: *mut time_t, prval: *mut c_int);
    fn rados_read_op_read(
        op: rados_read_op_t, offset: u64, len: usize, buffer: *mut c_char, bytes_read: *mut usize, prval: *mut c_int,
    );
    fn rados_read_op_omap_get_vals2(
        op: rados_read_op_t, start_after: *const c_char, filter_prefix: *const c_char, max_return: u64,
        iter: *mut rados_omap_iter_t, pmore: *mut c_uchar, prval: *mut c_int,
    );
    fn rados_read_op_omap_get_vals_by_keys2(
        op: rados_read_op_t, keys: *const *const c_char, num_keys: usize, key_lens: *const usize,
        iter: *mut rados_omap_iter_t, prval: *mut c_int,
    );
    fn rados_read_op_operate(op: rados_read_op_t, io: rados_ioctx_t, oid: *const c_char, flags: c_int) -> c_int;
    fn rados_omap_get_next2(
        iter: rados_omap_iter_t, key: *mut *mut c_char, val: *mut *mut c_char, key_len: *mut usize, val_len: *mut usize,
    ) -> c_int;
    fn rados_omap_get_end(iter: rados_omap_iter_t);
    fn rados_getxattr(io: rados_ioctx_t, o: *const c_char, name: *const c_char, buf: *mut c_char, len: usize) -> c_int;

    fn rados_watch3(
        io: rados_ioctx_t, o: *const c_char, cookie: *mut u64, watchcb: rados_watchcb2_t,
        watcherrcb: rados_watcherrcb_t, timeout: u32, arg: *mut c_void,
    ) -> c_int;
    fn rados_watch_check(io: rados_ioctx_t, cookie: u64) -> c_int;
    fn rados_unwatch2(io: rados_ioctx_t, cookie: u64) -> c_int;
    fn rados_watch_flush(cluster: rados_t) -> c_int;
    fn rados_notify2(
        io: rados_ioctx_t, o: *const c_char, buf: *const c_char, buf_len: c_int, timeout_ms: u64,
        reply_buffer: *mut *mut c_char, reply_buffer_len: *mut usize,
    ) -> c_int;
    fn rados_notify_ack(
        io: rados_ioctx_t, o: *const c_char, notify_id: u64, cookie: u64, buf: *const c_char, buf_len: c_int,
    ) -> c_int;

    fn rados_lock_exclusive(
        io: rados_ioctx_t, oid: *const c_char, name: *const c_char, cookie: *const c_char, desc: *const c_char,
        duration: *mut timeval, flags: u8,
    ) -> c_int;
    fn rados_lock_shared(
        io: rados_ioctx_t, o: *const c_char, name: *const c_char, cookie: *const c_char, tag: *const c_char,
        desc: *const c_char, duration: *mut timeval, flags: u8,
    ) -> c_int;
    fn rados_unlock(io: rados_ioctx_t, o: *const c_char, name: *const c_char, cookie: *const c_char) -> c_int;
    fn rados_list_lockers(
        io: rados_ioctx_t, o: *const c_char, name: *const c_char, exclusive: *mut c_int, tag: *mut c_char,
        tag_len: *mut usize, clients: *mut c_char, clients_len: *mut usize, cookies: *mut c_char,
        cookies_len: *mut usize, addrs: *mut c_char, addrs_len: *mut usize,
    ) -> ssize_t;
    fn rados_break_lock(
        io: rados_ioctx_t, o: *const c_char, name: *const c_char, client: *const c_char, cookie: *const c_char,
    ) -> c_int;

    optional {
        // Pacific (16) and newer; before that the monitor command is sent by hand.
        fn rados_blocklist_add(cluster: rados_t, client_address: *mut c_char, expire_seconds: u32) -> c_int;
    }
}

functions! {
    /// `librbd.so.1`.
    struct Rbd, RBD;

    fn rbd_version(major: *mut c_int, minor: *mut c_int, extra: *mut c_int);
    fn rbd_list2(io: rados_ioctx_t, images: *mut rbd_image_spec_t, max_images: *mut usize) -> c_int;
    fn rbd_image_spec_list_cleanup(images: *mut rbd_image_spec_t, num_images: usize);
    fn rbd_namespace_create(io: rados_ioctx_t, namespace_name: *const c_char) -> c_int;
    fn rbd_namespace_exists(io: rados_ioctx_t, namespace_name: *const c_char, exists: *mut bool) -> c_int;
    fn rbd_image_options_create(opts: *mut rbd_image_options_t);
    fn rbd_image_options_destroy(opts: rbd_image_options_t);
    fn rbd_image_options_set_uint64(opts: rbd_image_options_t, optname: c_int, optval: u64) -> c_int;
    fn rbd_create4(io: rados_ioctx_t, name: *const c_char, size: u64, opts: rbd_image_options_t) -> c_int;
    fn rbd_remove(io: rados_ioctx_t, name: *const c_char) -> c_int;
    fn rbd_open(io: rados_ioctx_t, name: *const c_char, image: *mut rbd_image_t, snap_name: *const c_char) -> c_int;
    fn rbd_open_read_only(
        io: rados_ioctx_t, name: *const c_char, image: *mut rbd_image_t, snap_name: *const c_char,
    ) -> c_int;
    fn rbd_close(image: rbd_image_t) -> c_int;
    fn rbd_stat(image: rbd_image_t, info: *mut rbd_image_info_t, infosize: usize) -> c_int;
    fn rbd_get_size(image: rbd_image_t, size: *mut u64) -> c_int;
    fn rbd_get_features(image: rbd_image_t, features: *mut u64) -> c_int;
    fn rbd_update_features(image: rbd_image_t, features: u64, enabled: u8) -> c_int;
    fn rbd_get_stripe_unit(image: rbd_image_t, stripe_unit: *mut u64) -> c_int;
    fn rbd_get_stripe_count(image: rbd_image_t, stripe_count: *mut u64) -> c_int;
    fn rbd_get_id(image: rbd_image_t, id: *mut c_char, id_len: usize) -> c_int;
    fn rbd_resize2(
        image: rbd_image_t, size: u64, allow_shrink: bool, cb: librbd_progress_fn_t, cbdata: *mut c_void,
    ) -> c_int;
    fn rbd_metadata_get(image: rbd_image_t, key: *const c_char, value: *mut c_char, val_len: *mut usize) -> c_int;
    fn rbd_metadata_set(image: rbd_image_t, key: *const c_char, value: *const c_char) -> c_int;
    fn rbd_metadata_remove(image: rbd_image_t, key: *const c_char) -> c_int;
    fn rbd_metadata_list(
        image: rbd_image_t, start: *const c_char, max: u64, keys: *mut c_char, key_len: *mut usize,
        values: *mut c_char, vals_len: *mut usize,
    ) -> c_int;
    fn rbd_config_image_list(
        image: rbd_image_t, options: *mut rbd_config_option_t, max_options: *mut c_int,
    ) -> c_int;
    fn rbd_config_image_list_cleanup(options: *mut rbd_config_option_t, max_options: c_int);
    fn rbd_snap_list(image: rbd_image_t, snaps: *mut rbd_snap_info_t, max_snaps: *mut c_int) -> c_int;
    fn rbd_snap_list_end(snaps: *mut rbd_snap_info_t);
    fn rbd_snap_create(image: rbd_image_t, snapname: *const c_char) -> c_int;
    fn rbd_snap_remove(image: rbd_image_t, snapname: *const c_char) -> c_int;
    fn rbd_snap_rollback(image: rbd_image_t, snapname: *const c_char) -> c_int;
    fn rbd_is_exclusive_lock_owner(image: rbd_image_t, is_owner: *mut c_int) -> c_int;
    fn rbd_lock_acquire(image: rbd_image_t, lock_mode: rbd_lock_mode_t) -> c_int;
    fn rbd_lock_release(image: rbd_image_t) -> c_int;
    fn rbd_lock_get_owners(
        image: rbd_image_t, lock_mode: *mut rbd_lock_mode_t, lock_owners: *mut *mut c_char,
        max_lock_owners: *mut usize,
    ) -> c_int;
    fn rbd_lock_get_owners_cleanup(lock_owners: *mut *mut c_char, lock_owner_count: usize);
    fn rbd_lock_break(image: rbd_image_t, lock_mode: rbd_lock_mode_t, lock_owner: *const c_char) -> c_int;
    fn rbd_watchers_list(
        image: rbd_image_t, watchers: *mut rbd_image_watcher_t, max_watchers: *mut usize,
    ) -> c_int;
    fn rbd_watchers_list_cleanup(watchers: *mut rbd_image_watcher_t, num_watchers: usize);
    fn rbd_update_watch(
        image: rbd_image_t, handle: *mut u64, watch_cb: rbd_update_callback_t, arg: *mut c_void,
    ) -> c_int;
    fn rbd_update_unwatch(image: rbd_image_t, handle: u64) -> c_int;
    fn rbd_diff_iterate2(
        image: rbd_image_t, fromsnapname: *const c_char, ofs: u64, len: u64, include_parent: u8, whole_object: u8,
        cb: rbdgate_diff_cb_t, arg: *mut c_void,
    ) -> c_int;

    fn rbd_aio_create_completion(
        cb_arg: *mut c_void, complete_cb: rbd_callback_t, c: *mut rbd_completion_t,
    ) -> c_int;
    fn rbd_aio_get_return_value(c: rbd_completion_t) -> ssize_t;
    fn rbd_aio_release(c: rbd_completion_t);
    fn rbd_aio_readv(image: rbd_image_t, iov: *const iovec, iovcnt: c_int, off: u64, c: rbd_completion_t) -> c_int;
    fn rbd_aio_writev(image: rbd_image_t, iov: *const iovec, iovcnt: c_int, off: u64, c: rbd_completion_t) -> c_int;
    fn rbd_aio_writesame(
        image: rbd_image_t, off: u64, len: usize, buf: *const c_char, data_len: usize, c: rbd_completion_t,
        op_flags: c_int,
    ) -> c_int;
    fn rbd_aio_compare_and_write(
        image: rbd_image_t, off: u64, len: usize, cmp_buf: *const c_char, buf: *const c_char, c: rbd_completion_t,
        mismatch_off: *mut u64, op_flags: c_int,
    ) -> ssize_t;
    fn rbd_aio_discard(image: rbd_image_t, off: u64, len: u64, c: rbd_completion_t) -> c_int;
    fn rbd_aio_write_zeroes(
        image: rbd_image_t, off: u64, len: usize, c: rbd_completion_t, zero_flags: c_int, op_flags: c_int,
    ) -> c_int;
    fn rbd_aio_flush(image: rbd_image_t, c: rbd_completion_t) -> c_int;

    optional {}
}
