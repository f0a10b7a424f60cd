//! Reservations over iSCSI: hosts that share a disk, each with one or more sessions, as clusters use it.

use rbdgate::scsi::status::RESERVATION_CONFLICT;

use crate::kit::initiator::{Answer, Initiator};
use crate::kit::{Bench, Setup, TARGET, pattern, read10, write10};

const GOOD: u8 = 0;
const WRITE_EXCLUSIVE: u8 = 1;
const EXCLUSIVE_ACCESS: u8 = 3;
const WRITE_EXCLUSIVE_REGISTRANTS_ONLY: u8 = 5;

fn bench() -> Bench {
    Bench::with(Setup { lanes: true, ..Setup::default() })
}

/// A session of a host, which has heard of the power-on.
fn host(bench: &Bench, name: &str, isid: u8) -> Initiator {
    let mut host = Initiator::connect(bench.address);
    host.name = format!("iqn.1991-05.com.microsoft:{name}");
    host.isid[5] = isid;
    host.log_in(TARGET, &[]);
    while host.read(&[0; 6], 0).status != GOOD {}
    host
}

/// A PERSISTENT RESERVE OUT.
fn order(host: &mut Initiator, action: u8, kind: u8, key: u64, service_key: u64) -> Answer {
    let mut list = key.to_be_bytes().to_vec();
    list.extend(service_key.to_be_bytes());
    list.resize(24, 0);
    host.write(&[0x5F, action, kind, 0, 0, 0, 0, 0, 24, 0], &list, 24)
}

fn does(host: &mut Initiator, action: u8, kind: u8, key: u64, service_key: u64) {
    let answer = order(host, action, kind, key, service_key);
    assert_eq!(answer.status, GOOD, "action {action}: {:?}", answer.sense());
}

fn shows(host: &mut Initiator, action: u8) -> Vec<u8> {
    let answer = host.read(&[0x5E, action, 0, 0, 0, 0, 0, 0x10, 0, 0], 4096);
    assert_eq!(answer.status, GOOD, "{:?}", answer.sense());
    answer.data
}

fn keys(host: &mut Initiator) -> Vec<u64> {
    let data = shows(host, 0);
    data[8..].chunks_exact(8).map(|key| u64::from_be_bytes(key.try_into().unwrap())).collect()
}

fn writes(host: &mut Initiator) -> Answer {
    host.write(&write10(0, 1), &pattern(7, 512), 512)
}

/// RESERVATION CONFLICT, without sense data (SAM-5, status codes).
fn conflicts(answer: &Answer) -> bool {
    answer.status == RESERVATION_CONFLICT && answer.sense.is_empty()
}

#[test]
fn a_failover_cluster_of_two_hosts_with_two_paths_each_passes_its_validation() {
    // The commands of Windows' cluster validation, in its order; SPC-4, Persistent reservations, for what each does.
    let bench = bench();
    let (mut a, mut a2) = (host(&bench, "node-a", 1), host(&bench, "node-a", 2));
    let (mut b, mut b2) = (host(&bench, "node-b", 1), host(&bench, "node-b", 2));
    let (key_a, key_b) = (0xA0_70_6D_61, 0xB0_70_6D_61);

    // Leftovers are read and cleared; every path registers.
    assert_eq!(keys(&mut a), [] as [u64; 0]);
    does(&mut a, 0, 0, 0, key_a);
    does(&mut a2, 6, 0, 0, key_a);
    does(&mut b, 0, 0, 0, key_b);
    does(&mut b2, 6, 0, 0, key_b);
    assert_eq!(keys(&mut b), [key_a, key_a, key_b, key_b]);
    // A key that is not one's own is refused.
    assert!(conflicts(&order(&mut b, 0, 0, key_a, 1)));

    does(&mut a, 1, WRITE_EXCLUSIVE_REGISTRANTS_ONLY, key_a, 0);
    let reservation = shows(&mut b, 1);
    assert_eq!(reservation[8..16], key_a.to_be_bytes());
    assert_eq!(reservation[21], WRITE_EXCLUSIVE_REGISTRANTS_ONLY);
    assert!(conflicts(&order(&mut b, 1, WRITE_EXCLUSIVE_REGISTRANTS_ONLY, key_b, 0)));
    for path in [&mut a, &mut a2, &mut b, &mut b2] {
        assert_eq!(writes(path).status, GOOD, "registered");
    }

    // Node B's registration is taken away on both of its paths: it may read, and not write.
    does(&mut a, 4, WRITE_EXCLUSIVE_REGISTRANTS_ONLY, key_a, key_b);
    for path in [&mut b, &mut b2] {
        assert_eq!(writes(path).sense(), Some((6, 0x2A, 5)), "REGISTRATIONS PREEMPTED");
        assert!(conflicts(&writes(path)));
        assert_eq!(path.read(&read10(0, 1), 512).status, GOOD);
        assert_eq!(path.read(&[0; 6], 0).status, GOOD, "TEST UNIT READY is let through");
        assert!(conflicts(&order(path, 4, WRITE_EXCLUSIVE_REGISTRANTS_ONLY, key_b, key_a)));
    }

    // Node B comes back and takes over.
    does(&mut b, 6, 0, 0, key_b);
    does(&mut b, 4, WRITE_EXCLUSIVE_REGISTRANTS_ONLY, key_b, key_a);
    assert_eq!(keys(&mut b), [key_b]);
    for path in [&mut a, &mut a2] {
        assert_eq!(writes(path).sense(), Some((6, 0x2A, 5)), "REGISTRATIONS PREEMPTED");
        assert!(conflicts(&writes(path)));
    }
    assert_eq!(writes(&mut b).status, GOOD);
    assert!(conflicts(&writes(&mut b2)), "a registration is one path's");

    // READ FULL STATUS names the port: TransportID of iSCSI, format 01b.
    let status = shows(&mut a, 3);
    let name = b"iqn.1991-05.com.microsoft:node-b,i,0x400000010001\0";
    assert_eq!((status[8 + 12], status[8 + 13], status[8 + 24]), (1, WRITE_EXCLUSIVE_REGISTRANTS_ONLY, 0x45));
    assert_eq!(status[8 + 28..8 + 28 + name.len()], name[..]);

    does(&mut b, 3, 0, key_b, 0);
    assert_eq!(keys(&mut a), [] as [u64; 0]);
    assert_eq!(writes(&mut a2).status, GOOD);
}

#[test]
fn the_sequence_that_people_type_works_as_they_expect() {
    // sg_persist: register, reserve, look, release, unregister; SPC-4.
    let bench = bench();
    let (mut one, mut two) = (host(&bench, "one", 1), host(&bench, "two", 1));
    does(&mut one, 0, 0, 0, 0xABC1);
    does(&mut one, 1, EXCLUSIVE_ACCESS, 0xABC1, 0);
    assert!(conflicts(&two.read(&read10(0, 1), 512)));
    assert!(conflicts(&writes(&mut two)));
    assert_eq!(two.read(&[0x12, 0, 0, 0, 96, 0], 96).status, GOOD);
    assert_eq!(keys(&mut two), [0xABC1]);
    assert_eq!(order(&mut one, 2, WRITE_EXCLUSIVE, 0xABC1, 0).sense(), Some((5, 0x26, 4)));
    does(&mut one, 2, EXCLUSIVE_ACCESS, 0xABC1, 0);
    assert_eq!(writes(&mut two).status, GOOD);
    does(&mut one, 0, 0, 0xABC1, 0);
    assert_eq!(shows(&mut two, 0)[..8], [0, 0, 0, 2, 0, 0, 0, 0], "PRGENERATION");
}

#[test]
fn a_host_that_logs_in_again_finds_its_registration_and_another_session_does_not() {
    // SPC-4: an I_T nexus is an initiator port (name and ISID) and a target port; its loss ends no registration.
    let bench = bench();
    let (mut one, mut two) = (host(&bench, "one", 1), host(&bench, "two", 1));
    does(&mut one, 0, 0, 0, 1);
    does(&mut one, 1, WRITE_EXCLUSIVE, 1, 0);
    // With a logout, by taking its own session over, and after the connection is gone.
    assert_eq!(one.log_out(0), 0);
    let mut again = host(&bench, "one", 1);
    assert_eq!(writes(&mut again).status, GOOD);
    let mut taken_over = host(&bench, "one", 1);
    assert_eq!(writes(&mut taken_over).status, GOOD);
    drop(taken_over);
    let mut other_session = host(&bench, "one", 2);
    assert!(conflicts(&writes(&mut other_session)));
    assert!(conflicts(&writes(&mut two)));
    let mut back = host(&bench, "one", 1);
    does(&mut back, 2, WRITE_EXCLUSIVE, 1, 0);
    assert_eq!(writes(&mut two).status, GOOD);
}

#[test]
fn reserve_ends_with_its_session() {
    // SPC-2, RESERVE; SAM-5, I_T nexus loss.
    let bench = bench();
    let (mut one, mut two) = (host(&bench, "one", 1), host(&bench, "two", 1));
    assert_eq!(one.read(&[0x16, 0, 0, 0, 0, 0], 0).status, GOOD);
    assert!(conflicts(&writes(&mut two)));
    assert!(conflicts(&two.read(&[0; 6], 0)));
    assert_eq!(one.log_out(0), 0);
    assert!(one.closed());
    crate::kit::eventually("the unit is free", || writes(&mut two).status == GOOD);
}

#[test]
fn a_preempted_nexus_command_is_not_answered_and_the_connection_goes_on() {
    // SPC-4, PREEMPT AND ABORT; SAM-5: with TAS zero an aborted command has no status.
    let bench = bench();
    let (mut one, mut two) = (host(&bench, "one", 1), host(&bench, "two", 1));
    does(&mut one, 0, 0, 0, 1);
    does(&mut two, 0, 0, 0, 2);
    does(&mut one, 1, WRITE_EXCLUSIVE, 1, 0);
    does(&mut two, 5, WRITE_EXCLUSIVE, 2, 1);
    assert_eq!(one.ping(b"alive"), b"alive");
    assert_eq!(writes(&mut one).sense(), Some((6, 0x2A, 5)));
    assert!(conflicts(&writes(&mut one)));
    assert_eq!(writes(&mut two).status, GOOD);
}
