//! The warning that a pool gets full (SBC-3, logical block provisioning thresholds).
//!
//! The operator says from which share of the pool on (`pool_threshold`); hosts read it in the mode page and cannot change it.
//! Every nexus is told once each time the share is reached.

use smallvec::smallvec;

use super::background::Background;
use super::device::Device;
use super::gate::Audience;
use super::log::threshold_set;
use super::sense;
use super::step::{Finished, Io};
use crate::disk::Usage;

/// What is known of the pool, and whether somebody asks.
#[derive(Debug, Default)]
pub(super) struct Watch {
    due: bool,
    asking: bool,
    /// The threshold has been reached, and hosts know.
    reached: bool,
    usage: Usage,
}

impl Watch {
    /// Ask at the next opportunity.
    pub(super) fn due(&mut self) {
        self.due = true;
    }

    /// Nobody asks any more.
    pub(super) fn forget(&mut self) {
        (self.due, self.asking) = (false, false);
    }

    /// Whether a question is due or out.
    pub(super) fn is_due(&self) -> bool {
        self.due || self.asking
    }

    /// Whether the question is out.
    pub(super) fn is_out(&self) -> bool {
        self.asking
    }

    /// The question, if it is due.
    pub(super) fn ask(&mut self) -> Option<Background> {
        self.asking |= std::mem::take(&mut self.due);
        self.asking.then(|| Background { io: smallvec![Io::Usage], exclusive: None })
    }

    /// Takes an answer in; true when the threshold has been reached now.
    fn learn(&mut self, usage: Usage, percent: u8) -> bool {
        self.usage = usage;
        let (Some(free), Some(pool)) = (usage.available, usage.pool.filter(|pool| *pool > 0)) else {
            return false;
        };
        let used = pool.saturating_sub(free);
        let at_least = |percent: u8| u128::from(used) * 100 >= u128::from(pool) * u128::from(percent);
        if at_least(percent) {
            return !std::mem::replace(&mut self.reached, true);
        }
        // A pool that hovers about the threshold is one warning, not many.
        if !at_least(percent.saturating_sub(1)) {
            self.reached = false;
        }
        false
    }

    /// THRESHOLD COUNT of the mode page: what is available when the threshold is reached, in threshold sets.
    pub(super) fn threshold_count(&self, percent: u8, block: u64) -> Option<u32> {
        let free = u128::from(self.usage.pool?) * u128::from(100 - percent.min(100)) / 100;
        Some(u32::try_from(free / u128::from(threshold_set(block))).unwrap_or(u32::MAX))
    }
}

/// Takes the answer to [`Watch::ask`] in; false when there was no question.
pub(super) fn answered(device: &mut Device, results: &[Finished]) -> bool {
    if !std::mem::take(&mut device.space.asking) {
        return false;
    }
    let usage = results.first().and_then(|finished| finished.result.as_ref().ok()?.usage.as_deref());
    if let (Some(usage), Some(percent)) = (usage, device.settings.pool_threshold)
        && device.space.learn(*usage, percent)
    {
        device.gate.establish(sense::THIN_PROVISIONING_SOFT_THRESHOLD_REACHED, Audience::Everyone);
    }
    true
}
