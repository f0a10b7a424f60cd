//! Opening librados and librbd at run time.
//!
//! Both are opened once per process and never closed: they start threads whose code must stay mapped.
//! `RTLD_LOCAL` keeps their thousands of symbols out of everybody else's way.

use std::ffi::c_int;
use std::sync::OnceLock;

use libloading::os::unix::{Library as Dlopened, RTLD_LOCAL, RTLD_NOW};

use super::functions::{MissingSymbol, Rados, Rbd};

/// Why Ceph's libraries cannot be used. One sentence that says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// A library is not there, or one that it needs is not.
    #[error(
        "{library} cannot be opened ({cause}), and RBD disks need it: install Debian's package {package} \
         (apt-get install {package})"
    )]
    Missing {
        /// Its file name.
        library: &'static str,
        /// What the dynamic linker said.
        cause: String,
        /// The Debian package that has it.
        package: &'static str,
    },
    /// A library is older than every supported release.
    #[error(
        "{library} has no function {symbol}: it is too old for this program, install {package} of Ceph 16 (Pacific) \
         or newer"
    )]
    TooOld {
        /// Its file name.
        library: &'static str,
        /// The first function that it lacks.
        symbol: &'static str,
        /// The Debian package that has it.
        package: &'static str,
    },
}

/// Both libraries, open for as long as the process lives.
pub struct Library {
    pub(crate) rados: Rados,
    pub(crate) rbd: Rbd,
    /// Kept open: every function pointer above points into these.
    _open: [Dlopened; 2],
}

impl std::fmt::Debug for Library {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Library").field("librados", &self.librados()).field("librbd", &self.librbd()).finish()
    }
}

/// Each library with the package to install: librbd1 brings librados2 with it.
const LIBRADOS: (&str, &str) = ("librados.so.2", "librbd1");
const LIBRBD: (&str, &str) = ("librbd.so.1", "librbd1");

impl Library {
    /// Opens the libraries, once; later calls return the same, or the same error.
    pub fn load() -> Result<&'static Self, LoadError> {
        static LIBRARY: OnceLock<Result<Library, LoadError>> = OnceLock::new();
        LIBRARY.get_or_init(|| Self::open(LIBRADOS, LIBRBD)).as_ref().map_err(Clone::clone)
    }

    fn open(
        librados: (&'static str, &'static str),
        librbd: (&'static str, &'static str),
    ) -> Result<Self, LoadError> {
        let rados_file = dlopen(librados)?;
        let rbd_file = dlopen(librbd)?;
        let too_old =
            |(library, package)| move |MissingSymbol(symbol)| LoadError::TooOld { library, symbol, package };
        Ok(Self {
            rados: Rados::resolve(&rados_file).map_err(too_old(librados))?,
            rbd: Rbd::resolve(&rbd_file).map_err(too_old(librbd))?,
            _open: [rados_file, rbd_file],
        })
    }

    /// The version of librados' interface (3.0.0 since Octopus).
    pub fn librados(&self) -> (i32, i32, i32) {
        version(self.rados.rados_version)
    }

    /// The version of librbd's interface (1.16.0 in Pacific).
    pub fn librbd(&self) -> (i32, i32, i32) {
        version(self.rbd.rbd_version)
    }
}

fn version(ask: unsafe extern "C" fn(*mut c_int, *mut c_int, *mut c_int)) -> (i32, i32, i32) {
    let (mut major, mut minor, mut extra) = (0, 0, 0);
    // SAFETY: both version functions only write three ints through valid pointers.
    unsafe { ask(&raw mut major, &raw mut minor, &raw mut extra) };
    (major, minor, extra)
}

fn dlopen((library, package): (&'static str, &'static str)) -> Result<Dlopened, LoadError> {
    // SAFETY: opening runs the library's static initialisers; Ceph's only set up their own globals.
    let opened = unsafe { Dlopened::open(Some(library), RTLD_NOW | RTLD_LOCAL) };
    opened.map_err(|error| LoadError::Missing { library, cause: cause(&error), package })
}

/// The dynamic linker's own words, without those that libloading puts around them.
fn cause(error: &libloading::Error) -> String {
    use std::error::Error;
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_one_sentence_that_names_it_and_the_package() {
        let missing = ("librados-of-nobody.so.2", "librados2");
        let error = Library::open(missing, LIBRBD).unwrap_err().to_string();
        assert!(error.starts_with("librados-of-nobody.so.2 cannot be opened"), "{error}");
        assert!(error.contains("apt-get install librados2"), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }

    #[test]
    fn a_library_without_our_functions_is_called_too_old() {
        // Any library that is always there and is not Ceph's.
        let libc = ("libc.so.6", "librados2");
        let error = Library::open(libc, libc).unwrap_err();
        assert_eq!(
            error,
            LoadError::TooOld { library: "libc.so.6", symbol: "rados_version", package: "librados2" }
        );
    }

    #[test]
    fn ceph_libraries_are_opened_once() {
        let first = Library::load().unwrap();
        assert!(std::ptr::eq(first, Library::load().unwrap()));
        assert!(first.librados() >= (3, 0, 0), "{first:?}");
        assert!(first.librbd() >= (1, 16, 0), "{first:?}");
    }
}
