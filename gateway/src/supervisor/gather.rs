//! One command at a time: the threads share a core for as long as that is measurably faster.
//!
//! A single command is a chain of wakes: connection, lane, the store's threads, and back. Where a wake across cores costs more
//! than the work between two wakes (virtual machines above all), the chain is faster on one core; with two commands in
//! flight it is not. Which of the two holds is not guessed from the machine: after half a second of one command at a
//! time the threads are put on one core for as long again, and do not stay if fewer commands were answered. The first moment of more than one command in flight lets every thread go anywhere again.

use std::fs;
use std::sync::Weak;
use std::time::Duration;

use nix::sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use nix::unistd::Pid;

use super::app::Shared;
use crate::lane::Load;

/// Between two looks while commands come.
const TICK: Duration = Duration::from_millis(50);
/// Between two looks while none do.
const IDLE_TICK: Duration = Duration::from_millis(500);
/// Looks that make up one measurement.
const WINDOW: u32 = 10;
/// Answers per look below which nobody waits for the next one.
const FEWEST: u64 = 20;
/// What the rate on one core must not fall below, of that before: less is not what such a rate wanders by itself.
const KEEP: (u64, u64) = (19, 20);
/// After how many looks on one core the other way is measured again.
const STAY: u32 = 600;
/// How many looks a failed trial is not repeated for, at first and at most; doubled each time.
const HOLD: (u32, u32) = (200, 12_000);

/// What to do with the threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    Together,
    Apart,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Threads run anywhere; `answered` in `looks` looks in a row with one command at a time.
    Apart { looks: u32, answered: u64 },
    /// On one core, to be compared with `before`. The first look is not counted: threads are still moving.
    Trial { looks: u32, answered: u64, before: u64 },
    /// On one core.
    Together { looks: u32 },
}

/// Decides, look by look.
#[derive(Debug)]
struct Chain {
    phase: Phase,
    /// Looks until a trial may begin, and what a failed one makes of it.
    hold: u32,
    next_hold: u32,
}

impl Default for Chain {
    fn default() -> Self {
        Self { phase: Phase::Apart { looks: 0, answered: 0 }, hold: 0, next_hold: HOLD.0 }
    }
}

impl Chain {
    /// `answered` commands since the last look, of which one at a time was in flight (`single`) or more.
    fn look(&mut self, answered: u64, single: bool) -> Option<Move> {
        self.hold = self.hold.saturating_sub(1);
        let single = single && answered >= FEWEST;
        if !single {
            let was_apart = matches!(self.phase, Phase::Apart { .. });
            self.phase = Phase::Apart { looks: 0, answered: 0 };
            return (!was_apart).then_some(Move::Apart);
        }
        let (phase, moved) = match self.phase {
            Phase::Apart { looks, answered: before } => {
                let (looks, before) = (looks + 1, before + answered);
                match (looks < WINDOW, self.hold == 0) {
                    (true, _) => (Phase::Apart { looks, answered: before }, None),
                    (false, true) => (Phase::Trial { looks: 0, answered: 0, before }, Some(Move::Together)),
                    (false, false) => (Phase::Apart { looks: 0, answered: 0 }, None),
                }
            }
            Phase::Trial { looks: 0, before, .. } => (Phase::Trial { looks: 1, answered: 0, before }, None),
            Phase::Trial { looks, answered: so_far, before } => {
                let so_far = so_far + answered;
                if looks < WINDOW {
                    (Phase::Trial { looks: looks + 1, answered: so_far, before }, None)
                } else if so_far * KEEP.1 >= before * KEEP.0 {
                    self.next_hold = HOLD.0;
                    (Phase::Together { looks: 0 }, None)
                } else {
                    self.hold = self.next_hold;
                    self.next_hold = (self.next_hold * 2).min(HOLD.1);
                    (Phase::Apart { looks: 0, answered: 0 }, Some(Move::Apart))
                }
            }
            Phase::Together { looks } if looks < STAY => (Phase::Together { looks: looks + 1 }, None),
            Phase::Together { .. } => (Phase::Apart { looks: 0, answered: 0 }, Some(Move::Apart)),
        };
        self.phase = phase;
        moved
    }
}

/// Looks at the gateway's load and moves its threads, for as long as the gateway lives. Ends at once where the process may use
/// one core only, or none may be chosen.
pub(super) async fn watch(shared: Weak<Shared>) {
    let Ok(allowed) = sched_getaffinity(Pid::from_raw(0)) else { return };
    if (0..CpuSet::count()).filter(|cpu| allowed.is_set(*cpu).unwrap_or(false)).count() < 2 {
        return;
    }
    let mut chain = Chain::default();
    let mut before = Load::default();
    let mut tick = IDLE_TICK;
    loop {
        let since = tokio::time::Instant::now();
        tokio::time::sleep(tick).await;
        let Some(load) = shared.upgrade().map(|shared| shared.load()) else { break };
        let answered = load.answered.saturating_sub(before.answered);
        // Little's law: the time spent in commands over the time that passed is how many were in flight on average.
        let busy = load.busy.saturating_sub(before.busy);
        let single = load.in_flight <= 1 && busy <= since.elapsed().mul_f32(1.05);
        before = load;
        let moved = chain.look(answered, single);
        if let Some(moved) = moved {
            tracing::debug!(?moved, phase = ?chain.phase, "one command at a time");
        }
        match moved {
            Some(Move::Together) => one_core(&allowed),
            Some(Move::Apart) => move_all(&allowed),
            None => {}
        }
        let quiet = answered == 0 && load.in_flight == 0;
        tick = if quiet { IDLE_TICK } else { TICK };
    }
    move_all(&allowed);
}

/// All threads to the core on which this one runs: the scheduler has just chosen it, so it is one with little to do.
fn one_core(allowed: &CpuSet) {
    let mut one = CpuSet::new();
    match sched_getcpu() {
        Ok(cpu) if allowed.is_set(cpu).unwrap_or(false) && one.set(cpu).is_ok() => move_all(&one),
        _ => {}
    }
}

/// Threads that are made meanwhile take after the one that makes them, so the list is read until it stays the same.
fn move_all(cpus: &CpuSet) {
    let mut moved = Vec::new();
    for _ in 0..3 {
        let threads = threads();
        let new: Vec<_> = threads.into_iter().filter(|thread| !moved.contains(thread)).collect();
        if new.is_empty() {
            return;
        }
        for thread in new {
            // One that has ended meanwhile needs no core.
            let _ = sched_setaffinity(Pid::from_raw(thread), cpus);
            moved.push(thread);
        }
    }
}

fn threads() -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc/self/task") else { return Vec::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks `count` times; what was to be done, and at which look.
    fn looks(chain: &mut Chain, count: u32, answered: u64, single: bool) -> Vec<(u32, Move)> {
        (1..=count).filter_map(|look| Some((look, chain.look(answered, single)?))).collect()
    }

    #[test]
    fn one_command_at_a_time_is_tried_on_one_core_and_stays_unless_it_is_slower() {
        let mut chain = Chain::default();
        assert_eq!(looks(&mut chain, 10, 100, true), [(10, Move::Together)]);
        assert_eq!(looks(&mut chain, 11, 96, true), []);
        assert_eq!(chain.phase, Phase::Together { looks: 0 });
    }

    #[test]
    fn a_trial_that_answers_fewer_is_undone_and_not_repeated_soon() {
        let mut chain = Chain::default();
        assert_eq!(looks(&mut chain, 10, 100, true), [(10, Move::Together)]);
        assert_eq!(looks(&mut chain, 11, 94, true), [(11, Move::Apart)]);
        let again = looks(&mut chain, HOLD.0, 100, true);
        assert_eq!(again, [(HOLD.0, Move::Together)]);
        assert_eq!(looks(&mut chain, 11, 90, true), [(11, Move::Apart)]);
        assert_eq!(looks(&mut chain, 2 * HOLD.0 - 1, 100, true), []);
    }

    #[test]
    fn a_second_command_in_flight_ends_it_at_once() {
        for gathered in [10, 15, 21, 300] {
            let mut chain = Chain::default();
            looks(&mut chain, gathered, 100, true);
            assert_eq!(chain.look(200, false), Some(Move::Apart), "after {gathered} looks");
            assert_eq!(chain.look(200, false), None);
        }
    }

    #[test]
    fn a_host_that_is_not_waiting_for_the_next_answer_moves_nothing() {
        let mut chain = Chain::default();
        assert_eq!(looks(&mut chain, 100, FEWEST - 1, true), []);
    }

    #[test]
    fn the_other_way_is_measured_again_now_and_then() {
        let mut chain = Chain::default();
        looks(&mut chain, 10, 100, true);
        looks(&mut chain, 11, 150, true);
        assert_eq!(looks(&mut chain, STAY + 1, 150, true), [(STAY + 1, Move::Apart)]);
        assert_eq!(looks(&mut chain, 10, 100, true), [(10, Move::Together)]);
    }

    #[test]
    fn all_threads_share_a_core_and_are_let_go_again() {
        let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let waiting = std::thread::spawn(move || ended.recv());
        let cores = || -> Vec<usize> {
            let count = |set: CpuSet| (0..CpuSet::count()).filter(|cpu| set.is_set(*cpu).unwrap()).count();
            threads()
                .into_iter()
                .filter_map(|t| sched_getaffinity(Pid::from_raw(t)).ok().map(count))
                .collect()
        };
        one_core(&allowed);
        let together = cores();
        move_all(&allowed);
        let apart = cores();
        drop(end);
        let _ = waiting.join();
        assert!(together.len() >= 2 && together.iter().all(|count| *count == 1), "{together:?}");
        let all = (0..CpuSet::count()).filter(|cpu| allowed.is_set(*cpu).unwrap()).count();
        assert!(apart.iter().all(|count| *count == all), "{apart:?}");
    }
}
