//! Parameter lists that are nearly right: each begins as a good one of its command, and is then damaged here and there, cut
//! or prolonged, with a parameter list length that tells the truth or does not. None panics, none is left unanswered.

use proptest::collection::vec;
use proptest::prelude::*;

use super::bench::{Ended, out};
use super::{Bench, cdb16, copy, reserve};
use crate::scsi::opcode::{self, Flow};
use crate::scsi::step::status;

/// A command with a parameter list: its CDB, the bytes of its PARAMETER LIST LENGTH, a good list.
struct Listed {
    cdb: Vec<u8>,
    length: std::ops::Range<usize>,
    list: Vec<u8>,
}

fn listed(cdb: &[u8], length: std::ops::Range<usize>, list: Vec<u8>) -> Listed {
    Listed { cdb: cdb.to_vec(), length, list }
}

/// One of every command that has a parameter list, some of them with several kinds.
fn every_list(bench: &mut Bench) -> Vec<Listed> {
    let id = reserve::reports::id("iqn.2026-01.example:second,i,0x2", 0x45);
    let mut specified = reserve::list(0, 1, reserve::SPEC_I_PT);
    specified.extend((id.len() as u32).to_be_bytes());
    specified.extend(&id);
    let mut moved = reserve::list(1, 2, 0);
    moved[18..20].copy_from_slice(&3_u16.to_be_bytes());
    moved[20..24].copy_from_slice(&(id.len() as u32).to_be_bytes());
    moved.extend(&id);
    let register_all = reserve::list(0, 1, reserve::ALL_TG_PT);
    let mut pages = bench.reads(&[0x5A, 0, 0x3F, 0xFF, 0, 0, 0, 1, 0, 0], 256);
    pages[..2].fill(0);
    let mut short_pages = bench.reads(&[0x1A, 0, 0x08, 0, 255, 0], 255);
    short_pages[0] = 0;
    let segment = copy::segment((0, 0xFFFF), 4, 0, 64);
    let xcopy = copy::parameters(7, &[copy::naa(super::bench::SERIAL)], &[segment]);
    let unmap = [&[0, 22, 0, 16, 0, 0, 0, 0][..], &8_u64.to_be_bytes(), &[0, 0, 0, 8, 0, 0, 0, 0]].concat();
    let (zero_cdb, zero_list) = copy::write_zero_token(8);
    let source = copy::token::source(&[(0, 8), (64, 8)]);
    vec![
        listed(&[0x04, 0x10, 0, 0, 0, 0], 0..0, [&[0, 0x88, 0, 0, 0, 1, 0, 2][..], &[1, 2]].concat()),
        listed(&[0x04, 0x30, 0, 0, 0, 0], 0..0, vec![0; 8]),
        listed(&[0x15, 0x10, 0, 0, 0, 0], 4..5, short_pages),
        listed(&[0x1D, 0x10, 0, 0, 0, 0], 3..5, vec![0; 4]),
        listed(&[0x3B, 0x02, 0, 0, 0, 0, 0, 0, 0, 0], 6..9, vec![7; 100]),
        listed(&[0x3B, 0x0A, 0, 0, 0, 0, 0, 0, 0, 0], 6..9, vec![7; 100]),
        listed(&[0x42, 0, 0, 0, 0, 0, 0, 0, 0, 0], 7..9, unmap),
        listed(&[0x48, 0x81, 0, 0, 0, 0, 0, 0, 0, 0], 7..9, vec![1, 0, 0, 2, 0xAA, 0x55]),
        listed(&[0x55, 0x10, 0, 0, 0, 0, 0, 0, 0, 0], 7..9, pages),
        listed(&reserve::cdb(reserve::REGISTER, 0, 0), 5..9, specified),
        listed(&reserve::cdb(reserve::REGISTER, 0, 0), 5..9, register_all),
        listed(&reserve::cdb(reserve::RESERVE, reserve::WERO, 0), 5..9, reserve::list(1, 0, 0)),
        listed(&reserve::cdb(reserve::REGISTER_AND_MOVE, 0, 0), 5..9, moved),
        listed(&copy::extended_copy(0), 10..14, xcopy),
        listed(&copy::token::cdb(0x10, 1, 0), 10..14, source),
        listed(&zero_cdb, 10..14, zero_list),
        listed(&[0xA4, 0x0A, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 6..10, vec![0, 0, 0, 0, 1, 0, 0, 7, 0, 0, 0, 8]),
    ]
}

/// A unit that has all of these commands, and a sender who is registered with key 1 and holds a reservation.
fn bench() -> Bench {
    let mut bench = Bench::new();
    bench.through(super::alua::Cluster::new(true));
    bench
}

fn claim(command: &Listed, claimed: usize) -> Vec<u8> {
    let mut cdb = command.cdb.clone();
    let bytes = (claimed as u64).to_be_bytes();
    let width = command.length.len();
    cdb[command.length.clone()].copy_from_slice(&bytes[8 - width..]);
    cdb
}

/// Every answer is a status with what belongs to it; the unit then still answers.
fn answered(bench: &mut Bench, cdb: &[u8], ended: &Ended) {
    match ended.status {
        status::GOOD | status::RESERVATION_CONFLICT | status::BUSY => assert!(ended.sense.is_empty()),
        status::CHECK_CONDITION => assert!((8..=32).contains(&ended.sense.len())),
        other => panic!("status {other:02x} of {cdb:02x?}"),
    }
    assert!(ended.data.is_empty(), "data-in of a command that has none");
    assert_eq!(bench.run(&[0x12, 0, 0, 0, 96, 0], &mut super::bench::room_of(96)).status, status::GOOD);
}

#[test]
fn every_command_with_a_parameter_list_is_here() {
    // WRITE and its like carry blocks, not a parameter list.
    let blocks = [0x0A, 0x2A, 0x2E, 0x2F, 0x41, 0x89, 0x8A, 0x8B, 0x8E, 0x8F, 0x93, 0x9C, 0xAA, 0xAE, 0xAF];
    let lists: Vec<u8> = every_list(&mut bench()).iter().map(|command| command.cdb[0]).collect();
    for row in opcode::all().iter().filter(|row| row.data == Flow::Out && !blocks.contains(&row.code)) {
        assert!(lists.contains(&row.code), "{}", row.name);
    }
}

#[test]
fn each_good_list_is_good_and_no_list_at_all_changes_nothing() {
    let count = every_list(&mut bench()).len();
    for index in 0..count {
        let mut bench = bench();
        let command = every_list(&mut bench).swap_remove(index);
        let cdb = claim(&command, command.list.len());
        let code = command.cdb[0];
        if code == 0x5F && command.cdb[1] != reserve::REGISTER {
            let session = bench.session.clone();
            bench.does(&session, reserve::REGISTER, 0, (0, 1));
        }
        if (code, command.cdb[1]) == (0x5F, reserve::REGISTER_AND_MOVE) {
            let session = bench.session.clone();
            bench.does(&session, reserve::RESERVE, reserve::WERO, (1, 0));
        }
        bench.writes(&cdb, &command.list);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 512 }))]

    #[test]
    fn any_damaged_parameter_list_is_answered(
        which in any::<prop::sample::Index>(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 0..5),
        cut in prop_oneof![3 => Just(0_usize), 1 => 1..40_usize],
        more in prop_oneof![3 => Just(0_usize), 1 => 1..600_usize],
        claimed in prop_oneof![4 => Just(None), 1 => (0..70_000_usize).prop_map(Some)],
        registered in any::<bool>(),
    ) {
        let mut bench = bench();
        if registered {
            let session = bench.session.clone();
            bench.does(&session, reserve::REGISTER, 0, (0, 1));
            bench.does(&session, reserve::RESERVE, reserve::WERO, (1, 0));
        }
        let mut lists = every_list(&mut bench);
        let index = which.index(lists.len());
        let mut command = lists.swap_remove(index);
        for (at, byte) in damage {
            let at = at.index(command.list.len());
            command.list[at] = byte;
        }
        command.list.truncate(command.list.len().saturating_sub(cut));
        command.list.resize(command.list.len() + more, 0);
        let widest = (1_usize << (8 * command.length.len())) - 1;
        let cdb = claim(&command, claimed.unwrap_or(command.list.len()).min(widest));
        let ended = bench.run(&cdb, &mut out(&command.list));
        answered(&mut bench, &cdb, &ended);
        bench.finish_background();
        bench.run(&cdb16(0x88, 0, 1), &mut super::bench::room_of(512));
    }
}
