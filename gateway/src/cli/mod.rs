//! The command line. This module holds the tree of commands; each command is a file beside it.

mod check;
mod demo;
mod disk;
mod generate;
mod lio;
mod reload;
mod serve;
mod status;
mod target;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::telemetry::{self, Log};

/// Serve Ceph RBD images (and local files) as iSCSI disks.
#[derive(Debug, Parser)]
#[command(name = "rbdgate", version, about, propagate_version = true, arg_required_else_help = true)]
pub struct Cli {
    #[command(flatten)]
    log: Log,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the disks of a configuration file until told to stop
    Serve(serve::Serve),
    /// Serve one disk on loopback, without any configuration, and say how to reach it
    Demo(demo::Demo),
    /// Check a configuration file and say everything that is wrong with it
    Check(check::Check),
    /// Show a running gateway: sessions, LUNs, commands in flight, memory
    Status(status::Status),
    /// Let a running gateway read its configuration file again
    Reload(reload::Reload),
    /// Change a disk that is being served
    Disk(disk::Disk),
    /// Tell a running gateway what to do with a target
    Target(target::Target),
    /// Look after the kernel's devices while no gateway does
    Lio(lio::Lio),
    /// Print the completion script of a shell
    Completion(generate::Completion),
    /// Print the manual page, or write one for each command into a folder
    Man(generate::Man),
}

/// How a command prints its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// Tables for people
    Table,
    /// JSON for scripts
    Json,
}

/// Where the running gateway's control socket is.
#[derive(Clone, Debug, Args)]
pub(crate) struct Socket {
    /// Control socket of the gateway; by default a demo's, if one runs, else that of a service
    #[arg(long, value_name = "SOCKET", env = "RBDGATE_CONTROL")]
    pub(crate) control: Option<PathBuf>,
}

impl Cli {
    /// Carries the command out. 0: done; 1: failed; 2: misuse (from the parser); 78: bad configuration.
    pub fn run(self) -> ExitCode {
        let result = match self.command {
            Command::Serve(serve) => telemetry::start(&self.log).and_then(|()| serve.run()),
            Command::Demo(demo) => telemetry::start(&self.log).and_then(|()| demo.run()),
            Command::Check(check) => check.run(),
            Command::Status(status) => status.run(),
            Command::Reload(reload) => reload.run(),
            Command::Disk(disk) => disk.run(),
            Command::Target(target) => target.run(),
            Command::Lio(lio) => lio.run(),
            Command::Completion(completion) => completion.run(),
            Command::Man(man) => man.run(),
        };
        match result {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                complain(&error);
                let configuration = error.downcast_ref::<crate::config::Error>().is_some();
                ExitCode::from(if configuration { 78 } else { 1 })
            }
        }
    }
}

#[expect(
    clippy::print_stderr,
    reason = "a command's error goes to the person who typed it, not into the log"
)]
fn complain(error: &anyhow::Error) {
    eprintln!("rbdgate: {error:#}");
}

/// Prints a command's answer; a closed pipe (`| head`) is no error.
pub(crate) fn say(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_tree_of_commands_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_and_option_explains_itself() {
        fn walk(command: &clap::Command) {
            assert!(command.get_about().is_some(), "{} says nothing", command.get_name());
            for argument in command.get_arguments() {
                assert!(argument.get_help().is_some(), "{} of {}", argument.get_id(), command.get_name());
            }
            command.get_subcommands().for_each(walk);
        }
        walk(&Cli::command());
    }
}
