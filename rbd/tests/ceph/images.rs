//! Images, clusters and locks against a real Ceph.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use rbd::{CloseError, Cluster, ConnectError, Errno, Features, Kind, NewImage, Open, SETTINGS};

use crate::bench::*;
use crate::io::*;

const MIB: u64 = 1 << 20;

#[test]
fn an_image_is_made_with_what_is_asked_for_and_listed() {
    let new = NewImage {
        features: Features::DEFAULT.union(Features::STRIPING),
        order: Some(20),
        stripes: Some((64 << 10, 4)),
        ..NewImage::new(10 * MIB)
    };
    let image = image_with("layout", new);
    assert_eq!(image.size().unwrap(), 10 * MIB);
    assert_eq!(image.object_size().unwrap(), MIB);
    assert_eq!(image.stripes().unwrap(), (64 << 10, 4));
    assert!(image.features().unwrap().contains(new.features));
    assert!(image.pool().images().unwrap().contains(&name_of(&image)));
    let again = image.pool().create_image(&name_of(&image), NewImage::new(MIB)).unwrap_err();
    assert_eq!(again.kind, Kind::Exists);
}

#[test]
fn more_images_than_the_first_guess_are_listed() {
    let client = cluster();
    let namespace = unique("many");
    client.pool("rbd").unwrap().create_namespace(&namespace).unwrap();
    let pool = client.pool_namespace("rbd", &namespace).unwrap();
    assert_eq!(pool.images().unwrap(), Vec::<String>::new());
    let mut names: Vec<String> = (0..70).map(|n| format!("image-{n:02}")).collect();
    for name in &names {
        pool.create_image(name, NewImage { features: Features::LAYERING, ..NewImage::new(MIB) }).unwrap();
    }
    let mut listed = pool.images().unwrap();
    listed.sort();
    assert_eq!(listed, names);
    pool.remove_image(&names.remove(0)).unwrap();
    assert_eq!(pool.images().unwrap().len(), 69);
}

#[test]
fn what_is_missing_is_said_in_one_sentence() {
    let client = cluster();
    let pool = client.pool("nowhere").unwrap_err();
    assert_eq!(pool.kind, Kind::NotFound);
    assert!(pool.to_string().contains("there is no such pool"), "{pool}");
    let rbd = client.pool("rbd").unwrap();
    let image = rbd.open_image("nowhere", &Open::default()).unwrap_err();
    assert!(
        image.to_string().starts_with("cannot open the image rbd/nowhere: there is no such image"),
        "{image}"
    );
    let snapshot = crate::io::image("snap", MIB);
    let how = Open { snapshot: Some("none".into()), ..Open::default() };
    assert_eq!(rbd.open_image(&name_of(&snapshot), &how).unwrap_err().kind, Kind::NotFound);
    assert_eq!(rbd.remove_image("nowhere").unwrap_err().kind, Kind::NotFound);
}

#[test]
fn metadata_is_kept_with_the_image() {
    let image = image("meta", MIB);
    assert_eq!(image.metadata("a").unwrap(), None);
    let long = "x".repeat(5000);
    image.set_metadata("a", "1").unwrap();
    image.set_metadata("b", &long).unwrap();
    image.set_metadata("c", "").unwrap();
    assert_eq!(image.metadata("b").unwrap(), Some(long.clone()));
    let pairs = image.list_metadata("", 10).unwrap();
    assert_eq!(pairs, [("a".into(), "1".into()), ("b".into(), long), ("c".into(), String::new())]);
    assert_eq!(image.list_metadata("a", 1).unwrap()[0].0, "b");
    image.remove_metadata("a").unwrap();
    assert_eq!(image.metadata("a").unwrap(), None);
}

#[test]
fn a_resize_elsewhere_is_noticed_and_widens_what_may_be_written() {
    let image = image("resize", MIB);
    let (tell, told) = mpsc::channel();
    image.on_resize(Box::new(move |size| tell.send(size).unwrap()));
    let other = again(&image);
    other.resize(4 * MIB, false).unwrap();
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), 4 * MIB);
    assert_eq!(image.known_size(), 4 * MIB);
    write(&image, 3 * MIB, vec![1; 512]).unwrap();
    assert_eq!(other.resize(MIB, false).unwrap_err().kind, Kind::Invalid, "shrinking wants to be asked for");
    other.resize(MIB, true).unwrap();
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), MIB);
    assert_eq!(write(&image, 3 * MIB, vec![1; 512]), Err(rbd::OUT_OF_RANGE));
}

#[test]
fn a_resize_while_the_lock_is_held_is_done_by_the_owner_and_noticed() {
    let image = image("resize", MIB);
    image.acquire_lock().unwrap();
    let (tell, told) = mpsc::channel();
    image.on_resize(Box::new(move |size| tell.send(size).unwrap()));
    again(&image).resize(2 * MIB, false).unwrap();
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), 2 * MIB);
    assert!(image.owns_lock().unwrap());
}

#[test]
fn a_snapshot_keeps_what_was_and_the_image_returns_to_it() {
    let image = image("snap", 8 * MIB);
    write(&image, 0, vec![1; 4096]).unwrap();
    image.create_snapshot("before").unwrap();
    write(&image, 0, vec![2; 4096]).unwrap();
    let list = image.snapshots().unwrap();
    assert_eq!((list.len(), list[0].name.as_str(), list[0].size), (1, "before", 8 * MIB));
    let how = Open { snapshot: Some("before".into()), ..Open::default() };
    let snapshot = image.pool().open_image(&name_of(&image), &how).unwrap();
    assert_eq!(read_ok(&snapshot, 0, 4096), vec![1; 4096]);
    assert_eq!(write(&snapshot, 0, vec![3; 512]), Err(Errno(libc::EROFS)));
    assert_eq!(snapshot.classify(Errno(libc::EROFS)), Kind::ReadOnly);
    drop(snapshot);
    image.roll_back("before").unwrap();
    assert_eq!(read_ok(&image, 0, 4096), vec![1; 4096]);
    image.remove_snapshot("before").unwrap();
    assert_eq!(image.snapshots().unwrap(), []);
    assert_eq!(image.remove_snapshot("before").unwrap_err().kind, Kind::NotFound);
}

#[test]
fn more_snapshots_than_the_first_guess_are_listed() {
    let image = image("snaps", MIB);
    for n in 0..35 {
        image.create_snapshot(&format!("s{n:02}")).unwrap();
    }
    let names: Vec<String> = image.snapshots().unwrap().into_iter().map(|snapshot| snapshot.name).collect();
    assert_eq!(names.len(), 35);
    assert_eq!(names[34], "s34");
}

#[test]
fn allocation_is_told_object_by_object_until_the_caller_has_enough() {
    let image = image("alloc", 32 * MIB);
    for object in [1, 2, 5] {
        write(&image, object * 4 * MIB, vec![1; 512]).unwrap();
    }
    let mut found = Vec::new();
    image
        .allocated(0, 32 * MIB, |offset, len| {
            found.push(offset..offset + len);
            true
        })
        .unwrap();
    let objects: Vec<u64> =
        found.iter().flat_map(|range| range.clone().step_by(4 << 20)).map(|at| at / (4 * MIB)).collect();
    assert_eq!(objects, [1, 2, 5]);
    let mut calls = 0;
    image
        .allocated(0, 32 * MIB, |_offset, _len| {
            calls += 1;
            false
        })
        .unwrap();
    assert_eq!(calls, 1);
}

#[test]
fn an_image_opened_for_reading_refuses_writes_and_is_no_watcher() {
    let image = image("ro", MIB);
    write(&image, 0, vec![7; 512]).unwrap();
    let how = Open { read_only: true, ..Open::default() };
    let reader = cluster().pool("rbd").unwrap().open_image(&name_of(&image), &how).unwrap();
    assert_eq!(read_ok(&reader, 0, 512), vec![7; 512]);
    assert_eq!(write(&reader, 0, vec![1; 512]), Err(Errno(libc::EROFS)));
    assert_eq!(discard(&reader, 0, 512), Err(Errno(libc::EROFS)));
    assert_eq!(image.watchers().unwrap().len(), 1);
}

#[test]
fn an_owner_keeps_its_lock_when_another_asks() {
    let owner = image("lock", MIB);
    owner.acquire_lock().unwrap();
    owner.acquire_lock().unwrap();
    let other = again(&owner);
    let refused = other.acquire_lock().unwrap_err();
    assert_eq!((refused.kind, refused.errno.0), (Kind::ReadOnly, libc::EROFS));
    assert!(refused.to_string().contains("another client holds it"), "{refused}");
    // Never having had the lock, it is refused, not fenced.
    let errno = write(&other, 0, vec![1; 512]).unwrap_err();
    assert_eq!(other.classify(errno), Kind::ReadOnly);
    assert_eq!(other.lock_owner().unwrap(), Some(owner.pool().cluster().address().unwrap()));
    owner.release_lock().unwrap();
    other.acquire_lock().unwrap();
    assert!(!owner.owns_lock().unwrap());
    // Having had it, the same errno is a fence.
    owner.release_lock().unwrap_or_default();
    assert_eq!(other.classify(Errno(libc::EROFS)), Kind::Fenced);
}

#[test]
fn a_fenced_owner_gets_the_fence_for_everything_and_closes() {
    let owner = image("fence", MIB);
    owner.acquire_lock().unwrap();
    write(&owner, 0, vec![1; 512]).unwrap();
    let successor = again(&owner);
    let address = successor.lock_owner().unwrap().unwrap();
    successor.fence(&address).unwrap();
    successor.acquire_lock().unwrap();
    for errno in [
        write(&owner, 0, vec![2; 512]).unwrap_err(),
        read(&owner, 0, 512).0.unwrap_err(),
        discard(&owner, 0, 512).unwrap_err(),
        write_zeroes(&owner, 0, 512, false).unwrap_err(),
        write_same(&owner, 0, 512, vec![3; 512]).unwrap_err(),
        compare_and_write(&owner, 0, vec![1; 512], vec![3; 512]).unwrap_err(),
        flush(&owner).unwrap_err(),
    ] {
        assert_eq!(owner.classify(errno), Kind::Fenced, "{errno}");
    }
    assert!(owner.set_metadata("a", "b").unwrap_err().is_fenced());
    assert_eq!(read_ok(&successor, 0, 512), vec![1; 512]);
    assert_eq!(owner.close(PATIENCE), Ok(()));
    let cluster = successor.pool().cluster();
    assert!(cluster.blocklisted().unwrap().iter().any(|entry| entry.address == address));
    cluster.unblocklist(&address).unwrap();
    cluster.unblocklist(&address).unwrap();
    assert!(!cluster.blocklisted().unwrap().iter().any(|entry| entry.address == address));
}

#[test]
fn a_living_watcher_answers() {
    let owner = image("alive", MIB);
    let other = again(&owner);
    let watchers = other.watchers().unwrap();
    assert_eq!(watchers.len(), 2);
    for watcher in &watchers {
        assert!(other.alive(watcher, PATIENCE).unwrap());
    }
    let nobody = rbd::Watcher { cookie: 1, ..watchers[0].clone() };
    assert!(!other.alive(&nobody, PATIENCE).unwrap());
}

#[test]
fn breaking_the_lock_of_somebody_else_than_its_owner_breaks_nothing() {
    let owner = image("break", MIB);
    owner.break_lock("127.0.0.1:0/1").unwrap(); // nobody has it
    owner.acquire_lock().unwrap();
    assert_eq!(again(&owner).break_lock("127.0.0.1:0/1").unwrap_err().kind, Kind::Busy);
    assert!(owner.owns_lock().unwrap());
}

#[test]
fn closing_with_an_operation_that_does_not_end_gives_up_in_time_and_leaves_the_image_open() {
    let own = OwnCeph::up(&[]);
    own.run("rbd", &["create", "--size", "1M", "stuck"]);
    let client = Cluster::connect(&rbd::Config::new(own.conf(), "admin")).unwrap();
    let image = client.pool("rbd").unwrap().open_image("stuck", &Open::default()).unwrap();
    write(&image, 0, vec![1; 512]).unwrap();
    own.stop_osd();
    let (tell, told) = mpsc::channel();
    let buffer = rbd::Bytes::from(vec![2; 512]);
    image.write(0, buffer, move |result, _buffer| tell.send(result).unwrap());
    let started = Instant::now();
    let error = image.close(Duration::from_secs(1)).unwrap_err();
    assert_eq!(error, CloseError::InFlight { image: "rbd/stuck".into(), count: 1 });
    assert!(started.elapsed() < PATIENCE);
    assert!(told.try_recv().is_err(), "its memory still belongs to librbd");
    own.continue_osd();
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), Ok(()));
}

#[test]
fn every_client_has_our_settings_and_an_option_of_the_user_wins() {
    let client = cluster();
    for (option, value) in SETTINGS {
        let has = client.option(option).unwrap();
        let same = has == *value || has.trim_end_matches(".000000") == *value;
        assert!(same, "{option} is {has}");
    }
    let mut config = config();
    config.options.insert("objecter_inflight_ops".into(), "99".into());
    assert_eq!(Cluster::connect(&config).unwrap().option("objecter_inflight_ops").unwrap(), "99");
    config.options.insert("no_such_option".into(), "1".into());
    let Err(ConnectError::Ceph(error)) = Cluster::connect(&config) else { panic!("must be refused") };
    assert!(error.to_string().contains("set the Ceph option no_such_option"), "{error}");
}

#[test]
fn an_image_that_overrides_a_setting_shows_it() {
    let image = image("settings", MIB);
    assert_eq!(image.settings().unwrap()["rbd_cache"], "false");
    image.set_metadata("conf_rbd_cache", "true").unwrap();
    assert_eq!(again(&image).settings().unwrap()["rbd_cache"], "true");
}

#[test]
fn a_cluster_that_does_not_answer_is_an_error_in_bounded_time() {
    let mut config = config();
    config.options.insert("mon_host".into(), "127.0.0.1:1".into());
    config.options.insert("client_mount_timeout".into(), "2".into());
    let started = Instant::now();
    let Err(ConnectError::Ceph(error)) = Cluster::connect(&config) else { panic!("must be refused") };
    assert_eq!(error.kind, Kind::Timeout);
    assert!(started.elapsed() < Duration::from_secs(30));
}

#[test]
fn a_cluster_says_who_it_is_and_answers_commands() {
    let client = cluster();
    let fsid = client.fsid().unwrap();
    assert_eq!(fsid.len(), 36, "{fsid}");
    assert!(client.pools().unwrap().contains(&"rbd".to_owned()));
    let answer = client.mon_command(r#"{"prefix":"fsid"}"#, &[]).unwrap();
    assert_eq!(String::from_utf8(answer).unwrap().trim(), fsid);
    let refused = client.mon_command(r#"{"prefix":"no such command"}"#, &[]).unwrap_err();
    assert_eq!(refused.kind, Kind::Invalid);
    assert!(client.instance_id() > 0);
    let (host, _nonce) =
        client.address().unwrap().split_once(":0/").map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    assert_eq!(host, "127.0.0.1");
    client.wait_for_latest_osdmap().unwrap();
}
