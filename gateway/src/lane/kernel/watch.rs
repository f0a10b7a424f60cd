//! The kernel's doorbell: a task that waits for the device's events and rings the lane's bell.

use std::sync::Arc;

use ring::uio::{Device, Events};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::super::{Lane, stop_soon};
use crate::reactor::Reactor;

/// Watches until the lane ends, and ends the lane when the device goes away.
pub(super) fn start(reactor: &Reactor, device: Arc<Device>, lane: Lane, name: String) {
    reactor.spawn(move || async move {
        let mut ended = lane.ended.clone();
        tokio::select! {
            // An error is the news that the lane has ended; nothing is ever sent.
            _ = ended.changed() => {}
            outcome = watch(&device, &lane) => {
                match outcome {
                    Ok(()) => tracing::info!(lun = %name, device = %device.identity(), "the device was removed"),
                    Err(error) => tracing::error!(
                        lun = %name, device = %device.identity(), %error,
                        "the device's events cannot be waited for: the LUN is taken down"
                    ),
                }
                // Nobody waits for answers, but what the disk has must come back.
                stop_soon(&lane.shared);
            }
        }
    });
}

/// Returns when the device is gone.
#[expect(deprecated, reason = "wrong only for types whose as_raw_fd changes; a device's never does")]
async fn watch(device: &Arc<Device>, lane: &Lane) -> std::io::Result<()> {
    let events = AsyncFd::with_interest(Arc::clone(device), Interest::READABLE)?;
    loop {
        let mut ready = events.readable().await?;
        // Forgotten before the ring is looked at: an event in between is then seen again.
        match device.clear() {
            Events::Some | Events::None => {}
            Events::Gone => return Ok(()),
        }
        ready.clear_ready();
        lane.shared.bell.ring();
    }
}
