//! Which objects of an image exist, for GET LBA STATUS.
//!
//! librbd only answers this while the caller waits (`rbd_diff_iterate2`), so each disk that is asked has one thread for it,
//! started by the first question. One answer covers at most [`WINDOW`] bytes: an image without an object map asks
//! the OSDs object by object.

use std::ops::Range;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use rbd::Image;

use super::clients::Fence;
use crate::disk::request::append_extent;
use crate::disk::{AllocationExtent, Completer, Error, Outcome};

/// Bytes that one question looks at: 4,096 objects of the usual size.
const WINDOW: u64 = 16 << 30;

struct Question {
    image: Arc<Image>,
    fence: Arc<Fence>,
    range: Range<u64>,
    limit: usize,
    completer: Completer,
}

/// Starts the thread when it is first needed.
#[derive(Default)]
pub(super) struct Surveyor {
    state: Mutex<State>,
}

#[derive(Default)]
enum State {
    #[default]
    Idle,
    Running(Sender<Question>),
    Stopped,
}

impl Surveyor {
    /// Answers later.
    pub(super) fn survey(
        &self,
        image: Arc<Image>,
        fence: Arc<Fence>,
        range: Range<u64>,
        limit: usize,
        completer: Completer,
    ) {
        let question = Question { image, fence, range, limit, completer };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*state, State::Idle) {
            let (queue, questions) = mpsc::channel::<Question>();
            let spawned = thread::Builder::new().name("rbd-survey".into()).spawn(move || {
                for Question { image, fence, range, limit, completer } in questions {
                    let result = answer(&image, &fence, range, limit);
                    // Before completing: who closes the disk waits for the image to be shared by nobody.
                    drop(image);
                    completer.complete(result.map(|extents| Outcome { extents }), None);
                }
            });
            match spawned {
                Ok(_thread) => *state = State::Running(queue),
                Err(error) => {
                    let errno = error.raw_os_error().unwrap_or(libc::EAGAIN);
                    return question.completer.complete(Err(Error::Io(errno)), None);
                }
            }
        }
        let refused = match &*state {
            State::Running(queue) => queue.send(question).err().map(|unsent| unsent.0),
            _ => Some(question),
        };
        drop(state);
        if let Some(question) = refused {
            question.completer.complete(Err(Error::NotReady), None);
        }
    }

    /// Takes no more questions; those asked are answered.
    pub(super) fn stop(&self) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = State::Stopped;
    }
}

/// The extents from the range's start on, as far as the limit and the window reach.
fn answer(
    image: &Image,
    fence: &Fence,
    range: Range<u64>,
    limit: usize,
) -> Result<Vec<AllocationExtent>, Error> {
    let range = range.start..range.end.min(range.start.saturating_add(WINDOW));
    let mut extents = Vec::new();
    let mut next = range.start;
    let mut room = true;
    let looked = image.allocated(range.start, range.end - range.start, |offset, len| {
        let found = offset.clamp(next, range.end)..offset.saturating_add(len).clamp(next, range.end);
        room = append_extent(&mut extents, next..found.start, false, limit)
            && append_extent(&mut extents, found.clone(), true, limit);
        next = found.end;
        room
    });
    looked.map_err(|error| {
        if !error.is_fenced() {
            return Error::Io(error.errno.0);
        }
        fence.fall(error.errno);
        Error::Fenced
    })?;
    if room {
        // What does not fit any more is left out; an answer may end before its range does.
        append_extent(&mut extents, next..range.end, false, limit);
    }
    Ok(extents)
}
