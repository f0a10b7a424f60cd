//! The only room of this crate with `unsafe`: one thin safe call per C function, and the owners of C's handles.
//!
//! Vocabulary: a *handle* owns one C object and destroys it on drop; a *call* takes handles and slices and returns
//! `Result<_, Errno>`. Nothing here decides anything; the modules beside this one do.
//!
//! Invariants that the `SAFETY` comments lean on:
//!
//! * **open**: function pointers come from [`library::Library`], which is never closed.
//! * **alive**: a handle is valid from its creation to its drop, and holds what it was made from
//!   (image → ioctx → cluster), so no C object outlives its parent.
//! * **locked**: librados and librbd lock their own objects; every call here may be made from any thread at the same
//!   time, except destruction, which needs the last owner. That is why handles are `Send + Sync`.
//! * **copied**: C copies input strings and buffers before it returns, except where a module says otherwise (aio).
// UNSAFETY: calls into a C library and callbacks from it. Each block does one operation.
#![expect(unsafe_code, reason = "calls into librados and librbd, and callbacks from them")]

use std::ffi::{CStr, CString, c_char, c_int};

use crate::error::Errno;

pub(crate) mod advisory;
pub(crate) mod aio;
pub(crate) mod cluster;
pub(crate) mod functions;
pub(crate) mod image;
pub(crate) mod images;
pub(crate) mod library;
pub(crate) mod lock;
pub(crate) mod object;
#[cfg(test)]
mod oracle;
pub(crate) mod pool;
pub(crate) mod types;
pub(crate) mod watch;

/// A C return value: an errno when negative. Positive values are lengths or counts, never errors.
pub(crate) fn check(returned: c_int) -> Result<usize, Errno> {
    usize::try_from(returned).map_err(|_negative| Errno(returned.saturating_neg()))
}

/// The same for the wider `ssize_t`.
pub(crate) fn check_long(returned: isize) -> Result<usize, Errno> {
    usize::try_from(returned)
        .map_err(|_negative| Errno(i32::try_from(returned.saturating_neg()).unwrap_or(libc::EIO)))
}

/// A NUL-terminated copy; a NUL inside is `EINVAL`.
pub(crate) fn c_string(text: &str) -> Result<CString, Errno> {
    CString::new(text).map_err(|_nul| Errno(libc::EINVAL))
}

/// Calls `fill` with a growing buffer until its text fits (C answers `ERANGE` while it does not).
///
/// `fill` gets the buffer and returns C's value; the text ends at the first NUL.
pub(crate) fn text(mut fill: impl FnMut(&mut [u8]) -> c_int) -> Result<String, Errno> {
    let mut buffer = vec![0_u8; 256];
    loop {
        match check(fill(&mut buffer)) {
            Ok(_) => return Ok(until_nul(&buffer)),
            Err(Errno(libc::ERANGE | libc::ENAMETOOLONG)) if buffer.len() < TEXT_LIMIT => {
                buffer = vec![0; buffer.len() * 4];
            }
            Err(errno) => return Err(errno),
        }
    }
}

/// No name, address or metadata value is longer.
const TEXT_LIMIT: usize = 1 << 20;

/// The text before the first NUL.
pub(crate) fn until_nul(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
}

/// The non-empty NUL-terminated texts in `bytes`.
pub(crate) fn texts(bytes: &[u8]) -> Vec<String> {
    bytes
        .split(|byte| *byte == 0)
        .filter(|text| !text.is_empty())
        .map(|text| String::from_utf8_lossy(text).into_owned())
        .collect()
}

/// An owned copy of a C string; a null pointer is the empty text.
///
/// # Safety
///
/// `text` is null or points to a NUL-terminated string that nobody changes during the call.
pub(crate) unsafe fn copy_c_string(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: not null; the caller promises the rest.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_positive_return_value_is_not_an_error() {
        assert_eq!(check(4096), Ok(4096));
        assert_eq!(check(0), Ok(0));
        assert_eq!(check(-2), Err(Errno(2)));
        assert_eq!(check(i32::MIN), Err(Errno(i32::MAX)));
        assert_eq!(check_long(-108), Err(Errno(108)));
        assert_eq!(check_long(1 << 40), Ok(1 << 40));
        assert_eq!(check_long(isize::MIN), Err(Errno(libc::EIO)));
    }

    #[test]
    fn a_text_that_does_not_fit_is_asked_for_again_with_more_room() {
        let long = "x".repeat(1000);
        let mut asked = 0;
        let got = text(|buffer| {
            asked += 1;
            if buffer.len() <= long.len() {
                return -libc::ERANGE;
            }
            buffer[..long.len()].copy_from_slice(long.as_bytes());
            0
        });
        assert_eq!(got, Ok(long));
        assert_eq!(asked, 2);
    }

    #[test]
    fn a_text_without_end_is_given_up() {
        assert_eq!(text(|_| -libc::ERANGE), Err(Errno(libc::ERANGE)));
    }
}
