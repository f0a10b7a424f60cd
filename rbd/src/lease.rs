//! Advisory locks on objects: exclusive or shared, kept by whoever renews them in time.
//!
//! Advisory: the OSD keeps the book and nothing else. With an expiry a lock is a lease; taking it again
//! with [`Renew::May`] or [`Renew::Must`] extends it.

use std::time::Duration;

pub use crate::ffi::advisory::{Locker, Lockers, Renew};

use crate::error::{Context, Errno, Error, Op};
use crate::ffi::advisory::{self as raw, Names};
use crate::ffi::c_string;
use crate::object::Object;

/// A lock as one locker knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock<'a> {
    /// The lock's name on the object.
    pub name: &'a str,
    /// Tells this locker's holds apart from others of the same client.
    pub cookie: &'a str,
    /// For people who list the lockers.
    pub description: &'a str,
    /// When the OSD forgets it unless it is renewed; `None`: never.
    pub expiry: Option<Duration>,
}

impl Object {
    /// Takes the lock for this locker alone. The object is made if it does not exist.
    ///
    /// [`Kind::Busy`](crate::Kind::Busy): another has it. [`Kind::Exists`](crate::Kind::Exists): this one has it
    /// already ([`Renew::No`]). [`Kind::NotFound`](crate::Kind::NotFound): it has expired ([`Renew::Must`]).
    pub fn lock_exclusive(&self, lock: &Lock<'_>, renew: Renew) -> Result<(), Error> {
        self.locking(|| {
            let (name, cookie) = (c_string(lock.name)?, c_string(lock.cookie)?);
            let description = c_string(lock.description)?;
            let names = Names { lock: &name, cookie: &cookie, description: &description };
            raw::lock_exclusive(&self.io, &self.name, names, lock.expiry, renew)
        })
    }

    /// Takes the lock beside others that use the same `tag`.
    pub fn lock_shared(&self, lock: &Lock<'_>, tag: &str, renew: Renew) -> Result<(), Error> {
        self.locking(|| {
            let (name, cookie, tag) = (c_string(lock.name)?, c_string(lock.cookie)?, c_string(tag)?);
            let description = c_string(lock.description)?;
            let names = Names { lock: &name, cookie: &cookie, description: &description };
            raw::lock_shared(&self.io, &self.name, names, &tag, lock.expiry, renew)
        })
    }

    /// Gives it back. [`Kind::NotFound`](crate::Kind::NotFound): this locker does not have it.
    pub fn unlock(&self, name: &str, cookie: &str) -> Result<(), Error> {
        self.locking(|| raw::unlock(&self.io, &self.name, &c_string(name)?, &c_string(cookie)?))
    }

    /// Takes it from another locker. That one is not told: blocklist it first.
    pub fn break_lock(&self, name: &str, locker: &Locker) -> Result<(), Error> {
        self.locking(|| {
            let (client, cookie) = (c_string(&locker.client)?, c_string(&locker.cookie)?);
            raw::break_lock(&self.io, &self.name, &c_string(name)?, &client, &cookie)
        })
    }

    /// Who has it.
    pub fn lockers(&self, name: &str) -> Result<Lockers, Error> {
        self.locking(|| raw::lockers(&self.io, &self.name, &c_string(name)?))
    }

    fn locking<T>(&self, call: impl FnOnce() -> Result<T, Errno>) -> Result<T, Error> {
        call().context(Op::LockObject, &self.label)
    }
}
