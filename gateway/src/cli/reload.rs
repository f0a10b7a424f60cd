//! `rbdgate reload`: the running gateway reads its file again.

use clap::Args;

use super::{Socket, say};
use crate::control::{self, Command};

/// A file that is wrong changes nothing; the reasons are printed.
#[derive(Debug, Args)]
pub(super) struct Reload {
    #[command(flatten)]
    socket: Socket,
}

impl Reload {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let summary: String = control::ask(self.socket.control.as_deref(), &Command::Reload)?;
        say(&summary);
        Ok(())
    }
}
