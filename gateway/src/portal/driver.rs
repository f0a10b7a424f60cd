//! Runs connections on a reactor: the login, the hand-over to the reactor of the target, and the full feature phase.

use std::future::{Future, poll_fn};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::{Instant, SystemTime};

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::conn::{self, Connection, Session};
use super::inbox::{End, Event, Hold, Inbox};
use super::keys::Negotiated;
use super::login::{Admitted, Login, MAX_SEGMENT, Progress, Purpose, Reply, Status};
use super::luns::Luns;
use super::pdu::{LoginRequest, padding};
use super::receive::{Arrival, Memory, Place, Receiver};
use super::registry::{AtAddress, Claim, Counted, Entry, SessionInfo};
use super::socket::Socket;
use super::stats::Shared;
use super::stream::Stream;
use super::target::{Auth, Target};
use super::window::{Depth, Window};
use crate::nexus;

/// An accepted connection with its place among the limits.
#[derive(Debug)]
pub(super) struct Accepted {
    pub(super) stream: TcpStream,
    pub(super) peer: SocketAddr,
    pub(super) local: SocketAddr,
    pub(super) connection: Counted,
    pub(super) unauthenticated: (Counted, AtAddress),
}

/// A session that has been entered. When dropped it leaves the registry as soon as none of its commands can change the
/// medium any more: until then a login from the same initiator port waits, as one that takes a live session's place does.
#[derive(Debug)]
struct Registered {
    shared: Arc<Shared>,
    tsih: u16,
    inbox: Arc<Inbox>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        let (shared, tsih, inbox) = (Arc::clone(&self.shared), self.tsih, Arc::clone(&self.inbox));
        shared.registry.end(tsih, &inbox);
        // A session that never came to a connection would keep the hold, and with it itself.
        self.inbox.close();
        let hold = Hold::new(move || shared.registry.remove(tsih, &inbox));
        self.inbox.post(Event::Close { end: End::Socket, hold: Some(hold) });
    }
}

/// Everything the reactor of the target needs.
struct Established {
    registered: Registered,
    session: Session,
    target: Option<Arc<Target>>,
    negotiated: Negotiated,
    exp_cmd_sn: u32,
    stat_sn: u32,
}

/// Serves one connection until it ends or has been handed over.
pub(super) async fn serve(shared: Arc<Shared>, accepted: Accepted) {
    let Accepted { stream, peer, local, connection, unauthenticated } = accepted;
    let login = async {
        let socket = Socket::new(stream)?;
        log_in(&shared, &socket, peer, local).await.map(|established| (socket, established))
    };
    // Waiting for an older session's writes has its own bound, so it is added to the login's.
    let limit = shared.limits.login_timeout + shared.limits.reinstatement_timeout;
    let (socket, established) = match timeout(limit, login).await {
        Ok(Ok((socket, Some(established)))) => (socket, established),
        Ok(Ok((_, None))) => return,
        Ok(Err(_)) | Err(_) => {
            shared.stats.logins_unfinished.fetch_add(1, Ordering::Relaxed);
            return;
        }
    };
    drop(unauthenticated);
    shared.stats.logins.fetch_add(1, Ordering::Relaxed);
    match established.target.clone() {
        // From here on the connection lives beside its target's lanes.
        Some(target) => {
            let Ok(stream) = socket.into_std() else { return };
            target.reactor.spawn(move || async move {
                if let Ok(socket) = Socket::new(stream) {
                    run(established, &socket, peer).await;
                }
                drop(connection);
            });
        }
        None => {
            run(established, &socket, peer).await;
            drop(connection);
        }
    }
}

/// The login phase has no tasks.
struct NoMemory;

impl Memory for NoMemory {
    fn slices_mut<'a>(
        &'a mut self,
        _task: usize,
        _range: std::ops::Range<usize>,
        _into: &mut Vec<io::IoSliceMut<'a>>,
    ) {
    }
    fn crc(&self, _task: usize, _range: std::ops::Range<usize>, crc: u32) -> u32 {
        crc
    }
}

async fn log_in(
    shared: &Arc<Shared>,
    socket: &Socket,
    peer: SocketAddr,
    local: SocketAddr,
) -> io::Result<Option<Established>> {
    let directory = shared.directory();
    let mut login = Login::new(Arc::clone(&directory), entropy);
    let mut receiver = Receiver::new();
    let limit = shared.limits.login_timeout;
    let started = Instant::now();
    loop {
        let left = limit.saturating_sub(started.elapsed());
        let Ok(received) = timeout(left, next_request(socket, &mut receiver)).await else {
            return Err(io::ErrorKind::TimedOut.into());
        };
        let (request, segment) = match received {
            // RFC 7143 section 6.3: not a login request, in the middle of a login.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                if let Some(reply) = login.interrupted() {
                    shared.stats.login_failed(Status::InvalidDuringLogin);
                    send(socket, &reply).await?;
                    return Ok(None);
                }
                return Err(error);
            }
            received => received?,
        };
        let progress = match login.request(&request, &segment) {
            Progress::Admitted(mut reply, admitted) => {
                let (exp_cmd_sn, stat_sn) = (admitted.exp_cmd_sn, admitted.stat_sn);
                match establish(shared, &admitted, peer, local).await {
                    // The rules have changed meanwhile: the initiator comes again and meets the new ones.
                    Ok(_) if !shared.still(&directory) => login.fail(&request, Status::ServiceUnavailable),
                    Ok((registered, session)) => {
                        reply.header.tsih = registered.tsih;
                        send(socket, &reply).await?;
                        log_session(shared, &session, peer, &admitted);
                        let target = session.target.clone();
                        let negotiated = admitted.negotiated;
                        return Ok(Some(Established {
                            registered,
                            session,
                            target,
                            negotiated,
                            exp_cmd_sn,
                            stat_sn,
                        }));
                    }
                    Err(status) => login.fail(&request, status),
                }
            }
            other => other,
        };
        match progress {
            Progress::Continue(reply) | Progress::Admitted(reply, _) => send(socket, &reply).await?,
            Progress::Failed(reply, status) => {
                shared.stats.login_failed(status);
                if shared.may_log() {
                    tracing::warn!(%peer, ?status, initiator = login.initiator(), "login failed");
                }
                send(socket, &reply).await?;
                return Ok(None);
            }
        }
    }
}

fn log_session(shared: &Shared, session: &Session, peer: SocketAddr, admitted: &Admitted) {
    if shared.may_log() {
        let target = session.target.as_ref().map(|target| target.name.as_str());
        let (header_digest, data_digest) =
            (admitted.negotiated.header_digest, admitted.negotiated.data_digest);
        tracing::info!(%peer, initiator = %session.initiator, target, tsih = session.tsih, header_digest, data_digest, "logged in");
    }
}

fn entropy() -> Option<[u8; 33]> {
    let mut bytes = [0; 33];
    getrandom::fill(&mut bytes).ok()?;
    Some(bytes)
}

/// One login request; anything else before the end of the login drops the connection (RFC 7143 section 6.3).
async fn next_request(socket: &Socket, receiver: &mut Receiver) -> io::Result<(LoginRequest, Vec<u8>)> {
    let refused = || io::Error::from(io::ErrorKind::InvalidData);
    let turn = |stream: &mut dyn Stream| -> io::Result<Option<(LoginRequest, Vec<u8>)>> {
        loop {
            match receiver.next(stream, &mut NoMemory)? {
                None => return Ok(None),
                Some(Arrival::Header(header)) => {
                    let acceptable = header.opcode() == LoginRequest::OPCODE
                        && header.data_len() <= MAX_SEGMENT
                        && header.ahs_len() == 0;
                    if !acceptable {
                        return Err(refused());
                    }
                    if header.data_len() == 0 {
                        return Ok(Some((LoginRequest::decode(&header), Vec::new())));
                    }
                    receiver.begin(header, Place::Keep);
                }
                Some(Arrival::Body { header, kept, .. }) => {
                    return Ok(Some((LoginRequest::decode(&header), kept)));
                }
                Some(Arrival::HeaderDigest) => return Err(refused()),
                Some(Arrival::Closed) => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
    };
    until_some(socket, turn).await
}

async fn send(socket: &Socket, reply: &Reply) -> io::Result<()> {
    let mut header = reply.header.encode();
    header.set_data_len(reply.text.len());
    let mut bytes = header.0.to_vec();
    bytes.extend_from_slice(&reply.text);
    bytes.resize(bytes.len() + padding(reply.text.len()), 0);
    let mut sent = 0;
    until_some(socket, move |stream: &mut dyn Stream| {
        while sent < bytes.len() {
            match stream.write(&[io::IoSlice::new(&bytes[sent..])]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => sent += written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        Ok(Some(()))
    })
    .await
}

/// Gives `turn` the socket whenever it is ready, until it has a result.
async fn until_some<T>(
    socket: &Socket,
    mut turn: impl FnMut(&mut dyn Stream) -> io::Result<Option<T>>,
) -> io::Result<T> {
    poll_fn(|context| {
        loop {
            match socket.turn(context, |stream| turn(stream)) {
                Ok((Ok(Some(result)), _)) => return Poll::Ready(Ok(result)),
                Ok((Ok(None), true)) => {}
                Ok((Ok(None), false)) => return Poll::Pending,
                Ok((Err(error), _)) | Err(error) => return Poll::Ready(Err(error)),
            }
        }
    })
    .await
}

/// Enters the session, after the one whose place it takes has ended and can no longer change the medium.
async fn establish(
    shared: &Arc<Shared>,
    admitted: &Admitted,
    peer: SocketAddr,
    local: SocketAddr,
) -> Result<(Registered, Session), Status> {
    let target = match &admitted.purpose {
        Purpose::Discovery => None,
        Purpose::Normal(target) => Some(Arc::clone(target)),
    };
    let deadline = Instant::now() + shared.limits.reinstatement_timeout;
    let mut reinstates = false;
    loop {
        let inbox = Inbox::new(target.as_ref().map(|target| enter_nexus(shared, admitted, target)));
        let info = SessionInfo {
            initiator: admitted.initiator.clone(),
            isid: admitted.isid,
            tsih: admitted.tsih,
            cid: admitted.cid,
            target: target.as_ref().map(|target| target.name.clone()),
            peer,
            local,
            since: SystemTime::now(),
            authenticated: admitted.auth != Auth::None,
            digests: (admitted.negotiated.header_digest, admitted.negotiated.data_digest),
        };
        let entry = Entry { info, auth: admitted.auth.clone(), inbox: Arc::clone(&inbox) };
        match shared.registry.claim(entry, &shared.limits, reinstates)? {
            Claim::Entered(tsih) => {
                let registered = Registered { shared: Arc::clone(shared), tsih, inbox };
                let session =
                    Session { initiator: admitted.initiator.clone(), tsih, cid: admitted.cid, target, local };
                return Ok((registered, session));
            }
            Claim::Occupied(old) => {
                reinstates = true;
                end_session(shared, &old, deadline).await?;
            }
        }
    }
}

fn enter_nexus(shared: &Shared, admitted: &Admitted, target: &Target) -> nexus::Handle {
    let view = target.access.grant(&admitted.initiator).map(|grant| grant.view.clone()).unwrap_or_default();
    let ports = nexus::Ports {
        initiator: admitted.initiator.clone(),
        isid: admitted.isid,
        target: target.name.clone(),
        portal_group: target.group,
    };
    shared.nexuses.enter(nexus::Entry { ports, view })
}

/// Closes a session and waits until its writes have ended.
async fn end_session(shared: &Shared, old: &Entry, deadline: Instant) -> Result<(), Status> {
    let (fire, fired) = oneshot::channel::<()>();
    let hold = Hold::new(move || {
        // Nobody listens any more when the login has been given up.
        let _ = fire.send(());
    });
    old.inbox.post(Event::Close { end: End::Reinstated, hold: Some(hold) });
    let left = deadline.saturating_duration_since(Instant::now());
    // A dropped sender counts as well: it is dropped by firing only.
    if timeout(left, fired).await.is_err() {
        return Err(Status::ServiceUnavailable);
    }
    shared.registry.remove(old.info.tsih, &old.inbox);
    Ok(())
}

/// The full feature phase.
async fn run(established: Established, socket: &Socket, peer: SocketAddr) {
    let Established { registered, session, target, negotiated, exp_cmd_sn, stat_sn } = established;
    let shared = Arc::clone(&registered.shared);
    let inbox = Arc::clone(&registered.inbox);
    let initiator = session.initiator.clone();
    let tsih = session.tsih;
    let (luns, window) = match &target {
        Some(target) => {
            let view =
                target.access.grant(&session.initiator).map(|grant| grant.view.clone()).unwrap_or_default();
            let producer = target.absent.producer();
            let unit = negotiated.unsolicited(usize::MAX).next_multiple_of(producer.block());
            let depth =
                Depth { initial: target.parameters.initial_depth, limit: target.parameters.queue_depth };
            (
                Luns::new(target, &view, &inbox),
                Window::new(
                    stat_sn,
                    exp_cmd_sn,
                    depth,
                    unit,
                    Some((producer.pool(), Arc::clone(&shared.bank))),
                ),
            )
        }
        None => (Luns::default(), Window::new(stat_sn, exp_cmd_sn, Depth { initial: 4, limit: 4 }, 0, None)),
    };
    let connection =
        Connection::new(Arc::clone(&shared), session, negotiated, window, inbox, luns, Instant::now());
    let end = drive(connection, socket).await;
    if shared.may_log() {
        tracing::info!(%peer, %initiator, tsih, ?end, "session ended");
    }
    drop(registered);
}

async fn drive(mut connection: Connection, socket: &Socket) -> End {
    let mut sleep = std::pin::pin!(tokio::time::sleep_until(connection.next_tick().into()));
    poll_fn(move |context: &mut Context<'_>| {
        loop {
            let waker = context.waker().clone();
            let turn = socket.turn(context, |stream| connection.turn(stream, &waker, Instant::now()));
            match turn {
                Err(_broken) => return Poll::Ready(End::Socket),
                Ok((conn::Turn::Ended(end), _)) => return Poll::Ready(end),
                Ok((conn::Turn::Again, _)) => {
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Ok((conn::Turn::Wait { .. }, true)) => continue,
                Ok((conn::Turn::Wait { .. }, false)) => {}
            }
            if sleep.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            sleep.as_mut().reset(connection.next_tick().max(Instant::now()).into());
        }
    })
    .await
}
