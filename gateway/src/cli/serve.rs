//! `rbdgate serve -c FILE`: the service.

use std::path::PathBuf;

use clap::Args;

use crate::config::Config;
use crate::supervisor;

/// SIGHUP reads the file again; SIGTERM and SIGINT drain and end.
#[derive(Debug, Args)]
pub(super) struct Serve {
    /// Configuration file (YAML)
    #[arg(short, long, value_name = "FILE", default_value = "/etc/rbdgate/rbdgate.yaml")]
    config: PathBuf,
}

impl Serve {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let config = Config::load(&self.config)?;
        supervisor::run(config, Some(self.config), |_| {})
    }
}
