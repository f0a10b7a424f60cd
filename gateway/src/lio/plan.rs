//! The difference between what is wanted and what the kernel has, as steps in an order in which the kernel takes them. Pure.
//!
//! Removal goes from the outside in (views, initiators, LUNs, addresses, portal group, target, backstore), making from the
//! inside out: a portal group is enabled, and listens, only when its LUNs and initiators are there, because some initiators
//! give up on a target that shows them none. Nothing is touched that is not ours; where another owner has what is wanted, that
//! is a problem, and stays.

use super::names;
use super::object::{self, Attribute, Object, Subject};
use super::step::{Action, Step};
use super::tree::{Node, Tree, is_backstore_of_ours};
use super::wanted::{Backstore, Fabric, Target, Wanted};

/// What is to be done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// In this order.
    pub steps: Vec<Step>,
    /// What cannot be done, and why.
    pub problems: Vec<(Subject, String)>,
    /// What is different and stays so for now.
    pub notes: Vec<(Subject, String)>,
}

impl Plan {
    fn step(&mut self, subject: &Subject, needs: &[Subject], action: Action) {
        self.steps.push(Step { action, subject: subject.clone(), needs: needs.to_vec() });
    }

    fn write(&mut self, subject: &Subject, needs: &[Subject], path: String, attribute: &Attribute) {
        let action = Action::Write { path, value: attribute.value.clone(), secret: attribute.secret };
        self.step(attribute.subject.as_ref().unwrap_or(subject), needs, action);
    }

    fn problem(&mut self, subject: Subject, reason: impl Into<String>) {
        self.problems.push((subject, reason.into()));
    }

    fn append(&mut self, mut other: Self) {
        self.steps.append(&mut other.steps);
        self.problems.append(&mut other.problems);
        self.notes.append(&mut other.notes);
    }
}

/// Everything at once.
pub fn whole(wanted: &Wanted, tree: &Tree) -> Plan {
    let mut plan = Plan::default();
    let mut tree = tree.clone();
    for (name, backstore) in &wanted.backstores {
        if let Some(wanted) = backstore {
            let part = self::backstore(name, wanted, &tree);
            forget(&mut tree, &part);
            plan.append(part);
        }
    }
    plan.append(targets(wanted, &tree));
    plan.append(leftovers(wanted, &tree));
    plan
}

/// Takes out of the picture what a plan removes.
fn forget(tree: &mut Tree, plan: &Plan) {
    for step in &plan.steps {
        if let Action::Remove(path) | Action::Unlink(path) = &step.action {
            tree.remove(path);
        }
    }
}

/// One backstore: made, repaired, or made anew where it stands for another disk.
pub fn backstore(name: &str, wanted: &Backstore, tree: &Tree) -> Plan {
    let (mut plan, path) = (Plan::default(), names::backstore(name));
    let subject = Subject::Backstore(name.into());
    if tree.has(&path) && !tree.is_ours(name) {
        let config = tree.line(&format!("{path}/attrib/dev_config"));
        plan.problem(subject, format!("{path} belongs to another owner: its dev_config is {config:?}"));
        return plan;
    }
    let mut is_there = tree.has(&path);
    let is_enabled = is_there && tree.line(&format!("{path}/enable")) == "1";
    let differs = |attribute: &Attribute| {
        let found = tree.value(&format!("{path}/{}", attribute.path));
        found.is_some_and(|found| !attribute.is_met_by(found))
    };
    if is_enabled {
        // The serial number can be mended as long as nobody has seen it.
        let is_seen = tree.links().any(|(_, to)| to == path);
        let mut identity = wanted.identity().into_iter();
        if identity.any(|attribute| differs(&attribute) && (is_seen || attribute != wanted.serial())) {
            plan.append(remove_backstore(name, tree));
            is_there = false;
        } else {
            repair(&mut plan, &subject, &path, wanted, is_seen, &differs);
        }
    }
    if !is_there {
        if !tree.has(object::parent(&path)) {
            plan.step(&Subject::Hba, &[], Action::Make(object::parent(&path).into()));
        }
        plan.step(&subject, &[Subject::Hba], Action::Make(path.clone()));
    }
    let needs_enabling = !is_there || !is_enabled;
    if needs_enabling {
        let control = Attribute::new("control", wanted.control());
        plan.write(&subject, &[Subject::Hba], format!("{path}/control"), &control);
        let serial = wanted.serial();
        plan.write(&subject, &[Subject::Hba], format!("{path}/{}", serial.path), &serial);
        let enable = Attribute::new("enable", "1");
        plan.write(&subject, &[Subject::Hba], format!("{path}/enable"), &enable);
        for attribute in wanted.until_export().into_iter().chain(wanted.live()) {
            // What `control` has set already.
            if attribute.path != "attrib/dev_size" {
                plan.setting(name, &path, &attribute);
            }
        }
    }
    let group = wanted.group(name);
    if !is_there || !tree.has(&group.path) {
        plan.step(&group.subject, &group.needs, Action::Make(group.path.clone()));
    }
    for attribute in &group.attributes {
        let at = group.attribute(attribute);
        if !is_there || !tree.value(&at).is_some_and(|found| attribute.is_met_by(found)) {
            plan.write(&group.subject, &group.needs, at, attribute);
        }
    }
    plan
}

impl Plan {
    /// An attribute of a backstore that it can do without.
    fn setting(&mut self, name: &str, path: &str, attribute: &Attribute) {
        let subject = Subject::Setting(format!("backstore {name}"), attribute.path.clone());
        let needs = [Subject::Backstore(name.into())];
        self.write(&subject, &needs, format!("{path}/{}", attribute.path), attribute);
    }
}

/// What can be mended about a backstore that is in use.
fn repair(
    plan: &mut Plan,
    subject: &Subject,
    path: &str,
    wanted: &Backstore,
    is_seen: bool,
    differs: &impl Fn(&Attribute) -> bool,
) {
    let name = path.rsplit('/').next().unwrap_or(path);
    let serial = wanted.serial();
    if differs(&serial) {
        plan.write(subject, &[], format!("{path}/{}", serial.path), &serial);
    }
    for attribute in wanted.live().iter().filter(|attribute| differs(attribute)) {
        plan.setting(name, path, attribute);
    }
    for attribute in wanted.until_export().iter().filter(|attribute| differs(attribute)) {
        if is_seen {
            plan.notes.push((subject.clone(), later(attribute)));
        } else {
            plan.setting(name, path, attribute);
        }
    }
    for attribute in wanted.sizes().iter().filter(|attribute| differs(attribute)) {
        plan.notes.push((subject.clone(), later(attribute)));
    }
}

fn later(attribute: &Attribute) -> String {
    format!("{} becomes {} when the backstore is made anew", attribute.path, attribute.value)
}

/// Removes a backstore of ours, with everything that is tied to it.
pub fn remove_backstore(name: &str, tree: &Tree) -> Plan {
    let (mut plan, path) = (Plan::default(), names::backstore(name));
    let subject = Subject::Backstore(name.into());
    if !tree.has(&path) {
        return plan;
    }
    let mut gone: Vec<&str> = tree.links().filter(|(_, to)| *to == path).map(|(link, _)| link).collect();
    let luns: Vec<&str> = gone.iter().map(|link| object::parent(link)).collect();
    let views = tree.links().filter(|(_, to)| luns.contains(to)).map(|(link, _)| link);
    gone.extend(views.collect::<Vec<_>>());
    gone.extend(gone.iter().map(|link| object::parent(link)).collect::<Vec<_>>());
    let inside = format!("{path}/alua/");
    gone.extend(
        tree.below(&inside)
            .filter(|(path, node)| **node == Node::Folder && !path.ends_with("/default_tg_pt_gp"))
            .map(|(path, _)| path),
    );
    gone.push(&path);
    remove(&mut plan, &subject, tree, gone);
    plan
}

/// Backstores of ours that are not in the configuration any more, and the HBA with the last of them.
pub fn leftovers(wanted: &Wanted, tree: &Tree) -> Plan {
    let mut plan = Plan::default();
    let mut stays = !wanted.backstores.is_empty();
    for name in tree.backstores() {
        if wanted.backstores.contains_key(name) || !tree.is_ours(name) {
            stays = true;
        } else {
            plan.append(remove_backstore(name, tree));
        }
    }
    let hba = format!("core/{}", names::hba());
    if !stays && tree.has(&hba) {
        let needs: Vec<Subject> = tree.backstores().map(|name| Subject::Backstore(name.into())).collect();
        plan.step(&Subject::Hba, &needs, Action::Remove(hba));
    }
    plan
}

/// Targets, their LUNs, initiators and addresses; first what is too much, then what is missing.
pub fn targets(wanted: &Wanted, tree: &Tree) -> Plan {
    let mut plan = Plan::default();
    for (path, name) in tree.targets() {
        let fabric = path.split('/').next();
        let target = wanted.targets.get(name).filter(|target| Some(target.fabric.folder()) == fabric);
        unwanted(&mut plan, name, path, target, tree);
    }
    for (name, target) in &wanted.targets {
        let path = object::target_path(name, target);
        if let Some((link, to)) = foreign_link(&path, tree) {
            let reason =
                format!("this target has a LUN of another owner: {link} is {to}; give ours another name");
            plan.problem(Subject::Target(name.clone()), reason);
            continue;
        }
        make_target(&mut plan, name, target, tree);
    }
    plan
}

/// A LUN of a target that is another owner's.
fn foreign_link<'a>(target: &str, tree: &'a Tree) -> Option<(&'a str, &'a str)> {
    let inside = format!("{target}/");
    tree.links()
        .find(|(link, to)| link.starts_with(&inside) && to.starts_with("core/") && !is_backstore_of_ours(to))
}

/// What a target has and should not. `target`: what it should have.
fn unwanted(plan: &mut Plan, name: &str, path: &str, target: Option<&Target>, tree: &Tree) {
    let subject = Subject::Target(name.into());
    let inside = format!("{path}/");
    if foreign_link(path, tree).is_some() {
        if target.is_some() {
            return;
        }
        // Somebody else's target with a LUN of ours in it: the LUN goes, the target stays.
        let ours: Vec<&str> = tree
            .links()
            .filter(|(link, to)| link.starts_with(&inside) && is_backstore_of_ours(to))
            .map(|(link, _)| link)
            .collect();
        let luns: Vec<&str> = ours.iter().map(|link| object::parent(link)).collect();
        let views: Vec<&str> =
            tree.links().filter(|(_, to)| luns.contains(to)).map(|(link, _)| link).collect();
        let links = ours.into_iter().chain(views);
        let gone = links.flat_map(|link| [link, object::parent(link)]).collect();
        remove(plan, &subject, tree, gone);
        return;
    }
    let wanted: Vec<Object> =
        target.map_or_else(Vec::new, |target| object::target(name, target, |path| tree.has(path)));
    let is_wanted = |found: &str, node: &Node| match node {
        // A tie counts by what it ties, whatever its name.
        Node::Link(to) => wanted.iter().any(|object| {
            object.to.as_deref() == Some(to) && object::parent(&object.path) == object::parent(found)
        }),
        _ => wanted.iter().any(|object| object.path == found),
    };
    let everything = tree.below(&inside).chain(std::iter::once((path, &Node::Folder)));
    let gone = everything
        .filter(|(found, node)| is_made(found, node) && !is_wanted(found, node))
        .map(|(found, _)| found)
        .collect();
    remove(plan, &subject, tree, gone);
}

/// Whether something was made by an administrator, rather than by the kernel with its parent.
fn is_made(path: &str, node: &Node) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    match (node, parts.as_slice()) {
        (Node::Link(_), _) => true,
        (Node::Value(_), _) => false,
        (_, [_, _]) => true,
        (_, [_, _, group]) => group.starts_with("tpgt_"),
        (_, [_, _, _, kind, _]) => matches!(*kind, "lun" | "np" | "acls"),
        (_, [_, _, _, "acls", _, view]) => view.starts_with("lun_"),
        _ => false,
    }
}

/// How early something is removed.
fn rank(path: &str, tree: &Tree) -> u8 {
    let parts: Vec<&str> = path.split('/').collect();
    let tie = u8::from(!matches!(tree.node(path), Some(Node::Link(_))));
    match parts.as_slice() {
        ["core", _, _, "alua", _] => 8,
        ["core", ..] => 9,
        [_, _] => 7,
        [_, _, _] => 6,
        [_, _, _, "np", ..] => 5,
        [_, _, _, "acls", _] => 2,
        [_, _, _, "acls", ..] => tie,
        [_, _, _, "lun", ..] => 3 + tie,
        _ => 5,
    }
}

/// Removes objects in the order that the kernel takes; portal groups are disabled first.
fn remove(plan: &mut Plan, subject: &Subject, tree: &Tree, mut gone: Vec<&str>) {
    gone.sort_by_key(|path| (rank(path, tree), *path));
    gone.dedup();
    for path in &gone {
        let enable = format!("{path}/enable");
        if rank(path, tree) == 6 && tree.line(&enable) != "0" && path.starts_with("iscsi/") {
            let disable = Attribute::new("enable", "0");
            plan.write(&Subject::Setting(subject.to_string(), "enable".into()), &[], enable, &disable);
        }
    }
    for path in gone {
        let action = match tree.node(path) {
            Some(Node::Link(_)) => Action::Unlink(path.into()),
            _ => Action::Remove(path.into()),
        };
        plan.step(subject, &[], action);
    }
}

/// What a target lacks.
fn make_target(plan: &mut Plan, name: &str, target: &Target, tree: &Tree) {
    for object in object::target(name, target, |path| tree.has(path)) {
        let is_there = match &object.to {
            None => tree.has(&object.path),
            Some(to) => tree.link_in(object::parent(&object.path)).is_some_and(|(_, found)| found == to),
        };
        if !is_there {
            let path = object.path.clone();
            let action = match &object.to {
                None => Action::Make(path),
                Some(to) => Action::Link { path, to: to.clone() },
            };
            plan.step(&object.subject, &object.needs, action);
        }
        for attribute in &object.attributes {
            let path = object.attribute(attribute);
            let found = tree.value(&path).filter(|_| is_there);
            if !found.is_some_and(|found| attribute.is_met_by(found)) {
                let mut needs = object.needs.clone();
                needs.push(object.subject.clone());
                plan.write(&object.subject, &needs, path, attribute);
            }
        }
    }
    let enable = format!("{}/enable", object::group_path(name, target));
    if target.fabric == Fabric::Iscsi && tree.line(&enable) != "1" {
        plan.write(&Subject::Target(name.into()), &[], enable, &Attribute::new("enable", "1"));
    }
}
