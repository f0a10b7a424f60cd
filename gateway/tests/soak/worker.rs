//! One connection of the soak: it owns a region of the disk, knows every byte that must be there, and loses its session
//! now and then.
//!
//! What a cut-off write has done is not known: each of its blocks may be old or new. The login that follows reinstates the
//! session (same initiator name and ISID), and from then on the write can no longer change the medium: whatever the first
//! read finds must stay.

use std::net::SocketAddr;
use std::ops::Range;
use std::time::Instant;

use crate::kit::initiator::Initiator;
use crate::kit::{TARGET, pattern, read10, write10};

/// Bytes of the disk that belong to one worker.
pub(crate) const REGION: usize = 4 << 20;

const BLOCK: usize = 512;
/// The largest command, in blocks: 1 MiB.
const LARGEST: usize = 2048;
/// One command in this many is the last of its session.
const CUT: u64 = 24;

/// What a worker has done.
pub(crate) struct Done {
    pub(crate) commands: u64,
    pub(crate) cuts: u64,
}

pub(crate) struct Worker {
    number: u64,
    address: SocketAddr,
    /// What the region holds.
    model: Vec<u8>,
    random: u64,
    done: Done,
}

impl Worker {
    pub(crate) fn new(number: u64, address: SocketAddr) -> Self {
        let random = 0x9e37_79b9_7f4a_7c15 ^ (number + 1);
        let done = Done { commands: 0, cuts: 0 };
        Self { number, address, model: vec![0; REGION], random, done }
    }

    /// Works until the deadline; what was written is read back as a whole at the end.
    pub(crate) fn run(mut self, deadline: Instant) -> Done {
        let mut initiator = self.log_in();
        while Instant::now() < deadline {
            let range = self.range();
            if self.next(CUT) == 0 {
                initiator = self.cut_off(initiator, range);
            } else if self.next(2) == 0 {
                self.verify(&mut initiator, range);
            } else {
                self.write(&mut initiator, range);
            }
            self.done.commands += 1;
        }
        for start in (0..REGION).step_by(LARGEST * BLOCK) {
            self.verify(&mut initiator, start..start + LARGEST * BLOCK);
        }
        initiator.log_out(0);
        self.done
    }

    /// A session of this worker's own nexus; digests, immediate data and burst lengths vary.
    fn log_in(&mut self) -> Initiator {
        let mut initiator = Initiator::connect(self.address);
        initiator.name = format!("iqn.2026-01.example:soak{}", self.number);
        let digest = |on: bool| if on { "CRC32C" } else { "None" };
        let word = self.next(u64::MAX);
        let keys = [
            ("HeaderDigest", digest(word & 1 != 0)),
            ("DataDigest", digest(word & 2 != 0)),
            ("ImmediateData", if word & 4 != 0 { "Yes" } else { "No" }),
            ("InitialR2T", "Yes"),
            ("MaxRecvDataSegmentLength", if word & 8 != 0 { "8192" } else { "262144" }),
        ];
        initiator.log_in(TARGET, &keys);
        // Power on, or bus device reset for a session that was reinstated.
        while initiator.read(&[0; 6], 0).status != 0 {}
        initiator
    }

    fn lba(&self, range: &Range<usize>) -> (u32, u16) {
        let lba = (self.number as usize * REGION + range.start) / BLOCK;
        (lba as u32, (range.len() / BLOCK) as u16)
    }

    fn read(&self, initiator: &mut Initiator, range: &Range<usize>) -> Vec<u8> {
        let (lba, blocks) = self.lba(range);
        let answer = initiator.read(&read10(lba, blocks), range.len());
        assert_eq!((answer.status, answer.data.len()), (0, range.len()), "{:?}", answer.sense());
        answer.data
    }

    fn verify(&self, initiator: &mut Initiator, range: Range<usize>) {
        let data = self.read(initiator, &range);
        if data != self.model[range.clone()] {
            let at = data.iter().zip(&self.model[range.clone()]).position(|(a, b)| a != b).unwrap();
            panic!("connection {}: byte {} of {range:?} is wrong", self.number, range.start + at);
        }
    }

    fn write(&mut self, initiator: &mut Initiator, range: Range<usize>) {
        let data = pattern(self.next(u64::MAX), range.len());
        let (lba, blocks) = self.lba(&range);
        let immediate = self.immediate(initiator, data.len());
        let answer = initiator.write(&write10(lba, blocks), &data, immediate);
        assert_eq!(answer.status, 0, "{:?}", answer.sense());
        self.model[range].copy_from_slice(&data);
    }

    fn immediate(&mut self, initiator: &Initiator, len: usize) -> usize {
        match initiator.agreed.get("ImmediateData").map(String::as_str) {
            Some("Yes") => len.min(8192) / BLOCK * BLOCK * self.next(2) as usize,
            _ => 0,
        }
    }

    /// Starts a few commands, follows them to a random point, and vanishes. Returns the session that takes over.
    fn cut_off(&mut self, mut initiator: Initiator, range: Range<usize>) -> Initiator {
        let data = pattern(self.next(u64::MAX), range.len());
        let (lba, blocks) = self.lba(&range);
        let read = initiator.command(&read10(lba, blocks), true, false, range.len());
        initiator.send(read.encode(), &[], &[]);
        let immediate = self.immediate(&initiator, data.len());
        let write = initiator.command(&write10(lba, blocks), false, true, data.len());
        initiator.send(write.encode(), &[], &data[..immediate]);
        match self.next(4) {
            // Half a PDU.
            0 => {
                let command = initiator.command(&read10(lba, blocks), true, false, range.len());
                let bytes = initiator.frame(command.encode(), &[], &[]);
                std::io::Write::write_all(&mut initiator.stream, &bytes[..20]).unwrap();
            }
            // Something of the read's data, and perhaps the R2T, stays unread.
            1 => drop(initiator.receive()),
            // The session is still open when the next one takes over.
            2 => {
                let next = self.log_in();
                drop(initiator);
                return self.settle(next, range, &data);
            }
            _ => {}
        }
        drop(initiator);
        let next = self.log_in();
        self.settle(next, range, &data)
    }

    /// Learns what a cut-off write has done: every block is old or new.
    fn settle(&mut self, mut initiator: Initiator, range: Range<usize>, new: &[u8]) -> Initiator {
        self.done.cuts += 1;
        let found = self.read(&mut initiator, &range);
        let old = &self.model[range.clone()];
        for (index, block) in found.chunks(BLOCK).enumerate() {
            let place = index * BLOCK..(index + 1) * BLOCK;
            assert!(block == &old[place.clone()] || block == &new[place], "a block is neither old nor new");
        }
        self.model[range].copy_from_slice(&found);
        initiator
    }

    /// A random stretch of the region; small ones are more frequent.
    fn range(&mut self) -> Range<usize> {
        let most = [8, 64, 512, LARGEST as u64][self.next(4) as usize];
        let blocks = 1 + self.next(most) as usize;
        let start = self.next((REGION / BLOCK - blocks) as u64 + 1) as usize;
        start * BLOCK..(start + blocks) * BLOCK
    }

    /// xorshift64, below `limit`.
    fn next(&mut self, limit: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % limit
    }
}
