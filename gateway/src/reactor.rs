//! A fixed, small number of reactor threads, each a current-thread tokio runtime that lanes and connections are placed on.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tokio::sync::{mpsc, oneshot};
use tokio::task::LocalSet;

type Job = Box<dyn FnOnce() + Send>;

/// One reactor thread. Clones refer to the same thread.
#[derive(Clone, Debug)]
pub struct Reactor {
    index: usize,
    jobs: mpsc::UnboundedSender<Job>,
}

impl Reactor {
    /// Which of the reactors this is, from 0.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Starts a task on this reactor; `make` runs there, so the future need not be `Send`.
    /// After the reactors have been shut down the task is dropped unstarted.
    pub fn spawn<F>(&self, make: impl FnOnce() -> F + Send + 'static)
    where
        F: Future<Output = ()> + 'static,
    {
        // A closed channel means the reactor has been shut down; dropping the job drops what it owns.
        let _ = self.jobs.send(Box::new(move || {
            tokio::task::spawn_local(make());
        }));
    }
}

/// All reactors of the process.
#[derive(Debug)]
pub struct Reactors {
    reactors: Vec<Reactor>,
    next: AtomicUsize,
    stops: Vec<(oneshot::Sender<()>, thread::JoinHandle<()>)>,
}

impl Reactors {
    /// Starts `count` reactor threads (at least one).
    pub fn start(count: usize) -> io::Result<Arc<Self>> {
        let mut reactors = Vec::new();
        let mut stops = Vec::new();
        for index in 0..count.max(1) {
            let (jobs, mut inbox) = mpsc::unbounded_channel::<Job>();
            let (stop, stopped) = oneshot::channel::<()>();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let thread = thread::Builder::new().name(format!("reactor-{index}")).spawn(move || {
                let tasks = LocalSet::new();
                tasks.spawn_local(async move {
                    while let Some(job) = inbox.recv().await {
                        job();
                    }
                });
                // Ends on a message and on a dropped sender alike.
                let _ = tasks.block_on(&runtime, stopped);
            })?;
            reactors.push(Reactor { index, jobs });
            stops.push((stop, thread));
        }
        Ok(Arc::new(Self { reactors, next: AtomicUsize::new(0), stops }))
    }

    /// The next reactor, round robin.
    pub fn pick(&self) -> &Reactor {
        &self.reactors[self.next.fetch_add(1, Ordering::Relaxed) % self.reactors.len()]
    }

    /// All of them.
    pub fn all(&self) -> &[Reactor] {
        &self.reactors
    }
}

impl Drop for Reactors {
    fn drop(&mut self) {
        for (stop, thread) in self.stops.drain(..) {
            let _ = stop.send(());
            // A reactor cannot join itself; the last handle dropped on one leaves that thread to end alone.
            if thread.thread().id() != thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_run_on_the_reactor_they_were_given_to() {
        let reactors = Reactors::start(2).unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        for reactor in reactors.all() {
            let tell = tell.clone();
            reactor.spawn(move || async move {
                tell.send(thread::current().name().map(str::to_owned)).unwrap();
            });
        }
        let mut names: Vec<_> = (0..2).map(|_| told.recv().unwrap().unwrap()).collect();
        names.sort();
        assert_eq!(names, ["reactor-0", "reactor-1"]);
    }
}
