//! Taking a device over from whoever had it, so that initiators see a pause and no error.
//!
//! | predecessor | what is done | what initiators see |
//! |---|---|---|
//! | none | attach | nothing |
//! | left in order, a moment ago | attach, and take what it left in the ring | a pause |
//! | died, or left long ago | block, reset (BUSY), attach, unblock when served | a pause; what was outstanding is sent again |
//!
//! The device is opened first, which only one process can: so the predecessor is gone, with every thread that could still
//! write to the data area (which a reset gives to other commands) or to a local file. What it has sent to OSDs is the
//! disk's business: [`RbdDisk::open`](crate::disk::rbd::RbdDisk::open) fences it. Both must be over before
//! [`Adopted::serve`].
//!
//! A COMPARE AND WRITE that was outstanding when a predecessor died may have written. It is answered BUSY with the rest, as
//! the kernel cannot tell it apart, and its retry may then find its own data and miscompare.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ring::uio::{Claimed, Found, OpenDeviceError, OpenDeviceReason, Standing};

use super::{Actions, Adopted, Outstanding};

/// How long a predecessor that still has the device open is waited for.
pub const PATIENCE: Duration = Duration::from_secs(3);

/// How often it is looked at meanwhile.
const PAUSE: Duration = Duration::from_millis(20);

/// Older than this, what a predecessor has left in the ring is not taken: the kernel gives commands up after
/// `cmd_time_out` (30 s unless configured), and one that was given up must not run, because its initiator may have gone on
/// by another path.
const FRESH: Duration = Duration::from_secs(15);

/// How a device came into this process' hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// Nobody had it.
    New,
    /// A predecessor left it in order; nothing was ended.
    HandedOver,
    /// A predecessor died, or left too long ago: what was outstanding was sent back to be tried again.
    Recovered,
}

/// Why a device was not adopted.
#[derive(Debug, thiserror::Error)]
pub enum AdoptError {
    /// It cannot be opened, or its ring cannot be used.
    #[error(transparent)]
    Open(#[from] OpenDeviceError),
    /// The kernel did not do what it was told.
    #[error("the kernel could not end what a predecessor has left")]
    Action(#[source] io::Error),
}

/// Adopts a device. Blocks: up to [`PATIENCE`] while a predecessor is on its way out.
pub fn adopt(found: &Found, actions: Arc<dyn Actions>) -> Result<Adopted, AdoptError> {
    let deadline = Instant::now() + PATIENCE;
    let claimed = loop {
        match found.claim() {
            Err(error) if matches!(error.reason, OpenDeviceReason::Busy) && Instant::now() < deadline => {
                thread::sleep(PAUSE);
            }
            outcome => break outcome?,
        }
    };
    take(claimed, actions)
}

/// Attaches to a device that is claimed.
pub fn take(claimed: Claimed, actions: Arc<dyn Actions>) -> Result<Adopted, AdoptError> {
    let taken = match claimed.standing() {
        Standing::New => Taken::New,
        Standing::Left(ago) if ago <= FRESH => Taken::HandedOver,
        standing @ (Standing::Left(_) | Standing::Unknown) => {
            tracing::warn!(
                device = %claimed.device().identity(), ?standing,
                "taking over from a predecessor that did not hand over: outstanding commands are sent back to be tried again"
            );
            actions.set_blocked(true).map_err(AdoptError::Action)?;
            actions.reset_ring(Outstanding::Retried).map_err(AdoptError::Action)?;
            Taken::Recovered
        }
    };
    let (device, consumer) = claimed.attach()?;
    Ok(Adopted { device, consumer, actions, taken })
}
