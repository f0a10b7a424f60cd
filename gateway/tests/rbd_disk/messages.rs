//! What a person reads who got the configuration wrong: one sentence, saying what to do.

use std::fs;

use rbd::{Features, NewImage};
use rbdgate::disk::rbd::{Clients, RbdDisk, Spec};

use crate::bench::{OwnCeph, pool, unique};
use crate::inbox::{open, spec};

fn refusal(spec: &Spec) -> String {
    let text = open(spec).expect_err("must be refused").to_string();
    assert!(!text.contains('\n'), "one sentence: {text}");
    text
}

#[track_caller]
fn says(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "{word:?} is missing: {text}");
    }
}

#[test]
fn ceph_a_configuration_that_is_not_there() {
    let text = refusal(&Spec { conf: "/nonexistent/ceph.conf".into(), ..spec("any", None) });
    says(&text, &["/nonexistent/ceph.conf", "does not exist", "give the path"]);
}

#[test]
fn ceph_a_configuration_that_is_something_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ceph.conf");
    fs::write(&path, "targets:\n  - name: iqn.2026-01.example:disk\n").unwrap();
    let text = refusal(&Spec { conf: path.clone(), ..spec("any", None) });
    says(&text, &["ceph.conf", "no valid ceph.conf"]);
    fs::write(&path, "[global]\nlog_to_stderr = false\n").unwrap();
    let text = refusal(&Spec { conf: path, ..spec("any", None) });
    says(&text, &["ceph.conf", "check mon_host"]);
}

#[test]
fn ceph_monitors_that_do_not_answer() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ceph.conf");
    // Nothing listens on port 1.
    fs::write(&path, "[global]\nmon_host = [v2:127.0.0.1:1/0]\nauth_client_required = none\n").unwrap();
    let text = refusal(&Spec { conf: path, ..spec("any", None) });
    says(&text, &["no monitor answered", "check mon_host"]);
}

#[test]
fn ceph_a_pool_that_is_not_there() {
    let text = refusal(&Spec { pool: "nowhere".into(), ..spec("any", None) });
    says(&text, &["pool nowhere", "there is no such pool", "create it"]);
}

#[test]
fn ceph_an_image_that_is_not_there() {
    let text = refusal(&spec("missing", None));
    says(&text, &["there is no image rbd/missing", "rbd create", "give a size"]);
}

#[test]
fn ceph_a_namespace_that_is_not_there() {
    let text = refusal(&Spec { namespace: Some("nowhere".into()), ..spec("any", Some(1 << 20)) });
    says(&text, &["no namespace nowhere in pool rbd", "rbd namespace create rbd/nowhere"]);
}

#[test]
fn ceph_a_keyring_that_is_not_there() {
    let text = refusal(&Spec { keyring: Some("/nonexistent/keyring".into()), ..spec("any", None) });
    says(&text, &["/nonexistent/keyring", "does not exist"]);
}

#[test]
fn ceph_a_user_without_a_key_or_without_capabilities() {
    let own = OwnCeph::up(&[("AUTH", "cephx"), ("IMAGE", "image"), ("IMAGE_SIZE", "64M")]);
    let with = |id: &str, keyring: Option<&std::path::Path>| Spec {
        conf: own.conf(),
        id: id.into(),
        keyring: keyring.map(Into::into),
        ..spec("image", None)
    };
    says(&refusal(&with("nobody", None)), &["check", "the user's name", "keyring"]);

    let folder = tempfile::tempdir().unwrap();
    let key = |name: &str, caps: &[&str]| {
        let text = own.run("ceph", &[&["auth", "get-or-create", name], caps].concat());
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let unable = key("client.unable", &["mon", "allow r"]);
    let text = refusal(&with("unable", Some(&unable)));
    says(&text, &["rbd/image", "capabilities do not allow it", "profile rbd"]);

    let wrong = folder.path().join("wrong");
    fs::write(&wrong, "[client.admin]\nkey = AQBSdFRo6xJ0GBAAZGjN2Gl3tVtWmK2nJQdxZQ==\n").unwrap();
    says(&refusal(&with("admin", Some(&wrong))), &["refused the key", "keyring"]);

    // And what the hint says is enough, for fencing too.
    let able = key("client.able", &["mon", "profile rbd", "osd", "profile rbd pool=rbd"]);
    let disk = RbdDisk::open_with(&with("able", Some(&able)), &Clients::default()).unwrap();
    let client = disk.client().cluster();
    client.blocklist("127.0.0.1:0/1", std::time::Duration::from_secs(60)).unwrap();
}

#[test]
fn ceph_an_image_without_the_exclusive_lock_feature() {
    let name = unique("unlocked");
    pool().create_image(&name, NewImage { features: Features::LAYERING, ..NewImage::new(1 << 20) }).unwrap();
    says(&refusal(&spec(&name, None)), &["cannot be locked", "rbd feature enable", "exclusive-lock"]);
}

#[test]
fn ceph_an_image_whose_own_settings_would_lose_data() {
    let name = unique("unsafe");
    pool().create_image(&name, NewImage::new(1 << 20)).unwrap();
    let image = pool().open_image(&name, &rbd::Open::default()).unwrap();
    image.set_metadata("conf_rbd_cache", "true").unwrap();
    drop(image);
    let text = refusal(&spec(&name, None));
    says(&text, &["rbd_cache=true", "rbd config image rm", &name]);
}

#[test]
fn ceph_a_block_size_or_a_size_that_is_not_possible() {
    let name = unique("size");
    says(&refusal(&Spec { block_size: 1024, ..spec(&name, None) }), &["512 and 4096"]);
    says(&refusal(&spec(&name, Some(1000))), &["multiple of the block size"]);
    pool().create_image(&name, NewImage::new(100)).unwrap();
    says(&refusal(&spec(&name, None)), &["no whole block"]);
}
