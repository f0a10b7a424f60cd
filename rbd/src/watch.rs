//! Watch and notify: telling everybody who looks at an object, and hearing their answers.
//!
//! librados calls back on the threads that also complete I/O, so nothing is handled there: events go over a queue to a
//! thread of the watch's own, where the handler may take its time and may itself use RADOS. A notification waits for an
//! ack of every watcher; it is acknowledged when the handler replies, or drops it.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use crate::error::{Context, Errno, Error, Op};
use crate::ffi::watch::{self as raw, RawEvent, WatchHandle};
use crate::object::Object;

/// What a watch sees.
#[derive(Debug)]
pub enum Event {
    /// Somebody notified the object.
    Notify(Notification),
    /// The watch is broken and will see nothing more: the connection was lost for longer than its timeout, the object
    /// was removed, or this client is fenced (`ENOTCONN`, `ESHUTDOWN`). Watch again, after reading what was missed.
    Broken(Errno),
}

/// One notification. Dropping it acknowledges it without a reply.
pub struct Notification {
    object: Object,
    id: u64,
    cookie: u64,
    /// The number in `client.4123` of who sent it.
    pub notifier: u64,
    /// What it says; cut at 1 MiB.
    pub payload: Vec<u8>,
    acknowledged: bool,
}

impl fmt::Debug for Notification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (id, notifier) = (self.id, self.notifier);
        f.debug_struct("Notification").field("id", &id).field("notifier", &notifier).finish_non_exhaustive()
    }
}

impl Notification {
    /// Acknowledges it with a reply.
    pub fn reply(mut self, reply: &[u8]) -> Result<(), Error> {
        self.acknowledge(reply).context(Op::Watch, &self.object.label)
    }

    fn acknowledge(&mut self, reply: &[u8]) -> Result<(), Errno> {
        self.acknowledged = true;
        raw::ack(&self.object.io, &self.object.name, self.id, self.cookie, reply)
    }
}

impl Drop for Notification {
    fn drop(&mut self) {
        if !self.acknowledged {
            // If it cannot be sent, the notifier's timeout covers it.
            let _ = self.acknowledge(&[]);
        }
    }
}

/// A watch on an object; ends when dropped.
pub struct Watch {
    /// Shared with the thread that takes it back; `None` while being dropped.
    handle: Option<Arc<WatchHandle>>,
    label: String,
    queue: Sender<RawEvent>,
    ended: Receiver<()>,
    thread: thread::ThreadId,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("object", &self.label)
            .field("cookie", &self.cookie())
            .finish_non_exhaustive()
    }
}

/// How long dropping a watch waits for the OSD to take it back.
const PATIENCE: Duration = Duration::from_secs(10);

impl Object {
    /// Watches the object, which must exist. The OSD gives the watch up when this client has not been heard of for
    /// `timeout` (whole seconds). `handler` runs on a thread of its own, one event at a time.
    pub fn watch(
        &self,
        timeout: Duration,
        handler: impl FnMut(Event) + Send + 'static,
    ) -> Result<Watch, Error> {
        let (queue, events) = mpsc::channel();
        let seconds = u32::try_from(timeout.as_secs()).unwrap_or(u32::MAX).max(1);
        let handle = WatchHandle::open(&self.io, &self.name, seconds, queue.clone())
            .context(Op::Watch, &self.label)?;
        let handle = Arc::new(handle);
        let ours = Some(Arc::clone(&handle));
        let (tell_end, ended) = mpsc::channel();
        let object = self.clone();
        let spawned = thread::Builder::new().name("rbd-watch".into()).spawn(move || {
            handle_events(&object, &events, handler);
            close(handle, &object.label);
            // This thread's share of the client, before it tells: a client shut down while the process ends crashes.
            drop((object, events));
            // Nobody waits any more: dropping the watch ran out of patience, and said so.
            let _ = tell_end.send(());
        });
        match spawned {
            Ok(thread) => {
                let thread = thread.thread().id();
                Ok(Watch { handle: ours, label: self.label.clone(), queue, ended, thread })
            }
            Err(error) => {
                Err(Error::new(Op::Watch, &self.label, Errno(error.raw_os_error().unwrap_or(libc::EAGAIN))))
            }
        }
    }

    /// Notifies every watcher and waits for their answers, at most `timeout`.
    pub fn notify(&self, payload: &[u8], timeout: Duration) -> Result<Answers, Error> {
        let milliseconds = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX).max(1);
        let (outcome, answers) = raw::notify(&self.io, &self.name, payload, milliseconds);
        match outcome {
            // Some did not answer; which, and what the others said, stands in the answers.
            Ok(()) | Err(Errno(libc::ETIMEDOUT)) if !answers.is_empty() => Answers::decode(&answers)
                .ok_or_else(|| Error::new(Op::Watch, &self.label, Errno(libc::EBADMSG))),
            outcome => outcome.map(|()| Answers::default()).context(Op::Watch, &self.label),
        }
    }
}

fn handle_events(object: &Object, events: &Receiver<RawEvent>, mut handler: impl FnMut(Event)) {
    for event in events {
        match event {
            RawEvent::Stop => return,
            RawEvent::Broken(errno) => handler(Event::Broken(errno)),
            RawEvent::Notify { id, cookie, notifier, payload } => {
                let object = object.clone();
                handler(Event::Notify(Notification {
                    object,
                    id,
                    cookie,
                    notifier,
                    payload,
                    acknowledged: false,
                }));
            }
        }
    }
}

/// Takes the watch back, on its own thread.
fn close(handle: Arc<WatchHandle>, label: &str) {
    // The watch drops its share before it says stop. Should it not have, leaking the handle is safe.
    let Some(owned) = Arc::into_inner(handle) else { return };
    if let Err(errno) = owned.close() {
        // What a fenced client, or one whose object was removed, gets; the OSD has dropped the watch already.
        tracing::debug!(object = label, %errno, "the OSD did not take a watch back");
    }
}

impl Watch {
    /// This watch's number among the watchers.
    pub fn cookie(&self) -> u64 {
        self.handle.as_ref().map_or(0, |handle| handle.cookie())
    }

    /// How long ago the OSD last confirmed it; an error when it is broken.
    pub fn check(&self) -> Result<Duration, Error> {
        let age = self.handle.as_ref().map_or(Err(Errno(libc::ENOTCONN)), |handle| handle.check());
        let age = age.context(Op::Watch, &self.label)?;
        Ok(Duration::from_millis(age as u64))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.handle = None;
        // A thread that has ended by a panic of the handler has nothing left to stop.
        let _ = self.queue.send(RawEvent::Stop);
        if thread::current().id() == self.thread {
            return;
        }
        if let Err(RecvTimeoutError::Timeout) = self.ended.recv_timeout(PATIENCE) {
            tracing::error!(
                object = self.label,
                "a watch could not be taken back within {PATIENCE:?}: its thread stays behind until the OSD answers"
            );
        }
    }
}

/// What a notification was answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// Who acknowledged it, and with what.
    pub replies: Vec<Reply>,
    /// Who did not within the time: client number and watch.
    pub missing: Vec<(u64, u64)>,
}

/// One acknowledgement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The number in `client.4123`.
    pub client: u64,
    /// Which of its watches.
    pub cookie: u64,
    /// What it replied.
    pub payload: Vec<u8>,
}

impl Answers {
    /// The encoding of `rados_notify2`, stable as its header documents it: a count and that many of (client, cookie,
    /// length, bytes), then a count and that many of (client, cookie). Little-endian, counts and lengths of 32 bits.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let mut answers = Self::default();
        for _ in 0..u32::from_le_bytes(take(&mut rest)?) {
            let (client, cookie) =
                (u64::from_le_bytes(take(&mut rest)?), u64::from_le_bytes(take(&mut rest)?));
            let len = usize::try_from(u32::from_le_bytes(take(&mut rest)?)).ok()?;
            let (payload, after) = rest.split_at_checked(len)?;
            rest = after;
            answers.replies.push(Reply { client, cookie, payload: payload.to_vec() });
        }
        for _ in 0..u32::from_le_bytes(take(&mut rest)?) {
            answers
                .missing
                .push((u64::from_le_bytes(take(&mut rest)?), u64::from_le_bytes(take(&mut rest)?)));
        }
        Some(answers)
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded() -> Vec<u8> {
        let mut bytes = 1_u32.to_le_bytes().to_vec();
        bytes.extend(4123_u64.to_le_bytes());
        bytes.extend(7_u64.to_le_bytes());
        bytes.extend(2_u32.to_le_bytes());
        bytes.extend(b"ok");
        bytes.extend(1_u32.to_le_bytes());
        bytes.extend(4124_u64.to_le_bytes());
        bytes.extend(8_u64.to_le_bytes());
        bytes
    }

    #[test]
    fn answers_are_decoded() {
        let answers = Answers::decode(&encoded()).unwrap();
        assert_eq!(answers.replies, [Reply { client: 4123, cookie: 7, payload: b"ok".to_vec() }]);
        assert_eq!(answers.missing, [(4124, 8)]);
    }

    #[test]
    fn answers_that_end_too_early_are_refused_and_never_panic() {
        let whole = encoded();
        for end in 0..whole.len() {
            assert_eq!(Answers::decode(&whole[..end]), None, "{end}");
        }
        assert_eq!(Answers::decode(&[0xff; 64]), None);
    }
}
