//! Copies that the gateway carries out: ESXi's clone by EXTENDED COPY, Windows' offloaded copy by tokens.

use rbdgate::disk::Request;
use rbdgate::disk::fault::{Fault, Settings, Verdict};
use rbdgate::disk::memory::Memory;
use rbdgate::nexus::View;
use rbdgate::portal::{Access, Grant};
use rbdgate::scsi::Identity;

use super::*;
use crate::kit::{eventually, pattern};

/// Two disks of 4 MiB in memory, LUN 0 and LUN 1, that copies find by their names.
fn pair() -> Bench {
    Bench::with(Setup { lanes: true, luns: 2, ..Setup::default() })
}

fn host(bench: &Bench) -> Initiator {
    let mut host = Initiator::connect(bench.address);
    host.log_in(TARGET, &[]);
    attentions(&mut host);
    host
}

/// Sends a command to another LUN than 0 until it has told what a new nexus must hear.
fn at(host: &mut Initiator, lun: u64, cdb: &[u8], expected: usize, out: &[u8]) -> Answer {
    loop {
        let mut command = host.command(cdb, expected > 0, !out.is_empty(), expected.max(out.len()));
        command.lun = lun << 48;
        host.send(command.encode(), &[], &[]);
        let answer = host.finish(command.task_tag, out);
        if answer.sense() != Some((6, 0x29, 0x00)) {
            return answer;
        }
    }
}

/// The NAA designator of a LUN, by VPD page 83h (SPC-4, Device Identification: association logical unit, type 3).
fn naa(host: &mut Initiator, lun: u64) -> Vec<u8> {
    let page = at(host, lun, &[0x12, 1, 0x83, 0, 255, 0], 255, &[]).data;
    let mut rest = &page[4..];
    while rest[1] & 0x3F != 3 {
        rest = &rest[4 + usize::from(rest[3])..];
    }
    rest[4..4 + usize::from(rest[3])].to_vec()
}

/// EXTENDED COPY(LID1) from the first LUN to the second: CDB and SPC-4's parameter list.
fn clone_list(ends: (&[u8], &[u8]), from: u64, to: u64, blocks: u16) -> ([u8; 16], Vec<u8>) {
    let mut list = vec![0; 16];
    list[0] = 1;
    list[2..4].copy_from_slice(&64u16.to_be_bytes());
    list[8..12].copy_from_slice(&28u32.to_be_bytes());
    for end in [ends.0, ends.1] {
        let mut descriptor = [0; 32];
        // Identification descriptor, binary, NAA.
        (descriptor[0], descriptor[4], descriptor[5], descriptor[7]) = (0xE4, 1, 3, end.len() as u8);
        descriptor[8..8 + end.len()].copy_from_slice(end);
        descriptor[29..32].copy_from_slice(&[0, 2, 0]);
        list.extend_from_slice(&descriptor);
    }
    let mut segment = [0; 28];
    (segment[0], segment[3], segment[7]) = (0x02, 24, 1);
    segment[10..12].copy_from_slice(&blocks.to_be_bytes());
    segment[12..20].copy_from_slice(&from.to_be_bytes());
    segment[20..28].copy_from_slice(&to.to_be_bytes());
    list.extend_from_slice(&segment);
    let mut cdb = [0; 16];
    (cdb[0], cdb[13]) = (0x83, list.len() as u8);
    (cdb, list)
}

/// Sends that to LUN 0.
fn clone_blocks(host: &mut Initiator, ends: (&[u8], &[u8]), from: u64, to: u64, blocks: u16) -> Answer {
    let (cdb, list) = clone_list(ends, from, to, blocks);
    host.write(&cdb, &list, 0)
}

#[test]
fn esxi_clones_a_virtual_disk_within_a_datastore_and_to_another() {
    let bench = pair();
    let mut host = host(&bench);
    let (first, second) = (naa(&mut host, 0), naa(&mut host, 1));
    assert_ne!(first, second);
    // SPC-4, RECEIVE COPY RESULTS with OPERATING PARAMETERS: ESXi reads what it may ask for before its first clone.
    let parameters = data(&mut host, &[0x84, 0x03, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0], 512);
    assert_eq!(number(&parameters[..4]) as usize, parameters.len() - 4);
    assert!(number(&parameters[8..10]) >= 2, "MAXIMUM CSCD DESCRIPTOR COUNT");
    let longest = number(&parameters[16..20]);
    assert!(longest == 0 || longest >= 1 << 20, "MAXIMUM SEGMENT LENGTH");

    let image = pattern(7, 1 << 20);
    write16(&mut host, 0, &image);
    // Within the datastore, in two segments; the source stays as it was.
    for half in [0, 1024] {
        let answer = clone_blocks(&mut host, (&first, &first), half, 4096 + half, 1024);
        assert_eq!(answer.status, GOOD, "{:02x?}", answer.sense());
    }
    assert!(read16(&mut host, 4096, 2048) == image);
    assert!(read16(&mut host, 0, 2048) == image);
    // To another datastore; sent to the source's LUN, carried out by the destination's.
    assert_eq!(clone_blocks(&mut host, (&first, &second), 0, 100, 2048).status, GOOD);
    let copied = at(&mut host, 1, &cdb16(0x88, 0, 100, 2048), 1 << 20, &[]);
    assert!(copied.data == image);
    // SPC-4, EXTENDED COPY: a CSCD that is not there ends the copy with COPY TARGET DEVICE NOT REACHABLE.
    let mut nobody = second.clone();
    nobody[15] ^= 1;
    let lost = clone_blocks(&mut host, (&first, &nobody), 0, 0, 1);
    assert_eq!(lost.sense(), Some((0x0A, 0x0D, 0x02)));
}

#[test]
fn a_lun_that_is_not_mapped_to_the_host_is_no_source_and_no_destination() {
    // CVE-2020-28374: LUN 1 is there and its name is known, but it is not in this host's view.
    let view = View { luns: vec![0], read_only: vec![] };
    let access = Access { anyone: Some(Grant { view, ..Grant::default() }), ..Access::default() };
    let bench = Bench::with(Setup { lanes: true, luns: 2, access: Some(access), ..Setup::default() });
    let mut host = host(&bench);
    let (own, foreign) =
        (naa(&mut host, 0), Identity::from_serial("00000001-0000-4000-8000-000000000000").naa);
    write16(&mut host, 0, &pattern(7, 4096));
    for ends in [(&own[..], &foreign[..]), (&foreign[..], &own[..]), (&foreign[..], &foreign[..])] {
        // SPC-4, EXTENDED COPY: COPY TARGET DEVICE NOT REACHABLE.
        assert_eq!(clone_blocks(&mut host, ends, 0, 0, 8).sense(), Some((0x0A, 0x0D, 0x02)));
    }
    assert!(read16(&mut host, 0, 8) == pattern(7, 4096), "nothing came from there");
}

#[test]
fn an_aborted_clone_is_not_answered_and_the_abort_only_when_the_disk_has_let_go() {
    let fault = Arc::new(Fault::new(Arc::new(Memory::new(32 << 20, 512)), Settings::default()).unwrap());
    let disk = Some(Arc::clone(&fault) as _);
    let bench = Bench::with(Setup { lanes: true, disk, ..Setup::default() });
    let mut host = host(&bench);
    let own = naa(&mut host, 0);
    write16(&mut host, 0, &pattern(7, 1 << 20));
    fault.set_rule(Some(Box::new(|request| match request {
        Request::Write { .. } => Verdict::Withhold,
        _ => Verdict::Pass,
    })));
    let (cdb, list) = clone_list((&own, &own), 0, 32 * 1024, 2048);
    let command = host.command(&cdb, false, true, list.len());
    host.send(command.encode(), &[], &list);
    eventually("its write is withheld", || fault.withheld() == 1);
    let aborting = host.send_management(1, &command);
    // The LUN takes commands in order: when it answers this one it has read the abort, and has answered neither that nor
    // the clone.
    assert_eq!(host.read(&[0; 6], 0).status, GOOD);
    fault.set_rule(None);
    fault.release();
    // RFC 7143, Task Management Function Response: FUNCTION COMPLETE, and the aborted command has none.
    let response = host.receive().header;
    assert_eq!((response.opcode(), response.task_tag(), response.0[2]), (0x22, aborting, 0));
    // SPC-4, COPY STATUS: completed with errors.
    let status = data(&mut host, &[0x84, 0x00, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12, 0, 0], 12);
    assert_eq!(status[4] & 0x7F, 0x02);
}

/// The parameter list of POPULATE TOKEN or WRITE USING TOKEN: `fixed` bytes, then block device range descriptors (SBC-3).
fn token_list(mut fixed: Vec<u8>, ranges: &[(u64, u32)]) -> Vec<u8> {
    let end = fixed.len();
    fixed[end - 2..].copy_from_slice(&(ranges.len() as u16 * 16).to_be_bytes());
    for (lba, blocks) in ranges {
        fixed.extend_from_slice(&lba.to_be_bytes());
        fixed.extend_from_slice(&blocks.to_be_bytes());
        fixed.extend_from_slice(&[0; 4]);
    }
    let len = fixed.len() as u16 - 2;
    fixed[..2].copy_from_slice(&len.to_be_bytes());
    fixed
}

/// A token operation's CDB: code, service action, list identifier and length.
fn token_cdb(code: u8, action: u8, id: u32, len: usize) -> [u8; 16] {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1]) = (code, action);
    let at = if code == 0x83 { 6 } else { 2 };
    cdb[at..at + 4].copy_from_slice(&id.to_be_bytes());
    cdb[10..14].copy_from_slice(&(len as u32).to_be_bytes());
    cdb
}

#[test]
fn windows_copies_a_file_between_volumes_by_a_token() {
    let bench = pair();
    let mut host = host(&bench);
    // SPC-4, Third-party Copy VPD page: Windows looks for the block device ROD limits (type 0) first.
    let limits = page(&mut host, 0x8F);
    assert_eq!(number(&limits[4..6]), 0);
    let file = pattern(9, 512 << 10);
    write16(&mut host, 64, &file);

    let list = token_list(vec![0; 16], &[(64, 512), (576, 512)]);
    let populate = token_cdb(0x83, 0x10, 5, list.len());
    let populated = host.write(&populate, &list, 0);
    assert_eq!(populated.status, GOOD, "{:02x?}", populated.sense());
    // SBC-3, RECEIVE ROD TOKEN INFORMATION: the operation has ended well, and one token descriptor comes of it.
    let information = data(&mut host, &token_cdb(0x84, 0x07, 5, 1024), 1024);
    assert_eq!((information[4] & 0x1F, information[5] & 0x7F), (0x10, 0x01));
    let token = information[information.len() - 512..].to_vec();

    let mut fixed = vec![0; 536];
    fixed[16..528].copy_from_slice(&token);
    let list = token_list(fixed.clone(), &[(200, 1024)]);
    let used = at(&mut host, 1, &token_cdb(0x83, 0x11, 6, list.len()), 0, &list);
    assert_eq!(used.status, GOOD, "{:02x?}", used.sense());
    assert!(at(&mut host, 1, &cdb16(0x88, 0, 200, 1024), 512 << 10, &[]).data == file);

    // The source is written: the point in time is gone, and with it the token. Windows then copies by itself.
    write16(&mut host, 64, &pattern(1, 512));
    let refused = at(&mut host, 1, &token_cdb(0x83, 0x11, 7, list.len()), 0, &list);
    assert_eq!(refused.sense().map(|(key, code, _)| (key, code)), Some((5, 0x23)));
    // The zero token (SPC-4) needs no source.
    fixed[16..528].fill(0);
    fixed[16..24].copy_from_slice(&[0xFF, 0xFF, 0, 1, 0, 0, 0x01, 0xF8]);
    let list = token_list(fixed, &[(200, 1024)]);
    let zeroed = at(&mut host, 1, &token_cdb(0x83, 0x11, 8, list.len()), 0, &list);
    assert_eq!(zeroed.status, GOOD, "{:02x?}", zeroed.sense());
    assert!(at(&mut host, 1, &cdb16(0x88, 0, 200, 1024), 512 << 10, &[]).data.iter().all(|byte| *byte == 0));
}
