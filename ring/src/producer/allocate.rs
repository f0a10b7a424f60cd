//! Asking for blocks: now, from a reserve, or in line.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::area::Area;
use crate::pool::{Ticket, Waiting};
use crate::{Extent, Reserve};

/// Why no blocks were handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllocateError {
    /// More than the whole data area or the pool's limit: never possible (INVALID FIELD IN CDB is the right answer).
    #[error("larger than the whole data area")]
    TooLarge,
    /// Not now: area or pool is used up, or others wait in front.
    #[error("the data area is used up")]
    Exhausted,
}

pub(super) fn now(area: &Arc<Area>, len: usize) -> Result<Extent, AllocateError> {
    let need = area.need(len).ok_or(AllocateError::TooLarge)?;
    if need > 0 {
        area.pool.try_grant(area.tenant, need)?;
    }
    Ok(Extent::take(area, len))
}

pub(super) fn reserved(area: &Arc<Area>, reserve: &mut Reserve, len: usize) -> Result<Extent, AllocateError> {
    let need = area.need(len).ok_or(AllocateError::TooLarge)?;
    if need > 0 && !area.pool.grant_reserved(area.tenant, need, reserve) {
        return Err(AllocateError::Exhausted);
    }
    Ok(Extent::take(area, len))
}

/// Future of [`Producer::allocate`](super::Producer::allocate).
#[derive(Debug)]
#[must_use = "a future does nothing until it is polled"]
pub struct Allocate {
    area: Arc<Area>,
    len: usize,
    state: State,
}

#[derive(Debug)]
enum State {
    New,
    InLine(Ticket),
    Done,
}

impl Allocate {
    pub(super) fn new(area: Arc<Area>, len: usize) -> Self {
        Self { area, len, state: State::New }
    }

    fn granted(&mut self) -> Poll<Result<Extent, AllocateError>> {
        self.state = State::Done;
        Poll::Ready(Ok(Extent::take(&self.area, self.len)))
    }
}

impl Future for Allocate {
    /// [`AllocateError::TooLarge`] is the only error.
    type Output = Result<Extent, AllocateError>;

    /// Panics when polled again after it was ready.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let ticket = match this.state {
            State::InLine(ticket) => ticket,
            State::New => {
                let asked = match this.area.need(this.len) {
                    Some(0) => Ok(None),
                    Some(need) => this.area.pool.request(this.area.tenant, need, cx.waker()),
                    None => Err(AllocateError::TooLarge),
                };
                match asked {
                    Ok(None) => return this.granted(),
                    Ok(Some(ticket)) => ticket,
                    Err(error) => {
                        this.state = State::Done;
                        return Poll::Ready(Err(error));
                    }
                }
            }
            State::Done => panic!("polled after it was ready"),
        };
        this.state = State::InLine(ticket);
        match this.area.pool.poll(ticket, cx.waker()) {
            Waiting::InLine => Poll::Pending,
            Waiting::Granted => this.granted(),
            Waiting::TooLarge => {
                this.state = State::Done;
                Poll::Ready(Err(AllocateError::TooLarge))
            }
        }
    }
}

impl Drop for Allocate {
    fn drop(&mut self) {
        if let State::InLine(ticket) = self.state {
            self.area.pool.cancel(ticket);
        }
    }
}
