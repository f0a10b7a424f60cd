//! A unit with a sparse disk in memory that carries out its requests, and checks at every step that the engine keeps
//! its side of the contracts with the lane and the disk.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use ring::Nexus;

use super::Sense;
use crate::disk::{
    AllocationExtent, AtomicWrite, Completer, Completion, CompletionQueue, Error, Geometry, Outcome,
    Provisioning, Usage,
};
use crate::nexus::{Entry, Handle, Ports, Table, View};
use crate::scsi::step::{Away, Data, DataIn, Direction, Finished, Io, Memory, Step, Stored, status};
use crate::scsi::{Background, Identity, Milestone, Settings, Unit, limits};
use crate::units::{self, Visit};

pub(super) use super::cdbs::{cdb6, cdb10, cdb12, cdb16};

/// A command's buffer.
pub(super) struct Buffer {
    pub(super) bytes: Vec<u8>,
    pub(super) direction: Direction,
}

impl Data for Buffer {
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

/// Takes the completion of a visit.
#[derive(Default)]
struct Answer(Mutex<Option<Completion>>);

impl CompletionQueue for Answer {
    fn push(&self, completion: Completion) {
        *self.0.lock().unwrap() = Some(completion);
    }
}

/// How a command ended, as the initiator sees it.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) status: u8,
    pub(super) sense: Vec<u8>,
    /// Data-in that reached the buffer.
    pub(super) data: Vec<u8>,
    /// Bytes the CDB calls for.
    pub(super) transfer: usize,
    /// Length of [`DataIn::Bytes`].
    pub(super) parameter_data: usize,
    /// Everything asked of the disk.
    pub(super) io: Vec<String>,
    /// Whether a range was held.
    pub(super) exclusive: bool,
}

/// Key, ASC and ASCQ in either format.
pub(super) fn code(sense: &[u8]) -> (u8, u8, u8) {
    match sense {
        [0x72, key, asc, ascq, ..] => (*key, *asc, *ascq),
        [_, _, key, _, _, _, _, _, _, _, _, _, asc, ascq, ..] => (*key, *asc, *ascq),
        _ => panic!("no sense data"),
    }
}

/// The unit, its disk, and an initiator that has heard of the power-on.
pub(super) struct Bench {
    pub(super) unit: Unit,
    pub(super) nexuses: Arc<Table>,
    pub(super) units: Arc<units::Table>,
    pub(super) session: Handle,
    pub(super) block: usize,
    pub(super) size: u64,
    pub(super) written: BTreeMap<u64, Vec<u8>>,
    /// Fails the next request.
    pub(super) fault: Option<Error>,
    /// The disk's note.
    pub(super) note: Option<Vec<u8>>,
    /// What the disk says of its pool.
    pub(super) usage: Usage,
    /// What the disk says of its allocation next, instead of the truth.
    pub(super) extents: Option<Vec<AllocationExtent>>,
    /// What becomes of the next save of reservations, instead of success; last first.
    pub(super) stored: Vec<Stored>,
    /// The reservations as last saved.
    pub(super) saved: Vec<u8>,
}

pub(super) fn geometry() -> Geometry {
    Geometry {
        block_size: 512,
        physical_block_size: 4096,
        optimal_io_size: 4 << 20,
        compare_and_write: 0,
        provisioning: Some(Provisioning { granularity: 64 << 10, alignment: 0, reads_zero: true }),
        read_only: false,
        volatile_cache: true,
        atomic_write: Some(AtomicWrite { max: 32 << 10, granularity: 1024, alignment: 2048 }),
    }
}

pub(super) const SERIAL: &str = "8e9a1d6c-12f3-4a5b-9c7d-0123456789ab";

impl Bench {
    /// 512-byte blocks on 4096, thin, with a cache, 16 MiB.
    pub(super) fn new() -> Self {
        Self::with(geometry(), Settings { lun: 1, ..Settings::default() }, 16 << 20)
    }

    pub(super) fn with(geometry: Geometry, settings: Settings, size: u64) -> Self {
        let nexuses = Table::new();
        let session = nexuses.enter(entry("iqn.2026-01.example:first"));
        Self::shared(SERIAL, geometry, settings, size, session, (nexuses, units::Table::new()))
    }

    /// A unit of the same target as others.
    pub(super) fn shared(
        serial: &str,
        geometry: Geometry,
        settings: Settings,
        size: u64,
        session: Handle,
        (nexuses, units): (Arc<Table>, Arc<units::Table>),
    ) -> Self {
        let block = geometry.block_size as usize;
        let unit = Unit::new(Identity::from_serial(serial), geometry, size, Arc::clone(&nexuses), settings)
            .of_target("iqn.2026-01.example:target")
            .reached_through(Arc::new(crate::scsi::alua::Single::new(3)));
        let mut bench = Self {
            unit: unit.joined(Arc::clone(&units)),
            nexuses,
            units,
            session,
            block,
            size,
            written: BTreeMap::new(),
            fault: None,
            note: None,
            usage: Usage::default(),
            extents: None,
            stored: Vec::new(),
            saved: Vec::new(),
        };
        bench.fails(&[0; 6], super::sense::POWER_ON_OCCURRED);
        bench
    }

    /// Lets somebody else say through which ports the unit can be used.
    pub(super) fn through(&mut self, source: Arc<dyn crate::scsi::alua::Source>) {
        let absent = Unit::absent(Arc::clone(&self.nexuses));
        self.unit = std::mem::replace(&mut self.unit, absent).reached_through(source);
    }

    /// Another initiator, which has heard of the power-on too.
    pub(super) fn second(&mut self) -> Handle {
        let second = self.nexuses.enter(entry("iqn.2026-01.example:second"));
        assert_eq!(self.run_as(second.nexus(), &[0; 6], &mut none()).status, status::CHECK_CONDITION);
        second
    }

    /// Ends GOOD with this room for data-in; returns what came.
    pub(super) fn reads(&mut self, cdb: &[u8], room: usize) -> Vec<u8> {
        let ended = self.run(cdb, &mut room_of(room));
        assert_eq!(ended.status, status::GOOD, "{cdb:02x?}: {:02x?}", ended.sense);
        ended.data
    }

    /// Ends GOOD with this data-out.
    pub(super) fn writes(&mut self, cdb: &[u8], data: &[u8]) -> Ended {
        let ended = self.run(cdb, &mut out(data));
        assert_eq!(ended.status, status::GOOD, "{cdb:02x?}: {:02x?}", ended.sense);
        ended
    }

    /// Ends GOOD without data.
    pub(super) fn passes(&mut self, cdb: &[u8]) -> Ended {
        self.writes(cdb, &[])
    }

    /// Ends in CHECK CONDITION with this sense, with room for data-in.
    pub(super) fn fails(&mut self, cdb: &[u8], sense: Sense) -> Ended {
        self.fails_with(cdb, &[], sense)
    }

    /// Ends in CHECK CONDITION with this sense, with this data-out.
    pub(super) fn fails_with(&mut self, cdb: &[u8], data: &[u8], sense: Sense) -> Ended {
        let ended = self.run(cdb, &mut out(data));
        assert_eq!(ended.status, status::CHECK_CONDITION, "{cdb:02x?}");
        assert_eq!(code(&ended.sense), sense.code(), "{cdb:02x?}");
        ended
    }

    /// Sends a command as the first initiator.
    pub(super) fn run(&mut self, cdb: &[u8], data: &mut Buffer) -> Ended {
        self.run_as(self.session.nexus(), cdb, data)
    }

    /// Sends a command and carries out what it asks for.
    pub(super) fn run_as(&mut self, nexus: Nexus, cdb: &[u8], data: &mut Buffer) -> Ended {
        let mut ended = Ended {
            status: 0,
            sense: Vec::new(),
            data: Vec::new(),
            transfer: 0,
            parameter_data: 0,
            io: Vec::new(),
            exclusive: false,
        };
        let mut step = self.unit.execute(cdb, nexus, data);
        for turn in 0.. {
            // 8 MiB in pieces of 1 MiB, each read and written (ORWRITE), and the answer; copies have lists of segments.
            assert!(turn <= if cdb.first() == Some(&0x83) { 1000 } else { 17 }, "no end: {cdb:02x?}");
            match step {
                Step::Done(reply) => {
                    ended.status = reply.status;
                    ended.sense = reply.sense.to_vec();
                    ended.transfer = reply.transfer.unwrap_or(data.len());
                    if data.direction == Direction::Out {
                        assert!(matches!(reply.data_in, DataIn::None), "data-in where none can go");
                    }
                    let carried = ended.transfer.min(data.len());
                    match reply.data_in {
                        DataIn::None => {}
                        DataIn::InPlace => ended.data = data.bytes[..carried].to_vec(),
                        DataIn::Bytes(bytes) => {
                            ended.parameter_data = bytes.len();
                            ended.data = bytes[..bytes.len().min(data.len())].to_vec();
                        }
                        DataIn::Tail { offset, bytes } => {
                            assert!(offset + bytes.len() == carried);
                            ended.data = data.bytes[..offset].to_vec();
                            ended.data.extend_from_slice(&bytes);
                        }
                    }
                    return ended;
                }
                Step::Io { io, exclusive, then } => {
                    assert!(!io.is_empty() || exclusive.is_some(), "nothing to wait for: {cdb:02x?}");
                    assert!(exclusive.is_none() || turn == 0, "asked for in mid-course: {cdb:02x?}");
                    ended.exclusive |= exclusive.is_some();
                    ended.io.extend(io.iter().map(describe));
                    let mut results: Vec<_> = io.into_iter().map(|io| self.carry_out(io, data)).collect();
                    step = self.unit.resume(then, &mut results, data);
                }
            }
        }
        unreachable!()
    }

    pub(super) fn carry_out(&mut self, io: Io, data: &mut Buffer) -> Finished {
        if let Some(error) = self.fault.take() {
            return Finished { result: Err(error), buffer: None };
        }
        let mut outcome = Outcome::default();
        let mut buffer = None;
        match io {
            Io::Read { offset, into: Memory::Command { offset: at, len } } => {
                let bytes = self.load(offset, len);
                data.bytes[at..at + len].copy_from_slice(&bytes);
            }
            Io::Read { offset, into: Memory::Owned(mut bytes) } => {
                assert!(bytes.len() as u64 <= limits::SCRATCH);
                bytes = self.load(offset, bytes.len());
                buffer = Some(bytes);
            }
            Io::Write { offset, from: Memory::Command { offset: at, len }, .. } => {
                assert_ne!(data.direction, Direction::In, "stores what is not data-out");
                let bytes = data.bytes[at..at + len].to_vec();
                self.store(offset, &bytes);
            }
            Io::WriteAtomic { offset, from, .. } => {
                let Memory::Command { offset: at, len } = from else { panic!("not the command's") };
                let bytes = data.bytes[at..at + len].to_vec();
                self.store(offset, &bytes);
            }
            Io::Write { offset, from: Memory::Owned(bytes), .. } => {
                assert!(bytes.len() as u64 <= limits::SCRATCH);
                self.store(offset, &bytes);
                buffer = Some(bytes);
            }
            Io::WriteSame { offset, len, pattern, .. } => {
                assert_eq!(pattern.len(), self.block);
                for at in self.blocks(offset, len) {
                    self.written.insert(at, pattern.clone());
                }
            }
            Io::WriteZeroes { offset, len, .. } | Io::Discard { offset, len } => {
                for at in self.blocks(offset, len) {
                    self.written.remove(&at);
                }
            }
            Io::CompareAndWrite { offset, compare, write, .. } => {
                assert_eq!(compare.len(), write.len());
                let medium = self.load(offset, compare.len());
                if let Some(at) = medium.iter().zip(&compare).position(|(own, other)| own != other) {
                    return Finished { result: Err(Error::Miscompare(at)), buffer: None };
                }
                self.store(offset, &write);
            }
            Io::Flush => {}
            Io::SetTargetPortGroups(wishes) => {
                let result = super::alua::set_groups(&self.unit, &wishes).map(|()| outcome);
                return Finished { result, buffer: None };
            }
            Io::SaveReservations(save) => {
                let stored = match self.stored.pop() {
                    Some(stored) => stored,
                    None => {
                        self.saved = save.state.clone();
                        Stored::Saved { number: save.expected + 1 }
                    }
                };
                save.outcome.set(stored).unwrap();
            }
            Io::EndCommands(_) => {}
            Io::Visit(away) => return self.visit(*away),
            Io::Allocation { offset, len, limit } => {
                let truth = self.allocation(offset, len, limit);
                outcome.extents = self.extents.take().unwrap_or(truth);
            }
            Io::Usage => outcome.usage = Some(Box::new(self.usage)),
            Io::Note(note) => self.note = note,
            Io::Background(milestone) => {
                while !self.unit.has_reached(milestone) {
                    assert!(self.step_background(), "nothing to wait for");
                }
            }
        }
        Finished { result: Ok(outcome), buffer }
    }

    /// One step of what the unit does without a command; false when it does nothing.
    pub(super) fn step_background(&mut self) -> bool {
        let Some(Background { io, .. }) = self.unit.go_on() else { return false };
        assert!(!io.is_empty() && self.unit.go_on().is_none(), "asked for twice");
        let results: Vec<_> = io.into_iter().map(|io| self.carry_out(io, &mut none())).collect();
        self.unit.finished(&results);
        true
    }

    /// Until the unit does nothing any more.
    pub(super) fn finish_background(&mut self) {
        for _ in 0..1000 {
            if !self.step_background() {
                assert!(!self.unit.is_busy());
                return;
            }
        }
        panic!("no end");
    }

    /// Another unit's answer, given at once.
    fn visit(&self, away: Away) -> Finished {
        let answer = Arc::<Answer>::default();
        let completer = Completer::new(Arc::clone(&answer) as _, 0);
        away.unit.door.visit(Visit { nexus: away.nexus, call: away.call, completer });
        let completion = answer.0.lock().unwrap().take().expect("a visit was not answered");
        Finished { result: completion.result, buffer: completion.buffer }
    }

    /// Block numbers of a range, which must be whole blocks within the disk.
    fn blocks(&self, offset: u64, len: u64) -> std::ops::Range<u64> {
        let block = self.block as u64;
        assert!(len > 0 && offset.is_multiple_of(block) && len.is_multiple_of(block), "{offset}+{len}");
        assert!(
            offset.checked_add(len).is_some_and(|end| end <= self.size),
            "{offset}+{len} of {}",
            self.size
        );
        offset / block..(offset + len) / block
    }

    pub(super) fn load(&self, offset: u64, len: usize) -> Vec<u8> {
        let empty = vec![0; self.block];
        let blocks = self.blocks(offset, len as u64);
        blocks.flat_map(|at| self.written.get(&at).unwrap_or(&empty).clone()).collect()
    }

    pub(super) fn store(&mut self, offset: u64, bytes: &[u8]) {
        let blocks = self.blocks(offset, bytes.len() as u64);
        for (at, block) in blocks.zip(bytes.chunks(self.block)) {
            self.written.insert(at, block.to_vec());
        }
    }

    fn allocation(&self, offset: u64, len: u64, limit: usize) -> Vec<AllocationExtent> {
        assert!(limit > 0);
        let block = self.block as u64;
        let mut extents: Vec<AllocationExtent> = Vec::new();
        for at in self.blocks(offset, len) {
            let allocated = self.written.contains_key(&at);
            let full = extents.len() == limit;
            match extents.last_mut() {
                Some(last) if last.allocated == allocated => last.range.end += block,
                _ if full => break,
                _ => extents.push(AllocationExtent { range: at * block..(at + 1) * block, allocated }),
            }
        }
        extents
    }
}

fn describe(io: &Io) -> String {
    match io {
        Io::Read { offset, into } => format!("read {offset}+{}", length(into)),
        Io::Write { offset, from, fua } => {
            format!("write {offset}+{}{}", length(from), if *fua { " fua" } else { "" })
        }
        Io::WriteAtomic { offset, from, fua } => {
            format!("atomic {offset}+{}{}", length(from), if *fua { " fua" } else { "" })
        }
        Io::WriteSame { offset, len, fua, .. } => {
            format!("same {offset}+{len}{}", if *fua { " fua" } else { "" })
        }
        Io::WriteZeroes { offset, len, deallocate } => {
            format!("zeroes {offset}+{len}{}", if *deallocate { " deallocate" } else { "" })
        }
        Io::Discard { offset, len } => format!("discard {offset}+{len}"),
        Io::CompareAndWrite { offset, compare, fua, .. } => {
            format!("caw {offset}+{}{}", compare.len(), if *fua { " fua" } else { "" })
        }
        Io::Flush => "flush".into(),
        Io::SetTargetPortGroups(wishes) => format!("set {} groups", wishes.len()),
        Io::Visit(away) => format!("visit {} {:?}", away.unit.lun, away.nexus.id()),
        Io::Allocation { offset, len, .. } => format!("allocation {offset}+{len}"),
        Io::SaveReservations(save) => format!("save {}", save.expected),
        Io::EndCommands(commands) => format!("{:?} {}", commands.how, commands.nexuses.len()),
        Io::Usage => "usage".into(),
        Io::Note(note) => if note.is_some() { "note" } else { "forget" }.into(),
        Io::Background(Milestone::Noted) => "noted".into(),
        Io::Background(Milestone::End) => "background".into(),
    }
}

fn length(memory: &Memory) -> usize {
    match memory {
        Memory::Command { len, .. } => *len,
        Memory::Owned(bytes) => bytes.len(),
    }
}

pub(super) fn entry(initiator: &str) -> Entry {
    let ports = Ports {
        initiator: initiator.into(),
        isid: [0; 6],
        target: "iqn.2026-01.example:target".into(),
        portal_group: 3,
    };
    Entry { ports, view: View { luns: vec![0, 1, 300], read_only: vec![] } }
}

pub(super) fn none() -> Buffer {
    Buffer { bytes: Vec::new(), direction: Direction::Unknown }
}

/// Room for data-in, with stale bytes in it.
pub(super) fn room_of(len: usize) -> Buffer {
    Buffer { bytes: vec![0xEE; len], direction: Direction::In }
}

pub(super) fn out(data: &[u8]) -> Buffer {
    Buffer { bytes: data.to_vec(), direction: Direction::Out }
}

/// `len` bytes that differ from block to block.
pub(super) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 512 * 7 + at % 251 + 1) as u8).collect()
}
