//! Logins against a running server: authentication, limits, redirection, timeouts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rbdgate::portal::chap::{Algorithm, Chap, Credential};
use rbdgate::portal::login::Status;
use rbdgate::portal::text::{decode_binary, encode_hex};
use rbdgate::portal::{Access, Auth, Directory, Grant, Limits, Target};
use rbdgate::secret::Secret;

use crate::kit::initiator::{Initiator, NAME};
use crate::kit::{Bench, Setup, TARGET, eventually};

fn chap(mutual: bool) -> Auth {
    let credential = |user: &str, secret: &str| Credential { user: user.into(), secret: Secret::new(secret) };
    Auth::Chap(Arc::new(Chap {
        initiator: credential("alice", "initiatorsecret1"),
        target: mutual.then(|| credential("gate", "targetsecret1234")),
        algorithms: Algorithm::ALL.to_vec(),
    }))
}

fn access(auth: Auth) -> Access {
    let view = rbdgate::nexus::View { luns: vec![0], read_only: Vec::new() };
    Access { initiators: BTreeMap::from([(NAME.to_owned(), Grant { auth, view })]), anyone: None }
}

fn value<'a>(pairs: &'a [(String, String)], key: &str) -> &'a str {
    &pairs.iter().find(|(name, _)| name == key).unwrap_or_else(|| panic!("no {key} in {pairs:?}")).1
}

/// The security stage with CHAP; returns the status and the last answer's pairs.
fn prove(
    initiator: &mut Initiator,
    algorithm: Algorithm,
    secret: &str,
    mutual: Option<&str>,
) -> (u16, Vec<(String, String)>) {
    let name = initiator.name.clone();
    let leading = [("InitiatorName", name.as_str()), ("TargetName", TARGET), ("AuthMethod", "CHAP,None")];
    let (status, pairs) = initiator.login_request(0, None, &leading);
    if status != 0 {
        return (status, pairs);
    }
    assert_eq!(value(&pairs, "AuthMethod"), "CHAP");
    let (_, pairs) = initiator.login_request(0, None, &[("CHAP_A", &algorithm.number().to_string())]);
    assert_eq!(value(&pairs, "CHAP_A"), algorithm.number().to_string());
    let identifier = value(&pairs, "CHAP_I").parse().unwrap();
    let challenge = decode_binary(value(&pairs, "CHAP_C"), 64).unwrap();
    let response = encode_hex(&algorithm.respond(identifier, secret.as_bytes(), &challenge));
    let mut keys = vec![("CHAP_N", "alice"), ("CHAP_R", response.as_str())];
    if let Some(challenge) = mutual {
        keys.extend([("CHAP_I", "200"), ("CHAP_C", challenge)]);
    }
    initiator.login_request(0, Some(1), &keys)
}

#[test]
fn chap_with_every_algorithm_admits_and_a_wrong_secret_does_not() {
    let bench = Bench::with(Setup { access: Some(access(chap(true))), ..Setup::default() });
    for algorithm in Algorithm::ALL {
        let mut initiator = Initiator::connect(bench.address);
        let (status, pairs) = prove(&mut initiator, algorithm, "initiatorsecret1", Some("0x0102030405"));
        assert_eq!(status, 0);
        let proof = algorithm.respond(200, b"targetsecret1234", &[1, 2, 3, 4, 5]);
        assert_eq!((value(&pairs, "CHAP_N"), value(&pairs, "CHAP_R")), ("gate", encode_hex(&proof).as_str()));
        assert_eq!(initiator.operational(&[]), 0);
        assert_eq!(initiator.read(&[0; 6], 0).status, 0);
        assert!(bench.server().sessions()[0].authenticated);

        let mut wrong = Initiator::connect(bench.address);
        let (status, _) = prove(&mut wrong, algorithm, "wrong", None);
        assert_eq!(status, Status::AuthenticationFailure as u16);
        assert!(wrong.closed());
    }
    let failures = bench.server().stats().login_failures;
    assert_eq!(failures.get(&Status::AuthenticationFailure), Some(&4));
}

#[test]
fn names_decide_who_may_log_in() {
    let bench = Bench::with(Setup { access: Some(access(Auth::None)), ..Setup::default() });
    let mut stranger = Initiator::connect(bench.address);
    stranger.name = "iqn.2026-01.example:stranger".into();
    assert_eq!(stranger.try_log_in(TARGET, &[]), Status::AuthorizationFailure as u16);
    assert!(stranger.closed());
    let mut nowhere = Initiator::connect(bench.address);
    assert_eq!(nowhere.try_log_in("iqn.2026-01.example:none", &[]), Status::NotFound as u16);
    let mut known = Initiator::connect(bench.address);
    known.name = NAME.to_uppercase();
    known.log_in(&TARGET.to_uppercase(), &[]);
    assert_eq!(known.read(&[0; 6], 0).status, 0);
}

#[test]
fn a_target_served_elsewhere_redirects() {
    let bench = Bench::new();
    let elsewhere = "192.0.2.7:3260".parse().unwrap();
    let redirects = BTreeMap::from([(TARGET.to_owned(), elsewhere)]);
    bench.server().apply(Directory { redirects, ..bench.directory.clone() });
    let mut initiator = Initiator::connect(bench.address);
    let leading = [("InitiatorName", NAME), ("TargetName", TARGET), ("AuthMethod", "None")];
    let (status, pairs) = initiator.login_request(0, Some(1), &leading);
    assert_eq!(status, Status::TargetMovedTemporarily as u16);
    assert_eq!(value(&pairs, "TargetAddress"), "192.0.2.7:3260");
}

#[test]
fn silent_and_unfinished_logins_are_dropped_and_the_next_one_is_served() {
    let limits =
        Limits { login_timeout: Duration::from_millis(200), unauthenticated: 3, ..Limits::default() };
    let bench = Bench::with(Setup { limits, ..Setup::default() });
    let mut silent: Vec<_> = (0..3).map(|_| Initiator::connect(bench.address)).collect();
    // One of them has begun.
    let leading = [("InitiatorName", NAME), ("TargetName", TARGET), ("AuthMethod", "None")];
    assert_eq!(silent[0].login_request(0, None, &leading).0, 0);
    eventually("three wait", || bench.server().stats().connections == 3);
    // A fourth is beyond the limit, and is closed at once.
    assert!(Initiator::connect(bench.address).closed());
    assert!(silent.iter_mut().all(Initiator::closed));
    eventually("they are counted", || bench.server().stats().logins_unfinished == 3);
    assert_eq!(Initiator::session(bench.address, TARGET).read(&[0; 6], 0).status, 0);
    assert_eq!(bench.server().stats().refused, 1);
}

#[test]
fn sessions_are_limited_and_a_place_freed_is_a_place_given() {
    let bench =
        Bench::with(Setup { limits: Limits { sessions: 2, ..Limits::default() }, ..Setup::default() });
    let connect = |number: u8| {
        let mut initiator = Initiator::connect(bench.address);
        initiator.isid[5] = number;
        let status = initiator.try_log_in(TARGET, &[]);
        (initiator, status)
    };
    let (mut first, _) = connect(1);
    let (_second, status) = connect(2);
    assert_eq!(status, 0);
    assert_eq!(connect(3).1, Status::OutOfResources as u16);
    assert_eq!(first.log_out(0), 0);
    assert!(first.closed());
    eventually("the place is free", || bench.server().stats().sessions == 1);
    assert_eq!(connect(3).1, 0);
}

#[test]
fn a_second_connection_for_a_session_is_one_too_many_and_an_unknown_session_does_not_exist() {
    let bench = Bench::new();
    let first = Initiator::session(bench.address, TARGET);
    let mut second = Initiator::connect(bench.address);
    second.tsih = first.tsih + 100;
    assert_eq!(second.try_log_in(TARGET, &[]), Status::SessionDoesNotExist as u16);
    assert_eq!(bench.server().sessions().len(), 1);
}

#[test]
fn a_new_configuration_ends_the_sessions_it_revokes_and_only_those() {
    let bench = Bench::new();
    let mut kept = Initiator::session(bench.address, TARGET);
    let mut other = Initiator::connect(bench.address);
    other.name = "iqn.2026-01.example:other".into();
    other.log_in(TARGET, &[]);
    let target = &bench.directory.targets[TARGET];
    let narrowed = Target { access: access(Auth::None), ..Target::clone(target) };
    let targets = BTreeMap::from([(TARGET.to_owned(), Arc::new(narrowed.clone()))]);
    bench.server().apply(Directory { targets, ..Directory::default() });
    assert!(other.closed());
    assert_eq!(kept.read(&[0; 6], 0).status, 0);
    // Credentials that were not asked for before end the session too.
    let changed = Target { access: access(chap(false)), ..narrowed };
    let targets = BTreeMap::from([(TARGET.to_owned(), Arc::new(changed))]);
    bench.server().apply(Directory { targets, ..Directory::default() });
    assert!(kept.closed());
}
