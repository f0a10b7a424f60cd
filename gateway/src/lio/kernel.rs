//! Everything that the gateway does to the kernel, as a trait: the real kernel, or the simulated one of the tests.

use std::fmt;
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::netlink::{Channel, Socket};

/// The kernel's target subsystem. Paths are relative to its folder in configfs (`core/user_3720/vm1/enable`) and have
/// neither `..` nor an empty part. Every call may block for as long as the kernel likes.
pub trait Kernel: Send + Sync + fmt::Debug {
    /// What an attribute says, as it is.
    fn read(&self, path: &str) -> io::Result<String>;

    /// Sets an attribute, with one write.
    fn write(&self, path: &str, value: &str) -> io::Result<()>;

    /// Makes an object: the kernel fills its folder with attributes and further folders.
    fn make_folder(&self, path: &str) -> io::Result<()>;

    /// Removes an object that was made.
    fn remove_folder(&self, path: &str) -> io::Result<()>;

    /// Ties an object to another one.
    fn link(&self, path: &str, to: &str) -> io::Result<()>;

    /// Unties it.
    fn unlink(&self, path: &str) -> io::Result<()>;

    /// What is in a folder, in order of name. The empty path is the subsystem's own folder.
    fn list(&self, path: &str) -> io::Result<Vec<Entry>>;

    /// Whether a module is there, loaded or built in, as far as the kernel shows it.
    fn has_module(&self, module: &str) -> bool;

    /// Loads a module.
    fn load_module(&self, module: &str) -> io::Result<()>;

    /// A parameter of a module.
    fn parameter(&self, module: &str, name: &str) -> io::Result<String>;

    /// Changes a parameter of a module.
    fn set_parameter(&self, module: &str, name: &str, value: &str) -> io::Result<()>;

    /// Makes the subsystem's folder reachable where configfs is not mounted; its module is loaded.
    fn mount(&self) -> io::Result<()>;

    /// Listens to the events of TCMU devices from now on.
    fn events(&self) -> io::Result<Box<dyn Channel>>;
}

/// Something in a folder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: EntryKind,
}

/// What can be in a folder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EntryKind {
    /// An object, or a group of its attributes.
    Folder,
    /// A tie to the object at this path.
    Link(String),
    /// An attribute.
    Attribute,
}

/// Where configfs is mounted.
const CONFIGFS: &str = "/sys/kernel/config";

/// The machine's kernel.
#[derive(Debug)]
pub struct Real {
    configfs: PathBuf,
    modules: PathBuf,
}

impl Real {
    /// Reaches it where every distribution has it.
    pub fn new() -> Self {
        Self { configfs: CONFIGFS.into(), modules: "/sys/module".into() }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.configfs.join("target").join(path)
    }

    fn parameter_path(&self, module: &str, name: &str) -> PathBuf {
        self.modules.join(module).join("parameters").join(name)
    }
}

impl Default for Real {
    fn default() -> Self {
        Self::new()
    }
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = Vec::new();
    fs::File::open(path)?.read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// One write, to a file that exists: what a second one would carry, the kernel would take for a value of its own.
fn write(path: &Path, value: &str) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).open(path)?;
    let written = file.write(value.as_bytes())?;
    if written == value.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

impl Kernel for Real {
    fn read(&self, path: &str) -> io::Result<String> {
        read(&self.path(path))
    }

    fn write(&self, path: &str, value: &str) -> io::Result<()> {
        write(&self.path(path), value)
    }

    fn make_folder(&self, path: &str) -> io::Result<()> {
        fs::create_dir(self.path(path))
    }

    fn remove_folder(&self, path: &str) -> io::Result<()> {
        fs::remove_dir(self.path(path))
    }

    fn link(&self, path: &str, to: &str) -> io::Result<()> {
        std::os::unix::fs::symlink(self.path(to), self.path(path))
    }

    fn unlink(&self, path: &str) -> io::Result<()> {
        fs::remove_file(self.path(path))
    }

    fn list(&self, path: &str) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(self.path(path))? {
            let entry = entry?;
            let kind = entry.file_type()?;
            let kind = if kind.is_symlink() {
                let to = fs::read_link(entry.path())?.to_string_lossy().into_owned();
                EntryKind::Link(tied_to(&to).to_owned())
            } else if kind.is_dir() {
                EntryKind::Folder
            } else {
                EntryKind::Attribute
            };
            entries.push(Entry { name: entry.file_name().to_string_lossy().into_owned(), kind });
        }
        entries.sort();
        Ok(entries)
    }

    fn has_module(&self, module: &str) -> bool {
        self.modules.join(module).exists()
    }

    fn load_module(&self, module: &str) -> io::Result<()> {
        let output = Command::new("modprobe").arg(module).output()?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(io::Error::other(format!("modprobe {module}: {}", said.trim())))
    }

    fn parameter(&self, module: &str, name: &str) -> io::Result<String> {
        read(&self.parameter_path(module, name))
    }

    fn set_parameter(&self, module: &str, name: &str, value: &str) -> io::Result<()> {
        write(&self.parameter_path(module, name), value)
    }

    fn mount(&self) -> io::Result<()> {
        use nix::mount::{MsFlags, mount};
        let nothing: Option<&str> = None;
        mount(Some("configfs"), &self.configfs, Some("configfs"), MsFlags::empty(), nothing)?;
        Ok(())
    }

    fn events(&self) -> io::Result<Box<dyn Channel>> {
        Ok(Box::new(Socket::open()?))
    }
}

/// The object that a tie's text names: configfs writes it as `../../…/target/PATH`.
fn tied_to(text: &str) -> &str {
    let mut rest = text;
    while let Some(above) = rest.strip_prefix("../") {
        rest = above;
    }
    let rest = rest.strip_prefix(CONFIGFS).unwrap_or(rest).trim_start_matches('/');
    rest.strip_prefix("target/").unwrap_or(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tie_names_its_object_however_configfs_writes_it() {
        let path = "core/user_3720/vm1";
        assert_eq!(tied_to("../../../../../../target/core/user_3720/vm1"), path);
        assert_eq!(tied_to("/sys/kernel/config/target/core/user_3720/vm1"), path);
        assert_eq!(tied_to("core/user_3720/vm1"), path);
    }

    #[test]
    fn attributes_are_read_and_written_and_never_made() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("target/core");
        fs::create_dir_all(&folder).unwrap();
        let kernel = Real { configfs: root.path().into(), modules: root.path().join("module") };
        assert_eq!(kernel.write("core/enable", "1").unwrap_err().kind(), io::ErrorKind::NotFound);
        fs::write(folder.join("enable"), "0\n").unwrap();
        kernel.write("core/enable", "1").unwrap();
        assert_eq!(kernel.read("core/enable").unwrap(), "1\n");
        kernel.make_folder("core/user_3720").unwrap();
        kernel.link("core/tie", "core/user_3720").unwrap();
        assert_eq!(kernel.make_folder("core/user_3720").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        let names: Vec<_> = kernel.list("core").unwrap().into_iter().map(|entry| entry.name).collect();
        assert_eq!(names, ["enable", "tie", "user_3720"]);
        kernel.unlink("core/tie").unwrap();
        kernel.remove_folder("core/user_3720").unwrap();
        assert!(!kernel.has_module("target_core_user"));
        assert!(kernel.parameter("target_core_user", "block_netlink").is_err());
    }
}
