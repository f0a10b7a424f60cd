//! One owner at a time: who is refused, who is fenced, and what the fenced one gets.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rbd::{Image, Open};
use rbdgate::disk::rbd::{Clients, OpenError, RbdDisk};
use rbdgate::disk::{Disk, Error, Request};

use crate::bench::{self, pool, unique};
use crate::inbox::{Bench, open, spec};

const MIB: u64 = 1 << 20;

fn other(name: &str) -> Image {
    pool().open_image(name, &Open::default()).unwrap()
}

#[test]
fn ceph_a_living_owner_is_named_and_keeps_the_image() {
    let name = unique("inuse");
    let mut owner = Bench::over(open(&spec(&name, Some(MIB))).unwrap());
    let address = owner.disk.client().cluster().address().unwrap();
    let started = Instant::now();
    let Err(OpenError::InUse { owner: named, .. }) = open(&spec(&name, None)) else {
        panic!("must be in use")
    };
    assert!(named.contains(&address), "{named}");
    assert!(started.elapsed() < Duration::from_secs(20), "a living owner answers at once");
    owner.write(0, &[1; 512]).unwrap();
}

#[test]
fn ceph_an_ordinary_client_at_work_is_not_robbed() {
    // It would hand its lock over if it were asked.
    let name = unique("inuse");
    drop(open(&spec(&name, Some(MIB))).unwrap());
    let client = other(&name);
    // As any change does, this takes the lock.
    client.set_metadata("a", "b").unwrap();
    assert!(client.owns_lock().unwrap());
    assert!(matches!(open(&spec(&name, None)), Err(OpenError::InUse { .. })));
    assert!(client.owns_lock().unwrap());
}

#[test]
fn ceph_the_same_image_twice_in_one_process_is_refused_as_such() {
    let (name, clients) = (unique("twice"), Clients::default());
    let _first = RbdDisk::open_with(&spec(&name, Some(MIB)), &clients).unwrap();
    let Err(error) = RbdDisk::open_with(&spec(&name, None), &clients) else { panic!("must be in use") };
    assert!(error.to_string().contains("another disk of this very process"), "{error}");
}

#[test]
fn ceph_a_fenced_disk_answers_fenced_and_its_client_is_not_used_again() {
    let (name, clients) = (unique("fence"), Clients::default());
    let mut disk = Bench::over(RbdDisk::open_with(&spec(&name, Some(MIB)), &clients).unwrap());
    disk.write(0, &[1; 512]).unwrap();
    let successor = other(&name);
    let owner = successor.lock_owner().unwrap().unwrap();
    successor.fence(&owner).unwrap();
    successor.acquire_lock().unwrap();
    assert_eq!(disk.write(0, &[2; 512]), Err(Error::Fenced));
    assert_eq!(disk.read(0, 512), Err(Error::Fenced));
    assert_eq!(disk.run(Request::Flush).unwrap_err(), Error::Fenced);
    assert!(disk.disk.client().is_fenced());
    let next = RbdDisk::open_with(&spec(&unique("fence"), Some(MIB)), &clients).unwrap();
    assert!(!next.client().is_fenced());
    let started = Instant::now();
    disk.disk.close();
    assert!(started.elapsed() < Duration::from_secs(20), "a fenced disk closes");
    successor.close(bench::PATIENCE).unwrap();
    let mut next = Bench::over(open(&spec(&name, None)).unwrap());
    assert_eq!(next.read(0, 512).unwrap(), vec![1; 512]);
}

#[test]
fn ceph_disks_of_a_fenced_client_fall_together_and_a_question_notices_too() {
    let (name, clients) = (unique("fence"), Clients::default());
    let mut asked = Bench::over(RbdDisk::open_with(&spec(&name, Some(MIB)), &clients).unwrap());
    let mut idle = Bench::over(RbdDisk::open_with(&spec(&unique("fence"), Some(MIB)), &clients).unwrap());
    let address = asked.disk.client().cluster().address().unwrap();
    other(&name).fence(&address).unwrap();
    let question = Request::Allocation { offset: 0, len: MIB, limit: 4 };
    bench::eventually("the question is answered so", || {
        let question = Request::Allocation { offset: 0, len: MIB, limit: 4 };
        matches!(asked.run(question), Err(Error::Fenced))
    });
    assert_eq!(asked.run(question).unwrap_err(), Error::Fenced);
    assert_eq!(idle.read(0, 512), Err(Error::Fenced));
}

#[test]
fn ceph_writes_in_flight_when_the_fence_falls_all_end() {
    let name = unique("fence");
    let mut disk = Bench::over(open(&spec(&name, Some(64 * MIB))).unwrap());
    let successor = other(&name);
    let owner = successor.lock_owner().unwrap().unwrap();
    let early: Vec<u64> = (0..64).map(|n| disk.start_write(n % 16 * MIB, vec![1; 64 << 10])).collect();
    successor.fence(&owner).unwrap();
    let late: Vec<u64> = (0..64).map(|n| disk.start_write(n % 16 * MIB, vec![1; 64 << 10])).collect();
    for tag in early {
        let result = disk.inbox.take(tag).result.map(drop);
        assert!(matches!(result, Ok(()) | Err(Error::Fenced)), "{result:?}");
    }
    for tag in late {
        assert_eq!(disk.inbox.take(tag).result.map(drop), Err(Error::Fenced));
    }
}

#[test]
fn ceph_a_lock_that_is_merely_broken_stops_nobody() {
    // Which is why a fence begins with the blocklist. Should this fail, librbd has learnt to notice.
    let name = unique("broken");
    let mut disk = Bench::over(open(&spec(&name, Some(MIB))).unwrap());
    let mut config = bench::config();
    config.options.insert("rbd_blocklist_on_break_lock".into(), "false".into());
    let careless = rbd::Cluster::connect(&config).unwrap().pool("rbd").unwrap();
    let careless = careless.open_image(&name, &Open::default()).unwrap();
    careless.break_lock(&careless.lock_owner().unwrap().unwrap()).unwrap();
    careless.acquire_lock().unwrap();
    disk.write(0, &[1; 512]).unwrap();
    careless.fence(&disk.disk.client().cluster().address().unwrap()).unwrap_err(); // it owns the lock itself
    bench::eventually("the blocklist stops it", || disk.write(0, &[1; 512]) == Err(Error::Fenced));
}

/// A gateway of its own, in a process of its own: this test binary, run for the one test below.
struct Gateway {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Gateway {
    fn start(name: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "fencing::ceph_the_other_process", "--nocapture"])
            .env("RBDGATE_TEST_HOLD", name)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (to, from) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut gateway = Self { child, to, from };
        gateway.expect("holding");
        gateway
    }

    fn expect(&mut self, what: &str) {
        let mut line = String::new();
        while !line.starts_with(what) {
            line.clear();
            assert_ne!(self.from.read_line(&mut line).unwrap(), 0, "the other process ended before {what:?}");
        }
    }

    fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        nix::sys::signal::kill(pid, signal).unwrap();
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Not a test of its own: what [`Gateway`] runs.
#[test]
fn ceph_the_other_process() {
    let Ok(name) = std::env::var("RBDGATE_TEST_HOLD") else { return };
    let mut disk = Bench::over(open(&spec(&name, Some(64 * MIB))).unwrap());
    disk.write(0, &[7; 512]).unwrap();
    println!("holding");
    // Writes when told to, for as long as its parent lives.
    for _line in std::io::stdin().lines() {
        match disk.write(0, &[8; 512]) {
            Err(Error::Fenced) => println!("fenced"),
            other => println!("{other:?}"),
        }
    }
}

#[test]
fn ceph_a_predecessor_killed_on_this_host_is_fenced_without_waiting_for_its_watch() {
    let name = unique("killed");
    let mut gateway = Gateway::start(&name);
    gateway.child.kill().unwrap();
    gateway.child.wait().unwrap();
    let started = Instant::now();
    let mut disk = Bench::over(open(&spec(&name, None)).unwrap());
    let took = started.elapsed();
    // Its watch would have lasted 30 s.
    assert!(took < Duration::from_secs(20), "{took:?}");
    assert_eq!(disk.read(0, 512).unwrap(), vec![7; 512]);
    disk.write(0, &[9; 512]).unwrap();
}

#[test]
fn ceph_a_silent_owner_is_waited_for_and_fenced_when_ceph_gives_it_up() {
    let name = unique("paused");
    let mut gateway = Gateway::start(&name);
    let former = other(&name).lock_owner().unwrap().unwrap();
    gateway.signal(nix::sys::signal::Signal::SIGSTOP);
    let mut disk = Bench::over(open(&spec(&name, None)).unwrap());
    disk.write(0, &[9; 512]).unwrap();
    let blocked = disk.disk.client().cluster().blocklisted().unwrap();
    assert!(blocked.iter().any(|entry| entry.address == former), "{blocked:?}");
    gateway.signal(nix::sys::signal::Signal::SIGCONT);
    gateway.to.write_all(b"write\n").unwrap();
    gateway.expect("fenced");
    assert_eq!(disk.read(0, 512).unwrap(), vec![9; 512]);
}
