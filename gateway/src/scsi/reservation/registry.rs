//! Registrations and the reservation of one unit, and what each PERSISTENT RESERVE OUT makes of them. Pure: an order
//! yields the next registry and whom to tell; whoever asked decides when it becomes true.

use super::order::{Action, Order};
use crate::nexus::Ports;
use crate::scsi::sense::{self, Sense};

/// The most registrations of one unit. A cluster of 64 hosts with eight paths each has 512.
pub(crate) const MOST_REGISTRANTS: usize = 1024;

/// An initiator port: what iSCSI names so (RFC 7143, iSCSI Names; SPC-4, iSCSI initiator port TransportID).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct InitiatorPort {
    /// iSCSI name, in normal form.
    pub(crate) name: String,
    /// The initiator's half of the session id.
    pub(crate) isid: [u8; 6],
}

/// Both ends of an I_T nexus, by names that outlive a session.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Port {
    /// The initiator's.
    pub(crate) initiator: InitiatorPort,
    /// The target's: its relative target port identifier.
    pub(crate) target: u16,
}

impl Port {
    /// As the nexus table names it.
    pub(crate) fn of(ports: &Ports) -> Self {
        Self {
            initiator: InitiatorPort { name: ports.initiator.clone(), isid: ports.isid },
            target: ports.portal_group,
        }
    }
}

/// One registration: of one I_T nexus. One that was made with ALL_TG_PT is many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Registrant {
    /// Whose.
    pub(crate) port: Port,
    /// Reservation key; never zero.
    pub(crate) key: u64,
    /// Holds the reservation. With an all registrants type nobody is marked: they all hold it.
    pub(crate) holds: bool,
}

/// Reservation types (SPC-4, Persistent reservation type codes).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    WriteExclusive = 1,
    ExclusiveAccess = 3,
    WriteExclusiveRegistrantsOnly = 5,
    ExclusiveAccessRegistrantsOnly = 6,
    WriteExclusiveAllRegistrants = 7,
    ExclusiveAccessAllRegistrants = 8,
}

impl Kind {
    pub(crate) const ALL: [Self; 6] = [
        Self::WriteExclusive,
        Self::ExclusiveAccess,
        Self::WriteExclusiveRegistrantsOnly,
        Self::ExclusiveAccessRegistrantsOnly,
        Self::WriteExclusiveAllRegistrants,
        Self::ExclusiveAccessAllRegistrants,
    ];

    /// The type of a TYPE field.
    pub(crate) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }

    /// The TYPE field.
    pub(crate) const fn code(self) -> u8 {
        self as u8
    }

    /// Every registrant holds the reservation.
    pub(crate) fn held_by_all(self) -> bool {
        matches!(self, Self::WriteExclusiveAllRegistrants | Self::ExclusiveAccessAllRegistrants)
    }

    /// Registrants other than the holder have access.
    pub(crate) fn open_to_registrants(self) -> bool {
        !matches!(self, Self::WriteExclusive | Self::ExclusiveAccess)
    }

    /// Keeps reads out, too.
    pub(crate) fn excludes_reads(self) -> bool {
        matches!(
            self,
            Self::ExclusiveAccess
                | Self::ExclusiveAccessRegistrantsOnly
                | Self::ExclusiveAccessAllRegistrants
        )
    }
}

/// What a nexus is to the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Stranger,
    Registered,
    Holder,
}

/// The registrations and the reservation of one unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Registry {
    /// PRGENERATION.
    pub(super) generation: u32,
    /// What the last registration said of a loss of power.
    pub(super) aptpl: bool,
    /// In the order in which they came.
    pub(super) registrants: Vec<Registrant>,
    /// The reservation. With a type that one nexus holds, exactly one registrant is marked as holding it.
    pub(super) reservation: Option<Kind>,
}

/// What an order makes of the registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::scsi) struct Change {
    /// The next one.
    pub(super) registry: Registry,
    /// Registrations whose nexuses are told something; never the sender's own.
    pub(super) told: Vec<(Registrant, Sense)>,
    /// Registrations whose nexuses' commands are ended (PREEMPT AND ABORT).
    pub(super) aborted: Vec<Registrant>,
}

/// Why an order is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// RESERVATION CONFLICT.
    Conflict,
    /// CHECK CONDITION.
    Check(Sense),
}

impl From<Sense> for Refused {
    fn from(sense: Sense) -> Self {
        Self::Check(sense)
    }
}

impl Registry {
    /// The registry after a loss of power (SPC-4, Preserving persistent reservations and registrations; PRGENERATION).
    pub(super) fn after_power_on(self) -> Self {
        if self.aptpl { Self { generation: 0, ..self } } else { Self::default() }
    }

    pub(super) fn find(&self, port: &Port) -> Option<&Registrant> {
        self.registrants.iter().find(|registrant| registrant.port == *port)
    }

    /// Whether this registration holds the reservation.
    pub(super) fn holds(&self, registrant: &Registrant) -> bool {
        registrant.holds || self.reservation.is_some_and(Kind::held_by_all)
    }

    pub(super) fn standing(&self, port: &Port) -> Standing {
        match self.find(port) {
            None => Standing::Stranger,
            Some(registrant) if self.holds(registrant) => Standing::Holder,
            Some(_) => Standing::Registered,
        }
    }

    /// Carries an order out; `None` where it is GOOD and changes nothing.
    pub(super) fn apply(&self, sender: &Port, order: &Order) -> Result<Option<Change>, Refused> {
        // All but registering is for those who are registered, and know their key.
        let own = || self.find(sender).filter(|own| own.key == order.key).ok_or(Refused::Conflict);
        match &order.action {
            Action::Register { ignore_existing, target_ports, others } => {
                self.register(sender, order, *ignore_existing, target_ports, others.as_deref())
            }
            Action::Reserve => self.reserve(own()?, order),
            Action::Release => self.release(own()?, order),
            Action::Clear => Ok(Some(self.clear(own()?))),
            Action::Preempt { abort } => self.preempt(own()?, order, *abort).map(Some),
            Action::Move { to, unregister } => self.hand_over(own()?, order, to, *unregister).map(Some),
        }
    }

    /// SPC-4, Registering, Unregistering. ALL_TG_PT is as if the same had come through each target port: nothing happens if
    /// one of them has the initiator port registered under another key than the sender knows. One that does not have it
    /// registered at all is no obstacle; it may be newer than the registration.
    fn register(
        &self,
        sender: &Port,
        order: &Order,
        ignore_existing: bool,
        target_ports: &[u16],
        others: Option<&[InitiatorPort]>,
    ) -> Result<Option<Change>, Refused> {
        let own = self.find(sender);
        let at = |initiator: &InitiatorPort, target: u16| Port { initiator: initiator.clone(), target };
        let ports: Vec<Port> = target_ports.iter().map(|target| at(&sender.initiator, *target)).collect();
        let another = |port: &Port| self.find(port).is_some_and(|there| there.key != order.key);
        if !ignore_existing && (order.key != own.map_or(0, |own| own.key) || ports.iter().any(another)) {
            return Err(Refused::Conflict);
        }
        // SPC-4, Register behaviors for a REGISTER service action: SPEC_I_PT is for a nexus that is not registered, even
        // if it names nobody.
        if own.is_some() && others.is_some() {
            return Err(sense::INVALID_FIELD_IN_CDB.into());
        }
        let mut change = self.change();
        let registry = &mut change.registry;
        if order.service_key == 0 {
            registry.registrants.retain(|registrant| !ports.contains(&registrant.port));
            if registry.registrants.len() == self.registrants.len() {
                return Ok(None);
            }
            change.told = registry.let_go();
        } else {
            for port in ports {
                registry.set_key(port, order.service_key)?;
            }
            let others = others.unwrap_or_default();
            for other in others.iter().flat_map(|other| target_ports.iter().map(|target| at(other, *target)))
            {
                if self.find(&other).is_none() {
                    registry.set_key(other, order.service_key)?;
                }
            }
        }
        change.registry.aptpl = order.aptpl;
        change.registry.counted();
        Ok(Some(change))
    }

    fn reserve(&self, own: &Registrant, order: &Order) -> Result<Option<Change>, Refused> {
        let kind = order.kind()?;
        match self.reservation {
            None => {
                let mut change = self.change();
                change.registry.reserve_for(&own.port, kind);
                Ok(Some(change))
            }
            Some(held) if self.holds(own) && held == kind => Ok(None),
            Some(_) => Err(Refused::Conflict),
        }
    }

    fn release(&self, own: &Registrant, order: &Order) -> Result<Option<Change>, Refused> {
        let Some(held) = self.reservation.filter(|_| self.holds(own)) else { return Ok(None) };
        if order.kind().ok() != Some(held) {
            return Err(sense::INVALID_RELEASE_OF_PERSISTENT_RESERVATION.into());
        }
        let mut change = self.change();
        change.registry.unreserve();
        if held.open_to_registrants() {
            change.told = self.others(own, sense::RESERVATIONS_RELEASED);
        }
        Ok(Some(change))
    }

    fn clear(&self, own: &Registrant) -> Change {
        let mut change = self.change();
        change.registry.registrants.clear();
        change.registry.reservation = None;
        change.registry.counted();
        change.told = self.others(own, sense::RESERVATIONS_PREEMPTED);
        change
    }

    /// SPC-4, Preempting persistent reservations with PREEMPT, and Removing registrations.
    fn preempt(&self, own: &Registrant, order: &Order, abort: bool) -> Result<Change, Refused> {
        let all = self.reservation.is_some_and(Kind::held_by_all);
        let key = order.service_key;
        if key == 0 && !all {
            return Err(sense::INVALID_FIELD_IN_PARAMETER_LIST.at_list_byte(8).into());
        }
        let takes = match self.registrants.iter().find(|registrant| registrant.holds) {
            Some(holder) => holder.key == key,
            None => all && key == 0,
        };
        let named = |registrant: &Registrant| key == 0 || registrant.key == key;
        // Whoever takes the reservation keeps its registration, whatever key it has.
        let goes = |registrant: &Registrant| named(registrant) && !(takes && registrant.port == own.port);
        if !takes && !self.registrants.iter().any(named) {
            return Err(Refused::Conflict);
        }
        let mut change = self.change();
        let registry = &mut change.registry;
        let (gone, left): (Vec<_>, Vec<_>) = registry.registrants.drain(..).partition(goes);
        registry.registrants = left;
        for registrant in gone.iter().filter(|registrant| registrant.port != own.port) {
            change.told.push((registrant.clone(), sense::REGISTRATIONS_PREEMPTED));
        }
        if takes {
            let kind = order.kind()?;
            if self.reservation != Some(kind) {
                let left = registry.registrants.iter().filter(|registrant| registrant.port != own.port);
                change.told.extend(left.map(|left| (left.clone(), sense::RESERVATIONS_RELEASED)));
            }
            registry.reserve_for(&own.port, kind);
        } else if registry.registrants.is_empty() {
            registry.reservation = None;
        }
        registry.counted();
        if abort {
            change.aborted = gone;
        }
        Ok(change)
    }

    /// SPC-4, Registering and moving the reservation.
    fn hand_over(
        &self,
        own: &Registrant,
        order: &Order,
        to: &Port,
        unregister: bool,
    ) -> Result<Change, Refused> {
        let Some(kind) = self.reservation else { return Err(sense::INVALID_FIELD_IN_CDB.into()) };
        if kind.held_by_all() || !own.holds {
            return Err(Refused::Conflict);
        }
        if order.service_key == 0 {
            return Err(sense::INVALID_FIELD_IN_PARAMETER_LIST.at_list_byte(8).into());
        }
        if own.port == *to {
            return Err(sense::INVALID_FIELD_IN_PARAMETER_LIST.at_list_byte(24).into());
        }
        let mut change = self.change();
        let registry = &mut change.registry;
        registry.unreserve();
        if unregister {
            registry.registrants.retain(|registrant| registrant.port != own.port);
        }
        registry.set_key(to.clone(), order.service_key)?;
        registry.reserve_for(to, kind);
        registry.aptpl = order.aptpl;
        registry.counted();
        Ok(change)
    }

    fn change(&self) -> Change {
        Change { registry: self.clone(), told: Vec::new(), aborted: Vec::new() }
    }

    fn counted(&mut self) {
        self.generation = self.generation.wrapping_add(1);
    }

    /// Registers a nexus, or gives it another key.
    fn set_key(&mut self, port: Port, key: u64) -> Result<(), Refused> {
        if let Some(there) = self.registrants.iter_mut().find(|registrant| registrant.port == port) {
            there.key = key;
            return Ok(());
        }
        if self.registrants.len() >= MOST_REGISTRANTS {
            return Err(sense::INSUFFICIENT_REGISTRATION_RESOURCES.into());
        }
        self.registrants.push(Registrant { port, key, holds: false });
        Ok(())
    }

    fn unreserve(&mut self) {
        self.reservation = None;
        for registrant in &mut self.registrants {
            registrant.holds = false;
        }
    }

    fn reserve_for(&mut self, port: &Port, kind: Kind) {
        self.reservation = Some(kind);
        for registrant in &mut self.registrants {
            registrant.holds = !kind.held_by_all() && registrant.port == *port;
        }
    }

    /// Everybody but `own`, to be told of `condition`.
    fn others(&self, own: &Registrant, condition: Sense) -> Vec<(Registrant, Sense)> {
        let others = self.registrants.iter().filter(|registrant| registrant.port != own.port);
        others.map(|other| (other.clone(), condition)).collect()
    }

    /// Registrations have gone: the reservation goes with the one that held it, or with the last of those that all hold it
    /// (SPC-4, Unregistering). Who is left is told with registrants only types.
    fn let_go(&mut self) -> Vec<(Registrant, Sense)> {
        let Some(kind) = self.reservation else { return Vec::new() };
        let mut left = self.registrants.iter();
        if left.any(|registrant| kind.held_by_all() || registrant.holds) {
            return Vec::new();
        }
        self.reservation = None;
        let told = if kind.open_to_registrants() { self.registrants.clone() } else { Vec::new() };
        told.into_iter().map(|left| (left, sense::RESERVATIONS_RELEASED)).collect()
    }
}
