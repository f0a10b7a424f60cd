//! Waiting for blocks: FIFO within a LUN, and in the order of the LUNs' waiting between them.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::{Area, Shortage, Waiter};
use crate::producer::AllocateError;
use crate::shm::Extent;

/// Future of [`crate::Producer::allocate`]. Dropping it gives up the place in the line.
#[derive(Debug)]
pub struct Allocate {
    area: Arc<Area>,
    len: usize,
    ticket: Option<u64>,
}

impl Allocate {
    pub(crate) fn new(area: Arc<Area>, len: usize) -> Self {
        Self { area, len, ticket: None }
    }

    /// Takes a place in the line (or renews its waker); true when it is the first one.
    fn line_up(&mut self, cx: &Context<'_>) -> bool {
        let mut state = self.area.lock();
        let ticket = *self.ticket.get_or_insert_with(|| {
            state.next_ticket += 1;
            state.next_ticket
        });
        match state.waiters.iter_mut().find(|waiter| waiter.ticket == ticket) {
            Some(waiter) => waiter.waker.clone_from(cx.waker()),
            None => state.waiters.push_back(Waiter { ticket, waker: cx.waker().clone() }),
        }
        state.waiters.front().is_some_and(|waiter| waiter.ticket == ticket)
    }

    /// Leaves the line and lets the next one try.
    fn leave(&mut self) {
        let Some(ticket) = self.ticket.take() else { return };
        {
            let mut state = self.area.lock();
            let first = state.waiters.front().is_some_and(|waiter| waiter.ticket == ticket);
            state.waiters.retain(|waiter| waiter.ticket != ticket);
            if !first {
                return;
            }
        }
        // The pool's line is for the first waiter of each area; the next one takes its own place there.
        self.area.pool().stop_waiting(self.area.id());
        self.area.wake_front();
        self.area.pool().wake_oldest(self.area.id());
    }
}

impl Future for Allocate {
    /// [`AllocateError::TooLarge`] is the only error.
    type Output = Result<Extent, AllocateError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(count) = self.area.blocks_for(self.len) else {
            self.leave();
            return Poll::Ready(Err(AllocateError::TooLarge));
        };
        if count == 0 {
            return Poll::Ready(Ok(Extent::default()));
        }
        // First into the line, then the attempt: blocks freed in between wake us.
        if !self.line_up(cx) {
            return Poll::Pending;
        }
        let mut result = self.area.attempt(count, self.len);
        if let Err(Shortage::Pool(_)) = result {
            // Likewise for memory that other LUNs free.
            self.area.pool().wait(&self.area, (count * self.area.block()) as u64);
            result = self.area.attempt(count, self.len);
        }
        match result {
            Ok(extent) => {
                self.leave();
                Poll::Ready(Ok(extent))
            }
            Err(_shortage) => Poll::Pending,
        }
    }
}

impl Drop for Allocate {
    fn drop(&mut self) {
        self.leave();
    }
}
