//! Tables and verdicts.

use comfy_table::{CellAlignment, Table, presets};

use crate::rig::Figures;

/// One cell of the main experiment: the same load on three layouts, round by round.
#[derive(Debug)]
pub(crate) struct Cell {
    pub(crate) write: bool,
    pub(crate) size: usize,
    pub(crate) jobs: usize,
    /// Fixed, dynamic, preallocated.
    pub(crate) rounds: [Vec<Figures>; 3],
}

impl Cell {
    pub(crate) fn new(write: bool, size: usize, jobs: usize) -> Self {
        Self { write, size, jobs, rounds: Default::default() }
    }

    /// Dynamic to fixed: the median of the rounds' own ratios, as a slow moment of the machine meets a whole round.
    fn to_fixed(&self) -> f64 {
        self.ratio(0)
    }

    /// Dynamic to preallocated, likewise.
    fn to_preallocated(&self) -> f64 {
        self.ratio(2)
    }

    fn ratio(&self, to: usize) -> f64 {
        middle(
            self.rounds[1].iter().zip(&self.rounds[to]).map(|(dynamic, to)| dynamic.rate / to.rate).collect(),
        )
    }

    /// Medians: fixed, dynamic, preallocated.
    fn figures(&self) -> [Figures; 3] {
        [0, 1, 2].map(|layout| median(&self.rounds[layout]))
    }

    fn memory(&self) -> f64 {
        let [_, dynamic, preallocated] = self.figures();
        dynamic.resident as f64 / preallocated.resident as f64
    }

    /// What is asked of every cell.
    pub(crate) fn holds(&self) -> bool {
        self.to_fixed() >= 1.0 && self.to_preallocated() >= LEAST_OF_PREALLOCATED
    }
}

const LEAST_OF_PREALLOCATED: f64 = 0.97;

fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The middle rate and the largest memory of some rounds.
fn median(rounds: &[Figures]) -> Figures {
    let resident = rounds.iter().map(|round| round.resident).max().unwrap_or_default();
    Figures { rate: middle(rounds.iter().map(|round| round.rate).collect()), resident }
}

fn verb(write: bool) -> &'static str {
    if write { "write" } else { "read" }
}

fn table(header: &[&str], rows: impl Iterator<Item = Vec<String>>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header(header);
    for row in rows {
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// The main experiment, one row per cell.
pub(crate) fn main_table(cells: &[Cell]) -> Table {
    let header = [
        "command",
        "jobs",
        "fixed 1 MiB",
        "dynamic",
        "prealloc. 1 GiB",
        "dynamic / fixed",
        "dynamic / prealloc.",
        "resident: fixed",
        "dynamic",
        "prealloc.",
    ];
    let rate = |figures: &Figures| format!("{:.0} MB/s", figures.rate / 1e6);
    let resident = |figures: &Figures| format!("{:.0} MiB", figures.resident as f64 / f64::from(1 << 20));
    table(
        &header,
        cells.iter().map(|cell| {
            let [fixed, dynamic, preallocated] = cell.figures();
            vec![
                format!("{:>3} KiB {}", cell.size >> 10, verb(cell.write)),
                cell.jobs.to_string(),
                rate(&fixed),
                rate(&dynamic),
                rate(&preallocated),
                format!("{:.2}", cell.to_fixed()),
                format!("{:.3}", cell.to_preallocated()),
                resident(&fixed),
                resident(&dynamic),
                resident(&preallocated),
            ]
        }),
    )
}

/// The slow store, one row per direction: (write, fixed, dynamic).
pub(crate) fn slow_table(rows: &[(bool, Figures, Figures)]) -> Table {
    let header = ["command", "fixed 1 MiB", "dynamic", "dynamic / fixed", "the thread: fixed", "dynamic"];
    let rate = |rate: f64| format!("{:.0} KB/s", rate / 1e3);
    table(
        &header,
        rows.iter().map(|(write, fixed, dynamic)| {
            let (was, became) = if *write { (3.0e6, 3.3e6) } else { (5.2e6, 6.1e6) };
            vec![
                format!("64 KiB to 1 MiB {}, depth 1, 10 jobs", verb(*write)),
                rate(fixed.rate),
                rate(dynamic.rate),
                format!("{:.2}", dynamic.rate / fixed.rate),
                rate(was),
                rate(became),
            ]
        }),
    )
}

/// What must hold, as sentences, each with whether it does.
pub(crate) fn verdicts(cells: &[Cell], slow: &[(bool, Figures, Figures)]) -> Vec<(bool, String)> {
    let mut verdicts = Vec::new();
    for (write, least) in [(false, 6.25), (true, 7.5)] {
        if let Some(cell) =
            cells.iter().find(|cell| cell.write == write && cell.size == 256 << 10 && cell.jobs == 1)
        {
            let ratio = cell.to_fixed();
            let what = format!(
                "256 KiB {}s, one job: {ratio:.2} times the fixed ring (at least {least})",
                verb(write)
            );
            verdicts.push((ratio >= least, what));
        }
    }
    let least = |of: fn(&Cell) -> f64| cells.iter().map(of).fold(f64::INFINITY, f64::min);
    let slower = least(Cell::to_fixed);
    verdicts.push((
        slower >= 1.0,
        format!("no cell is slower than the fixed ring: at least {slower:.2} times it"),
    ));
    let behind = least(Cell::to_preallocated);
    verdicts.push((
        behind >= LEAST_OF_PREALLOCATED,
        format!("every cell reaches {behind:.3} of the preallocated area (at least 0.97)"),
    ));
    let memory = cells.iter().map(Cell::memory).fold(0.0, f64::max);
    verdicts.push((memory < 0.25, format!("with at most {memory:.3} of its memory (less than 0.25)")));
    for (write, fixed, dynamic) in slow {
        let ratio = dynamic.rate / fixed.rate;
        verdicts
            .push((ratio >= 1.0, format!("slow store, {}s: {ratio:.2} times the fixed ring", verb(*write))));
    }
    verdicts
}
