//! A connection without a network, for tests and fuzzers: bytes in, bytes out, a clock that is told, and an owner of
//! the ring that answers when asked to.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::time::{Duration, Instant};

use ring::{Consumer, Doorbell, Entry, Options, Pool, Response};

use super::conn::{Connection, Session, Turn};
use super::inbox::{End, Inbox};
use super::keys::Negotiated;
use super::luns::Luns;
use super::stats::Shared;
use super::stream::Stream;
use super::target::{Access, Directory, Limits, Parameters, Target};
use super::window::{Depth, Window};
use super::{Port, Ticket};
use crate::nexus::{self, View};
use crate::reactor::Reactors;

/// The bytes of a connection, in both directions.
#[derive(Debug, Default)]
struct Bytes {
    input: VecDeque<u8>,
    output: Vec<u8>,
    /// Most bytes moved by one call.
    chunk: usize,
    /// Bytes the peer takes.
    room: usize,
    ended: bool,
}

impl Stream for Bytes {
    fn read(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        if self.input.is_empty() && !self.ended {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let mut read = 0;
        for slice in into {
            let most = slice.len().min(self.chunk - read);
            read += self.input.read(&mut slice[..most])?;
        }
        Ok(read)
    }

    fn peek(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.input.is_empty() && !self.ended {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        // What was shown can be taken by one read.
        let seen = into.len().min(self.chunk).min(self.input.len());
        into.iter_mut().zip(&self.input).take(seen).for_each(|(to, from)| *to = *from);
        Ok(seen)
    }

    fn write(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.room == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let mut written = 0;
        for slice in from {
            let part = slice.len().min(self.chunk - written).min(self.room);
            self.output.extend_from_slice(&slice[..part]);
            (written, self.room) = (written + part, self.room - part);
        }
        Ok(written)
    }
}

/// A connection in the full feature phase with one LUN.
#[derive(Debug)]
pub struct Simulated {
    connection: Option<Connection>,
    bytes: Bytes,
    consumers: Vec<(Consumer, Arc<Port>)>,
    pool: Pool,
    now: Instant,
    end: Option<End>,
}

/// A reactor has to be named by a target; nothing runs on it here.
fn reactors() -> &'static Arc<Reactors> {
    static REACTORS: OnceLock<Arc<Reactors>> = OnceLock::new();
    REACTORS.get_or_init(|| Reactors::start(1).expect("a thread can be started"))
}

impl Simulated {
    /// A session that has agreed on `negotiated`; at most `chunk` bytes are moved by one call (at least 2048).
    pub fn new(negotiated: Negotiated, chunk: usize) -> Self {
        let pool = Pool::new(8 << 20);
        let options = Options { command_area: 64 << 10, data_area: 2 << 20, ..Options::default() };
        let mut consumers = Vec::new();
        let mut port = || {
            let (producer, consumer) =
                ring::create::<Ticket>(&options, &pool).expect("shared memory can be had");
            let port = Port::new(producer, Duration::from_secs(1));
            consumers.push((consumer, Arc::clone(&port)));
            port
        };
        let view = View { luns: vec![0], read_only: Vec::new() };
        let target = Arc::new(Target {
            name: "iqn.2026-01.example:simulated".into(),
            group: 1,
            addresses: Vec::new(),
            luns: BTreeMap::from([(0, port())]),
            absent: port(),
            well_known: None,
            access: Access::default(),
            parameters: Parameters::default(),
            reactor: reactors().all()[0].clone(),
        });
        let nexuses = nexus::Table::new();
        let ports = nexus::Ports {
            initiator: "iqn.2026-01.example:fuzzer".into(),
            isid: [0; 6],
            target: target.name.clone(),
            portal_group: 1,
        };
        let handle = nexuses.enter(nexus::Entry { ports: ports.clone(), view: view.clone() });
        let inbox = Inbox::new(Some(handle));
        let luns = Luns::new(&target, &view, &inbox);
        let unit = negotiated.unsolicited(usize::MAX).next_multiple_of(target.absent.producer().block());
        let session = Session {
            initiator: ports.initiator,
            tsih: 1,
            cid: 0,
            target: Some(target),
            local: ([127, 0, 0, 1], 3260).into(),
        };
        let shared = Shared::new(Directory::default(), nexuses, Limits::default());
        let bank = Some((pool.clone(), Arc::clone(&shared.bank)));
        let window = Window::new(1, 1, Depth { initial: 32, limit: 64 }, unit, bank);
        let now = Instant::now();
        let connection = Connection::new(shared, session, negotiated, window, inbox, luns, now);
        let bytes = Bytes { chunk: chunk.max(2048), room: usize::MAX, ..Bytes::default() };
        Self { connection: Some(connection), bytes, consumers, pool, now, end: None }
    }

    /// The peer sends.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.bytes.input.extend(bytes);
    }

    /// The peer closes the stream.
    pub fn hang_up(&mut self) {
        self.bytes.ended = true;
    }

    /// The peer takes only so many bytes from now on.
    pub fn set_room(&mut self, room: usize) {
        self.bytes.room = room;
    }

    /// Time passes.
    pub fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    /// Lets the connection work until it waits. Returns whether it lives.
    pub fn work(&mut self) -> bool {
        while let Some(connection) = &mut self.connection {
            match connection.turn(&mut self.bytes, Waker::noop(), self.now) {
                Turn::Again => {}
                Turn::Wait { .. } => return true,
                Turn::Ended(end) => {
                    self.end = Some(end);
                    self.connection = None;
                }
            }
        }
        false
    }

    /// The owners answer everything that is in the rings, GOOD.
    pub fn answer(&mut self) {
        for (consumer, port) in &mut self.consumers {
            while let Ok(entry) = consumer.next() {
                if let Entry::Command(command) = entry {
                    consumer.complete(command, Response::good());
                }
            }
            let _ = consumer.commit();
            port.ring();
        }
    }

    /// What was sent to the peer since the last call.
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes.output)
    }

    /// Why it ended.
    pub fn end(&self) -> Option<End> {
        self.end
    }

    /// Closes the connection, answers what is left and checks that nothing is held any more.
    pub fn finish(mut self) {
        self.connection = None;
        self.answer();
        let usage = self.pool.usage();
        assert_eq!((usage.in_use, usage.reserved), (0, 0), "blocks or credit are left");
    }
}

#[cfg(test)]
mod clauses;
#[cfg(test)]
mod references;
#[cfg(test)]
mod sequences;
#[cfg(test)]
mod tests;
