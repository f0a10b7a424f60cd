//! Discovery sessions (RFC 7143 appendix C).

use std::collections::BTreeMap;
use std::sync::Arc;

use rbdgate::portal::{Access, Directory, Grant, Target};

use crate::kit::initiator::{Initiator, NAME};
use crate::kit::{Bench, Setup, TARGET};

fn targets(pairs: &[(String, String)]) -> Vec<&str> {
    pairs.iter().filter(|(key, _)| key == "TargetName").map(|(_, value)| value.as_str()).collect()
}

/// A second target that only `NAME` may see, at addresses of its own.
fn two_targets(bench: &Bench) -> Directory {
    let first = &bench.directory.targets[TARGET];
    let second = Target {
        name: "iqn.2026-01.example:secret".into(),
        group: 3,
        addresses: vec!["192.0.2.1:3260".parse().unwrap(), "[2001:db8::1]:3260".parse().unwrap()],
        access: Access { initiators: BTreeMap::from([(NAME.to_owned(), Grant::default())]), anyone: None },
        ..Target::clone(first)
    };
    let targets =
        BTreeMap::from([(TARGET.to_owned(), Arc::clone(first)), (second.name.clone(), Arc::new(second))]);
    Directory { targets, ..Directory::default() }
}

fn discover(bench: &Bench, name: &str) -> Initiator {
    let mut initiator = Initiator::connect(bench.address);
    initiator.name = name.into();
    assert_eq!(initiator.try_log_in("", &[]), 0);
    initiator
}

#[test]
fn send_targets_tells_what_the_initiator_may_see_and_where_it_is() {
    let bench = Bench::new();
    bench.server().apply(two_targets(&bench));
    let mut initiator = discover(&bench, "IQN.2026-01.Example:Initiator");
    let all = initiator.text("SendTargets=All\0");
    let expected = [
        ("TargetName", TARGET.to_owned()),
        ("TargetAddress", format!("{},1", bench.address)),
        ("TargetName", "iqn.2026-01.example:secret".to_owned()),
        ("TargetAddress", "192.0.2.1:3260,3".to_owned()),
        ("TargetAddress", "[2001:db8::1]:3260,3".to_owned()),
    ];
    assert_eq!(all, expected.map(|(key, value)| (key.to_owned(), value)));
    assert_eq!(initiator.log_out(0), 0);
    assert!(initiator.closed());

    let mut stranger = discover(&bench, "iqn.2026-01.example:stranger");
    assert_eq!(targets(&stranger.text("SendTargets=All\0")), [TARGET]);
    assert!(stranger.text("SendTargets=iqn.2026-01.example:secret\0").is_empty());
}

#[test]
fn one_target_can_be_asked_for_and_an_empty_value_is_for_normal_sessions() {
    let bench = Bench::new();
    let mut discovery = discover(&bench, NAME);
    assert_eq!(targets(&discovery.text(&format!("SendTargets={TARGET}\0"))), [TARGET]);
    assert_eq!(discovery.text("SendTargets=\0"), [("SendTargets".to_owned(), "Reject".to_owned())]);
    let mut normal = Initiator::session(bench.address, TARGET);
    assert_eq!(targets(&normal.text("SendTargets=\0")), [TARGET]);
    assert_eq!(normal.text("SendTargets=All\0"), [("SendTargets".to_owned(), "Reject".to_owned())]);
}

#[test]
fn a_list_longer_than_a_segment_comes_in_parts() {
    let bench = Bench::new();
    let first = &bench.directory.targets[TARGET];
    let named = |number: u32| {
        let name = format!("iqn.2026-01.example:{}-{number:03}", "x".repeat(60));
        (name.clone(), Arc::new(Target { name, ..Target::clone(first) }))
    };
    bench.server().apply(Directory { targets: (0..100).map(named).collect(), ..Directory::default() });
    let mut initiator = Initiator::connect(bench.address);
    assert_eq!(initiator.try_log_in("", &[("MaxRecvDataSegmentLength", "512")]), 0);
    assert_eq!(targets(&initiator.text("SendTargets=All\0")).len(), 100);
}

#[test]
fn discovery_works_over_ipv6() {
    let listen = vec!["[::1]:0".parse().unwrap(), "127.0.0.1:0".parse().unwrap()];
    let bench = Bench::with(Setup { listen, ..Setup::default() });
    let mut initiator = discover(&bench, NAME);
    let all = initiator.text("SendTargets=All\0");
    assert_eq!(all[1].1, format!("[::1]:{},1", bench.address.port()));
    let mut session = Initiator::session(bench.server().addresses()[1], TARGET);
    assert_eq!(session.read(&[0; 6], 0).status, 0);
}

#[test]
fn a_discovery_session_takes_no_scsi_commands() {
    let bench = Bench::new();
    let mut initiator = discover(&bench, NAME);
    let command = initiator.command(&[0; 6], false, false, 0);
    initiator.send(command.encode(), &[], &[]);
    assert_eq!(initiator.receive().header.opcode(), rbdgate::portal::pdu::Reject::OPCODE);
    assert_eq!(targets(&initiator.text("SendTargets=All\0")), [TARGET]);
}
