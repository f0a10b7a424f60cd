//! One initiator port at several target ports: a registration is of an I_T nexus (SPC-4, Registering).

use super::reports::{full, id};
use super::*;
use crate::scsi::sense as s;

const HOST: &str = "iqn.2026-01.example:host";

/// One initiator port at two target ports, and another one.
fn host() -> (Bench, Handle, Handle, Handle) {
    let mut bench = Bench::of_two_ports();
    let here = bench.join(HOST, 1, 3);
    let there = bench.join(HOST, 1, 4);
    let other = bench.join("iqn.2026-01.example:other", 1, 3);
    (bench, here, there, other)
}

/// Key and target port of every registration of the host.
fn registered(bench: &mut Bench) -> Vec<(u64, u16)> {
    full(bench)
        .into_iter()
        .filter(|entry| entry.0.starts_with(HOST))
        .map(|entry| (entry.1, entry.4))
        .collect()
}

#[test]
fn all_tg_pt_registers_at_every_target_port_as_if_the_same_had_come_through_each() {
    // SPC-4, PERSISTENT RESERVE OUT parameter list, ALL_TG_PT.
    let (mut bench, here, there, _) = host();
    assert_eq!(bench.order(&here, REGISTER, 0, (0, 9), ALL_TG_PT).status, status::GOOD);
    assert_eq!(registered(&mut bench), [(9, 3), (9, 4)]);
    assert_eq!(bench.keys().0, 1, "one command, one generation");
    bench.does(&there, RESERVE, WERO, (9, 0));
    // SPC-4, READ FULL STATUS: a descriptor for each nexus; one of them holds.
    let name = format!("{HOST},i,0x000000000001");
    assert_eq!(full(&mut bench), [(name.clone(), 9, false, 0, 3, false), (name, 9, true, WERO, 4, false)]);
}

#[test]
fn a_registration_made_with_all_tg_pt_goes_and_changes_at_one_target_port_alone() {
    // SPC-4, Unregistering: the I_T nexus on which the command was received.
    let (mut bench, here, there, _) = host();
    assert_eq!(bench.order(&here, REGISTER, 0, (0, 9), ALL_TG_PT).status, status::GOOD);
    bench.does(&there, REGISTER, 0, (9, 8));
    assert_eq!(registered(&mut bench), [(9, 3), (8, 4)]);
    bench.does(&here, REGISTER, 0, (9, 0));
    assert_eq!(registered(&mut bench), [(8, 4)]);
    bench.conflicts(&here, RESERVE, WE, (9, 0));
    bench.does(&there, RESERVE, WE, (8, 0));
    // SPC-4, Persistent reservation holder: the same initiator port elsewhere is another nexus.
    let write = super::super::cdb10(0x2A, 0, 1);
    assert_eq!(bench.status(&here, &write, &[1; 512]), CONFLICT);
    assert_eq!(bench.status(&there, &write, &[1; 512]), status::GOOD);
}

#[test]
fn all_tg_pt_changes_and_removes_at_every_target_port() {
    let (mut bench, here, there, other) = host();
    bench.does(&other, REGISTER, 0, (0, 5));
    assert_eq!(bench.order(&here, REGISTER, 0, (0, 9), ALL_TG_PT).status, status::GOOD);
    bench.does(&there, RESERVE, WERO, (9, 0));
    assert_eq!(bench.order(&here, REGISTER, 0, (9, 7), ALL_TG_PT).status, status::GOOD);
    assert_eq!((registered(&mut bench), bench.reserved()), (vec![(7, 3), (7, 4)], Some((7, WERO))));
    // SPC-4, Unregistering: the reservation goes with its holder's registration, and who is left is told.
    assert_eq!(bench.order(&here, REGISTER, 0, (7, 0), ALL_TG_PT).status, status::GOOD);
    assert_eq!((registered(&mut bench), bench.reserved()), (vec![], None));
    assert_eq!(bench.hears(&other), Some(s::RESERVATIONS_RELEASED.code()));
    assert_eq!((bench.hears(&here), bench.hears(&there)), (None, None));
}

#[test]
fn all_tg_pt_conflicts_where_a_target_port_has_another_key_and_then_nothing_happens() {
    // SPC-4, Register behaviors for a REGISTER service action: RESERVATION KEY is not the nexus' key.
    let (mut bench, here, there, _) = host();
    bench.does(&there, REGISTER, 0, (0, 8));
    for keys in [(0, 9), (0, 0)] {
        assert_eq!(bench.order(&here, REGISTER, 0, keys, ALL_TG_PT).status, CONFLICT);
    }
    bench.does(&here, REGISTER, 0, (0, 9));
    for keys in [(9, 7), (9, 0)] {
        assert_eq!(bench.order(&here, REGISTER, 0, keys, ALL_TG_PT).status, CONFLICT);
    }
    assert_eq!(registered(&mut bench), [(8, 4), (9, 3)]);
    // REGISTER AND IGNORE EXISTING KEY asks for no key.
    assert_eq!(bench.order(&here, REGISTER_AND_IGNORE, 0, (0, 7), ALL_TG_PT).status, status::GOOD);
    assert_eq!(registered(&mut bench), [(7, 4), (7, 3)]);
    assert_eq!(bench.order(&there, REGISTER_AND_IGNORE, 0, (0, 0), ALL_TG_PT).status, status::GOOD);
    assert_eq!(registered(&mut bench), []);
}

#[test]
fn all_tg_pt_with_spec_i_pt_registers_every_initiator_port_at_every_target_port() {
    let (mut bench, here, ..) = host();
    let ids = id("iqn.2026-01.example:more,i,0x000000000002", 0x45);
    let mut list = list(0, 6, SPEC_I_PT | ALL_TG_PT);
    list.extend((ids.len() as u32).to_be_bytes());
    list.extend(ids);
    let ended = bench.run_as(here.nexus(), &cdb(REGISTER, 0, list.len()), &mut out(&list));
    assert_eq!(ended.status, status::GOOD, "{:02x?}", ended.sense);
    let all: Vec<_> = full(&mut bench).into_iter().map(|entry| (entry.0.contains("more"), entry.4)).collect();
    assert_eq!(all, [(false, 3), (false, 4), (true, 3), (true, 4)]);
}

#[test]
fn a_preemption_removes_a_key_at_every_target_port_and_tells_each_nexus() {
    // SPC-4, Removing registrations.
    let (mut bench, here, there, other) = host();
    bench.does(&other, REGISTER, 0, (0, 5));
    assert_eq!(bench.order(&here, REGISTER, 0, (0, 9), ALL_TG_PT).status, status::GOOD);
    bench.does(&other, PREEMPT, 0, (5, 9));
    assert_eq!(registered(&mut bench), []);
    for session in [&here, &there] {
        assert_eq!(bench.hears(session), Some(s::REGISTRATIONS_PREEMPTED.code()));
    }
}

#[test]
fn a_reservation_moves_between_target_ports_of_one_initiator_port() {
    // SPC-4, Registering and moving the reservation: to any nexus but the own.
    let (mut bench, here, there, _) = host();
    bench.does(&here, REGISTER, 0, (0, 9));
    bench.does(&here, RESERVE, WE, (9, 0));
    let to = id(&format!("{HOST},i,0x1"), 0x45);
    let mut list = list(9, 8, 0);
    list[18..20].copy_from_slice(&4_u16.to_be_bytes());
    list[20..24].copy_from_slice(&(to.len() as u32).to_be_bytes());
    list.extend(to);
    let ended = bench.run_as(here.nexus(), &cdb(REGISTER_AND_MOVE, 0, list.len()), &mut out(&list));
    assert_eq!(ended.status, status::GOOD, "{:02x?}", ended.sense);
    assert_eq!((registered(&mut bench), bench.reserved()), (vec![(9, 3), (8, 4)], Some((8, WE))));
    bench.does(&there, RELEASE, WE, (8, 0));
}

#[test]
fn a_session_of_the_same_initiator_at_another_target_is_nobody_here() {
    // SAM-5, I_T nexus: the target port is part of it. SPC-4, TransportID: a device's name stands for its one port here.
    let (mut bench, here, _, other) = host();
    let Entry { ports, view } = entry("iqn.2026-01.example:other");
    let ports = Ports { isid: [0, 0, 0, 0, 0, 7], target: "iqn.2026-01.example:elsewhere".into(), ..ports };
    let _elsewhere = bench.nexuses.enter(Entry { ports, view });
    let ids = id("iqn.2026-01.example:other", 0x05);
    let mut list = list(0, 6, SPEC_I_PT);
    list.extend((ids.len() as u32).to_be_bytes());
    list.extend(ids);
    let ended = bench.run_as(here.nexus(), &cdb(REGISTER, 0, list.len()), &mut out(&list));
    assert_eq!(ended.status, status::GOOD, "{:02x?}", ended.sense);
    bench.does(&other, RESERVE, WE, (6, 0));
}
