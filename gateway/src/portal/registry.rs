//! The sessions of a server: who is logged in, and which login takes whose place (RFC 7143 section 6.3.5).

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use super::inbox::Inbox;
use super::login::Status;
use super::target::{Auth, Limits};

/// A session, for status displays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// Initiator name.
    pub initiator: String,
    /// The initiator's part of the session id.
    pub isid: [u8; 6],
    /// The target's part.
    pub tsih: u16,
    /// Connection id.
    pub cid: u16,
    /// Target name; `None` for discovery.
    pub target: Option<String>,
    /// The initiator's address.
    pub peer: SocketAddr,
    /// The address it reached.
    pub local: SocketAddr,
    /// When it logged in.
    pub since: SystemTime,
    /// Whether it proved who it is.
    pub authenticated: bool,
    /// CRC32C on headers, on data.
    pub digests: (bool, bool),
}

/// A session and how to reach it.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) info: SessionInfo,
    pub(super) auth: Auth,
    pub(super) inbox: Arc<Inbox>,
}

impl Entry {
    fn same_port(&self, other: &SessionInfo) -> bool {
        self.info.initiator == other.initiator
            && self.info.isid == other.isid
            && self.info.target == other.target
    }
}

/// What became of a claim.
pub(super) enum Claim {
    /// Entered, under this TSIH.
    Entered(u16),
    /// This session has to end first.
    Occupied(Entry),
}

/// All sessions by TSIH, and counts of connections in any state.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    sessions: Mutex<Sessions>,
    pub(super) connections: Arc<AtomicUsize>,
    pub(super) unauthenticated: Arc<AtomicUsize>,
    pub(super) addresses: Arc<Addresses>,
}

#[derive(Debug, Default)]
struct Sessions {
    by_tsih: BTreeMap<u16, Entry>,
    /// Without a connection, but with commands in a ring that may still change the medium.
    ending: Vec<Entry>,
    last: u16,
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a session, unless one with the same initiator port and target exists. `entry.info.tsih` is what the
    /// initiator sent: not zero asks for that session's place.
    pub(super) fn claim(&self, mut entry: Entry, limits: &Limits, reinstates: bool) -> Result<Claim, Status> {
        let mut sessions = self.lock();
        let tsih = entry.info.tsih;
        if tsih != 0 {
            match sessions.by_tsih.get(&tsih) {
                Some(old) if !old.same_port(&entry.info) => return Err(Status::SessionDoesNotExist),
                // A second connection for the session: MaxConnections is 1.
                Some(old) if old.info.cid != entry.info.cid => return Err(Status::TooManyConnections),
                Some(old) => return Ok(Claim::Occupied(old.clone())),
                None if !reinstates => return Err(Status::SessionDoesNotExist),
                None => {}
            }
        }
        if entry.info.target.is_some() {
            let mut all = sessions.by_tsih.values().chain(&sessions.ending);
            if let Some(old) = all.find(|old| old.same_port(&entry.info)) {
                return Ok(Claim::Occupied(old.clone()));
            }
            let normal = || sessions.by_tsih.values().filter(|entry| entry.info.target.is_some());
            let own = normal().filter(|old| old.info.initiator == entry.info.initiator).count();
            if normal().count() >= limits.sessions || own >= limits.sessions_per_initiator {
                return Err(Status::OutOfResources);
            }
        } else if sessions.by_tsih.values().filter(|entry| entry.info.target.is_none()).count()
            >= limits.discoveries
        {
            return Err(Status::OutOfResources);
        }
        let tsih = if tsih != 0 { tsih } else { sessions.free_tsih().ok_or(Status::OutOfResources)? };
        entry.info.tsih = tsih;
        sessions.by_tsih.insert(tsih, entry);
        Ok(Claim::Entered(tsih))
    }

    /// A session has lost its connection: it gives its TSIH back, and keeps its initiator port until [`Self::remove`].
    pub(super) fn end(&self, tsih: u16, inbox: &Arc<Inbox>) {
        let mut sessions = self.lock();
        let ended = sessions.take(tsih, inbox);
        sessions.ending.extend(ended);
    }

    /// Takes a session out, if it is still the one with this inbox.
    pub(super) fn remove(&self, tsih: u16, inbox: &Arc<Inbox>) {
        let mut sessions = self.lock();
        let live = sessions.take(tsih, inbox);
        let ending = sessions.ending.iter().position(|entry| Arc::ptr_eq(&entry.inbox, inbox));
        let ending = ending.map(|index| sessions.ending.swap_remove(index));
        drop(sessions);
        drop((live, ending));
    }

    pub(super) fn all(&self) -> Vec<Entry> {
        self.lock().by_tsih.values().cloned().collect()
    }

    /// Normal sessions.
    pub(super) fn count(&self) -> usize {
        self.lock().by_tsih.values().filter(|entry| entry.info.target.is_some()).count()
    }
}

impl Sessions {
    fn take(&mut self, tsih: u16, inbox: &Arc<Inbox>) -> Option<Entry> {
        let same = self.by_tsih.get(&tsih).is_some_and(|entry| Arc::ptr_eq(&entry.inbox, inbox));
        if same { self.by_tsih.remove(&tsih) } else { None }
    }

    /// The next TSIH that is free; never 0.
    fn free_tsih(&mut self) -> Option<u16> {
        for _ in 0..=u16::MAX {
            self.last = self.last.wrapping_add(1).max(1);
            if !self.by_tsih.contains_key(&self.last) {
                return Some(self.last);
            }
        }
        None
    }
}

/// Connections before their login, by the address they come from.
#[derive(Debug, Default)]
pub(super) struct Addresses(Mutex<BTreeMap<IpAddr, usize>>);

/// A connection counted at its address for as long as this lives.
#[derive(Debug)]
pub(super) struct AtAddress(Arc<Addresses>, IpAddr);

impl AtAddress {
    /// One more from there, or `None` when the limit is reached.
    pub(super) fn below(addresses: &Arc<Addresses>, peer: IpAddr, limit: usize) -> Option<Self> {
        let place = place(peer);
        let mut counts = addresses.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(place).or_default();
        if *count >= limit {
            return None;
        }
        *count += 1;
        Some(Self(Arc::clone(addresses), place))
    }
}

impl Drop for AtAddress {
    fn drop(&mut self) {
        let mut counts = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.1) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.1);
            }
        }
    }
}

/// Whom an address stands for: one host has a whole /64 of IPv6 addresses.
fn place(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) >> 64 << 64).into()),
        address => address,
    }
}

/// Counts something for as long as it lives.
#[derive(Debug)]
pub(super) struct Counted(Arc<AtomicUsize>);

impl Counted {
    /// One more, or `None` when the limit is reached.
    pub(super) fn below(counter: &Arc<AtomicUsize>, limit: usize) -> Option<Self> {
        let counted = Self(Arc::clone(counter));
        (counter.fetch_add(1, Ordering::AcqRel) < limit).then_some(counted)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
