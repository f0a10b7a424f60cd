//! The RADOS clients of the process, shared.
//!
//! A client is some 16 threads and one entry on a blocklist, so it is also what is fenced together: one per configuration,
//! user and pool (ARCHITECTURE section 6), made when the first image needs it and shut down with the last. One that has been
//! fenced is not given to anybody any more; the next image gets a new one.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use rbd::{Cluster, Config, ConnectError};

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

    /// Notes that an operation was answered as a fenced client's are.
    pub(super) fn set_fenced(&self, image: &str) {
        if !self.fenced.swap(true, Ordering::AcqRel) {
            tracing::error!(
                image,
                client = self.cluster.instance_id(),
                "fenced: nothing of this client lands any more"
            );
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
