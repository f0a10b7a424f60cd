//! Operations on one object: compound writes, compound reads, extended attributes, omap.
//!
//! A C write operation is emptied by being operated (operating it again does nothing and returns 0), so
//! [`WriteOp::operate`] consumes it.

use std::ffi::{CStr, CString, c_char};
use std::ptr::{null, null_mut};

use super::check;
use super::library::Library;
use super::pool::IoCtx;
use super::types::*;
use crate::error::Errno;

/// A compound write being put together. C copies everything that is handed in.
pub(crate) struct WriteOp {
    library: &'static Library,
    raw: rados_write_op_t,
}

impl Drop for WriteOp {
    fn drop(&mut self) {
        // SAFETY: ours, released once.
        unsafe { (self.library.rados.rados_release_write_op)(self.raw) };
    }
}

impl WriteOp {
    pub(crate) fn new(io: &IoCtx) -> Self {
        let library = io.cluster.library;
        // SAFETY: no argument; C allocates and never returns null.
        let raw = unsafe { (library.rados.rados_create_write_op)() };
        Self { library, raw }
    }

    pub(crate) fn assert_exists(&mut self) {
        // SAFETY: the operation is ours and not operated yet; so in every method below.
        unsafe { (self.library.rados.rados_write_op_assert_exists)(self.raw) };
    }

    pub(crate) fn assert_version(&mut self, version: u64) {
        // SAFETY: see `assert_exists`.
        unsafe { (self.library.rados.rados_write_op_assert_version)(self.raw, version) };
    }

    pub(crate) fn compare_xattr(&mut self, name: &CStr, value: &[u8]) {
        let (at, len) = (value.as_ptr().cast(), value.len());
        let equal = LIBRADOS_CMPXATTR_OP_EQ;
        // SAFETY: see `assert_exists`; C copies name and value.
        unsafe { (self.library.rados.rados_write_op_cmpxattr)(self.raw, name.as_ptr(), equal, at, len) };
    }

    pub(crate) fn compare_omap(&mut self, key: &[u8], value: &[u8]) {
        let (key_at, value_at) = (key.as_ptr().cast(), value.as_ptr().cast());
        let equal = LIBRADOS_CMPXATTR_OP_EQ;
        // SAFETY: see `assert_exists`; C copies key and value; no place for an extra return value is given.
        unsafe {
            (self.library.rados.rados_write_op_omap_cmp2)(
                self.raw,
                key_at,
                equal,
                value_at,
                key.len(),
                value.len(),
                null_mut(),
            );
        }
    }

    pub(crate) fn set_xattr(&mut self, name: &CStr, value: &[u8]) {
        let (at, len) = (value.as_ptr().cast(), value.len());
        // SAFETY: see `assert_exists`; C copies name and value.
        unsafe { (self.library.rados.rados_write_op_setxattr)(self.raw, name.as_ptr(), at, len) };
    }

    pub(crate) fn remove_xattr(&mut self, name: &CStr) {
        // SAFETY: see `assert_exists`; C copies the name.
        unsafe { (self.library.rados.rados_write_op_rmxattr)(self.raw, name.as_ptr()) };
    }

    pub(crate) fn create(&mut self, exclusive: bool) {
        let how = if exclusive { LIBRADOS_CREATE_EXCLUSIVE } else { LIBRADOS_CREATE_IDEMPOTENT };
        // SAFETY: see `assert_exists`; a null category is allowed.
        unsafe { (self.library.rados.rados_write_op_create)(self.raw, how, null()) };
    }

    pub(crate) fn write_full(&mut self, data: &[u8]) {
        // SAFETY: see `assert_exists`; C copies the data.
        unsafe { (self.library.rados.rados_write_op_write_full)(self.raw, data.as_ptr().cast(), data.len()) };
    }

    pub(crate) fn remove(&mut self) {
        // SAFETY: see `assert_exists`.
        unsafe { (self.library.rados.rados_write_op_remove)(self.raw) };
    }

    pub(crate) fn omap_set(&mut self, key: &[u8], value: &[u8]) {
        let (keys, values): ([*const c_char; 1], [*const c_char; 1]) =
            ([key.as_ptr().cast()], [value.as_ptr().cast()]);
        let (key_len, value_len) = (key.len(), value.len());
        // SAFETY: see `assert_exists`; arrays of one, which C copies with what they point to.
        unsafe {
            (self.library.rados.rados_write_op_omap_set2)(
                self.raw,
                keys.as_ptr(),
                values.as_ptr(),
                &raw const key_len,
                &raw const value_len,
                1,
            );
        }
    }

    pub(crate) fn omap_remove(&mut self, key: &[u8]) {
        let keys: [*const c_char; 1] = [key.as_ptr().cast()];
        let len = key.len();
        // SAFETY: see `assert_exists`; arrays of one, which C copies with what they point to.
        unsafe {
            (self.library.rados.rados_write_op_omap_rm_keys2)(self.raw, keys.as_ptr(), &raw const len, 1);
        };
    }

    pub(crate) fn omap_clear(&mut self) {
        // SAFETY: see `assert_exists`.
        unsafe { (self.library.rados.rados_write_op_omap_clear)(self.raw) };
    }

    /// Carries it out, all or nothing.
    pub(crate) fn operate(self, io: &IoCtx, object: &CStr) -> Result<(), Errno> {
        // SAFETY: the operation is ours, the ioctx alive; no modification time is given.
        let returned = unsafe {
            (self.library.rados.rados_write_op_operate)(self.raw, io.raw, object.as_ptr(), null_mut(), 0)
        };
        check(returned)?;
        Ok(())
    }
}

/// A compound read being put together.
struct ReadOp {
    library: &'static Library,
    raw: rados_read_op_t,
}

impl Drop for ReadOp {
    fn drop(&mut self) {
        // SAFETY: ours, released once.
        unsafe { (self.library.rados.rados_release_read_op)(self.raw) };
    }
}

impl ReadOp {
    fn new(io: &IoCtx) -> Self {
        let library = io.cluster.library;
        // SAFETY: no argument; C allocates and never returns null.
        let raw = unsafe { (library.rados.rados_create_read_op)() };
        Self { library, raw }
    }

    fn operate(&mut self, io: &IoCtx, object: &CStr) -> Result<(), Errno> {
        // SAFETY: the operation is ours and its outputs outlive the call; the ioctx is alive.
        check(unsafe { (self.library.rados.rados_read_op_operate)(self.raw, io.raw, object.as_ptr(), 0) })?;
        Ok(())
    }
}

/// The object's size, and its first `buffer.len()` bytes with their number, in one atomic step.
pub(crate) fn read(io: &IoCtx, object: &CStr, buffer: &mut [u8]) -> Result<(u64, usize), Errno> {
    let (mut size, mut got, mut stat_result, mut read_result) = (0, 0, 0, 0);
    let mut op = ReadOp::new(io);
    let rados = &op.library.rados;
    // SAFETY: the operation is ours; the outputs live until it has been operated and dropped.
    unsafe { (rados.rados_read_op_stat)(op.raw, &raw mut size, null_mut(), &raw mut stat_result) };
    let (at, len) = (buffer.as_mut_ptr().cast(), buffer.len());
    // SAFETY: as above; C writes at most `len` bytes.
    unsafe { (rados.rados_read_op_read)(op.raw, 0, len, at, &raw mut got, &raw mut read_result) };
    op.operate(io, object)?;
    drop(op);
    check(stat_result)?;
    check(read_result)?;
    Ok((size, got.min(len)))
}

/// The value of an attribute, through a buffer of `limit` bytes; `ERANGE` when it is longer.
pub(crate) fn xattr(io: &IoCtx, object: &CStr, name: &CStr, limit: usize) -> Result<Vec<u8>, Errno> {
    let mut buffer = vec![0_u8; limit];
    let at = buffer.as_mut_ptr().cast();
    // SAFETY: the ioctx is alive; C writes at most `limit` bytes.
    let returned = unsafe {
        (io.cluster.library.rados.rados_getxattr)(io.raw, object.as_ptr(), name.as_ptr(), at, buffer.len())
    };
    buffer.truncate(check(returned)?);
    Ok(buffer)
}

/// Keys and values.
pub(crate) type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// At most `limit` pairs whose keys begin with `prefix` and come after `after`; and whether there are more.
pub(crate) fn omap_list(
    io: &IoCtx,
    object: &CStr,
    after: &CStr,
    prefix: &CStr,
    limit: u64,
) -> Result<(Pairs, bool), Errno> {
    let (mut more, mut result) = (0_u8, 0);
    let mut op = ReadOp::new(io);
    let mut pairs = OmapPairs { library: op.library, raw: null_mut() };
    // SAFETY: the operation is ours; C copies the strings; the outputs live until it has been operated and dropped.
    unsafe {
        (op.library.rados.rados_read_op_omap_get_vals2)(
            op.raw,
            after.as_ptr(),
            prefix.as_ptr(),
            limit,
            &raw mut pairs.raw,
            &raw mut more,
            &raw mut result,
        );
    }
    op.operate(io, object)?;
    check(result)?;
    Ok((pairs.collect()?, more != 0))
}

/// The pairs of those of `keys` that exist.
pub(crate) fn omap_get(io: &IoCtx, object: &CStr, keys: &[&[u8]]) -> Result<Pairs, Errno> {
    let pointers: Vec<*const c_char> = keys.iter().map(|key| key.as_ptr().cast()).collect();
    let lengths: Vec<usize> = keys.iter().map(|key| key.len()).collect();
    let mut result = 0;
    let mut op = ReadOp::new(io);
    let mut pairs = OmapPairs { library: op.library, raw: null_mut() };
    // SAFETY: the operation is ours; C copies the keys; the outputs live until it has been operated and dropped.
    unsafe {
        (op.library.rados.rados_read_op_omap_get_vals_by_keys2)(
            op.raw,
            pointers.as_ptr(),
            pointers.len(),
            lengths.as_ptr(),
            &raw mut pairs.raw,
            &raw mut result,
        );
    }
    op.operate(io, object)?;
    check(result)?;
    pairs.collect()
}

/// Owns a `rados_omap_iter_t`. C sets it when the read is put together, before it is operated.
struct OmapPairs {
    library: &'static Library,
    raw: rados_omap_iter_t,
}

impl Drop for OmapPairs {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: ours, ended once, after the operation that fills it.
            unsafe { (self.library.rados.rados_omap_get_end)(self.raw) };
        }
    }
}

impl OmapPairs {
    /// Copies everything out. Only after the operation has succeeded.
    fn collect(self) -> Result<Pairs, Errno> {
        let mut pairs = Vec::new();
        loop {
            let (mut key, mut value, mut key_len, mut value_len) = (null_mut(), null_mut(), 0, 0);
            // SAFETY: the iterator is filled; C stores pointers into it that stay valid until the next call.
            let returned = unsafe {
                (self.library.rados.rados_omap_get_next2)(
                    self.raw,
                    &raw mut key,
                    &raw mut value,
                    &raw mut key_len,
                    &raw mut value_len,
                )
            };
            check(returned)?;
            if key.is_null() {
                return Ok(pairs);
            }
            pairs.push((bytes(key, key_len), bytes(value, value_len)));
        }
    }
}

/// A copy of what the iterator points to.
fn bytes(at: *const c_char, len: usize) -> Vec<u8> {
    if at.is_null() || len == 0 {
        return Vec::new();
    }
    // SAFETY: the iterator returned this pointer and length, and is not advanced during the copy.
    unsafe { std::slice::from_raw_parts(at.cast::<u8>(), len) }.to_vec()
}

/// Bytes as a C string, for the places where C takes no length; a NUL inside is `EINVAL`.
pub(crate) fn without_nul(bytes: &[u8]) -> Result<CString, Errno> {
    CString::new(bytes).map_err(|_nul| Errno(libc::EINVAL))
}
