//! Any CDBs with any data, one after the other, against a small thin disk whose blocks hold whatever the input says.
//!
//! Input: one byte of settings, then commands: a byte of CDB length, a byte of data length (times 16), a byte of faults and
//! direction, the CDB, the data. A command ends within a bounded number of steps, no request leaves the disk or the
//! command's buffer, and no CHECK CONDITION is without sense data.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rbdgate::disk::{AtomicWrite, Error, Geometry, Outcome, Provisioning};
use rbdgate::nexus::{Entry, Ports, Table, View};
use rbdgate::scsi::{
    Data, DataIn, Direction, Finished, Identity, Io, Memory, Settings, Step, Stored, Unit, status,
};

const SIZE: u64 = 4 << 20;

struct Buffer<'a> {
    bytes: &'a [u8],
    direction: Direction,
}

impl Data for Buffer<'_> {
    fn len(&self) -> usize {
        self.bytes.len()
    }

    fn direction(&self) -> Direction {
        self.direction
    }

    fn copy_out(&self, offset: usize, into: &mut [u8]) {
        into.copy_from_slice(&self.bytes[offset..offset + into.len()]);
    }

    fn compare(&self, offset: usize, with: &[u8]) -> Result<(), usize> {
        let own = &self.bytes[offset..offset + with.len()];
        own.iter().zip(with).position(|(own, with)| own != with).map_or(Ok(()), Err)
    }
}

fn unit(settings: u8) -> (Unit, rbdgate::nexus::Handle, u64) {
    let nexuses = Table::new();
    let ports = Ports {
        initiator: "iqn.2026-01.example:fuzz".into(),
        isid: [0; 6],
        target: "iqn.2026-01.example:target".into(),
        portal_group: 1,
    };
    let session = nexuses.enter(Entry { ports, view: View { luns: vec![0], read_only: vec![] } });
    let block_size = if settings & 1 == 0 { 512 } else { 4096 };
    let thin = Provisioning { granularity: 65536, alignment: 0, reads_zero: true };
    let geometry = Geometry {
        block_size,
        physical_block_size: 4096,
        optimal_io_size: 0,
        compare_and_write: if settings & 2 == 0 { 0 } else { 512 },
        provisioning: (settings & 4 == 0).then_some(thin),
        read_only: false,
        volatile_cache: settings & 8 == 0,
        atomic_write: Some(AtomicWrite { max: 65536, granularity: 4096, alignment: 4096 }),
    };
    let settings = Settings { removable: settings & 16 != 0, ..Settings::default() };
    let unit = Unit::new(Identity::from_serial("fuzz"), geometry, SIZE, nexuses, settings);
    (unit, session, u64::from(block_size))
}

/// Checks a request against the disk's contract and carries it out, more or less.
fn carry_out(io: Io, data: &Buffer<'_>, block: u64, fails: bool) -> Finished {
    let whole = |offset: u64, len: u64| {
        assert!(len > 0 && offset.is_multiple_of(block) && len.is_multiple_of(block));
        assert!(offset.checked_add(len).is_some_and(|end| end <= SIZE));
    };
    let memory = |memory: Memory| match memory {
        Memory::Command { offset, len } => {
            assert!(offset.checked_add(len).is_some_and(|end| end <= data.bytes.len()));
            (len as u64, None)
        }
        Memory::Owned(bytes) => {
            assert!(bytes.len() <= 1 << 20);
            (bytes.len() as u64, Some(bytes))
        }
    };
    let buffer = match io {
        Io::Read { offset, into } => {
            let (len, buffer) = memory(into);
            whole(offset, len);
            buffer
        }
        Io::Write { offset, from, .. } | Io::WriteAtomic { offset, from, .. } => {
            let (len, buffer) = memory(from);
            whole(offset, len);
            buffer
        }
        Io::WriteSame { offset, len, pattern, .. } => {
            assert_eq!(pattern.len() as u64, block);
            whole(offset, len);
            None
        }
        Io::WriteZeroes { offset, len, .. }
        | Io::Discard { offset, len }
        | Io::Allocation { offset, len, .. } => {
            whole(offset, len);
            None
        }
        Io::CompareAndWrite { offset, compare, write, .. } => {
            assert_eq!(compare.len(), write.len());
            whole(offset, compare.len() as u64);
            None
        }
        Io::Flush
        | Io::Usage
        | Io::Note(_)
        | Io::Background(_)
        | Io::EndCommands(_)
        | Io::SetTargetPortGroups(_) => None,
        Io::Visit(away) => {
            return Finished { result: Err(Error::NotReady), buffer: Some(away.call.into_buffer()) };
        }
        Io::SaveReservations(save) => {
            assert!(save.state.len() <= 1 << 20);
            let number = save.expected + 1;
            let stored = if fails { Stored::Failed } else { Stored::Saved { number } };
            save.outcome.set(stored).unwrap();
            None
        }
    };
    let result = if fails { Err(Error::Io(5)) } else { Ok(Outcome::default()) };
    Finished { result, buffer }
}

fuzz_target!(|input: &[u8]| {
    let Some((settings, mut rest)) = input.split_first() else { return };
    let (mut unit, session, block) = unit(*settings);
    while let [cdb, data, how, tail @ ..] = rest {
        let (cdb, tail) = tail.split_at(usize::from(*cdb).min(tail.len()));
        let (bytes, tail) = tail.split_at((usize::from(*data) * 16).min(tail.len()));
        rest = tail;
        let direction = [Direction::Unknown, Direction::In, Direction::Out][usize::from(how % 3)];
        let data = Buffer { bytes, direction };
        let mut step = unit.execute(cdb, session.nexus(), &data);
        for turn in 0.. {
            assert!(turn <= 17);
            match step {
                Step::Done(reply) => {
                    assert_eq!(reply.status == status::CHECK_CONDITION, !reply.sense.is_empty());
                    if let DataIn::Tail { offset, bytes } = reply.data_in {
                        assert!(offset + bytes.len() <= data.bytes.len());
                    }
                    break;
                }
                Step::Io { io, exclusive, then } => {
                    // A command that changes reservations waits for its turn only.
                    assert!(!io.is_empty() || exclusive.is_some());
                    assert!(exclusive.is_none() || turn == 0);
                    let fails = how & 0x80 != 0 && turn == usize::from(how >> 2 & 3);
                    let mut results: Vec<_> =
                        io.into_iter().map(|io| carry_out(io, &data, block, fails)).collect();
                    step = unit.resume(then, &mut results, &data);
                }
            }
        }
    }
});
