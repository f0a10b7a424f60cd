//! Sizes and times of the kernel's rings, and why they are what they are.

use std::time::Duration;

use super::wanted::Area;

const MIB: u64 = 1 << 20;
/// Mailbox and command area: 8 MiB hold tens of thousands of commands, and cost as much memory per LUN. A session has some
/// hundred commands outstanding, of at most a few KiB of ring each.
const RING_MIB: u32 = 8;
/// Most that a kernel takes for one data area without clamping it: its own default of the global limit.
const LARGEST_DATA_MIB: u64 = 1 << 20;

/// After this long the kernel fails a command that its owner has not answered, with NOT READY, LOGICAL UNIT COMMUNICATION
/// FAILURE, and lets the session go.
///
/// The kernel's default of 30 s is shorter than what a slow cluster takes; the command fails, its data is written all the
/// same. Zero (what is often set) makes removal of a LUN, logout and reboot wait for ever once the process is gone. Five
/// minutes are longer than any initiator waits for one command (Linux 30 s, Windows 65 s, ESXi's all paths down 140 s) before
/// it aborts it, so the answer reaches nobody who still counts on the command; and with the process gone for good everything
/// ends on its own.
pub const COMMAND_TIMEOUT: Duration = Duration::from_secs(300);

/// Queue depth that a data area is made for when it is not configured larger: what one session may have outstanding.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Commands outstanding.
    pub depth: u32,
    /// Bytes of the largest of them.
    pub transfer: u64,
}

/// Sizes of a LUN's ring. `data_area`: what the configuration allows it, bytes; `block`: its unit, bytes, a multiple of a page;
/// `limit`: the machine-wide limit, bytes.
///
/// A large data area costs a bitmap, and memory only while commands fill it; one that is too small makes commands wait and
/// then fail with TASK SET FULL. So it is the larger of what is configured and what the load can need, within the limit.
pub fn area(load: Load, data_area: u64, block: u64, limit: u64) -> Area {
    let needed = u64::from(load.depth) * load.transfer;
    let data = needed.max(data_area).min(limit.max(MIB)).div_ceil(MIB).clamp(1, LARGEST_DATA_MIB);
    // A block of 0 pages makes older kernels divide by zero, one above the area is refused.
    let pages = (block / 4096).clamp(1, data * (MIB / 4096));
    Area { data_mib: data as u32, pages_per_block: pages as u32, ring_mib: RING_MIB }
}

/// The machine-wide soft limit of all data areas, MiB: what the gateway would use for its own rings.
pub fn global_limit(memory: u64) -> u64 {
    (memory / MIB).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_area_holds_what_the_initiators_may_have_outstanding() {
        let load = Load { depth: 128, transfer: 1 << 20 };
        assert_eq!(area(load, 8 << 20, 4096, 2 << 30).data_mib, 128);
        assert_eq!(
            area(load, 1 << 30, 4096, 2 << 30).data_mib,
            1024,
            "what is configured counts when larger"
        );
        assert_eq!(area(load, 1 << 30, 4096, 64 << 20).data_mib, 64, "never above the machine's limit");
    }

    #[test]
    fn the_kernel_never_gets_a_block_of_no_pages_or_above_the_area() {
        let load = Load { depth: 1, transfer: 4096 };
        assert_eq!(area(load, 0, 0, 0), Area { data_mib: 1, pages_per_block: 1, ring_mib: 8 });
        assert_eq!(area(load, 1 << 20, 4 << 20, 1 << 30).pages_per_block, 256);
        assert_eq!(global_limit(0), 1);
    }
}
