//! Windows: bringing a disk up and partitioning it, and the optimizer's retrim.

use super::*;
use crate::kit::pattern;

#[test]
fn windows_brings_a_disk_up() {
    let served = Served::new();
    let mut host = served.host("windows");
    // Storage stack: REPORT LUNS, then INQUIRY of 36 bytes and of the pages it knows.
    data(&mut host, &[0xA0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0], 256);
    data(&mut host, &[0x12, 0, 0, 0, 36, 0], 36);
    attentions(&mut host);
    // SPC-4, Unit Serial Number VPD page: printable, and not empty.
    let serial = page(&mut host, 0x80);
    assert!(serial.len() > 4 && serial[4..].iter().all(u8::is_ascii_graphic));
    // Windows asks for a page in 255 bytes; a page that is not there must be INVALID FIELD IN CDB.
    assert_eq!(host.read(&[0x12, 1, 0xC0, 0, 255, 0], 255).sense(), Some((5, 0x24, 0x00)));

    // disk.sys: capacity, write protection and the cache.
    data(&mut host, &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], 8);
    let capacity = data(&mut host, &cdb16(0x9E, 0x10, 0, 32), 32);
    assert_eq!(capacity[14] & 0x80, 0x80);
    // SPC-4, MODE SENSE(10): MODE DATA LENGTH counts what follows it.
    let mode = data(&mut host, &[0x5A, 0x08, 0x3F, 0, 0, 0, 0, 0, 255, 0], 255);
    assert_eq!(number(&mode[..2]) as usize, mode.len() - 2);
    assert_eq!(mode[3] & 0x80, 0, "write protected");
    // Page 1Ch, Informational Exceptions (SPC-4): no failure is predicted.
    let exceptions = data(&mut host, &[0x1A, 0x08, 0x1C, 0, 192, 0], 192);
    assert_eq!(exceptions[4] & 0x3F, 0x1C);

    // SBC-3, Logical Block Provisioning: Windows shows "Thin provisioned drive" by PROVISIONING TYPE 2, and trims by
    // OPTIMAL UNMAP GRANULARITY and its alignment.
    assert_eq!(page(&mut host, 0xB2)[6] & 0x07, 2);
    let limits = page(&mut host, 0xB0);
    assert!(number(&limits[28..32]) >= 1);
    assert_eq!(limits[32] & 0x80, 0x80);
    let most = number(&limits[24..28]);
    assert!(most >= 1);

    // A GPT at both ends, with FUA; then flush and read back.
    let (first, last) = (pattern(1, 34 * 512), pattern(2, 33 * 512));
    assert_eq!(host.write(&cdb16(0x8A, 0x08, 0, 34), &first, 0).status, GOOD);
    assert_eq!(host.write(&cdb16(0x8A, 0x08, BLOCKS - 33, 33), &last, 0).status, GOOD);
    assert_eq!(host.read(&[0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0], 0).status, GOOD);
    assert_eq!(read16(&mut host, 0, 34), first);
    assert_eq!(read16(&mut host, BLOCKS - 33, 33), last);
    // SBC-3, VERIFY(16) with BYTCHK 00b: no data is transferred.
    assert_eq!(host.read(&cdb16(0x8F, 0, 0, 34), 0).status, GOOD);
    // One block beyond the end is LOGICAL BLOCK ADDRESS OUT OF RANGE (SBC-3), even where only the last block is.
    assert_eq!(host.read(&cdb16(0x88, 0, BLOCKS - 1, 2), 1024).sense(), Some((5, 0x21, 0x00)));
}

#[test]
fn windows_retrims_a_volume_in_lists_as_long_as_it_may() {
    let served = Served::new();
    let mut host = served.host("windows");
    attentions(&mut host);
    let limits = page(&mut host, 0xB0);
    let (blocks, descriptors) = (number(&limits[20..24]), number(&limits[24..28]));
    write16(&mut host, 0, &pattern(4, 4 << 20));
    assert_eq!(host.read(&[0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0], 0).status, GOOD);
    let full = served.allocated();
    // SBC-3, UNMAP: as many descriptors as MAXIMUM UNMAP BLOCK DESCRIPTOR COUNT, no more blocks than MAXIMUM UNMAP LBA COUNT.
    let each = (4u64 << 20) / 512 / descriptors;
    assert!(each * descriptors <= blocks);
    let list: Vec<_> = (0..descriptors).map(|at| (at * each, each as u32)).collect();
    assert_eq!(unmap(&mut host, &list).status, GOOD);
    assert!(served.allocated() < full / 8);
    // One descriptor more is an error, and touches nothing.
    write16(&mut host, 0, &pattern(4, 4096));
    let list: Vec<_> = (0..=descriptors).map(|at| (at * each, each as u32)).collect();
    assert_eq!(unmap(&mut host, &list).sense(), Some((5, 0x26, 0x00)));
    assert_eq!(read16(&mut host, 0, 8), pattern(4, 4096));
}
