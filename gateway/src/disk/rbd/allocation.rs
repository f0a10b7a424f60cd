//! What librbd and the monitors only answer while the caller waits: which objects of an image exist, how full its pool is, the
//! note in the image's metadata. Each disk that is asked has one thread for it, started by the first question.
//!
//! One answer about objects covers at most [`WINDOW`] bytes: an image without an object map asks the OSDs object by object.

use std::ops::Range;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use rbd::{Features, Image, Kind};

use super::clients::Fence;
use crate::disk::request::append_extent;
use crate::disk::{Completer, Error, Outcome, Usage};

/// Bytes that one question looks at: 4,096 objects of the usual size.
const WINDOW: u64 = 16 << 30;

/// What is asked of the image while the caller waits.
type Question = Box<dyn FnOnce(&Image, &Fence) -> Result<Outcome, Error> + Send>;

struct Asked {
    image: Arc<Image>,
    fence: Arc<Fence>,
    question: Question,
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
    Running(Sender<Asked>),
    Stopped,
}

impl Surveyor {
    /// Answers later.
    pub(super) fn ask(
        &self,
        image: Arc<Image>,
        fence: Arc<Fence>,
        completer: Completer,
        question: impl FnOnce(&Image, &Fence) -> Result<Outcome, Error> + Send + 'static,
    ) {
        let asked = Asked { image, fence, question: Box::new(question), completer };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*state, State::Idle) {
            let (queue, questions) = mpsc::channel::<Asked>();
            let spawned = thread::Builder::new().name("rbd-survey".into()).spawn(move || {
                for Asked { image, fence, question, completer } in questions {
                    let result = question(&image, &fence);
                    // Before completing: who closes the disk waits for the image to be shared by nobody.
                    drop(image);
                    completer.complete(result, None);
                }
            });
            match spawned {
                Ok(_thread) => *state = State::Running(queue),
                Err(error) => {
                    let errno = error.raw_os_error().unwrap_or(libc::EAGAIN);
                    return asked.completer.complete(Err(Error::Io(errno)), None);
                }
            }
        }
        let refused = match &*state {
            State::Running(queue) => queue.send(asked).err().map(|unsent| unsent.0),
            _ => Some(asked),
        };
        drop(state);
        if let Some(asked) = refused {
            asked.completer.complete(Err(Error::NotReady), None);
        }
    }

    /// Takes no more questions; those asked are answered.
    pub(super) fn stop(&self) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = State::Stopped;
    }
}

/// The extents from the range's start on, as far as the limit and the window reach.
pub(super) fn extents(
    image: &Image,
    fence: &Fence,
    range: Range<u64>,
    limit: usize,
) -> Result<Outcome, Error> {
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
    looked.map_err(|error| failure(&error, fence))?;
    if room {
        // What does not fit any more is left out; an answer may end before its range does.
        append_extent(&mut extents, next..range.end, false, limit);
    }
    Ok(Outcome { extents, ..Outcome::default() })
}

fn failure(error: &rbd::Error, fence: &Fence) -> Error {
    if !error.is_fenced() {
        return Error::Io(error.errno.0);
    }
    fence.fall(error.errno);
    Error::Fenced
}

/// How full the pool is, as `ceph df` has it. What the image takes is known only where librbd keeps a map of its objects:
/// anything else would ask the OSDs about each of them.
pub(super) fn usage(image: &Image, fence: &Fence) -> Result<Outcome, Error> {
    let failed = |error: rbd::Error| failure(&error, fence);
    let mut usage = Usage::default();
    let pool = image.pool();
    let answer = pool.cluster().mon_command(r#"{"prefix":"df","format":"json"}"#, &[]).map_err(failed)?;
    if let Some((used, free)) =
        serde_json::from_slice(&answer).ok().and_then(|df| pool_figures(&df, pool.id()))
    {
        (usage.available, usage.pool) = (Some(free), Some(free.saturating_add(used)));
    }
    let features = image.features().map_err(failed)?;
    let mapped = features.contains(Features::FAST_DIFF) && features.contains(Features::OBJECT_MAP);
    if mapped && image.known_size() <= SURVEYED {
        let mut used = 0;
        image
            .allocated(0, image.known_size(), |_, len| {
                used += len;
                true
            })
            .map_err(failed)?;
        usage.used = Some(used);
    }
    Ok(Outcome { usage: Some(Box::new(usage)), ..Outcome::default() })
}

/// Images up to this size are looked at whole: a million objects of the usual size.
const SURVEYED: u64 = 4 << 40;

/// `stored` and `max_avail` of a pool, which count data once, however often it is kept.
fn pool_figures(df: &serde_json::Value, id: i64) -> Option<(u64, u64)> {
    let pools = df.get("pools")?.as_array()?;
    let stats = pools
        .iter()
        .find(|pool| pool.get("id").and_then(serde_json::Value::as_i64) == Some(id))?
        .get("stats")?;
    Some((stats.get("stored")?.as_u64()?, stats.get("max_avail")?.as_u64()?))
}

/// The metadata key of the note.
pub(super) const NOTE: &str = "rbdgate.unfinished";

/// Keeps or forgets the note.
pub(super) fn note(image: &Image, fence: &Fence, note: Option<&[u8]>) -> Result<Outcome, Error> {
    let kept = match note {
        Some(note) => image.set_metadata(NOTE, &hex(note)),
        None => match image.remove_metadata(NOTE) {
            Err(error) if error.kind == Kind::NotFound => Ok(()),
            removed => removed,
        },
    };
    kept.map(|()| Outcome::default()).map_err(|error| failure(&error, fence))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of a note; what is no note at all is one that cannot be read, which must not look like none.
pub(super) fn unhex(text: &str) -> Vec<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let pairs = text.as_bytes().chunks(2).map(|pair| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    });
    pairs.collect::<Option<Vec<u8>>>().filter(|bytes| !bytes.is_empty()).unwrap_or_else(|| vec![0])
}
