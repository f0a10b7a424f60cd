//! What users of other gateways complain about, where no test beside the code holds it; gateway/docs/complaints.md has the
//! whole list.

use std::time::Duration;

use rbdgate::disk::fault::{Fault, Settings};
use rbdgate::disk::memory::Memory;
use rbdgate::portal::pdu::*;

use super::*;
use crate::kit::{pattern, read10, write10};

#[test]
fn a_short_answer_says_how_much_is_missing_and_shows_nothing_old() {
    let served = Served::new();
    let mut host = served.host("linux");
    attentions(&mut host);
    // The data area is full of somebody's data.
    write16(&mut host, 0, &pattern(9, 256 << 10));
    assert_eq!(read16(&mut host, 0, 512), pattern(9, 256 << 10));
    // RFC 7143, SCSI Response, Residual Count: underflow by what was expected and did not come. SPC-4, ALLOCATION LENGTH: an
    // answer is cut to it and never filled up.
    for (allocation, expected) in [(255, 255), (36, 255), (36, 4096), (255, 36), (0, 512)] {
        let answer = host.read(&[0x12, 0, 0, 0, allocation, 0], expected);
        let available = usize::from(allocation).min(96);
        let moved = available.min(expected);
        assert_eq!((answer.status, answer.data.len()), (GOOD, moved), "{allocation} {expected}");
        assert_eq!(answer.underflow.unwrap_or(0) as usize, expected.saturating_sub(available));
        assert_eq!(answer.overflow.unwrap_or(0) as usize, available.saturating_sub(expected));
        let whole = data(&mut host, &[0x12, 0, 0, 0, 96, 0], 96);
        assert_eq!(answer.data, whole[..moved]);
    }
}

#[test]
fn a_disk_of_three_tib_is_used_to_its_last_block() {
    let blocks = (3u64 << 40) / 512;
    let served = Served::of(blocks, 512);
    let mut host = served.host("windows");
    attentions(&mut host);
    // SBC-3, READ CAPACITY(10): FFFFFFFFh says that READ CAPACITY(16) is to be asked.
    let capacity = data(&mut host, &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], 8);
    assert_eq!(number(&capacity[..4]), 0xFFFF_FFFF);
    let capacity = data(&mut host, &cdb16(0x9E, 0x10, 0, 32), 32);
    assert_eq!(number(&capacity[..8]), blocks - 1);
    // SBC-3, READ(10) and WRITE(10): the last block that their LBA can name.
    let last_short = pattern(1, 512);
    assert_eq!(host.write(&write10(0xFFFF_FFFF, 1), &last_short, 0).status, GOOD);
    assert_eq!(host.read(&read10(0xFFFF_FFFF, 1), 512).data, last_short);
    // Beyond: the 16-byte commands, up to the last block and not one further.
    let last = pattern(2, 512);
    write16(&mut host, blocks - 1, &last);
    assert_eq!(read16(&mut host, blocks - 1, 1), last);
    assert_eq!(read16(&mut host, 0xFFFF_FFFF, 1), last_short);
    assert_eq!(host.read(&cdb16(0x88, 0, blocks, 1), 512).sense(), Some((5, 0x21, 0x00)));
    // SBC-3, WRITE SAME(16): more blocks than MAXIMUM WRITE SAME LENGTH is INVALID FIELD IN CDB, at once.
    let answer = host.write(&cdb16(0x93, 0, 0, 0x9000_0000), &[0; 512], 512);
    assert_eq!(answer.sense(), Some((5, 0x24, 0x00)));
    // SBC-3, UNMAP beyond 2^32 blocks gives back what is there.
    let before = served.allocated();
    assert_eq!(unmap(&mut host, &[(blocks - 8, 8)]).status, GOOD);
    assert!(served.allocated() < before);
}

#[test]
fn a_4kn_disk_counts_in_its_own_blocks() {
    let served = Served::of(1 << 15, 4096);
    let mut host = served.host("linux");
    attentions(&mut host);
    // SBC-3, READ CAPACITY: the length of a logical block, and one logical block in a physical one.
    let capacity = data(&mut host, &cdb16(0x9E, 0x10, 0, 32), 32);
    assert_eq!(
        (number(&capacity[..8]), number(&capacity[8..12]), capacity[13] & 0x0F),
        ((1 << 15) - 1, 4096, 0)
    );
    // SPC-4, MODE SENSE: the block descriptor says the same.
    let mode = data(&mut host, &[0x1A, 0, 0x08, 0, 255, 0], 255);
    assert_eq!((mode[3], number(&mode[9..12])), (8, 4096));
    // An LBA is an address in blocks of 4096 bytes.
    let image = pattern(3, 3 * 4096);
    assert_eq!(host.write(&cdb16(0x8A, 0, 5, 3), &image, 0).status, GOOD);
    assert_eq!(host.read(&cdb16(0x88, 0, 6, 1), 4096).data, image[4096..8192]);
    assert_eq!(host.read(&cdb16(0x88, 0, 1 << 15, 1), 4096).sense(), Some((5, 0x21, 0x00)));
}

#[test]
fn sixty_four_writes_of_a_mebibyte_queue_up_for_eight_and_none_is_turned_away() {
    let slow = Settings { latency: Duration::from_millis(100), ..Settings::default() };
    let disk = Fault::new(Arc::new(Memory::new(BLOCKS * 512, 512)), slow).unwrap();
    let options = ring::Options { data_area: 8 << 20, ..ring::Options::default() };
    let setup = Setup { lanes: true, disk: Some(Arc::new(disk)), options, ..Setup::default() };
    let bench = Bench::with(setup);
    let keys = [("InitialR2T", "Yes"), ("ImmediateData", "No")];
    let mut host = Initiator::session_with(bench.address, TARGET, &keys);
    attentions(&mut host);
    let image = pattern(1, 1 << 20);
    let (mut sent, mut done) = (0u32, 0);
    let mut began = std::collections::BTreeMap::new();
    while done < 64 {
        // RFC 7143, command numbering: no command beyond MaxCmdSN.
        while sent < 64 && host.cmd_sn.wrapping_sub(host.max_cmd_sn).wrapping_sub(1) >= 0x8000_0000 {
            let command =
                host.command(&write10(sent * 2048 % (BLOCKS as u32 - 2048), 2048), false, true, image.len());
            host.send(command.encode(), &[], &[]);
            began.insert(command.task_tag, sent);
            sent += 1;
        }
        let pdu = host.receive();
        match pdu.header.opcode() {
            R2t::OPCODE => host.answer_r2t(&R2t::decode(&pdu.header), &image),
            // SAM-5, TASK SET FULL is for want of resources; waiting a little is no want.
            ScsiResponse::OPCODE => {
                assert!(began.remove(&pdu.header.task_tag()).is_some());
                assert_eq!(ScsiResponse::decode(&pdu.header).status, GOOD);
                done += 1;
            }
            NopIn::OPCODE => {}
            other => panic!("unexpected opcode {other:02x}"),
        }
    }
    bench.wait_idle();
}
