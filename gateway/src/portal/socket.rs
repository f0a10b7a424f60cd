//! The TCP side of a connection: a [`Stream`] over a non-blocking socket, with as few system calls as can be.
//!
//! A short read says that the socket is empty (and a short write that it is full) without another call to find out;
//! the readiness that tokio keeps is then cleared, and the next edge from epoll sets it again. tokio takes the state of
//! readiness before the call that clears it, so an edge in between is not lost.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::task::{Context, Poll};

use socket2::SockRef;
use tokio::io::{Interest, ReadBuf};
use tokio::net::TcpStream;

use super::stream::Stream;

/// Slices that one call takes (Linux).
const IOV_MAX: usize = 1024;

/// A connected socket.
#[derive(Debug)]
pub(crate) struct Socket {
    stream: TcpStream,
}

/// A socket during one turn: what is known about it.
#[derive(Debug)]
pub(crate) struct Turn<'a, 'b> {
    stream: &'a TcpStream,
    context: &'a mut Context<'b>,
    /// Nothing is there to read.
    drained: bool,
    /// Nothing more can be written.
    full: bool,
    /// Bytes there when it was last looked at, if that was all.
    seen: Option<usize>,
}

impl Socket {
    /// Registers a socket with the runtime of the current thread.
    pub(crate) fn new(stream: std::net::TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream: TcpStream::from_std(stream)? })
    }

    /// Gives the socket back, for another thread.
    pub(crate) fn into_std(self) -> io::Result<std::net::TcpStream> {
        self.stream.into_std()
    }

    /// Lets `turn` work on the socket, then sees to it that the task is woken when there is more to do.
    ///
    /// Returns what `turn` returned, and whether the socket became ready again meanwhile, so that another turn is due.
    pub(crate) fn turn<T>(
        &self,
        context: &mut Context<'_>,
        turn: impl FnOnce(&mut Turn<'_, '_>) -> T,
    ) -> io::Result<(T, bool)> {
        let drained = !ready(self.stream.poll_read_ready(context))?;
        let full = !ready(self.stream.poll_write_ready(context))?;
        let mut state = Turn { stream: &self.stream, context, drained, full, seen: None };
        let result = turn(&mut state);
        let (now_drained, now_full) = (state.drained && !drained, state.full && !full);
        // Asking again registers the task.
        let mut again = now_drained && ready(self.stream.poll_read_ready(context))?;
        again |= now_full && ready(self.stream.poll_write_ready(context))?;
        Ok((result, again))
    }
}

fn ready(poll: Poll<io::Result<()>>) -> io::Result<bool> {
    match poll {
        Poll::Ready(result) => result.map(|()| true),
        Poll::Pending => Ok(false),
    }
}

/// Calls again when a signal came in between.
fn uninterrupted(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

impl Turn<'_, '_> {
    /// Runs `call`; tokio's readiness is cleared when `exhausted` says so of a success, and on `WouldBlock`.
    fn io(
        &self,
        interest: Interest,
        call: impl FnMut() -> io::Result<usize>,
        exhausted: impl FnOnce(usize) -> bool,
    ) -> (io::Result<usize>, bool) {
        let mut done = None;
        let blocked = self.stream.try_io(interest, || {
            let moved = uninterrupted(call)?;
            if exhausted(moved) {
                done = Some(moved);
                return Err(io::ErrorKind::WouldBlock.into());
            }
            Ok(moved)
        });
        match (done, blocked) {
            (Some(moved), _) => (Ok(moved), true),
            (None, Err(error)) if error.kind() == io::ErrorKind::WouldBlock => (Err(error), true),
            (None, other) => (other, false),
        }
    }
}

impl Stream for Turn<'_, '_> {
    fn read(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        if self.drained {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let wanted: usize = into.iter().map(|slice| slice.len()).sum();
        let seen = self.seen.take();
        let socket = SockRef::from(self.stream);
        // A short read, or all of what was there when it was looked at. 0 is the end of the stream.
        let exhausted = |read: usize| read > 0 && (read < wanted || seen == Some(read));
        let (read, drained) = self.io(Interest::READABLE, || (&*socket).read_vectored(into), exhausted);
        self.drained = drained;
        if let (Some(seen), Ok(read)) = (seen, &read) {
            self.seen = seen.checked_sub(*read).filter(|left| *left > 0);
        }
        read
    }

    fn peek(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.drained {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let room = into.len();
        match self.stream.poll_peek(self.context, &mut ReadBuf::new(into)) {
            Poll::Ready(seen) => {
                let seen = seen?;
                self.seen = (seen < room).then_some(seen);
                Ok(seen)
            }
            Poll::Pending => {
                self.drained = true;
                Err(io::ErrorKind::WouldBlock.into())
            }
        }
    }

    fn write(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.full {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let wanted: usize = from.iter().take(IOV_MAX).map(|slice| slice.len()).sum();
        let socket = SockRef::from(self.stream);
        let (written, full) =
            self.io(Interest::WRITABLE, || (&*socket).write_vectored(from), |written| written < wanted);
        self.full = full;
        written
    }
}
