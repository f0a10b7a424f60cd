//! ESXi: claiming a LUN, the VMFS heartbeat by ATS, zeroing and reclaiming space.

use super::*;
use crate::kit::pattern;

/// The designators of VPD page 83h: association and type, identifier.
fn designators(page: &[u8]) -> Vec<(u8, u8, Vec<u8>)> {
    let (mut rest, mut all) = (&page[4..], Vec::new());
    while let [_, kind, _, len, tail @ ..] = rest {
        let (identifier, tail) = tail.split_at(usize::from(*len));
        all.push((kind >> 4 & 0x03, kind & 0x0F, identifier.to_vec()));
        rest = tail;
    }
    all
}

#[test]
fn esxi_claims_a_lun_by_its_identity_and_finds_every_primitive() {
    let served = Served::new();
    let mut host = served.host("esxi");
    // SAM-5, Unit attention conditions: what a new nexus hears is POWER ON or a reset of some kind, and nothing else.
    assert!(attentions(&mut host).iter().all(|(key, code, _)| (*key, *code) == (6, 0x29)));

    // SPC-4, REPORT LUNS: a list of eight-byte LUNs, of all that the initiator may use.
    let luns = data(&mut host, &[0xA0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0], 256);
    assert_eq!((number(&luns[..4]), luns.len()), (8, 16));

    // SPC-4, standard INQUIRY data: a disk that is there, of SPC-3 or later, with command queuing.
    let inquiry = data(&mut host, &[0x12, 0, 0, 0, 96, 0], 96);
    assert_eq!(inquiry[0], 0x00);
    assert!(inquiry[2] >= 0x05 && inquiry[3] & 0x0F == 2);
    assert_eq!(inquiry[7] & 0x02, 0x02);
    // ESXi's claim rules match vendor and product.
    assert_eq!(&inquiry[8..32], b"LIO-ORG TCMU device     ");

    // SPC-4, Supported VPD pages: ascending, and each can be read.
    let pages = page(&mut host, 0x00)[4..].to_vec();
    assert!(
        pages.is_sorted() && [0x00, 0x80, 0x83, 0xB0, 0xB1, 0xB2].iter().all(|code| pages.contains(code))
    );
    for code in pages {
        page(&mut host, code);
    }

    // SPC-4, Device identification VPD page: one NAA designator of the logical unit, 6h (IEEE Registered Extended), which
    // becomes naa.…; and the relative target port that the session came through.
    let identity = page(&mut host, 0x83);
    let naa: Vec<_> = designators(&identity)
        .into_iter()
        .filter(|(association, kind, _)| (*association, *kind) == (0, 3))
        .collect();
    assert_eq!(naa.len(), 1);
    assert_eq!((naa[0].2.len(), naa[0].2[0] >> 4), (16, 6));
    assert!(
        designators(&identity)
            .iter()
            .any(|(association, kind, id)| (*association, *kind, id.len()) == (1, 4, 4))
    );
    // Every host and every session sees the same one: it is how a snapshot is told from its original.
    let mut other = served.host("esxi-2");
    attentions(&mut other);
    assert_eq!(page(&mut other, 0x83), identity);
    assert_eq!(page(&mut other, 0x80), page(&mut host, 0x80));

    // SBC-3, Block Limits VPD page. ATS: at least one block. Delete: granularity of 1 MiB at most, aligned at zero.
    let limits = page(&mut host, 0xB0);
    assert!(limits[5] >= 1);
    assert!(number(&limits[20..24]) > 0 && number(&limits[24..28]) > 0);
    assert!((1..=2048).contains(&number(&limits[28..32])));
    assert_eq!(number(&limits[32..36]), 0x8000_0000);
    assert!(number(&limits[36..44]) > 0);

    // SBC-3, Logical Block Provisioning VPD page: UNMAP and WRITE SAME(16) with UNMAP, thin.
    let provisioning = page(&mut host, 0xB2);
    assert_eq!((provisioning[5] & 0xC0, provisioning[6] & 0x07), (0xC0, 2));
    // SBC-3, READ CAPACITY(16): LBPME, and the same size as READ CAPACITY(10) says.
    let capacity = data(&mut host, &cdb16(0x9E, 0x10, 0, 32), 32);
    assert_eq!((number(&capacity[..8]), number(&capacity[8..12])), (BLOCKS - 1, 512));
    assert_eq!(capacity[14] & 0x80, 0x80);
    let short = data(&mut host, &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], 8);
    assert_eq!((number(&short[..4]), number(&short[4..])), (BLOCKS - 1, 512));

    // SPC-4, MODE SENSE(6), device-specific parameter (SBC-3): not write protected, DPO and FUA taken.
    let mode = data(&mut host, &[0x1A, 0x08, 0x08, 0, 192, 0], 192);
    assert_eq!(mode[2], 0x10);

    // SPC-4, REPORT TARGET PORT GROUPS: the group of the session's port is there, active/optimized, as its designator says.
    let groups = data(&mut host, &[0xA3, 0x0A, 0, 0, 0, 0, 0, 0, 0, 255, 0, 0], 255);
    assert_eq!(number(&groups[..4]) as usize, groups.len() - 4);
    assert_eq!(groups[4] & 0x0F, 0);
    let group = designators(&identity).into_iter().find(|(_, kind, _)| *kind == 5).unwrap();
    assert_eq!(group.2[2..4], groups[6..8]);
    assert_ne!(inquiry[5] & 0x30, 0, "TPGS");

    // SPC-4, REPORT SUPPORTED OPERATION CODES: what VAAI needs; of the copies the one with a one-byte list identifier.
    for (code, service_action) in
        [(0x89, None), (0x93, None), (0x42, None), (0x83, Some(0x00)), (0x84, Some(0x03))]
    {
        assert!(supported(&mut host, code, service_action), "{code:02x}");
    }
    // A command that has service actions is not asked for without one.
    assert_eq!(
        host.read(&[0xA3, 0x0C, 0x01, 0x83, 0, 0, 0, 0, 1, 0, 0, 0], 256).sense(),
        Some((5, 0x24, 0x00))
    );
}

#[test]
fn a_vmfs_heartbeat_by_ats_is_won_by_one_host_and_the_other_learns_where_it_differs() {
    let served = Served::new();
    let (mut first, mut second) = (served.host("esxi-1"), served.host("esxi-2"));
    attentions(&mut first);
    attentions(&mut second);
    let slot = 2048;
    let mut image = pattern(7, 512);
    write16(&mut first, slot, &image);

    // SBC-3, COMPARE AND WRITE: equal, so the new block is written, and read by everybody.
    for beat in 0..4 {
        let mut next = image.clone();
        next[300] ^= beat + 1;
        assert_eq!(compare_and_write(&mut first, slot, &image, &next).status, GOOD);
        assert_eq!(read16(&mut second, slot, 1), next);
        image = next;
    }

    // The other host has an older picture, which differs at byte 300. SBC-3: MISCOMPARE DURING VERIFY OPERATION; SPC-4,
    // fixed format sense data: VALID, and INFORMATION is the offset of the first byte that differs.
    let mut stale = image.clone();
    stale[300] ^= 0x80;
    let answer = compare_and_write(&mut second, slot, &stale, &pattern(8, 512));
    assert_eq!((answer.status, answer.sense()), (CHECK_CONDITION, Some((0xE, 0x1D, 0x00))));
    assert_eq!(answer.sense[0] & 0x80, 0x80);
    assert_eq!(number(&answer.sense[3..7]), 300);
    // Nothing was written.
    assert_eq!(read16(&mut first, slot, 1), image);

    // SBC-3: no blocks is no error, and changes nothing; more than MAXIMUM COMPARE AND WRITE LENGTH is INVALID FIELD IN CDB.
    assert_eq!(first.read(&cdb16(0x89, 0, slot, 0), 0).status, GOOD);
    let most = page(&mut first, 0xB0)[5];
    let mut cdb = cdb16(0x89, 0, slot, 0);
    cdb[13] = most.saturating_add(1);
    let twice = vec![0; usize::from(cdb[13]) * 1024];
    assert_eq!(first.write(&cdb, &twice, 0).sense(), Some((5, 0x24, 0x00)));
}

#[test]
fn hosts_that_race_for_a_lock_by_ats_never_both_get_it() {
    let served = Served::new();
    let lock = 4096;
    let mut setup = served.host("esxi-0");
    attentions(&mut setup);
    let free = vec![0; 512];
    for round in 0..20 {
        write16(&mut setup, lock, &free);
        let wins: Vec<bool> = std::thread::scope(|scope| {
            let served = &served;
            let racers = [1, 2].map(|racer| {
                scope.spawn(move || {
                    let mut host = served.host(&format!("esxi-{racer}"));
                    attentions(&mut host);
                    let answer = compare_and_write(&mut host, lock, &[0; 512], &pattern(racer, 512));
                    // SBC-3, COMPARE AND WRITE is one atomic operation: the loser's compare sees the winner's block.
                    assert!(answer.status == GOOD || answer.sense() == Some((0xE, 0x1D, 0x00)));
                    answer.status == GOOD
                })
            });
            racers.map(|racer| racer.join().unwrap()).to_vec()
        });
        assert_eq!(wins.iter().filter(|won| **won).count(), 1, "round {round}");
        let winner = if wins[0] { 1 } else { 2 };
        assert_eq!(read16(&mut setup, lock, 1), pattern(winner, 512));
    }
}

#[test]
fn vmfs_space_reclaim_gives_the_store_its_space_back_and_never_touches_neighbours() {
    let served = Served::new();
    let mut host = served.host("esxi");
    attentions(&mut host);
    // Eight megabytes, as VMFS blocks of one.
    let image = pattern(3, 8 << 20);
    for (at, part) in image.chunks(1 << 20).enumerate() {
        write16(&mut host, at as u64 * 2048, part);
    }
    let sync = host.read(&cdb16(0x91, 0, 0, 0), 0);
    assert_eq!(sync.status, GOOD);
    let full = served.allocated();
    assert!(full >= 8 << 20);

    // SBC-3, UNMAP: whole granules are deallocated, and by LBPRZ read as zeros.
    assert_eq!(unmap(&mut host, &[(2048, 2048), (3 * 2048, 2048)]).status, GOOD);
    assert!(served.allocated() + (2 << 20) <= full + 4096, "{} of {full}", served.allocated());
    assert!(read16(&mut host, 2048, 2048).iter().all(|byte| *byte == 0));
    // SBC-3, GET LBA STATUS: the range is deallocated (1), the neighbours are mapped (0).
    for (lba, status) in [(0, 0), (2048, 1), (2 * 2048, 0), (3 * 2048, 1), (4 * 2048, 0)] {
        let answer = data(&mut host, &cdb16(0x9E, 0x12, lba, 24), 24);
        assert_eq!((number(&answer[8..16]), answer[20] & 0x0F), (lba, status));
    }

    // One that is not aligned succeeds, and zeroes nothing beside it.
    assert_eq!(unmap(&mut host, &[(5 * 2048 + 3, 9)]).status, GOOD);
    let around = read16(&mut host, 5 * 2048, 16);
    let was = &image[5 << 20..(5 << 20) + 16 * 512];
    assert_eq!(around[..3 * 512], was[..3 * 512]);
    assert_eq!(around[12 * 512..], was[12 * 512..]);

    // SBC-3, WRITE SAME(16): the Zero primitive, a block of zeros and no UNMAP.
    let answer = host.write(&cdb16(0x93, 0, 6 * 2048, 2048), &[0; 512], 512);
    assert_eq!(answer.status, GOOD, "{:02x?}", answer.sense());
    assert!(read16(&mut host, 6 * 2048, 2048).iter().all(|byte| *byte == 0));
    // What lies behind is as it was.
    assert_eq!(read16(&mut host, 7 * 2048, 2048), image[7 << 20..]);
}

#[test]
fn a_lun_that_is_not_there_is_said_to_be_gone_and_not_to_be_busy() {
    let served = Served::new();
    let mut host = served.host("esxi");
    attentions(&mut host);
    // SPC-4, incorrect logical unit selection: LOGICAL UNIT NOT SUPPORTED, which ESXi takes for permanent device loss.
    let mut command = host.command(&cdb16(0x88, 0, 0, 1), true, false, 512);
    command.lun = 9 << 48;
    host.send(command.encode(), &[], &[]);
    assert_eq!(host.finish(command.task_tag, &[]).sense(), Some((5, 0x25, 0x00)));
    // INQUIRY is answered all the same: peripheral qualifier 011b, device type 1Fh.
    let mut command = host.command(&[0x12, 0, 0, 0, 96, 0], true, false, 96);
    command.lun = 9 << 48;
    host.send(command.encode(), &[], &[]);
    assert_eq!(host.finish(command.task_tag, &[]).data[0], 0x7F);
}
