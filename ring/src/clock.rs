//! A cheap monotonic clock: good to a few milliseconds, which is plenty for "how long has this LUN been idle".

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Time since some fixed moment. Costs a few nanoseconds, since it reads what the last timer tick left.
pub(crate) fn now() -> Duration {
    // Cannot fail for this clock; standing still would only delay the shrink of idle LUNs.
    clock_gettime(ClockId::CLOCK_MONOTONIC_COARSE).map_or(Duration::ZERO, Duration::from)
}
