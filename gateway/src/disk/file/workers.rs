//! The threads that carry out file requests, shared by all file disks of the process.
//!
//! Every disk has its own *line*; workers take from the lines in turn, and one line never has more than three quarters of
//! the workers, so that one slow file system leaves some for the other disks. A job is one request; within a line jobs are
//! started in order.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::disk::gate::Pass;

/// A handle on the threads; clones share them. They end, after the work they have, when the last handle is dropped.
#[derive(Clone, Debug)]
pub struct Workers(Arc<Handle>);

#[derive(Debug)]
struct Handle(Arc<Pool>);

/// The line of one disk.
#[derive(Clone, Debug)]
pub(super) struct Line(Arc<Mutex<Queue>>);

#[derive(Debug, Default)]
struct Queue {
    jobs: VecDeque<Job>,
    running: usize,
    /// In the pool's list of lines with something to start.
    ready: bool,
}

/// One request to carry out.
pub(super) struct Job {
    work: Box<dyn FnOnce() + Send>,
    _pass: Pass,
}

#[derive(Debug)]
struct Pool {
    /// Lines that have a job and may run one more.
    ready: Mutex<Ready>,
    available: Condvar,
    most_per_line: usize,
}

#[derive(Debug, Default)]
struct Ready {
    lines: VecDeque<Line>,
    sleeping: usize,
    ended: bool,
}

impl Workers {
    /// As many threads as suit the machine: one per core, at least 4, at most 8.
    pub fn start_default() -> io::Result<Self> {
        Self::start(thread::available_parallelism().map_or(4, usize::from).clamp(4, 8))
    }

    /// `count` threads (at least one).
    pub fn start(count: usize) -> io::Result<Self> {
        let count = count.max(1);
        let most_per_line = (count * 3 / 4).max(1);
        let pool = Arc::new(Pool { ready: Mutex::default(), available: Condvar::new(), most_per_line });
        let workers = Self(Arc::new(Handle(Arc::clone(&pool))));
        for index in 0..count {
            let pool = Arc::clone(&pool);
            thread::Builder::new().name(format!("file-{index}")).spawn(move || pool.work())?;
        }
        Ok(workers)
    }

    /// A line for one disk.
    pub(super) fn line(&self) -> Line {
        Line(Arc::default())
    }

    /// Puts a job at the end of a line.
    pub(super) fn put(&self, line: &Line, job: Job) {
        self.0.0.put(line, job);
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        lock(&self.0.ready).ended = true;
        self.0.available.notify_all();
    }
}

impl Job {
    /// A job that counts as in flight until its work is done.
    pub(super) fn new(work: impl FnOnce() + Send + 'static, pass: Pass) -> Self {
        Self { work: Box::new(work), _pass: pass }
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Job")
    }
}

impl Pool {
    fn put(&self, line: &Line, job: Job) {
        let mut queue = lock(&line.0);
        queue.jobs.push_back(job);
        self.offer(line, queue);
    }

    /// Enters a line in the list when it has a job to start and is not there yet.
    fn offer(&self, line: &Line, mut queue: MutexGuard<'_, Queue>) {
        if queue.ready || queue.jobs.is_empty() || queue.running >= self.most_per_line {
            return;
        }
        queue.ready = true;
        drop(queue);
        let mut ready = lock(&self.ready);
        ready.lines.push_back(line.clone());
        if ready.sleeping > 0 {
            drop(ready);
            self.available.notify_one();
        }
    }

    fn work(&self) {
        while let Some(line) = self.next_line() {
            let mut queue = lock(&line.0);
            queue.ready = false;
            let Some(job) = queue.jobs.pop_front() else { continue };
            queue.running += 1;
            self.offer(&line, queue);
            let Job { work, _pass } = job;
            // What panics has been reported, and its command answered by dropping it; the thread and its place in the line
            // stay, or every disk of the process would soon be without workers.
            let _ = std::panic::catch_unwind(AssertUnwindSafe(work));
            let mut queue = lock(&line.0);
            queue.running -= 1;
            self.offer(&line, queue);
        }
    }

    fn next_line(&self) -> Option<Line> {
        let mut ready = lock(&self.ready);
        loop {
            if let Some(line) = ready.lines.pop_front() {
                return Some(line);
            }
            if ready.ended {
                return None;
            }
            ready.sleeping += 1;
            ready = self.available.wait(ready).unwrap_or_else(PoisonError::into_inner);
            ready.sleeping -= 1;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::disk::gate::Gate;

    #[test]
    fn a_line_that_hangs_leaves_workers_for_the_others_and_ends_when_it_may() {
        let workers = Workers::start(4).unwrap();
        let gate = Arc::new(Gate::default());
        let (slow, quick) = (workers.line(), workers.line());
        let (release, held) = mpsc::channel::<()>();
        let held = Arc::new(Mutex::new(held));
        for _ in 0..10 {
            let held = Arc::clone(&held);
            let work = move || assert!(held.lock().unwrap().recv().is_err());
            workers.put(&slow, Job::new(work, gate.enter().unwrap()));
        }
        let (tell, told) = mpsc::channel();
        workers.put(&quick, Job::new(move || tell.send(()).unwrap(), gate.enter().unwrap()));
        told.recv_timeout(Duration::from_secs(30)).unwrap();
        drop(workers);
        drop(release);
        gate.close();
        gate.wait_empty();
    }

    #[test]
    fn a_request_that_panics_takes_no_worker_and_no_place_in_line_with_it() {
        let workers = Workers::start(1).unwrap();
        let gate = Arc::new(Gate::default());
        let line = workers.line();
        for _ in 0..3 {
            workers.put(&line, Job::new(|| panic!("a bug"), gate.enter().unwrap()));
        }
        let (tell, told) = mpsc::channel();
        workers.put(&line, Job::new(move || tell.send(()).unwrap(), gate.enter().unwrap()));
        told.recv_timeout(Duration::from_secs(30)).unwrap();
    }
}
