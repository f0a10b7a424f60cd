//! The real connection: a generic netlink socket that is in the family's group.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use netlink_sys::protocols::NETLINK_GENERIC;
use netlink_sys::{Socket as Netlink, SocketAddr};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::Channel;
use super::codec::{self, Event, Message};

/// No message of the family is longer: a device's name has at most a page.
const DATAGRAM: usize = 64 << 10;
/// How long the kernel may take to answer a request; it does so before `send` returns.
const ANSWER: Duration = Duration::from_secs(5);

/// Two sockets: events arrive on one, requests and their answers go over the other, so that neither has to be sorted out of
/// the other's stream.
#[derive(Debug)]
pub(in crate::lio) struct Socket {
    events: Netlink,
    requests: Netlink,
    family: u16,
    /// Events out of a datagram that held more than one.
    pending: Vec<Event>,
}

impl Socket {
    /// Joins the group. `NotFound`: the module is not loaded.
    pub(in crate::lio) fn open() -> io::Result<Self> {
        let requests = bound()?;
        let mut numbers = None;
        exchange(&requests, &codec::find_family(), |message| numbers = numbers.or(message.numbers()))?;
        let numbers = numbers.ok_or(io::ErrorKind::NotFound)?;
        let events = bound()?;
        events.add_membership(numbers.group)?;
        Ok(Self { events, requests, family: numbers.family, pending: Vec::new() })
    }
}

fn bound() -> io::Result<Netlink> {
    let mut socket = Netlink::new(NETLINK_GENERIC)?;
    socket.bind(&SocketAddr::new(0, 0))?;
    Ok(socket)
}

/// Sends a request and looks at what comes until its acknowledgement.
fn exchange(socket: &Netlink, request: &[u8], mut look: impl FnMut(&Message<'_>)) -> io::Result<()> {
    socket.send_to(request, &SocketAddr::new(0, 0), 0)?;
    let end = Instant::now() + ANSWER;
    loop {
        let Some(datagram) = receive(socket, end.saturating_duration_since(Instant::now()))? else {
            return Err(io::ErrorKind::TimedOut.into());
        };
        for message in codec::messages(&datagram) {
            match message.errno() {
                Some(0) => return Ok(()),
                Some(errno) => return Err(io::Error::from_raw_os_error(errno)),
                None => look(&message),
            }
        }
    }
}

/// One datagram of the kernel's; `None` when the time is over.
fn receive(socket: &Netlink, limit: Duration) -> io::Result<Option<Vec<u8>>> {
    let limit = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
    let mut fds = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
    match poll(&mut fds, limit) {
        Ok(0) | Err(Errno::EINTR) => return Ok(None),
        Ok(_) => {}
        Err(error) => return Err(error.into()),
    }
    let mut datagram = Vec::with_capacity(DATAGRAM);
    let (_, from) = socket.recv_from(&mut datagram, libc::MSG_DONTWAIT)?;
    // Any process may write to a netlink socket; only what comes from the kernel counts.
    Ok(Some(if from.port_number() == 0 { datagram } else { Vec::new() }))
}

impl Channel for Socket {
    fn receive(&mut self, limit: Duration) -> io::Result<Option<Event>> {
        if self.pending.is_empty() {
            match receive(&self.events, limit) {
                Ok(Some(datagram)) => {
                    let events = codec::messages(&datagram).filter_map(|message| message.event(self.family));
                    self.pending = events.collect();
                    self.pending.reverse();
                }
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.pending.pop())
    }

    fn answer(&mut self, event: &Event, status: i32) -> io::Result<()> {
        let Some(answer) = codec::done(self.family, event, status) else { return Ok(()) };
        match exchange(&self.requests, &answer, |_| {}) {
            // Nobody waits: the device is not one that answers are waited for, or has been given up on.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENODEV | libc::EINVAL)) => Ok(()),
            other => other,
        }
    }

    fn set_replies(&mut self, replies: bool) -> io::Result<()> {
        exchange(&self.requests, &codec::set_features(self.family, replies), |_| {})
    }
}

/// For an event loop.
impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}
