//! Linux: the sd driver's probe, and what its block layer sends for discard, write zeroes, flush and FUA.

use super::*;
use crate::kit::pattern;

#[test]
fn linux_probes_a_disk_and_learns_how_to_use_it() {
    let served = Served::new();
    let mut host = served.host("linux");
    // The first INQUIRY asks for 36 bytes, and comes before anything else. SPC-4, INQUIRY: no unit attention stops it.
    let short = data(&mut host, &[0x12, 0, 0, 0, 36, 0], 36);
    assert_eq!((short[0], short.len()), (0, 36));
    let whole = usize::from(short[4]) + 5;
    // SPC-4: ADDITIONAL LENGTH does not depend on the allocation length.
    let inquiry = data(&mut host, &[0x12, 0, 0, 0, whole as u8, 0], whole);
    assert_eq!(inquiry.len(), whole);
    assert_eq!(inquiry[..36], short);
    // The LUN scan goes through REPORT LUNS of LUN 0 where a unit attention is pending: SPC-4 lets it pass.
    let luns = data(&mut host, &[0xA0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0], 16);
    assert_eq!(number(&luns[..4]), 8);
    for code in [0x00, 0x80, 0x83] {
        page(&mut host, code);
    }
    attentions(&mut host);

    // sd: READ CAPACITY(16) where the unit is thin or large; SBC-3: LBPRZ, 4096-byte physical blocks, aligned at zero.
    let capacity = data(&mut host, &cdb16(0x9E, 0x10, 0, 32), 32);
    assert_eq!(capacity[13] & 0x0F, 3);
    assert_eq!((capacity[14] & 0xC0, number(&capacity[14..16]) & 0x3FFF), (0xC0, 0));

    // MODE SENSE(6) of all pages at first for the header, then of the caching page for WCE, then whole.
    let header = data(&mut host, &[0x1A, 0, 0x3F, 0, 4, 0], 4);
    // SBC-3, device-specific parameter: WP clear, DPOFUA set.
    assert_eq!(header[2], 0x10);
    let caching = data(&mut host, &[0x1A, 0x08, 0x08, 0, 4, 0], 4);
    let whole = usize::from(caching[0]) + 1;
    let caching = data(&mut host, &[0x1A, 0x08, 0x08, 0, whole as u8, 0], whole);
    // SBC-3, Caching mode page: page 08h of 20 bytes; WCE says that a file has a cache to flush.
    assert_eq!((caching[4] & 0x3F, caching[5], caching[6] & 0x04), (0x08, 18, 0x04));

    // SBC-3, Block Limits: discards in granules of OPTIMAL UNMAP GRANULARITY; no OPTIMAL TRANSFER LENGTH is forced upon it
    // by a file.
    let limits = page(&mut host, 0xB0);
    assert_eq!((number(&limits[12..16]), number(&limits[28..32])), (0, 8));
    // SBC-3, Block Device Characteristics: nothing rotates (0001h).
    assert_eq!(number(&page(&mut host, 0xB1)[4..6]), 1);
    // SBC-3, Logical Block Provisioning: LBPU, LBPWS, LBPWS10, LBPRZ.
    let provisioning = page(&mut host, 0xB2);
    assert_eq!(provisioning[5] & 0xE0, 0xE0);
    assert_eq!(provisioning[5] >> 2 & 0x07, 1);

    // sd asks for these one by one before it uses them; SPC-4, REPORT SUPPORTED OPERATION CODES.
    assert!(supported(&mut host, 0x93, None));
    assert!(supported(&mut host, 0x41, None));
    assert!(!supported(&mut host, 0x85, None), "ATA PASS-THROUGH");
    // A page that is not there is INVALID FIELD IN CDB, nothing worse (SPC-4, INQUIRY command).
    assert_eq!(host.read(&[0x12, 1, 0xB9, 0, 64, 0], 64).sense(), Some((5, 0x24, 0x00)));
}

#[test]
fn linux_discards_write_zeroes_and_flushes() {
    let served = Served::new();
    let mut host = served.host("linux");
    attentions(&mut host);
    let image = pattern(5, 1 << 20);
    write16(&mut host, 0, &image);
    // A write with FUA, as a journal's commit block. SBC-3, WRITE(16).
    let commit = pattern(6, 512);
    assert_eq!(host.write(&cdb16(0x8A, 0x08, 4096, 1), &commit, 0).status, GOOD);
    assert_eq!(read16(&mut host, 4096, 1), commit);
    // Flush: SYNCHRONIZE CACHE(10) of everything (SBC-3: zero blocks is to the end).
    assert_eq!(host.read(&[0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0], 0).status, GOOD);
    let full = served.allocated();

    // Discard with provisioning mode `unmap`.
    assert_eq!(unmap(&mut host, &[(0, 1024)]).status, GOOD);
    // SBC-3, WRITE SAME(16) with UNMAP, as BLKZEROOUT sends where LBPRZ is set: reads as zeros, and is given back.
    assert_eq!(host.write(&cdb16(0x93, 0x08, 1024, 512), &[0; 512], 512).status, GOOD);
    // Without UNMAP: zeros that stay allocated or not, but zeros.
    assert_eq!(host.write(&cdb16(0x93, 0, 1536, 256), &[0; 512], 512).status, GOOD);
    assert!(served.allocated() + 768 * 1024 <= full);
    let after = read16(&mut host, 0, 2048);
    assert!(after[..1792 * 512].iter().all(|byte| *byte == 0));
    assert_eq!(after[1792 * 512..], image[1792 * 512..]);

    // SBC-3, UNMAP: an LBA beyond the end is LOGICAL BLOCK ADDRESS OUT OF RANGE, for the whole command.
    assert_eq!(unmap(&mut host, &[(1792, 8), (BLOCKS, 8)]).sense(), Some((5, 0x21, 0x00)));
    assert_eq!(read16(&mut host, 1792, 8), image[1792 * 512..1800 * 512]);
}

#[test]
fn a_path_checker_hears_nothing_but_good_and_changes_nothing() {
    let served = Served::new();
    let mut host = served.host("linux");
    attentions(&mut host);
    for _ in 0..100 {
        // SPC-4, TEST UNIT READY.
        assert_eq!(host.read(&[0; 6], 0), Answer::default());
    }
    assert_eq!(served.allocated(), 0);
}
