//! The data area of one LUN: which blocks are taken, which are backed by memory, and giving memory back.
//!
//! A block is *free* or *taken* (the [`Ledger`]), and *backed* or not. It is backed, and charged to the pool, when it is
//! first handed out; it stays backed when it is freed, so that a busy LUN takes no page faults, until the pool wants the
//! memory (highest block first) or the LUN has been idle. Only free blocks are ever punched, under the lock that also
//! hands them out: a block under a command in flight is never freed and never another's.

mod runs;

use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;

use self::runs::Runs;
use crate::pool::{PoolShared, Tenant};
use crate::shm::{Ledger, Mapping, Run, punch, spans};

/// Runs of one allocation; nearly always one.
pub(crate) type Held = SmallVec<[Run; 1]>;

/// Most bytes that one hold of the lock punches, so that a LUN that wakes up need not wait for a whole shrink.
const PUNCH_AT_ONCE: u64 = 16 << 20;

/// One LUN's data area.
#[derive(Debug)]
pub(crate) struct Area {
    pub(crate) mapping: Arc<Mapping>,
    pub(crate) pool: Arc<PoolShared>,
    /// This LUN in the pool's books.
    pub(crate) tenant: Tenant,
    file: Arc<File>,
    base: usize,
    block: usize,
    blocks: u32,
    floor: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    ledger: Ledger,
    runs: Runs,
    backed: Vec<u64>,
    backed_blocks: u32,
    taken_blocks: u32,
    /// No word from here on has a backed bit.
    backed_end: usize,
}

/// Where an area lies and how it is cut.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// Bytes from the start of the mapping.
    pub(crate) base: usize,
    /// Bytes of a block.
    pub(crate) block: usize,
    /// Number of blocks.
    pub(crate) blocks: u32,
    /// Bytes that an idle shrink leaves.
    pub(crate) floor: u64,
    /// Every block is backed from the start and stays so.
    pub(crate) fixed: bool,
}

impl Area {
    /// An area nothing of which is taken; nothing is backed either, unless the layout is fixed.
    pub(crate) fn new(
        mapping: Arc<Mapping>,
        file: Arc<File>,
        pool: Arc<PoolShared>,
        tenant: Tenant,
        layout: Layout,
    ) -> Self {
        let Layout { base, block, blocks, floor, fixed } = layout;
        let ledger = Ledger::new(&mapping, base, block, blocks);
        let words = (blocks as usize).div_ceil(64);
        let runs = Runs::new(words, |word| ledger.word(word));
        let mut backed = vec![0; words];
        if fixed {
            spans(0, blocks).for_each(|(word, mask)| backed[word] = mask);
        }
        let (backed_blocks, backed_end) = if fixed { (blocks, words) } else { (0, 0) };
        let floor = if fixed { block as u64 * u64::from(blocks) } else { floor };
        let state = Mutex::new(State { ledger, runs, backed, backed_blocks, taken_blocks: 0, backed_end });
        Self { mapping, pool, tenant, file, base, block, blocks, floor, state }
    }

    /// Bytes of the whole area.
    pub(crate) fn size(&self) -> u64 {
        self.block as u64 * u64::from(self.blocks)
    }

    /// Bytes of one block.
    pub(crate) fn block(&self) -> usize {
        self.block
    }

    /// Bytes of the blocks that `len` bytes take; `None` when they are more than the area.
    pub(crate) fn need(&self, len: usize) -> Option<u64> {
        let blocks = len.div_ceil(self.block);
        (blocks <= self.blocks as usize).then(|| blocks as u64 * self.block as u64)
    }

    /// Bytes taken, and bytes backed.
    pub(crate) fn usage(&self) -> (u64, u64) {
        let state = self.lock();
        let bytes = |blocks: u32| u64::from(blocks) * self.block as u64;
        (bytes(state.taken_blocks), bytes(state.backed_blocks))
    }

    /// Takes blocks for `len` bytes that the pool has granted, so that they are there.
    pub(crate) fn take(&self, len: usize) -> Held {
        let count = len.div_ceil(self.block) as u32;
        let mut state = self.lock();
        let (held, newly_backed) = state.take(count);
        drop(state);
        debug_assert_eq!(held.iter().map(Run::count).sum::<u32>(), count, "granted blocks were not there");
        if newly_backed > 0 {
            // Memory that the pool lacks is punched elsewhere before anybody touches these blocks.
            self.pool.charge_blocks(self.tenant, u64::from(newly_backed) * self.block as u64);
        }
        held
    }

    /// Frees blocks. They stay backed.
    pub(crate) fn free(&self, held: Held) {
        let mut bytes = 0;
        let mut state = self.lock();
        for run in held {
            bytes += run.len() as u64;
            state.free(run);
        }
        drop(state);
        self.pool.release(self.tenant, bytes);
    }

    /// Punches free blocks, highest first, until `bytes` are given back or no more than `floor` is backed.
    pub(crate) fn shrink(&self, bytes: u64, floor: u64) -> u64 {
        self.punch(bytes, floor, false)
    }

    /// Punches free blocks down to the floor as long as no command takes any.
    pub(crate) fn shrink_idle(&self) -> u64 {
        self.punch(u64::MAX, self.floor, true)
    }

    fn punch(&self, bytes: u64, floor: u64, only_idle: bool) -> u64 {
        let block = self.block as u64;
        let mut freed = 0;
        while freed < bytes {
            let mut state = self.lock();
            if only_idle && state.taken_blocks > 0 {
                break;
            }
            let above = (u64::from(state.backed_blocks) * block).saturating_sub(floor) / block;
            let wanted = (bytes - freed).min(PUNCH_AT_ONCE).div_ceil(block).min(above);
            let blocks = state.punch(wanted as u32, |start, count| {
                let offset = self.base + start as usize * self.block;
                punch(&self.file, offset, count as usize * self.block).is_ok()
            });
            if blocks == 0 {
                break;
            }
            freed += u64::from(blocks) * block;
            // Still under the lock, so that nobody charges one of these blocks before it is discharged.
            self.pool.discharge_blocks(self.tenant, u64::from(blocks) * block);
        }
        freed
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Area {
    /// Nobody can allocate here any more: only what commands in flight still hold stays, until the memory is unmapped.
    fn drop(&mut self) {
        if self.floor < self.size() {
            self.shrink(u64::MAX, 0);
        }
    }
}

impl State {
    fn take(&mut self, count: u32) -> (Held, u32) {
        let (mut held, mut newly_backed, mut missing) = (Held::new(), 0, count);
        while missing > 0 {
            let ledger = &self.ledger;
            let whole = self.runs.find(missing, |word| ledger.word(word));
            let lowest = || self.runs.find(1, |word| ledger.word(word));
            // In pieces, the lowest free blocks go first.
            let Some(start) = (if held.is_empty() { whole } else { None }).or_else(lowest) else { break };
            let len = if whole == Some(start) { missing } else { self.free_from(start, missing) };
            let Some(run) = self.ledger.take(start, len) else { break };
            newly_backed += self.back(start, start + len);
            self.note(start, len);
            self.taken_blocks += len;
            missing -= len;
            held.push(run);
        }
        (held, newly_backed)
    }

    /// Free blocks in a row from `start` on, at most `most`.
    fn free_from(&self, start: u32, most: u32) -> u32 {
        let mut len = 0;
        while len < most {
            let block = start + len;
            let rest = self.ledger.word(block as usize / 64) >> (block % 64);
            let free = rest.trailing_zeros().min(64 - block % 64);
            len += free;
            if free < 64 - block % 64 {
                break;
            }
        }
        len.min(most)
    }

    fn free(&mut self, run: Run) {
        let (start, count) = (run.start(), run.count());
        self.ledger.give_back(run);
        self.taken_blocks -= count;
        self.note(start, count);
    }

    fn note(&mut self, start: u32, count: u32) {
        let ledger = &self.ledger;
        let (first, last) = (start as usize / 64, (start + count - 1) as usize / 64);
        self.runs.update(first, last, |word| ledger.word(word));
    }

    /// Marks blocks as backed; how many were not.
    fn back(&mut self, start: u32, end: u32) -> u32 {
        let mut new = 0;
        for (word, mask) in spans(start, end) {
            new += (mask & !self.backed[word]).count_ones();
            self.backed[word] |= mask;
            self.backed_end = self.backed_end.max(word + 1);
        }
        self.backed_blocks += new;
        new
    }

    /// Punches up to `wanted` free backed blocks, highest first, run by run; how many went.
    fn punch(&mut self, wanted: u32, mut punch: impl FnMut(u32, u32) -> bool) -> u32 {
        let mut done = 0;
        // A run that is being gathered downwards: its start and length.
        let mut run = (0, 0);
        let mut word = self.backed_end;
        let mut all_below = true;
        while done + run.1 < wanted && word > 0 {
            word -= 1;
            let mut idle = self.backed[word] & !self.ledger.word(word);
            while idle != 0 && done + run.1 < wanted {
                let top = 63 - idle.leading_zeros();
                let streak = (idle << (63 - top)).leading_ones().min(wanted - done - run.1);
                let (start, end) = (word as u32 * 64 + top + 1 - streak, word as u32 * 64 + top + 1);
                if run.1 > 0 && end != run.0 {
                    done += self.unback(run, &mut punch);
                    run = (0, 0);
                }
                run = (start, run.1 + streak);
                for (_, mask) in spans(start - word as u32 * 64, end - word as u32 * 64) {
                    idle &= !mask;
                }
            }
            all_below &= self.backed[word] == 0;
            if all_below {
                self.backed_end = word;
            }
        }
        done + self.unback(run, &mut punch)
    }

    fn unback(&mut self, (start, count): (u32, u32), punch: &mut impl FnMut(u32, u32) -> bool) -> u32 {
        if count == 0 || !punch(start, count) {
            return 0;
        }
        for (word, mask) in spans(start, start + count) {
            self.backed[word] &= !mask;
        }
        self.backed_blocks -= count;
        count
    }
}
