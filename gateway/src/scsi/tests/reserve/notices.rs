//! Who is told what: unit attentions after changes by others, and what a change waits for.

use super::*;
use crate::scsi::sense as s;

fn registered(count: usize) -> (Bench, Vec<Handle>) {
    let mut bench = Bench::new();
    let mut sessions = vec![bench.session.clone()];
    for number in 1..count {
        sessions.push(bench.join(&format!("iqn.2026-01.example:n{number}"), 0, 3));
    }
    for (number, session) in sessions.iter().enumerate() {
        bench.does(session, REGISTER, 0, (0, number as u64 + 1));
    }
    (bench, sessions)
}

#[test]
fn a_release_is_told_to_other_registrants_of_types_that_they_share() {
    // SPC-4, Releasing: RESERVATIONS RELEASED, for registrants only and all registrants types.
    for (kind, told) in [(WE, false), (EA, false), (WERO, true), (EARO, true), (WEAR, true), (EAAR, true)] {
        let (mut bench, sessions) = registered(3);
        let stranger = bench.join("iqn.2026-01.example:stranger", 0, 3);
        bench.does(&sessions[0], RESERVE, kind, (1, 0));
        bench.does(&sessions[0], RELEASE, kind, (1, 0));
        let expected = told.then(|| s::RESERVATIONS_RELEASED.code());
        assert_eq!(bench.hears(&sessions[1]), expected);
        assert_eq!(bench.hears(&sessions[2]), expected);
        assert_eq!(bench.hears(&sessions[0]), None, "not the sender");
        assert_eq!(bench.hears(&stranger), None, "not who is not registered");
    }
}

#[test]
fn the_holders_unregistration_is_told_only_with_registrants_only_types() {
    // SPC-4, Unregistering.
    for (kind, told) in [(WE, false), (EA, false), (WERO, true), (EARO, true), (WEAR, false), (EAAR, false)] {
        let (mut bench, sessions) = registered(2);
        bench.does(&sessions[0], RESERVE, kind, (1, 0));
        bench.does(&sessions[0], REGISTER, 0, (1, 0));
        assert_eq!(bench.hears(&sessions[1]), told.then(|| s::RESERVATIONS_RELEASED.code()), "{kind}");
    }
}

#[test]
fn a_clear_is_told_to_every_other_registrant() {
    // SPC-4, Clearing a persistent reservation: RESERVATIONS PREEMPTED.
    let (mut bench, sessions) = registered(3);
    bench.does(&sessions[1], CLEAR, 0, (2, 0));
    assert_eq!(bench.hears(&sessions[0]), Some(s::RESERVATIONS_PREEMPTED.code()));
    assert_eq!(bench.hears(&sessions[1]), None);
    assert_eq!(bench.hears(&sessions[2]), Some(s::RESERVATIONS_PREEMPTED.code()));
}

#[test]
fn a_preemption_tells_who_lost_its_registration_and_who_lost_the_type() {
    // SPC-4, Preempting: REGISTRATIONS PREEMPTED; RESERVATIONS RELEASED where the type has changed.
    for (kind, released) in [(WERO, false), (EARO, true)] {
        let (mut bench, sessions) = registered(3);
        bench.does(&sessions[0], RESERVE, WERO, (1, 0));
        bench.does(&sessions[1], PREEMPT, kind, (2, 1));
        assert_eq!(bench.hears(&sessions[0]), Some(s::REGISTRATIONS_PREEMPTED.code()));
        assert_eq!(bench.hears(&sessions[1]), None);
        assert_eq!(bench.hears(&sessions[2]), released.then(|| s::RESERVATIONS_RELEASED.code()));
    }
    let (mut bench, sessions) = registered(3);
    bench.does(&sessions[0], PREEMPT, 0, (1, 3));
    assert_eq!(bench.hears(&sessions[2]), Some(s::REGISTRATIONS_PREEMPTED.code()));
    assert_eq!(bench.hears(&sessions[1]), None);
}

#[test]
fn who_has_come_back_hears_of_it_after_the_loss_of_its_nexus() {
    // SAM-5, unit attention conditions and I_T nexus loss; the registration is the port's, whichever session it has now.
    let (mut bench, mut sessions) = registered(2);
    let Entry { ports, view } = entry("iqn.2026-01.example:n1");
    drop(sessions.pop());
    let again = bench.nexuses.enter(Entry { ports, view });
    bench.does(&sessions[0], PREEMPT, 0, (1, 2));
    assert_eq!(bench.hears(&again), Some(s::I_T_NEXUS_LOSS_OCCURRED.code()));
    assert_eq!(bench.hears(&again), Some(s::REGISTRATIONS_PREEMPTED.code()));
    assert_eq!(bench.hears(&again), None);
}

#[test]
fn a_change_waits_for_writes_that_it_no_longer_allows() {
    // SPC-4, PREEMPT: what the preempted nexus has sent must not change the medium after GOOD.
    let (mut bench, sessions) = registered(3);
    let reserved = bench.does(&sessions[0], RESERVE, WE, (1, 0));
    assert_eq!(reserved.io, ["save 3", "AwaitWrites 2"]);
    let preempted = bench.does(&sessions[1], PREEMPT, WERO, (2, 1));
    assert_eq!(preempted.io, ["save 4", "AwaitWrites 1"], "the third is registered and goes on writing");
    let aborted = bench.does(&sessions[2], PREEMPT_AND_ABORT, EA, (3, 2));
    assert_eq!(aborted.io, ["save 5", "Abort 1", "AwaitWrites 2"]);
    let cleared = bench.does(&sessions[2], CLEAR, 0, (3, 0));
    assert_eq!(cleared.io, ["save 6"]);
}
