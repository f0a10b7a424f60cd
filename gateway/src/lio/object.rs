//! What is wanted, as objects in configfs: folders and ties, in an order in which the kernel takes them.

use std::fmt;
use std::time::Duration;

use super::names;
use super::wanted::{Acl, Backstore, Fabric, Lun, Target};
use crate::secret::Secret;

/// Whom a step serves, and so who suffers when it fails: nobody else.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// A backstore.
    Backstore(String),
    /// A target as a whole.
    Target(String),
    /// One attribute of a target or an initiator that it can do without.
    Setting(String, String),
    /// One address of a target.
    Portal(String, String),
    /// One LUN of a target.
    Lun(String, u16),
    /// One initiator of a target.
    Acl(String, String),
    /// One LUN as one initiator sees it.
    View(String, String, u16),
    /// The HBA that our backstores are in.
    Hba,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Backstore(name) => write!(f, "backstore {name}"),
            Self::Target(target) => f.write_str(target),
            Self::Setting(target, setting) => write!(f, "{target}, {setting}"),
            Self::Portal(target, address) => write!(f, "{target}, address {address}"),
            Self::Lun(target, lun) => write!(f, "{target} LUN {lun}"),
            Self::Acl(target, initiator) => write!(f, "{target}, initiator {initiator}"),
            Self::View(target, initiator, lun) => write!(f, "{target} LUN {lun}, initiator {initiator}"),
            Self::Hba => f.write_str("the HBA"),
        }
    }
}

/// A folder or a tie, with the attributes that matter about it.
#[derive(Clone, Debug)]
pub(super) struct Object {
    /// Where it is.
    pub(super) path: String,
    /// What it is tied to; `None`: a folder.
    pub(super) to: Option<String>,
    /// Whom it serves.
    pub(super) subject: Subject,
    /// Who must have succeeded.
    pub(super) needs: Vec<Subject>,
    /// In order.
    pub(super) attributes: Vec<Attribute>,
}

/// An attribute and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Attribute {
    /// Relative to the object.
    pub(super) path: String,
    /// What is written.
    pub(super) value: String,
    /// What the first line says then.
    pub(super) reads: String,
    /// It is a secret.
    pub(super) secret: bool,
    /// Whom a failure concerns, where that is not the object's subject.
    pub(super) subject: Option<Subject>,
}

impl Attribute {
    pub(super) fn new(path: impl Into<String>, value: impl Into<String>) -> Self {
        let value = value.into();
        Self { path: path.into(), reads: value.clone(), value, secret: false, subject: None }
    }

    fn reading(self, reads: impl Into<String>) -> Self {
        Self { reads: reads.into(), ..self }
    }

    /// A name or secret of CHAP. LIO takes everything that begins with NULL for none.
    fn chap(path: &str, value: Option<&[u8]>) -> Self {
        let value = value.map_or_else(|| NONE.into(), |value| String::from_utf8_lossy(value).into_owned());
        Self { secret: true, ..Self::new(path, value) }
    }

    /// Whether the kernel's text says what is wanted.
    pub(super) fn is_met_by(&self, found: &str) -> bool {
        let line = found.lines().next().unwrap_or_default().trim_end();
        line == self.reads || (self.value == NONE && line.is_empty())
    }
}

/// How LIO writes that there is no name or secret.
const NONE: &str = "NULL";

impl Object {
    fn folder(path: String, subject: Subject, needs: Vec<Subject>) -> Self {
        Self { path, to: None, subject, needs, attributes: Vec::new() }
    }
}

/// A timeout attribute, whole seconds.
fn seconds(time: Duration) -> String {
    time.as_millis().div_ceil(1000).min(i32::MAX as u128).to_string()
}

impl Backstore {
    /// What `control` is told before the device is enabled. The kernel passes over keys that it does not know.
    pub(super) fn control(&self) -> String {
        format!(
            "dev_config={},dev_size={},hw_block_size={},hw_max_sectors={},max_data_area_mb={},data_pages_per_blk={},\
             cmd_ring_size_mb={},nl_reply_supported={}",
            self.config,
            self.size,
            self.block_size,
            self.max_sectors,
            self.area.data_mib,
            self.area.pages_per_block.max(1),
            self.area.ring_mib.clamp(1, 8),
            if self.replies { 1 } else { -1 },
        )
    }

    /// What makes it another disk for its initiators: it cannot change under them.
    pub(super) fn identity(&self) -> [Attribute; 3] {
        [
            Attribute::new("attrib/dev_config", &self.config),
            Attribute::new("attrib/hw_block_size", self.block_size.to_string()),
            self.serial(),
        ]
    }

    /// Its serial number; the kernel takes it only until a LUN is tied to the backstore.
    pub(super) fn serial(&self) -> Attribute {
        Attribute::new("wwn/vpd_unit_serial", &self.serial)
            .reading(format!("T10 VPD Unit Serial Number: {}", self.serial))
    }

    /// What only counts from the next time that the device is made.
    pub(super) fn sizes(&self) -> [Attribute; 4] {
        [
            Attribute::new("attrib/hw_max_sectors", self.max_sectors.to_string()),
            Attribute::new("attrib/max_data_area_mb", self.area.data_mib.to_string()),
            Attribute::new("attrib/data_pages_per_blk", self.area.pages_per_block.to_string()),
            Attribute::new("attrib/cmd_ring_size_mb", self.area.ring_mib.to_string()),
        ]
    }

    /// Refused while a LUN is tied to the backstore.
    pub(super) fn until_export(&self) -> [Attribute; 1] {
        [Attribute::new("attrib/cmd_time_out", seconds(self.command_timeout))]
    }

    /// What may change at any time after the device was enabled.
    pub(super) fn live(&self) -> [Attribute; 4] {
        let flag = |on: bool| if on { "1" } else { "0" };
        [
            Attribute::new("attrib/dev_size", self.size.to_string()),
            Attribute::new("attrib/qfull_time_out", seconds(self.full_timeout)),
            Attribute::new("attrib/emulate_pr", flag(self.reservations)),
            // So that an abort reaches the lane, and an aborted command ends early.
            Attribute::new("attrib/tmr_notification", "1"),
        ]
    }

    /// Its target port group: the state is Active/Optimized, as our own REPORT TARGET PORT GROUPS says. The group's number
    /// can be set once.
    pub(super) fn group(&self, name: &str) -> Object {
        let path = format!("{}/alua/{}", names::backstore(name), names::GROUP);
        let subject = Subject::Setting(format!("backstore {name}"), "target port group".into());
        let mut object = Object::folder(path, subject, vec![Subject::Backstore(name.into())]);
        object.attributes = vec![
            Attribute::new("tg_pt_gp_id", self.group.to_string()),
            Attribute::new("alua_access_type", "1").reading("Implicit"),
        ];
        object
    }
}

/// A target's folder in its fabric.
pub(super) fn target_path(name: &str, target: &Target) -> String {
    format!("{}/{name}", target.fabric.folder())
}

/// The folder of a target's portal group.
pub(super) fn group_path(name: &str, target: &Target) -> String {
    format!("{}/tpgt_{}", target_path(name, target), target.tag)
}

/// Everything of a target, the enabling of its portal group excepted. `exists` tells which paths are there.
pub(super) fn target(name: &str, target: &Target, exists: impl Fn(&str) -> bool) -> Vec<Object> {
    let subject = Subject::Target(name.into());
    let group = group_path(name, target);
    let mut objects = vec![
        Object::folder(target_path(name, target), subject.clone(), Vec::new()),
        Object {
            attributes: group_attributes(name, target),
            ..Object::folder(group.clone(), subject, Vec::new())
        },
    ];
    let shown = |lun: &Lun, number: u16| lun.served || exists(&lun_path(&group, number));
    for (number, lun) in target.luns.iter().filter(|(number, lun)| shown(lun, **number)) {
        objects.extend(lun_objects(name, &group, *number, lun));
    }
    if target.fabric == Fabric::Iscsi {
        for (initiator, acl) in &target.acls {
            objects.extend(acl_objects(name, target, &group, initiator, acl, shown));
        }
        for address in &target.portals {
            let subject = Subject::Portal(name.into(), address.to_string());
            let needs = vec![Subject::Target(name.into())];
            objects.push(Object::folder(format!("{group}/np/{address}"), subject, needs));
        }
    }
    objects
}

fn group_attributes(name: &str, target: &Target) -> Vec<Attribute> {
    let flag = |on: bool| if on { "1" } else { "0" };
    match target.fabric {
        Fabric::Loopback => vec![Attribute::new("nexus", nexus(name))],
        Fabric::Iscsi => {
            let rights = [
                Attribute::new("attrib/authentication", flag(target.chap)),
                Attribute::new("attrib/generate_node_acls", flag(target.open)),
                Attribute::new("attrib/cache_dynamic_acls", flag(target.open)),
                Attribute::new("attrib/demo_mode_write_protect", flag(!target.open)),
            ];
            rights.into_iter().chain(settings(name, &target.settings)).collect()
        }
    }
}

fn settings<'a>(
    name: &'a str,
    settings: impl IntoIterator<Item = (&'a &'static str, &'a String)>,
) -> impl Iterator<Item = Attribute> {
    settings.into_iter().map(move |(path, value)| Attribute {
        subject: Some(Subject::Setting(name.into(), (*path).into())),
        ..Attribute::new(*path, value)
    })
}

/// The initiator port of this machine on its own fabric: as the target's name, with another last digit.
fn nexus(target: &str) -> String {
    let (head, last) = target.split_at(target.len().saturating_sub(1));
    format!("{head}{}", if last == "f" { "e" } else { "f" })
}

fn lun_path(group: &str, lun: u16) -> String {
    format!("{group}/lun/lun_{lun}")
}

fn lun_objects(name: &str, group: &str, number: u16, lun: &Lun) -> [Object; 2] {
    let subject = Subject::Lun(name.into(), number);
    let needs = vec![Subject::Target(name.into()), Subject::Backstore(lun.backstore.clone())];
    let path = lun_path(group, number);
    let folder = Object::folder(path.clone(), subject.clone(), needs.clone());
    let link = Object {
        to: Some(names::backstore(&lun.backstore)),
        attributes: vec![in_group(name, number)],
        ..Object::folder(format!("{path}/{}", names::LINK), subject, needs)
    };
    [folder, link]
}

/// Which target port group a LUN is in; it counts once the LUN is tied.
fn in_group(target: &str, lun: u16) -> Attribute {
    let reads = format!("TG Port Alias: {}", names::GROUP);
    let subject = Subject::Setting(target.into(), format!("target port group of LUN {lun}"));
    Attribute { subject: Some(subject), ..Attribute::new("alua_tg_pt_gp", names::GROUP).reading(reads) }
}

fn acl_objects(
    name: &str,
    target: &Target,
    group: &str,
    initiator: &str,
    acl: &Acl,
    shown: impl Fn(&Lun, u16) -> bool,
) -> Vec<Object> {
    let subject = Subject::Acl(name.into(), initiator.into());
    let path = format!("{group}/acls/{initiator}");
    let user = |pair: &Option<(String, Secret)>| pair.as_ref().map(|(user, _)| user.as_bytes().to_vec());
    let secret = |pair: &Option<(String, Secret)>| pair.as_ref().map(|(_, secret)| secret.expose().to_vec());
    let mut attributes = vec![
        Attribute::chap("auth/userid", user(&acl.chap).as_deref()),
        Attribute::chap("auth/password", secret(&acl.chap).as_deref()),
        Attribute::chap("auth/userid_mutual", user(&acl.mutual).as_deref()),
        Attribute::chap("auth/password_mutual", secret(&acl.mutual).as_deref()),
    ];
    attributes.extend(settings(name, &target.acl_settings));
    let mut objects = vec![Object {
        attributes,
        ..Object::folder(path.clone(), subject.clone(), vec![Subject::Target(name.into())])
    }];
    for (number, read_only) in &acl.luns {
        if !target.luns.get(number).is_some_and(|lun| shown(lun, *number)) {
            continue;
        }
        let view = Subject::View(name.into(), initiator.into(), *number);
        let needs = vec![Subject::Target(name.into()), subject.clone(), Subject::Lun(name.into(), *number)];
        let folder = format!("{path}/lun_{number}");
        objects.push(Object::folder(folder.clone(), view.clone(), needs.clone()));
        objects.push(Object {
            to: Some(lun_path(group, *number)),
            // The kernel gives the right to write when it ties.
            attributes: vec![Attribute::new("write_protect", if *read_only { "1" } else { "0" })],
            ..Object::folder(format!("{folder}/{}", names::LINK), view, needs)
        });
    }
    objects
}

impl Object {
    /// Path of one of its attributes. A tie has none of its own: they are those of the folder that it is in.
    pub(super) fn attribute(&self, attribute: &Attribute) -> String {
        let folder = if self.to.is_some() { parent(&self.path) } else { &self.path };
        format!("{folder}/{}", attribute.path)
    }
}

/// The folder that something is in.
pub(super) fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}
