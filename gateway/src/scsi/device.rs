//! The device server of a logical unit that exists: its state, and a command's way through it.

use std::sync::Arc;

use ring::Nexus;
use smallvec::SmallVec;

use super::cdb::{self, Extent, Request, Span};
use super::fault::{self, Access};
use super::gate::{self, Gate};
use super::identity::Identity;
use super::mode;
use super::opcode::{self, Flow, Opcode, Requires};
use super::sense::{self, Sense};
use super::step::{Data, DataIn, Direction, Finished, Io, Reply, Step, status};
use super::unit::Settings;
use super::{
    alua, background, capacity, compare, copy, limits, log, reservation, space, target_port_groups, transfer,
    verify,
};
use crate::disk::{AtomicWrite, Geometry};
use crate::{nexus, units};

/// What a handler makes of a command: the next step, or why it is refused.
pub(super) type Answer = Result<Step<Then>, Sense>;

/// Where a command goes on when its I/O has ended. Opaque to the lane.
#[derive(Debug)]
pub struct Continuation {
    flow: Flow,
    then: Then,
}

impl Continuation {
    /// Whether the command has to be resumed even when task management has ended it: what it has begun outside of the
    /// disk counts, whether it is answered or not.
    pub fn binding(&self) -> bool {
        matches!(&self.then, Then::Reservation(pending) if pending.binding())
    }
}

/// What to do with the results.
#[derive(Debug)]
pub(super) enum Then {
    /// If all is well this is the answer.
    Settle(Settle),
    /// [`transfer`]: a READ whose last block does not fit the buffer.
    Tail(transfer::Tail),
    /// [`verify`].
    Verify(Box<verify::Progress>),
    /// [`compare`]: COMPARE AND WRITE.
    Compare(compare::Compare),
    /// [`compare`]: ORWRITE.
    Or(Box<compare::Or>),
    /// [`capacity`]: GET LBA STATUS.
    LbaStatus(capacity::LbaStatus),
    /// [`target_port_groups`]: SET TARGET PORT GROUPS.
    SetTargetPortGroups(target_port_groups::Setting),
    /// [`reservation`]: a command that changes reservations.
    Reservation(Box<reservation::Pending>),
    /// [`background`]: the operation that the command has begun.
    Background {
        /// Bytes the CDB calls for.
        transfer: usize,
    },
    /// [`background`]: EXIT FAILURE MODE.
    ExitFailureMode,
    /// [`log`]: the Logical Block Provisioning page.
    Log(log::Asked),
    /// [`copy`]: blocks on their way from one place to another.
    Copy(Box<copy::Copying>),
    /// [`copy`]: a token to be made.
    Populate(copy::Populating),
}

/// The answer to a command if every result is good.
#[derive(Debug)]
pub(super) struct Settle {
    /// What the store does; decides the sense data of a failure.
    pub(super) access: Access,
    /// The disk fills the command's buffer.
    pub(super) in_place: bool,
    /// As in [`Reply::transfer`].
    pub(super) transfer: Option<usize>,
    /// The answer waits for a flush too: the request cannot ask for stable storage by itself.
    pub(super) flush: bool,
}

impl Settle {
    /// Data-in, in the command's buffer.
    pub(super) fn read(transfer: Option<usize>) -> Self {
        Self { access: Access::Read, in_place: true, transfer, flush: false }
    }

    /// The medium has changed, or what changed is stable.
    pub(super) fn write(transfer: Option<usize>) -> Self {
        Self { access: Access::Write, in_place: false, transfer, flush: false }
    }

    /// The store has stood a test.
    pub(super) fn test() -> Self {
        Self { access: Access::Test, in_place: false, transfer: Some(0), flush: false }
    }

    /// With a flush, if `flush`.
    pub(super) fn flushed(self, flush: bool) -> Self {
        Self { flush, ..self }
    }

    /// One request, then this answer.
    pub(super) fn after(self, io: Io) -> Answer {
        self.after_all(SmallVec::from_buf([io]))
    }

    /// All requests, then this answer.
    pub(super) fn after_all(self, io: SmallVec<[Io; 1]>) -> Answer {
        Ok(Step::Io { io, exclusive: None, then: Then::Settle(self) })
    }

    fn resume(self, results: &[Finished]) -> Answer {
        check(results, self.access)?;
        if self.flush {
            return self.flushed(false).after(Io::Flush);
        }
        let data_in = if self.in_place { DataIn::InPlace } else { DataIn::None };
        Ok(Step::Done(Reply { data_in, ..Reply::good(self.transfer) }))
    }
}

/// The first failure among the results, as sense data.
pub(super) fn check(results: &[Finished], access: Access) -> Result<(), Sense> {
    match results.iter().find_map(|finished| finished.result.as_ref().err()) {
        Some(error) => Err(fault::sense(error, access)),
        None => Ok(()),
    }
}

/// GOOD, after moving `transfer` bytes by the CDB.
pub(super) fn good(transfer: usize) -> Answer {
    Ok(Step::Done(Reply::good(Some(transfer))))
}

/// GOOD with parameter data, cut to the allocation length.
pub(super) fn parameter_data(bytes: Vec<u8>, allocation: usize) -> Answer {
    Ok(Step::Done(Reply::parameter_data(bytes, allocation)))
}

/// RESERVATION CONFLICT.
pub(super) fn conflict(flow: Flow) -> Answer {
    Ok(Step::Done(Reply::bare(status::RESERVATION_CONFLICT, flow)))
}

/// BUSY.
pub(super) fn busy(flow: Flow) -> Answer {
    Ok(Step::Done(Reply::bare(status::BUSY, flow)))
}

/// A logical unit's state.
pub(super) struct Device {
    pub(super) identity: Identity,
    pub(super) geometry: Geometry,
    pub(super) settings: Settings,
    pub(super) nexuses: Arc<nexus::Table>,
    /// Capacity, blocks.
    pub(super) blocks: u64,
    pub(super) mode: mode::Pages,
    pub(super) gate: Gate,
    /// Through which target ports it can be used.
    pub(super) ports: alua::Ports,
    pub(super) reservations: reservation::State,
    pub(super) background: background::State,
    pub(super) space: space::Watch,
    /// What WRITE BUFFER has put into the data buffer; bytes behind its end are zeros.
    pub(super) buffer: Vec<u8>,
    /// The medium of a removable unit is out.
    pub(super) ejected: bool,
    /// The units that a copy can reach, and the memory that copies share.
    pub(super) units: Arc<units::Table>,
    /// What copies have come to.
    pub(super) copies: copy::Records,
    /// Tokens for the unit's blocks, which a write revokes.
    pub(super) own_rods: copy::OwnRods,
    /// What the kernel's target in front of the unit does, where there is one.
    pub(super) kernel: Option<Kernel>,
}

/// See [`Unit::behind_kernel`](super::Unit::behind_kernel).
#[derive(Clone, Copy, Debug)]
pub(super) struct Kernel {
    /// It keeps reservations itself; else it refuses them.
    pub(super) reservations: bool,
}

impl Device {
    pub(super) fn new(
        identity: Identity,
        geometry: Geometry,
        size: u64,
        nexuses: Arc<nexus::Table>,
        settings: Settings,
    ) -> Self {
        Self {
            identity,
            blocks: size / u64::from(geometry.block_size.max(1)),
            mode: mode::Pages::defaults(&geometry),
            gate: Gate::new(Arc::clone(&nexuses), settings.lun),
            ports: alua::Ports::new(Arc::new(alua::Single::new(1))),
            reservations: reservation::State::default(),
            background: background::State::default(),
            space: space::Watch::default(),
            buffer: Vec::new(),
            geometry,
            settings,
            nexuses,
            ejected: false,
            units: units::Table::new(),
            copies: copy::Records::default(),
            own_rods: copy::OwnRods::default(),
            kernel: None,
        }
    }

    pub(super) fn execute(&mut self, cdb: &[u8], nexus: Nexus, data: &dyn Data) -> Step<Continuation> {
        let nexus = self.gate.identify(nexus);
        if self.gate.forgot() {
            self.reservations.forget_ended(&self.gate);
        }
        let row = opcode::find(cdb).filter(|row| self.offers(row));
        let flow = row.map_or(Flow::None, |row| row.data);
        let answer = self.start(row, cdb, nexus, data);
        self.conclude(flow, answer, data)
    }

    fn start(&mut self, row: Option<&'static Opcode>, cdb: &[u8], nexus: Nexus, data: &dyn Data) -> Answer {
        gate::attend(self, row, nexus)?;
        let bytes = cdb;
        let (row, cdb) =
            cdb::parse(row, cdb).map_err(|sense| self.unknown_action(row, cdb).unwrap_or(sense))?;
        if self.reservations.conflicts(row, cdb, nexus, &self.gate) {
            return conflict(row.data);
        }
        alua::admit(self, row, bytes, nexus)?;
        gate::admit(self, row, nexus)?;
        (row.run)(self, &Request { row, cdb, nexus, data })
    }

    /// SPC-4, SERVICE ACTION: one that does not exist is a wrong field of a command that does.
    fn unknown_action(&self, row: Option<&Opcode>, cdb: &[u8]) -> Option<Sense> {
        let rows = opcode::rows_of(*cdb.first()?);
        let known = rows.iter().any(|row| row.service_action.is_some() && self.offers(row));
        (row.is_none() && known).then_some(sense::INVALID_FIELD_IN_CDB.at_cdb_bit(1, 4))
    }

    pub(super) fn resume(
        &mut self,
        continuation: Continuation,
        results: &mut [Finished],
        data: &dyn Data,
    ) -> Step<Continuation> {
        let Continuation { flow, then } = continuation;
        // A reservation that has been saved is true, whatever the medium is busy with.
        let medium = !matches!(then, Then::Reservation(_));
        let answer = match then {
            Then::Settle(settle) => settle.resume(results),
            Then::Tail(tail) => tail.resume(results),
            Then::Verify(progress) => progress.resume(results, data),
            Then::Compare(compare) => compare.resume(results, data),
            Then::Or(or) => or.resume(results, data),
            Then::LbaStatus(status) => status.resume(self, results),
            Then::SetTargetPortGroups(setting) => setting.resume(self, results),
            Then::Reservation(pending) => pending.resume(self),
            Then::Background { transfer } => background::resume(self, transfer),
            Then::ExitFailureMode => background::exited(self, results),
            Then::Log(asked) => asked.resume(self, results),
            Then::Copy(copying) => copying.resume(self, results),
            Then::Populate(populating) => populating.resume(self, results),
        };
        // An operation that has begun meanwhile has the medium for itself.
        let answer = match (answer, self.background.holds_up(self.size())) {
            (Ok(Step::Io { .. }), Some(sense)) if medium => Err(sense),
            (answer, _) => answer,
        };
        self.conclude(flow, answer, data)
    }

    /// A command was aborted before it could go on.
    pub(super) fn command_aborted(&mut self, continuation: &Continuation) {
        if let Then::SetTargetPortGroups(setting) = &continuation.then {
            setting.aborted(self);
        }
    }

    fn conclude(&mut self, flow: Flow, answer: Answer, data: &dyn Data) -> Step<Continuation> {
        let reply = match answer {
            Ok(Step::Io { io, exclusive, then }) => {
                self.revoke_written(&io);
                return Step::Io { io, exclusive, then: Continuation { flow, then } };
            }
            Ok(Step::Done(reply)) => reply,
            Err(sense) => refusal(sense, self.mode.descriptor_sense(), flow),
        };
        // A buffer that the transport carries the other way has had no part in the command: nothing was moved, and
        // what it holds must not be taken for data-in.
        match (flow, data.direction()) {
            (Flow::Out, Direction::In) | (Flow::In, Direction::Out) => {
                Step::Done(Reply { data_in: DataIn::None, transfer: Some(0), ..reply })
            }
            _ => Step::Done(reply),
        }
    }

    /// Revokes the tokens for blocks that are about to be written. Every request to the disk passes here first.
    pub(super) fn revoke_written(&mut self, io: &[Io]) {
        if self.own_rods.is_empty() {
            return;
        }
        for range in io.iter().filter_map(Io::written) {
            self.own_rods.written(&range);
        }
    }

    /// Whether the command exists on this unit.
    pub(super) fn offers(&self, row: &Opcode) -> bool {
        if row.is_reservation() && self.kernel.is_some_and(|kernel| !kernel.reservations) {
            return false;
        }
        match row.requires {
            Requires::Nothing => true,
            Requires::Thin => self.geometry.provisioning.is_some(),
            Requires::Removable => self.settings.removable,
            Requires::ExplicitAccess => self.ports.groups.explicit,
            Requires::Atomic => self.atomic_write().is_some(),
        }
    }

    /// Logical block length, bytes.
    pub(super) fn block_size(&self) -> u64 {
        self.geometry.block_size.max(1).into()
    }

    /// Capacity, bytes.
    pub(super) fn size(&self) -> u64 {
        self.blocks * self.block_size()
    }

    /// THRESHOLD COUNT of the pool's threshold, where there is one.
    pub(super) fn threshold(&self) -> Option<u32> {
        self.geometry.provisioning.as_ref()?;
        self.space.threshold_count(self.settings.pool_threshold?, self.block_size())
    }

    /// What WRITE ATOMIC may ask for: the store's promise, in whole blocks, and no more than one command carries.
    pub(super) fn atomic_write(&self) -> Option<AtomicWrite> {
        let AtomicWrite { max, granularity, alignment } = self.geometry.atomic_write?;
        let block = self.block_size();
        let granularity = granularity.max(block);
        let max = max.min(limits::ATOMIC) / granularity * granularity;
        (max > 0).then(|| AtomicWrite { max, granularity, alignment: alignment.max(block) })
    }

    /// Whether this nexus may not write.
    pub(super) fn write_protected(&self, nexus: Nexus) -> bool {
        self.geometry.read_only
            || self.settings.write_protected
            || self.mode.software_write_protect()
            || self.gate.read_only(nexus)
    }

    /// Whether writes must reach stable storage before they are answered: the disk has a cache and the initiator has
    /// turned it off (WCE is zero).
    pub(super) fn write_through(&self) -> bool {
        self.geometry.volatile_cache && !self.mode.write_cache()
    }

    /// Where the blocks are; LBA OUT OF RANGE if not all of them exist. No blocks just behind the last one are in range.
    pub(super) fn locate(&self, span: Span) -> Result<Extent, Sense> {
        let end = span.lba.checked_add(span.blocks).filter(|end| *end <= self.blocks);
        if end.is_none() {
            return Err(sense::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE);
        }
        let block = self.block_size();
        Ok(Extent { offset: span.lba * block, len: span.blocks * block })
    }

    /// [`Device::locate`], within MAXIMUM TRANSFER LENGTH too.
    pub(super) fn locate_transfer(&self, span: Span) -> Result<Extent, Sense> {
        let extent = self.locate(span)?;
        if extent.len > limits::TRANSFER { Err(sense::INVALID_FIELD_IN_CDB) } else { Ok(extent) }
    }
}

/// CHECK CONDITION. Data-out has been carried whole by then, data-in not at all.
pub(super) fn refusal(sense: Sense, descriptor: bool, flow: Flow) -> Reply {
    Reply {
        status: status::CHECK_CONDITION,
        sense: sense.encode(descriptor),
        data_in: DataIn::None,
        transfer: if flow == Flow::Out { None } else { Some(0) },
    }
}
