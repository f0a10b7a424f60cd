//! RESERVE and RELEASE (SPC-2), and what they and persistent reservations are to each other.

use super::*;
use crate::scsi::Reset;
use crate::scsi::tests::cdb10;

const RESERVE_6: [u8; 6] = [0x16, 0, 0, 0, 0, 0];
const RELEASE_6: [u8; 6] = [0x17, 0, 0, 0, 0, 0];
const RESERVE_10: [u8; 10] = [0x56, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const RELEASE_10: [u8; 10] = [0x57, 0, 0, 0, 0, 0, 0, 0, 0, 0];

fn two() -> (Bench, Handle, Handle) {
    let mut bench = Bench::new();
    let first = bench.session.clone();
    let second = bench.join("iqn.2026-01.example:second", 0, 3);
    (bench, first, second)
}

#[test]
fn a_reserved_unit_is_its_holders_until_it_is_released() {
    // SPC-2, RESERVE and RELEASE commands; both lengths are one thing.
    let (mut bench, first, second) = two();
    for (reserve, release) in [(&RESERVE_6[..], &RELEASE_10[..]), (&RESERVE_10, &RELEASE_6)] {
        assert_eq!(bench.status(&first, reserve, &[]), status::GOOD);
        assert_eq!(bench.status(&first, reserve, &[]), status::GOOD);
        assert_eq!(bench.status(&second, reserve, &[]), CONFLICT);
        for cdb in [&[0; 6][..], &cdb10(0x28, 0, 1), &[0x1A, 0, 0x3F, 0, 64, 0]] {
            assert_eq!(bench.status(&second, cdb, &[]), CONFLICT, "{cdb:02x?}");
            assert_eq!(bench.status(&first, cdb, &[]), status::GOOD);
        }
        // INQUIRY, REQUEST SENSE, REPORT LUNS, READ CAPACITY; SPC-2 and SBC.
        for cdb in [&[0x12, 0, 0, 0, 96, 0][..], &[3, 0, 0, 0, 18, 0], &cdb10(0x25, 0, 0)] {
            assert_eq!(bench.status(&second, cdb, &[]), status::GOOD, "{cdb:02x?}");
        }
        assert_eq!(bench.status(&second, release, &[]), status::GOOD, "and nothing happens");
        assert_eq!(bench.status(&second, &cdb10(0x28, 0, 1), &[]), CONFLICT);
        assert_eq!(bench.status(&first, release, &[]), status::GOOD);
        assert_eq!(bench.status(&second, &cdb10(0x28, 0, 1), &[]), status::GOOD);
    }
}

#[test]
fn a_reservation_ends_with_a_reset_and_with_its_holders_session() {
    // SPC-2, Reservations: hard reset, logical unit reset; SAM-5, I_T nexus loss.
    for reset in [Reset::LogicalUnit, Reset::Target] {
        let (mut bench, first, second) = two();
        assert_eq!(bench.status(&first, &RESERVE_6, &[]), status::GOOD);
        bench.unit.reset(reset);
        assert!(bench.hears(&second).is_some());
        assert_eq!(bench.status(&second, &RESERVE_6, &[]), status::GOOD);
    }
    let (mut bench, first, second) = two();
    assert_eq!(bench.status(&second, &RESERVE_6, &[]), status::GOOD);
    assert_eq!(bench.status(&first, &[0; 6], &[]), CONFLICT);
    drop(second);
    assert_eq!(bench.status(&first, &[0; 6], &[]), status::GOOD);
}

#[test]
fn a_reserved_unit_knows_no_persistent_reservations() {
    // SPC-2, RESERVE: PERSISTENT RESERVE IN and OUT conflict, whoever sends them.
    let (mut bench, first, second) = two();
    assert_eq!(bench.status(&first, &RESERVE_6, &[]), status::GOOD);
    for by in [&first, &second] {
        bench.conflicts(by, REGISTER, 0, (0, 1));
        assert_eq!(bench.status(by, &[0x5E, 0, 0, 0, 0, 0, 0, 0, 64, 0], &[]), CONFLICT);
    }
    assert_eq!(bench.status(&first, &RELEASE_6, &[]), status::GOOD);
    bench.does(&second, REGISTER, 0, (0, 1));
}

#[test]
fn registrations_make_reserve_conflict_except_for_who_may_use_the_unit() {
    // SPC-4, Exceptions to SPC-2 RESERVE and RELEASE behavior.
    let (mut bench, first, second) = two();
    let third = bench.join("iqn.2026-01.example:third", 0, 3);
    bench.does(&first, REGISTER, 0, (0, 1));
    bench.does(&second, REGISTER, 0, (0, 2));
    for by in [&first, &second, &third] {
        assert_eq!(bench.status(by, &RESERVE_6, &[]), CONFLICT, "no reservation: SPC-2");
        assert_eq!(bench.status(by, &RELEASE_6, &[]), CONFLICT, "no reservation: SPC-2");
    }
    for (kind, shared) in [(WE, false), (EA, false), (WERO, true), (EARO, true), (WEAR, true), (EAAR, true)] {
        bench.does(&first, RESERVE, kind, (1, 0));
        for cdb in [&RESERVE_6[..], &RELEASE_6, &RESERVE_10, &RELEASE_10] {
            assert_eq!(bench.status(&first, cdb, &[]), status::GOOD, "holder, type {kind}");
            let expected = if shared { status::GOOD } else { CONFLICT };
            assert_eq!(bench.status(&second, cdb, &[]), expected, "registered, type {kind}");
            assert_eq!(bench.status(&third, cdb, &[]), CONFLICT, "not registered, type {kind}");
        }
        assert!(bench.reserved().is_some(), "nothing has been reserved or released");
        bench.does(&first, RELEASE, kind, (1, 0));
        bench.hears(&second);
    }
}

#[test]
fn third_parties_and_extents_are_refused() {
    // SPC-2: optional, and not there.
    let mut bench = Bench::new();
    for byte in [0x01, 0x10, 0x1E] {
        bench.fails(&[0x16, byte, 0, 0, 0, 0], sense::INVALID_FIELD_IN_CDB);
    }
    bench.fails(&[0x56, 0x10, 0, 7, 0, 0, 0, 0, 0, 0], sense::INVALID_FIELD_IN_CDB);
}
