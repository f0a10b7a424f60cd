//! One lane behind one TCMU device, without a gateway round it: what the tests on a real kernel kill and start again.
//!
//! ```text
//! kernel-lane IDENTITY file PATH              IDENTITY as in /sys/class/uio/uioN/name: tcm-user/0/disk/anything
//! kernel-lane IDENTITY rbd CONF POOL IMAGE    CONF is a ceph.conf; the user is client.admin
//! ```
//!
//! Says how the device came into its hands, then `serving`. SIGTERM hands over: what has been taken is answered, the disk
//! closed, and the rest left in the ring. Ends by itself when the device is removed.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program of its own")]

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;

use rbdgate::cluster::reservations::Memory as NoReservations;
use rbdgate::disk::Disk;
use rbdgate::disk::file::{self, FileDisk, Workers};
use rbdgate::disk::rbd::{RbdDisk, Spec};
use rbdgate::lane::kernel::{self, Configfs, Served};
use rbdgate::nexus::Table;
use rbdgate::reactor::Reactors;
use rbdgate::scsi::{Identity, Settings, Unit};
use ring::uio;
use tokio::signal::unix::{SignalKind, signal};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments[..] {
        [identity, "file", path] => serve(identity, || open_file(path)),
        [identity, "rbd", conf, pool, image] => serve(identity, || open_rbd(conf, pool, image)),
        _ => {
            eprintln!("usage: kernel-lane IDENTITY (file PATH | rbd CONF POOL IMAGE)");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let mut causes = error.to_string();
            let mut source = error.source();
            while let Some(cause) = source {
                causes += &format!(": {cause}");
                source = cause.source();
            }
            eprintln!("kernel-lane: {causes}");
            ExitCode::FAILURE
        }
    }
}

type Opened = Result<Arc<dyn Disk>, Box<dyn Error>>;

fn open_file(path: &str) -> Opened {
    let options = file::Options { path: path.into(), block_size: 512, create: None, read_only: false };
    Ok(Arc::new(FileDisk::open(&options, &Workers::start_default()?)?))
}

fn open_rbd(conf: &str, pool: &str, image: &str) -> Opened {
    Ok(Arc::new(RbdDisk::open(&Spec {
        conf: conf.into(),
        id: "admin".into(),
        keyring: None,
        pool: pool.into(),
        namespace: None,
        image: image.into(),
        create: None,
        read_only: false,
        block_size: 512,
    })?))
}

fn serve(identity: &str, open: impl FnOnce() -> Opened) -> Result<(), Box<dyn Error>> {
    let identity = uio::Identity::parse(identity).ok_or("no identity of a TCMU device")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut told = runtime.block_on(async { signal(SignalKind::terminate()) })?;
    let found = uio::Tree::system().find(&identity)?;
    let actions = Arc::new(Configfs::new("/sys/kernel/config/target".as_ref(), &identity));
    let adopted = kernel::adopt(&found, actions)?;
    println!("uio{} {:?}", found.number, adopted.taken());
    // Only now: the predecessor is gone from this machine, and opening fences what it has sent to another.
    let disk = open()?;
    let settings = Settings::default();
    let unit = Unit::new(
        Identity::from_serial(&identity.name),
        disk.geometry().clone(),
        disk.size(),
        Table::new(),
        settings,
    );
    let reactors = Reactors::start(1)?;
    let lane = adopted.serve(
        &reactors.all()[0],
        Served {
            name: identity.name,
            unit: unit.behind_kernel(true),
            disk: Arc::clone(&disk),
            reservations: NoReservations::new(),
        },
    )?;
    println!("serving");
    runtime.block_on(async {
        tokio::select! {
            _ = told.recv() => lane.leave().await,
            () = lane.ended() => {}
        }
    });
    disk.close();
    let stats = lane.stats();
    println!("{} commands, {} commits, {:?}", stats.answered, stats.commits, stats.ring);
    Ok(())
}
