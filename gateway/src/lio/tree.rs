//! What the kernel has: a picture of our part of configfs, and of as much of the rest as tells it from ours.

use std::collections::BTreeMap;
use std::io;

use super::kernel::{EntryKind, Kernel};
use super::names;
use super::object::{self, Object};
use super::wanted::{Fabric, Wanted};

/// Folders that hold no objects, and that nobody needs to walk.
const UNINTERESTING: [&str; 4] = ["statistics", "fabric_statistics", "attrib", "param"];

/// A part of configfs at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    nodes: BTreeMap<String, Node>,
}

/// Something in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Node {
    /// A folder.
    Folder,
    /// A tie to the object at this path.
    Link(String),
    /// An attribute, as it reads.
    Value(String),
}

impl Tree {
    /// Looks at our backstores, and at every target that is wanted or has a LUN of ours. Something that vanishes meanwhile was
    /// not there.
    pub fn observe(kernel: &dyn Kernel, wanted: &Wanted) -> io::Result<Self> {
        let mut tree = Self::default();
        let hba = format!("core/{}", names::hba());
        for name in folders(kernel, &hba)? {
            tree.add_backstore(kernel, wanted, &name)?;
        }
        for fabric in Fabric::ALL {
            for name in folders(kernel, fabric.folder())? {
                if name == "discovery_auth" {
                    continue;
                }
                let mut target = Self::default();
                let path = format!("{}/{name}", fabric.folder());
                target.walk(kernel, &path)?;
                let is_wanted = wanted.targets.get(&name).is_some_and(|target| target.fabric == fabric);
                if is_wanted || target.links().any(|(_, to)| is_backstore_of_ours(to)) {
                    tree.nodes.extend(target.nodes);
                }
            }
        }
        for (name, target) in &wanted.targets {
            let objects = object::target(name, target, |path| tree.has(path));
            for object in &objects {
                tree.read_attributes(kernel, object)?;
            }
            tree.read(kernel, &format!("{}/enable", object::group_path(name, target)))?;
        }
        Ok(tree)
    }

    /// Looks at one backstore and whatever may be tied to it.
    fn add_backstore(&mut self, kernel: &dyn Kernel, wanted: &Wanted, name: &str) -> io::Result<()> {
        let path = names::backstore(name);
        self.nodes.insert(format!("core/{}", names::hba()), Node::Folder);
        self.nodes.insert(path.clone(), Node::Folder);
        self.read(kernel, &format!("{path}/enable"))?;
        self.read(kernel, &format!("{path}/attrib/dev_config"))?;
        for group in folders(kernel, &format!("{path}/alua"))? {
            self.nodes.insert(format!("{path}/alua/{group}"), Node::Folder);
        }
        if let Some(Some(backstore)) = wanted.backstores.get(name) {
            let attributes = (backstore.identity().into_iter())
                .chain(backstore.sizes())
                .chain(backstore.until_export())
                .chain(backstore.live());
            for attribute in attributes {
                self.read(kernel, &format!("{path}/{}", attribute.path))?;
            }
            let group = backstore.group(name);
            self.read_attributes(kernel, &group)?;
        }
        Ok(())
    }

    fn read_attributes(&mut self, kernel: &dyn Kernel, object: &Object) -> io::Result<()> {
        for attribute in &object.attributes {
            self.read(kernel, &object.attribute(attribute))?;
        }
        Ok(())
    }

    fn read(&mut self, kernel: &dyn Kernel, path: &str) -> io::Result<()> {
        if !self.has(path) && !self.has(object::parent(path)) && !self.holds_groups(path) {
            return Ok(());
        }
        match kernel.read(path) {
            Ok(text) => drop(self.nodes.insert(path.into(), Node::Value(text))),
            // Some attributes cannot be read before they have been set, and older kernels lack some.
            Err(error) if is_about_this_attribute(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Attributes in groups (`attrib/…`) have an object above their folder.
    fn holds_groups(&self, path: &str) -> bool {
        self.has(object::parent(object::parent(path)))
    }

    fn walk(&mut self, kernel: &dyn Kernel, path: &str) -> io::Result<()> {
        self.nodes.insert(path.into(), Node::Folder);
        let entries = match kernel.list(path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        for entry in entries {
            let below = format!("{path}/{}", entry.name);
            match entry.kind {
                EntryKind::Folder if UNINTERESTING.contains(&entry.name.as_str()) => {}
                EntryKind::Folder => self.walk(kernel, &below)?,
                EntryKind::Link(to) => drop(self.nodes.insert(below, Node::Link(to))),
                EntryKind::Attribute => {}
            }
        }
        Ok(())
    }

    /// Whether something is there.
    pub(super) fn has(&self, path: &str) -> bool {
        self.nodes.contains_key(path)
    }

    /// What is there.
    pub(super) fn node(&self, path: &str) -> Option<&Node> {
        self.nodes.get(path)
    }

    /// Forgets something and everything in it.
    pub(super) fn remove(&mut self, path: &str) {
        let inside = format!("{path}/");
        self.nodes.retain(|found, _| found != path && !found.starts_with(&inside));
    }

    /// Path and name of each target.
    pub(super) fn targets(&self) -> impl Iterator<Item = (&str, &str)> {
        self.nodes.iter().filter_map(|(path, node)| {
            let (fabric, name) = path.split_once('/')?;
            (*node == Node::Folder && fabric != "core" && !name.contains('/'))
                .then_some((path.as_str(), name))
        })
    }

    /// What an attribute reads; `None`: it is not there, or was not looked at.
    pub(super) fn value(&self, path: &str) -> Option<&str> {
        match self.nodes.get(path)? {
            Node::Value(text) => Some(text),
            _ => None,
        }
    }

    /// The first line of an attribute; empty when it is not there.
    pub(super) fn line(&self, path: &str) -> &str {
        self.value(path).and_then(|text| text.lines().next()).unwrap_or_default().trim_end()
    }

    /// Every tie: where it is, and to what.
    pub(super) fn links(&self) -> impl Iterator<Item = (&str, &str)> {
        self.nodes.iter().filter_map(|(path, node)| match node {
            Node::Link(to) => Some((path.as_str(), to.as_str())),
            _ => None,
        })
    }

    /// The tie in a folder, whatever its name.
    pub(super) fn link_in(&self, folder: &str) -> Option<(&str, &str)> {
        self.links().find(|(path, _)| object::parent(path) == folder)
    }

    /// Everything whose path begins so.
    pub(super) fn below(&self, prefix: &str) -> impl Iterator<Item = (&str, &Node)> + use<'_> {
        let prefix = prefix.to_owned();
        self.nodes
            .range(prefix.clone()..)
            .take_while(move |(path, _)| path.starts_with(&prefix))
            .map(|(path, node)| (path.as_str(), node))
    }

    /// The names of our HBA's backstores.
    pub(super) fn backstores(&self) -> impl Iterator<Item = &str> {
        let prefix = names::backstore("");
        let names = self.nodes.range(prefix.clone()..).map(|(path, _)| path);
        let depth = prefix.len();
        names
            .take_while(move |path| path.starts_with(&prefix))
            .map(move |path| &path[depth..])
            .filter(|name| !name.contains('/'))
    }

    /// Whether a backstore of our HBA is ours. One without any `dev_config` is: its maker came no further.
    pub(super) fn is_ours(&self, backstore: &str) -> bool {
        let config = self.line(&format!("{}/attrib/dev_config", names::backstore(backstore)));
        config.is_empty() || names::is_ours(config)
    }
}

/// Whether a path is that of a backstore in our HBA.
pub(super) fn is_backstore_of_ours(path: &str) -> bool {
    path.strip_prefix("core/")
        .and_then(|path| path.strip_prefix(names::hba().as_str()))
        .is_some_and(|rest| rest.starts_with('/'))
}

fn is_about_this_attribute(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENOENT | libc::ENODEV | libc::EINVAL | libc::EPERM | libc::EACCES | libc::EOPNOTSUPP)
    )
}

/// Names of the folders in a folder; none where it is not there.
fn folders(kernel: &dyn Kernel, path: &str) -> io::Result<Vec<String>> {
    match kernel.list(path) {
        Ok(entries) => {
            let folders = entries.into_iter().filter(|entry| entry.kind == EntryKind::Folder);
            Ok(folders.map(|entry| entry.name).collect())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}
