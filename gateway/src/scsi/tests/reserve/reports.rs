//! PERSISTENT RESERVE IN, and the TransportIDs that go in and out.

use super::*;
use crate::scsi::sense as s;

/// A TransportID as an initiator writes it.
pub(in crate::scsi::tests) fn id(text: &str, format: u8) -> Vec<u8> {
    let mut id = vec![format, 0, 0, 0];
    id.extend_from_slice(text.as_bytes());
    id.push(0);
    id.resize(id.len().next_multiple_of(4).max(24), 0);
    let length = ((id.len() - 4) as u16).to_be_bytes();
    id[2..4].copy_from_slice(&length);
    id
}

fn specified(keys: (u64, u64), ids: &[Vec<u8>]) -> Vec<u8> {
    let ids = ids.concat();
    let mut list = list(keys.0, keys.1, SPEC_I_PT);
    list.extend((ids.len() as u32).to_be_bytes());
    list.extend(ids);
    list
}

/// Port, key and whether it holds, of every descriptor of READ FULL STATUS.
pub(super) fn full(bench: &mut Bench) -> Vec<(String, u64, bool, u8, u16, bool)> {
    let data = bench.shows(3);
    let mut rest = &data[8..];
    let mut found = Vec::new();
    while !rest.is_empty() {
        let key = rest[..8].iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        let length = u32::from_be_bytes(rest[20..24].try_into().unwrap()) as usize;
        let id = &rest[24..24 + length];
        // SPC-4, TransportID: iSCSI, format 01b; ADDITIONAL LENGTH.
        assert_eq!((id[0], usize::from(id[3])), (0x45, length - 4));
        let name: Vec<u8> = id[4..].iter().copied().take_while(|byte| *byte != 0).collect();
        let port = u16::from_be_bytes([rest[18], rest[19]]);
        let name = String::from_utf8(name).unwrap();
        found.push((name, key, rest[12] & 1 != 0, rest[13], port, rest[12] & 2 != 0));
        rest = &rest[24 + length..];
    }
    found
}

#[test]
fn capabilities_are_those_that_there_are() {
    // SPC-4, REPORT CAPABILITIES: CRH, SIP_C, ATP_C, PTPL_C; TMV and ALLOW COMMANDS 011b; all six types.
    let mut bench = Bench::new();
    assert_eq!(bench.shows(2), [0, 8, 0x1D, 0x80 | 0x30, 0xEA, 0x01, 0, 0]);
    let first = bench.session.clone();
    assert_eq!(bench.order(&first, REGISTER, 0, (0, 1), APTPL).status, status::GOOD);
    assert_eq!(bench.shows(2)[3], 0x80 | 0x30 | 1, "PTPL_A");
}

#[test]
fn full_status_names_every_port_and_the_holder() {
    // SPC-4, READ FULL STATUS.
    let mut bench = Bench::new();
    let first = bench.session.clone();
    let second = bench.join("iqn.2026-01.example:second", 0x2A, 4);
    bench.does(&first, REGISTER, 0, (0, 1));
    bench.does(&second, REGISTER, 0, (0, 2));
    bench.does(&second, RESERVE, WERO, (2, 0));
    let one = "iqn.2026-01.example:first,i,0x000000000000".to_owned();
    let two = "iqn.2026-01.example:second,i,0x00000000002a".to_owned();
    assert_eq!(
        full(&mut bench),
        [(one.clone(), 1, false, 0, 3, false), (two.clone(), 2, true, WERO, 4, false),]
    );
    bench.does(&second, PREEMPT, WEAR, (2, 2));
    assert_eq!(full(&mut bench), [(one, 1, true, WEAR, 3, false), (two, 2, true, WEAR, 4, false)]);
}

#[test]
fn data_is_cut_to_the_allocation_length_and_says_how_long_it_is() {
    // SPC-4, ALLOCATION LENGTH; ADDITIONAL LENGTH is not adjusted.
    let mut bench = Bench::new();
    let first = bench.session.clone();
    bench.does(&first, REGISTER, 0, (0, 1));
    for action in 0..4 {
        let whole = bench.shows(action);
        for length in [0, 4, 8, 12] {
            let cut = bench.reads(&[0x5E, action, 0, 0, 0, 0, 0, 0, length, 0], 64);
            assert_eq!(cut, whole[..whole.len().min(length.into())]);
        }
    }
}

#[test]
fn other_ports_are_registered_with_the_sender() {
    // SPC-4, SPEC_I_PT.
    let mut bench = Bench::new();
    let first = bench.session.clone();
    let known = bench.join("iqn.2026-01.example:known", 5, 3);
    bench.does(&known, REGISTER, 0, (0, 9));
    let _one_session = bench.join("iqn.2026-01.example:single", 6, 3);
    let list = specified(
        (0, 1),
        &[
            id("iqn.2026-01.example:absent,i,0x400001", 0x45),
            id("IQN.2026-01.example:Single", 0x05),
            id("iqn.2026-01.example:known,i,0x000000000005", 0x45),
        ],
    );
    let ended = bench.run_as(first.nexus(), &cdb(REGISTER, 0, list.len()), &mut out(&list));
    assert_eq!(ended.status, status::GOOD, "{:02x?}", ended.sense);
    let names: Vec<_> = full(&mut bench).into_iter().map(|entry| (entry.0, entry.1)).collect();
    let named = |name: &str, key| (format!("iqn.2026-01.example:{name}"), key);
    assert_eq!(
        names,
        [
            named("known,i,0x000000000005", 9),
            named("first,i,0x000000000000", 1),
            named("absent,i,0x000000400001", 1),
            named("single,i,0x000000000006", 1),
        ]
    );
    let again = specified((1, 2), &[]);
    // Not with REGISTER AND IGNORE EXISTING KEY.
    bench.fails_with(&cdb(REGISTER_AND_IGNORE, 0, again.len()), &again, s::INVALID_FIELD_IN_PARAMETER_LIST);
}

#[test]
fn a_registered_nexus_may_not_set_spec_i_pt_even_with_an_empty_list() {
    // SPC-4, Register behaviors for a REGISTER service action: INVALID FIELD IN CDB, whether the key changes or goes.
    let mut bench = Bench::new();
    let first = bench.session.clone();
    for ids in [vec![], vec![id("iqn.2026-01.example:more,i,0x1", 0x45)]] {
        let list = specified((0, 1), &ids);
        bench.writes(&cdb(REGISTER, 0, list.len()), &list);
        for service_key in [0, 1, 2] {
            let again = specified((1, service_key), &ids);
            bench.fails_with(&cdb(REGISTER, 0, again.len()), &again, s::INVALID_FIELD_IN_CDB);
        }
        let wrong_key = specified((9, 2), &ids);
        let ended = bench.run(&cdb(REGISTER, 0, wrong_key.len()), &mut out(&wrong_key));
        assert_eq!(ended.status, CONFLICT, "the key is looked at first");
        bench.does(&first, REGISTER, 0, (1, 0));
    }
}

#[test]
fn transport_ids_that_name_nobody_register_nobody() {
    // SPC-4, SPEC_I_PT: a list that ends too early, a name of several ports, another protocol.
    let mut bench = Bench::new();
    let _two = [1, 2].map(|isid| bench.join("iqn.2026-01.example:twice", isid, 3));
    let good = id("iqn.2026-01.example:a,i,0x1", 0x45);
    for (ids, sense) in [
        (vec![id("iqn.2026-01.example:twice", 0x05)], s::INVALID_FIELD_IN_PARAMETER_LIST),
        (vec![id("iqn.2026-01.example:nobody", 0x05)], s::INVALID_FIELD_IN_PARAMETER_LIST),
        (vec![good.clone(), id("x", 0x06)], s::INVALID_FIELD_IN_PARAMETER_LIST),
        (vec![good[..20].to_vec()], s::INVALID_FIELD_IN_PARAMETER_LIST),
    ] {
        let list = specified((0, 1), &ids);
        bench.fails_with(&cdb(REGISTER, 0, list.len()), &list, sense);
    }
    let mut long = specified((0, 1), &[good]);
    long[27] += 4;
    bench.fails_with(&cdb(REGISTER, 0, long.len()), &long, s::PARAMETER_LIST_LENGTH_ERROR);
    bench.fails_with(&cdb(REGISTER, 0, 24), &list(0, 1, SPEC_I_PT), s::PARAMETER_LIST_LENGTH_ERROR);
    assert_eq!(bench.keys(), (0, vec![]));
}

fn moves(keys: (u64, u64), unregister: bool, port: u16, id: &[u8]) -> Vec<u8> {
    let mut list = list(keys.0, keys.1, 0);
    list[17] = u8::from(unregister) << 1;
    list[18..20].copy_from_slice(&port.to_be_bytes());
    list[20..24].copy_from_slice(&(id.len() as u32).to_be_bytes());
    list.extend_from_slice(id);
    list
}

#[test]
fn a_reservation_moves_to_another_port_with_its_type() {
    // SPC-4, Registering and moving the reservation.
    for unregister in [false, true] {
        let mut bench = Bench::new();
        let first = bench.session.clone();
        let second = bench.join("iqn.2026-01.example:second", 1, 3);
        let to = id("iqn.2026-01.example:second,i,0x000000000001", 0x45);
        let moved = |bench: &mut Bench, by: &Handle, list: &[u8]| {
            let ended = bench.run_as(by.nexus(), &cdb(REGISTER_AND_MOVE, 0, list.len()), &mut out(list));
            (ended.status, if ended.sense.is_empty() { (0, 0, 0) } else { code(&ended.sense) })
        };
        let conflict = (CONFLICT, (0, 0, 0));
        let wrong = |sense: Sense| (status::CHECK_CONDITION, sense.code());
        let list = moves((1, 2), unregister, 3, &to);
        assert_eq!(moved(&mut bench, &first, &list), conflict, "not registered");
        bench.does(&first, REGISTER, 0, (0, 1));
        assert_eq!(moved(&mut bench, &first, &list), wrong(s::INVALID_FIELD_IN_CDB), "nothing to move");
        bench.does(&first, RESERVE, WE, (1, 0));
        let invalid = wrong(s::INVALID_FIELD_IN_PARAMETER_LIST);
        assert_eq!(moved(&mut bench, &first, &moves((1, 0), unregister, 3, &to)), invalid, "no key");
        assert_eq!(moved(&mut bench, &first, &moves((1, 2), unregister, 9, &to)), invalid, "no such port");
        let own = id(&format!("{FIRST},i,0x0"), 0x45);
        assert_eq!(moved(&mut bench, &first, &moves((1, 2), unregister, 3, &own)), invalid, "to itself");
        let short = wrong(s::PARAMETER_LIST_LENGTH_ERROR);
        assert_eq!(moved(&mut bench, &first, &list[..40]), short);
        assert_eq!(moved(&mut bench, &first, &moves((9, 2), unregister, 3, &to)), conflict, "not its key");
        assert_eq!(moved(&mut bench, &first, &list), (status::GOOD, (0, 0, 0)));
        let keys = if unregister { vec![2] } else { vec![1, 2] };
        assert_eq!((bench.reserved(), bench.keys()), (Some((2, WE)), (2, keys)));
        bench.does(&second, RELEASE, WE, (2, 0));
    }
}

#[test]
fn a_reservation_of_all_registrants_cannot_be_moved() {
    // SPC-4, Registering and moving the reservation: RESERVATION CONFLICT.
    let mut bench = Bench::new();
    let first = bench.session.clone();
    bench.does(&first, REGISTER, 0, (0, 1));
    bench.does(&first, RESERVE, EAAR, (1, 0));
    let list = moves((1, 2), false, 3, &id("iqn.2026-01.example:second,i,0x1", 0x45));
    let ended = bench.run_as(first.nexus(), &cdb(REGISTER_AND_MOVE, 0, list.len()), &mut out(&list));
    assert_eq!(ended.status, CONFLICT);
}
