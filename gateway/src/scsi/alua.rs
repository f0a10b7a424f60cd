//! Asymmetric logical unit access (SPC-4, target port group access states): through which target ports the unit can be
//! used, and how well.
//!
//! Who decides that is a [`Source`]: alone, a gateway always serves ([`Single`]); a cluster knows better. The unit keeps
//! the picture of the moment, so that a command costs one test of a flag while every port serves. A gateway is one target
//! port group, and a relative target port identifier is the portal group tag, which configuration fixes.

use std::fmt;
use std::sync::Arc;

use ring::Nexus;

use super::device::Device;
use super::gate::Audience;
use super::opcode::{Opcode, Paths};
use super::sense::{self, Sense};

/// ASYMMETRIC ACCESS STATE (SPC-4, REPORT TARGET PORT GROUPS parameter data).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "SPC-4's names")]
pub enum State {
    ActiveOptimized = 0x0,
    ActiveNonOptimized = 0x1,
    Standby = 0x2,
    Unavailable = 0x3,
    Offline = 0xE,
    Transitioning = 0xF,
}

impl State {
    /// What SET TARGET PORT GROUPS may ask for.
    pub(super) fn requestable(code: u8) -> Option<Self> {
        Some(match code {
            0x0 => Self::ActiveOptimized,
            0x1 => Self::ActiveNonOptimized,
            0x2 => Self::Standby,
            0x3 => Self::Unavailable,
            0xE => Self::Offline,
            _ => return None,
        })
    }

    /// Its bit in the byte of supported states of a target port group descriptor.
    fn bit(self) -> u8 {
        match self {
            Self::ActiveOptimized => 0x01,
            Self::ActiveNonOptimized => 0x02,
            Self::Standby => 0x04,
            Self::Unavailable => 0x08,
            Self::Offline => 0x40,
            Self::Transitioning => 0x80,
        }
    }

    /// What a command that the state does not serve is told.
    fn refusal(self) -> Option<Sense> {
        match self {
            Self::ActiveOptimized | Self::ActiveNonOptimized => None,
            Self::Standby => Some(sense::TARGET_PORT_IN_STANDBY_STATE),
            Self::Unavailable => Some(sense::TARGET_PORT_IN_UNAVAILABLE_STATE),
            Self::Offline => Some(sense::LOGICAL_UNIT_OFFLINE),
            Self::Transitioning => Some(sense::ASYMMETRIC_ACCESS_STATE_TRANSITION),
        }
    }

    fn serves(self, paths: Paths) -> bool {
        match self {
            Self::ActiveOptimized | Self::ActiveNonOptimized => true,
            Self::Standby => paths != Paths::Active,
            Self::Unavailable | Self::Offline => matches!(paths, Paths::Any | Paths::Settled),
            Self::Transitioning => paths == Paths::Any,
        }
    }
}

/// A set of states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct States(u8);

impl States {
    /// These.
    pub fn of(states: &[State]) -> Self {
        Self(states.iter().fold(0, |bits, state| bits | state.bit()))
    }

    /// Whether it is one of them.
    pub fn contains(self, state: State) -> bool {
        self.0 & state.bit() != 0
    }

    /// As a target port group descriptor has them.
    pub(super) fn bits(self) -> u8 {
        self.0
    }
}

/// STATUS CODE: what last changed a group's state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cause {
    /// Nothing has.
    #[default]
    None = 0x00,
    /// SET TARGET PORT GROUPS.
    Explicit = 0x01,
    /// The gateways themselves.
    Implicit = 0x02,
}

/// One target port group: one gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// TARGET PORT GROUP.
    pub id: u16,
    /// How the unit can be used through it now.
    pub state: State,
    /// PREF.
    pub preferred: bool,
    /// What last changed the state.
    pub cause: Cause,
    /// States it can be in.
    pub supported: States,
    /// Relative target port identifiers, not 0. An identifier never changes its meaning.
    pub ports: Vec<u16>,
}

/// Every group of the target, the same whichever port is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Groups {
    /// The gateways change states by themselves.
    pub implicit: bool,
    /// SET TARGET PORT GROUPS changes them.
    pub explicit: bool,
    /// IMPLICIT TRANSITION TIME: how long an initiator lets a transition take, seconds; 0: nothing is said.
    pub transition_seconds: u8,
    /// In ascending order of `id`.
    pub groups: Vec<Group>,
}

impl Groups {
    /// The group that a port is in.
    pub(super) fn of_port(&self, port: u16) -> Option<&Group> {
        self.groups.iter().find(|group| group.ports.contains(&port))
    }

    /// Whether any state keeps a command from being carried out.
    fn any_closed(&self) -> bool {
        self.groups.iter().any(|group| group.state.refusal().is_some())
    }

    /// What the standard INQUIRY data and the identification page show of it.
    fn shape(&self) -> impl PartialEq + '_ {
        let members: Vec<_> = self.groups.iter().map(|group| (group.id, &group.ports)).collect();
        (self.implicit, self.explicit, members)
    }
}

/// One wish of SET TARGET PORT GROUPS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// TARGET PORT GROUP.
    pub group: u16,
    /// What it shall be.
    pub state: State,
}

/// Why SET TARGET PORT GROUPS came to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A transition is under way already; later it may work.
    Transitioning,
    /// It could not be done.
    Failed,
}

/// Told once how it went, from any thread. Dropping it says that it failed.
pub type Done = Box<dyn FnOnce(Result<(), Refusal>) + Send>;

/// Who knows, and decides, the access states of one unit.
pub trait Source: Send + Sync {
    /// The states now. Quick: it waits for nobody.
    fn groups(&self) -> Arc<Groups>;

    /// Registers who is told, from any thread, that [`Source::groups`] has changed. One listener; the last one counts.
    fn on_change(&self, listener: Box<dyn Fn() + Send + Sync>);

    /// Carries out SET TARGET PORT GROUPS; the groups exist and support the states. Does not block; may end later. What
    /// [`Source::groups`] says is in force before `done` is called.
    fn set(&self, wishes: &[Wish], done: Done);
}

/// A gateway on its own: one group, one port, always Active/Optimized.
#[derive(Debug)]
pub struct Single(Arc<Groups>);

impl Single {
    /// `port` is the portal group tag, and the group's number too.
    pub fn new(port: u16) -> Self {
        let group = Group {
            id: port,
            state: State::ActiveOptimized,
            preferred: false,
            cause: Cause::None,
            supported: States::of(&[State::ActiveOptimized]),
            ports: vec![port],
        };
        Self(Arc::new(Groups { implicit: true, explicit: false, transition_seconds: 0, groups: vec![group] }))
    }
}

impl Source for Single {
    fn groups(&self) -> Arc<Groups> {
        Arc::clone(&self.0)
    }

    fn on_change(&self, _never: Box<dyn Fn() + Send + Sync>) {}

    fn set(&self, _: &[Wish], done: Done) {
        done(Err(Refusal::Failed));
    }
}

/// What a unit knows of its ports.
pub(super) struct Ports {
    source: Arc<dyn Source>,
    pub(super) groups: Arc<Groups>,
    /// Some state keeps some command from being carried out.
    closed: bool,
    /// SET TARGET PORT GROUPS that are under way: who is not told of which change.
    settings: Vec<(u64, Nexus, Box<[Wish]>)>,
    /// How many there have been.
    asked: u64,
}

impl Ports {
    pub(super) fn new(source: Arc<dyn Source>) -> Self {
        let groups = source.groups();
        Self { closed: groups.any_closed(), groups, source, settings: Vec::new(), asked: 0 }
    }

    /// TPGS of the standard INQUIRY data, in its place.
    pub(super) fn tpgs(&self) -> u8 {
        u8::from(self.groups.explicit) << 5 | u8::from(self.groups.implicit) << 4
    }

    /// MULTIP of the standard INQUIRY data, in its place: the target has more than one port.
    pub(super) fn multip(&self) -> u8 {
        let ports = self.groups.groups.iter().map(|group| group.ports.len()).sum::<usize>();
        u8::from(ports > 1) << 4
    }

    pub(super) fn source(&self) -> Arc<dyn Source> {
        Arc::clone(&self.source)
    }

    /// SET TARGET PORT GROUPS begins; the number is for [`Ports::set`].
    pub(super) fn setting(&mut self, nexus: Nexus, wishes: &[Wish]) -> u64 {
        self.asked += 1;
        self.settings.push((self.asked, nexus, wishes.into()));
        self.asked
    }

    /// SET TARGET PORT GROUPS is over.
    pub(super) fn set(&mut self, number: u64) {
        self.settings.retain(|(own, ..)| *own != number);
    }

    /// Who has asked for these changes and need not be told: whoever wished for one of them, unless another one was
    /// wished for by others alone. What becomes of further groups belongs to it.
    fn authors(&self, changes: &[Wish]) -> Vec<Nexus> {
        let wished = |change: &Wish, wishes: &[Wish]| {
            wishes.iter().any(|wish| {
                wish.group == change.group && [wish.state, State::Transitioning].contains(&change.state)
            })
        };
        let others = |change: &Wish, nexus: Nexus| {
            self.settings.iter().any(|(_, other, wishes)| *other != nexus && wished(change, wishes))
        };
        let is_author = |nexus: Nexus| {
            let own = |change: &Wish| {
                self.settings.iter().any(|(_, own, wishes)| *own == nexus && wished(change, wishes))
            };
            changes.iter().any(own) && changes.iter().all(|change| own(change) || !others(change, nexus))
        };
        self.settings.iter().map(|(_, nexus, _)| *nexus).filter(|nexus| is_author(*nexus)).collect()
    }
}

impl fmt::Debug for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ports").field("groups", &self.groups).finish_non_exhaustive()
    }
}

/// The state of the group that a nexus comes through. A sender without a name comes through no port of ours.
pub(super) fn state(device: &Device, nexus: Nexus) -> State {
    if !device.ports.closed {
        return State::ActiveOptimized;
    }
    let port = device.gate.ports(nexus).map(|ports| ports.portal_group);
    let group = port.and_then(|port| device.ports.groups.of_port(port));
    group.map_or(State::ActiveOptimized, |group| group.state)
}

/// Checks that the state of the sender's port allows the command.
pub(super) fn admit(device: &Device, row: &Opcode, cdb: &[u8], nexus: Nexus) -> Result<(), Sense> {
    let state = state(device, nexus);
    match state.refusal() {
        Some(sense) if !state.serves(row.paths.of(cdb)) => Err(sense),
        _ => Ok(()),
    }
}

/// Looks at the states again. A change is told to every nexus but those whose SET TARGET PORT GROUPS it is (SPC-4,
/// target port group asymmetric access state changes).
pub(super) fn refresh(device: &mut Device) {
    let groups = device.ports.source.groups();
    let old = std::mem::replace(&mut device.ports.groups, Arc::clone(&groups));
    device.ports.closed = groups.any_closed();
    let before = |group: &Group| old.groups.iter().find(|old| old.id == group.id).map(|old| old.state);
    let changed = groups.groups.iter().filter(|group| before(group) != Some(group.state));
    let changes: Vec<Wish> = changed.map(|group| Wish { group: group.id, state: group.state }).collect();
    if !changes.is_empty() || old.groups.len() != groups.groups.len() {
        // Another gateway may write from here on, or have written: what this one has seen is no longer all there is.
        device.own_rods.revoke_all();
        let authors = device.ports.authors(&changes);
        for nexus in device.gate.known().into_iter().filter(|nexus| !authors.contains(nexus)) {
            device.gate.establish_for(nexus, sense::ASYMMETRIC_ACCESS_STATE_CHANGED);
        }
    }
    if old.shape() != groups.shape() {
        device.gate.establish(sense::INQUIRY_DATA_HAS_CHANGED, Audience::Everyone);
    }
}
