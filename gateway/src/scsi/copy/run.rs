//! A copy under way: pieces are read and then written, a few at a time.
//!
//! A step holds the writes of what the step before has read, and the reads of what comes next, so that source and
//! destination work at the same time. All pieces of a segment are on the medium before the next segment is read, which may
//! lie where this one has written. Between steps the command can be aborted; then nothing further is started.

use std::sync::Arc;

use ring::Nexus;
use smallvec::SmallVec;

use super::limits;
use super::list::{self, LONGEST};
use super::plan::{self, End, Move};
use super::record::{Kind, Refused, Running, Status};
use super::rod::Rod;
use crate::disk::Error;
use crate::scsi;
use crate::scsi::cdb::Request;
use crate::scsi::device::{Answer, Device, Then, busy, good};
use crate::scsi::fault::{self, Access};
use crate::scsi::opcode::Flow;
use crate::scsi::sense::{self, Sense};
use crate::scsi::step::{Away, Finished, Io, Memory, Step};
use crate::units::{Call, Loan};

/// EXTENDED COPY(LID1).
pub(in crate::scsi) fn extended_copy(device: &mut Device, request: &Request<'_>) -> Answer {
    let claimed = request.cdb.u32(10) as usize;
    // SPC-4: no parameter list is no error.
    if claimed == 0 {
        return good(0);
    }
    let list = list::parse(&request.parameter_list(claimed, LONGEST), claimed)?;
    let moves = plan::resolve(device, request.nexus, &list)?;
    let record = match list.id {
        Some(id) => device.copies.open(&device.nexuses, request.nexus, id.into(), Kind::Copy),
        None => Ok(Running(Arc::default())),
    };
    match record {
        Ok(record) => start(device, request.nexus, moves, record, None, claimed),
        Err(Refused::Sense(sense)) => Err(sense),
        // As many copies as there may be are under way.
        Err(Refused::Busy) => busy(Flow::Out),
    }
}

/// What is copied from, if the data is that of a token.
#[derive(Debug)]
pub(super) struct Token {
    /// It must not be revoked before the data has been read.
    pub(super) rod: Arc<Rod>,
    /// DEL_TKN: nobody needs it after a copy that has succeeded. One that fails can be tried again.
    pub(super) delete: bool,
}

/// Begins to copy; from `token`, if the data is that of one.
pub(super) fn start(
    device: &Device,
    nexus: Nexus,
    moves: Vec<Move>,
    record: Running,
    token: Option<Token>,
    transfer: usize,
) -> Answer {
    let total = moves.iter().fold(0_u64, |total, next| total.saturating_add(next.len));
    let wanted = total.clamp(1, limits::WINDOW).next_multiple_of(limits::SMALLEST);
    let Some(loan) = device.units.borrow(wanted, limits::SMALLEST) else { return busy(Flow::Out) };
    let copying = Copying {
        nexus,
        moves,
        current: 0,
        begun: 0,
        flying: SmallVec::new(),
        spare: Vec::new(),
        loan,
        record,
        token,
        unflushed: false,
        transfer,
    };
    Box::new(copying).proceed(device, SmallVec::new())
}

/// Where a copy stands.
#[derive(Debug)]
pub(in crate::scsi) struct Copying {
    nexus: Nexus,
    moves: Vec<Move>,
    /// The move in hand.
    current: usize,
    /// Bytes of it that have been read, or are being.
    begun: u64,
    /// The operations of the running step, in their order.
    flying: SmallVec<[Flying; 8]>,
    /// Buffers that have come back from writes.
    spare: Vec<Vec<u8>>,
    loan: Loan,
    record: Running,
    token: Option<Token>,
    /// A flush is owed before the answer.
    unflushed: bool,
    /// Bytes of data-out that the CDB calls for.
    transfer: usize,
}

/// One operation.
#[derive(Clone, Copy, Debug)]
struct Flying {
    doing: Doing,
    /// Where in the move.
    at: u64,
    len: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    Read,
    Write,
    Flush,
}

/// Pieces that have been read, each with its place in the move.
type Pieces = SmallVec<[(u64, Vec<u8>); 4]>;

impl Copying {
    pub(in crate::scsi) fn resume(mut self: Box<Self>, device: &Device, results: &mut [Finished]) -> Answer {
        match self.collect(results) {
            Ok(pieces) => self.proceed(device, pieces),
            Err(sense) => {
                let aborted = self.record.0.aborted();
                self.record.0.change(|progress| {
                    progress.status = if aborted { Status::Terminated } else { Status::Failed };
                    progress.failure = Some(sense);
                });
                Err(sense)
            }
        }
    }

    /// Takes the results in: what was read, and the first failure.
    fn collect(&mut self, results: &mut [Finished]) -> Result<Pieces, Sense> {
        let mut pieces = Pieces::new();
        let mut failed = None;
        for (flying, finished) in std::mem::take(&mut self.flying).into_iter().zip(results) {
            let buffer = finished.buffer.take();
            match (&finished.result, flying.doing) {
                (Err(error), doing) => failed = failed.or_else(|| Some(self.failure(error, doing))),
                (Ok(_), Doing::Write) => {
                    self.record.0.change(|progress| progress.bytes += flying.len);
                    self.spare.extend(buffer);
                }
                (Ok(_), Doing::Flush) => self.unflushed = false,
                (Ok(_), Doing::Read) => {
                    pieces.push((flying.at, buffer.ok_or(sense::INTERNAL_TARGET_FAILURE)?));
                }
            }
        }
        if self.record.0.aborted() {
            failed = failed.or(Some(sense::COPY_ABORTED));
        }
        if self.token.as_ref().is_some_and(|token| token.rod.revoked()) && !pieces.is_empty() {
            failed = failed.or(Some(sense::TOKEN_REVOKED));
        }
        failed.map_or(Ok(pieces), Err)
    }

    /// An operation's failure as the copy's.
    fn failure(&self, error: &Error, doing: Doing) -> Sense {
        let access = if doing == Doing::Read { Access::Read } else { Access::Write };
        let Some(current) = self.moves.get(self.current) else { return fault::sense(error, access) };
        let end = if doing == Doing::Read { &current.source } else { &current.destination };
        match (error, end) {
            // What VMware pauses a virtual machine on must not hide behind a failed copy.
            (Error::NoSpace, _) | (Error::Fenced | Error::NotReady, End::Own) => fault::sense(error, access),
            (Error::NotReady, End::Other(_)) => {
                sense::COPY_TARGET_DEVICE_NOT_REACHABLE.at_segment(self.current as u16)
            }
            _ => sense::THIRD_PARTY_DEVICE_FAILURE.at_segment(self.current as u16),
        }
    }

    /// The next step: `pieces` are written and others read; the next segment; or the end.
    fn proceed(mut self: Box<Self>, device: &Device, pieces: Pieces) -> Answer {
        let mut io = SmallVec::new();
        let slots = (self.loan.bytes() / limits::PIECE).max(1) as usize;
        let free = slots.saturating_sub(pieces.len());
        for (at, bytes) in pieces {
            self.write(device, at, bytes, &mut io);
        }
        while let Some(current) = self.moves.get(self.current) {
            let piece = match current.source {
                End::Zeroes => scsi::limits::WRITE_SAME,
                _ => self.piece(current.block),
            };
            let left = (current.len - self.begun).div_ceil(piece);
            // With more to do than memory for it, one half is read while the other is written.
            let reads = if io.is_empty() && left > slots as u64 { slots.div_ceil(2) } else { free };
            for _ in 0..reads {
                self.read(device, piece, &mut io);
            }
            if !io.is_empty() {
                return Ok(Step::Io { io, exclusive: None, then: Then::Copy(self) });
            }
            self.current += 1;
            self.begun = 0;
            self.record.0.change(|progress| progress.segments += 1);
        }
        if self.unflushed {
            self.flying.push(Flying { doing: Doing::Flush, at: 0, len: 0 });
            let io = SmallVec::from_buf([Io::Flush]);
            return Ok(Step::Io { io, exclusive: None, then: Then::Copy(self) });
        }
        self.record.0.change(|progress| progress.status = Status::Good);
        if let Some(Token { rod, delete: true }) = &self.token {
            device.units.rods().delete(rod);
        }
        good(self.transfer)
    }

    /// How long pieces are: whole blocks, within what is lent.
    fn piece(&self, block: u64) -> u64 {
        let longest = self.loan.bytes().min(limits::PIECE);
        (longest / block).max(1) * block
    }

    /// Reads the next piece of the move in hand, if there is one; zeros are written at once.
    fn read(&mut self, device: &Device, piece: u64, io: &mut SmallVec<[Io; 1]>) {
        let Some(current) = self.moves.get(self.current) else { return };
        let len = piece.min(current.len - self.begun);
        if len == 0 {
            return;
        }
        let at = if current.backward() { current.len - self.begun - len } else { self.begun };
        self.begun += len;
        if let End::Zeroes = current.source {
            self.flying.push(Flying { doing: Doing::Write, at, len });
            self.unflushed |= device.write_through();
            let deallocate = device.geometry.provisioning.is_some();
            io.push(Io::WriteZeroes { offset: current.to + at, len, deallocate });
            return;
        }
        self.flying.push(Flying { doing: Doing::Read, at, len });
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.resize(len as usize, 0);
        let offset = current.from + at;
        io.push(match &current.source {
            End::Own | End::Zeroes => Io::Read { offset, into: Memory::Owned(buffer) },
            End::Other(unit) => Io::Visit(Box::new(Away {
                unit: Arc::clone(unit),
                nexus: self.nexus,
                call: Call::Read { offset, buffer },
            })),
        });
    }

    /// Writes a piece of the move in hand.
    fn write(&mut self, device: &Device, at: u64, buffer: Vec<u8>, io: &mut SmallVec<[Io; 1]>) {
        let Some(current) = self.moves.get(self.current) else { return };
        self.flying.push(Flying { doing: Doing::Write, at, len: buffer.len() as u64 });
        let offset = current.to + at;
        io.push(match &current.destination {
            End::Own | End::Zeroes => store(device, offset, buffer),
            End::Other(unit) => Io::Visit(Box::new(Away {
                unit: Arc::clone(unit),
                nexus: self.nexus,
                call: Call::Write { offset, buffer },
            })),
        });
    }
}

/// How copied bytes reach a unit's disk. Zeros on a thin disk stay a hole; a write that must be stable is written.
pub(in crate::scsi) fn store(device: &Device, offset: u64, buffer: Vec<u8>) -> Io {
    let fua = device.write_through();
    let len = buffer.len() as u64;
    if device.geometry.provisioning.is_some() && !fua && zeros(&buffer) {
        return Io::WriteZeroes { offset, len, deallocate: true };
    }
    Io::Write { offset, from: Memory::Owned(buffer), fua }
}

fn zeros(bytes: &[u8]) -> bool {
    const ZEROS: [u8; 4096] = [0; 4096];
    bytes.chunks(ZEROS.len()).all(|part| ZEROS.starts_with(part))
}
