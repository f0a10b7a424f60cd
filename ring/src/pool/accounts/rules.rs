//! Who may have more, and who waits.
//!
//! A request of LUN *i* for `need` bytes is judged, in this order:
//!
//! 1. the LUN's own area must have room;
//! 2. `held + command areas + reservations + need` must stay within the limit;
//! 3. up to its *reserve* (`min(largest command, limit / LUNs)`) a LUN is then served;
//! 4. above it, the unused reserves of the other LUNs stay untouched (as far as they make up half of the limit: with many
//!    LUNs under a small limit the other half is shared), so that a LUN whose disk hangs cannot starve the others;
//! 5. while another LUN waits, nobody goes beyond its *fair share* (limit / LUNs that hold or wait), except for the only
//!    command of a LUN;
//! 6. nor past a LUN that asked before.
//!
//! A LUN that holds nothing and is first in line may look past reservations and reserves (2, 4), and past the command
//! areas too when nobody holds anything: so every command that is within the limit is served sooner or later, whatever
//! the limit. A command beyond the limit is refused at once.

use super::Accounts;
use crate::pool::Tenant;

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Yes.
    Grant,
    /// The LUN's own area is full.
    AreaFull,
    /// The pool is used up, or somebody was first.
    Contended,
    /// The LUN has its share.
    OverShare,
}

impl Accounts {
    /// Judges a request; `blocked` when somebody who asked before contends for the pool.
    pub(super) fn judge(&self, tenant: Tenant, need: u64, blocked: bool) -> Verdict {
        let account = self.view(tenant);
        let after = account.held + need;
        if after > account.area {
            return Verdict::AreaFull;
        }
        if account.fixed {
            return Verdict::Grant;
        }
        let total = self.base + self.held + need;
        let first = account.held == 0 && !blocked && (total <= self.limit || self.held == 0);
        if total + self.reserved > self.limit && !first {
            return Verdict::Contended;
        }
        if after <= account.reserve {
            return Verdict::Grant;
        }
        let own = account.reserve - account.held.min(account.reserve);
        let aside = (self.reserves - self.covered - own).min(self.limit / 2);
        if total + self.reserved + aside > self.limit && !first {
            return Verdict::Contended;
        }
        if self.contending > usize::from(account.contends) && account.held > 0 {
            let active = self.active + u64::from(!account.is_active());
            if after > (self.limit / active.max(1)).max(account.reserve) {
                return Verdict::OverShare;
            }
        }
        if blocked { Verdict::Contended } else { Verdict::Grant }
    }

    /// True when `bytes` may be set aside without touching anybody's reserve, and nobody waits.
    pub(in crate::pool) fn may_reserve(&self, bytes: u64) -> bool {
        let aside = (self.reserves - self.covered).min(self.limit / 2);
        let total = self.base.saturating_add(self.held).saturating_add(self.reserved).saturating_add(aside);
        self.contending == 0 && total.saturating_add(bytes) <= self.limit
    }
}
