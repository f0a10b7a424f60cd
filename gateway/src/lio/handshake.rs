//! What a fresh process does with the kernel before anything else: modules, and whoever waits for answers that the process
//! before this one did not give.

use std::fmt;
use std::io;

use super::kernel::{Entry, EntryKind, Kernel};
use super::wanted::Fabric;

/// The module of the kernel's rings, whose parameters are machine-wide.
pub(super) const MODULE: &str = "target_core_user";

/// Why the kernel cannot be used at all.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    /// A module cannot be had.
    #[error(
        "the kernel has no module {module}: {reason}. Load it on the host (modprobe {module}), or install the kernel's package of extra modules"
    )]
    Module {
        /// Its name.
        module: &'static str,
        /// What was tried.
        reason: String,
    },
    /// Not for this user.
    #[error(
        "the kernel's target subsystem needs root (CAP_SYS_ADMIN, and /sys/kernel/config writable); the front end `portal` does not"
    )]
    Permission(#[source] io::Error),
    /// configfs does not show the subsystem.
    #[error(
        "/sys/kernel/config/target is not there: mount configfs (mount -t configfs configfs /sys/kernel/config), in a container bind the host's /sys/kernel/config"
    )]
    Configfs(#[source] io::Error),
}

/// Loads what the fabrics need and makes the subsystem reachable.
pub fn prepare(kernel: &dyn Kernel, fabrics: &[Fabric]) -> Result<(), Unavailable> {
    load(kernel, "target_core_mod", |kernel| kernel.list("core").is_ok())?;
    if kernel.list("core").is_err() {
        kernel.mount().map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => Unavailable::Permission(error),
            _ => Unavailable::Configfs(error),
        })?;
        kernel.list("core").map_err(Unavailable::Configfs)?;
    }
    load(kernel, MODULE, |kernel| kernel.has_module(MODULE))?;
    for fabric in fabrics {
        let module = fabric.module();
        load(kernel, module, |kernel| kernel.has_module(module))?;
        // The fabric's folder is made once per boot, by whoever comes first.
        match kernel.make_folder(fabric.folder()) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(Unavailable::Permission(error));
            }
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(Unavailable::Module { module, reason: error.to_string() });
            }
            _ => {}
        }
    }
    Ok(())
}

fn load(
    kernel: &dyn Kernel,
    module: &'static str,
    is_there: impl Fn(&dyn Kernel) -> bool,
) -> Result<(), Unavailable> {
    if kernel.has_module(module) || is_there(kernel) {
        return Ok(());
    }
    match kernel.load_module(module) {
        Ok(()) => Ok(()),
        // Another process may have loaded it, or the kernel did on its own.
        Err(_) if kernel.has_module(module) || is_there(kernel) => Ok(()),
        Err(error) => Err(Unavailable::Module { module, reason: error.to_string() }),
    }
}

/// The kernel's events are held back from now until [`Quiet`] is dropped: who causes one is refused at once (EAGAIN) rather
/// than left waiting for a process that is not ready, and who has waited since the last process died is let go (EINTR).
///
/// Both concern every TCMU device of the machine, so it is done only where a device of ours may be waited for.
#[must_use]
pub struct Quiet<'a>(&'a dyn Kernel);

impl<'a> Quiet<'a> {
    /// Begins; an older kernel without the parameters has no such waits to end.
    pub fn begin(kernel: &'a dyn Kernel) -> io::Result<Option<Self>> {
        match kernel.set_parameter(MODULE, "block_netlink", "1") {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        }
        let quiet = Self(kernel);
        kernel.set_parameter(MODULE, "reset_netlink", "1")?;
        Ok(Some(quiet))
    }
}

impl Drop for Quiet<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.0.set_parameter(MODULE, "block_netlink", "0") {
            tracing::error!(%error, "the events of TCMU devices stay blocked: write 0 to /sys/module/target_core_user/parameters/block_netlink");
        }
    }
}

impl fmt::Debug for Quiet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Quiet").finish_non_exhaustive()
    }
}

/// Lets go whoever waits for an answer that will not come.
pub(super) fn release_waiters(kernel: &dyn Kernel) -> io::Result<()> {
    Quiet::begin(kernel).map(drop)
}

/// Whether the machine has TCMU devices besides those in `hba`: their owners share the module's parameters with us.
pub fn has_foreign_devices(kernel: &dyn Kernel, hba: &str) -> io::Result<bool> {
    let is_folder = |entry: &Entry| entry.kind == EntryKind::Folder;
    for entry in kernel.list("core")? {
        if entry.name == hba || !entry.name.starts_with("user_") || !is_folder(&entry) {
            continue;
        }
        if kernel.list(&format!("core/{}", entry.name))?.iter().any(is_folder) {
            return Ok(true);
        }
    }
    Ok(false)
}
