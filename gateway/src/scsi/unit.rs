//! One logical unit, as a lane owns it.

use std::sync::Arc;

use ring::Nexus;

use super::absent::Absent;
use super::alua;
use super::background::{self, Background, Milestone};
use super::copy;
use super::device::{Continuation, Device, Kernel};
use super::gate::Audience;
use super::identity::Identity;
use super::mode;
use super::reservation::{self, Unreadable};
use super::sense::{self, Sense};
use super::space;
use super::step::{Data, Finished, Io, Step};
use super::well_known::WellKnown;
use crate::disk::Geometry;
use crate::{disk, nexus, units};

/// What configuration decides about a unit, beyond its identity and its disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The unit's number in its targets; [`nexus::View::read_only`] names it by this.
    pub lun: u16,
    /// The medium may be ejected and loaded (RMB).
    pub removable: bool,
    /// Nobody may write.
    pub write_protected: bool,
    /// Percent of the store's pool in use from which every nexus is told (38/07), once each time it is reached.
    pub pool_threshold: Option<u8>,
}

/// What reset a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// LOGICAL UNIT RESET (SAM-5).
    LogicalUnit,
    /// A warm or cold reset of the whole target.
    Target,
}

impl Reset {
    /// What every nexus is told.
    pub(super) fn condition(self) -> Sense {
        match self {
            Self::LogicalUnit => sense::BUS_DEVICE_RESET_FUNCTION_OCCURRED,
            Self::Target => sense::SCSI_BUS_RESET_OCCURRED,
        }
    }
}

/// The device server of one LUN: state and no locks, a lane owns it.
pub struct Unit {
    server: Server,
}

enum Server {
    Present(Box<Device>),
    Absent(Absent),
    WellKnown(Box<WellKnown>),
}

impl Unit {
    /// A logical unit with a disk of `size` bytes behind it.
    pub fn new(
        identity: Identity,
        geometry: Geometry,
        size: u64,
        nexuses: Arc<nexus::Table>,
        settings: Settings,
    ) -> Self {
        let device = Device::new(identity, geometry, size, nexuses, settings);
        Self { server: Server::Present(Box::new(device)) }
    }

    /// With somebody else to say through which target ports it can be used. Without, it is a gateway on its own with
    /// the portal group tag 1.
    #[must_use]
    pub fn reached_through(mut self, source: Arc<dyn alua::Source>) -> Self {
        if let Server::Present(device) = &mut self.server {
            device.ports = alua::Ports::new(source);
        }
        self
    }

    /// For a unit whose commands come through the kernel's target (LIO), which carries no nexus. All initiators are one to
    /// the unit; what has to be told apart, LIO does: it tells every nexus of a reset, and answers REPORT LUNS. Reservations
    /// are LIO's too (`reservations`), or nobody's.
    #[must_use]
    pub fn behind_kernel(mut self, reservations: bool) -> Self {
        if let Server::Present(device) = &mut self.server {
            device.kernel = Some(Kernel { reservations });
        }
        self
    }

    /// Of this target: initiator ports that are known through another one are none of its own.
    #[must_use]
    pub fn of_target(mut self, name: &str) -> Self {
        if let Server::Present(device) = &mut self.server {
            device.gate.of_target(name);
        }
        self
    }

    /// Lets copies reach the other units of `units`, and share their memory.
    pub fn joined(mut self, units: Arc<units::Table>) -> Self {
        if let Server::Present(device) = &mut self.server {
            device.units = units;
        }
        self
    }

    /// Who says through which target ports it can be used; `None` for a unit that is not there.
    pub fn source(&self) -> Option<Arc<dyn alua::Source>> {
        match &self.server {
            Server::Present(device) => Some(device.ports.source()),
            Server::Absent(_) | Server::WellKnown(_) => None,
        }
    }

    /// [`Unit::source`] has something new to say.
    pub fn access_changed(&mut self) {
        if let Server::Present(device) = &mut self.server {
            alua::refresh(device);
        }
    }

    /// Whether a command that another nexus has ended is answered TASK ABORTED (SPC-4, control mode page, TAS).
    pub fn task_aborted_status(&self) -> bool {
        match &self.server {
            Server::Present(device) => device.mode.task_aborted_status(),
            Server::Absent(_) | Server::WellKnown(_) => true,
        }
    }

    /// Another nexus has ended commands of this one, and they are not answered (SAM-5, COMMANDS CLEARED BY ANOTHER
    /// INITIATOR).
    pub fn commands_cleared(&mut self, nexus: Nexus) {
        if let Server::Present(device) = &mut self.server {
            device.gate.establish_for(nexus, sense::COMMANDS_CLEARED_BY_ANOTHER_INITIATOR);
        }
    }

    /// A command has ended without [`Unit::resume`].
    pub fn command_aborted(&mut self, then: &Continuation) {
        if let Server::Present(device) = &mut self.server {
            device.command_aborted(then);
        }
    }

    /// Answers for LUNs that do not exist (SAM-5, incorrect logical unit selection): REPORT LUNS, INQUIRY and REQUEST
    /// SENSE; all else is LOGICAL UNIT NOT SUPPORTED.
    pub fn absent(nexuses: Arc<nexus::Table>) -> Self {
        Self { server: Server::Absent(Absent::new(nexuses)) }
    }

    /// The REPORT LUNS well known logical unit of a target.
    pub fn well_known(nexuses: Arc<nexus::Table>) -> Self {
        Self { server: Server::WellKnown(Box::new(WellKnown::new(nexuses))) }
    }

    /// Takes up the reservations that were stored under `number`, as a power on leaves them (SPC-4). Before the first
    /// command.
    pub fn restore_reservations(&mut self, number: u64, state: &[u8]) -> Result<(), Unreadable> {
        if let Server::Present(device) = &mut self.server {
            device.reservations = reservation::State::after_power_on(device, number, state)?;
        }
        Ok(())
    }

    /// Another gateway has changed the unit's reservations.
    pub fn reservations_changed(&mut self, number: u64, state: &[u8]) -> Result<(), Unreadable> {
        match &mut self.server {
            Server::Present(device) => reservation::adopt(device, number, state),
            Server::Absent(_) | Server::WellKnown(_) => Ok(()),
        }
    }

    /// Starts a command. `data` is its buffer, and must be the same at every [`Unit::resume`].
    pub fn execute(&mut self, cdb: &[u8], nexus: Nexus, data: &dyn Data) -> Step<Continuation> {
        match &mut self.server {
            Server::Present(device) => device.execute(cdb, nexus, data),
            Server::Absent(absent) => Step::Done(absent.execute(cdb, nexus, data)),
            Server::WellKnown(unit) => Step::Done(unit.execute(cdb, nexus, data)),
        }
    }

    /// Goes on with a command after its I/O; `results` in the order of the requests.
    pub fn resume(
        &mut self,
        then: Continuation,
        results: &mut [Finished],
        data: &dyn Data,
    ) -> Step<Continuation> {
        match &mut self.server {
            Server::Present(device) => device.resume(then, results, data),
            Server::Absent(absent) => Step::Done(absent.nothing_pending()),
            Server::WellKnown(unit) => Step::Done(unit.nothing_pending()),
        }
    }

    /// What a request of another unit's command comes to here, or why it is refused; its buffer then goes back. See
    /// [`units`].
    pub fn visit(&mut self, nexus: Nexus, call: units::Call) -> Result<Io, (disk::Error, Vec<u8>)> {
        match &mut self.server {
            Server::Present(device) => {
                let io = copy::admit(device, nexus, call)?;
                device.revoke_written(std::slice::from_ref(&io));
                Ok(io)
            }
            Server::Absent(_) | Server::WellKnown(_) => Err((disk::Error::NotReady, call.into_buffer())),
        }
    }

    /// Whether a visit that was admitted, and has waited since, is still to be carried out.
    pub fn visit_again(&mut self, nexus: Nexus, io: &Io) -> Result<(), disk::Error> {
        let (Server::Present(device), Some(range)) = (&mut self.server, io.range()) else {
            return Err(disk::Error::NotReady);
        };
        copy::check(device, nexus, &range, io.written().is_some())
    }

    /// The disk has `size` bytes from now on; every nexus is told (2A/09).
    pub fn resized(&mut self, size: u64) {
        if let Server::Present(device) = &mut self.server {
            let blocks = size / device.block_size();
            if blocks != device.blocks {
                device.own_rods.revoke_all();
                device.blocks = blocks;
                device.gate.establish(sense::CAPACITY_DATA_HAS_CHANGED, Audience::Everyone);
            }
        }
    }

    /// Undoes what initiators have set (mode pages, medium removal, RESERVE; not persistent reservations), and tells every nexus. Commands in flight are the
    /// lane's business.
    pub fn reset(&mut self, why: Reset) {
        match &mut self.server {
            Server::Present(device) => {
                device.mode = mode::Pages::defaults(&device.geometry);
                device.reservations.reset();
                device.background.abort_test(sense::BUS_DEVICE_RESET_FUNCTION_OCCURRED);
                device.copies.clear();
                let told_by_us = device.kernel.is_none();
                device.gate.reset(told_by_us.then(|| why.condition()));
            }
            Server::WellKnown(unit) => unit.reset(why),
            Server::Absent(_) => {}
        }
    }

    /// The next requests of what the unit does without a command; the results go to [`Unit::finished`].
    pub fn go_on(&mut self) -> Option<Background> {
        let Server::Present(device) = &mut self.server else { return None };
        let (size, block) = (device.size(), device.block_size());
        if device.space.is_out() {
            return None;
        }
        let asks = device.space.ask();
        let next =
            asks.or_else(|| device.background.next(size, block, device.geometry.provisioning.is_some()))?;
        device.revoke_written(&next.io);
        Some(next)
    }

    /// The requests of [`Unit::go_on`] have ended.
    pub fn finished(&mut self, results: &[Finished]) {
        if let Server::Present(device) = &mut self.server {
            let size = device.size();
            if !space::answered(device, results) {
                device.background.finished(results, size);
            }
        }
    }

    /// Whether somebody has to look at the store's pool from time to time.
    pub fn watches_pool(&self) -> bool {
        matches!(&self.server, Server::Present(device) if device.settings.pool_threshold.is_some())
    }

    /// It is time to look at the store's pool: [`Unit::go_on`] asks.
    pub fn look_at_pool(&mut self) {
        if let Server::Present(device) = &mut self.server {
            device.space.due();
        }
    }

    /// Whether the unit is at something of its own, which [`Io::Background`] waits for.
    pub fn is_busy(&self) -> bool {
        matches!(&self.server, Server::Present(device) if device.background.runs() || device.space.is_due())
    }

    /// Whether the unit has begun something that is not noted at the store yet. It may not be interrupted before: it would be
    /// forgotten, though it was promised.
    pub fn owes_note(&self) -> bool {
        matches!(&self.server, Server::Present(device) if device.background.owes_note())
    }

    /// Whether what a command waits for as [`Io::Background`] has come.
    pub fn has_reached(&self, milestone: Milestone) -> bool {
        !matches!(&self.server, Server::Present(device) if !device.background.reached(milestone))
    }

    /// The lane stops: nothing of the unit's own is taken up any more.
    pub fn interrupt(&mut self) {
        if let Server::Present(device) = &mut self.server {
            let size = device.size();
            device.background.interrupt(size);
            device.space.forget();
        }
    }

    /// A command that waited for the unit was aborted.
    pub fn abandoned(&mut self) {
        if let Server::Present(device) = &mut self.server {
            device.background.abandoned();
        }
    }

    /// What the store has noted of an operation of an earlier life: it goes on.
    pub fn recall(&mut self, note: Option<&[u8]>) {
        if let Server::Present(device) = &mut self.server {
            device.background = background::State::recalled(note);
        }
    }
}
