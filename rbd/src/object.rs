//! Objects: read with their version, change by compare-and-swap, attributes, omap.
//!
//! The *version* of an object grows with every change. A change that shall only happen if nobody else came first
//! is a [`Transaction`] with [`assert_version`](Transaction::assert_version) (or a compared attribute): either all of it
//! happens or it fails with [`Kind::Mismatch`](crate::Kind::Mismatch), and the caller reads again.
//!
//! A `Transaction` is a description: each [`Object::apply`] puts a fresh C operation together from it, because C empties
//! an operation when it is operated, and operating it again changes nothing and reports success.

use std::ffi::CString;
use std::fmt;
use std::sync::Arc;

use crate::error::{Context, Errno, Error, Op};
use crate::ffi::c_string;
use crate::ffi::object::{self as raw, Pairs, WriteOp};
use crate::ffi::pool::IoCtx;
use crate::pool::Pool;

/// What an object held, and at which version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versioned {
    /// All of it.
    pub data: Vec<u8>,
    /// For [`Transaction::assert_version`].
    pub version: u64,
}

/// One step of a [`Transaction`].
#[derive(Clone, Debug)]
enum Step<'a> {
    AssertExists,
    AssertVersion(u64),
    CompareXattr(&'a str, &'a [u8]),
    CompareOmap(&'a [u8], &'a [u8]),
    Create { exclusive: bool },
    WriteFull(&'a [u8]),
    Remove,
    SetXattr(&'a str, &'a [u8]),
    RemoveXattr(&'a str),
    OmapSet(&'a [u8], &'a [u8]),
    OmapRemove(&'a [u8]),
    OmapClear,
}

/// Conditions and changes that happen together or not at all.
#[derive(Clone, Debug, Default)]
pub struct Transaction<'a> {
    steps: Vec<Step<'a>>,
}

impl<'a> Transaction<'a> {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    fn with(mut self, step: Step<'a>) -> Self {
        self.steps.push(step);
        self
    }

    /// Only if the object exists.
    #[must_use]
    pub fn assert_exists(self) -> Self {
        self.with(Step::AssertExists)
    }

    /// Only if the object is still at this version.
    #[must_use]
    pub fn assert_version(self, version: u64) -> Self {
        self.with(Step::AssertVersion(version))
    }

    /// Only if the attribute has this value.
    #[must_use]
    pub fn compare_xattr(self, name: &'a str, value: &'a [u8]) -> Self {
        self.with(Step::CompareXattr(name, value))
    }

    /// Only if the omap key has this value. An absent key compares as empty.
    #[must_use]
    pub fn compare_omap(self, key: &'a [u8], value: &'a [u8]) -> Self {
        self.with(Step::CompareOmap(key, value))
    }

    /// Makes the object; `exclusive`: only if it does not exist ([`Kind::Exists`](crate::Kind::Exists)).
    #[must_use]
    pub fn create(self, exclusive: bool) -> Self {
        self.with(Step::Create { exclusive })
    }

    /// Replaces the whole data.
    #[must_use]
    pub fn write_full(self, data: &'a [u8]) -> Self {
        self.with(Step::WriteFull(data))
    }

    /// Removes the object.
    #[must_use]
    pub fn remove(self) -> Self {
        self.with(Step::Remove)
    }

    /// Sets an attribute.
    #[must_use]
    pub fn set_xattr(self, name: &'a str, value: &'a [u8]) -> Self {
        self.with(Step::SetXattr(name, value))
    }

    /// Removes an attribute.
    #[must_use]
    pub fn remove_xattr(self, name: &'a str) -> Self {
        self.with(Step::RemoveXattr(name))
    }

    /// Sets an omap key. Any bytes.
    #[must_use]
    pub fn omap_set(self, key: &'a [u8], value: &'a [u8]) -> Self {
        self.with(Step::OmapSet(key, value))
    }

    /// Removes an omap key.
    #[must_use]
    pub fn omap_remove(self, key: &'a [u8]) -> Self {
        self.with(Step::OmapRemove(key))
    }

    /// Removes every omap key.
    #[must_use]
    pub fn omap_clear(self) -> Self {
        self.with(Step::OmapClear)
    }

    /// A fresh C operation.
    fn build(&self, io: &IoCtx) -> Result<WriteOp, Errno> {
        let mut op = WriteOp::new(io);
        for step in &self.steps {
            match step {
                Step::AssertExists => op.assert_exists(),
                Step::AssertVersion(version) => op.assert_version(*version),
                Step::CompareXattr(name, value) => op.compare_xattr(&c_string(name)?, value),
                Step::CompareOmap(key, value) => op.compare_omap(key, value),
                Step::Create { exclusive } => op.create(*exclusive),
                Step::WriteFull(data) => op.write_full(data),
                Step::Remove => op.remove(),
                Step::SetXattr(name, value) => op.set_xattr(&c_string(name)?, value),
                Step::RemoveXattr(name) => op.remove_xattr(&c_string(name)?),
                Step::OmapSet(key, value) => op.omap_set(key, value),
                Step::OmapRemove(key) => op.omap_remove(key),
                Step::OmapClear => op.omap_clear(),
            }
        }
        Ok(op)
    }
}

/// One object of a pool, which may or may not exist.
#[derive(Clone)]
pub struct Object {
    pub(crate) io: Arc<IoCtx>,
    pub(crate) name: CString,
    /// `pool/object`, for messages.
    pub(crate) label: String,
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Object").field(&self.label).finish()
    }
}

/// The first guess of how long an object is.
const READ_GUESS: usize = 64 << 10;

/// An attribute is never longer (the OSD's own limit, `osd_max_attr_size`, is 64 KiB by default).
const XATTR_LIMIT: usize = 64 << 10;

impl Object {
    pub(crate) fn new(pool: &Pool, name: &str) -> Result<Self, Error> {
        let label = pool.path(name);
        let name = c_string(name).context(Op::ReadObject, &label)?;
        Ok(Self { io: Arc::clone(&pool.io), name, label })
    }

    /// Its name in the pool.
    pub fn name(&self) -> std::borrow::Cow<'_, str> {
        self.name.to_string_lossy()
    }

    /// Reads all of it, with its version; `EFBIG` when it is longer than `limit` bytes.
    pub fn read(&self, limit: usize) -> Result<Versioned, Error> {
        let mut room = READ_GUESS.min(limit);
        loop {
            // An ioctx of its own, so that the version is of this read and not of another thread's.
            let mut io = self.io.sibling().context(Op::ReadObject, &self.label)?;
            let mut data = vec![0; room];
            let (size, got) = raw::read(&io, &self.name, &mut data).context(Op::ReadObject, &self.label)?;
            let size = usize::try_from(size).unwrap_or(usize::MAX);
            if size <= room {
                data.truncate(got);
                return Ok(Versioned { data, version: io.last_version() });
            }
            if size > limit {
                return Err(Error::new(Op::ReadObject, &self.label, Errno(libc::EFBIG)));
            }
            room = size;
        }
    }

    /// Carries a transaction out; the version that the object then has.
    pub fn apply(&self, transaction: &Transaction<'_>) -> Result<u64, Error> {
        let mut io = self.io.sibling().context(Op::WriteObject, &self.label)?;
        let op = transaction.build(&io).context(Op::WriteObject, &self.label)?;
        op.operate(&io, &self.name).context(Op::WriteObject, &self.label)?;
        Ok(io.last_version())
    }

    /// Makes the object with this content, if there is none yet.
    pub fn create(&self, data: &[u8]) -> Result<u64, Error> {
        self.apply(&Transaction::new().create(true).write_full(data))
    }

    /// Replaces the content if the object is still at `version`.
    pub fn replace(&self, data: &[u8], version: u64) -> Result<u64, Error> {
        self.apply(&Transaction::new().assert_version(version).write_full(data))
    }

    /// Replaces the content, whatever it was.
    pub fn write(&self, data: &[u8]) -> Result<u64, Error> {
        self.apply(&Transaction::new().write_full(data))
    }

    /// Removes it.
    pub fn remove(&self) -> Result<(), Error> {
        self.apply(&Transaction::new().remove()).map(drop)
    }

    /// The value of an attribute.
    pub fn xattr(&self, name: &str) -> Result<Vec<u8>, Error> {
        c_string(name)
            .and_then(|name| raw::xattr(&self.io, &self.name, &name, XATTR_LIMIT))
            .context(Op::ReadObject, &self.label)
    }

    /// The omap pairs of those of `keys` that exist.
    pub fn omap_get(&self, keys: &[&[u8]]) -> Result<Pairs, Error> {
        raw::omap_get(&self.io, &self.name, keys).context(Op::ReadObject, &self.label)
    }

    /// Omap pairs in the order of their keys: those that begin with `prefix`, after the key `after` (empty: from the
    /// first), at most `limit`; and whether there are more. Neither may contain a NUL.
    pub fn omap_list(&self, after: &[u8], prefix: &[u8], limit: u64) -> Result<(Pairs, bool), Error> {
        let list = || {
            let (after, prefix) = (raw::without_nul(after)?, raw::without_nul(prefix)?);
            raw::omap_list(&self.io, &self.name, &after, &prefix, limit)
        };
        list().context(Op::ReadObject, &self.label)
    }
}
