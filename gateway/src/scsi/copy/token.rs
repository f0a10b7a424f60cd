//! POPULATE TOKEN, WRITE USING TOKEN (SBC-3) and RECEIVE ROD TOKEN INFORMATION (SPC-4): what Windows copies with (ODX).

use std::sync::Arc;
use std::time::Instant;

use smallvec::SmallVec;

use super::limits;
use super::plan::{self, End, Move};
use super::record::{Kind, Progress, Record, Refused, Running, Status};
use super::rod::{self, Rod, TOKEN};
use super::run::{self, Token};
use crate::scsi::cdb::{Extent, Request, Span, field};
use crate::scsi::device::{Answer, Device, Then, busy, check, good, parameter_data};
use crate::scsi::fault::Access;
use crate::scsi::opcode::Flow;
use crate::scsi::sense::{self, Sense};
use crate::scsi::step::{Finished, Io, Memory, Step, status};

/// A block device range descriptor.
const RANGE: usize = 16;

/// The parameter list of both commands: fixed part, then ranges, whose length stands in the last two bytes before them.
struct List<'a> {
    fixed: &'a [u8],
    ranges: Vec<Extent>,
}

impl List<'_> {
    fn blocks(&self, device: &Device) -> u64 {
        self.ranges.iter().map(|range| range.len).sum::<u64>() / device.block_size()
    }
}

/// Reads a list whose fixed part has `fixed` bytes. Ranges lie within the unit, apart from each other.
fn read<'a>(device: &Device, bytes: &'a [u8], fixed: usize) -> Result<List<'a>, Sense> {
    let wrong = |at: usize| sense::INVALID_FIELD_IN_PARAMETER_LIST.at_list_byte(at as u16);
    let (fixed, rest) = bytes.split_at_checked(fixed).ok_or(sense::PARAMETER_LIST_LENGTH_ERROR)?;
    let length = |at: usize| usize::from(u16::from_be_bytes(field(fixed, at)));
    let ranges = length(fixed.len() - 2);
    // The list's own length, which does not count itself, covers the ranges.
    if length(0) + 2 < fixed.len() + ranges {
        return Err(wrong(0));
    }
    if ranges < RANGE || !ranges.is_multiple_of(RANGE) {
        return Err(wrong(fixed.len() - 2));
    }
    if ranges / RANGE > limits::RANGES {
        return Err(sense::TOO_MANY_SEGMENT_DESCRIPTORS.at_list_byte((fixed.len() - 2) as u16));
    }
    let list = rest.get(..ranges).ok_or(sense::PARAMETER_LIST_LENGTH_ERROR)?;
    let mut found = Vec::new();
    for descriptor in list.chunks_exact(RANGE) {
        let range = device.locate(Span::of_descriptor(descriptor))?;
        if range.len > 0 {
            found.push(range);
        }
    }
    let list = List { fixed, ranges: found };
    if list.ranges.iter().map(|range| range.len).sum::<u64>() > limits::TOKEN {
        return Err(wrong(list.fixed.len()));
    }
    let mut sorted = list.ranges.clone();
    sorted.sort_unstable_by_key(|range| range.offset);
    // SBC-3: no block may be named twice.
    if sorted.windows(2).any(|pair| pair[0].offset + pair[0].len > pair[1].offset) {
        return Err(wrong(list.fixed.len()));
    }
    Ok(list)
}

/// Opens the record that the LIST IDENTIFIER of the CDB names.
fn open(device: &mut Device, request: &Request<'_>, kind: Kind) -> Result<Running, Refused> {
    device.copies.open(&device.nexuses, request.nexus, request.cdb.u32(6), kind)
}

/// POPULATE TOKEN's part before the ranges.
const POPULATE: usize = 16;

/// POPULATE TOKEN. One block is read; IMMED changes nothing, see [`write_using_token`].
pub(in crate::scsi) fn populate_token(device: &mut Device, request: &Request<'_>) -> Answer {
    let claimed = request.cdb.u32(10) as usize;
    if claimed == 0 {
        return good(0);
    }
    let bytes = request.parameter_list(claimed, POPULATE + limits::RANGES * RANGE);
    let list = read(device, &bytes, POPULATE)?;
    let wrong = |at: u16| sense::INVALID_FIELD_IN_PARAMETER_LIST.at_list_byte(at);
    let word = |at: usize| u32::from_be_bytes(field(list.fixed, at));
    let timeout = match word(4) {
        0 => rod::DEFAULT_TIMEOUT,
        seconds if seconds <= rod::LONGEST_TIMEOUT => seconds,
        _ => return Err(wrong(4)),
    };
    // RTV: the initiator names the type.
    if list.fixed[2] & 0x02 != 0 && ![rod::CHANGE_VULNERABLE, rod::ANY_POINT_IN_TIME].contains(&word(8)) {
        return Err(wrong(8));
    }
    let record = match open(device, request, Kind::Populate) {
        Ok(record) => record,
        Err(Refused::Sense(sense)) => return Err(sense),
        Err(Refused::Busy) => return busy(Flow::Out),
    };
    let (Some(first), Some(last)) = (
        list.ranges.iter().min_by_key(|range| range.offset).copied(),
        list.ranges.iter().map(|range| range.offset + range.len).max(),
    ) else {
        record.0.change(|progress| progress.status = Status::Good);
        return good(claimed);
    };
    let block = device.block_size();
    let rod =
        Rod::new(&device.identity, block, list.ranges, timeout).ok_or(sense::INTERNAL_TARGET_FAILURE)?;
    // From here on every write to the ranges revokes it; and what is being written now is waited for, by holding them.
    device.own_rods.watch(&rod);
    let io = Io::Read { offset: first.offset, into: Memory::Owned(vec![0; block as usize]) };
    let populating = Populating { rod, record, transfer: claimed };
    Ok(Step::Io {
        io: SmallVec::from_buf([io]),
        exclusive: Some(first.offset..last),
        then: Then::Populate(populating),
    })
}

/// A token that is handed out as soon as nothing is being written to its ranges.
#[derive(Debug)]
pub(in crate::scsi) struct Populating {
    rod: Arc<Rod>,
    record: Running,
    transfer: usize,
}

impl Populating {
    pub(in crate::scsi) fn resume(self, device: &Device, results: &[Finished]) -> Answer {
        let result = check(results, Access::Read);
        self.record.0.change(|progress| match &result {
            Ok(()) => {
                progress.status = Status::Good;
                progress.bytes = self.rod.bytes();
                progress.segments = self.rod.ranges.len() as u16;
            }
            Err(sense) => {
                progress.status = Status::Failed;
                progress.failure = Some(*sense);
            }
        });
        result?;
        device.units.rods().insert(&self.rod, Instant::now());
        self.record.0.set_token(Arc::clone(&self.rod));
        good(self.transfer)
    }
}

/// WRITE USING TOKEN's part before the ranges.
const WRITE: usize = 536;

/// WRITE USING TOKEN. SBC-3 lets the status go before the copy with IMMED; here it comes after it in any case: a copy is a
/// command in flight, which task management and reservations find. RECEIVE ROD TOKEN INFORMATION shows its progress.
pub(in crate::scsi) fn write_using_token(device: &mut Device, request: &Request<'_>) -> Answer {
    let claimed = request.cdb.u32(10) as usize;
    if claimed == 0 {
        return good(0);
    }
    let bytes = request.parameter_list(claimed, WRITE + limits::RANGES * RANGE);
    let list = read(device, &bytes, WRITE)?;
    let token: [u8; TOKEN] = field(list.fixed, 16);
    let offset = u64::from_be_bytes(field(list.fixed, 8));
    let (moves, rod) = match u32::from_be_bytes(field(&token, 0)) {
        _ if token[6..8] != ((TOKEN - 8) as u16).to_be_bytes() => return Err(sense::INVALID_TOKEN_LENGTH),
        rod::ZERO => (zeroes(device, &list.ranges), None),
        rod::CHANGE_VULNERABLE => {
            let rod = device.units.rods().find(&token, Instant::now())?;
            let source = plan::reach_naa(device, request.nexus, &rod.naa);
            let source = source.ok_or(sense::REMOTE_TOKEN_USAGE_NOT_SUPPORTED)?;
            // Offsets count blocks, which then have to be of one length.
            if rod.block != device.block_size() {
                return Err(sense::TOKEN_CAUSE_NOT_REPORTABLE);
            }
            let skipped = offset.checked_mul(rod.block).filter(|skipped| *skipped < rod.bytes());
            let skipped = skipped.ok_or(sense::INVALID_FIELD_IN_PARAMETER_LIST.at_list_byte(8))?;
            (pair(&source, rod.block, &rod.ranges, skipped, &list.ranges), Some(rod))
        }
        _ => return Err(sense::UNSUPPORTED_TOKEN_TYPE),
    };
    let moved = moves.iter().map(|step| step.len).sum::<u64>() / device.block_size();
    let record = match open(device, request, Kind::WriteUsing) {
        Ok(record) => record,
        Err(Refused::Sense(sense)) => return Err(sense),
        Err(Refused::Busy) => return busy(Flow::Out),
    };
    // The ROD may have less than the ranges hold.
    record.0.change(|progress| progress.residual = moved < list.blocks(device));
    let delete = list.fixed[2] & 0x02 != 0;
    let token = rod.map(|rod| Token { rod, delete });
    run::start(device, request.nexus, moves, record, token, claimed)
}

fn zeroes(device: &Device, ranges: &[Extent]) -> Vec<Move> {
    let block = device.block_size();
    let fill = |range: &Extent| Move {
        source: End::Zeroes,
        destination: End::Own,
        from: 0,
        to: range.offset,
        len: range.len,
        block,
    };
    ranges.iter().map(fill).collect()
}

/// What goes from where to where: the ROD's ranges from `skipped` bytes on, laid along the destination's.
fn pair(source: &End, block: u64, from: &[Extent], mut skipped: u64, to: &[Extent]) -> Vec<Move> {
    let mut moves = Vec::new();
    let mut sources = from.iter().filter_map(|range| {
        let skip = skipped.min(range.len);
        skipped -= skip;
        (skip < range.len).then(|| Extent { offset: range.offset + skip, len: range.len - skip })
    });
    let mut have = sources.next();
    for range in to {
        let mut want = *range;
        while want.len > 0 {
            let Some(part) = have else { return moves };
            let len = part.len.min(want.len);
            moves.push(Move {
                source: source.clone(),
                destination: End::Own,
                from: part.offset,
                to: want.offset,
                len,
                block,
            });
            want = Extent { offset: want.offset + len, len: want.len - len };
            let rest = Extent { offset: part.offset + len, len: part.len - len };
            have = if rest.len > 0 { Some(rest) } else { sources.next() };
        }
    }
    moves
}

/// RECEIVE ROD TOKEN INFORMATION.
pub(in crate::scsi) fn receive_rod_token_information(device: &mut Device, request: &Request<'_>) -> Answer {
    let missing = sense::INVALID_FIELD_IN_CDB.at_cdb_byte(2);
    let record = device.copies.find(request.nexus, request.cdb.u32(2)).ok_or(missing)?;
    let (action, tokens) = match record.kind() {
        Kind::Populate => (0x10, true),
        Kind::WriteUsing => (0x11, false),
        Kind::Copy => return Err(missing),
    };
    let progress = record.progress();
    let mut data = vec![0; 32];
    data[4] = action;
    data[5] = operation_status(&progress);
    if progress.status == Status::InProgress {
        // ESTIMATED STATUS UPDATE DELAY: not known.
        data[8..12].fill(0xFF);
    }
    let failure = progress.failure.map(|failure| failure.encode(device.mode.descriptor_sense()));
    if let Some(failure) = &failure {
        data[12] = status::CHECK_CONDITION;
        data[13] = failure.len() as u8;
        data[14] = failure.len() as u8;
    }
    // TRANSFER COUNT UNITS: logical blocks.
    data[15] = 0xF1;
    data[16..24].copy_from_slice(&(progress.bytes / device.block_size()).to_be_bytes());
    data[24..26].copy_from_slice(&progress.segments.to_be_bytes());
    data.extend(failure.iter().flatten());
    if tokens {
        data.extend_from_slice(&token_descriptors(record));
    }
    let available = (data.len() - 4) as u32;
    data[..4].copy_from_slice(&available.to_be_bytes());
    parameter_data(data, request.cdb.u32(10) as usize)
}

/// COPY OPERATION STATUS (SPC-4).
fn operation_status(progress: &Progress) -> u8 {
    match progress.status {
        Status::Good if progress.residual => 0x03,
        Status::Good => 0x01,
        Status::Failed => 0x02,
        // In the foreground.
        Status::InProgress => 0x11,
        Status::Terminated => 0x60,
    }
}

/// ROD TOKEN DESCRIPTORS LENGTH, and the one descriptor if there is a token.
fn token_descriptors(record: &Record) -> Vec<u8> {
    let mut descriptors = vec![0; 4];
    if let Some(rod) = record.token() {
        descriptors[..4].copy_from_slice(&(2 + TOKEN as u32).to_be_bytes());
        descriptors.extend_from_slice(&[0, 0]);
        descriptors.extend_from_slice(rod.token.as_slice());
    }
    descriptors
}

/// COPY OPERATION ABORT (SPC-4): the copy starts nothing further, and its command ends in COPY ABORTED.
pub(in crate::scsi) fn copy_operation_abort(device: &mut Device, request: &Request<'_>) -> Answer {
    let record = device.copies.find(request.nexus, request.cdb.u32(2));
    record.ok_or(sense::INVALID_FIELD_IN_CDB.at_cdb_byte(2))?.abort();
    good(0)
}
