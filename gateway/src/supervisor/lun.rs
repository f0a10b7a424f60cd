//! One LUN from its configuration to its lane: disk, ring, SCSI unit and port, put together and taken apart.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use ring::{Options, Pool};
use sha2::{Digest, Sha256};

use super::front::Front;
use super::stores::Opened;
use crate::cluster::reservations::{Memory, Store};
use crate::config;
use crate::disk::{Disk, Geometry};
use crate::lane::kernel::{Adopted, Served};
use crate::lane::{self, LATENCY_BOUNDS, Lane};
use crate::nexus::Table;
use crate::portal::Port;
use crate::reactor::Reactor;
use crate::scsi::{self, opcode::Class};
use crate::{status, units};

/// Where a LUN stands.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    /// Target's iSCSI name.
    pub(super) target: String,
    /// Number.
    pub(super) lun: u16,
}

/// What is wanted at a place. Equal specifications need no change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Spec {
    /// Name in the configuration.
    pub(super) name: String,
    /// What takes its commands from the initiators.
    pub(super) frontend: config::Frontend,
    /// The target's portal group tag, which names the port in what SCSI says of it.
    pub(super) portal_group: u16,
    /// The disk.
    pub(super) disk: config::Disk,
}

/// What all LUNs share.
#[derive(Clone)]
pub(super) struct Surroundings {
    pub(super) pool: Pool,
    pub(super) nexuses: Arc<Table>,
    pub(super) units: Arc<units::Table>,
    pub(super) options: Options,
    pub(super) qfull_timeout: Duration,
    /// The kernel, where it serves a target.
    pub(super) front: Option<Arc<Front>>,
}

/// A LUN that serves.
pub(super) struct Running {
    disk: Option<Arc<dyn Disk>>,
    lane: Lane,
    /// Where the portal delivers commands; `None`: they come from the kernel.
    port: Option<Arc<Port>>,
    /// A thread looks at the disk's size.
    looking: Arc<AtomicBool>,
    /// Lets copies of other LUNs find this one.
    listing: Option<units::Listing>,
}

impl Running {
    /// Starts a LUN on an open disk.
    pub(super) fn start(
        place: &Place,
        spec: &Spec,
        opened: Opened,
        around: &Surroundings,
        reactor: &Reactor,
    ) -> Result<Self, String> {
        let Opened { disk, unique, reservations: (store, reserved), adopted } = opened;
        let identity = identity(&spec.disk, &unique);
        let settings = scsi::Settings {
            lun: place.lun,
            removable: spec.disk.removable,
            write_protected: spec.disk.read_only,
            pool_threshold: spec.disk.pool_threshold,
        };
        let geometry =
            Geometry { physical_block_size: spec.disk.physical_block_size, ..disk.geometry().clone() };
        let mut unit =
            scsi::Unit::new(identity.clone(), geometry, disk.size(), Arc::clone(&around.nexuses), settings)
                .of_target(&place.target)
                .reached_through(Arc::new(scsi::alua::Single::new(spec.portal_group)))
                .joined(Arc::clone(&around.units));
        if adopted.is_some() {
            unit = unit.behind_kernel(true);
        } else {
            unit.restore_reservations(reserved.number, &reserved.state).map_err(|error| {
                disk.close();
                format!("{error} ({store:?})")
            })?;
        }
        unit.recall(disk.note().as_deref());
        let block_size = disk.geometry().block_size.into();
        let name = format!("{} LUN {}", place.target, place.lun);
        let mut running = match adopted {
            None => Self::wire(name, unit, Some(disk), store, around, reactor)?,
            Some(adopted) => Self::behind_kernel(name, unit, disk, adopted, reactor)?,
        };
        let (target, lun, door) = (place.target.clone(), place.lun, running.lane.door());
        running.listing = Some(around.units.enter(units::Entry { target, lun, identity, block_size, door }));
        Ok(running)
    }

    /// The kernel keeps reservations, and the ring.
    fn behind_kernel(
        name: String,
        unit: scsi::Unit,
        disk: Arc<dyn Disk>,
        adopted: Adopted,
        reactor: &Reactor,
    ) -> Result<Self, String> {
        let served = Served { name, unit, disk: Arc::clone(&disk), reservations: Memory::new() };
        let lane = adopted.serve(reactor, served).map_err(|error| {
            disk.close();
            format!("the kernel does not let its ring go on: {error}")
        })?;
        Ok(Self { disk: Some(disk), lane, port: None, looking: Arc::default(), listing: None })
    }

    /// Starts what answers for LUNs that do not exist.
    pub(super) fn absent(around: &Surroundings, reactor: &Reactor) -> Result<Self, String> {
        Self::without_disk("absent LUNs", scsi::Unit::absent(Arc::clone(&around.nexuses)), around, reactor)
    }

    /// Starts the REPORT LUNS well known logical unit of every target.
    pub(super) fn well_known(around: &Surroundings, reactor: &Reactor) -> Result<Self, String> {
        let unit = scsi::Unit::well_known(Arc::clone(&around.nexuses));
        Self::without_disk("the well known LUN", unit, around, reactor)
    }

    fn without_disk(
        name: &str,
        unit: scsi::Unit,
        around: &Surroundings,
        reactor: &Reactor,
    ) -> Result<Self, String> {
        let small = Options {
            command_area: 64 << 10,
            data_area: 4 << 20,
            largest_command: 64 << 10,
            ..around.options.clone()
        };
        let around = Surroundings { options: small, ..around.clone() };
        Self::wire(name.into(), unit, None, Memory::new(), &around, reactor)
    }

    fn wire(
        name: String,
        unit: scsi::Unit,
        disk: Option<Arc<dyn Disk>>,
        reservations: Arc<dyn Store>,
        around: &Surroundings,
        reactor: &Reactor,
    ) -> Result<Self, String> {
        let (producer, consumer) =
            ring::create(&around.options, &around.pool).map_err(|error| error.to_string())?;
        let port = Port::new(producer, around.qfull_timeout);
        let parts = lane::Parts {
            name,
            consumer,
            unit,
            disk: disk.clone(),
            reservations,
            producer: Arc::clone(&port) as Arc<dyn ring::Doorbell>,
        };
        let lane = lane::start(reactor, parts);
        port.connect_lane(lane.doorbell());
        port.connect_task_aborted_status(lane.task_aborted_status());
        Ok(Self { disk, lane, port: Some(port), looking: Arc::default(), listing: None })
    }

    /// Its disk, if it has one.
    pub(super) fn disk(&self) -> Option<Arc<dyn Disk>> {
        self.disk.clone()
    }

    /// Whether a thread looks at the disk's size.
    pub(super) fn looking(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.looking)
    }

    /// Where the portal delivers commands.
    pub(super) fn port(&self) -> Option<Arc<Port>> {
        self.port.clone()
    }

    /// Finishes what has been taken on, then lets go of the disk.
    pub(super) async fn stop(&self) {
        if let Some(listing) = &self.listing {
            listing.withdraw();
        }
        // What the kernel has queued stays there for a successor.
        if self.port.is_some() {
            self.lane.stop().await;
        } else {
            self.lane.leave().await;
        }
        if let Some(disk) = self.disk.clone() {
            // Closing waits for the store; a panic there has been reported by the panic hook.
            let _ = tokio::task::spawn_blocking(move || disk.close()).await;
        }
    }

    /// How busy it is.
    pub(super) fn load(&self) -> lane::Load {
        self.lane.load()
    }

    /// Adds this LUN's figures.
    pub(super) fn report(&self, lun: &mut status::Lun) {
        let stats = self.lane.stats();
        if stats.wrecked {
            lun.state = status::State::Failed("a bug of the gateway has taken it down; see the log".into());
        } else if stats.corrupt || self.port.as_ref().is_some_and(|port| port.failed()) {
            lun.state = status::State::Failed("its ring was found corrupt; see the log".into());
        }
        lun.size = self.disk.as_ref().map_or(0, |disk| disk.size());
        lun.in_flight = stats.in_flight;
        if let Some(port) = &self.port {
            let area = port.producer().usage();
            lun.in_flight = area.in_flight as u64;
            lun.waiting = area.waiting as u64;
            lun.data_area = area.data_area;
            lun.data_area_backed = area.backed;
            lun.data_area_in_use = area.in_use;
        }
        lun.commands = stats.answered;
        lun.read_bytes = stats.bytes_read;
        lun.written_bytes = stats.bytes_written;
        lun.copied_bytes = stats.bytes_copied;
        lun.errors = DISK_FAILURES.iter().map(|key| stats.sense_keys[usize::from(*key)]).sum();
        for (class, latency) in Class::ALL.iter().zip(&stats.latency) {
            let bounds =
                LATENCY_BOUNDS.iter().map(|microseconds| *microseconds as f64 / 1e6).chain([f64::MAX]);
            let buckets = bounds
                .zip(&latency.buckets)
                .map(|(seconds, count)| status::Bucket { seconds, count: *count });
            let latency =
                status::Latency { sum_seconds: latency.sum.as_secs_f64(), buckets: buckets.collect() };
            lun.classes.insert(class.label().into(), latency);
        }
    }
}

/// Sense keys that say the disk has failed or refused, not that the command was wrong: NOT READY, MEDIUM ERROR, HARDWARE
/// ERROR, DATA PROTECT (out of space, write-protected).
const DISK_FAILURES: [u8; 4] = [2, 3, 4, 7];

/// The unit serial number.
pub(super) fn serial(config: &config::Disk, unique: &str) -> String {
    config.serial.clone().unwrap_or_else(|| {
        let hash: [u8; 32] = Sha256::digest(unique.as_bytes()).into();
        hash[..16].iter().map(|byte| format!("{byte:02x}")).collect()
    })
}

/// What hosts know the disk by. It must never change while the same store is served: the names are made from the serial
/// number when one is configured, else from what the store says is unique about it.
fn identity(config: &config::Disk, unique: &str) -> scsi::Identity {
    let mut identity = scsi::Identity::from_serial(serial(config, unique));
    if let Some(vendor) = &config.vendor {
        identity.vendor.clone_from(vendor);
    }
    if let Some(product) = &config.product {
        identity.product.clone_from(product);
    }
    identity
}
