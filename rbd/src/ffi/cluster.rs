//! A `rados_t`: one client of one cluster.

use std::ffi::{CString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{null, null_mut};

use super::library::Library;
use super::types::rados_t;
use super::{c_string, check, copy_c_string, text, texts};
use crate::error::Errno;

/// Owns a `rados_t`; drop shuts the client down.
pub(crate) struct ClusterHandle {
    pub(super) library: &'static Library,
    pub(super) raw: rados_t,
}

// SAFETY: a rados_t may be used and shut down from any thread (invariant "locked").
unsafe impl Send for ClusterHandle {}
// SAFETY: as above.
unsafe impl Sync for ClusterHandle {}

impl Drop for ClusterHandle {
    fn drop(&mut self) {
        // SAFETY: the last owner; ioctxs hold an Arc of this, so none is left. Valid before connecting, too.
        unsafe { (self.library.rados.rados_shutdown)(self.raw) };
    }
}

impl ClusterHandle {
    /// A client called `name` (`client.admin`), not connected yet.
    pub(crate) fn create(library: &'static Library, name: &str) -> Result<Self, Errno> {
        let name = c_string(name)?;
        let mut raw = null_mut();
        // SAFETY: `raw` and both strings are valid during the call.
        let returned =
            unsafe { (library.rados.rados_create2)(&raw mut raw, c"ceph".as_ptr(), name.as_ptr(), 0) };
        check(returned)?;
        Ok(Self { library, raw })
    }

    pub(crate) fn read_conf(&mut self, path: &Path) -> Result<(), Errno> {
        let path = CString::new(path.as_os_str().as_bytes()).map_err(|_nul| Errno(libc::EINVAL))?;
        // SAFETY: the handle is alive, the path valid during the call.
        check(unsafe { (self.library.rados.rados_conf_read_file)(self.raw, path.as_ptr()) })?;
        Ok(())
    }

    pub(crate) fn set_option(&mut self, option: &str, value: &str) -> Result<(), Errno> {
        let (option, value) = (c_string(option)?, c_string(value)?);
        // SAFETY: the handle is alive, the strings valid during the call.
        check(unsafe { (self.library.rados.rados_conf_set)(self.raw, option.as_ptr(), value.as_ptr()) })?;
        Ok(())
    }

    pub(crate) fn option(&self, option: &str) -> Result<String, Errno> {
        let option = c_string(option)?;
        text(|buffer| {
            let into = buffer.as_mut_ptr().cast();
            // SAFETY: the handle is alive; C writes at most `len` bytes.
            unsafe { (self.library.rados.rados_conf_get)(self.raw, option.as_ptr(), into, buffer.len()) }
        })
    }

    pub(crate) fn connect(&mut self) -> Result<(), Errno> {
        // SAFETY: the handle is alive and, by `&mut`, not used by anyone else yet.
        check(unsafe { (self.library.rados.rados_connect)(self.raw) })?;
        Ok(())
    }

    pub(crate) fn fsid(&self) -> Result<String, Errno> {
        text(|buffer| {
            let into = buffer.as_mut_ptr().cast();
            // SAFETY: the handle is alive; C writes at most `len` bytes.
            unsafe { (self.library.rados.rados_cluster_fsid)(self.raw, into, buffer.len()) }
        })
    }

    pub(crate) fn instance_id(&self) -> u64 {
        // SAFETY: the handle is alive.
        unsafe { (self.library.rados.rados_get_instance_id)(self.raw) }
    }

    /// The addresses that a blocklist entry has to name to cut this client off.
    pub(crate) fn addresses(&self) -> Result<String, Errno> {
        let mut addresses: *mut c_char = null_mut();
        // SAFETY: the handle is alive; C stores a string of its own that we free below.
        check(unsafe { (self.library.rados.rados_getaddrs)(self.raw, &raw mut addresses) })?;
        // SAFETY: C succeeded, so this is a NUL-terminated string of ours.
        let copy = unsafe { copy_c_string(addresses) };
        self.free(addresses);
        Ok(copy)
    }

    /// Sends one command (JSON). The answer, or the errno with what the monitor said about it.
    pub(crate) fn mon_command(&self, command: &str, input: &[u8]) -> Result<Vec<u8>, (Errno, String)> {
        let command = c_string(command).map_err(|errno| (errno, String::new()))?;
        let mut commands = [command.as_ptr()];
        let (mut out, mut out_len, mut said, mut said_len) = (null_mut(), 0, null_mut(), 0);
        // SAFETY: the handle is alive; inputs are valid during the call; outputs are stored through valid pointers.
        let returned = unsafe {
            (self.library.rados.rados_mon_command)(
                self.raw,
                commands.as_mut_ptr(),
                commands.len(),
                input.as_ptr().cast(),
                input.len(),
                &raw mut out,
                &raw mut out_len,
                &raw mut said,
                &raw mut said_len,
            )
        };
        let (out, said) = (self.take(out, out_len), self.take(said, said_len));
        match check(returned) {
            Ok(_) => Ok(out),
            Err(errno) => Err((errno, String::from_utf8_lossy(&said).into_owned())),
        }
    }

    /// Blocklists `address`; `None` when this librados has no such call.
    pub(crate) fn blocklist_add(&self, address: &str, seconds: u32) -> Option<Result<(), Errno>> {
        let call = self.library.rados.rados_blocklist_add?;
        let address = match c_string(address) {
            Ok(address) => address,
            Err(errno) => return Some(Err(errno)),
        };
        // SAFETY: the handle is alive; C only reads the address, its missing `const` notwithstanding.
        let returned = unsafe { call(self.raw, address.as_ptr().cast_mut(), seconds) };
        Some(check(returned).map(drop))
    }

    pub(crate) fn wait_for_latest_osdmap(&self) -> Result<(), Errno> {
        // SAFETY: the handle is alive.
        check(unsafe { (self.library.rados.rados_wait_for_latest_osdmap)(self.raw) })?;
        Ok(())
    }

    pub(crate) fn pools(&self) -> Result<Vec<String>, Errno> {
        let mut buffer = vec![0_u8; 4096];
        loop {
            let into = buffer.as_mut_ptr().cast();
            // SAFETY: the handle is alive; C writes at most `len` bytes and returns how many it would like to.
            let returned = unsafe { (self.library.rados.rados_pool_list)(self.raw, into, buffer.len()) };
            let needed = check(returned)?;
            if needed <= buffer.len() {
                return Ok(texts(&buffer));
            }
            buffer = vec![0; needed];
        }
    }

    /// Waits until no watch callback of this client is running or queued.
    pub(crate) fn watch_flush(&self) -> Result<(), Errno> {
        // SAFETY: the handle is alive; called from our own threads only, never from a callback.
        check(unsafe { (self.library.rados.rados_watch_flush)(self.raw) })?;
        Ok(())
    }

    /// Copies a buffer that C allocated, and frees it.
    pub(super) fn take(&self, buffer: *mut c_char, len: usize) -> Vec<u8> {
        if buffer.is_null() {
            return Vec::new();
        }
        // SAFETY: C returned this buffer with this length, and it is ours until freed.
        let copy = unsafe { std::slice::from_raw_parts(buffer.cast::<u8>().cast_const(), len) }.to_vec();
        self.free(buffer);
        copy
    }

    fn free(&self, buffer: *mut c_char) {
        if buffer != null::<c_char>().cast_mut() {
            // SAFETY: C allocated it for us to free this way, and this is the only time.
            unsafe { (self.library.rados.rados_buffer_free)(buffer) };
        }
    }
}
