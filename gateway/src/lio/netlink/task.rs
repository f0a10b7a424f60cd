//! Listens to the kernel, in a thread of its own: whoever causes an event may be a thread of this process that waits for the
//! answer.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::{Channel, Event};
use crate::lio::handshake;
use crate::lio::kernel::Kernel;

/// How often the thread looks whether it shall end.
const TURN: Duration = Duration::from_millis(250);
/// Between two attempts to open the connection anew.
const PAUSE: Duration = Duration::from_secs(1);

/// Whose devices they are.
pub trait Owner: Send + Sync {
    /// Takes an event up and says how to answer it: 0, or a negative errno. `None`: the device is somebody else's, and so is
    /// the answer. It must not wait for anything that itself waits for the kernel.
    fn told(&self, event: &Event) -> Option<i32>;
}

/// The listening thread; dropping it ends it.
pub struct Listener {
    ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// Connects and starts to listen; what happens after it has returned is heard. With `replies` the kernel is told to wait
    /// for answers.
    pub fn start(kernel: Arc<dyn Kernel>, owner: Arc<dyn Owner>, replies: bool) -> io::Result<Self> {
        let channel = connect(&*kernel, replies)?;
        let ending = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&ending);
        let thread = std::thread::Builder::new()
            .name("lio-events".into())
            .spawn(move || listen(&*kernel, &*owner, replies, channel, &end))?;
        Ok(Self { ending, thread: Some(thread) })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported by the panic hook.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").finish_non_exhaustive()
    }
}

fn connect(kernel: &dyn Kernel, replies: bool) -> io::Result<Box<dyn Channel>> {
    let mut channel = kernel.events()?;
    if replies {
        channel.set_replies(true)?;
    }
    Ok(channel)
}

fn listen(
    kernel: &dyn Kernel,
    owner: &dyn Owner,
    replies: bool,
    mut channel: Box<dyn Channel>,
    end: &AtomicBool,
) {
    while !end.load(Ordering::Acquire) {
        match turn(&mut *channel, owner) {
            Ok(()) => {}
            Err(error) => {
                tracing::warn!(%error, "the kernel's events: connecting anew");
                while !end.load(Ordering::Acquire) {
                    if let Ok(fresh) = connect(kernel, replies) {
                        channel = fresh;
                        break;
                    }
                    std::thread::sleep(PAUSE);
                }
                // An event may have been lost, and with it the answer that somebody waits for.
                if replies && let Err(error) = handshake::release_waiters(kernel) {
                    tracing::warn!(%error, "who waits in the kernel for a lost answer goes on waiting");
                }
            }
        }
    }
}

fn turn(channel: &mut dyn Channel, owner: &dyn Owner) -> io::Result<()> {
    let Some(event) = channel.receive(TURN)? else { return Ok(()) };
    match owner.told(&event) {
        Some(status) => channel.answer(&event, status),
        None => Ok(()),
    }
}
