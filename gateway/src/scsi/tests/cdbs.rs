//! CDBs of the block commands, by their length: operation code, first block, blocks.

pub(super) fn cdb6(code: u8, lba: u32, blocks: u8) -> [u8; 6] {
    let [_, b1, b2, b3] = lba.to_be_bytes();
    [code, b1, b2, b3, blocks, 0]
}

pub(super) fn cdb10(code: u8, lba: u32, blocks: u16) -> [u8; 10] {
    let mut cdb = [0; 10];
    cdb[0] = code;
    cdb[2..6].copy_from_slice(&lba.to_be_bytes());
    cdb[7..9].copy_from_slice(&blocks.to_be_bytes());
    cdb
}

pub(super) fn cdb12(code: u8, lba: u32, blocks: u32) -> [u8; 12] {
    let mut cdb = [0; 12];
    cdb[0] = code;
    cdb[2..6].copy_from_slice(&lba.to_be_bytes());
    cdb[6..10].copy_from_slice(&blocks.to_be_bytes());
    cdb
}

pub(super) fn cdb16(code: u8, lba: u64, blocks: u32) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[0] = code;
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
    cdb
}
