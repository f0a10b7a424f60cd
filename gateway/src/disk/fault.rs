//! A disk in front of another that misbehaves on purpose: slow, narrow, out of order, failing, or silent.
//!
//! * *Latency* and *jitter*: a request is answered no earlier than this long after it was submitted; jitter reorders.
//! * *Bandwidth*: all requests share one pipe; a request is answered no earlier than its bytes are through.
//! * *Errors*: with a probability, from a fixed seed, so that a run can be repeated.
//! * A *rule* looks at each request first and may fail it or *withhold* it. A withheld request has not been carried out:
//!   its memory stays lent to the disk until [`Fault::release`] carries it out, as with an OSD that hangs. Whoever reused
//!   that memory meanwhile would see it change.
//!
//! One timer thread per disk delivers what is due, in order of its time, well within a millisecond of it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::gate::{Gate, Pass};
use super::{
    Completer, Completion, CompletionQueue, Disk, Error, Geometry, Operation, Outcome, Request, ResizeError,
};

/// How every request is treated that no rule picks out.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// From submission to answer, at least.
    pub latency: Duration,
    /// Up to this much more, evenly spread.
    pub jitter: Duration,
    /// Bytes per second of all requests together.
    pub bandwidth: Option<u64>,
    /// How many of a million requests fail, and how.
    pub errors: Option<(u32, Error)>,
    /// Where jitter and errors start from.
    pub seed: u64,
}

/// What a rule says about one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Treat it by the settings.
    Pass,
    /// Answer with this error, without carrying it out.
    Fail(Error),
    /// Keep it, not carried out, until [`Fault::release`].
    Withhold,
}

/// Decides about each request.
pub type Rule = Box<dyn Fn(&Request) -> Verdict + Send + Sync>;

/// The decorator.
pub struct Fault {
    inner: Arc<dyn Disk>,
    settings: Settings,
    shared: Arc<Shared>,
    rule: Mutex<Option<Rule>>,
    withheld: Mutex<Vec<(Operation, Pass)>>,
    pipe_free: Mutex<Instant>,
    random: AtomicU64,
    next_key: AtomicU64,
    gate: Arc<Gate>,
}

/// An operation that the inner disk is carrying out.
struct Parked {
    completer: Completer,
    due: Instant,
    pass: Pass,
}

/// An answer that waits for its time.
struct Answer {
    due: Instant,
    order: u64,
    parked: Parked,
    result: Result<Outcome, Error>,
    buffer: Option<Vec<u8>>,
}

#[derive(Default)]
struct Shared {
    parked: Mutex<HashMap<u64, Parked>>,
    answers: Mutex<BinaryHeap<Reverse<Answer>>>,
    changed: Condvar,
    order: AtomicU64,
    ended: AtomicBool,
}

impl Fault {
    /// Puts `inner` behind `settings`. Fails when the timer thread cannot be started.
    pub fn new(inner: Arc<dyn Disk>, settings: Settings) -> io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let timer = Arc::clone(&shared);
        thread::Builder::new().name("fault-timer".into()).spawn(move || timer.deliver())?;
        Ok(Self {
            inner,
            random: AtomicU64::new(settings.seed),
            settings,
            shared,
            rule: Mutex::default(),
            withheld: Mutex::default(),
            pipe_free: Mutex::new(Instant::now()),
            next_key: AtomicU64::new(0),
            gate: Arc::default(),
        })
    }

    /// Replaces the rule; `None` treats every request by the settings.
    pub fn set_rule(&self, rule: Option<Rule>) {
        *lock(&self.rule) = rule;
    }

    /// Requests that are withheld now.
    pub fn withheld(&self) -> usize {
        lock(&self.withheld).len()
    }

    /// Carries out what was withheld, now and in order; returns how many.
    pub fn release(&self) -> usize {
        let withheld = std::mem::take(&mut *lock(&self.withheld));
        let count = withheld.len();
        for (operation, pass) in withheld {
            self.start(operation, Instant::now(), pass);
        }
        count
    }

    fn judge(&self, request: &Request) -> Verdict {
        let verdict = lock(&self.rule).as_ref().map_or(Verdict::Pass, |rule| rule(request));
        match &self.settings.errors {
            Some((per_million, error))
                if verdict == Verdict::Pass && self.random() % 1_000_000 < u64::from(*per_million) =>
            {
                Verdict::Fail(error.clone())
            }
            _ => verdict,
        }
    }

    /// When a request that comes now may be answered.
    fn due(&self, request: &Request) -> Instant {
        let now = Instant::now();
        let mut due = now + self.settings.latency;
        if !self.settings.jitter.is_zero() {
            due += self.settings.jitter.mul_f64(self.random() as f64 / u64::MAX as f64);
        }
        if let Some(bandwidth) = self.settings.bandwidth {
            let time = Duration::from_secs_f64(carried(request) as f64 / bandwidth as f64);
            let mut free = lock(&self.pipe_free);
            *free = (*free).max(now) + time;
            due = due.max(*free);
        }
        due
    }

    fn start(&self, operation: Operation, due: Instant, pass: Pass) {
        let Operation { request, completer } = operation;
        let key = self.next_key.fetch_add(1, Ordering::Relaxed);
        lock(&self.shared.parked).insert(key, Parked { completer, due, pass });
        let queue: Arc<dyn CompletionQueue> = Arc::clone(&self.shared) as _;
        self.inner.submit(Operation { request, completer: Completer::new(queue, key) });
    }

    /// The next number of a fixed sequence (splitmix64).
    fn random(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut word = self.random.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }
}

impl Disk for Fault {
    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn submit(&self, operation: Operation) {
        let Some(pass) = self.gate.enter() else {
            let Operation { request, completer } = operation;
            completer.complete(Err(Error::NotReady), request.into_owned());
            return;
        };
        match self.judge(&operation.request) {
            Verdict::Pass => {
                let due = self.due(&operation.request);
                self.start(operation, due, pass);
            }
            Verdict::Withhold => lock(&self.withheld).push((operation, pass)),
            Verdict::Fail(error) => {
                let due = self.due(&operation.request);
                let Operation { request, completer } = operation;
                self.shared.schedule(Parked { completer, due, pass }, Err(error), request.into_owned());
            }
        }
    }

    fn note(&self) -> Option<Vec<u8>> {
        self.inner.note()
    }

    fn on_resize(&self, listener: Box<dyn Fn(u64) + Send + Sync>) {
        self.inner.on_resize(listener);
    }

    fn resize(&self, size: u64, shrink: bool) -> Result<(), ResizeError> {
        self.inner.resize(size, shrink)
    }

    fn is_told_of_resizes(&self) -> bool {
        self.inner.is_told_of_resizes()
    }

    fn look(&self) {
        self.inner.look();
    }

    fn close(&self) {
        self.gate.close();
        self.release();
        self.gate.wait_empty();
        self.inner.close();
    }
}

impl Drop for Fault {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Release);
        drop(lock(&self.shared.answers));
        self.shared.changed.notify_one();
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fault").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl CompletionQueue for Shared {
    fn push(&self, completion: Completion) {
        let Completion { tag, result, buffer } = completion;
        let parked = lock(&self.parked).remove(&tag);
        if let Some(parked) = parked {
            self.schedule(parked, result, buffer);
        }
    }
}

impl Shared {
    fn schedule(&self, parked: Parked, result: Result<Outcome, Error>, buffer: Option<Vec<u8>>) {
        let due = parked.due;
        if due <= Instant::now() || self.ended.load(Ordering::Acquire) {
            parked.completer.complete(result, buffer);
            return;
        }
        let order = self.order.fetch_add(1, Ordering::Relaxed);
        let mut answers = lock(&self.answers);
        let is_first = answers.peek().is_none_or(|Reverse(first)| due < first.due);
        answers.push(Reverse(Answer { due, order, parked, result, buffer }));
        if is_first {
            drop(answers);
            self.changed.notify_one();
        }
    }

    /// The timer thread. At the end it delivers what is left without waiting.
    fn deliver(&self) {
        let mut due = Vec::new();
        let mut answers = lock(&self.answers);
        loop {
            let ended = self.ended.load(Ordering::Acquire);
            let now = Instant::now();
            while answers.peek().is_some_and(|Reverse(first)| ended || first.due <= now) {
                due.extend(answers.pop());
            }
            if !due.is_empty() {
                drop(answers);
                for Reverse(Answer { parked, result, buffer, .. }) in due.drain(..) {
                    let Parked { completer, pass, .. } = parked;
                    completer.complete(result, buffer);
                    drop(pass);
                }
                answers = lock(&self.answers);
                continue;
            }
            if ended {
                return;
            }
            answers = match answers.peek().map(|Reverse(first)| first.due - now) {
                Some(wait) => {
                    self.changed.wait_timeout(answers, wait).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(answers).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

impl PartialEq for Answer {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Answer {}

impl PartialOrd for Answer {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Answer {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due, self.order).cmp(&(other.due, other.order))
    }
}

/// Bytes that a request moves between gateway and store.
fn carried(request: &Request) -> usize {
    match request {
        Request::Read { buffer, .. }
        | Request::Write { buffer, .. }
        | Request::WriteAtomic { buffer, .. } => buffer.len(),
        Request::WriteSame { pattern, .. } => pattern.len(),
        Request::CompareAndWrite { compare, write, .. } => compare.len() + write.len(),
        _ => 0,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
