//! Errors: what failed, on what, why, and what the reader can do about it.
//!
//! librados and librbd return negative errnos. [`Errno`] is the bare number, which is what an aio completion carries;
//! [`Error`] adds the operation and its target, and a [`Kind`] that callers branch on. `Display` of an `Error` is one
//! sentence that ends in what to do next, where there is something to do.

use std::fmt;

/// A positive errno.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

impl Errno {
    /// What it means when nothing more is known about the operation.
    ///
    /// `EROFS` is [`Kind::ReadOnly`] here; an image that has held its exclusive lock knows better
    /// ([`Image::classify`](crate::Image::classify)).
    pub fn kind(self) -> Kind {
        match self.0 {
            libc::ENOENT | libc::ENODATA => Kind::NotFound,
            libc::EPERM | libc::EACCES | libc::EKEYREJECTED => Kind::Permission,
            libc::ENOSPC | libc::EDQUOT => Kind::NoSpace,
            libc::EEXIST => Kind::Exists,
            // The version is behind (assert_version), ahead of it, or a compared value differs.
            libc::ERANGE | libc::EOVERFLOW | libc::ECANCELED => Kind::Mismatch,
            // What a client gets once it is blocklisted, and its watches with it.
            libc::ESHUTDOWN | libc::ENOTCONN => Kind::Fenced,
            libc::EBUSY => Kind::Busy,
            libc::EROFS => Kind::ReadOnly,
            libc::ETIMEDOUT => Kind::Timeout,
            // Of our own range checks; librbd clips instead of saying anything.
            libc::ENXIO => Kind::OutOfRange,
            libc::EINVAL => Kind::Invalid,
            libc::EOPNOTSUPP | libc::ENOSYS => Kind::Unsupported,
            _ => Kind::Io,
        }
    }
}

/// What a range that is not inside the image is answered with.
pub const OUT_OF_RANGE: Errno = Errno(libc::ENXIO);

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Errno({self})")
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", std::io::Error::from_raw_os_error(self.0))
    }
}

/// What kind of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// No such pool, object, image, key or snapshot.
    NotFound,
    /// The client's capabilities or key do not allow it.
    Permission,
    /// The pool or the cluster is full, or over quota.
    NoSpace,
    /// It exists already.
    Exists,
    /// A compare-and-swap found something else: read again and retry.
    Mismatch,
    /// This client is blocklisted, or has lost the image's lock: nothing it sends lands any more.
    Fenced,
    /// Somebody else holds it.
    Busy,
    /// A snapshot, or an image opened for reading.
    ReadOnly,
    /// The cluster did not answer in time.
    Timeout,
    /// Outside the image.
    OutOfRange,
    /// The request itself is wrong.
    Invalid,
    /// The cluster or the library cannot do this.
    Unsupported,
    /// Anything else.
    Io,
}

/// What was being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Op {
    /// Reading the cluster's configuration file.
    Configure,
    /// Reading the user's key.
    Keyring,
    /// Setting one option.
    SetOption,
    /// Connecting to the monitors.
    Connect,
    /// A monitor command.
    MonCommand,
    /// Adding to, reading or removing from the blocklist.
    Blocklist,
    /// Opening a pool.
    OpenPool,
    /// Making or finding a namespace.
    Namespace,
    /// Reading an object, its attributes or its omap.
    ReadObject,
    /// Changing an object.
    WriteObject,
    /// Watching or notifying.
    Watch,
    /// An advisory lock on an object.
    LockObject,
    /// Listing the images of a pool.
    ListImages,
    /// Making an image.
    CreateImage,
    /// Removing an image.
    RemoveImage,
    /// Opening an image.
    OpenImage,
    /// Reading an image's header: size, features, metadata, watchers.
    Inspect,
    /// Changing an image's header.
    Alter,
    /// Making, removing or returning to a snapshot.
    Snapshot,
    /// The image's exclusive lock.
    LockImage,
    /// Reading or writing data.
    Io,
}

impl Op {
    fn verb(self) -> &'static str {
        match self {
            Self::Configure => "read the Ceph configuration",
            Self::Keyring => "read the keyring",
            Self::SetOption => "set the Ceph option",
            Self::Connect => "connect to the Ceph cluster of",
            Self::MonCommand => "run the monitor command",
            Self::Blocklist => "use the blocklist for",
            Self::OpenPool => "open the pool",
            Self::Namespace => "use the namespace",
            Self::ReadObject => "read the object",
            Self::WriteObject => "write the object",
            Self::Watch => "watch",
            Self::LockObject => "lock the object",
            Self::ListImages => "list the images of",
            Self::CreateImage => "create the image",
            Self::RemoveImage => "remove the image",
            Self::OpenImage => "open the image",
            Self::Inspect => "inspect the image",
            Self::Alter => "change the image",
            Self::Snapshot => "use the snapshot",
            Self::LockImage => "lock the image",
            Self::Io => "read or write the image",
        }
    }

    /// What to do next, when that is known.
    fn hint(self, kind: Kind) -> Option<&'static str> {
        Some(match (self, kind) {
            (Self::Configure, Kind::NotFound) => {
                "the file does not exist: give the path of the cluster's ceph.conf"
            }
            (Self::Configure, Kind::Permission) => "give this user the right to read it",
            (Self::Configure, _) => "it is no valid ceph.conf: compare it with the cluster's own",
            (Self::Keyring, Kind::NotFound) => {
                "the file does not exist: give the path of the file with the user's key"
            }
            (Self::Keyring, _) => "give this user the right to read it",
            (Self::SetOption, Kind::NotFound) => {
                "this version of Ceph has no such option: remove it or correct its name"
            }
            (Self::SetOption, _) => "the value is not one the option takes: correct it",
            (Self::Connect, Kind::Timeout) => {
                "no monitor answered: check mon_host in the file, the network, and that the monitors run"
            }
            (Self::Connect, Kind::NotFound) => {
                "no monitor address or no key was found: check mon_host in the file, the user's name and its keyring"
            }
            (Self::Connect, Kind::Permission) => {
                "the cluster refused the key: check the user's name and that the keyring holds its key (ceph auth get)"
            }
            (Self::OpenPool, Kind::NotFound) => {
                "there is no such pool: create it (ceph osd pool create NAME, rbd pool init NAME) or correct its name"
            }
            (Self::CreateImage, Kind::Exists) => {
                "it exists already: leave out the wish to create it, or choose another name"
            }
            (Self::OpenImage | Self::RemoveImage, Kind::NotFound) => {
                "there is no such image: create it (rbd create --size SIZE POOL/IMAGE) or correct its name"
            }
            (Self::LockImage, Kind::Invalid | Kind::Unsupported) => {
                "it lacks the exclusive-lock feature: enable it (rbd feature enable POOL/IMAGE exclusive-lock)"
            }
            (Self::LockImage, Kind::Busy | Kind::ReadOnly) => {
                "another client holds it and does not let go: stop that one first"
            }
            (Self::WriteObject, Kind::Mismatch) => {
                "it was changed by somebody else meanwhile: read it again and retry"
            }
            (_, Kind::Permission) => {
                "the user's capabilities do not allow it: give it mon 'profile rbd' and osd 'profile rbd pool=POOL' \
                 (ceph auth caps)"
            }
            (_, Kind::NoSpace) => {
                "the pool or the cluster is full: delete data, raise the quota or add storage"
            }
            (_, Kind::Fenced) => {
                "this client has been fenced (blocklisted, or its lock was taken over): reconnect with a new client"
            }
            (_, Kind::Timeout) => "the cluster did not answer in time: check its health (ceph -s)",
            _ => return None,
        })
    }
}

/// A failed call: what, on what, why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Error {
    /// What callers branch on.
    pub kind: Kind,
    /// What was being done.
    pub op: Op,
    /// On what: a path, a pool, `pool/image`, an object's name.
    pub target: String,
    /// What the library returned.
    pub errno: Errno,
}

impl Error {
    pub(crate) fn new(op: Op, target: impl Into<String>, errno: Errno) -> Self {
        Self { kind: errno.kind(), op, target: target.into(), errno }
    }

    /// For a failure whose errno alone would mislead.
    pub(crate) fn with_kind(mut self, kind: Kind) -> Self {
        self.kind = kind;
        self
    }

    /// This client is cut off for good; only a new one helps.
    pub fn is_fenced(&self) -> bool {
        self.kind == Kind::Fenced
    }

    /// The same call may succeed later, or after reading again.
    pub fn is_retryable(&self) -> bool {
        matches!(self.kind, Kind::Busy | Kind::Timeout | Kind::Mismatch | Kind::NoSpace)
            || matches!(self.errno.0, libc::EAGAIN | libc::EINTR)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {} {}: ", self.op.verb(), self.target)?;
        match self.op.hint(self.kind) {
            Some(hint) => write!(f, "{hint} (errno {})", self.errno.0),
            None => write!(f, "{}", self.errno),
        }
    }
}

/// Attaches operation and target to an errno.
pub(crate) trait Context<T> {
    fn context(self, op: Op, target: &str) -> Result<T, Error>;
}

impl<T> Context<T> for Result<T, Errno> {
    fn context(self, op: Op, target: &str) -> Result<T, Error> {
        self.map_err(|errno| Error::new(op, target, errno))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blocklisted_client_is_fenced_by_either_of_its_errnos() {
        for errno in [libc::ESHUTDOWN, libc::ENOTCONN] {
            assert!(Error::new(Op::Io, "rbd/a", Errno(errno)).is_fenced(), "{errno}");
        }
        assert!(!Error::new(Op::Io, "rbd/a", Errno(libc::EIO)).is_fenced());
    }

    #[test]
    fn every_outcome_of_a_lost_compare_and_swap_is_a_mismatch() {
        for errno in [libc::ERANGE, libc::EOVERFLOW, libc::ECANCELED] {
            let error = Error::new(Op::WriteObject, "gateway.conf", Errno(errno));
            assert_eq!(error.kind, Kind::Mismatch);
            assert!(error.is_retryable());
        }
    }

    #[test]
    fn over_quota_is_out_of_space() {
        assert_eq!(Errno(libc::EDQUOT).kind(), Kind::NoSpace);
        assert_eq!(Errno(libc::ENOSPC).kind(), Kind::NoSpace);
    }

    #[test]
    fn the_text_is_one_sentence_that_says_what_to_do() {
        let text = Error::new(Op::OpenPool, "rbdd", Errno(libc::ENOENT)).to_string();
        assert_eq!(
            text,
            "cannot open the pool rbdd: there is no such pool: create it (ceph osd pool create NAME, rbd pool init \
             NAME) or correct its name (errno 2)"
        );
        let plain = Error::new(Op::Io, "rbd/a", Errno(libc::EIO)).to_string();
        assert_eq!(plain, "cannot read or write the image rbd/a: Input/output error (os error 5)");
    }
}
