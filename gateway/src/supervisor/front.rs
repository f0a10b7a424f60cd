//! The kernel's target as a front end: backstores for open disks, targets for LUNs that are served.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail};
use ring::uio::{FindError, Identity, Tree as Devices};
use tokio::task::JoinHandle;

use super::app::App;
use super::lun::{Place, Spec};
use super::memory;
use super::stores::{Opened, Stores};
use crate::config::{self, Config, Digest, Frontend, Store};
use crate::lane::kernel::{self, Adopted, Configfs};
use crate::lio::handshake::Unavailable;
use crate::lio::netlink::{Event, Listener, Owner};
use crate::lio::plan::Plan;
use crate::lio::wanted::{Acl, Backstore, Fabric, Lun, Target, Wanted};
use crate::lio::{self, Action, Kernel, Outcome, Real, Tree, handshake, names, plan, sizing};

/// Most bytes of a command that the SCSI engine takes at once.
const LARGEST_TRANSFER: u64 = 8 << 20;

/// The connection to the kernel.
pub(super) struct Front {
    kernel: Arc<dyn Kernel>,
    limits: config::Limits,
    memory: u64,
    /// Held while targets are changed; the number of the newest wish.
    newest: Mutex<u64>,
    changing: Mutex<()>,
    _listener: Listener,
}

/// Hears what happens to devices. None of ours is waited for (`nl_reply_supported` -1), so that nobody is ever stuck.
struct Heard;

impl Owner for Heard {
    fn told(&self, event: &Event) -> Option<i32> {
        tracing::debug!(device = event.device, kind = ?event.kind, "TCMU event");
        None
    }
}

fn fabric(frontend: Frontend) -> Option<Fabric> {
    match frontend {
        Frontend::Portal => None,
        Frontend::Lio => Some(Fabric::Iscsi),
        Frontend::Loopback => Some(Fabric::Loopback),
    }
}

impl Front {
    /// Makes the kernel ready, where a target needs it.
    pub(super) fn start(config: &Config) -> anyhow::Result<Option<Arc<Self>>> {
        let fabrics: BTreeSet<Fabric> =
            config.targets.values().filter_map(|target| fabric(target.frontend)).collect();
        if fabrics.is_empty() {
            return Ok(None);
        }
        let kernel: Arc<dyn Kernel> = Arc::new(Real::new());
        let fabrics: Vec<Fabric> = fabrics.into_iter().collect();
        handshake::prepare(&*kernel, &fabrics)?;
        let memory = config.limits.memory.unwrap_or_else(memory::default_pool);
        // Both are machine-wide: where another owner has devices they are left to it.
        if !handshake::has_foreign_devices(&*kernel, &names::hba()).map_err(Unavailable::from)? {
            drop(handshake::Quiet::begin(&*kernel).map_err(Unavailable::from)?);
            let limit = sizing::global_limit(memory).to_string();
            kernel.set_parameter("target_core_user", "global_max_data_area_mb", &limit)?;
        }
        let listener = Listener::start(Arc::clone(&kernel), Arc::new(Heard), false)
            .context("cannot listen to the events of TCMU devices")?;
        let limits = config.limits.clone();
        let (newest, changing) = Default::default();
        Ok(Some(Arc::new(Self { kernel, limits, memory, newest, changing, _listener: listener })))
    }

    /// Opens a disk and takes its device up. A device that a predecessor has left is adopted first: only then is the
    /// predecessor gone from this machine.
    pub(super) fn open(&self, stores: &Stores, spec: &Spec) -> anyhow::Result<Opened> {
        let adopted = self.adopt(spec)?;
        let mut opened = stores.open(&spec.name, &spec.disk)?;
        match self.device(spec, &opened, adopted) {
            Ok(adopted) => opened.adopted = Some(adopted),
            Err(error) => {
                opened.disk.close();
                return Err(error);
            }
        }
        Ok(opened)
    }

    fn adopt(&self, spec: &Spec) -> anyhow::Result<Option<Adopted>> {
        let identity = identity(spec);
        let found = match Devices::system().find(&identity) {
            Ok(found) => found,
            // Another owner's, or one for another disk: what the plan says of it counts.
            Err(FindError::Missing { .. } | FindError::Foreign { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let actions = Configfs::new(Path::new("/sys/kernel/config/target"), &identity);
        Ok(Some(kernel::adopt(&found, Arc::new(actions))?))
    }

    fn device(&self, spec: &Spec, opened: &Opened, adopted: Option<Adopted>) -> anyhow::Result<Adopted> {
        let name = names::backstore_of(&spec.name);
        let backstore = self.backstore(spec, opened);
        let mut wanted = Wanted::default();
        wanted.backstores.insert(name.clone(), Some(backstore.clone()));
        let plan = {
            let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
            let tree = Tree::observe(&*self.kernel, &wanted)?;
            plan::backstore(&name, &backstore, &tree)
        };
        let anew = plan.steps.iter().any(|step| matches!(step.action, Action::Remove(_)));
        // A device that is removed while it is open stays behind in older kernels.
        let adopted = adopted.filter(|_| !anew);
        let outcome = lio::apply(&*self.kernel, plan);
        report(&outcome);
        if let Some(reason) = outcome.failures.iter().find_map(|(subject, reason)| {
            matches!(subject, lio::Subject::Backstore(_) | lio::Subject::Hba).then_some(reason)
        }) {
            bail!("the kernel's backstore {name}: {reason}");
        }
        match adopted {
            Some(adopted) => Ok(adopted),
            None => self.adopt(spec)?.with_context(|| format!("there is no uio device {}", identity(spec))),
        }
    }

    fn backstore(&self, spec: &Spec, opened: &Opened) -> Backstore {
        let limits = &self.limits;
        let load = sizing::Load { depth: 128, transfer: limits.largest_command };
        Backstore {
            config: identity(spec).config,
            size: opened.disk.size(),
            block_size: spec.disk.block_size,
            max_sectors: (LARGEST_TRANSFER / u64::from(spec.disk.block_size)) as u32,
            area: sizing::area(load, limits.data_area, limits.block, self.memory),
            serial: super::lun::serial(&spec.disk, &opened.unique),
            command_timeout: sizing::COMMAND_TIMEOUT,
            full_timeout: limits.qfull_timeout.max(Duration::from_secs(1)),
            // One gateway: the kernel's core, which knows the initiators, is the only one to keep them.
            reservations: true,
            replies: false,
            group: spec.portal_group,
        }
    }

    /// Makes the targets what is wanted, and with `sweep` removes backstores that nothing wants. Skipped when a newer wish is there.
    fn change(&self, number: u64, wanted: &Wanted, sweep: bool) {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        if *self.newest.lock().unwrap_or_else(PoisonError::into_inner) != number {
            return;
        }
        let plans: &[fn(&Wanted, &Tree) -> Plan] =
            if sweep { &[plan::targets, plan::leftovers] } else { &[plan::targets] };
        for plan in plans {
            match Tree::observe(&*self.kernel, wanted) {
                Ok(tree) => report(&lio::apply(&*self.kernel, plan(wanted, &tree))),
                Err(error) => tracing::error!(%error, "the kernel's targets cannot be read"),
            }
        }
    }
}

fn report(outcome: &Outcome) {
    for (subject, reason) in &outcome.failures {
        tracing::error!(%subject, reason, "not done in the kernel");
    }
    for (subject, note) in &outcome.notes {
        tracing::info!(%subject, note, "stays as it is for now");
    }
}

/// The uio device of a disk.
fn identity(spec: &Spec) -> Identity {
    let store = match &spec.disk.store {
        // Its size may change, and it is the same disk.
        Store::Memory { .. } => format!("memory:{}", spec.name),
        store => store.to_string(),
    };
    Identity { hba: names::HBA, name: names::backstore_of(&spec.name), config: names::config_of(&store) }
}

/// Targets of the configuration that the kernel serves. `served`: places whose lanes run.
fn wanted(config: &Config, served: &BTreeSet<Place>) -> Wanted {
    let mut wanted = Wanted::default();
    for (name, target) in &config.targets {
        let Some(fabric) = fabric(target.frontend) else { continue };
        for disk in target.luns.values() {
            wanted.backstores.insert(names::backstore_of(disk), None);
        }
        let luns = target.luns.iter().map(|(lun, disk)| {
            let served = served.contains(&Place { target: name.clone(), lun: *lun });
            (*lun, Lun { backstore: names::backstore_of(disk), served })
        });
        let portals = if target.addresses.is_empty() { &config.listen } else { &target.addresses };
        let is_iscsi = fabric == Fabric::Iscsi;
        let made = Target {
            fabric,
            tag: target.portal_group,
            portals: if is_iscsi { portals.clone() } else { Vec::new() },
            luns: luns.collect(),
            open: target.open,
            acls: target
                .initiators
                .iter()
                .map(|(name, rights)| (name.clone(), acl(target, rights)))
                .collect(),
            chap: target.initiators.values().any(|initiator| initiator.login.chap.is_some()),
            settings: if is_iscsi {
                settings(&target.parameters, &config.limits)
            } else {
                Default::default()
            },
            acl_settings: acl_settings(&target.parameters, &config.limits),
        };
        wanted.targets.insert(name.clone(), made);
    }
    wanted
}

fn acl(target: &config::Target, rights: &config::Initiator) -> Acl {
    let pair = |chap: &config::Chap| (chap.user.clone(), chap.secret.clone());
    let seen = target.luns.keys().filter(|lun| rights.luns.as_ref().is_none_or(|luns| luns.contains(lun)));
    Acl {
        luns: seen.map(|lun| (*lun, rights.read_only.contains(lun))).collect(),
        chap: rights.login.chap.as_ref().map(pair),
        mutual: rights.login.mutual.as_ref().map(pair),
    }
}

type Settings = std::collections::BTreeMap<&'static str, String>;

fn settings(parameters: &config::Parameters, limits: &config::Limits) -> Settings {
    let digest = |digest| match digest {
        Digest::Allowed => "CRC32C,None",
        Digest::None => "None",
        Digest::Required => "CRC32C",
    };
    let flag = |on: bool| if on { "Yes" } else { "No" };
    [
        ("attrib/default_cmdsn_depth", parameters.command_window.clamp(1, 512).to_string()),
        ("attrib/login_timeout", limits.login_timeout.as_secs().clamp(5, 30).to_string()),
        ("param/DataDigest", digest(parameters.data_digest).into()),
        ("param/FirstBurstLength", parameters.first_burst_length.to_string()),
        ("param/HeaderDigest", digest(parameters.header_digest).into()),
        ("param/ImmediateData", flag(parameters.immediate_data).into()),
        ("param/InitialR2T", flag(parameters.initial_r2t).into()),
        ("param/MaxBurstLength", parameters.max_burst_length.to_string()),
        ("param/MaxOutstandingR2T", parameters.max_outstanding_r2t.to_string()),
        ("param/MaxRecvDataSegmentLength", parameters.max_recv_data_segment_length.to_string()),
    ]
    .into()
}

fn acl_settings(parameters: &config::Parameters, limits: &config::Limits) -> Settings {
    [
        ("attrib/nopin_response_timeout", limits.nop_timeout.as_secs().clamp(3, 60).to_string()),
        ("attrib/nopin_timeout", limits.nop_interval.as_secs().clamp(3, 60).to_string()),
        ("cmdsn_depth", parameters.command_window.clamp(1, 512).to_string()),
    ]
    .into()
}

impl App {
    /// Tells the kernel which LUNs are served now; the handle ends when it has been done. `sweep`: no lane is on its way out,
    /// and backstores that nothing wants may go.
    pub(super) fn publish_to_kernel(&self, sweep: bool) -> Option<JoinHandle<()>> {
        let front = self.around.front.clone().filter(|_| self.is_open)?;
        let wanted = wanted(&self.config, &self.served());
        let number = {
            let mut newest = front.newest.lock().unwrap_or_else(PoisonError::into_inner);
            *newest += 1;
            *newest
        };
        Some(tokio::task::spawn_blocking(move || front.change(number, &wanted, sweep)))
    }
}
