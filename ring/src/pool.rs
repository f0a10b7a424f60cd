//! The global pool: one limit on the resident bytes of every LUN's ring and data area in the process.

use std::time::Duration;

/// One limit for all rings of the process. Cloning shares it.
#[derive(Clone, Debug)]
pub struct Pool {}

/// What the pool holds. All figures in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct PoolUsage {
    /// The limit in force.
    pub limit: u64,
    /// Charged: backed blocks and touched command-area pages of all LUNs.
    pub charged: u64,
    /// Of `charged`: blocks that a command holds now.
    pub in_use: u64,
    /// Set aside by [`Pool::try_reserve`].
    pub reserved: u64,
    /// LUNs with at least one waiting allocation.
    pub waiting_luns: usize,
    /// Rings that share the pool.
    pub luns: usize,
}

/// Bytes set aside for data that a peer may send unasked (iSCSI first-burst credit). Dropping it gives them back.
#[derive(Debug)]
pub struct Reserve {}

impl Reserve {
    /// Bytes still set aside.
    pub fn remaining(&self) -> usize {
        todo!()
    }
}

impl Pool {
    /// A pool of `limit` bytes.
    pub fn new(_limit: u64) -> Self {
        todo!()
    }
    /// Changes the limit; a lower one reclaims what is idle and lets the rest drain.
    pub fn set_limit(&self, _limit: u64) {
        todo!()
    }
    /// A snapshot of the figures.
    pub fn usage(&self) -> PoolUsage {
        todo!()
    }
    /// Sets `bytes` aside, or `None` when that would leave waiting commands or other LUNs without their reserve.
    pub fn try_reserve(&self, _bytes: usize) -> Option<Reserve> {
        todo!()
    }
    /// Gives back the memory of every LUN that has had no active command for `idle`; returns the bytes freed.
    /// Call it about once a second.
    pub fn reclaim_idle(&self, _idle: Duration) -> u64 {
        todo!()
    }
}
