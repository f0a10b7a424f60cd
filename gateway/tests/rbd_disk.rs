//! The disk contract over RBD images, against a real Ceph (`containers/dev/test` provides one).

#[path = "../../rbd/tests/ceph/bench.rs"]
mod bench;
#[path = "rbd_disk/data_area.rs"]
mod data_area;
#[path = "rbd_disk/fencing.rs"]
mod fencing;
#[path = "rbd_disk/inbox.rs"]
mod inbox;
#[path = "rbd_disk/messages.rs"]
mod messages;

use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use bench::{OwnCeph, PATIENCE, eventually, pool, unique};
use inbox::{Bench, open, spec};
use rbdgate::disk::rbd::{Clients, RbdDisk, Spec};
use rbdgate::disk::{AllocationExtent, Disk, Error, Request};

const MIB: u64 = 1 << 20;

#[test]
fn ceph_what_is_written_is_read_back_and_the_rest_is_zeros() {
    let mut disk = Bench::new(8 * MIB);
    let data: Vec<u8> = (0..200_192_u32).map(|n| (n % 251) as u8).collect();
    disk.write(4 * MIB - 1024, &data).unwrap();
    assert_eq!(disk.read(4 * MIB - 1024, data.len()).unwrap(), data);
    assert_eq!(disk.read(0, 8192).unwrap(), vec![0; 8192]);
    disk.run(Request::Flush).unwrap();
}

#[test]
fn ceph_the_geometry_tells_of_thin_provisioning_and_one_block_compares() {
    let disk = Bench::new(8 * MIB);
    let geometry = disk.disk.geometry();
    assert_eq!((geometry.block_size, geometry.physical_block_size), (512, 4096));
    assert_eq!(geometry.optimal_io_size, 4 << 20);
    assert_eq!(geometry.compare_and_write, 512);
    let provisioning = geometry.provisioning.as_ref().unwrap();
    assert_eq!((provisioning.granularity, provisioning.alignment), (64 << 10, 0));
    assert!(provisioning.reads_zero);
    assert!(!geometry.volatile_cache && !geometry.read_only);
    let large = open(&Spec { block_size: 4096, ..spec(&unique("large"), Some(8 * MIB)) }).unwrap();
    assert_eq!(large.geometry().compare_and_write, 0);
}

#[test]
fn ceph_a_range_outside_is_refused_for_every_request() {
    let mut disk = Bench::new(MIB);
    let block = vec![0; 512];
    assert_eq!(disk.write(MIB - 512, &[0; 1024]), Err(Error::OutOfRange));
    assert_eq!(disk.read(MIB, 512), Err(Error::OutOfRange));
    assert_eq!(disk.read(MIB - 512, 1024), Err(Error::OutOfRange));
    for request in [
        Request::WriteSame { offset: MIB - 512, len: 1024, pattern: block.clone(), fua: false },
        Request::WriteZeroes { offset: MIB - 512, len: 1024, deallocate: true },
        Request::Discard { offset: MIB, len: 512 },
        Request::CompareAndWrite { offset: MIB, compare: block.clone(), write: block, fua: false },
        Request::Allocation { offset: MIB, len: 512, limit: 1 },
    ] {
        assert_eq!(disk.run(request).unwrap_err(), Error::OutOfRange);
    }
    assert_eq!(disk.read(MIB - 512, 512).unwrap(), vec![0; 512]);
}

#[test]
fn ceph_a_discard_leaves_zeros_whatever_its_size_and_alignment() {
    let mut disk = Bench::new(8 * MIB);
    for (offset, len) in [
        (4096, 4096),                   // less than librbd's granularity, which its discard would leave
        (512, 512),                     // a block
        (60 << 10, 200 << 10),          // whole units with a head and a tail
        (4 * MIB - 512, 1024),          // across two objects
        (0, 4 * MIB),                   // an object
        (4 * MIB + 512, 4 * MIB - 512), // an object but for its head
    ] {
        disk.write(0, &vec![7; 8 << 20]).unwrap();
        disk.run(Request::Discard { offset, len }).unwrap();
        let data = disk.read(0, 8 << 20).unwrap();
        for (at, byte) in data.iter().enumerate() {
            let inside = (offset..offset + len).contains(&(at as u64));
            assert_eq!(*byte, if inside { 0 } else { 7 }, "discard {offset}+{len}, byte {at}");
        }
    }
}

#[test]
fn ceph_a_discard_gives_objects_back_and_thick_zeroes_take_them() {
    let mut disk = Bench::new(16 * MIB);
    disk.write(4 * MIB, &vec![7; 4 << 20]).unwrap();
    let extent = |range, allocated| AllocationExtent { range, allocated };
    assert_eq!(
        disk.allocation(0, 16 * MIB, 16),
        [extent(0..4 * MIB, false), extent(4 * MIB..8 * MIB, true), extent(8 * MIB..16 * MIB, false)]
    );
    assert_eq!(disk.allocation(5 * MIB, 2 * MIB, 16), [extent(5 * MIB..7 * MIB, true)]);
    assert_eq!(disk.allocation(0, 16 * MIB, 1), [extent(0..4 * MIB, false)]);
    disk.run(Request::Discard { offset: 4 * MIB, len: 4 * MIB }).unwrap();
    assert_eq!(disk.allocation(0, 16 * MIB, 16), [extent(0..16 * MIB, false)]);
    disk.run(Request::WriteZeroes { offset: 0, len: 4 * MIB, deallocate: false }).unwrap();
    assert_eq!(disk.allocation(0, 8 * MIB, 16), [extent(0..4 * MIB, true), extent(4 * MIB..8 * MIB, false)]);
    disk.run(Request::WriteZeroes { offset: 0, len: 4 * MIB, deallocate: true }).unwrap();
    assert_eq!(disk.allocation(0, 8 * MIB, 16), [extent(0..8 * MIB, false)]);
    assert_eq!(disk.read(0, 8 << 20).unwrap(), vec![0; 8 << 20]);
}

#[test]
fn ceph_compare_and_write_writes_or_says_where_it_differs() {
    let mut disk = Bench::new(MIB);
    let caw = |compare, write| Request::CompareAndWrite { offset: 512, compare, write, fua: true };
    disk.run(caw(vec![0; 512], vec![1; 512])).unwrap();
    assert_eq!(disk.read(512, 512).unwrap(), vec![1; 512]);
    let mut differs = vec![1; 512];
    differs[77] = 0;
    assert_eq!(disk.run(caw(differs, vec![2; 512])).unwrap_err(), Error::Miscompare(77));
    assert_eq!(disk.run(caw(vec![1; 1024], vec![2; 1024])).unwrap_err(), Error::Unsupported);
    assert_eq!(disk.read(512, 512).unwrap(), vec![1; 512]);
}

#[test]
fn ceph_a_pattern_is_repeated() {
    let mut disk = Bench::new(MIB);
    let pattern: Vec<u8> = (0..512_u32).map(|n| n as u8).collect();
    disk.run(Request::WriteSame { offset: 512, len: 4096, pattern: pattern.clone(), fua: true }).unwrap();
    assert_eq!(disk.read(512, 4096).unwrap(), pattern.repeat(8));
    disk.run(Request::WriteSame { offset: 512, len: 1024, pattern: vec![0; 512], fua: false }).unwrap();
    assert_eq!(disk.read(512, 1024).unwrap(), vec![0; 1024]);
}

#[test]
fn ceph_a_resize_elsewhere_is_noticed_and_reported() {
    let name = unique("resize");
    let disk = open(&spec(&name, Some(8 * MIB))).unwrap();
    let (tell, told) = mpsc::channel();
    disk.on_resize(Box::new(move |size| tell.send(size).unwrap()));
    let other = pool().open_image(&name, &rbd::Open::default()).unwrap();
    other.resize(16 * MIB, false).unwrap();
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), 16 * MIB);
    assert_eq!(disk.size(), 16 * MIB);
    other.resize(4 * MIB + 100, true).unwrap();
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), 4 * MIB, "whole blocks only");
    assert_eq!(disk.size(), 4 * MIB);
    let mut bench = Bench::over(disk);
    assert_eq!(bench.write(8 * MIB, &[1; 512]), Err(Error::OutOfRange));
}

#[test]
fn ceph_a_disk_is_resized_through_the_gateway_and_a_read_only_one_finds_out_by_looking() {
    let name = unique("resized");
    let disk = open(&spec(&name, Some(8 * MIB))).unwrap();
    let reader = open(&Spec { read_only: true, ..spec(&name, None) }).unwrap();
    let listen = |disk: &RbdDisk| {
        let (tell, told) = mpsc::channel();
        disk.on_resize(Box::new(move |size| tell.send(size).unwrap()));
        told
    };
    let (told, reader_told) = (listen(&disk), listen(&reader));
    reader.look();
    assert_eq!((reader.is_told_of_resizes(), reader.size()), (false, 8 * MIB));
    disk.resize(16 * MIB, false).unwrap();
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), 16 * MIB);
    assert!(disk.resize(8 * MIB, false).is_err());
    assert!(reader.resize(32 * MIB, false).is_err());
    let mut bench = Bench::over(disk);
    bench.write(12 * MIB, &[7; 512]).unwrap();
    reader.look();
    assert_eq!(reader_told.recv_timeout(PATIENCE).unwrap(), 16 * MIB);
    let mut reader = Bench::over(reader);
    assert_eq!(reader.read(12 * MIB, 512).unwrap(), [7; 512]);
    bench.disk.resize(4 * MIB, true).unwrap();
    reader.disk.look();
    assert_eq!(reader_told.recv_timeout(PATIENCE).unwrap(), 4 * MIB);
    reader.disk.close();
    reader.disk.look();
    assert_eq!(reader.disk.size(), 0);
}

#[test]
fn ceph_closing_drains_lets_go_of_the_lock_and_refuses_what_comes_later() {
    let name = unique("close");
    let mut disk = Bench::over(open(&spec(&name, Some(64 * MIB))).unwrap());
    let tags: Vec<u64> = (0..16).map(|n| disk.start_write(n * MIB, vec![n as u8 + 1; 1 << 20])).collect();
    disk.disk.close();
    for tag in tags {
        disk.inbox.take(tag).result.unwrap();
    }
    assert_eq!(disk.write(0, &[0; 512]), Err(Error::NotReady));
    assert_eq!(disk.disk.size(), 0);
    disk.disk.close();
    let other = pool().open_image(&name, &rbd::Open::default()).unwrap();
    assert_eq!(other.lock_owner().unwrap(), None);
    assert_eq!(other.metadata("rbdgate.owner").unwrap(), None);
    drop(other);
    let mut next = Bench::over(open(&spec(&name, None)).unwrap());
    assert_eq!(next.read(15 * MIB, 512).unwrap(), vec![16; 512]);
}

#[test]
fn ceph_a_read_only_disk_refuses_writes_and_takes_no_lock() {
    let name = unique("ro");
    let owner = open(&spec(&name, Some(MIB))).unwrap();
    let mut owner = Bench::over(owner);
    owner.write(0, &[7; 512]).unwrap();
    let reader = open(&Spec { read_only: true, ..spec(&name, None) }).unwrap();
    // SBC-3: a write-protected unit is no less thin; an UNMAP there is DATA PROTECT, not an unknown command.
    assert!(reader.geometry().provisioning.is_some());
    let mut reader = Bench::over(reader);
    assert_eq!(reader.read(0, 512).unwrap(), vec![7; 512]);
    assert_eq!(reader.write(0, &[8; 512]), Err(Error::ReadOnly));
    assert_eq!(reader.run(Request::Discard { offset: 0, len: 512 }).unwrap_err(), Error::ReadOnly);
    owner.write(0, &[9; 512]).unwrap();
    assert_eq!(reader.read(0, 512).unwrap(), vec![9; 512]);
}

#[test]
fn ceph_disks_of_a_pool_share_a_client_and_the_last_one_ends_it() {
    let clients = Clients::default();
    let first = RbdDisk::open_with(&spec(&unique("share"), Some(MIB)), &clients).unwrap();
    let second = RbdDisk::open_with(&spec(&unique("share"), Some(MIB)), &clients).unwrap();
    assert!(Arc::ptr_eq(first.client(), second.client()));
    let id = first.client().cluster().instance_id();
    drop((first, second));
    let third = RbdDisk::open_with(&spec(&unique("share"), Some(MIB)), &clients).unwrap();
    assert_ne!(third.client().cluster().instance_id(), id);
}

#[test]
fn ceph_an_image_in_a_namespace_is_another_image() {
    let (namespace, name) = (unique("ns"), unique("image"));
    pool().create_namespace(&namespace).unwrap();
    let mut inside =
        Bench::over(open(&Spec { namespace: Some(namespace), ..spec(&name, Some(MIB)) }).unwrap());
    let mut outside = Bench::over(open(&spec(&name, Some(MIB))).unwrap());
    inside.write(0, &[1; 512]).unwrap();
    outside.write(0, &[2; 512]).unwrap();
    assert_eq!(inside.read(0, 512).unwrap(), vec![1; 512]);
}

#[test]
fn ceph_a_full_cluster_is_out_of_space_and_still_takes_discards() {
    let own = OwnCeph::up(&[]);
    let full = Spec { conf: own.conf(), ..spec("full", Some(64 * MIB)) };
    let mut disk = Bench::over(RbdDisk::open_with(&full, &Clients::default()).unwrap());
    disk.write(0, &vec![7; 1 << 20]).unwrap();
    // Anything is too much. OSDs tell the monitor every few seconds, and clients learn of it with the next map.
    for (what, ratio) in [("nearfull", "0.0000001"), ("backfillfull", "0.0000002"), ("full", "0.0000003")] {
        own.run("ceph", &["osd", &format!("set-{what}-ratio"), ratio]);
    }
    // A full pool refuses what would make it larger; overwriting goes on.
    let mut outcome = Ok(());
    let mut fresh = (4 * MIB..64 * MIB).step_by(4096);
    eventually("a write fails", || {
        outcome = disk.write(fresh.next().unwrap(), &[7; 4096]);
        outcome.is_err()
    });
    assert_eq!(outcome, Err(Error::NoSpace));
    assert_eq!(disk.read(0, 512).unwrap(), vec![7; 512]);
    disk.write(0, &[8; 512]).unwrap();
    disk.run(Request::Discard { offset: 0, len: 4 * MIB }).unwrap();
    assert_eq!(disk.read(0, 512).unwrap(), vec![0; 512]);
    for (what, ratio) in [("full", "0.95"), ("backfillfull", "0.90"), ("nearfull", "0.85")] {
        own.run("ceph", &["osd", &format!("set-{what}-ratio"), ratio]);
    }
    eventually("writes go on", || disk.write(60 * MIB, &[8; 4096]).is_ok());
}

#[test]
fn ceph_a_frozen_osd_delays_and_blocks_nobody_who_submits() {
    let own = OwnCeph::up(&[]);
    let frozen = Spec { conf: own.conf(), ..spec("frozen", Some(64 * MIB)) };
    let mut disk = Bench::over(RbdDisk::open_with(&frozen, &Clients::default()).unwrap());
    own.stop_osd();
    let started = Instant::now();
    let tags: Vec<u64> = (0..256).map(|n| disk.start_write(n * 65536, vec![n as u8; 65536])).collect();
    assert!(started.elapsed() < Duration::from_secs(20), "submitting has blocked");
    assert!(disk.inbox.is_empty());
    own.continue_osd();
    for tag in tags {
        disk.inbox.take(tag).result.unwrap();
    }
    assert_eq!(disk.read(255 * 65536, 65536).unwrap(), vec![255; 65536]);
}

#[test]
fn ceph_many_writers_at_once_end_each_once() {
    let mut disk = Bench::new(64 * MIB);
    let tags: Vec<u64> = (0..1024).map(|n| disk.start_write(n * 4096, vec![n as u8; 4096])).collect();
    for tag in tags {
        let completion = disk.inbox.take(tag);
        completion.result.unwrap();
        assert_eq!(completion.buffer.map(|buffer| buffer.len()), Some(4096));
    }
    assert!(disk.inbox.is_empty());
    assert_eq!(disk.read(1000 * 4096, 4096).unwrap(), vec![(1000 % 256) as u8; 4096]);
}
