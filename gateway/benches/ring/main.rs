//! The seed experiment: one LUN on a slow, wide store, driven at depth, once with the ring that the kernel's users have (64
//! KiB of commands, 1 MiB of data), once with the dynamic data area, once with 1 GiB preallocated. Run it by
//! `containers/bench/ring`; the results are in `gateway/docs/bench-ring.md`.
//!
//! The store answers each command after 10 ms and carries 1.15 GB/s (a 10 GbE store). A cell is the median of rounds; in
//! each round the layouts take turns, in an order that changes, and a ratio is the median of the rounds' own ratios. Every
//! run begins with a shrunk ring and is
//! measured after a short ramp, in which the dynamic area grows.
//!
//! The second table is the thread's other row: many jobs of depth one on a slow store, where the ring should matter
//! little. Its bandwidth is what the thread saw with the dynamic ring, its latency is chosen so that the fixed ring comes
//! near what the thread saw; both rings run at the same time, each on such a store, over the same sequence of commands.

#![expect(
    clippy::print_stdout,
    clippy::expect_used,
    reason = "a command-line program that ends on the first surprise"
)]

mod job;
mod report;
mod rig;

use std::process::ExitCode;
use std::time::Duration;

use rbdgate::disk::fault::Settings as Store;

use crate::job::Load;
use crate::report::Cell;
use crate::rig::{Figures, Layout, Rig};

/// Long enough for the dynamic area to grow to what a load needs, on a busy machine too.
const RAMP: Duration = Duration::from_millis(200);

/// Rounds that a cell may get beyond the plan's.
const MORE_ROUNDS: usize = 6;

/// What to run.
struct Plan {
    sizes: Vec<usize>,
    jobs: Vec<usize>,
    rounds: usize,
    time: Duration,
    slow_commands: usize,
}

const USAGE: &str = "usage: ring [--quick] [--rounds N] [--seconds S] [--no-slow]";

fn plan() -> Result<Plan, String> {
    let mut plan = Plan {
        sizes: vec![64 << 10, 128 << 10, 256 << 10],
        jobs: vec![1, 2, 4],
        rounds: 5,
        time: Duration::from_millis(400),
        slow_commands: 16,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().and_then(|text| text.parse::<f64>().ok()).ok_or(USAGE);
        match argument.as_str() {
            "--quick" => {
                (plan.sizes, plan.jobs, plan.rounds) = (vec![64 << 10, 256 << 10], vec![1, 4], 3);
                (plan.time, plan.slow_commands) = (Duration::from_millis(300), 6);
            }
            "--rounds" => plan.rounds = value()?.max(1.0) as usize,
            "--seconds" => plan.time = Duration::from_secs_f64(value()?.clamp(0.1, 600.0)),
            "--no-slow" => plan.slow_commands = 0,
            // `cargo bench` passes it to every benchmark.
            "--bench" => {}
            _ => return Err(USAGE.into()),
        }
    }
    Ok(plan)
}

fn main() -> ExitCode {
    let plan = match plan() {
        Ok(plan) => plan,
        Err(usage) => {
            println!("{usage}");
            return ExitCode::FAILURE;
        }
    };
    let cells = experiment(&plan);
    println!("{}\n", report::main_table(&cells));
    let slow = if plan.slow_commands > 0 { slow_store(plan.slow_commands) } else { Vec::new() };
    if !slow.is_empty() {
        println!("{}\n", report::slow_table(&slow));
    }
    let verdicts = report::verdicts(&cells, &slow);
    for (holds, what) in &verdicts {
        println!("{} {what}", if *holds { "PASS" } else { "FAIL" });
    }
    if verdicts.iter().all(|(holds, _)| *holds) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn experiment(plan: &Plan) -> Vec<Cell> {
    let store =
        Store { latency: Duration::from_millis(10), bandwidth: Some(1_150_000_000), ..Store::default() };
    let rigs = [Layout::Fixed, Layout::Dynamic, Layout::Preallocated]
        .map(|layout| Rig::start(layout, store.clone()));
    let load = |write, size, jobs| Load {
        write,
        sizes: (size, size),
        depth: 64,
        jobs,
        ramp: RAMP,
        time: Some(RAMP + plan.time),
        commands: None,
    };
    // Fills the disk, so that no cell pays for the store's own memory.
    for rig in &rigs {
        rig.run(&load(true, 256 << 10, 1));
    }
    let mut cells = Vec::new();
    for write in [false, true] {
        for &size in &plan.sizes {
            cells.extend(plan.jobs.iter().map(|&jobs| Cell::new(write, size, jobs)));
        }
    }
    let measure = |cell: &mut Cell, round: usize| {
        for turn in 0..rigs.len() {
            let index = (round + turn) % rigs.len();
            cell.rounds[index].push(rigs[index].run(&load(cell.write, cell.size, cell.jobs)));
        }
    };
    for round in 0..plan.rounds {
        cells.iter_mut().for_each(|cell| measure(cell, round));
    }
    // A busy machine makes some medians wrong: those get more rounds, and all of theirs count.
    for round in 0..MORE_ROUNDS {
        cells.iter_mut().filter(|cell| !cell.holds()).for_each(|cell| measure(cell, round));
    }
    for rig in &rigs {
        assert_eq!(rig.copied(), 0, "the {:?} gateway has copied payload", rig.layout);
    }
    cells
}

/// Both directions on both layouts, side by side.
fn slow_store(commands: usize) -> Vec<(bool, Figures, Figures)> {
    let run = |write: bool, layout: Layout| {
        let (bandwidth, latency) = if write { (3_300_000, 255) } else { (6_100_000, 150) };
        let latency = Duration::from_millis(latency);
        let rig = Rig::start(layout, Store { latency, bandwidth: Some(bandwidth), ..Store::default() });
        let sizes = (64 << 10, 1 << 20);
        rig.run(&Load {
            write,
            sizes,
            depth: 1,
            jobs: 10,
            ramp: Duration::ZERO,
            time: None,
            commands: Some(commands),
        })
    };
    std::thread::scope(|scope| {
        let runs = [false, true].map(|write| {
            let fixed = scope.spawn(move || run(write, Layout::Fixed));
            let dynamic = scope.spawn(move || run(write, Layout::Dynamic));
            (write, fixed, dynamic)
        });
        runs.map(|(write, fixed, dynamic)| {
            (write, fixed.join().expect("a run"), dynamic.join().expect("a run"))
        })
        .into()
    })
}
