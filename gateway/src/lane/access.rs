//! SET TARGET PORT GROUPS: the one thing a command asks for that is not the disk's.

use super::pump::Pump;
use crate::disk::{Completer, Error, Outcome};
use crate::scsi::alua::{Refusal, Wish};

impl Pump {
    /// Passes the wishes on. What comes of them is completed like an operation of the disk; a source that drops them has
    /// failed.
    pub(super) fn set_target_port_groups(&self, wishes: &[Wish], completer: Completer) {
        let Some(source) = self.unit.source() else { return };
        source.set(
            wishes,
            Box::new(move |outcome| {
                let result = match outcome {
                    Ok(()) => Ok(Outcome::default()),
                    Err(Refusal::Transitioning) => Err(Error::NotReady),
                    Err(Refusal::Failed) => Err(Error::Io(libc::EIO)),
                };
                completer.complete(result, None);
            }),
        );
    }
}
