//! `rbdgate status`: a running gateway in three tables.

use clap::Args;
use comfy_table::{Table, presets};

use super::{Output, Socket, say};
use crate::config::Bytes;
use crate::control::{self, Command};
use crate::status::{State, Status as Figures};

#[derive(Debug, Args)]
pub(super) struct Status {
    #[command(flatten)]
    socket: Socket,
    /// Print tables, or JSON for scripts
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

impl Status {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let status: Figures = control::ask(self.socket.control.as_deref(), &Command::Status)?;
        match self.output {
            Output::Json => say(&serde_json::to_string_pretty(&status)?),
            Output::Table => say(&render(&status)),
        }
        Ok(())
    }
}

fn render(status: &Figures) -> String {
    let memory = &status.memory;
    let (charged, limit, in_use) = (Bytes(memory.charged), Bytes(memory.limit), Bytes(memory.in_use));
    format!(
        "rbdgate {} (process {}), up {}, on {}\nmemory {charged} of {limit}, {in_use} in use\n\n{}\n\n{}",
        status.version,
        status.pid,
        age(status.uptime_seconds),
        status.listen.join(", "),
        luns(status),
        sessions(status),
    )
}

fn luns(status: &Figures) -> String {
    if status.luns.is_empty() {
        return "no LUNs".into();
    }
    let mut table = table(&[
        "TARGET",
        "LUN",
        "DISK",
        "STORE",
        "SIZE",
        "STATE",
        "IN FLIGHT",
        "DATA AREA",
        "READ",
        "WRITTEN",
        "ERRORS",
    ]);
    let mut reasons = String::new();
    for lun in &status.luns {
        let (state, reason) = match &lun.state {
            State::Online => ("online", None),
            State::Unavailable(reason) => ("unavailable", Some(reason)),
            State::Failed(reason) => ("failed", Some(reason)),
        };
        // Below the table: a sentence in a column would push the others out of sight.
        if let Some(reason) = reason {
            reasons += &format!("\n{} LUN {} {state}: {reason}", lun.target, lun.lun);
        }
        let waiting = if lun.waiting > 0 { format!(" (+{} waiting)", lun.waiting) } else { String::new() };
        table.add_row([
            lun.target.clone(),
            lun.lun.to_string(),
            lun.disk.clone(),
            lun.store.clone(),
            Bytes(lun.size).to_string(),
            state.into(),
            format!("{}{waiting}", lun.in_flight),
            format!("{}/{}", Bytes(lun.data_area_backed), Bytes(lun.data_area)),
            Bytes(lun.read_bytes).to_string(),
            Bytes(lun.written_bytes).to_string(),
            lun.errors.to_string(),
        ]);
    }
    if reasons.is_empty() { table.to_string() } else { format!("{table}\n{reasons}") }
}

fn sessions(status: &Figures) -> String {
    if status.sessions.is_empty() {
        return "no sessions".into();
    }
    let mut table = table(&["INITIATOR", "TARGET", "FROM", "LOGIN", "DIGESTS", "SINCE"]);
    for session in &status.sessions {
        table.add_row([
            session.initiator.clone(),
            session.target.clone(),
            session.peer.clone(),
            if session.authenticated { "CHAP" } else { "open" }.into(),
            match (session.header_digest, session.data_digest) {
                (true, true) => "header, data".into(),
                (true, false) => "header".into(),
                (false, true) => "data".into(),
                (false, false) => "none".into(),
            },
            age(session.age_seconds),
        ]);
    }
    table.to_string()
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header.iter().copied());
    table
}

fn age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h{}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d{}h", seconds / 86_400, seconds / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{Lun, Session};

    #[test]
    fn the_tables_show_what_a_person_looks_for() {
        let lun = Lun {
            target: "iqn.2026-01.com.example:one".into(),
            disk: "vm1".into(),
            size: 10 << 30,
            state: State::Unavailable("no such pool".into()),
            ..Lun::default()
        };
        let session = Session {
            initiator: "iqn.2026-01.com.example:host".into(),
            age_seconds: 3_700,
            ..Session::default()
        };
        let text = render(&Figures { luns: vec![lun], sessions: vec![session], ..Figures::default() });
        for part in ["vm1", "10GiB", "unavailable: no such pool", "iqn.2026-01.com.example:host", "1h1m"] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
    }

    #[test]
    fn an_idle_gateway_says_so_in_words() {
        assert!(render(&Figures::default()).ends_with("no LUNs\n\nno sessions"));
    }
}
