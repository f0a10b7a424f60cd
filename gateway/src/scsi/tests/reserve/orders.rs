//! What each service action of PERSISTENT RESERVE OUT makes of registrations and reservation.

use super::*;
use crate::scsi::sense as s;

fn three() -> (Bench, Handle, Handle, Handle) {
    let mut bench = Bench::new();
    let first = bench.session.clone();
    let second = bench.join("iqn.2026-01.example:second", 0, 3);
    let third = bench.join("iqn.2026-01.example:third", 0, 3);
    (bench, first, second, third)
}

#[test]
fn a_nexus_registers_changes_its_key_and_unregisters() {
    // SPC-4, Registering: register behaviors for a REGISTER service action.
    let (mut bench, first, second, _) = three();
    bench.does(&first, REGISTER, 0, (0, 0));
    assert_eq!(bench.keys(), (0, vec![]), "not registered, both keys zero: nothing but GOOD");
    bench.conflicts(&first, REGISTER, 0, (1, 2));
    bench.does(&first, REGISTER, 0, (0, 0xA));
    bench.conflicts(&first, REGISTER, 0, (0, 0xB));
    bench.conflicts(&first, REGISTER, 0, (0xB, 0xC));
    bench.does(&first, REGISTER, 0, (0xA, 0xB));
    bench.does(&second, REGISTER, 0, (0, 0xB));
    assert_eq!(bench.keys(), (3, vec![0xB, 0xB]));
    bench.does(&first, REGISTER, 0, (0xB, 0));
    assert_eq!(bench.keys(), (4, vec![0xB]));
}

#[test]
fn register_and_ignore_existing_key_asks_for_no_key() {
    // SPC-4, Registering: register behaviors for a REGISTER AND IGNORE EXISTING KEY service action.
    let (mut bench, first, ..) = three();
    bench.does(&first, REGISTER_AND_IGNORE, 0, (7, 0));
    assert_eq!(bench.keys(), (0, vec![]));
    bench.does(&first, REGISTER_AND_IGNORE, 0, (7, 0xA));
    bench.does(&first, REGISTER_AND_IGNORE, 0, (8, 0xB));
    assert_eq!(bench.keys(), (2, vec![0xB]));
    bench.does(&first, REGISTER_AND_IGNORE, 0, (9, 0));
    assert_eq!(bench.keys(), (3, vec![]));
}

#[test]
fn a_registration_is_the_ports_and_outlives_its_session() {
    // SPC-4, Persistent reservations overview: registrations are retained across an I_T nexus loss.
    let mut bench = Bench::new();
    let session = bench.join("iqn.2026-01.example:host", 1, 3);
    bench.does(&session, REGISTER, 0, (0, 0xA));
    bench.does(&session, RESERVE, WE, (0xA, 0));
    drop(session);
    let other = bench.join("iqn.2026-01.example:host", 2, 3);
    bench.conflicts(&other, RESERVE, WE, (0xA, 0));
    let elsewhere = bench.join("iqn.2026-01.example:host", 1, 4);
    bench.conflicts(&elsewhere, RESERVE, WE, (0xA, 0));
    let again = bench.join("iqn.2026-01.example:host", 1, 3);
    bench.does(&again, RESERVE, WE, (0xA, 0));
    bench.unit.reset(crate::scsi::Reset::Target);
    assert_eq!(bench.hears(&again), Some(s::SCSI_BUS_RESET_OCCURRED.code()));
    bench.does(&again, RELEASE, WE, (0xA, 0));
}

#[test]
fn a_reservation_is_made_once_and_again_only_as_it_is() {
    // SPC-4, Reserving.
    for kind in [WE, EA, WERO, EARO, WEAR, EAAR] {
        let (mut bench, first, second, third) = three();
        bench.conflicts(&first, RESERVE, kind, (0, 0));
        bench.does(&first, REGISTER, 0, (0, 1));
        bench.does(&second, REGISTER, 0, (0, 2));
        bench.conflicts(&first, RESERVE, kind, (2, 0));
        bench.does(&first, RESERVE, kind, (1, 0));
        let before = bench.keys();
        bench.does(&first, RESERVE, kind, (1, 0));
        let other = if kind == WE { EA } else { WE };
        bench.conflicts(&first, RESERVE, other, (1, 0));
        bench.conflicts(&third, RESERVE, kind, (0, 0));
        let all = matches!(kind, WEAR | EAAR);
        // With an all registrants type every registrant is a holder.
        if all {
            bench.does(&second, RESERVE, kind, (2, 0));
        } else {
            bench.conflicts(&second, RESERVE, kind, (2, 0));
        }
        assert_eq!(bench.reserved(), Some((if all { 0 } else { 1 }, kind)));
        assert_eq!(bench.keys(), before, "RESERVE does not count");
    }
}

#[test]
fn scope_and_type_must_be_those_that_there_are() {
    // SPC-4, Persistent reservation scope, … type: INVALID FIELD IN CDB.
    let (mut bench, first, ..) = three();
    bench.does(&first, REGISTER, 0, (0, 1));
    for wrong in [0, 2, 4, 9, 15, 0x11, 0x21, 0xF1] {
        bench.refuses(&first, RESERVE, wrong, (1, 0), s::INVALID_FIELD_IN_CDB);
    }
}

#[test]
fn only_the_holder_releases_and_only_what_it_holds() {
    // SPC-4, Releasing.
    let (mut bench, first, second, third) = three();
    bench.does(&first, REGISTER, 0, (0, 1));
    bench.does(&second, REGISTER, 0, (0, 2));
    bench.does(&first, RELEASE, WE, (1, 0));
    bench.does(&first, RESERVE, WE, (1, 0));
    bench.conflicts(&third, RELEASE, WE, (0, 0));
    bench.conflicts(&first, RELEASE, WE, (2, 0));
    bench.does(&second, RELEASE, WE, (2, 0));
    for wrong in [EA, WERO, 0x11, 0] {
        bench.refuses(&first, RELEASE, wrong, (1, 0), s::INVALID_RELEASE_OF_PERSISTENT_RESERVATION);
    }
    assert_eq!(bench.reserved(), Some((1, WE)));
    bench.does(&first, RELEASE, WE, (1, 0));
    assert_eq!((bench.reserved(), bench.keys()), (None, (2, vec![1, 2])));
}

#[test]
fn a_reservation_goes_with_its_holders_registration() {
    // SPC-4, Unregistering.
    for kind in [WE, EA, WERO, EARO, WEAR, EAAR] {
        let (mut bench, first, second, _) = three();
        bench.does(&first, REGISTER, 0, (0, 1));
        bench.does(&second, REGISTER, 0, (0, 2));
        bench.does(&first, RESERVE, kind, (1, 0));
        bench.does(&first, REGISTER, 0, (1, 0));
        let all = matches!(kind, WEAR | EAAR);
        assert_eq!(bench.reserved(), all.then_some((0, kind)), "all registrants: until the last has gone");
        bench.order(&second, REGISTER_AND_IGNORE, 0, (0, 0), 0);
        bench.order(&second, REGISTER_AND_IGNORE, 0, (0, 0), 0);
        assert_eq!((bench.reserved(), bench.keys().1), (None, vec![]));
    }
}

#[test]
fn clear_takes_everything_away() {
    // SPC-4, Clearing a persistent reservation.
    let (mut bench, first, second, third) = three();
    bench.does(&first, REGISTER, 0, (0, 1));
    bench.does(&second, REGISTER, 0, (0, 2));
    bench.does(&first, RESERVE, EA, (1, 0));
    bench.conflicts(&third, CLEAR, 0, (0, 0));
    bench.conflicts(&second, CLEAR, 0, (1, 0));
    bench.does(&second, CLEAR, 0, (2, 0));
    assert_eq!((bench.reserved(), bench.keys()), (None, (3, vec![])));
}

#[test]
fn a_preemption_of_the_holder_takes_the_reservation_over() {
    // SPC-4, Preempting persistent reservations with PREEMPT.
    for action in [PREEMPT, PREEMPT_AND_ABORT] {
        let (mut bench, first, second, third) = three();
        bench.does(&first, REGISTER, 0, (0, 1));
        bench.does(&second, REGISTER, 0, (0, 2));
        bench.does(&third, REGISTER, 0, (0, 1));
        bench.does(&first, RESERVE, WE, (1, 0));
        bench.conflicts(&second, action, EA, (1, 1));
        bench.refuses(&second, action, 2, (2, 1), s::INVALID_FIELD_IN_CDB);
        bench.refuses(&second, action, EA, (2, 0), s::INVALID_FIELD_IN_PARAMETER_LIST);
        bench.does(&second, action, EA, (2, 1));
        assert_eq!(bench.reserved(), Some((2, EA)));
        assert_eq!(bench.keys(), (4, vec![2]), "every registration with the holder's key is gone");
        // The holder may preempt itself, to change the type.
        bench.does(&second, action, WERO, (2, 2));
        assert_eq!((bench.reserved(), bench.keys()), (Some((2, WERO)), (5, vec![2])));
    }
}

#[test]
fn a_preemption_of_another_key_removes_registrations_only() {
    // SPC-4, Removing registrations.
    let (mut bench, first, second, third) = three();
    bench.does(&first, REGISTER, 0, (0, 1));
    bench.does(&second, REGISTER, 0, (0, 2));
    bench.conflicts(&first, PREEMPT, 0, (1, 3));
    bench.does(&third, REGISTER, 0, (0, 3));
    bench.does(&first, RESERVE, WERO, (1, 0));
    bench.does(&third, PREEMPT, 0, (3, 2));
    assert_eq!((bench.reserved(), bench.keys()), (Some((1, WERO)), (4, vec![1, 3])));
    bench.conflicts(&third, PREEMPT, WERO, (3, 9));
    bench.conflicts(&second, PREEMPT, WERO, (2, 1));
    bench.does(&first, PREEMPT, WE, (1, 3));
    assert_eq!((bench.reserved(), bench.keys().1), (Some((1, WERO)), vec![1]));
}

#[test]
fn with_all_registrants_a_zero_key_preempts_everybody_and_a_key_only_its_owners() {
    // SPC-4, Preempting persistent reservations with PREEMPT, all registrants.
    let (mut bench, first, second, third) = three();
    for (nexus, key) in [(&first, 1), (&second, 2), (&third, 3)] {
        bench.does(nexus, REGISTER, 0, (0, key));
    }
    bench.does(&first, RESERVE, WEAR, (1, 0));
    bench.does(&second, PREEMPT, EA, (2, 3));
    assert_eq!((bench.reserved(), bench.keys()), (Some((0, WEAR)), (4, vec![1, 2])));
    bench.does(&second, PREEMPT, EA, (2, 0));
    assert_eq!((bench.reserved(), bench.keys()), (Some((2, EA)), (5, vec![2])));
}

#[test]
fn the_parameter_list_has_24_bytes() {
    // SPC-4, PERSISTENT RESERVE OUT: PARAMETER LIST LENGTH ERROR.
    let (mut bench, first, ..) = three();
    bench.does(&first, REGISTER, 0, (0, 1));
    for action in REGISTER..=REGISTER_AND_IGNORE {
        for length in [0, 8, 23, 25, 28, 24 << 16, u32::MAX as usize] {
            let data = vec![0; length.min(100)];
            let ended = bench.run_as(first.nexus(), &cdb(action, WE, length), &mut out(&data));
            assert_eq!(code(&ended.sense), s::PARAMETER_LIST_LENGTH_ERROR.code(), "{action} {length}");
        }
        // Less than it says has come.
        let ended = bench.run_as(first.nexus(), &cdb(action, WE, 24), &mut out(&[0; 20]));
        assert_eq!(code(&ended.sense), s::PARAMETER_LIST_LENGTH_ERROR.code());
    }
    assert_eq!(bench.keys(), (1, vec![1]));
}

#[test]
fn no_more_registrations_are_taken_than_there_is_room_for() {
    // SPC-4, Registering: INSUFFICIENT REGISTRATION RESOURCES.
    let mut bench = Bench::new();
    let most = crate::scsi::reservation::MOST_REGISTRANTS;
    let mut list = list(0, 7, SPEC_I_PT);
    let mut ids = Vec::new();
    for number in 0..most - 1 {
        ids.extend(reports::id(&format!("iqn.2026-01.example:h{number},i,0x{number:012x}"), 0x45));
    }
    list.extend((ids.len() as u32).to_be_bytes());
    list.extend(&ids);
    let first = bench.session.clone();
    let ended = bench.run_as(first.nexus(), &cdb(REGISTER, 0, list.len()), &mut out(&list));
    assert_eq!((ended.status, bench.keys().1.len()), (status::GOOD, most));
    let late = bench.join("iqn.2026-01.example:late", 0, 3);
    bench.refuses(&late, REGISTER, 0, (0, 1), s::INSUFFICIENT_REGISTRATION_RESOURCES);
    // What is there may still change.
    bench.does(&first, REGISTER, 0, (7, 8));
}

#[test]
fn who_has_no_name_can_reserve_nothing() {
    let mut bench = Bench::new();
    let list = list(0, 1, 0);
    let ended = bench.run_as(ring::Nexus::UNKNOWN, &cdb(REGISTER, 0, 24), &mut out(&list));
    assert_eq!(code(&ended.sense), s::INVALID_COMMAND_OPERATION_CODE.code());
    let ended = bench.run_as(ring::Nexus::UNKNOWN, &[0x16, 0, 0, 0, 0, 0], &mut none());
    assert_eq!(code(&ended.sense), s::INVALID_COMMAND_OPERATION_CODE.code());
}

#[test]
fn a_service_action_that_is_not_there_is_an_invalid_field() {
    // SPC-4, SERVICE ACTION field.
    let mut bench = Bench::new();
    for action in 4..32 {
        bench.fails(&[0x5E, action, 0, 0, 0, 0, 0, 0, 24, 0], s::INVALID_FIELD_IN_CDB);
    }
    for action in 8..32 {
        bench.fails_with(&cdb(action, 0, 24), &list(0, 0, 0), s::INVALID_FIELD_IN_CDB);
    }
}
