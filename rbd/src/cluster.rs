//! One client of one cluster: connecting, monitor commands, and the blocklist.
//!
//! A *client* is one `rados_t`: some 16 threads, one address, one entry on a blocklist. Everything opened through it
//! shares its fate when it is fenced, so who shares a client is a decision of its user.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Context, Errno, Error, Kind, Op};
use crate::ffi::cluster::ClusterHandle;
use crate::ffi::library::{Library, LoadError};

/// Where a cluster is and who we are there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The cluster's `ceph.conf`.
    pub conf: PathBuf,
    /// The user, without `client.`: `admin`.
    pub id: String,
    /// Its key, when the configuration does not say where it is.
    pub keyring: Option<PathBuf>,
    /// Ceph options that are set before connecting; they win over the file and over [`SETTINGS`].
    pub options: BTreeMap<String, String>,
}

impl Config {
    /// A configuration for `client.ID` with nothing special.
    pub fn new(conf: impl Into<PathBuf>, id: impl Into<String>) -> Self {
        Self { conf: conf.into(), id: id.into(), keyring: None, options: BTreeMap::new() }
    }
}

/// What every client of ours is set to, unless [`Config::options`] says otherwise.
pub const SETTINGS: &[(&str, &str)] = &[
    // Acknowledged data in a cache of this process would be lost on failover; and the cache copies.
    ("rbd_cache", "false"),
    // Zero-copy writes never complete once the lock is lost or the client is fenced (librbd 16 and 18), and a buffer that
    // changes meanwhile stops the connection. librbd's own copy costs 0.2 ms a MiB and neither can happen.
    ("rbd_disable_zero_copy_writes", "true"),
    // Hands operations to librbd's own threads: the submitter never blocks.
    ("rbd_non_blocking_aio", "true"),
    // The second client of a process could not bind the first one's socket path.
    ("admin_socket", ""),
    // Beyond these, librados *blocks* the thread that submits. The real limit is the data area, 2 GiB by default.
    ("objecter_inflight_ops", "65536"),
    ("objecter_inflight_op_bytes", "8589934592"),
    // A write that timed out may still land, so there is no timeout, only an operation that is slow.
    ("rados_osd_op_timeout", "0"),
    // But a cluster that is not there is an error, not a hang (seconds).
    ("client_mount_timeout", "10"),
    ("rados_mon_op_timeout", "30"),
    // Whoever breaks a lock cuts its owner off first.
    ("rbd_blocklist_on_break_lock", "true"),
];

/// Why there is no client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// librados or librbd cannot be used.
    #[error(transparent)]
    Library(#[from] LoadError),
    /// The cluster cannot be reached or refuses us.
    #[error(transparent)]
    Ceph(#[from] Error),
}

/// One entry of the blocklist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// `127.0.0.1:0/1234`.
    pub address: String,
    /// When it ends, in the cluster's words.
    pub until: String,
}

/// A connected client. Clones share it; the last one dropped shuts it down.
#[derive(Clone)]
pub struct Cluster {
    pub(crate) handle: Arc<ClusterHandle>,
    /// What messages call it: the configuration's path.
    label: Arc<str>,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("conf", &self.label).field("instance", &self.instance_id()).finish()
    }
}

impl Cluster {
    /// Connects. Blocks, for about 10 s when no monitor answers (`client_mount_timeout`).
    pub fn connect(config: &Config) -> Result<Self, ConnectError> {
        let library = Library::load()?;
        let label: Arc<str> = config.conf.display().to_string().into();
        let name = format!("client.{}", config.id);
        let mut handle = ClusterHandle::create(library, &name).context(Op::Connect, &label)?;
        // librados reports a missing file as it does many other things; ask the file system for the plain reason.
        std::fs::File::open(&config.conf)
            .map_err(|error| Errno(error.raw_os_error().unwrap_or(libc::EIO)))
            .and_then(|_file| handle.read_conf(&config.conf))
            .context(Op::Configure, &label)?;
        for (option, value) in SETTINGS {
            match handle.set_option(option, value) {
                // An option that this release does not have yet, or any more.
                Ok(()) | Err(Errno(libc::ENOENT)) => {}
                Err(errno) => return Err(Error::new(Op::SetOption, *option, errno).into()),
            }
        }
        if let Some(keyring) = &config.keyring {
            std::fs::File::open(keyring)
                .map_err(|error| Errno(error.raw_os_error().unwrap_or(libc::EIO)))
                .context(Op::Keyring, &keyring.display().to_string())?;
            handle.set_option("keyring", &keyring.display().to_string()).context(Op::SetOption, "keyring")?;
        }
        for (option, value) in &config.options {
            handle.set_option(option, value).context(Op::SetOption, option)?;
        }
        handle.connect().context(Op::Connect, &label).map_err(|error| match error.errno.0 {
            // What cephx makes of a user that does not exist, or of a wrong key.
            libc::EINVAL | libc::EPERM => error.with_kind(Kind::Permission),
            _ => error,
        })?;
        Ok(Self { handle: Arc::new(handle), label })
    }

    /// The cluster's identity.
    pub fn fsid(&self) -> Result<String, Error> {
        self.handle.fsid().context(Op::MonCommand, "fsid")
    }

    /// The number in `client.4123`, this client's name in watchers and lockers.
    pub fn instance_id(&self) -> u64 {
        self.handle.instance_id()
    }

    /// This client's address as the blocklist, lockers and watchers have it: `127.0.0.1:0/1234`.
    pub fn address(&self) -> Result<String, Error> {
        let all = self.handle.addresses().context(Op::Blocklist, "our own address")?;
        Ok(plain_address(&all).to_owned())
    }

    /// The value of a Ceph option.
    pub fn option(&self, name: &str) -> Result<String, Error> {
        self.handle.option(name).context(Op::SetOption, name)
    }

    /// The names of all pools.
    pub fn pools(&self) -> Result<Vec<String>, Error> {
        self.handle.pools().context(Op::MonCommand, "osd pool ls")
    }

    /// Sends a command to the monitors: JSON as `ceph --verbose` shows it, with its input. The answer's bytes.
    pub fn mon_command(&self, command: &str, input: &[u8]) -> Result<Vec<u8>, Error> {
        self.handle.mon_command(command, input).map_err(|(errno, said)| {
            let target = if said.is_empty() { command.to_owned() } else { format!("{command} ({said})") };
            Error::new(Op::MonCommand, target, errno)
        })
    }

    /// Cuts a client off: nothing that it sends takes effect on an OSD that knows this. See
    /// [`wait_for_latest_osdmap`](Self::wait_for_latest_osdmap).
    pub fn blocklist(&self, address: &str, expiry: Duration) -> Result<(), Error> {
        let seconds = u32::try_from(expiry.as_secs()).unwrap_or(u32::MAX).max(1);
        if let Some(outcome) = self.handle.blocklist_add(address, seconds) {
            return outcome.context(Op::Blocklist, address);
        }
        // librados before 16, whose clusters know the command by its old name.
        let command = format!(
            r#"{{"prefix":"osd blacklist","blacklistop":"add","addr":{},"expire":{seconds}.0}}"#,
            json(address)
        );
        self.blocklist_command(&command, address)
    }

    /// Takes an entry back. That there is none is no error.
    pub fn unblocklist(&self, address: &str) -> Result<(), Error> {
        let command = format!(r#"{{"prefix":"osd blocklist","blocklistop":"rm","addr":{}}}"#, json(address));
        match self.blocklist_command(&command, address) {
            Err(error) if error.kind == Kind::NotFound => Ok(()),
            outcome => outcome,
        }
    }

    /// Everybody who is cut off.
    pub fn blocklisted(&self) -> Result<Vec<Blocked>, Error> {
        let answer = self.mon_command(r#"{"prefix":"osd blocklist ls"}"#, &[])?;
        Ok(blocked(&String::from_utf8_lossy(&answer)))
    }

    fn blocklist_command(&self, command: &str, address: &str) -> Result<(), Error> {
        self.handle
            .mon_command(command, &[])
            .map(drop)
            .map_err(|(errno, _said)| Error::new(Op::Blocklist, address, errno))
    }

    /// Waits until this client has the newest map of the cluster. From then on an OSD that it talks to has at least that
    /// map, too, so it has seen a blocklist entry that was made before.
    pub fn wait_for_latest_osdmap(&self) -> Result<(), Error> {
        self.handle.wait_for_latest_osdmap().context(Op::Blocklist, "the newest OSD map")
    }
}

/// Lines `ADDRESS UNTIL`, ending with one that counts them.
fn blocked(answer: &str) -> Vec<Blocked> {
    let entry = |line: &str| {
        let (address, until) = line.trim().split_once(char::is_whitespace)?;
        let is_address = address.contains(':') && address.contains('/');
        is_address
            .then(|| Blocked { address: plain_address(address).to_owned(), until: until.trim().to_owned() })
    };
    answer.lines().filter_map(entry).collect()
}

/// The first address out of C's various ways to write them: `A`, `v1:A`, `[v2:A,v1:A]`.
pub fn plain_address(written: &str) -> &str {
    const PREFIXES: [&str; 3] = ["v1:", "v2:", "any:"];
    // Brackets round a list, not those of an IPv6 address.
    let list =
        written.strip_prefix('[').filter(|rest| PREFIXES.iter().any(|prefix| rest.starts_with(prefix)));
    let list = list.map_or(written, |rest| rest.strip_suffix(']').unwrap_or(rest));
    let first = list.split(',').next().unwrap_or_default();
    PREFIXES.iter().find_map(|prefix| first.strip_prefix(prefix)).unwrap_or(first)
}

/// A text as a JSON string.
fn json(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c < ' ' => quoted.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_the_same_however_ceph_writes_it() {
        for written in
            ["10.0.0.1:0/77", "v1:10.0.0.1:0/77", "v2:10.0.0.1:0/77", "[v2:10.0.0.1:0/77,v1:10.0.0.1:0/77]"]
        {
            assert_eq!(plain_address(written), "10.0.0.1:0/77", "{written}");
        }
        for written in ["[::1]:0/7", "v2:[::1]:0/7"] {
            assert_eq!(plain_address(written), "[::1]:0/7", "{written}");
        }
    }

    #[test]
    fn the_blocklist_is_read_without_its_last_line() {
        let answer = "10.0.0.1:0/77 2026-12-01T16:00:00.000000+0000\nlisted 1 entries\n";
        let entry =
            Blocked { address: "10.0.0.1:0/77".into(), until: "2026-12-01T16:00:00.000000+0000".into() };
        assert_eq!(blocked(answer), [entry]);
        assert_eq!(blocked(""), []);
        assert_eq!(blocked("listed 0 entries"), []);
    }

    #[test]
    fn a_quoted_text_cannot_leave_its_json_string() {
        assert_eq!(json("a\"b\\c\n"), r#""a\"b\\c\u000a""#);
    }

    #[test]
    fn a_configuration_that_is_not_there_is_one_sentence_that_says_so() {
        if Library::load().is_err() {
            return; // Without the library the answer is about the library; its own tests look at that.
        }
        let error =
            Cluster::connect(&Config::new("/nonexistent/ceph.conf", "admin")).unwrap_err().to_string();
        assert!(error.starts_with(
            "cannot read the Ceph configuration /nonexistent/ceph.conf: the file does not exist"
        ));
    }
}
