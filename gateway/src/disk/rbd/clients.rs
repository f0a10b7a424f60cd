//! The RADOS clients of the process, shared.
//!
//! A client is some 16 threads and one entry on a blocklist, so it is also what is fenced together: one per configuration,
//! user and pool (ARCHITECTURE section 6), made when the first image needs it and shut down with the last. One that has been
//! fenced is not given to anybody any more; the next image gets a new one.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use rbd::{Cluster, Config, ConnectError, Errno};

/// A connected client, and whether it still counts.
#[derive(Debug)]
pub struct Client {
    cluster: Cluster,
    fenced: AtomicBool,
}

impl Client {
    /// The connection.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Nothing sent through it lands any more.
    pub fn is_fenced(&self) -> bool {
        self.fenced.load(Ordering::Acquire)
    }

    /// Notes that an operation was answered as a blocklisted client's are.
    fn set_fenced(&self) {
        if !self.fenced.swap(true, Ordering::AcqRel) {
            tracing::error!(
                client = self.cluster.instance_id(),
                "blocklisted: nothing that this client sends lands"
            );
        }
    }
}

/// What has become of one disk's right to write. A blocklist entry is the client's and so of all its disks; a
/// lost lock is one image's.
#[derive(Debug)]
pub(super) struct Fence {
    client: Arc<Client>,
    lock_lost: AtomicBool,
    image: String,
}

impl Fence {
    pub(super) fn new(client: Arc<Client>, image: String) -> Self {
        Self { client, lock_lost: AtomicBool::new(false), image }
    }

    pub(super) fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// No request of this disk can change the image any more.
    pub(super) fn has_fallen(&self) -> bool {
        self.lock_lost.load(Ordering::Acquire) || self.client.is_fenced()
    }

    /// Notes what an errno of a fenced image tells.
    pub(super) fn fall(&self, errno: Errno) {
        if errno.0 == libc::ESHUTDOWN {
            self.client.set_fenced();
        } else if !self.lock_lost.swap(true, Ordering::AcqRel) {
            tracing::error!(image = self.image, %errno, "the exclusive lock is lost: this disk writes no more");
        }
    }
}

/// What clients are shared by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    conf: PathBuf,
    id: String,
    keyring: Option<PathBuf>,
    pool: String,
}

/// One client, behind a lock of its own: connecting to a cluster that does not answer keeps nobody else waiting.
type Slot = Arc<Mutex<Weak<Client>>>;

/// Clients by configuration, user and pool.
#[derive(Debug, Default)]
pub struct Clients {
    slots: Mutex<HashMap<Key, Slot>>,
}

impl Clients {
    /// Those that everything in this process shares.
    pub fn of_process() -> &'static Self {
        static CLIENTS: LazyLock<Clients> = LazyLock::new(Clients::default);
        &CLIENTS
    }

    /// The client for that pool; connects if there is none, or none that still counts.
    pub fn get(&self, config: &Config, pool: &str) -> Result<Arc<Client>, ConnectError> {
        let key = Key {
            conf: config.conf.clone(),
            id: config.id.clone(),
            keyring: config.keyring.clone(),
            pool: pool.to_owned(),
        };
        let slot = {
            let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(slots.entry(key).or_default())
        };
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = slot.upgrade().filter(|client| !client.is_fenced()) {
            return Ok(client);
        }
        let client = Arc::new(Client { cluster: Cluster::connect(config)?, fenced: AtomicBool::new(false) });
        *slot = Arc::downgrade(&client);
        Ok(client)
    }
}
