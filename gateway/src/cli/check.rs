//! `rbdgate check FILE`: is this configuration whole?

use std::path::PathBuf;

use clap::Args;

use super::say;
use crate::config::Config;

/// Exit status 0: it is; 78: it is not, and every reason is on standard error.
#[derive(Debug, Args)]
pub(super) struct Check {
    /// Configuration file (YAML)
    file: PathBuf,
}

impl Check {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let config = Config::load(&self.file)?;
        let luns: usize = config.targets.values().map(|target| target.luns.len()).sum();
        let unused = config.disks.keys().filter(|disk| {
            !config.targets.values().any(|target| target.luns.values().any(|lun| lun == *disk))
        });
        say(&format!(
            "{} is fine: {} disk(s), {} target(s), {luns} LUN(s)",
            self.file.display(),
            config.disks.len(),
            config.targets.len()
        ));
        for disk in unused {
            say(&format!("note: no target serves disk \"{disk}\""));
        }
        Ok(())
    }
}
