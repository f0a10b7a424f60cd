//! The server: listening sockets, limits, and what the supervisor can ask and tell.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::sync::watch;

use super::driver::{self, Accepted};
use super::inbox::{End, Event};
use super::registry::{AtAddress, Counted, SessionInfo};
use super::stats::{Shared, Stats};
use super::target::{Directory, Limits};
use crate::nexus;
use crate::reactor::Reactors;

/// How long to wait before accepting again when the process is out of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How often the end of sessions is looked for.
const LOOK: Duration = Duration::from_millis(10);

/// A running iSCSI target. Dropping it stops listening and closes every session.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    addresses: Vec<SocketAddr>,
    stop: watch::Sender<bool>,
}

impl Server {
    /// Listens on every address (port 0: any; see [`Self::addresses`]) and serves what `directory` says.
    pub fn bind(
        listen: &[SocketAddr],
        directory: Directory,
        nexuses: Arc<nexus::Table>,
        reactors: &Arc<Reactors>,
        limits: Limits,
    ) -> io::Result<Self> {
        let shared = Shared::new(directory, nexuses, limits);
        let (stop, stopped) = watch::channel(false);
        let mut listeners = Vec::new();
        for &address in listen {
            listeners.push(listener(address)?);
        }
        let mut addresses = Vec::new();
        for listener in listeners {
            addresses.push(listener.local_addr()?);
            let (shared, stopped) = (Arc::clone(&shared), stopped.clone());
            let reactors = Arc::downgrade(reactors);
            // Not kept alive by what it serves: a reactor's own task must not hold the reactors.
            let reactor = reactors.upgrade().map(|reactors| reactors.pick().clone());
            if let Some(reactor) = reactor {
                reactor.spawn(move || accept(shared, listener, stopped));
            }
        }
        Ok(Self { shared, addresses, stop })
    }

    /// The addresses listened on.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Every session, discovery included.
    pub fn sessions(&self) -> Vec<SessionInfo> {
        self.shared.registry.all().into_iter().map(|entry| entry.info).collect()
    }

    /// The counters.
    pub fn stats(&self) -> Stats {
        let registry = &self.shared.registry;
        Stats {
            connections: registry.connections.load(Ordering::Acquire),
            sessions: registry.count(),
            ..self.shared.stats.snapshot()
        }
    }

    /// Serves something else from now on. Ends the sessions whose target is gone, whose initiator may no longer log in
    /// or whose credentials have changed; the others see their new view at once.
    pub fn apply(&self, directory: Directory) {
        self.shared.set_directory(directory);
        let directory = self.shared.directory();
        for entry in self.shared.registry.all() {
            let kept = match &entry.info.target {
                None => directory.discovery == entry.auth,
                Some(name) => {
                    let target = directory.targets.get(name);
                    let grant = target.and_then(|target| target.access.grant(&entry.info.initiator));
                    match (target, grant) {
                        (Some(target), Some(grant)) if grant.auth == entry.auth => {
                            self.shared.nexuses.set_view(entry.inbox.nexus(), grant.view.clone());
                            entry.inbox.post(Event::Retarget(Arc::clone(target)));
                            true
                        }
                        _ => false,
                    }
                }
            };
            if !kept {
                entry.inbox.post(Event::Close { end: End::Revoked, hold: None });
            }
        }
    }

    /// Asks the initiators of a target's sessions (of all normal sessions, without one) to log out: after a redirection they
    /// come back where the target is served now. Who does not go is closed. Returns how many were asked.
    pub fn ask_logout(&self, target: Option<&str>) -> usize {
        let sessions = self.shared.registry.all();
        let meant = |own: &String| target.is_none_or(|target| target == own);
        let asked = sessions.iter().filter(|entry| entry.info.target.as_ref().is_some_and(meant));
        asked.map(|entry| entry.inbox.post(Event::Logout { enforce: true })).count()
    }

    /// Stops listening, asks every initiator to log out, and closes what is left after `grace`.
    pub async fn shutdown(self, grace: Duration) {
        self.stop();
        for entry in self.shared.registry.all() {
            entry.inbox.post(Event::Logout { enforce: false });
        }
        self.ended(grace).await;
        self.close_all();
        self.ended(Duration::from_secs(5)).await;
    }

    /// Waits until no connection is left, or `limit` is over.
    async fn ended(&self, limit: Duration) {
        let deadline = Instant::now() + limit;
        let left = || self.shared.registry.connections.load(Ordering::Acquire) > 0;
        while left() && Instant::now() < deadline {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Neither connections nor logins from now on.
    fn stop(&self) {
        self.shared.stop();
        self.stop.send_replace(true);
    }

    fn close_all(&self) {
        for entry in self.shared.registry.all() {
            entry.inbox.post(Event::Close { end: End::Shutdown, hold: None });
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
        self.close_all();
    }
}

fn listener(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        // A wildcard for each family can be listened on side by side.
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    socket.listen(1024)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

async fn accept(shared: Arc<Shared>, listener: TcpListener, mut stopped: watch::Receiver<bool>) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "cannot listen"),
    };
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopped.wait_for(|stop| *stop) => return,
        };
        match accepted {
            Ok((stream, peer)) => match admit(&shared, stream, peer) {
                Some(accepted) => {
                    let (shared, mut stopped) = (Arc::clone(&shared), stopped.clone());
                    tokio::task::spawn_local(async move {
                        // A login under way ends with the server; a discovery session is told like any other.
                        tokio::select! {
                            () = driver::serve(shared, accepted) => {}
                            () = given_up(&mut stopped) => {}
                        }
                    });
                }
                None => {
                    shared.stats.refused.fetch_add(1, Ordering::Relaxed);
                }
            },
            Err(error) => {
                if shared.may_log() {
                    tracing::warn!(%error, "cannot accept a connection");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// A while after the server has stopped.
async fn given_up(stopped: &mut watch::Receiver<bool>) {
    // An error means that the server is gone, which is the same.
    let _ = stopped.wait_for(|stop| *stop).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
}

/// Counts the connection, unless a limit is reached.
fn admit(shared: &Shared, stream: tokio::net::TcpStream, peer: SocketAddr) -> Option<Accepted> {
    shared.stats.accepted.fetch_add(1, Ordering::Relaxed);
    let registry = &shared.registry;
    let connection = Counted::below(&registry.connections, shared.limits.connections)?;
    let limits = &shared.limits;
    let at = AtAddress::below(&registry.addresses, peer.ip(), limits.unauthenticated_per_address)?;
    let unauthenticated = (Counted::below(&registry.unauthenticated, limits.unauthenticated)?, at);
    let stream: TcpStream = stream.into_std().ok()?;
    stream.set_nodelay(true).ok()?;
    let local = stream.local_addr().ok()?;
    Some(Accepted { stream, peer, local, connection, unauthenticated })
}
