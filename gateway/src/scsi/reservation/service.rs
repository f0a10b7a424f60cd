//! PERSISTENT RESERVE OUT from its order to its answer. Commands that change reservations take turns: each holds a range
//! alone that lies behind every byte a disk can have.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use ring::Nexus;
use smallvec::SmallVec;

use super::legacy;
use super::order::{self, Neighbours, Order};
use super::registry::{Change, InitiatorPort, Port, Refused, Registrant};
use super::saved::{self, Unreadable};
use crate::scsi::cdb::Request;
use crate::scsi::device::{Answer, Device, Then, busy, conflict, good};
use crate::scsi::opcode::Flow;
use crate::scsi::sense;
use crate::scsi::step::{EndCommands, Ending, Io, SaveReservations, Step, Stored};

/// What is held by the command that may change reservations.
const TURN: Range<u64> = u64::MAX - 1..u64::MAX;

/// How often an order is tried anew because another gateway has changed the registry meanwhile.
const ATTEMPTS: u8 = 8;

/// Where a command that changes reservations goes on.
#[derive(Debug)]
pub(in crate::scsi) enum Pending {
    /// RESERVE, at its turn.
    Reserve { nexus: Nexus },
    /// RELEASE, at its turn.
    Release { nexus: Nexus },
    /// An order, at its turn.
    Order(Asked),
    /// The store has the change, or not.
    Saved { asked: Asked, change: Change, outcome: Arc<OnceLock<Stored>> },
    /// What must not happen any more has ended.
    Settled { transfer: usize },
}

/// An order and who gave it.
#[derive(Debug)]
pub(in crate::scsi) struct Asked {
    order: Order,
    nexus: Nexus,
    port: Port,
    attempts: u8,
    /// Bytes of its parameter list.
    transfer: usize,
}

/// PERSISTENT RESERVE OUT.
pub(in crate::scsi) fn persistent_reserve_out(device: &mut Device, request: &Request<'_>) -> Answer {
    let Some(port) = device.gate.port(request.nexus) else {
        return Err(sense::INVALID_COMMAND_OPERATION_CODE);
    };
    let order = order::parse(request, &Known { device, own: &port })?;
    let transfer = request.cdb.u32(5) as usize;
    alone(device, request.nexus, |nexus| Pending::Order(Asked { order, nexus, port, attempts: 0, transfer }))
}

/// Lets a command wait for its turn. A sender without a name can reserve nothing: nobody could tell it from another one.
pub(super) fn alone(device: &Device, nexus: Nexus, pending: impl FnOnce(Nexus) -> Pending) -> Answer {
    if device.gate.ports(nexus).is_none() {
        return Err(sense::INVALID_COMMAND_OPERATION_CODE);
    }
    let then = Then::Reservation(Box::new(pending(nexus)));
    Ok(Step::Io { io: SmallVec::new(), exclusive: Some(TURN), then })
}

impl Pending {
    /// Whether the command has to go on though it was aborted: what the store has taken must count here, too.
    pub(in crate::scsi) fn binding(&self) -> bool {
        matches!(self, Self::Saved { .. })
    }

    pub(in crate::scsi) fn resume(self, device: &mut Device) -> Answer {
        match self {
            Self::Reserve { nexus } => legacy::reserve_now(device, nexus),
            Self::Release { nexus } => legacy::release_now(device, nexus),
            Self::Order(asked) => carry_out(device, asked),
            Self::Saved { asked, change, outcome } => match outcome.get() {
                Some(Stored::Saved { number }) => commit(device, &asked, change, *number),
                Some(Stored::Changed { number, state }) => {
                    let adopted = adopt(device, *number, state);
                    if adopted.is_err() {
                        return Err(sense::INTERNAL_TARGET_FAILURE);
                    }
                    carry_out(device, Asked { attempts: asked.attempts + 1, ..asked })
                }
                Some(Stored::Failed) | None => Err(sense::INTERNAL_TARGET_FAILURE),
            },
            Self::Settled { transfer } => good(transfer),
        }
    }
}

fn carry_out(device: &mut Device, asked: Asked) -> Answer {
    device.reservations.forget_ended(&device.gate);
    // SPC-2: a unit that is held by RESERVE knows no persistent reservations, not even of the holder.
    if device.reservations.legacy.is_some() {
        return conflict(Flow::Out);
    }
    if asked.attempts >= ATTEMPTS {
        return busy(Flow::Out);
    }
    let change = match device.reservations.registry.apply(&asked.port, &asked.order) {
        Ok(None) => return good(asked.transfer),
        Ok(Some(change)) => change,
        Err(Refused::Conflict) => return conflict(Flow::Out),
        Err(Refused::Check(sense)) => return Err(sense),
    };
    let outcome = Arc::new(OnceLock::new());
    let save = SaveReservations {
        expected: device.reservations.stored,
        state: saved::encode(&change.registry),
        outcome: Arc::clone(&outcome),
    };
    let then = Then::Reservation(Box::new(Pending::Saved { asked, change, outcome }));
    Ok(Step::Io { io: SmallVec::from_buf([Io::SaveReservations(Box::new(save))]), exclusive: None, then })
}

/// The change is stored: from here on it counts.
fn commit(device: &mut Device, asked: &Asked, change: Change, number: u64) -> Answer {
    let Change { registry, told, aborted } = change;
    device.reservations.replace(registry, number);
    let live = device.gate.live_ports();
    for (registrant, condition) in told {
        for nexus in of(&registrant, &live).filter(|nexus| *nexus != asked.nexus) {
            device.gate.establish_for(nexus, condition);
        }
    }
    let aborted: Vec<Nexus> = aborted.iter().flat_map(|registrant| of(registrant, &live)).collect();
    awaits(device, &aborted, asked.transfer)
}

fn of<'a>(registrant: &'a Registrant, live: &'a [(Nexus, Port)]) -> impl Iterator<Item = Nexus> + 'a {
    live.iter().filter(|(_, port)| registrant.port == *port).map(|(nexus, _)| *nexus)
}

/// Ends the commands of `aborted`, waits for every write of a nexus that may not write any more, then GOOD.
pub(super) fn awaits(device: &mut Device, aborted: &[Nexus], transfer: usize) -> Answer {
    let mut io = SmallVec::new();
    if !aborted.is_empty() {
        let commands = EndCommands { nexuses: aborted.to_vec(), how: Ending::Abort };
        io.push(Io::EndCommands(Box::new(commands)));
    }
    let known = device.gate.known();
    let (reservations, gate) = (&mut device.reservations, &device.gate);
    let barred: Vec<Nexus> =
        known.into_iter().filter(|nexus| reservations.keeps_writes_out(*nexus, gate)).collect();
    if !barred.is_empty() {
        io.push(Io::EndCommands(Box::new(EndCommands { nexuses: barred, how: Ending::AwaitWrites })));
    }
    if io.is_empty() {
        return good(transfer);
    }
    let then = Then::Reservation(Box::new(Pending::Settled { transfer }));
    Ok(Step::Io { io, exclusive: None, then })
}

/// Another gateway has changed the registry. What that means for nexuses here is told as if it had been done here: a
/// registration that is gone was taken away, since its own nexus is not there but here.
pub(in crate::scsi) fn adopt(device: &mut Device, number: u64, state: &[u8]) -> Result<(), Unreadable> {
    if number <= device.reservations.stored {
        return Ok(());
    }
    let next = saved::decode(state, &target_ports(device))?;
    let before = std::mem::take(&mut device.reservations.registry);
    let cleared = next.registrants.is_empty();
    let released =
        before.reservation.is_some_and(|kind| kind.open_to_registrants() && next.reservation != Some(kind));
    for (nexus, port) in device.gate.live_ports() {
        if before.find(&port).is_none() {
            continue;
        }
        match next.find(&port) {
            None if cleared => device.gate.establish_for(nexus, sense::RESERVATIONS_PREEMPTED),
            None => device.gate.establish_for(nexus, sense::REGISTRATIONS_PREEMPTED),
            Some(_) if released => device.gate.establish_for(nexus, sense::RESERVATIONS_RELEASED),
            Some(_) => {}
        }
    }
    device.reservations.replace(next, number);
    Ok(())
}

/// Every target port through which the unit is reached: those of its target port groups.
pub(super) fn target_ports(device: &Device) -> BTreeSet<u16> {
    device.ports.groups.groups.iter().flat_map(|group| group.ports.iter().copied()).collect()
}

/// Initiator and target ports that the unit knows of.
struct Known<'a> {
    device: &'a Device,
    own: &'a Port,
}

impl Neighbours for Known<'_> {
    fn port_of(&self, name: &str) -> Option<InitiatorPort> {
        let live = self.device.gate.live_ports();
        let mut ports = live.into_iter().map(|(_, port)| port.initiator).filter(|port| port.name == name);
        let first = ports.next()?;
        ports.all(|other| other == first).then_some(first)
    }

    fn own_target_port(&self) -> u16 {
        self.own.target
    }

    fn target_ports(&self) -> Vec<u16> {
        let mut ports = target_ports(self.device);
        ports.insert(self.own.target);
        ports.into_iter().collect()
    }
}
