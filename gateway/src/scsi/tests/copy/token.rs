//! Tokens (SBC-3): POPULATE TOKEN, WRITE USING TOKEN, RECEIVE ROD TOKEN INFORMATION.

use super::{neighbour, receive};
use crate::disk::{Error, Geometry};
use crate::nexus::View;
use crate::scsi::Settings;
use crate::scsi::alua::State;
use crate::scsi::sense::Sense;
use crate::scsi::step::{Step, status};
use crate::scsi::tests::alua::Cluster;
use crate::scsi::tests::bench::{Ended, geometry, out, pattern, room_of};
use crate::scsi::tests::{Bench, cdb16, sense};

const OTHER: &str = "11111111-2222-4333-8444-555555555555";

/// A token operation's CDB: service action, list identifier, parameter list length.
pub(in crate::scsi::tests) fn cdb(action: u8, id: u32, len: usize) -> [u8; 16] {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1]) = (0x83, action);
    cdb[6..10].copy_from_slice(&id.to_be_bytes());
    cdb[10..14].copy_from_slice(&(len as u32).to_be_bytes());
    cdb
}

/// RECEIVE ROD TOKEN INFORMATION.
pub(super) fn information(id: u32) -> [u8; 16] {
    let mut cdb = receive(0x07, 0);
    cdb[2..6].copy_from_slice(&id.to_be_bytes());
    cdb[12] = 4;
    cdb
}

fn list(fixed: usize, ranges: &[(u64, u32)]) -> Vec<u8> {
    let mut list = vec![0; fixed];
    list[fixed - 2..].copy_from_slice(&((ranges.len() * 16) as u16).to_be_bytes());
    for (lba, blocks) in ranges {
        list.extend_from_slice(&lba.to_be_bytes());
        list.extend_from_slice(&blocks.to_be_bytes());
        list.extend_from_slice(&[0; 4]);
    }
    let len = (list.len() - 2) as u16;
    list[..2].copy_from_slice(&len.to_be_bytes());
    list
}

/// POPULATE TOKEN's parameter list.
pub(in crate::scsi::tests) fn source(ranges: &[(u64, u32)]) -> Vec<u8> {
    list(16, ranges)
}

/// WRITE USING TOKEN's parameter list.
pub(super) fn destination(token: &[u8], offset: u64, ranges: &[(u64, u32)]) -> Vec<u8> {
    let mut list = list(536, ranges);
    list[8..16].copy_from_slice(&offset.to_be_bytes());
    list[16..528].copy_from_slice(token);
    list
}

/// The block device zero ROD token.
pub(super) fn zero_token() -> [u8; 512] {
    let mut token = [0; 512];
    token[..8].copy_from_slice(&[0xFF, 0xFF, 0x00, 0x01, 0, 0, 0x01, 0xF8]);
    token
}

/// Makes a token.
fn populate(bench: &mut Bench, id: u32, ranges: &[(u64, u32)]) -> Vec<u8> {
    let list = source(ranges);
    let ended = bench.writes(&cdb(0x10, id, list.len()), &list);
    assert!(ended.exclusive, "it waits for writes that are under way");
    let information = bench.reads(&information(id), 1024);
    // SPC-4, RECEIVE ROD TOKEN INFORMATION: available data, service action, status, then the token's descriptor.
    assert_eq!(information[..6], [0, 0, 0x02, 0x22, 0x10, 0x01]);
    assert_eq!(information[15], 0xF1, "blocks");
    let blocks: u32 = ranges.iter().map(|(_, blocks)| blocks).sum();
    assert_eq!(information[16..24], u64::from(blocks).to_be_bytes());
    assert_eq!(information[32..36], 514_u32.to_be_bytes());
    information[38..].to_vec()
}

fn uses(bench: &mut Bench, list: &[u8]) -> Ended {
    bench.writes(&cdb(0x11, 9, list.len()), list)
}

fn refused(bench: &mut Bench, list: &[u8], sense: Sense) {
    bench.fails_with(&cdb(0x11, 9, list.len()), list, sense);
}

#[test]
fn windows_copies_by_a_token() {
    let mut bench = Bench::new();
    bench.store(0, &pattern(6000 * 512));
    let token = populate(&mut bench, 1, &[(100, 3000), (10, 50)]);
    // SPC-4, ROD token format: type, length, bytes represented.
    assert_eq!(token[..8], [0x00, 0x80, 0x00, 0x01, 0, 0, 0x01, 0xF8]);
    assert_eq!(token[48..64], u128::to_be_bytes(3050 * 512));
    uses(&mut bench, &destination(&token, 0, &[(20_000, 1000), (25_000, 2050)]));
    let written = [bench.load(20_000 * 512, 1000 * 512), bench.load(25_000 * 512, 2050 * 512)].concat();
    let read =
        [&pattern(6000 * 512)[100 * 512..3100 * 512], &pattern(6000 * 512)[10 * 512..60 * 512]].concat();
    assert!(written == read);
    let information = bench.reads(&information(9), 1024);
    assert_eq!(information[4..6], [0x11, 0x01]);
    assert_eq!(information[16..24], 3050_u64.to_be_bytes());
    assert_eq!(information.len(), 32, "no token comes of using one");
}

#[test]
fn an_offset_skips_and_a_token_with_less_than_the_ranges_leaves_the_rest() {
    // SBC-3, OFFSET INTO ROD; SPC-4, COPY OPERATION STATUS 03h: residual data.
    let mut bench = Bench::new();
    bench.store(0, &pattern(40 * 512));
    let token = populate(&mut bench, 1, &[(0, 10), (20, 10)]);
    uses(&mut bench, &destination(&token, 5, &[(1000, 40)]));
    assert_eq!(bench.load(1000 * 512, 5 * 512), pattern(40 * 512)[5 * 512..10 * 512]);
    assert_eq!(bench.load(1005 * 512, 10 * 512), pattern(40 * 512)[20 * 512..30 * 512]);
    assert_eq!(bench.load(1015 * 512, 512), [0; 512]);
    let information = bench.reads(&information(9), 1024);
    assert_eq!((information[5], information[23]), (0x03, 15));
    refused(&mut bench, &destination(&token, 20, &[(1000, 1)]), sense::INVALID_FIELD_IN_PARAMETER_LIST);
}

#[test]
fn a_write_to_the_source_revokes_the_token_whatever_wrote_it() {
    let block = vec![1; 512];
    let writes: [&dyn Fn(&mut Bench); 4] = [
        &|bench| drop(bench.writes(&cdb16(0x8A, 12, 1), &block)),
        &|bench| drop(bench.writes(&cdb16(0x93, 0, 11), &[0; 512])),
        &|bench| {
            let unmap =
                [&[0, 22, 0, 16, 0, 0, 0, 0][..], &15_u64.to_be_bytes(), &[0, 0, 0, 1, 0, 0, 0, 0]].concat();
            bench.writes(&[0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], &unmap);
        },
        &|bench| {
            let list = super::parameters(5, &[], &[super::segment((0xFFFF, 0xFFFF), 1, 100, 19)]);
            bench.writes(&super::extended_copy(list.len()), &list);
        },
    ];
    for write in writes {
        let mut bench = Bench::new();
        bench.store(0, &pattern(40 * 512));
        let token = populate(&mut bench, 1, &[(10, 10)]);
        bench.writes(&cdb16(0x8A, 20, 1), &block);
        bench.writes(&cdb16(0x8A, 9, 1), &block);
        uses(&mut bench, &destination(&token, 0, &[(1000, 10)]));
        write(&mut bench);
        refused(&mut bench, &destination(&token, 0, &[(1000, 10)]), sense::TOKEN_REVOKED);
        refused(&mut bench, &destination(&token, 0, &[(1000, 10)]), sense::TOKEN_UNKNOWN);
    }
}

#[test]
fn a_write_while_the_token_is_used_ends_the_copy_before_mixed_data_lands() {
    let mut bench = Bench::new();
    bench.store(0, &pattern(4 * 512));
    let token = populate(&mut bench, 1, &[(0, 4)]);
    let list = destination(&token, 0, &[(1000, 4)]);
    let mut data = out(&list);
    let nexus = bench.session.nexus();
    let step = bench.unit.execute(&cdb(0x11, 9, list.len()), nexus, &data);
    let Step::Io { io, then, .. } = step else { panic!("it has ended") };
    bench.writes(&cdb16(0x8A, 3, 1), &[1; 512]);
    let mut results: Vec<_> = io.into_iter().map(|io| bench.carry_out(io, &mut data)).collect();
    let Step::Done(reply) = bench.unit.resume(then, &mut results, &data) else { panic!("it goes on") };
    assert_eq!(super::bench::code(&reply.sense), sense::TOKEN_REVOKED.code());
    assert_eq!(bench.load(1000 * 512, 4 * 512), [0; 4 * 512]);
    let information = bench.reads(&information(9), 1024);
    assert_eq!((information[5], information[12]), (0x02, status::CHECK_CONDITION));
    assert_eq!(information[32..50], *reply.sense);
}

#[test]
fn a_forged_token_is_refused() {
    let mut bench = Bench::new();
    let token = populate(&mut bench, 1, &[(0, 4)]);
    let with = |at: usize, byte: u8| {
        let mut token = token.clone();
        token[at] = byte;
        destination(&token, 0, &[(1000, 4)])
    };
    refused(&mut bench, &with(200, 1), sense::TOKEN_CORRUPT);
    refused(&mut bench, &with(8, token[8] ^ 1), sense::TOKEN_UNKNOWN);
    refused(&mut bench, &with(7, 0), sense::INVALID_TOKEN_LENGTH);
    refused(&mut bench, &with(3, 2), sense::UNSUPPORTED_TOKEN_TYPE);
    assert!(bench.written.is_empty());
}

#[test]
fn the_zero_token_zeroes() {
    // SBC-3, block device zero ROD token.
    let mut bench = Bench::new();
    bench.store(0, &pattern(100 * 512));
    let ended = uses(&mut bench, &destination(&zero_token(), 0, &[(10, 20), (50, 1)]));
    assert_eq!(ended.io, ["zeroes 5120+10240 deallocate", "zeroes 25600+512 deallocate"]);
    assert_eq!(bench.reads(&information(9), 1024)[16..24], 21_u64.to_be_bytes());
}

#[test]
fn a_token_is_used_on_another_unit_that_reaches_the_first() {
    let mut bench = Bench::new();
    let second = Settings { lun: 0, ..Settings::default() };
    let (other, listing) = neighbour(&bench, OTHER, second, geometry());
    let token = {
        let mut other = other.0.lock().unwrap();
        other.store(0, &pattern(3000 * 512));
        populate(&mut other, 1, &[(0, 3000)])
    };
    uses(&mut bench, &destination(&token, 0, &[(1000, 3000)]));
    assert!(bench.load(1000 * 512, 3000 * 512) == pattern(3000 * 512));

    let nexus = bench.session.nexus();
    bench.nexuses.set_view(nexus, View { luns: vec![1], read_only: vec![] });
    bench.fails(&[0; 6], sense::REPORTED_LUNS_DATA_HAS_CHANGED);
    refused(&mut bench, &destination(&token, 0, &[(1000, 1)]), sense::REMOTE_TOKEN_USAGE_NOT_SUPPORTED);
    bench.nexuses.set_view(nexus, View { luns: vec![0, 1], read_only: vec![] });
    bench.fails(&[0; 6], sense::REPORTED_LUNS_DATA_HAS_CHANGED);
    listing.withdraw();
    refused(&mut bench, &destination(&token, 0, &[(1000, 1)]), sense::REMOTE_TOKEN_USAGE_NOT_SUPPORTED);
    drop((other, listing));
    refused(&mut bench, &destination(&token, 0, &[(1000, 1)]), sense::TOKEN_REVOKED);
}

#[test]
fn blocks_of_another_length_cannot_be_counted_by_the_token() {
    let mut bench = Bench::new();
    let second = Settings { lun: 0, ..Settings::default() };
    let large = Geometry { block_size: 4096, ..geometry() };
    let (other, _listing) = neighbour(&bench, OTHER, second, large);
    let token = populate(&mut other.0.lock().unwrap(), 1, &[(0, 4)]);
    refused(&mut bench, &destination(&token, 0, &[(0, 4)]), sense::TOKEN_CAUSE_NOT_REPORTABLE);
}

#[test]
fn del_tkn_deletes_and_a_resize_revokes() {
    let mut bench = Bench::new();
    let token = populate(&mut bench, 1, &[(0, 4)]);
    let mut list = destination(&token, 0, &[(1000, 4)]);
    list[2] = 0x02;
    uses(&mut bench, &list);
    refused(&mut bench, &list, sense::TOKEN_UNKNOWN);
    let token = populate(&mut bench, 1, &[(0, 4)]);
    bench.unit.resized(8 << 20);
    bench.fails(&[0; 6], sense::CAPACITY_DATA_HAS_CHANGED);
    refused(&mut bench, &destination(&token, 0, &[(1000, 4)]), sense::TOKEN_REVOKED);
}

#[test]
fn lists_that_are_wrong_are_refused_for_what_is_wrong() {
    let mut bench = Bench::new();
    let mut fails = |list: &[u8], sense| {
        let ended = bench.fails_with(&cdb(0x10, 1, list.len()), list, sense);
        assert!(ended.io.is_empty());
    };
    let valid = source(&[(0, 4), (10, 4)]);
    for len in 1..valid.len() {
        fails(&valid[..len], sense::PARAMETER_LIST_LENGTH_ERROR);
    }
    let wrong = sense::INVALID_FIELD_IN_PARAMETER_LIST;
    // SBC-3: blocks named twice; no ranges; half a range; a length that does not cover them.
    fails(&source(&[(0, 4), (3, 4)]), wrong);
    fails(&source(&[]), wrong);
    for (at, byte) in [(15, 31), (1, 40), (4, 0xFF)] {
        let mut list = valid.clone();
        list[at] = byte;
        fails(&list, wrong);
    }
    // RTV with a type that cannot be had.
    let mut list = valid;
    (list[2], list[9]) = (0x02, 0x81);
    fails(&list, wrong);
    fails(&source(&[(0, 1); 65]), sense::TOO_MANY_SEGMENT_DESCRIPTORS);
    fails(&source(&[(32 * 1024, 1)]), sense::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE);
    fails(&source(&[(u64::MAX, 1)]), sense::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE);
    bench.fails(&information(1), sense::INVALID_FIELD_IN_CDB);
    bench.passes(&cdb(0x10, 1, 0));
    bench.passes(&cdb(0x11, 1, 0));
}

#[test]
fn no_blocks_make_no_token() {
    let mut bench = Bench::new();
    let list = source(&[(0, 0)]);
    bench.writes(&cdb(0x10, 1, list.len()), &list);
    let information = bench.reads(&information(1), 1024);
    assert_eq!((information[5], &information[32..]), (0x01, &[0; 4][..]));
}

#[test]
fn more_than_a_token_may_hold_is_refused() {
    let settings = Settings { lun: 1, ..Settings::default() };
    let mut bench = Bench::with(geometry(), settings, 1 << 30);
    let list = source(&[(0, 1 << 19), (1 << 20, 1)]);
    bench.fails_with(&cdb(0x10, 1, list.len()), &list, sense::INVALID_FIELD_IN_PARAMETER_LIST);
    let list = source(&[(0, 1 << 19)]);
    bench.writes(&cdb(0x10, 1, list.len()), &list);
}

#[test]
fn a_source_that_cannot_be_read_makes_no_token() {
    let mut bench = Bench::new();
    bench.fault = Some(Error::Io(5));
    let list = source(&[(0, 4)]);
    bench.fails_with(&cdb(0x10, 1, list.len()), &list, sense::UNRECOVERED_READ_ERROR);
    let information = bench.reads(&information(1), 1024);
    assert_eq!((information[5], information[14]), (0x02, 18));
    assert_eq!(information[50..], [0; 4]);
}

#[test]
fn copy_operation_abort_ends_a_copy_and_unknown_ones_are_refused() {
    // SPC-4, COPY OPERATION ABORT.
    let mut bench = Bench::new();
    bench.store(0, &pattern(4 * 512));
    let token = populate(&mut bench, 1, &[(0, 4)]);
    let list = destination(&token, 0, &[(1000, 4)]);
    let data = out(&list);
    let nexus = bench.session.nexus();
    let step = bench.unit.execute(&cdb(0x11, 9, list.len()), nexus, &data);
    let Step::Io { io, then, .. } = step else { panic!("it has ended") };
    let abort = |id: u8| [0x83, 0x1C, 0, 0, 0, id, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    bench.fails(&abort(8), sense::INVALID_FIELD_IN_CDB);
    assert_eq!(bench.reads(&information(9), 1024)[5], 0x11, "in the foreground");
    bench.passes(&abort(9));
    let mut data = out(&list);
    let mut results: Vec<_> = io.into_iter().map(|io| bench.carry_out(io, &mut data)).collect();
    let Step::Done(reply) = bench.unit.resume(then, &mut results, &data) else { panic!("it goes on") };
    assert_eq!(super::bench::code(&reply.sense), sense::COPY_ABORTED.code());
    assert_eq!(bench.reads(&information(9), 1024)[5], 0x60);
    assert_eq!(bench.load(1000 * 512, 4 * 512), [0; 4 * 512]);
    // EXTENDED COPY has no token information.
    let list = super::parameters(4, &[], &[]);
    bench.writes(&super::extended_copy(list.len()), &list);
    assert_eq!(bench.run(&information(4), &mut room_of(64)).status, status::CHECK_CONDITION);
}

#[test]
fn a_change_of_access_states_revokes_every_token() {
    // SPC-4, ROD token lifetime: another gateway may write what this one does not see.
    let cluster = Cluster::new(false);
    let mut bench = Bench::new();
    bench.through(std::sync::Arc::clone(&cluster) as _);
    let token = populate(&mut bench, 1, &[(10, 10)]);
    cluster.change(|groups| groups.groups[0].preferred = false);
    bench.unit.access_changed();
    uses(&mut bench, &destination(&token, 0, &[(100, 10)]));
    cluster.change(|groups| groups.groups[1].state = State::ActiveOptimized);
    bench.unit.access_changed();
    bench.fails(&[0; 6], sense::ASYMMETRIC_ACCESS_STATE_CHANGED);
    refused(&mut bench, &destination(&token, 0, &[(100, 10)]), sense::TOKEN_REVOKED);
}

#[test]
fn no_more_is_promised_of_tokens_than_holds() {
    // SPC-4, ROD Token Features third-party copy descriptor: REMOTE TOKENS, MINIMUM TOKEN LIFETIME.
    let page = Bench::new().reads(&[0x12, 1, 0x8F, 4, 0, 0], 1024);
    let features = page.windows(4).position(|window| window[..2] == [0x01, 0x06]).unwrap();
    assert_eq!((page[features + 4] & 0x0F, &page[features + 16..features + 20]), (0, &[0; 4][..]));
}

#[test]
fn a_token_is_deleted_when_the_copy_has_succeeded_and_not_before() {
    // SBC-3, DEL_TKN: when processing of the command is complete. A BUSY or a failure is to be tried again.
    let mut bench = Bench::new();
    let token = populate(&mut bench, 1, &[(10, 10)]);
    let mut list = destination(&token, 0, &[(100, 10)]);
    list[2] = 0x02;
    let cdb = cdb(0x11, 9, list.len());
    let all = super::all_but(&bench, 0);
    assert_eq!(bench.run(&cdb, &mut out(&list)).status, status::BUSY);
    drop(all);
    bench.fault = Some(Error::Io(5));
    assert_eq!(bench.run(&cdb, &mut out(&list)).status, status::CHECK_CONDITION);
    uses(&mut bench, &list);
    refused(&mut bench, &list, sense::TOKEN_UNKNOWN);
}
