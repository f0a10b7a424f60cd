//! Framing of what comes in (RFC 7143 section 11.1): headers, AHS, data segments, padding, digests.
//!
//! Data segments go where the core says before the first of their bytes is taken: straight into a task's blocks, into
//! a small buffer, or nowhere. So that small PDUs do not cost a system call each,
//!
//! * the rest of a data segment and the header after it are read by one call, and
//! * when nothing is known about what comes next, the receiver looks ahead ([`Stream::peek`]), takes all the headers
//!   without data in one go, and the first header with data together with its data.
//!
//! Memory is fixed: one header with the longest AHS, and two scratch buffers.

use std::io::{self, IoSliceMut};
use std::ops::Range;

use super::pdu::{DataOut, HEADER, Header, ScsiCommand, padding};
use super::stream::{Stream, recycle_mut};

/// Longest header: BHS, AHS and digest.
const MAX_HEAD: usize = HEADER + 1020 + 4;
/// Bytes looked at ahead: some 40 headers.
const AHEAD: usize = 2048;
/// Bytes discarded by one call.
const DISCARD: usize = 16 * 1024;
/// Bytes of a data segment read by one call.
const READ: usize = 512 * 1024;

/// Where a data segment goes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Into a buffer, handed over with [`Arrival::Body`]. The caller has checked the length.
    Keep,
    /// Into a task's blocks, from this offset on.
    Task(usize, usize),
    /// Nowhere.
    Discard,
}

/// What has come in.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// A whole header; if it has a data segment, [`Receiver::begin`] must be called next.
    Header(Header),
    /// The data segment of the header given before.
    Body {
        /// That header.
        header: Header,
        /// For [`Place::Keep`].
        kept: Vec<u8>,
        /// The data digest matched, or there is none.
        intact: bool,
    },
    /// A header whose digest does not match. Nothing after it can be understood.
    HeaderDigest,
    /// The peer closed the stream.
    Closed,
}

/// Blocks of tasks, to read into and to check.
pub(crate) trait Memory {
    /// Appends the memory of `range` of a task's blocks.
    fn slices_mut<'a>(&'a mut self, task: usize, range: Range<usize>, into: &mut Vec<IoSliceMut<'a>>);
    /// CRC32C of `range` of a task's blocks, going on from `crc`.
    fn crc(&self, task: usize, range: Range<usize>, crc: u32) -> u32;
}

#[derive(Debug)]
struct Body {
    header: Header,
    place: Place,
    kept: Vec<u8>,
    len: usize,
    done: usize,
    /// Of what went nowhere.
    crc: u32,
    /// Only a part is in `crc`.
    unsummed: bool,
    /// Padding and digest.
    trailer: [u8; 8],
    trailer_len: usize,
    trailer_done: usize,
    /// Bytes of the header, known from looking ahead, that are still in the stream before the data.
    skip: usize,
}

/// The receiving side of one connection.
#[derive(Debug)]
pub(crate) struct Receiver {
    header_digest: bool,
    data_digest: bool,
    /// Take more than the current PDU when that saves a call.
    ahead: bool,
    head: Box<[u8; MAX_HEAD]>,
    have: usize,
    ahs_len: usize,
    body: Option<Body>,
    /// The header given last has its bytes still in the stream.
    skip: usize,
    scratch: Box<[u8; AHEAD]>,
    /// Headers in `scratch` not yet given.
    ready: Range<usize>,
    discard: Vec<u8>,
    /// Bytes of SCSI Command and Data-Out PDUs that went into a buffer instead of blocks, to be copied from there.
    pub(super) copied: u64,
    slices: Vec<IoSliceMut<'static>>,
}

impl Receiver {
    /// A receiver for the login phase: no digests, and not a byte taken beyond the current PDU.
    pub(crate) fn new() -> Self {
        Self {
            header_digest: false,
            data_digest: false,
            ahead: false,
            head: Box::new([0; MAX_HEAD]),
            have: 0,
            ahs_len: 0,
            body: None,
            skip: 0,
            scratch: Box::new([0; AHEAD]),
            ready: 0..0,
            discard: Vec::new(),
            copied: 0,
            slices: Vec::new(),
        }
    }

    /// A receiver for the full feature phase.
    pub(crate) fn full_feature(header_digest: bool, data_digest: bool) -> Self {
        Self { header_digest, data_digest, ahead: true, ..Self::new() }
    }

    /// AHS of the header given last.
    pub(crate) fn ahs(&self) -> &[u8] {
        &self.head[HEADER..HEADER + self.ahs_len]
    }

    /// Says where the data segment of the header given last goes.
    pub(crate) fn begin(&mut self, header: Header, place: Place) {
        let len = header.data_len();
        let kept = if place == Place::Keep { vec![0; len] } else { Vec::new() };
        if place == Place::Keep && matches!(header.opcode(), ScsiCommand::OPCODE | DataOut::OPCODE) {
            self.copied += len as u64;
        }
        let trailer_len = padding(len) + if self.data_digest { 4 } else { 0 };
        let skip = std::mem::take(&mut self.skip);
        self.body = Some(Body {
            header,
            place,
            kept,
            len,
            done: 0,
            crc: 0,
            unsummed: false,
            trailer: [0; 8],
            trailer_len,
            trailer_done: 0,
            skip,
        });
    }

    /// The task is gone: what still comes for it goes nowhere.
    pub(crate) fn forget(&mut self, task: usize) {
        if let Some(body) = &mut self.body
            && matches!(body.place, Place::Task(target, _) if target == task)
        {
            body.place = Place::Discard;
            // Of the bytes so far there is no sum, and the task is gone: nobody is told.
            body.unsummed = body.done > 0;
        }
    }

    /// The next thing that has come in, or `None` when more bytes are needed and there are none now.
    pub(crate) fn next(
        &mut self,
        stream: &mut dyn Stream,
        memory: &mut dyn Memory,
    ) -> io::Result<Option<Arrival>> {
        loop {
            if let Some(body) =
                self.body.take_if(|body| body.done == body.len && body.trailer_done == body.trailer_len)
            {
                return Ok(Some(self.finish(body, memory)));
            }
            let step = if self.body.is_some() {
                self.read_body(stream, memory)
            } else if !self.ready.is_empty() {
                return Ok(Some(self.take_ready()));
            } else if self.have >= HEADER && self.have == self.head_len() {
                return Ok(Some(self.take_head()));
            } else if self.ahead && self.have == 0 {
                match self.look_ahead(stream) {
                    Ok(Some(arrival)) => return Ok(Some(arrival)),
                    other => other.map(|_none| 1),
                }
            } else {
                self.read_head(stream)
            };
            match step {
                Ok(0) => return Ok(Some(Arrival::Closed)),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    fn digest_len(&self) -> usize {
        if self.header_digest { 4 } else { 0 }
    }

    /// Bytes of the current header; known once the BHS is there, before that without its AHS.
    fn head_len(&self) -> usize {
        // No login has any: there the header alone is enough to refuse the PDU.
        let ahs = if self.ahead && self.have >= HEADER { usize::from(self.head[4]) * 4 } else { 0 };
        HEADER + ahs + self.digest_len()
    }

    fn read_head(&mut self, stream: &mut dyn Stream) -> io::Result<usize> {
        let end = self.head_len();
        let read = stream.read(&mut [IoSliceMut::new(&mut self.head[self.have..end])])?;
        self.have += read;
        Ok(read)
    }

    fn take_head(&mut self) -> Arrival {
        let len = std::mem::take(&mut self.have);
        self.ahs_len = len - self.digest_len() - HEADER;
        checked(&self.head[..len], self.digest_len())
    }

    /// One of the headers without data that were taken together.
    fn take_ready(&mut self) -> Arrival {
        let len = HEADER + self.digest_len();
        let start = self.ready.start;
        self.ready.start += len;
        self.ahs_len = 0;
        checked(&self.scratch[start..start + len], self.digest_len())
    }

    /// Looks at what is there. `Ok(None)`: go on.
    fn look_ahead(&mut self, stream: &mut dyn Stream) -> io::Result<Option<Arrival>> {
        let len = HEADER + self.digest_len();
        let seen = stream.peek(&mut self.scratch[..])?;
        if seen == 0 {
            return Ok(Some(Arrival::Closed));
        }
        let bare = |header: &[u8]| header[4..8] == [0; 4];
        let mut end = 0;
        while end + len <= seen && bare(&self.scratch[end..end + len]) {
            end += len;
        }
        if end > 0 {
            // What was seen is still there: one read takes it all, and a header with data that follows with it.
            let next = if end + len <= seen { len } else { 0 };
            let mut slices =
                [IoSliceMut::new(&mut self.scratch[..end]), IoSliceMut::new(&mut self.head[..next])];
            let read = stream.read(&mut slices)?;
            if read < end {
                return Err(io::Error::other("the stream took back what it had shown"));
            }
            self.ready = 0..end;
            self.have = read - end;
            return Ok(None);
        }
        if seen >= len && self.scratch[4] == 0 {
            // A header with data, whole: act on it now, take it together with the data.
            self.head[..len].copy_from_slice(&self.scratch[..len]);
            self.have = len;
            let arrival = self.take_head();
            self.skip = len;
            return Ok(Some(arrival));
        }
        self.read_head(stream).map(|_read| None)
    }

    fn read_body(&mut self, stream: &mut dyn Stream, memory: &mut dyn Memory) -> io::Result<usize> {
        let next = if self.ahead { HEADER + self.digest_len() } else { 0 };
        let Some(body) = &mut self.body else { return Ok(1) };
        let mut slices = recycle_mut(std::mem::take(&mut self.slices));
        if body.skip > 0 {
            slices.push(IoSliceMut::new(&mut self.scratch[..body.skip]));
        }
        let mut end = body.len.min(body.done + READ);
        match body.place {
            Place::Keep => slices.push(IoSliceMut::new(&mut body.kept[body.done..end])),
            Place::Task(task, offset) => {
                memory.slices_mut(task, offset + body.done..offset + end, &mut slices);
            }
            Place::Discard => {
                end = body.len.min(body.done + DISCARD);
                self.discard.resize(DISCARD, 0);
                slices.push(IoSliceMut::new(&mut self.discard[..end - body.done]));
            }
        }
        if end == body.len {
            slices.push(IoSliceMut::new(&mut body.trailer[body.trailer_done..body.trailer_len]));
            slices.push(IoSliceMut::new(&mut self.head[..next]));
        }
        let read = stream.read(&mut slices);
        self.slices = recycle_mut(slices);
        let read = read?;
        let mut left = read;
        let mut take = |most: usize| {
            let taken = left.min(most);
            left -= taken;
            taken
        };
        body.skip -= take(body.skip);
        let part = take(end - body.done);
        body.done += part;
        if self.data_digest && body.place == Place::Discard {
            body.crc = crc32c::crc32c_append(body.crc, &self.discard[..part]);
        }
        if body.done == body.len {
            body.trailer_done += take(body.trailer_len - body.trailer_done);
            self.have = take(next);
        }
        Ok(read)
    }

    fn finish(&self, body: Body, memory: &dyn Memory) -> Arrival {
        let pad = padding(body.len);
        let intact = !self.data_digest || body.unsummed || {
            let crc = match body.place {
                Place::Keep => crc32c::crc32c(&body.kept),
                Place::Task(task, offset) => memory.crc(task, offset..offset + body.len, 0),
                // Section 7.8: a wrong digest is rejected, whatever becomes of the data.
                Place::Discard => body.crc,
            };
            let crc = crc32c::crc32c_append(crc, &body.trailer[..pad]);
            digest_matches(crc, &body.trailer[pad..body.trailer_len])
        };
        Arrival::Body { header: body.header, kept: body.kept, intact }
    }
}

/// The header in `bytes`, whose last `digest_len` bytes must match the rest.
fn checked(bytes: &[u8], digest_len: usize) -> Arrival {
    let (covered, digest) = bytes.split_at(bytes.len() - digest_len);
    if !digest.is_empty() && !digest_matches(crc32c::crc32c(covered), digest) {
        return Arrival::HeaderDigest;
    }
    let mut header = Header::new(0);
    header.0.copy_from_slice(&covered[..HEADER]);
    Arrival::Header(header)
}

/// CRC32C goes over the wire as iSCSI's bit order has it: the least significant byte first.
fn digest_matches(crc: u32, sent: &[u8]) -> bool {
    sent == crc.to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_that_goes_through_a_buffer_is_counted_and_what_goes_into_blocks_is_not() {
        let copied = |opcode: u8, place: Place| {
            let mut receiver = Receiver::full_feature(false, false);
            let mut header = Header::new(opcode);
            header.set_data_len(512);
            receiver.begin(header, place);
            receiver.copied
        };
        assert_eq!(copied(ScsiCommand::OPCODE, Place::Keep), 512);
        assert_eq!(copied(DataOut::OPCODE, Place::Keep), 512);
        assert_eq!(copied(ScsiCommand::OPCODE, Place::Task(0, 0)), 0);
        assert_eq!(copied(DataOut::OPCODE, Place::Discard), 0);
        // The data of a ping is no payload.
        assert_eq!(copied(0x00, Place::Keep), 0);
    }
}
