//! The log: `tracing` events as text or JSON on standard error. Nothing is logged per I/O.
//!
//! | level | means |
//! |---|---|
//! | error | somebody has to do something: a disk or LUN is down |
//! | warn | it went wrong and was dealt with: a refused login, a dropped connection, a wrong file on reload |
//! | info | the life of the gateway: start, stop, logins, logouts, disks opened |
//! | debug | negotiations and decisions, for the people who work on it |

use std::io::IsTerminal;

use anyhow::Context;
use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;

/// How the log is written.
#[derive(Clone, Debug, Args)]
pub(crate) struct Log {
    /// Log format
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Text, env = "RBDGATE_LOG_FORMAT", hide_env_values = true)]
    pub(crate) log_format: LogFormat,
    /// Log filter, such as warn, debug, or info,rbdgate::portal=debug
    #[arg(
        long,
        global = true,
        default_value = "info",
        env = "RBDGATE_LOG",
        hide_env_values = true,
        value_name = "FILTER"
    )]
    pub(crate) log: String,
}

/// Text for people, JSON for collectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// One line an event, with colour on a terminal
    Text,
    /// One JSON object a line
    Json,
}

/// Starts the log; once per process.
pub(crate) fn start(log: &Log) -> anyhow::Result<()> {
    let filter = EnvFilter::builder().parse(&log.log).with_context(|| {
        format!(
            "--log \"{}\" is no filter; write a level (error, warn, info, debug) or TARGET=LEVEL",
            log.log
        )
    })?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match log.log_format {
        LogFormat::Text => builder.with_ansi(std::io::stderr().is_terminal()).init(),
        LogFormat::Json => builder.json().flatten_event(true).init(),
    }
    Ok(())
}
