//! The `rbdgate` command.

use std::process::ExitCode;

use clap::Parser;
use rbdgate::cli::Cli;

fn main() -> ExitCode {
    Cli::parse().run()
}
