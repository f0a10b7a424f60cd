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
use tracing_subscriber::EnvFilter;

use crate::cli::{Log, LogFormat};

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
