//! Two clocks: a cheap one, good to a few milliseconds, which is plenty for "how long has this LUN been idle", and one that
//! processes of one boot share.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Time since some fixed moment. Costs a few nanoseconds, since it reads what the last timer tick left.
pub(crate) fn now() -> Duration {
    // Cannot fail for this clock; standing still would only delay the shrink of idle LUNs.
    clock_gettime(ClockId::CLOCK_MONOTONIC_COARSE).map_or(Duration::ZERO, Duration::from)
}

/// Whole seconds since the machine was booted, sleep included; the same for every process.
pub(crate) fn since_boot() -> u32 {
    // Cannot fail for this clock; what counts from it would seem older than it is.
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::MAX, Duration::from);
    u32::try_from(now.as_secs()).unwrap_or(u32::MAX)
}
