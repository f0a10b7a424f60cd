//! A kernel made of plain data, for tests: it refuses what the real one refuses, and fails where it is told to.

mod rules;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::kernel::{Entry, EntryKind, Kernel};
use super::netlink::{Channel, Event};

/// Something in the simulated configfs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Node {
    /// `true`: made by mkdir, rather than by the kernel with its parent.
    Folder(bool),
    Link(String),
    Attribute(String),
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) nodes: BTreeMap<String, Node>,
    modules: BTreeSet<String>,
    parameters: BTreeMap<String, String>,
    /// Changes that were tried.
    changes: usize,
    /// From this change on, `.1` changes fail with `.2`.
    fail: Option<(usize, usize, i32)>,
}

/// The simulated kernel.
#[derive(Debug)]
pub(super) struct Simulated(Mutex<State>);

impl Simulated {
    /// One with its modules loaded.
    pub(super) fn new() -> Self {
        let state = State {
            nodes: BTreeMap::new(),
            modules: ["target_core_mod", "target_core_user", "iscsi_target_mod", "tcm_loop"]
                .map(Into::into)
                .into(),
            parameters: BTreeMap::new(),
            changes: 0,
            fail: None,
        };
        let kernel = Self(Mutex::new(state));
        for folder in ["core", "iscsi", "iscsi/discovery_auth", "loopback"] {
            kernel.state().nodes.insert(folder.into(), Node::Folder(folder != "core"));
        }
        kernel
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets `count` changes fail, the first of them after `after` more.
    pub(super) fn fail(&self, after: usize, count: usize, errno: i32) {
        let mut state = self.state();
        let first = state.changes + after;
        state.fail = Some((first, count, errno));
    }

    /// No more failures.
    pub(super) fn mend(&self) {
        self.state().fail = None;
    }

    /// Everything below a path.
    pub(super) fn below(&self, prefix: &str) -> BTreeMap<String, Node> {
        let state = self.state();
        state
            .nodes
            .iter()
            .filter(|(path, _)| path.starts_with(prefix))
            .map(|(p, n)| (p.clone(), n.clone()))
            .collect()
    }

    fn change(&self) -> io::Result<MutexGuard<'_, State>> {
        let mut state = self.state();
        let number = state.changes;
        state.changes += 1;
        match state.fail {
            Some((first, count, errno)) if (first..first.saturating_add(count)).contains(&number) => {
                Err(error(errno))
            }
            _ => Ok(state),
        }
    }
}

pub(super) fn error(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}

impl Kernel for Simulated {
    fn read(&self, path: &str) -> io::Result<String> {
        match self.state().nodes.get(path) {
            Some(Node::Attribute(_)) if rules::WRITE_ONLY.iter().any(|name| path.ends_with(name)) => {
                Err(error(libc::EACCES))
            }
            Some(Node::Attribute(value)) => Ok(format!("{value}\n")),
            Some(_) => Err(error(libc::EISDIR)),
            None => Err(error(libc::ENOENT)),
        }
    }

    fn write(&self, path: &str, value: &str) -> io::Result<()> {
        rules::write(&mut *self.change()?, path, value)
    }

    fn make_folder(&self, path: &str) -> io::Result<()> {
        rules::make(&mut *self.change()?, path)
    }

    fn remove_folder(&self, path: &str) -> io::Result<()> {
        rules::remove(&mut *self.change()?, path)
    }

    fn link(&self, path: &str, to: &str) -> io::Result<()> {
        rules::link(&mut *self.change()?, path, to)
    }

    fn unlink(&self, path: &str) -> io::Result<()> {
        let mut state = self.change()?;
        match state.nodes.get(path) {
            Some(Node::Link(_)) => drop(state.nodes.remove(path)),
            Some(_) => return Err(error(libc::EPERM)),
            None => return Err(error(libc::ENOENT)),
        }
        Ok(())
    }

    fn list(&self, path: &str) -> io::Result<Vec<Entry>> {
        let state = self.state();
        if !matches!(state.nodes.get(path), Some(Node::Folder(_))) {
            return Err(error(libc::ENOENT));
        }
        let inside = format!("{path}/");
        let entries = state.nodes.iter().filter_map(|(found, node)| {
            let name = found.strip_prefix(&inside).filter(|name| !name.contains('/'))?;
            let kind = match node {
                Node::Folder(_) => EntryKind::Folder,
                Node::Link(to) => EntryKind::Link(to.clone()),
                Node::Attribute(_) => EntryKind::Attribute,
            };
            Some(Entry { name: name.into(), kind })
        });
        Ok(entries.collect())
    }

    fn has_module(&self, module: &str) -> bool {
        self.state().modules.contains(module)
    }

    fn load_module(&self, module: &str) -> io::Result<()> {
        Err(io::Error::other(format!("modprobe {module}: not found")))
    }

    fn parameter(&self, _module: &str, name: &str) -> io::Result<String> {
        self.state().parameters.get(name).cloned().ok_or_else(|| error(libc::ENOENT))
    }

    fn set_parameter(&self, _module: &str, name: &str, value: &str) -> io::Result<()> {
        let mut state = self.change()?;
        if name == "reset_netlink" && state.parameters.get("block_netlink").is_none_or(|value| value != "1") {
            return Err(error(libc::EINVAL));
        }
        state.parameters.insert(name.into(), value.into());
        Ok(())
    }

    fn mount(&self) -> io::Result<()> {
        Ok(())
    }

    fn events(&self) -> io::Result<Box<dyn Channel>> {
        Ok(Box::new(Silence))
    }
}

/// A connection on which nothing happens.
#[derive(Debug)]
struct Silence;

impl Channel for Silence {
    fn receive(&mut self, limit: Duration) -> io::Result<Option<Event>> {
        std::thread::sleep(limit);
        Ok(None)
    }

    fn answer(&mut self, _event: &Event, _status: i32) -> io::Result<()> {
        Ok(())
    }

    fn set_replies(&mut self, _replies: bool) -> io::Result<()> {
        Ok(())
    }
}
