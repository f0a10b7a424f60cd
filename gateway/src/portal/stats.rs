//! What all connections of a server share: the directory in force, counters, and how often they may log.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use arc_swap::ArcSwap;

use super::bank::{Bank, Standstill};
use super::login::Status;
use super::registry::Registry;
use super::target::{Directory, Limits};
use crate::nexus;

/// Log lines about peers per second; what is beyond is only counted.
const LINES_PER_SECOND: u32 = 20;

/// A snapshot of a server's counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// PDUs taken.
    pub pdus_in: u64,
    /// PDUs sent.
    pub pdus_out: u64,
    /// Bytes of data segments taken.
    pub bytes_in: u64,
    /// Bytes sent, headers included.
    pub bytes_out: u64,
    /// Bytes of SCSI Command, Data-Out and Data-In segments that went through a buffer of the portal instead of the
    /// command's blocks. A target that copies nothing stays at 0.
    pub bytes_copied: u64,
    /// Reject PDUs sent.
    pub rejects: u64,
    /// PDUs whose digest did not match.
    pub digest_errors: u64,
    /// Connections accepted.
    pub accepted: u64,
    /// Of them, closed at once because a limit was reached.
    pub refused: u64,
    /// Connections open now.
    pub connections: usize,
    /// Normal sessions open now.
    pub sessions: usize,
    /// Logins that succeeded.
    pub logins: u64,
    /// Logins that failed, by status.
    pub login_failures: BTreeMap<Status, u64>,
    /// Logins that ended without a status: time ran out, or the peer went away or spoke another protocol.
    pub logins_unfinished: u64,
}

/// The live counters.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pdus_in: AtomicU64,
    pdus_out: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    bytes_copied: AtomicU64,
    rejects: AtomicU64,
    digest_errors: AtomicU64,
    pub(super) accepted: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) logins: AtomicU64,
    pub(super) logins_unfinished: AtomicU64,
    login_failures: Mutex<BTreeMap<Status, u64>>,
}

fn add(counter: &AtomicU64, more: u64) {
    if more > 0 {
        counter.fetch_add(more, Ordering::Relaxed);
    }
}

impl Counters {
    pub(super) fn received(&self, pdus: u64) {
        add(&self.pdus_in, pdus);
    }

    pub(super) fn received_bytes(&self, bytes: usize) {
        add(&self.bytes_in, bytes as u64);
    }

    pub(super) fn sent(&self, pdus: u64, bytes: u64) {
        add(&self.pdus_out, pdus);
        add(&self.bytes_out, bytes);
    }

    pub(super) fn copied(&self, bytes: u64) {
        add(&self.bytes_copied, bytes);
    }

    pub(super) fn rejected(&self) {
        add(&self.rejects, 1);
    }

    pub(super) fn digest_error(&self) {
        add(&self.digest_errors, 1);
    }

    pub(super) fn login_failed(&self, status: Status) {
        let mut failures = self.login_failures.lock().unwrap_or_else(PoisonError::into_inner);
        *failures.entry(status).or_default() += 1;
    }

    pub(super) fn snapshot(&self) -> Stats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            pdus_in: get(&self.pdus_in),
            pdus_out: get(&self.pdus_out),
            bytes_in: get(&self.bytes_in),
            bytes_out: get(&self.bytes_out),
            bytes_copied: get(&self.bytes_copied),
            rejects: get(&self.rejects),
            digest_errors: get(&self.digest_errors),
            accepted: get(&self.accepted),
            refused: get(&self.refused),
            connections: 0,
            sessions: 0,
            logins: get(&self.logins),
            login_failures: self.login_failures.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            logins_unfinished: get(&self.logins_unfinished),
        }
    }
}

/// Bounds the log lines that peers can cause.
#[derive(Debug)]
struct LogLimit {
    window: Mutex<(Instant, u32)>,
}

/// What all connections of a server share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) stats: Counters,
    directory: ArcSwap<Directory>,
    pub(crate) registry: Registry,
    pub(crate) limits: Limits,
    pub(crate) nexuses: Arc<nexus::Table>,
    pub(crate) bank: Arc<Bank>,
    pub(crate) standstill: Standstill,
    log: LogLimit,
    stopping: AtomicBool,
}

impl Shared {
    pub(crate) fn new(directory: Directory, nexuses: Arc<nexus::Table>, limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            stats: Counters::default(),
            directory: ArcSwap::from_pointee(directory),
            registry: Registry::default(),
            limits,
            nexuses,
            bank: Arc::default(),
            standstill: Standstill::default(),
            log: LogLimit { window: Mutex::new((Instant::now(), 0)) },
            stopping: AtomicBool::new(false),
        })
    }

    /// What is served now.
    pub(crate) fn directory(&self) -> Arc<Directory> {
        self.directory.load_full()
    }

    pub(crate) fn set_directory(&self, directory: Directory) {
        self.directory.store(Arc::new(directory));
    }

    /// Whether a login that began under `directory` may still become a session. Asked after the session has been
    /// entered: whoever changes the directory or stops the server does so before looking for sessions to end.
    pub(crate) fn still(&self, directory: &Arc<Directory>) -> bool {
        !self.stopping.load(Ordering::SeqCst) && Arc::ptr_eq(&self.directory.load(), directory)
    }

    /// No login becomes a session any more.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
    }

    /// Whether one more line may be logged about what a peer did.
    pub(crate) fn may_log(&self) -> bool {
        let mut window = self.log.window.lock().unwrap_or_else(PoisonError::into_inner);
        if window.0.elapsed().as_secs() > 0 {
            *window = (Instant::now(), 0);
        }
        window.1 += 1;
        window.1 <= LINES_PER_SECOND
    }
}
