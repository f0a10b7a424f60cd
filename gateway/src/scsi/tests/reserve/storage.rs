//! What is stored, when, and what becomes of it.

use super::*;
use crate::scsi::sense as s;
use crate::scsi::step::Stored;
use crate::scsi::{Identity, Settings, Unit, Unreadable};

/// The bench's unit, after a power cycle.
pub(super) fn power_cycle(bench: &mut Bench) -> Result<(), Unreadable> {
    let identity = Identity::from_serial(super::super::bench::SERIAL);
    let nexuses = std::sync::Arc::clone(&bench.nexuses);
    let settings = Settings { lun: 1, ..Settings::default() };
    let source = bench.unit.source().unwrap();
    bench.unit = Unit::new(identity, super::super::bench::geometry(), bench.size, nexuses, settings)
        .reached_through(source);
    let saved = bench.saved.clone();
    bench.unit.restore_reservations(7, &saved)
}

fn reserved(flags: u8) -> (Bench, Handle, Handle) {
    let mut bench = Bench::new();
    let first = bench.session.clone();
    let second = bench.join("iqn.2026-01.example:second", 0, 3);
    assert_eq!(bench.order(&first, REGISTER, 0, (0, 1), flags).status, status::GOOD);
    assert_eq!(bench.order(&second, REGISTER, 0, (0, 2), flags).status, status::GOOD);
    bench.does(&first, RESERVE, WERO, (1, 0));
    (bench, first, second)
}

#[test]
fn with_aptpl_registrations_and_reservation_survive_a_power_cycle() {
    // SPC-4, Preserving persistent reservations and registrations; PRGENERATION is zero after a power on.
    let (mut bench, first, second) = reserved(APTPL);
    let stranger = bench.join("iqn.2026-01.example:stranger", 0, 3);
    power_cycle(&mut bench).unwrap();
    for session in [&first, &second, &stranger] {
        assert_eq!(bench.hears(session), Some(s::POWER_ON_OCCURRED.code()));
    }
    assert_eq!((bench.keys(), bench.reserved()), ((0, vec![1, 2]), Some((1, WERO))));
    let write = super::super::cdb10(0x2A, 0, 1);
    assert_eq!(bench.status(&stranger, &write, &[1; 512]), CONFLICT);
    assert_eq!(bench.status(&second, &write, &[1; 512]), status::GOOD);
    let ended = bench.does(&first, RELEASE, WERO, (1, 0));
    assert_eq!(ended.io[0], "save 7", "it goes on from what is stored");
}

#[test]
fn without_aptpl_nothing_survives_a_power_cycle() {
    // SPC-4, Preserving persistent reservations and registrations: the last value counts.
    let (mut bench, first, _) = reserved(APTPL);
    assert_eq!(bench.order(&first, REGISTER, 0, (1, 1), 0).status, status::GOOD);
    power_cycle(&mut bench).unwrap();
    bench.hears(&first);
    assert_eq!((bench.keys(), bench.reserved()), ((0, vec![]), None));
}

#[test]
fn what_cannot_be_stored_has_not_happened() {
    // SPC-4: GOOD promises that the state is there.
    let (mut bench, first, second) = reserved(0);
    for action in [REGISTER, RELEASE, CLEAR, PREEMPT] {
        bench.stored.push(Stored::Failed);
        let ended = bench.order(&first, action, WERO, (1, 2), 0);
        assert_eq!(code(&ended.sense), s::INTERNAL_TARGET_FAILURE.code());
        assert_eq!((bench.keys(), bench.reserved()), ((2, vec![1, 2]), Some((1, WERO))));
        assert_eq!(bench.hears(&second), None);
    }
}

#[test]
fn an_order_is_decided_anew_when_another_gateway_was_faster() {
    // The other gateway has cleared everything.
    let (mut other, _, by) = reserved(0);
    other.does(&by, CLEAR, 0, (2, 0));
    let cleared = other.saved.clone();
    let (mut bench, first, second) = reserved(0);
    bench.stored.push(Stored::Changed { number: 99, state: cleared });
    let ended = bench.order(&first, RELEASE, WERO, (1, 0), 0);
    assert_eq!(ended.status, CONFLICT, "it is not registered any more");
    assert_eq!(bench.keys().1, Vec::<u64>::new());
    assert_eq!(bench.hears(&second), Some(s::RESERVATIONS_PREEMPTED.code()));
}

#[test]
fn an_order_that_is_always_too_late_is_busy_in_the_end() {
    let (mut bench, first, _) = reserved(0);
    let state = bench.saved.clone();
    for number in 0..20 {
        bench.stored.push(Stored::Changed { number: 100 - number, state: state.clone() });
    }
    assert_eq!(bench.order(&first, RELEASE, WERO, (1, 0), 0).status, status::BUSY);
}

#[test]
fn what_another_gateway_changes_is_taken_up_and_told() {
    let (mut bench, first, second) = reserved(0);
    let before = bench.saved.clone();
    bench.does(&second, PREEMPT, EARO, (2, 1));
    let after = bench.saved.clone();
    bench.hears(&first);
    let mut here = Bench::new();
    let (first, second) = (here.session.clone(), here.join("iqn.2026-01.example:second", 0, 3));
    here.unit.reservations_changed(3, &before).unwrap();
    assert_eq!(here.reserved(), Some((1, WERO)));
    here.unit.reservations_changed(4, &after).unwrap();
    here.unit.reservations_changed(3, &before).unwrap();
    assert_eq!(here.reserved(), Some((2, EARO)), "older news is no news");
    assert_eq!(here.hears(&first), Some(s::REGISTRATIONS_PREEMPTED.code()));
    assert_eq!(here.hears(&second), Some(s::RESERVATIONS_RELEASED.code()));
    assert!(here.unit.reservations_changed(5, b"{}").is_err());
    assert_eq!(here.reserved(), Some((2, EARO)), "what is not understood changes nothing");
}

/// What version 1 would have written of it.
fn as_version_1(saved: &[u8]) -> String {
    let saved = String::from_utf8(saved.to_vec()).unwrap();
    let saved = saved.replace("\"version\":2", "\"version\":1");
    saved.replace("\"key\"", "\"all_target_ports\":false,\"key\"")
}

#[test]
fn registrations_of_an_earlier_release_are_read_and_one_for_all_target_ports_becomes_one_at_each() {
    let (mut bench, first, _) = reserved(APTPL);
    bench.through(Cluster::new(false));
    let old = as_version_1(&bench.saved);
    let (one, other) = old.split_once("\"all_target_ports\":false").unwrap();
    bench.saved = format!("{one}\"all_target_ports\":true{other}").into_bytes();
    power_cycle(&mut bench).unwrap();
    bench.hears(&first);
    // SPC-4, Persistent reservation holder: one I_T nexus, the one it was made through.
    let expected = [("first", 1, true, 3), ("first", 1, false, 4), ("second", 2, false, 3)];
    let expected = expected.map(|(name, key, holds, port)| {
        let kind = if holds { WERO } else { 0 };
        (format!("iqn.2026-01.example:{name},i,0x000000000000"), key, holds, kind, port, false)
    });
    assert_eq!(reports::full(&mut bench), expected);
    bench.does(&first, REGISTER, 0, (1, 1));
    assert!(bench.saved.starts_with(b"{\"version\":2"), "what is written is of today");
}

#[test]
fn what_was_not_written_by_this_or_an_earlier_release_is_refused_and_never_taken_for_nothing() {
    let (mut bench, ..) = reserved(APTPL);
    let new = String::from_utf8(bench.saved.clone()).unwrap();
    let old = as_version_1(&bench.saved);
    for good in [&new, &old] {
        bench.saved = good.clone().into_bytes();
        power_cycle(&mut bench).unwrap();
        for (from, to) in [
            ("\"version\":", "\"version\":10"),
            ("\"type\":5", "\"type\":4"),
            ("\"holds\":true", "\"holds\":false"),
            ("\"holds\":false", "\"holds\":true"),
            ("\"key\":1", "\"key\":0"),
            ("example:second", "example:first"),
            ("\"aptpl\"", "\"aptql\""),
            ("}", ""),
        ] {
            assert!(good.contains(from), "{good}");
            bench.saved = good.replace(from, to).into_bytes();
            assert!(power_cycle(&mut bench).is_err(), "{from} → {to}");
        }
    }
    // Each version has its own fields.
    for (good, from, to) in [(&new, ":2,", ":1,"), (&old, ":1,", ":2,")] {
        bench.saved = good.replacen(from, to, 1).into_bytes();
        assert!(power_cycle(&mut bench).is_err());
    }
    bench.saved = new.replace("\"version\":2", "\"version\":3").into_bytes();
    assert_eq!(power_cycle(&mut bench), Err(Unreadable::Version(3)));
}
