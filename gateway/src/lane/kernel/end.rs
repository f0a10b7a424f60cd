//! Ending what waits for a process that does not come back, so that LUNs can be removed, initiators logged out and the
//! machine rebooted.

use ring::uio::{Found, OpenDeviceReason};

use super::{Actions, AdoptError, Outstanding};

/// What was done for one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Outstanding commands were failed, and new ones are refused (BUSY) until somebody serves the device again.
    Ended,
    /// A process has it open and serves it, or hangs in it: nothing was done.
    Served,
}

/// Ends every outstanding command of a device that no process has open, and keeps new ones out.
///
/// The device is left blocked: a command that nobody takes would be in the way again. Whoever adopts it unblocks it.
pub fn abandon(found: &Found, actions: &dyn Actions) -> Result<Ended, AdoptError> {
    let _claimed = match found.claim() {
        Err(error) if matches!(error.reason, OpenDeviceReason::Busy) => return Ok(Ended::Served),
        outcome => outcome?,
    };
    actions.set_blocked(true).map_err(AdoptError::Action)?;
    actions.reset_ring(Outstanding::Failed).map_err(AdoptError::Action)?;
    Ok(Ended::Ended)
}
