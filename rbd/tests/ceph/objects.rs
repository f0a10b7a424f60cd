//! Objects against a real Ceph: compare-and-swap, omap, attributes, watch and notify, advisory locks.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::sync::mpsc;
use std::time::Duration;

use rbd::{Event, Kind, Lock, Object, Renew, Transaction};

use crate::bench::*;

fn object(what: &str) -> Object {
    pool().object(&unique(what)).unwrap()
}

const LIMIT: usize = 16 << 20;

#[test]
fn a_replacement_wins_only_at_the_version_that_was_read() {
    let object = object("cas");
    object.create(b"one").unwrap();
    let seen = object.read(LIMIT).unwrap();
    assert_eq!(seen.data, b"one");
    let next = object.replace(b"two", seen.version).unwrap();
    assert!(next > seen.version);
    let late = object.replace(b"three", seen.version).unwrap_err();
    assert_eq!((late.kind, late.errno.0), (Kind::Mismatch, libc::ERANGE));
    assert!(late.is_retryable());
    let early = object.replace(b"three", next + 10).unwrap_err();
    assert_eq!((early.kind, early.errno.0), (Kind::Mismatch, libc::EOVERFLOW));
    let now = object.read(LIMIT).unwrap();
    assert_eq!((now.data.as_slice(), now.version), (&b"two"[..], next));
}

#[test]
fn of_many_writers_each_version_has_one_winner() {
    let object = object("race");
    object.create(b"0").unwrap();
    let writers: Vec<_> = (0..4)
        .map(|_| {
            let object = object.clone();
            std::thread::spawn(move || {
                for _ in 0..25 {
                    loop {
                        let seen = object.read(LIMIT).unwrap();
                        let number: u32 = std::str::from_utf8(&seen.data).unwrap().parse().unwrap();
                        match object.replace((number + 1).to_string().as_bytes(), seen.version) {
                            Ok(_) => break,
                            Err(error) => assert_eq!(error.kind, Kind::Mismatch),
                        }
                    }
                }
            })
        })
        .collect();
    for writer in writers {
        writer.join().unwrap();
    }
    assert_eq!(object.read(LIMIT).unwrap().data, b"100");
}

#[test]
fn a_transaction_can_be_applied_again_where_a_c_operation_would_do_nothing() {
    let object = object("again");
    let write = Transaction::new().write_full(b"mine");
    object.apply(&write).unwrap();
    object.write(b"theirs").unwrap();
    object.apply(&write).unwrap();
    assert_eq!(object.read(LIMIT).unwrap().data, b"mine");
}

#[test]
fn an_exclusive_creation_happens_once() {
    let object = object("excl");
    object.create(b"first").unwrap();
    assert_eq!(object.create(b"second").unwrap_err().kind, Kind::Exists);
    assert_eq!(object.read(LIMIT).unwrap().data, b"first");
    object.remove().unwrap();
    assert_eq!(object.read(LIMIT).unwrap_err().kind, Kind::NotFound);
    assert_eq!(object.remove().unwrap_err().kind, Kind::NotFound);
    assert_eq!(
        object.apply(&Transaction::new().assert_exists().write_full(b"x")).unwrap_err().kind,
        Kind::NotFound
    );
}

#[test]
fn an_object_of_any_length_is_read_whole_or_refused() {
    let object = object("long");
    for len in [0, 1, 64 << 10, (64 << 10) + 1, 3 << 20] {
        let data: Vec<u8> = (0..len).map(|n| (n % 249) as u8).collect();
        object.write(&data).unwrap();
        assert!(object.read(LIMIT).unwrap().data == data, "{len}");
    }
    assert_eq!(object.read(1 << 20).unwrap_err().errno.0, libc::EFBIG);
    object.write(b"short").unwrap();
    assert_eq!(object.read(5).unwrap().data, b"short");
    assert_eq!(object.read(4).unwrap_err().errno.0, libc::EFBIG);
}

#[test]
fn attributes_are_set_compared_and_removed() {
    let object = object("xattr");
    let long = vec![7; 20_000];
    object
        .apply(&Transaction::new().write_full(b"").set_xattr("epoch", b"1").set_xattr("long", &long))
        .unwrap();
    assert_eq!(object.xattr("epoch").unwrap(), b"1");
    assert_eq!(object.xattr("long").unwrap(), long);
    assert_eq!(object.xattr("none").unwrap_err().kind, Kind::NotFound);
    object.apply(&Transaction::new().compare_xattr("epoch", b"1").set_xattr("epoch", b"2")).unwrap();
    let lost =
        object.apply(&Transaction::new().compare_xattr("epoch", b"1").write_full(b"lost")).unwrap_err();
    assert_eq!((lost.kind, lost.errno.0), (Kind::Mismatch, libc::ECANCELED));
    assert_eq!(object.read(LIMIT).unwrap().data, b"");
    object.apply(&Transaction::new().remove_xattr("epoch")).unwrap();
    assert_eq!(object.xattr("epoch").unwrap_err().kind, Kind::NotFound);
}

#[test]
fn omap_keys_and_values_are_any_bytes() {
    let object = object("omap");
    let (key, value) = (b"a\0key\xff".as_slice(), b"a\0value".as_slice());
    object.apply(&Transaction::new().omap_set(key, value).omap_set(b"b", b"").omap_set(b"c", b"3")).unwrap();
    assert_eq!(
        object.omap_get(&[key, b"none", b"b"]).unwrap(),
        [(key.to_vec(), value.to_vec()), (b"b".to_vec(), vec![])]
    );
    let (all, more) = object.omap_list(b"", b"", 10).unwrap();
    assert_eq!((all.len(), more), (3, false));
    object.apply(&Transaction::new().omap_remove(key)).unwrap();
    assert_eq!(object.omap_get(&[key]).unwrap(), []);
    let compared = Transaction::new().compare_omap(b"c", b"4").omap_set(b"c", b"5");
    assert_eq!(object.apply(&compared).unwrap_err().kind, Kind::Mismatch);
    object.apply(&Transaction::new().compare_omap(b"c", b"3").omap_set(b"c", b"5")).unwrap();
    assert_eq!(object.omap_get(&[b"c"]).unwrap()[0].1, b"5");
    object.apply(&Transaction::new().omap_clear()).unwrap();
    assert_eq!(object.omap_list(b"", b"", 10).unwrap(), (vec![], false));
    assert_eq!(object.omap_list(b"a\0b", b"", 1).unwrap_err().kind, Kind::Invalid);
}

#[test]
fn omap_is_listed_page_by_page_and_by_prefix() {
    let object = object("pages");
    let keys: Vec<String> = (0..50).map(|n| format!("lun.{n:03}")).collect();
    let mut fill = Transaction::new().omap_set(b"other", b"");
    for key in &keys {
        fill = fill.omap_set(key.as_bytes(), key.as_bytes());
    }
    object.apply(&fill).unwrap();
    let (mut seen, mut after) = (Vec::new(), Vec::new());
    loop {
        let (page, more) = object.omap_list(&after, b"lun.", 7).unwrap();
        assert!(page.len() <= 7);
        seen.extend(page.iter().map(|(key, _value)| String::from_utf8(key.clone()).unwrap()));
        match page.last() {
            Some((key, _value)) if more => after = key.clone(),
            _ => break,
        }
    }
    assert_eq!(seen, keys);
    assert_eq!(object.omap_get(&[]).unwrap(), []);
    let missing = pool().object("no-such-object").unwrap();
    assert_eq!(missing.omap_list(b"", b"", 1).unwrap_err().kind, Kind::NotFound);
}

#[test]
fn a_notification_reaches_every_watcher_and_brings_their_replies() {
    let name = unique("watch");
    let watched = pool().object(&name).unwrap();
    watched.create(b"").unwrap();
    let (tell, told) = mpsc::channel();
    let reading = watched.clone();
    let first = watched
        .watch(Duration::from_secs(30), move |event| {
            let Event::Notify(notification) = event else { return };
            // The handler may use RADOS itself: it is on no thread of librados.
            reading.read(LIMIT).unwrap();
            tell.send((notification.notifier, notification.payload.clone())).unwrap();
            notification.reply(b"first").unwrap();
        })
        .unwrap();
    let second = watched.watch(Duration::from_secs(30), drop).unwrap(); // acknowledges without a reply
    let notifier = pool().object(&name).unwrap();
    let answers = notifier.notify(b"changed", Duration::from_secs(20)).unwrap();
    assert_eq!(answers.missing, []);
    let mut replies: Vec<_> =
        answers.replies.iter().map(|reply| (reply.cookie, reply.payload.clone())).collect();
    replies.sort();
    let mut expected = vec![(first.cookie(), b"first".to_vec()), (second.cookie(), vec![])];
    expected.sort();
    assert_eq!(replies, expected);
    assert_eq!(told.recv_timeout(PATIENCE).unwrap().1, b"changed");
    assert!(first.check().unwrap() < Duration::from_secs(30));
    drop((first, second));
    let nobody = notifier.notify(b"changed", Duration::from_secs(20)).unwrap();
    assert_eq!(nobody.replies, []);
}

#[test]
fn a_watcher_that_does_not_answer_is_named_as_missing() {
    let object = object("silent");
    object.create(b"").unwrap();
    let (release, wait) = mpsc::channel::<()>();
    let watch = object
        .watch(Duration::from_secs(30), move |event| {
            // Holds the notification back until the test lets go.
            let _ = wait.recv();
            drop(event);
        })
        .unwrap();
    let answers = object.notify(b"", Duration::from_secs(1)).unwrap();
    assert_eq!(answers.replies, []);
    assert_eq!(answers.missing.len(), 1);
    assert_eq!(answers.missing[0].1, watch.cookie());
    drop(release);
}

#[test]
fn watching_what_is_not_there_fails_and_a_removed_object_breaks_the_watch() {
    let object = object("gone");
    assert_eq!(object.watch(Duration::from_secs(30), drop).unwrap_err().kind, Kind::NotFound);
    object.create(b"").unwrap();
    let (tell, told) = mpsc::channel();
    let watch = object
        .watch(Duration::from_secs(30), move |event| {
            if let Event::Broken(errno) = event {
                tell.send(errno).unwrap();
            }
        })
        .unwrap();
    object.remove().unwrap();
    assert_eq!(told.recv_timeout(PATIENCE).unwrap().0, libc::ENOTCONN);
    assert!(watch.check().is_err());
}

#[test]
fn a_fenced_watcher_is_told_that_its_watch_is_broken() {
    let object = object("fenced");
    object.create(b"").unwrap();
    let client = cluster();
    let theirs = client.pool("rbd").unwrap().object(&object.name()).unwrap();
    let (tell, told) = mpsc::channel();
    let watch = theirs
        .watch(Duration::from_secs(30), move |event| {
            if let Event::Broken(errno) = event {
                // More than one may come.
                let _ = tell.send(errno);
            }
        })
        .unwrap();
    cluster().blocklist(&client.address().unwrap(), Duration::from_secs(60)).unwrap();
    let errno = told.recv_timeout(PATIENCE).unwrap();
    assert_eq!(errno.kind(), Kind::Fenced, "{errno}");
    assert!(theirs.write(b"late").unwrap_err().is_fenced());
    drop(watch);
}

#[test]
fn an_exclusive_lock_is_exclusive_and_a_lease_ends_by_itself() {
    let object = object("lease");
    let lock =
        |cookie| Lock { name: "owner", cookie, description: "test", expiry: Some(Duration::from_secs(2)) };
    object.lock_exclusive(&lock("a"), Renew::No).unwrap();
    assert_eq!(object.lock_exclusive(&lock("b"), Renew::No).unwrap_err().kind, Kind::Busy);
    assert_eq!(object.lock_exclusive(&lock("a"), Renew::No).unwrap_err().kind, Kind::Exists);
    object.lock_exclusive(&lock("a"), Renew::May).unwrap();
    object.lock_exclusive(&lock("a"), Renew::Must).unwrap();
    let lockers = object.lockers("owner").unwrap();
    assert!(lockers.exclusive);
    assert_eq!(lockers.lockers.len(), 1);
    assert_eq!(lockers.lockers[0].cookie, "a");
    assert!(lockers.lockers[0].client.starts_with("client."));
    eventually("the lease ends", || object.lock_exclusive(&lock("b"), Renew::No).is_ok());
    assert_eq!(object.lock_exclusive(&lock("a"), Renew::Must).unwrap_err().kind, Kind::NotFound);
    object.unlock("owner", "b").unwrap();
    assert_eq!(object.unlock("owner", "b").unwrap_err().kind, Kind::NotFound);
}

#[test]
fn a_lock_without_expiry_stays_until_it_is_broken() {
    let object = object("lock");
    let lock = |cookie| Lock { name: "owner", cookie, description: "", expiry: None };
    object.lock_exclusive(&lock("a"), Renew::No).unwrap();
    let other = pool().object(&object.name()).unwrap();
    assert_eq!(
        other.lock_exclusive(&lock("a"), Renew::No).unwrap_err().kind,
        Kind::Busy,
        "another client's cookie"
    );
    let locker = other.lockers("owner").unwrap().lockers.remove(0);
    other.break_lock("owner", &locker).unwrap();
    other.lock_exclusive(&lock("b"), Renew::No).unwrap();
    assert_eq!(object.lockers("nobody").unwrap().lockers, []);
}

#[test]
fn shared_lockers_agree_on_a_tag() {
    let object = object("shared");
    let lock = |cookie| Lock { name: "readers", cookie, description: "", expiry: None };
    object.lock_shared(&lock("a"), "v1", Renew::No).unwrap();
    object.lock_shared(&lock("b"), "v1", Renew::No).unwrap();
    assert_eq!(object.lock_shared(&lock("c"), "v2", Renew::No).unwrap_err().kind, Kind::Busy);
    let lockers = object.lockers("readers").unwrap();
    assert_eq!((lockers.exclusive, lockers.tag.as_str(), lockers.lockers.len()), (false, "v1", 2));
}

#[test]
fn a_namespace_keeps_its_objects_to_itself() {
    let name = unique("object");
    let client = cluster();
    let inside = client.pool_namespace("rbd", "apart").unwrap().object(&name).unwrap();
    inside.create(b"inside").unwrap();
    assert_eq!(
        client.pool("rbd").unwrap().object(&name).unwrap().read(LIMIT).unwrap_err().kind,
        Kind::NotFound
    );
    assert_eq!(inside.read(LIMIT).unwrap().data, b"inside");
}
