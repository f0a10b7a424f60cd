//! `rbdgate lio`: what is done to the kernel's devices when no gateway runs.

use std::path::Path;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use ring::uio::{Found, Tree};

use super::say;
use crate::lane::kernel::{self, Configfs, Ended};

/// What `dev_config` of our devices begins with.
const OWNER: &str = "rbdgate/";
/// Where the kernel shows its target.
const TARGET: &str = "/sys/kernel/config/target";

/// For machines whose LUNs go through the kernel's target (LIO).
#[derive(Debug, Args)]
pub(super) struct Lio {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// End the commands that wait for a gateway which does not come back, and refuse new ones
    ///
    /// For when a gateway has died and is not to be started again (a service may run it when it has given up): initiators
    /// can then log out, LUNs be removed and the machine be rebooted. Devices that a running gateway serves are left alone.
    /// A gateway that is started later takes the devices up as usual.
    Abandon(Abandon),
}

#[derive(Debug, Args)]
struct Abandon {
    /// Only these backstores, by the name of their folder in configfs; by default all of rbdgate's
    #[arg(value_name = "BACKSTORE")]
    backstores: Vec<String>,
}

impl Lio {
    pub(super) fn run(self) -> anyhow::Result<()> {
        match self.command {
            Command::Abandon(abandon) => abandon.run(&Tree::system(), Path::new(TARGET)),
        }
    }
}

impl Abandon {
    fn run(&self, tree: &Tree, target: &Path) -> anyhow::Result<()> {
        let devices = tree.devices()?;
        let ours: Vec<&Found> = devices.iter().filter(|device| self.means(device)).collect();
        for name in &self.backstores {
            if !ours.iter().any(|device| device.identity.name == *name) {
                bail!("rbdgate has no device for a backstore {name}");
            }
        }
        let mut failed = 0;
        for device in ours {
            let actions = Configfs::new(target, &device.identity);
            match kernel::abandon(device, &actions).context("left as it is") {
                Ok(Ended::Ended) => say(&format!("{}: its commands were ended", device.identity)),
                Ok(Ended::Served) => say(&format!("{}: a process serves it", device.identity)),
                Err(error) => {
                    failed += 1;
                    say(&format!("{}: {error:#}", device.identity));
                }
            }
        }
        if failed > 0 { bail!("{failed} device(s) could not be abandoned") } else { Ok(()) }
    }

    fn means(&self, device: &Found) -> bool {
        let named = self.backstores.is_empty() || self.backstores.contains(&device.identity.name);
        named && device.identity.config.starts_with(OWNER)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn device(root: &Path, number: u32, name: &str) {
        let folder = root.join(format!("sys/class/uio/uio{number}"));
        fs::create_dir_all(folder.join("maps/map0")).unwrap();
        fs::write(folder.join("name"), format!("{name}\n")).unwrap();
        fs::write(folder.join("maps/map0/size"), "0x10000\n").unwrap();
        fs::write(folder.join("maps/map0/offset"), "0x0\n").unwrap();
        fs::create_dir_all(root.join("dev")).unwrap();
        let node = fs::File::create(root.join(format!("dev/uio{number}"))).unwrap();
        node.set_len(0x10000).unwrap();
        let identity = ring::uio::Identity::parse(name).unwrap();
        let actions = root.join(format!("target/core/user_{}/{}/action", identity.hba, identity.name));
        fs::create_dir_all(&actions).unwrap();
        fs::write(actions.join("block_dev"), "").unwrap();
        fs::write(actions.join("reset_ring"), "").unwrap();
    }

    fn done(root: &Path, hba: u32, name: &str) -> (String, String) {
        let read =
            |file| fs::read_to_string(root.join(format!("target/core/user_{hba}/{name}/action/{file}")));
        (read("block_dev").unwrap(), read("reset_ring").unwrap())
    }

    #[test]
    fn only_our_devices_are_ended_and_only_those_that_are_named() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        for (number, name) in
            (0..).zip(["tcm-user/1/a/rbdgate/x", "tcm-user/1/b/rbdgate/y", "tcm-user/0/c/rbd/pool/image"])
        {
            device(root, number, name);
        }
        let (tree, target) = (Tree::at(root), root.join("target"));
        let untouched = (String::new(), String::new());
        let ended = ("1".to_owned(), "2".to_owned());
        Abandon { backstores: vec!["a".into()] }.run(&tree, &target).unwrap();
        assert_eq!((done(root, 1, "a"), done(root, 1, "b")), (ended.clone(), untouched.clone()));
        Abandon { backstores: vec![] }.run(&tree, &target).unwrap();
        assert_eq!((done(root, 1, "b"), done(root, 0, "c")), (ended, untouched));
        let foreign = Abandon { backstores: vec!["c".into()] }.run(&tree, &target).unwrap_err();
        assert!(foreign.to_string().contains("backstore c"), "{foreign}");
    }
}
