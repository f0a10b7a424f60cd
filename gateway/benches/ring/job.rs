//! A job: keeps a number of commands going, as fio's `iodepth` does, and moves their data as the kernel's producer does:
//! data to write is copied into the blocks before the command is queued, data read is copied out when it is answered.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use ring::{Allocate, Completion, Doorbell, Extent, Kick, Nexus, Producer, RejectedReason, Request};

use crate::rig::{Inbox, VISITED};

/// What jobs do.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) write: bool,
    /// Bytes of a command: always the first, or a random multiple of it up to the second.
    pub(crate) sizes: (usize, usize),
    pub(crate) depth: usize,
    pub(crate) jobs: usize,
    /// What is answered before this much of the time is over is not counted.
    pub(crate) ramp: Duration,
    /// Stop after this time …
    pub(crate) time: Option<Duration>,
    /// … or after this many commands of each job.
    pub(crate) commands: Option<usize>,
}

/// What comes back with an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context {
    pub(crate) job: usize,
    bytes: usize,
}

/// What a job has moved.
pub(crate) struct Moved {
    pub(crate) bytes: u64,
    pub(crate) seconds: f64,
}

pub(crate) struct Job {
    index: usize,
    producer: Producer<Context>,
    lane: Arc<dyn Doorbell>,
    inbox: Arc<Inbox>,
    waker: Waker,
    load: Load,
    buffer: Vec<u8>,
    random: u64,
    outstanding: usize,
    started: usize,
    /// A command that waits for its blocks, or for room in the command area.
    next: Option<Next>,
}

enum Next {
    Blocks(usize, Pin<Box<Allocate>>),
    Room(usize, Extent),
}

impl Job {
    pub(crate) fn new(
        index: usize,
        producer: Producer<Context>,
        lane: Arc<dyn Doorbell>,
        inbox: Arc<Inbox>,
        load: &Load,
    ) -> Self {
        let waker = Waker::from(Arc::clone(&inbox));
        let buffer = vec![index as u8 + 1; load.sizes.1];
        // The same seeds for every layout: each does the same work.
        let random = 0x9e37_79b9_7f4a_7c15 ^ (index as u64 + 1);
        let load = load.clone();
        Self {
            index,
            producer,
            lane,
            inbox,
            waker,
            load,
            buffer,
            random,
            outstanding: 0,
            started: 0,
            next: None,
        }
    }

    /// Works until told to end or done, and waits for the last answer. All jobs count from the same `begin`.
    pub(crate) fn run(mut self, begin: Instant, running: &AtomicBool) -> Moved {
        let warm = begin + self.load.ramp;
        let mut answers = VecDeque::new();
        let (mut bytes, mut last) = (0, warm);
        loop {
            let told = running.load(Ordering::Acquire);
            let going = told && self.load.commands.is_none_or(|commands| self.started < commands);
            if !going && self.outstanding == 0 {
                break;
            }
            self.inbox.take(&mut answers);
            let came = !answers.is_empty();
            for answer in answers.drain(..) {
                let moved = self.finish(answer);
                let now = Instant::now();
                if told && now >= warm {
                    bytes += moved as u64;
                    last = now;
                }
            }
            let pushed = going && self.fill();
            if !came && !pushed {
                self.inbox.sleep();
            }
        }
        Moved { bytes, seconds: (last - warm).as_secs_f64() }
    }

    /// Takes an answer's data and gives its blocks back.
    fn finish(&mut self, answer: Completion<Context>) -> usize {
        assert_eq!(answer.status, 0, "the store does not fail");
        self.outstanding -= 1;
        let bytes = answer.context.bytes;
        if !self.load.write {
            let mut slices: Vec<IoSlice<'_>> = Vec::new();
            answer.data.io_slices(0..bytes, &mut slices);
            let mut at = 0;
            for slice in slices {
                self.buffer[at..at + slice.len()].copy_from_slice(&slice);
                at += slice.len();
            }
        }
        bytes
    }

    /// Queues commands until the depth is reached or something is used up; true when any was published.
    fn fill(&mut self) -> bool {
        let mut pushed = false;
        while self.outstanding < self.load.depth
            && self.load.commands.is_none_or(|commands| self.started < commands)
        {
            let next = self.next.take().unwrap_or_else(|| {
                let bytes = self.size();
                Next::Blocks(bytes, Box::pin(self.producer.allocate(bytes)))
            });
            let (bytes, data) = match next {
                Next::Blocks(bytes, mut blocks) => {
                    match blocks.as_mut().poll(&mut std::task::Context::from_waker(&self.waker)) {
                        Poll::Ready(data) => (bytes, self.load_data(data.expect("it fits the area"))),
                        Poll::Pending => {
                            self.next = Some(Next::Blocks(bytes, blocks));
                            break;
                        }
                    }
                }
                Next::Room(bytes, data) => (bytes, data),
            };
            let cdb = self.cdb(bytes);
            let context = Context { job: self.index, bytes };
            match self.producer.push(Request { cdb: &cdb, nexus: Nexus::UNKNOWN, data, context }) {
                Ok(_) => {
                    pushed = true;
                    self.outstanding += 1;
                    self.started += 1;
                }
                Err(rejected) => {
                    assert_eq!(rejected.reason, RejectedReason::Full);
                    self.next = Some(Next::Room(bytes, rejected.data));
                    if self.producer.wait_room(&self.waker) {
                        break;
                    }
                }
            }
        }
        if pushed && self.producer.publish() == Kick::Needed {
            self.lane.ring();
        }
        pushed
    }

    fn load_data(&self, mut data: Extent) -> Extent {
        if self.load.write {
            let mut slices: Vec<IoSliceMut<'_>> = Vec::new();
            data.io_slices_mut(0..data.len(), &mut slices);
            let mut at = 0;
            for mut slice in slices {
                let len = slice.len();
                slice.copy_from_slice(&self.buffer[at..at + len]);
                at += len;
            }
        }
        data
    }

    fn size(&mut self) -> usize {
        let (least, most) = self.load.sizes;
        least * (1 + self.random() as usize % (most / least))
    }

    /// READ(16) or WRITE(16) of `bytes` at a random multiple of them.
    fn cdb(&mut self, bytes: usize) -> [u8; 16] {
        let lba = self.random() % (VISITED / bytes as u64) * (bytes as u64 / 512);
        let mut cdb = [0; 16];
        cdb[0] = if self.load.write { 0x8a } else { 0x88 };
        cdb[2..10].copy_from_slice(&lba.to_be_bytes());
        cdb[10..14].copy_from_slice(&(bytes as u32 / 512).to_be_bytes());
        cdb
    }

    /// xorshift64.
    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}
