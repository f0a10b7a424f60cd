//! Devices made of ordinary files: everything but the kernel's own part.

mod standing;

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use proptest::prelude::*;

use super::device::open_failed;
use super::{Device, Events, FindError, Found, Identity, OpenDeviceReason, Tree};
use crate::protocol::{Geometry, mailbox};
use crate::shm::{Mapping, Words};
use crate::{Entry, Kick, NextError, Nexus, OpenError, Response, abi};

const RING: Geometry = Geometry { base: 128, size: 4096 - 128 };
const PAGE: u64 = 4096;

/// A page for the ring, and more for data; in whole pages of this machine.
fn len() -> u64 {
    (5 * PAGE).next_multiple_of(crate::shm::page_size() as u64)
}

fn identity(text: &str) -> Identity {
    Identity::parse(text).unwrap()
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A tree in a folder of its own.
struct Bench {
    root: tempfile::TempDir,
    tree: Tree,
}

impl Bench {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("sys/class/uio")).unwrap();
        Self { tree: Tree::at(root.path()), root }
    }

    fn set(&self, number: u32, attribute: &str, text: &str) {
        write(&self.root.path().join(format!("sys/class/uio/uio{number}/{attribute}")), text);
    }

    /// A device with a ring in it, and the ring as the kernel sees it.
    fn device(&self, number: u32, name: &str) -> Mapping {
        self.set(number, "name", &format!("{name}\n"));
        self.set(number, "maps/map0/size", &format!("{:#018x}\n", len()));
        self.set(number, "maps/map0/offset", "0x0\n");
        let node = self.root.path().join(format!("dev/uio{number}"));
        write(&node, "");
        let file = OpenOptions::new().read(true).write(true).open(node).unwrap();
        file.set_len(len()).unwrap();
        let memory = Mapping::new(&file, usize::try_from(len()).unwrap()).unwrap();
        mailbox::initialise(&memory, abi::MAILBOX_VERSION, abi::CAP_OOOC, RING);
        memory
    }

    fn find(&self, name: &str) -> Found {
        self.tree.find(&identity(name)).unwrap()
    }

    /// What is wrong with the only device, `tcm-user/0/a`, and that the message names it.
    fn refusal(&self) -> OpenDeviceReason {
        let error = self.find("tcm-user/0/a").open().unwrap_err();
        assert_eq!(error.to_string(), "uio0 (tcm-user/0/a) cannot be used");
        error.reason
    }
}

#[test]
fn a_name_is_read_with_whatever_the_owner_put_behind_it() {
    let found = identity("tcm-user/7/disk/rbd/pool/image;conf=/etc/ceph/ceph.conf\n");
    assert_eq!((found.hba, found.name.as_str()), (7, "disk"));
    assert_eq!(found.config, "rbd/pool/image;conf=/etc/ceph/ceph.conf");
    assert_eq!(identity("tcm-user/0/disk").config, "");
    for foreign in ["", "hv_vmbus", "tcm-user", "tcm-user/0", "tcm-user/0/", "tcm-user/x/a", "tcm-user/+1/a"]
    {
        assert_eq!(Identity::parse(foreign), None, "{foreign:?}");
    }
}

proptest! {
    #[test]
    fn any_name_is_read_as_it_is_written_or_not_at_all(text in "(tcm-user/)?[0-9]{0,12}/?\\PC{0,40}") {
        if let Some(found) = Identity::parse(&text) {
            prop_assert_eq!(Identity::parse(&found.to_string()), Some(found));
        }
    }
}

#[test]
fn a_device_is_found_by_who_it_is_among_others() {
    let bench = Bench::new();
    bench.set(0, "name", "uio_pci_generic\n");
    bench.set(10, "name", "tcm-user/0/a/rbd/one\n");
    bench.set(2, "name", "tcm-user/1/a/rbd/two\n");
    fs::create_dir(bench.root.path().join("sys/class/uio/uio3")).unwrap();
    let numbers: Vec<_> = bench.tree.devices().unwrap().iter().map(|found| found.number).collect();
    assert_eq!(numbers, [2, 10]);
    assert_eq!(bench.find("tcm-user/0/a/rbd/one").number, 10);
}

#[test]
fn a_backstore_of_another_owner_is_told_from_a_missing_one() {
    let bench = Bench::new();
    bench.set(4, "name", "tcm-user/0/a/other/disk\n");
    let foreign = bench.tree.find(&identity("tcm-user/0/a/rbd/disk")).unwrap_err();
    assert!(matches!(foreign, FindError::Foreign { number: 4, .. }), "{foreign:?}");
    assert!(foreign.to_string().starts_with("uio4 is tcm-user/0/a/other/disk, not tcm-user/0/a/rbd/disk"));
    let missing = bench.tree.find(&identity("tcm-user/0/b")).unwrap_err();
    assert_eq!(missing.to_string(), "there is no uio device tcm-user/0/b");
}

#[test]
fn a_machine_without_uio_has_no_devices() {
    let folder = tempfile::tempdir().unwrap();
    assert!(Tree::at(folder.path()).devices().unwrap().is_empty());
}

/// Bytes of a command without data: a response's worth, and a CDB rounded up to 8.
const COMMAND: u32 = 120;

/// TEST UNIT READY.
fn write_command(kernel: &Mapping, at: u32, id: u32) {
    for (word, value) in
        [(0, COMMAND | abi::op::CMD), (4, id), (24, RING.offset(at + 112)), (112, 0), (116, 0)]
    {
        kernel.store(RING.offset(at + word), value, Ordering::Relaxed);
    }
}

#[test]
fn a_command_of_the_kernel_is_taken_and_answered() {
    let bench = Bench::new();
    let kernel = bench.device(0, "tcm-user/0/a");
    let (device, mut consumer) = bench.find("tcm-user/0/a").open().unwrap();
    assert_eq!((device.number(), device.identity()), (0, &identity("tcm-user/0/a")));
    assert_eq!(consumer.capabilities(), abi::CAP_OOOC);

    write_command(&kernel, 0, 5);
    mailbox::set_head(&kernel, COMMAND);
    let Ok(Entry::Command(command)) = consumer.next() else { panic!("no command") };
    assert_eq!((command.id(), command.nexus(), command.cdb()), (5, Nexus::UNKNOWN, &[0; 6][..]));
    consumer.complete(command, Response::status(8));
    assert_eq!(consumer.commit(), Kick::Needed);
    assert_eq!((mailbox::tail(&kernel), kernel.load(RING.offset(8), Ordering::Relaxed)), (COMMAND, 8));
}

#[test]
fn a_size_that_is_no_ring_s_is_refused_before_it_is_mapped() {
    let bench = Bench::new();
    let _kernel = bench.device(0, "tcm-user/0/a");
    for size in ["0x0", "0x5001", "0x80", "0x20000000000", "0xfffffffffffff000"] {
        bench.set(0, "maps/map0/size", size);
        assert!(matches!(bench.refusal(), OpenDeviceReason::Map { offset: 0, .. }), "{size}");
    }
    for size in ["", "five", "0x", "0x10000000000000000", "4096"] {
        bench.set(0, "maps/map0/size", size);
        assert!(
            matches!(bench.refusal(), OpenDeviceReason::Attribute { text, .. } if text == size),
            "{size}"
        );
    }
    bench.set(0, "maps/map0/size", &format!("{:#x}", len()));
    bench.set(0, "maps/map0/offset", "0x10");
    assert!(matches!(bench.refusal(), OpenDeviceReason::Map { offset: 0x10, .. }));
}

#[test]
fn a_ring_that_is_cut_off_is_refused() {
    let bench = Bench::new();
    let kernel = bench.device(0, "tcm-user/0/a");
    let size = u32::try_from(len()).unwrap();
    mailbox::initialise(&kernel, abi::MAILBOX_VERSION, abi::CAP_OOOC, Geometry { base: 128, size });
    let reason = bench.refusal();
    assert!(matches!(reason, OpenDeviceReason::Ring(OpenError::Layout { .. })), "{reason:?}");
}

#[test]
fn a_ring_of_an_unknown_version_is_refused_by_its_number() {
    let bench = Bench::new();
    let kernel = bench.device(0, "tcm-user/0/a");
    mailbox::initialise(&kernel, 3, abi::CAP_OOOC, RING);
    assert_eq!(bench.refusal().to_string(), "the ring has mailbox version 3; only 2 is known");
}

#[test]
fn a_device_whose_number_went_to_another_is_not_opened_for_it() {
    let bench = Bench::new();
    let _kernel = bench.device(0, "tcm-user/0/a");
    let found = bench.find("tcm-user/0/a");
    bench.set(0, "name", "tcm-user/0/b\n");
    assert!(matches!(found.open().unwrap_err().reason, OpenDeviceReason::Removed));
}

#[test]
fn a_node_that_is_not_the_device_of_sysfs_is_refused() {
    let mut bench = Bench::new();
    let _kernel = bench.device(0, "tcm-user/0/a");
    bench.tree.are_devices = true;
    bench.set(0, "dev", "245:0\n");
    let reason = bench.refusal();
    assert!(
        matches!(&reason, OpenDeviceReason::OtherNode { expected, .. } if expected == "245:0"),
        "{reason:?}"
    );

    // The node of another device: /dev/zero, which can be mapped and is 1:5 on every Linux.
    let node = bench.root.path().join("dev/uio0");
    fs::remove_file(&node).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &node).unwrap();
    assert!(matches!(bench.refusal(), OpenDeviceReason::OtherNode { .. }));
    bench.set(0, "dev", "1:5\n");
    let reason = bench.refusal();
    assert!(matches!(reason, OpenDeviceReason::Ring(OpenError::Version(0))), "{reason:?}");
}

#[test]
fn a_node_that_cannot_be_opened_says_why() {
    let bench = Bench::new();
    bench.set(0, "name", "tcm-user/0/a\n");
    assert!(matches!(bench.refusal(), OpenDeviceReason::Node { .. }));
    let reason = |errno| open_failed(Path::new("/dev/uio0"), std::io::Error::from_raw_os_error(errno));
    assert!(matches!(reason(libc::EBUSY), OpenDeviceReason::Busy));
    assert!(matches!(reason(libc::ENODEV), OpenDeviceReason::Removed));
}

/// A device whose file is one end of a stream, and the kernel's end.
fn doorbells() -> (Device, UnixStream) {
    let (ours, kernel) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    (Device::new(File::from(OwnedFd::from(ours)), 0, identity("tcm-user/0/a")), kernel)
}

#[test]
fn events_are_cleared_and_waited_for() {
    let (device, mut kernel) = doorbells();
    assert_eq!(device.clear(), Events::None);
    assert_eq!(device.wait(Duration::from_millis(1)), Events::None);
    kernel.write_all(&1_u32.to_ne_bytes()).unwrap();
    assert_eq!(device.wait(Duration::MAX), Events::Some);
    assert_eq!(device.clear(), Events::None);
}

#[test]
fn a_kick_is_a_write_of_four_bytes() {
    let (device, mut kernel) = doorbells();
    assert!(device.kick());
    drop(device);
    let mut written = Vec::new();
    kernel.read_to_end(&mut written).unwrap();
    assert_eq!(written, [0; 4]);
}

#[test]
fn a_device_that_was_removed_says_so_in_both_directions() {
    let (device, kernel) = doorbells();
    drop(kernel);
    assert_eq!(device.wait(Duration::MAX), Events::Gone);
    assert!(!device.kick());
    crate::Doorbell::ring(&device);
}

#[test]
fn an_empty_ring_is_empty_not_broken() {
    let bench = Bench::new();
    let _kernel = bench.device(0, "tcm-user/0/a");
    let (_device, mut consumer) = bench.find("tcm-user/0/a").open().unwrap();
    assert!(matches!(consumer.next(), Err(NextError::Empty)));
}
