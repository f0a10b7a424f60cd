//! A `rados_ioctx_t`: a pool, and a namespace in it, as one client sees it.

use std::ptr::null_mut;
use std::sync::Arc;

use super::cluster::ClusterHandle;
use super::types::rados_ioctx_t;
use super::{c_string, check};
use crate::error::Errno;

/// Owns a `rados_ioctx_t` and keeps its client alive. Its namespace does not change once it is shared.
pub(crate) struct IoCtx {
    pub(super) cluster: Arc<ClusterHandle>,
    pub(super) raw: rados_ioctx_t,
    namespace: String,
}

// SAFETY: an ioctx may be used and destroyed from any thread (invariant "locked"). What it keeps per ioctx, the version of
// the last operation, is only read on one that nobody else has (`sibling`).
unsafe impl Send for IoCtx {}
// SAFETY: as above.
unsafe impl Sync for IoCtx {}

impl Drop for IoCtx {
    fn drop(&mut self) {
        // SAFETY: the last owner; images and watches hold an Arc of this, so none is left.
        unsafe { (self.cluster.library.rados.rados_ioctx_destroy)(self.raw) };
    }
}

impl IoCtx {
    /// Opens a pool by name, in a namespace (empty: the default one).
    pub(crate) fn open(cluster: &Arc<ClusterHandle>, pool: &str, namespace: &str) -> Result<Self, Errno> {
        let pool = c_string(pool)?;
        let mut raw = null_mut();
        // SAFETY: the cluster is alive and connected; `raw` is valid.
        check(unsafe {
            (cluster.library.rados.rados_ioctx_create)(cluster.raw, pool.as_ptr(), &raw mut raw)
        })?;
        Self::finish(cluster, raw, namespace)
    }

    /// Another ioctx on the same pool and namespace. No round trip.
    pub(crate) fn sibling(&self) -> Result<Self, Errno> {
        let mut raw = null_mut();
        // SAFETY: the cluster is alive and connected; `raw` is valid.
        let returned = unsafe {
            (self.cluster.library.rados.rados_ioctx_create2)(self.cluster.raw, self.id(), &raw mut raw)
        };
        check(returned)?;
        Self::finish(&self.cluster, raw, &self.namespace)
    }

    fn finish(cluster: &Arc<ClusterHandle>, raw: rados_ioctx_t, namespace: &str) -> Result<Self, Errno> {
        let new = Self { cluster: Arc::clone(cluster), raw, namespace: namespace.to_owned() };
        let namespace = c_string(namespace)?;
        // SAFETY: the ioctx is alive and nobody else has it.
        unsafe { (new.cluster.library.rados.rados_ioctx_set_namespace)(new.raw, namespace.as_ptr()) };
        // Without this, librados keeps writes to a full pool waiting for ever; with it they fail with ENOSPC or EDQUOT.
        // SAFETY: as above.
        unsafe { (new.cluster.library.rados.rados_set_pool_full_try)(new.raw) };
        Ok(new)
    }

    /// The pool's number.
    pub(crate) fn id(&self) -> i64 {
        // SAFETY: the ioctx is alive.
        unsafe { (self.cluster.library.rados.rados_ioctx_get_id)(self.raw) }
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The version of the object that the last operation through this ioctx saw or made.
    /// Only meaningful on an ioctx that one thread has alone.
    pub(crate) fn last_version(&mut self) -> u64 {
        // SAFETY: the ioctx is alive.
        unsafe { (self.cluster.library.rados.rados_get_last_version)(self.raw) }
    }
}
