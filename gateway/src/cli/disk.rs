//! `rbdgate disk`: changes to a disk that is being served.

use clap::{Args, Subcommand};

use super::{Socket, say};
use crate::config::Bytes;
use crate::control::{self, Command};

/// Change a disk that is being served.
#[derive(Debug, Args)]
pub(super) struct Disk {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Give a disk another size; initiators hear of it at once
    Resize(Resize),
}

/// Works on the file or image itself, while it is in use. Sessions see the new size without a new login.
#[derive(Debug, Args)]
struct Resize {
    /// The disk's name in the configuration
    name: String,
    /// Its new size, such as 20GiB
    size: Bytes,
    /// Let it become smaller; what lies behind the new end is lost
    #[arg(long)]
    shrink: bool,
    #[command(flatten)]
    socket: Socket,
}

impl Disk {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let Action::Resize(Resize { name, size, shrink, socket }) = self.action;
        let command = Command::Resize { disk: name, size: size.0, shrink };
        let summary: String = control::ask(socket.control.as_deref(), &command)?;
        say(&summary);
        Ok(())
    }
}
