//! A pool, or a namespace of one: its images, and the way to its objects.

use std::fmt;
use std::sync::Arc;

use crate::cluster::Cluster;
use crate::error::{Context, Errno, Error, Op};
use crate::ffi::images::{self, Layout};
use crate::ffi::pool::IoCtx;
use crate::ffi::types::*;
use crate::object::Object;

/// What an image can do. Bits of librbd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features(pub u64);

impl Features {
    /// Clones.
    pub const LAYERING: Self = Self(RBD_FEATURE_LAYERING);
    /// Stripes over several objects at a time.
    pub const STRIPING: Self = Self(RBD_FEATURE_STRIPINGV2);
    /// One writer at a time.
    pub const EXCLUSIVE_LOCK: Self = Self(RBD_FEATURE_EXCLUSIVE_LOCK);
    /// Knows which objects exist. Needs the exclusive lock.
    pub const OBJECT_MAP: Self = Self(RBD_FEATURE_OBJECT_MAP);
    /// Fast differences. Needs the object map.
    pub const FAST_DIFF: Self = Self(RBD_FEATURE_FAST_DIFF);
    /// Flattening includes snapshots.
    pub const DEEP_FLATTEN: Self = Self(RBD_FEATURE_DEEP_FLATTEN);
    /// Journal for mirroring. Needs the exclusive lock.
    pub const JOURNALING: Self = Self(RBD_FEATURE_JOURNALING);
    /// Data in another pool than the header.
    pub const DATA_POOL: Self = Self(RBD_FEATURE_DATA_POOL);

    /// What images of ours have: layering, exclusive-lock, object-map, fast-diff, deep-flatten.
    pub const DEFAULT: Self = Self(
        RBD_FEATURE_LAYERING
            | RBD_FEATURE_EXCLUSIVE_LOCK
            | RBD_FEATURE_OBJECT_MAP
            | RBD_FEATURE_FAST_DIFF
            | RBD_FEATURE_DEEP_FLATTEN,
    );

    /// Has all of `others`.
    pub fn contains(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// Both together.
    pub const fn union(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }
}

/// How to make an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewImage {
    /// Bytes.
    pub size: u64,
    /// What it can do.
    pub features: Features,
    /// log2 of the object size in bytes (12 to 25); `None`: the cluster's default, 22 (4 MiB).
    pub order: Option<u8>,
    /// Stripe unit (bytes) and count; needs [`Features::STRIPING`].
    pub stripes: Option<(u64, u64)>,
}

impl NewImage {
    /// An image with the default features and layout.
    pub fn new(size: u64) -> Self {
        Self { size, features: Features::DEFAULT, order: None, stripes: None }
    }
}

/// An open pool, or a namespace of one. Clones share it.
#[derive(Clone)]
pub struct Pool {
    pub(crate) io: Arc<IoCtx>,
    cluster: Cluster,
    /// `pool` or `pool/namespace`.
    label: Arc<str>,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("name", &self.label).field("id", &self.io.id()).finish_non_exhaustive()
    }
}

impl Cluster {
    /// Opens a pool. Writes to it fail when it is full, instead of waiting for ever.
    pub fn pool(&self, name: &str) -> Result<Pool, Error> {
        self.pool_namespace(name, "")
    }

    /// Opens a namespace of a pool. That it exists is not checked; see [`Pool::namespace_exists`].
    pub fn pool_namespace(&self, name: &str, namespace: &str) -> Result<Pool, Error> {
        let io = IoCtx::open(&self.handle, name, namespace).context(Op::OpenPool, name)?;
        let label = if namespace.is_empty() { name.into() } else { format!("{name}/{namespace}").into() };
        Ok(Pool { io: Arc::new(io), cluster: self.clone(), label })
    }
}

impl Pool {
    /// `pool` or `pool/namespace`.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// The pool's number.
    pub fn id(&self) -> i64 {
        self.io.id()
    }

    /// The namespace; empty is the default one.
    pub fn namespace(&self) -> &str {
        self.io.namespace()
    }

    /// The client it was opened through.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// An object, which need not exist. A NUL in its name is `EINVAL`.
    pub fn object(&self, name: &str) -> Result<Object, Error> {
        Object::new(self, name)
    }

    /// Makes a namespace for images.
    pub fn create_namespace(&self, name: &str) -> Result<(), Error> {
        images::namespace_create(&self.io, name).context(Op::Namespace, &format!("{}/{name}", self.label))
    }

    /// True when images can be in that namespace.
    pub fn namespace_exists(&self, name: &str) -> Result<bool, Error> {
        images::namespace_exists(&self.io, name).context(Op::Namespace, &format!("{}/{name}", self.label))
    }

    /// The names of all images.
    pub fn images(&self) -> Result<Vec<String>, Error> {
        match images::list(&self.io) {
            // A pool that never had an image.
            Err(Errno(libc::ENOENT)) => Ok(Vec::new()),
            outcome => outcome.context(Op::ListImages, &self.label),
        }
    }

    /// Makes an image.
    pub fn create_image(&self, name: &str, new: NewImage) -> Result<(), Error> {
        let layout = Layout { features: new.features.0, order: new.order, stripes: new.stripes };
        images::create(&self.io, name, new.size, layout).context(Op::CreateImage, &self.path(name))
    }

    /// Removes an image and its data. Blocks as long as that takes.
    pub fn remove_image(&self, name: &str) -> Result<(), Error> {
        images::remove(&self.io, name).context(Op::RemoveImage, &self.path(name))
    }

    /// `pool/image`, for messages.
    pub(crate) fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.label)
    }
}
