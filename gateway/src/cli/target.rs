//! `rbdgate target`: what a running gateway does with a target, until it is told otherwise or restarted.

use std::net::SocketAddr;

use clap::{Args, Subcommand};

use super::{Socket, say};
use crate::control::{self, Command};

#[derive(Debug, Args)]
pub(super) struct Target {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Send logins to a target to another gateway, or take them here again
    Redirect(Redirect),
}

/// The redirection counts before the configuration file's, until it is cleared or the gateway restarts.
#[derive(Debug, Args)]
struct Redirect {
    /// The target's iSCSI name; `all` for every target without a redirection of its own
    target: String,
    /// Where logins go: an IP, for port 3260, or an IP and a port, as in 192.0.2.7:3261 (an IPv6 address then in brackets)
    #[arg(value_parser = crate::config::address, required_unless_present = "clear", conflicts_with = "clear")]
    address: Option<SocketAddr>,
    /// Take logins here again
    #[arg(long)]
    clear: bool,
    /// Say that the target has moved for good: initiators forget this address
    #[arg(long, conflicts_with = "clear")]
    permanent: bool,
    /// Ask initiators that are logged in to log out, and close those that do not
    #[arg(long, conflicts_with = "clear")]
    log_out: bool,
    #[command(flatten)]
    socket: Socket,
}

impl Target {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let Action::Redirect(redirect) = self.action;
        let wanted = control::Redirect {
            target: (redirect.target != "all").then_some(redirect.target),
            address: redirect.address,
            permanent: redirect.permanent,
            log_out: redirect.log_out,
        };
        let done: String = control::ask(redirect.socket.control.as_deref(), &Command::Redirect(wanted))?;
        say(&done);
        Ok(())
    }
}
