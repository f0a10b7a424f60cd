//! `rbdgate completion` and `rbdgate man`: what a package installs beside the binary.

use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::{Cli, say};

#[derive(Debug, Args)]
pub(super) struct Completion {
    /// Which shell
    #[arg(value_enum)]
    shell: Shell,
}

impl Completion {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "rbdgate", &mut script);
        say(String::from_utf8_lossy(&script).trim_end());
        Ok(())
    }
}

#[derive(Debug, Args)]
pub(super) struct Man {
    /// Write rbdgate.1 and a page for each command into this folder
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl Man {
    pub(super) fn run(self) -> anyhow::Result<()> {
        match self.dir {
            Some(dir) => clap_mangen::generate_to(Cli::command(), &dir)
                .with_context(|| format!("cannot write into {}", dir.display())),
            None => {
                let mut page = Vec::new();
                clap_mangen::Man::new(Cli::command()).render(&mut page)?;
                say(String::from_utf8_lossy(&page).trim_end());
                Ok(())
            }
        }
    }
}
