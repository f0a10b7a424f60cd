//! What the tests against a real Ceph share, those of the disk adapter too: the cluster, and names of their own.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rbd::{Cluster, Config, Pool};

/// Long enough for anything that ends at all.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The cluster's configuration; a test without one fails with what to do.
pub(crate) fn conf() -> PathBuf {
    std::env::var_os("RBDGATE_TEST_CEPH_CONF").map(PathBuf::from).expect(
        "RBDGATE_TEST_CEPH_CONF is not set, and this test needs a real Ceph: run containers/dev/test, or start one with \
         `AUTH=cephx containers/dev/ceph up DIR` and set RBDGATE_TEST_CEPH_CONF=DIR/ceph.conf",
    )
}

pub(crate) fn config() -> Config {
    Config::new(conf(), "admin")
}

/// A client of its own.
pub(crate) fn cluster() -> Cluster {
    Cluster::connect(&config()).unwrap()
}

pub(crate) fn pool() -> Pool {
    cluster().pool("rbd").unwrap()
}

/// A name that no other test has, nor one of an earlier run whose process had the same number.
pub(crate) fn unique(what: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros();
    format!("{what}-{since:x}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A cluster that one test has alone, to break or to configure.
pub(crate) struct OwnCeph {
    folder: tempfile::TempDir,
}

impl OwnCeph {
    /// Starts one; `environment` as `containers/dev/ceph --help` has it.
    pub(crate) fn up(environment: &[(&str, &str)]) -> Self {
        let own = Self { folder: tempfile::tempdir().unwrap() };
        own.script("up", environment);
        own
    }

    pub(crate) fn conf(&self) -> PathBuf {
        self.folder.path().join("ceph/ceph.conf")
    }

    /// Runs one of Ceph's tools; its output.
    pub(crate) fn run(&self, tool: &str, arguments: &[&str]) -> String {
        let output = Command::new(tool).arg("-c").arg(self.conf()).args(arguments).output().unwrap();
        assert!(output.status.success(), "{tool} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Freezes the OSD: what is sent to it waits.
    pub(crate) fn stop_osd(&self) {
        self.signal_osd("-STOP");
        // The signal is sent when `kill` returns; threads on other processors may still run for a moment.
        let tasks = format!("/proc/{}/task", self.osd());
        let stopped = |task: std::io::Result<std::fs::DirEntry>| {
            let status = std::fs::read_to_string(task.unwrap().path().join("status")).unwrap();
            status.lines().any(|line| line.starts_with("State:\tT"))
        };
        let limit = Instant::now() + PATIENCE;
        while !std::fs::read_dir(&tasks).unwrap().all(stopped) {
            assert!(Instant::now() < limit, "the OSD does not stop");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub(crate) fn continue_osd(&self) {
        self.signal_osd("-CONT");
    }

    fn signal_osd(&self, signal: &str) {
        assert!(Command::new("kill").args([signal, &self.osd()]).status().unwrap().success());
    }

    /// Its process.
    fn osd(&self) -> String {
        let pid = std::fs::read_to_string(self.folder.path().join("ceph/run/osd.pid")).unwrap();
        pid.trim().to_owned()
    }

    fn script(&self, what: &str, environment: &[(&str, &str)]) {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../containers/dev/ceph");
        let mut command = Command::new(script);
        let output =
            command.arg(what).arg(self.folder.path().join("ceph")).envs(environment.iter().copied()).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

impl Drop for OwnCeph {
    fn drop(&mut self) {
        self.script("down", &[]);
    }
}

/// Waits until `condition` holds.
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
