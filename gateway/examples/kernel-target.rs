//! The planner on a real kernel: makes two targets with their backstores, plans again (nothing may be left to do), resizes one
//! through the kernel's event, takes a LUN out, breaks things half-way and repairs them, and takes everything down. For the
//! kernel tests; needs root, and a machine that may be thrown away.
//!
//! `kernel-target mute` makes one backstore, announces that it answers events, and never does: the kernel waits, until it is
//! killed and more. `kernel-target recover` is the process that comes after it.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use rbdgate::lio::netlink::{Change, Event, Kind, Listener, Owner};
use rbdgate::lio::wanted::{Acl, Area, Backstore, Fabric, Lun, Target, Wanted};
use rbdgate::lio::{Kernel, Outcome, Real, Tree, apply, device, handshake, names, plan, sizing};
use rbdgate::secret::Secret;

const IQN: &str = "iqn.2026-01.com.example:store";
const NAA: &str = "naa.5001405000000001";
const HOST: &str = "iqn.1994-05.com.redhat:host1";

/// Answers for devices of ours, and keeps what it was told.
#[derive(Default)]
struct Heard(Mutex<Vec<Event>>);

impl Owner for Heard {
    fn told(&self, event: &Event) -> Option<i32> {
        self.0.lock().ok()?.push(event.clone());
        // The kernel does not wait for answers about this one, and says so in its log when it gets one.
        if event.device.contains("/disks/one") {
            return None;
        }
        let refuse = event.kind == Kind::Reconfigured(Change::WriteCache(true));
        event.device.contains("/rbdgate/").then_some(if refuse { -libc::EOPNOTSUPP } else { 0 })
    }
}

fn backstore(disk: &str, replies: bool) -> Backstore {
    let load = sizing::Load { depth: 128, transfer: 1 << 20 };
    Backstore {
        config: names::config_of(&format!("file:/disks/{disk} with, a comma")),
        size: 64 << 20,
        block_size: 512,
        max_sectors: 16384,
        area: Area { ring_mib: 8, ..sizing::area(load, 64 << 20, 4096, 1 << 30) },
        serial: format!("serial-of-{disk}"),
        command_timeout: sizing::COMMAND_TIMEOUT,
        full_timeout: Duration::from_secs(30),
        reservations: true,
        replies,
        group: 1,
    }
}

fn target(fabric: Fabric, luns: &[(u16, &str)]) -> Target {
    let acl = Acl {
        luns: luns.iter().map(|(lun, _)| (*lun, *lun == 1)).collect(),
        chap: Some(("host1".into(), Secret::new("secret-of-host1"))),
        mutual: Some(("gateway".into(), Secret::new("secret-of-gateway"))),
    };
    let iscsi = fabric == Fabric::Iscsi;
    let settings: &[(&str, &str)] = &[
        ("attrib/default_cmdsn_depth", "128"),
        ("attrib/login_timeout", "15"),
        ("param/HeaderDigest", "CRC32C,None"),
        ("param/ImmediateData", "Yes"),
        ("param/InitialR2T", "No"),
        ("param/MaxBurstLength", "1048576"),
        ("param/MaxOutstandingR2T", "8"),
    ];
    let acl_settings: &[(&str, &str)] =
        &[("attrib/nopin_response_timeout", "5"), ("attrib/nopin_timeout", "5"), ("cmdsn_depth", "128")];
    let owned = |pairs: &[(&'static str, &str)]| {
        pairs.iter().map(|(path, value)| (*path, (*value).to_owned())).collect()
    };
    Target {
        fabric,
        tag: 1,
        portals: if iscsi { vec![([127, 0, 0, 1], 3260).into()] } else { Vec::new() },
        luns: luns
            .iter()
            .map(|(lun, disk)| (*lun, Lun { backstore: names::backstore_of(disk), served: true }))
            .collect(),
        open: false,
        acls: if iscsi { [(HOST.to_owned(), acl)].into() } else { Default::default() },
        chap: iscsi,
        settings: if iscsi { owned(settings) } else { Default::default() },
        acl_settings: if iscsi { owned(acl_settings) } else { Default::default() },
    }
}

fn reconcile(kernel: &Real, wanted: &Wanted, what: &str) -> anyhow::Result<Outcome> {
    let began = Instant::now();
    let outcome = apply(kernel, plan::whole(wanted, &Tree::observe(kernel, wanted)?));
    say(&format!("{what}: {} steps in {:?}, failures {:?}", outcome.done, began.elapsed(), outcome.failures));
    Ok(outcome)
}

fn settled(kernel: &Real, wanted: &Wanted) -> anyhow::Result<()> {
    let left = plan::whole(wanted, &Tree::observe(kernel, wanted)?);
    ensure!(left.steps.is_empty() && left.notes.is_empty(), "left to do: {left:#?}");
    Ok(())
}

#[expect(clippy::print_stdout, reason = "what a test says of itself")]
fn say(text: &str) {
    println!("{text}");
}

/// Hears everything and answers nothing.
struct Mute;

impl Owner for Mute {
    fn told(&self, _event: &Event) -> Option<i32> {
        None
    }
}

fn one_backstore() -> Wanted {
    let mut wanted = Wanted::default();
    wanted.backstores.insert("one".into(), Some(backstore("one", true)));
    wanted
}

/// Waits in the kernel for an answer that it owes itself.
fn mute(kernel: &Arc<Real>) -> anyhow::Result<()> {
    let _listener = Listener::start(Arc::clone(kernel) as _, Arc::new(Mute), true)?;
    reconcile(kernel, &one_backstore(), "not waited")?;
    Ok(())
}

/// Frees whoever still waits, and finishes what was begun.
fn recover(kernel: &Arc<Real>) -> anyhow::Result<()> {
    let began = Instant::now();
    drop(handshake::Quiet::begin(&**kernel)?);
    let heard = Arc::new(Heard::default());
    let owner = Arc::new(Answering(Arc::clone(&heard)));
    let _listener = Listener::start(Arc::clone(kernel) as _, owner, true)?;
    let wanted = one_backstore();
    // The predecessor dies as soon as it is let go; until then it may undo what it had begun.
    while !reconcile(kernel, &wanted, "recovered")?.is_clean() || settled(kernel, &wanted).is_err() {
        ensure!(began.elapsed() < Duration::from_secs(5), "not recovered in 5 s");
        std::thread::sleep(Duration::from_millis(20));
    }
    say(&format!("recovered after {:?}", began.elapsed()));
    ensure!(began.elapsed() < Duration::from_secs(1), "not recovered in a second");
    ensure!(reconcile(kernel, &Wanted::default(), "taken down")?.is_clean());
    Ok(())
}

/// Answers for every device of ours.
struct Answering(Arc<Heard>);

impl Owner for Answering {
    fn told(&self, event: &Event) -> Option<i32> {
        self.0.told(event);
        event.device.contains("/rbdgate/").then_some(0)
    }
}

fn main() -> anyhow::Result<()> {
    let kernel = Arc::new(Real::new());
    handshake::prepare(&*kernel, &Fabric::ALL)?;
    match std::env::args().nth(1).as_deref() {
        Some("mute") => return mute(&kernel),
        Some("recover") => return recover(&kernel),
        _ => {}
    }
    drop(handshake::Quiet::begin(&*kernel)?);
    ensure!(!handshake::has_foreign_devices(&*kernel, &names::hba())?);
    // Somebody else's device.
    kernel.make_folder("core/user_0")?;
    kernel.make_folder("core/user_0/a")?;
    kernel.write("core/user_0/a/control", "dev_config=other/thing,dev_size=1048576,nl_reply_supported=-1")?;
    kernel.write("core/user_0/a/enable", "1")?;
    ensure!(handshake::has_foreign_devices(&*kernel, &names::hba())?);

    let heard = Arc::new(Heard::default());
    let listener = Listener::start(Arc::clone(&kernel) as _, Arc::clone(&heard) as _, true)?;
    let disks = ["one", "two", "three"];
    let mut wanted = Wanted::default();
    for disk in disks {
        // The kernel waits for our answer about two of them.
        wanted.backstores.insert(names::backstore_of(disk), Some(backstore(disk, disk != "one")));
    }
    wanted.targets.insert(IQN.into(), target(Fabric::Iscsi, &[(0, "one"), (1, "two")]));
    wanted.targets.insert(NAA.into(), target(Fabric::Loopback, &[]));
    let outcome = reconcile(&kernel, &wanted, "made")?;
    ensure!(outcome.is_clean());
    settled(&kernel, &wanted).context("after making everything")?;
    ensure!(kernel.read(&format!("iscsi/{IQN}/tpgt_1/enable"))?.trim() == "1");

    // A resize, and a change that is refused, go through the owner.
    device::set_size(&*kernel, "two", 128 << 20)?;
    let refused = kernel.write(&(names::backstore("two") + "/attrib/emulate_write_cache"), "1");
    ensure!(refused.is_err(), "the owner has refused, the kernel has not");
    ensure!(kernel.read(&(names::backstore("two") + "/attrib/dev_size"))?.trim() == (128 << 20).to_string());
    ensure!(reconcile(&kernel, &wanted, "size set back")?.done == 1);
    device::block(&*kernel, "one", true)?;
    ensure!(device::is_blocked(&*kernel, "one")?);
    device::reset_ring(&*kernel, "one", device::Outstanding::Retried)?;
    device::block(&*kernel, "one", false)?;

    // Half-made and half-broken.
    let group = format!("iscsi/{IQN}/tpgt_1");
    kernel.write(&format!("{group}/enable"), "0")?;
    kernel.unlink(&format!("{group}/acls/{HOST}/lun_1/rbdgate"))?;
    kernel.write(&format!("{group}/acls/{HOST}/auth/password"), "something-else")?;
    kernel.make_folder(&names::backstore("orphan"))?;
    ensure!(reconcile(&kernel, &wanted, "repaired")?.is_clean());
    settled(&kernel, &wanted).context("after the repair")?;
    // Another disk behind the same name, and a LUN less.
    wanted
        .backstores
        .insert("one".into(), Some(Backstore { serial: "new".into(), ..backstore("one", false) }));
    wanted.backstores.remove("two");
    wanted.targets.insert(IQN.into(), target(Fabric::Iscsi, &[(0, "one"), (2, "three")]));
    ensure!(reconcile(&kernel, &wanted, "changed")?.is_clean());
    settled(&kernel, &wanted).context("after the change")?;

    ensure!(reconcile(&kernel, &Wanted::default(), "taken down")?.is_clean());
    ensure!(kernel.list(&format!("core/{}", names::hba())).is_err(), "the HBA is left");
    ensure!(kernel.read("core/user_0/a/enable")?.trim() == "1", "another owner's device is gone");
    drop(listener);
    let heard = heard.0.lock().map(|heard| heard.len()).unwrap_or_default();
    say(&format!("{heard} events heard"));
    Ok(())
}
