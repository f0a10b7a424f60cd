//! Drives a disk one request at a time, or several.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

use rbdgate::disk::rbd::{Clients, OpenError, RbdDisk, Spec};
use rbdgate::disk::{
    AllocationExtent, Buffer, Completer, Completion, CompletionQueue, Disk, Error, Operation, Outcome,
    Request,
};

use crate::bench::{PATIENCE, conf, unique};

/// An image of the pool that the tests share, through the test user.
pub(crate) fn spec(image: &str, create: Option<u64>) -> Spec {
    Spec {
        conf: conf(),
        id: "admin".into(),
        keyring: None,
        pool: "rbd".into(),
        namespace: None,
        image: image.into(),
        create,
        read_only: false,
        block_size: 512,
    }
}

/// Opens it through a client of its own.
pub(crate) fn open(spec: &Spec) -> Result<RbdDisk, OpenError> {
    RbdDisk::open_with(spec, &Clients::default())
}

#[derive(Default)]
pub(crate) struct Inbox {
    done: Mutex<Vec<Completion>>,
    more: Condvar,
}

impl CompletionQueue for Inbox {
    fn push(&self, completion: Completion) {
        self.done.lock().unwrap().push(completion);
        self.more.notify_all();
    }
}

impl Inbox {
    pub(crate) fn take(&self, tag: u64) -> Completion {
        let deadline = Instant::now() + PATIENCE;
        let mut done = self.done.lock().unwrap();
        loop {
            if let Some(index) = done.iter().position(|completion| completion.tag == tag) {
                return done.swap_remove(index);
            }
            let left = deadline.checked_duration_since(Instant::now()).expect("the operation does not end");
            done = self.more.wait_timeout(done, left).unwrap().0;
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.done.lock().unwrap().is_empty()
    }
}

pub(crate) struct Bench {
    pub(crate) disk: RbdDisk,
    pub(crate) inbox: Arc<Inbox>,
    next: u64,
}

impl Bench {
    /// A new image.
    pub(crate) fn new(size: u64) -> Self {
        Self::over(open(&spec(&unique("disk"), Some(size))).unwrap())
    }

    pub(crate) fn over(disk: RbdDisk) -> Self {
        Self { disk, inbox: Arc::default(), next: 0 }
    }

    fn start(&mut self, request: Request) -> u64 {
        let tag = self.next;
        self.next += 1;
        let completer = Completer::new(Arc::clone(&self.inbox) as Arc<dyn CompletionQueue>, tag);
        self.disk.submit(Operation { request, completer });
        tag
    }

    pub(crate) fn start_write(&mut self, offset: u64, data: Vec<u8>) -> u64 {
        self.start(Request::Write { offset, buffer: Buffer::Owned(data), fua: false })
    }

    pub(crate) fn run(&mut self, request: Request) -> Result<Outcome, Error> {
        let tag = self.start(request);
        self.inbox.take(tag).result
    }

    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), Error> {
        let tag = self.start_write(offset, data.to_vec());
        let completion = self.inbox.take(tag);
        assert_eq!(completion.buffer.as_deref(), Some(data), "a buffer comes back, whatever happened");
        completion.result.map(drop)
    }

    pub(crate) fn read(&mut self, offset: u64, len: usize) -> Result<Vec<u8>, Error> {
        let tag = self.start(Request::Read { offset, buffer: Buffer::Owned(vec![0xEE; len]) });
        let completion = self.inbox.take(tag);
        completion.result.map(|_outcome| completion.buffer.unwrap())
    }

    pub(crate) fn allocation(&mut self, offset: u64, len: u64, limit: usize) -> Vec<AllocationExtent> {
        self.run(Request::Allocation { offset, len, limit }).unwrap().extents
    }
}
