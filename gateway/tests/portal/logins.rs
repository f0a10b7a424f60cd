//! Logins against a running server: authentication, limits, redirection, timeouts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rbdgate::portal::chap::{Algorithm, Chap, Credential};
use rbdgate::portal::login::Status;
use rbdgate::portal::pdu::{AsyncMessage, LoginRequest, LoginResponse};
use rbdgate::portal::text::{decode_binary, encode_hex};
use rbdgate::portal::{Access, Auth, Directory, Grant, Limits, Redirect, Target};
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
    let elsewhere = Redirect { address: "192.0.2.7:3260".parse().unwrap(), permanent: false };
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
    let mut first = Initiator::session(bench.address, TARGET);
    let mut second = Initiator::connect(bench.address);
    second.tsih = first.tsih + 100;
    assert_eq!(second.try_log_in(TARGET, &[]), Status::SessionDoesNotExist as u16);
    // RFC 7143 section 11.13.5: "too many connections", MaxConnections being 1.
    let mut third = Initiator::connect(bench.address);
    (third.tsih, third.cid) = (first.tsih, 1);
    assert_eq!(third.try_log_in(TARGET, &[]), Status::TooManyConnections as u16);
    assert_eq!(bench.server().sessions().len(), 1);
    // The same connection id reinstates the connection (section 6.3.4).
    let mut again = Initiator::connect(bench.address);
    again.tsih = first.tsih;
    again.log_in(TARGET, &[]);
    assert_eq!((again.tsih, again.read(&[0; 6], 0).status), (first.tsih, 0));
    assert!(first.closed());
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

/// The status and `TargetAddress` that a login gets.
fn redirected(bench: &Bench) -> (u16, Option<String>) {
    let leading = [("InitiatorName", NAME), ("TargetName", TARGET), ("AuthMethod", "None")];
    let (status, pairs) = Initiator::connect(bench.address).login_request(0, Some(1), &leading);
    (status, pairs.into_iter().find(|(key, _)| key == "TargetAddress").map(|(_, value)| value))
}

#[test]
fn a_whole_gateway_can_redirect_and_a_target_has_its_own_way_before_it() {
    let bench = Bench::new();
    let to = |address: &str, permanent| Redirect { address: address.parse().unwrap(), permanent };
    let elsewhere = Some(to("[2001:db8::7]:3260", false));
    bench.server().apply(Directory { elsewhere, ..bench.directory.clone() });
    // RFC 7143 section 13.8: IPv6 in brackets; in a redirection without a portal group tag.
    assert_eq!(redirected(&bench), (0x0101, Some("[2001:db8::7]:3260".into())));
    let redirects = BTreeMap::from([(TARGET.to_owned(), to("192.0.2.8:860", true))]);
    bench.server().apply(Directory { elsewhere, redirects, ..bench.directory.clone() });
    assert_eq!(redirected(&bench), (0x0102, Some("192.0.2.8:860".into())));
    // Discovery is not redirected, and names where a target went for good.
    let mut discovery = Initiator::connect(bench.address);
    assert_eq!(discovery.try_log_in("", &[]), 0);
    assert_eq!(discovery.text("SendTargets=All\0")[1].1, "192.0.2.8:860,1");
    bench.server().apply(bench.directory.clone());
    assert_eq!(redirected(&bench).0, 0);
}

#[test]
fn sessions_of_a_redirected_target_are_asked_to_log_out_and_closed_when_they_do_not() {
    let bench = Bench::new();
    let mut leaves = Initiator::session(bench.address, TARGET);
    let mut stays = Initiator::connect(bench.address);
    stays.isid[5] = 9;
    stays.log_in(TARGET, &[]);
    assert_eq!(bench.server().ask_logout(Some("iqn.2026-01.example:other")), 0);
    assert_eq!(bench.server().ask_logout(Some(TARGET)), 2);
    for initiator in [&mut leaves, &mut stays] {
        // RFC 7143 section 11.9.1: event 1, Parameter3 says how many seconds there are.
        let message = AsyncMessage::decode(&initiator.receive().header);
        assert_eq!((message.event, message.parameter3), (1, 5));
    }
    assert_eq!(leaves.log_out(0), 0);
    assert_eq!(stays.read(&[0; 6], 0).status, 0, "it is served until then");
    assert!(stays.closed());
}

#[test]
fn a_pdu_that_is_no_login_request_in_the_middle_of_a_login_is_answered_and_ends_it() {
    let bench = Bench::new();
    let mut initiator = Initiator::connect(bench.address);
    let leading = [("InitiatorName", NAME), ("TargetName", TARGET), ("AuthMethod", "None")];
    assert_eq!(initiator.login_request(0, None, &leading).0, 0);
    let command = initiator.command(&[0; 6], false, false, 0);
    initiator.send(command.encode(), &[], &[]);
    // RFC 7143 section 6.3: a login response "invalid during login", then the end.
    let response = LoginResponse::decode(&initiator.receive().header);
    assert_eq!((response.status_class, response.status_detail), (2, 0x0b));
    assert!(initiator.closed());
}

#[test]
fn one_address_cannot_take_every_place_before_the_login() {
    let limits = Limits {
        unauthenticated: 8,
        unauthenticated_per_address: 4,
        login_timeout: Duration::from_secs(30),
        ..Limits::default()
    };
    let listen = vec!["127.0.0.1:0".parse().unwrap(), "[::1]:0".parse().unwrap()];
    let bench = Bench::with(Setup { limits, listen, ..Setup::default() });
    let mut flood: Vec<_> = (0..4).map(|_| Initiator::connect(bench.address)).collect();
    eventually("they wait", || bench.server().stats().connections == 4);
    assert!(Initiator::connect(bench.address).closed(), "the fifth from there");
    let mut other = Initiator::session(bench.server().addresses()[1], TARGET);
    assert_eq!(other.read(&[0; 6], 0).status, 0);
    // A place comes back with its connection.
    drop(flood.pop());
    eventually("it is free", || bench.server().stats().connections == 4);
    assert_eq!(Initiator::session(bench.address, TARGET).read(&[0; 6], 0).status, 0);
}

#[test]
fn a_flood_of_hundreds_of_sockets_before_the_login_harms_no_session() {
    let limits = Limits { login_timeout: Duration::from_millis(1500), ..Limits::default() };
    let bench = Bench::with(Setup { limits, ..Setup::default() });
    let mut session = Initiator::session(bench.address, TARGET);
    let mut sockets: Vec<_> =
        (0..400).map(|_| std::net::TcpStream::connect(bench.address).unwrap()).collect();
    let mut login = LoginRequest { cmd_sn: 1, ..LoginRequest::default() }.encode();
    login.set_data_len(8192);
    // Byte by byte, as slowly as can be; a whole second of it.
    for byte in &login.0[..40] {
        sockets.retain_mut(|socket| std::io::Write::write_all(socket, &[*byte]).is_ok());
        assert_eq!(session.read(&[0; 6], 0).status, 0);
        std::thread::sleep(Duration::from_millis(25));
    }
    let held = bench.server().stats().connections;
    assert!(held <= 1 + 64, "{held} connections are held by an address that has not logged in");
    eventually("the slow ones are dropped", || bench.server().stats().connections == 1);
    assert_eq!(session.read(&[0; 6], 0).status, 0);
    assert_eq!(Initiator::session(bench.address, TARGET).read(&[0; 6], 0).status, 0);
}

#[test]
fn one_initiator_cannot_take_every_session() {
    let limits = Limits { sessions_per_initiator: 2, ..Limits::default() };
    let bench = Bench::with(Setup { limits, ..Setup::default() });
    let connect = |number: u8, name: &str| {
        let mut initiator = Initiator::connect(bench.address);
        (initiator.isid[5], initiator.name) = (number, name.into());
        let status = initiator.try_log_in(TARGET, &[]);
        (initiator, status)
    };
    let _held = [connect(1, NAME), connect(2, NAME)];
    assert_eq!(connect(3, NAME).1, Status::OutOfResources as u16);
    assert_eq!(connect(3, "iqn.2026-01.example:other").1, 0);
    // Reinstatement takes a place that is its own.
    assert_eq!(connect(2, NAME).1, 0);
}

#[test]
fn discovery_sessions_are_few_and_short() {
    let limits = Limits { discoveries: 2, discovery_time: Duration::from_millis(300), ..Limits::default() };
    let bench = Bench::with(Setup { limits, ..Setup::default() });
    let discover = || {
        let mut initiator = Initiator::connect(bench.address);
        let status = initiator.try_log_in("", &[]);
        (initiator, status)
    };
    let (mut first, _) = discover();
    let _second = discover();
    assert_eq!(discover().1, Status::OutOfResources as u16);
    assert!(first.closed());
    eventually("both are over", || bench.server().sessions().is_empty());
    assert_eq!(discover().1, 0);
}

#[test]
fn discovery_asks_for_a_proof_when_it_is_configured_and_gives_one() {
    let bench = Bench::new();
    bench.server().apply(Directory { discovery: chap(true), ..bench.directory.clone() });
    let mut stranger = Initiator::connect(bench.address);
    assert_eq!(stranger.try_log_in("", &[]), Status::AuthenticationFailure as u16);
    let mut initiator = Initiator::connect(bench.address);
    let leading = [("InitiatorName", NAME), ("SessionType", "Discovery"), ("AuthMethod", "CHAP")];
    let (_, pairs) = initiator.login_request(0, None, &leading);
    assert_eq!(value(&pairs, "AuthMethod"), "CHAP");
    let (_, pairs) = initiator.login_request(0, None, &[("CHAP_A", "7")]);
    let identifier = value(&pairs, "CHAP_I").parse().unwrap();
    let challenge = decode_binary(value(&pairs, "CHAP_C"), 64).unwrap();
    let response = encode_hex(&Algorithm::Sha256.respond(identifier, b"initiatorsecret1", &challenge));
    let keys = [
        ("CHAP_N", "alice"),
        ("CHAP_R", response.as_str()),
        ("CHAP_I", "9"),
        ("CHAP_C", "0x0102030405060708"),
    ];
    let (status, pairs) = initiator.login_request(0, Some(1), &keys);
    let proof = Algorithm::Sha256.respond(9, b"targetsecret1234", &[1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!((status, value(&pairs, "CHAP_R")), (0, encode_hex(&proof).as_str()));
    assert_eq!(initiator.operational(&[]), 0);
    assert_eq!(initiator.text("SendTargets=All\0")[0].1, TARGET);
}
