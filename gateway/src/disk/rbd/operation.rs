//! One request to librbd, and its answer back to the disk's words.

use std::sync::Arc;

use rbd::{Bytes, Compared, Errno, Image, IoBuf, Kind};

use super::allocation::{self, Surveyor};
use super::clients::Fence;
use super::segments::Area;
use crate::disk::{Buffer, Completer, Error, Outcome, Request};

/// What an operation needs when it ends. Not the image: the last owner of that waits for operations to end.
struct End {
    completer: Completer,
    fence: Arc<Fence>,
    /// The image is open for writing, so `EROFS` means that its lock is gone.
    locked: bool,
}

impl End {
    fn finish(self, result: Result<(), Errno>, buffer: Option<Vec<u8>>) {
        let result = result.map(|()| Outcome::default()).map_err(|errno| self.error(errno));
        self.completer.complete(result, buffer);
    }

    fn error(&self, errno: Errno) -> Error {
        let error = error(errno, self.locked);
        if error == Error::Fenced {
            self.fence.fall(errno);
        }
        error
    }
}

/// What an errno of an image means to a lane.
fn error(errno: Errno, locked: bool) -> Error {
    match errno.kind() {
        Kind::Fenced => Error::Fenced,
        Kind::ReadOnly if locked => Error::Fenced,
        Kind::ReadOnly => Error::ReadOnly,
        Kind::NoSpace => Error::NoSpace,
        Kind::OutOfRange => Error::OutOfRange,
        Kind::Unsupported => Error::Unsupported,
        _ => Error::Io(errno.0),
    }
}

/// Starts an admitted request. Never blocks.
pub(super) fn start(
    image: &Arc<Image>,
    fence: &Arc<Fence>,
    surveyor: &Surveyor,
    request: Request,
    completer: Completer,
) {
    let end = End { completer, fence: Arc::clone(fence), locked: image.has_locked() };
    match request {
        Request::Read { offset, buffer: Buffer::Segments(segments) } => {
            read(image, offset, Area(segments), end, |_area| None);
        }
        Request::Read { offset, buffer: Buffer::Owned(bytes) } => {
            read(image, offset, Bytes::from(bytes), end, |bytes| Some(bytes.into_vec()));
        }
        Request::Write { offset, buffer: Buffer::Segments(segments), fua: _ }
        | Request::WriteAtomic { offset, buffer: Buffer::Segments(segments), fua: _ } => {
            image.write(offset, Area(segments), move |result, area| {
                drop(area);
                end.finish(result, None);
            });
        }
        Request::Write { offset, buffer: Buffer::Owned(bytes), fua: _ }
        | Request::WriteAtomic { offset, buffer: Buffer::Owned(bytes), fua: _ } => {
            image.write(offset, Bytes::from(bytes), move |result, bytes| {
                end.finish(result, Some(bytes.into_vec()));
            });
        }
        Request::WriteSame { offset, len, pattern, fua: _ } => {
            image.write_same(offset, len, pattern, move |result, _pattern| end.finish(result, None));
        }
        Request::WriteZeroes { offset, len, deallocate } => {
            image.write_zeroes(offset, len, !deallocate, move |result| end.finish(result, None));
        }
        Request::Discard { offset, len } => {
            image.write_zeroes(offset, len, false, move |result| end.finish(result, None));
        }
        Request::CompareAndWrite { offset, compare, write, fua: _ } => {
            image.compare_and_write(offset, compare, write, move |result| compared(result, end));
        }
        Request::Flush => image.flush(move |result| end.finish(result, None)),
        Request::Allocation { offset, len, limit } => {
            let End { completer, fence, .. } = end;
            surveyor.ask(Arc::clone(image), fence, completer, move |image, fence| {
                allocation::extents(image, fence, offset..offset + len, limit)
            });
        }
        Request::Usage => {
            let End { completer, fence, .. } = end;
            surveyor.ask(Arc::clone(image), fence, completer, allocation::usage);
        }
        Request::Note { note } => {
            let End { completer, fence, .. } = end;
            surveyor.ask(Arc::clone(image), fence, completer, move |image, fence| {
                allocation::note(image, fence, note.as_deref())
            });
        }
    }
}

fn read<B: IoBuf>(
    image: &Image,
    offset: u64,
    buffer: B,
    end: End,
    back: impl FnOnce(B) -> Option<Vec<u8>> + Send + 'static,
) {
    let wanted = buffer.len();
    image.read(offset, buffer, move |result, buffer| {
        let result = match result {
            // The image has become smaller meanwhile. What was not filled is never shown.
            Ok(got) if got < wanted => Err(rbd::OUT_OF_RANGE),
            result => result.map(drop),
        };
        // The segments are released before the command can be completed.
        let bytes = back(buffer);
        end.finish(result, bytes);
    });
}

fn compared(result: Result<Compared, Errno>, end: End) {
    let result = match result {
        Ok(Compared::Written) => Ok(Outcome::default()),
        Ok(Compared::Differs(at)) => Err(Error::Miscompare(usize::try_from(at).unwrap_or(0))),
        Err(errno) => Err(end.error(errno)),
    };
    end.completer.complete(result, None);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_lock_and_a_blocklisted_client_are_both_fenced() {
        assert_eq!(error(Errno(libc::ESHUTDOWN), true), Error::Fenced);
        assert_eq!(error(Errno(libc::ENOTCONN), true), Error::Fenced);
        assert_eq!(error(Errno(libc::EROFS), true), Error::Fenced);
        assert_eq!(error(Errno(libc::EROFS), false), Error::ReadOnly);
    }

    #[test]
    fn a_full_pool_and_a_quota_are_out_of_space() {
        assert_eq!(error(Errno(libc::ENOSPC), true), Error::NoSpace);
        assert_eq!(error(Errno(libc::EDQUOT), true), Error::NoSpace);
    }

    #[test]
    fn what_has_no_word_of_its_own_keeps_its_errno() {
        assert_eq!(error(Errno(libc::EIO), true), Error::Io(libc::EIO));
        assert_eq!(error(rbd::OUT_OF_RANGE, true), Error::OutOfRange);
    }
}
