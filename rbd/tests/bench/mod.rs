//! What the tests against a real Ceph share: the cluster, names of their own, and waiting for asynchronous I/O.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its own part of this")]

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rbd::{Bytes, Cluster, Compared, Config, Errno, Image, NewImage, Open, Pool};

/// Long enough for anything that ends at all.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The cluster's configuration; a test without one fails with what to do.
pub fn conf() -> PathBuf {
    std::env::var_os("RBDGATE_TEST_CEPH_CONF").map(PathBuf::from).expect(
        "RBDGATE_TEST_CEPH_CONF is not set, and this test needs a real Ceph: run containers/dev/test, or start one with \
         `AUTH=cephx containers/dev/ceph up DIR` and set RBDGATE_TEST_CEPH_CONF=DIR/ceph.conf",
    )
}

pub fn config() -> Config {
    Config::new(conf(), "admin")
}

/// A client of its own.
pub fn cluster() -> Cluster {
    Cluster::connect(&config()).unwrap()
}

pub fn pool() -> Pool {
    cluster().pool("rbd").unwrap()
}

/// A name that no other test has.
pub fn unique(what: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{what}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A new image, open for writing.
pub fn image(what: &str, size: u64) -> Image {
    image_with(what, NewImage::new(size))
}

pub fn image_with(what: &str, new: NewImage) -> Image {
    let (pool, name) = (pool(), unique(what));
    pool.create_image(&name, new).unwrap();
    pool.open_image(&name, &Open::default()).unwrap()
}

/// The part of a label after the pool.
pub fn name_of(image: &Image) -> String {
    image.label().rsplit('/').next().unwrap().to_owned()
}

/// The same image through another client.
pub fn again(image: &Image) -> Image {
    pool().open_image(&name_of(image), &Open::default()).unwrap()
}

/// Starts an operation and waits for its end.
pub fn wait<T: Send + 'static>(start: impl FnOnce(Box<dyn FnOnce(T) + Send>)) -> T {
    let (tell, told) = mpsc::channel();
    start(Box::new(move |result| tell.send(result).unwrap()));
    told.recv_timeout(PATIENCE).expect("the operation does not end")
}

pub fn read(image: &Image, offset: u64, len: usize) -> (Result<usize, Errno>, Vec<u8>) {
    // A pattern that no test writes, so that bytes that were not read show.
    let buffer = Bytes::from(vec![0xEE; len]);
    wait(|done| image.read(offset, buffer, move |result, buffer: Bytes| done((result, buffer.into_vec()))))
}

pub fn read_ok(image: &Image, offset: u64, len: usize) -> Vec<u8> {
    let (result, data) = read(image, offset, len);
    assert_eq!(result, Ok(len));
    data
}

pub fn write(image: &Image, offset: u64, data: Vec<u8>) -> Result<(), Errno> {
    wait(|done| image.write(offset, Bytes::from(data), move |result, _buffer| done(result)))
}

pub fn discard(image: &Image, offset: u64, len: u64) -> Result<(), Errno> {
    wait(|done| image.discard(offset, len, done))
}

pub fn write_zeroes(image: &Image, offset: u64, len: u64, thick: bool) -> Result<(), Errno> {
    wait(|done| image.write_zeroes(offset, len, thick, done))
}

pub fn write_same(image: &Image, offset: u64, len: u64, pattern: Vec<u8>) -> Result<(), Errno> {
    wait(|done| image.write_same(offset, len, pattern, move |result, _pattern| done(result)))
}

pub fn compare_and_write(
    image: &Image,
    offset: u64,
    expected: Vec<u8>,
    new: Vec<u8>,
) -> Result<Compared, Errno> {
    wait(|done| image.compare_and_write(offset, expected, new, done))
}

pub fn flush(image: &Image) -> Result<(), Errno> {
    wait(|done| image.flush(done))
}

/// A cluster that one test has alone, to break or to configure.
pub struct OwnCeph {
    folder: tempfile::TempDir,
}

impl OwnCeph {
    /// Starts one; `environment` as `containers/dev/ceph --help` has it.
    pub fn up(environment: &[(&str, &str)]) -> Self {
        let own = Self { folder: tempfile::tempdir().unwrap() };
        own.script("up", environment);
        own
    }

    pub fn conf(&self) -> PathBuf {
        self.folder.path().join("ceph/ceph.conf")
    }

    /// Runs one of Ceph's tools; its output.
    pub fn run(&self, tool: &str, arguments: &[&str]) -> String {
        let output = Command::new(tool).arg("-c").arg(self.conf()).args(arguments).output().unwrap();
        assert!(output.status.success(), "{tool} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
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
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
