//! Advisory locks on objects (the OSD's lock class): exclusive or shared, with an optional expiry.

use std::ffi::CStr;
use std::time::Duration;

use libc::timeval;

use super::pool::IoCtx;
use super::types::{LIBRADOS_LOCK_FLAG_MAY_RENEW, LIBRADOS_LOCK_FLAG_MUST_RENEW};
use super::{check, check_long, texts, until_nul};
use crate::error::Errno;

/// The names of one locker: lock, cookie, description.
#[derive(Clone, Copy)]
pub(crate) struct Names<'a> {
    pub(crate) lock: &'a CStr,
    pub(crate) cookie: &'a CStr,
    pub(crate) description: &'a CStr,
}

/// What to do when this locker has the lock already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renew {
    /// Fail with `EEXIST`.
    No,
    /// Extend it.
    May,
    /// Extend it, and fail (`ENOENT`) when it is not held any more.
    Must,
}

impl Renew {
    fn flags(self) -> u8 {
        match self {
            Self::No => 0,
            Self::May => LIBRADOS_LOCK_FLAG_MAY_RENEW,
            Self::Must => LIBRADOS_LOCK_FLAG_MUST_RENEW,
        }
    }
}

pub(crate) fn lock_exclusive(
    io: &IoCtx,
    object: &CStr,
    names: Names<'_>,
    expiry: Option<Duration>,
    renew: Renew,
) -> Result<(), Errno> {
    let mut duration = as_timeval(expiry);
    // SAFETY: the ioctx is alive; the strings and the duration are valid during the call.
    let returned = unsafe {
        (io.cluster.library.rados.rados_lock_exclusive)(
            io.raw,
            object.as_ptr(),
            names.lock.as_ptr(),
            names.cookie.as_ptr(),
            names.description.as_ptr(),
            &raw mut duration,
            renew.flags(),
        )
    };
    check(returned).map(drop)
}

pub(crate) fn lock_shared(
    io: &IoCtx,
    object: &CStr,
    names: Names<'_>,
    tag: &CStr,
    expiry: Option<Duration>,
    renew: Renew,
) -> Result<(), Errno> {
    let mut duration = as_timeval(expiry);
    // SAFETY: the ioctx is alive; the strings and the duration are valid during the call.
    let returned = unsafe {
        (io.cluster.library.rados.rados_lock_shared)(
            io.raw,
            object.as_ptr(),
            names.lock.as_ptr(),
            names.cookie.as_ptr(),
            tag.as_ptr(),
            names.description.as_ptr(),
            &raw mut duration,
            renew.flags(),
        )
    };
    check(returned).map(drop)
}

pub(crate) fn unlock(io: &IoCtx, object: &CStr, lock: &CStr, cookie: &CStr) -> Result<(), Errno> {
    // SAFETY: the ioctx is alive; the strings are valid during the call.
    let returned = unsafe {
        (io.cluster.library.rados.rados_unlock)(io.raw, object.as_ptr(), lock.as_ptr(), cookie.as_ptr())
    };
    check(returned).map(drop)
}

pub(crate) fn break_lock(
    io: &IoCtx,
    object: &CStr,
    lock: &CStr,
    client: &CStr,
    cookie: &CStr,
) -> Result<(), Errno> {
    // SAFETY: the ioctx is alive; the strings are valid during the call.
    let returned = unsafe {
        (io.cluster.library.rados.rados_break_lock)(
            io.raw,
            object.as_ptr(),
            lock.as_ptr(),
            client.as_ptr(),
            cookie.as_ptr(),
        )
    };
    check(returned).map(drop)
}

/// Who has a lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lockers {
    /// At most one.
    pub exclusive: bool,
    /// The tag that shared lockers agree on.
    pub tag: String,
    /// Each one.
    pub lockers: Vec<Locker>,
}

/// One that has a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Locker {
    /// `client.4123`.
    pub client: String,
    /// What it chose.
    pub cookie: String,
    /// Its address, `127.0.0.1:0/1234`.
    pub address: String,
}

pub(crate) fn lockers(io: &IoCtx, object: &CStr, lock: &CStr) -> Result<Lockers, Errno> {
    let mut room = 4096;
    loop {
        match lockers_within(io, object, lock, room) {
            Err(Errno(libc::ERANGE)) if room < 1 << 20 => room *= 4,
            outcome => return outcome,
        }
    }
}

fn lockers_within(io: &IoCtx, object: &CStr, lock: &CStr, room: usize) -> Result<Lockers, Errno> {
    let mut exclusive = 0;
    let mut buffers = [(); 4].map(|()| vec![0_u8; room]);
    let [tag, clients, cookies, addresses] = &mut buffers;
    let mut lengths = [room; 4];
    let [tag_len, clients_len, cookies_len, addresses_len] = &mut lengths;
    // SAFETY: the ioctx is alive; each buffer is as long as the length beside it says.
    let returned = unsafe {
        (io.cluster.library.rados.rados_list_lockers)(
            io.raw,
            object.as_ptr(),
            lock.as_ptr(),
            &raw mut exclusive,
            tag.as_mut_ptr().cast(),
            tag_len,
            clients.as_mut_ptr().cast(),
            clients_len,
            cookies.as_mut_ptr().cast(),
            cookies_len,
            addresses.as_mut_ptr().cast(),
            addresses_len,
        )
    };
    check_long(returned)?;
    let lockers = texts(clients).into_iter().zip(texts(cookies)).zip(texts(addresses));
    Ok(Lockers {
        exclusive: exclusive != 0,
        tag: until_nul(tag),
        lockers: lockers.map(|((client, cookie), address)| Locker { client, cookie, address }).collect(),
    })
}

/// C's form of an expiry; zero means never.
fn as_timeval(expiry: Option<Duration>) -> timeval {
    let expiry = expiry.unwrap_or_default();
    timeval {
        tv_sec: i64::try_from(expiry.as_secs()).unwrap_or(i64::MAX),
        tv_usec: i64::from(expiry.subsec_micros()),
    }
}
