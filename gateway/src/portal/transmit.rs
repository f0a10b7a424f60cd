//! What goes out: a queue of PDUs, given their numbers and digests when their turn comes, written many at a time.
//!
//! Data-In is written from the command's blocks: a READ's answer keeps its extent here until the last byte has gone to
//! the socket. One vectored write carries as many PDUs as fit.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::ops::Range;

use ring::Extent;

use super::pdu::{DataIn, HEADER, Header, NO_TAG, padding};
use super::stream::{Stream, recycle};
use super::window::Window;

/// PDUs prepared at a time.
const FRAMES: usize = 128;
/// Bytes prepared at a time.
const BYTES: usize = 1 << 20;

/// A SAM status with the bytes moved, ready to be sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    pub(crate) status: u8,
    /// Bytes the command moved by its CDB.
    pub(crate) transfer: usize,
    /// Bytes the initiator expected to move.
    pub(crate) expected: usize,
}

impl Outcome {
    /// (overflow, underflow, residual) of RFC 7143 section 11.4.5.
    pub(crate) fn residual(self) -> (bool, bool, u32) {
        let clamp = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
        match self.transfer.cmp(&self.expected) {
            std::cmp::Ordering::Less => (false, true, clamp(self.expected - self.transfer)),
            std::cmp::Ordering::Equal => (false, false, 0),
            std::cmp::Ordering::Greater => (true, false, clamp(self.transfer - self.expected)),
        }
    }
}

#[derive(Debug)]
enum Item {
    /// A PDU, whether it takes a StatSN, and its data segment.
    Pdu(Header, bool, Vec<u8>),
    /// Data-In of a READ.
    Data(Answer),
}

#[derive(Debug)]
struct Answer {
    task_tag: u32,
    blocks: usize,
    next: usize,
    len: usize,
    data_sn: u32,
    /// GOOD goes with the last Data-In (phase collapse).
    outcome: Option<Outcome>,
}

#[derive(Debug)]
enum Payload {
    Bytes(Vec<u8>),
    /// A part of an extent; the last part frees it.
    Blocks {
        index: usize,
        range: Range<usize>,
        last: bool,
    },
}

#[derive(Debug)]
struct Frame {
    head: [u8; HEADER + 4],
    head_len: usize,
    payload: Payload,
    payload_len: usize,
    tail: [u8; 8],
    tail_len: usize,
}

impl Frame {
    fn len(&self) -> usize {
        self.head_len + self.payload_len + self.tail_len
    }
}

/// The sending side of one connection.
#[derive(Debug, Default)]
pub(crate) struct Transmit {
    header_digest: bool,
    data_digest: bool,
    max_segment: usize,
    max_burst: usize,
    queue: VecDeque<Item>,
    frames: VecDeque<Frame>,
    frame_bytes: usize,
    /// Bytes of the first frame that have gone out.
    sent: usize,
    extents: Vec<Option<Extent>>,
    free: Vec<usize>,
    slices: Vec<IoSlice<'static>>,
    pub(crate) pdus: u64,
    pub(crate) bytes: u64,
    /// Bytes of Data-In that went out of a buffer instead of blocks: somebody has copied them there.
    pub(super) copied: u64,
}

impl Transmit {
    pub(crate) fn new(header_digest: bool, data_digest: bool, max_segment: usize, max_burst: usize) -> Self {
        Self { header_digest, data_digest, max_segment, max_burst, ..Self::default() }
    }

    /// The initiator has declared another segment length.
    pub(crate) fn set_max_segment(&mut self, len: usize) {
        self.max_segment = len;
    }

    /// Nothing waits to go out.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.frames.is_empty()
    }

    /// PDUs that wait, roughly; a peer that does not read is not read from either.
    pub(crate) fn backlog(&self) -> usize {
        self.queue.len() + self.frames.len()
    }

    /// Queues a PDU that takes a StatSN.
    pub(crate) fn status(&mut self, header: Header, data: Vec<u8>) {
        self.queue.push_back(Item::Pdu(header, true, data));
    }

    /// Queues a PDU that does not (R2T, a ping).
    pub(crate) fn plain(&mut self, header: Header) {
        self.queue.push_back(Item::Pdu(header, false, Vec::new()));
    }

    /// Queues the first `len` bytes (at least one) of `extent` as Data-In, with the status in the last PDU if given.
    /// Returns how many PDUs that makes: the ExpDataSN of a status that follows.
    pub(crate) fn data_in(
        &mut self,
        task_tag: u32,
        extent: Extent,
        len: usize,
        outcome: Option<Outcome>,
    ) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.extents.push(None);
            self.extents.len() - 1
        });
        self.extents[index] = Some(extent);
        self.queue.push_back(Item::Data(Answer {
            task_tag,
            blocks: index,
            next: 0,
            len,
            data_sn: 0,
            outcome,
        }));
        let (burst, segment) = (self.max_burst.max(1), self.max_segment.max(1));
        let full = (len / burst) * burst.div_ceil(segment);
        u32::try_from(full + (len % burst).div_ceil(segment)).unwrap_or(u32::MAX)
    }

    /// Prepares and writes until everything is out or the stream takes no more. `Ok(true)`: everything is out.
    pub(crate) fn run(&mut self, stream: &mut dyn Stream, window: &mut Window) -> io::Result<bool> {
        loop {
            self.prepare(window);
            if self.frames.is_empty() {
                return Ok(true);
            }
            match self.write(stream) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => self.advance(written),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }

    fn prepare(&mut self, window: &mut Window) {
        while self.frames.len() < FRAMES && self.frame_bytes < BYTES {
            let frame = match self.queue.pop_front() {
                None => return,
                Some(Item::Pdu(mut header, status, data)) => {
                    window.stamp(&mut header, status);
                    header.set_data_len(data.len());
                    let len = data.len();
                    self.frame(&header, Payload::Bytes(data), len)
                }
                Some(Item::Data(mut answer)) => {
                    let frame = self.data_frame(&mut answer, window);
                    if answer.next < answer.len {
                        self.queue.push_front(Item::Data(answer));
                    }
                    frame
                }
            };
            self.pdus += 1;
            self.frame_bytes += frame.len();
            self.frames.push_back(frame);
        }
    }

    fn data_frame(&mut self, answer: &mut Answer, window: &mut Window) -> Frame {
        let start = answer.next;
        let burst_left = self.max_burst - start % self.max_burst;
        let len = (answer.len - start).min(self.max_segment).min(burst_left);
        answer.next += len;
        let end = answer.next == answer.len;
        let mut pdu = DataIn {
            last: end || len == burst_left,
            task_tag: answer.task_tag,
            transfer_tag: NO_TAG,
            data_sn: answer.data_sn,
            offset: start as u32,
            ..DataIn::default()
        };
        answer.data_sn += 1;
        let status = answer.outcome.filter(|_| end);
        if let Some(outcome) = status {
            pdu.has_status = true;
            pdu.status = outcome.status;
            (pdu.overflow, pdu.underflow, pdu.residual) = outcome.residual();
        }
        let mut header = pdu.encode();
        match status {
            Some(_) => window.stamp(&mut header, true),
            None => window.stamp_commands(&mut header),
        }
        header.set_data_len(len);
        self.frame(
            &header,
            Payload::Blocks { index: answer.blocks, range: start..start + len, last: end },
            len,
        )
    }

    fn frame(&mut self, header: &Header, payload: Payload, payload_len: usize) -> Frame {
        if let (Payload::Bytes(_), DataIn::OPCODE) = (&payload, header.opcode()) {
            self.copied += payload_len as u64;
        }
        let mut frame = Frame {
            head: [0; HEADER + 4],
            head_len: HEADER,
            payload,
            payload_len,
            tail: [0; 8],
            tail_len: 0,
        };
        frame.head[..HEADER].copy_from_slice(&header.0);
        if self.header_digest {
            frame.head[HEADER..].copy_from_slice(&crc32c::crc32c(&header.0).to_le_bytes());
            frame.head_len += 4;
        }
        frame.tail_len = padding(payload_len);
        if self.data_digest && payload_len > 0 {
            let crc = match &frame.payload {
                Payload::Bytes(bytes) => crc32c::crc32c(bytes),
                Payload::Blocks { index, range, .. } => {
                    let mut slices = recycle(std::mem::take(&mut self.slices));
                    if let Some(extent) = &self.extents[*index] {
                        extent.io_slices(range.clone(), &mut slices);
                    }
                    let crc = slices.iter().fold(0, |crc, slice| crc32c::crc32c_append(crc, slice));
                    self.slices = recycle(slices);
                    crc
                }
            };
            let crc = crc32c::crc32c_append(crc, &frame.tail[..frame.tail_len]);
            frame.tail[frame.tail_len..][..4].copy_from_slice(&crc.to_le_bytes());
            frame.tail_len += 4;
        }
        frame
    }

    fn write(&mut self, stream: &mut dyn Stream) -> io::Result<usize> {
        let mut slices = recycle(std::mem::take(&mut self.slices));
        // Of the first frame, what has gone out is left away.
        let mut gone = self.sent;
        let mut skip = |len: usize| {
            let skipped = gone.min(len);
            gone -= skipped;
            skipped..len
        };
        for frame in &self.frames {
            slices.push(IoSlice::new(&frame.head[skip(frame.head_len)]));
            let part = skip(frame.payload_len);
            match &frame.payload {
                Payload::Bytes(bytes) => slices.push(IoSlice::new(&bytes[part])),
                Payload::Blocks { index, range, .. } => {
                    if let Some(extent) = &self.extents[*index]
                        && !part.is_empty()
                    {
                        extent.io_slices(range.start + part.start..range.start + part.end, &mut slices);
                    }
                }
            }
            slices.push(IoSlice::new(&frame.tail[skip(frame.tail_len)]));
        }
        slices.retain(|slice| !slice.is_empty());
        let written = stream.write(&slices);
        self.slices = recycle(slices);
        written
    }

    fn advance(&mut self, written: usize) {
        self.bytes += written as u64;
        self.frame_bytes = self.frame_bytes.saturating_sub(written);
        self.sent += written;
        while let Some(frame) = self.frames.front()
            && self.sent >= frame.len()
        {
            self.sent -= frame.len();
            if let Payload::Blocks { index, last: true, .. } = frame.payload {
                self.extents[index] = None;
                self.free.push(index);
            }
            self.frames.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::window::Depth;
    use super::*;

    #[test]
    fn residuals_say_over_or_under_by_how_much() {
        let outcome = |transfer, expected| Outcome { status: 0, transfer, expected }.residual();
        assert_eq!(outcome(512, 1024), (false, true, 512));
        assert_eq!(outcome(1024, 1024), (false, false, 0));
        assert_eq!(outcome(1024, 0), (true, false, 1024));
    }

    #[test]
    fn the_number_of_data_in_pdus_follows_bursts_and_segments() {
        let count = |segment, burst, len| {
            let mut transmit = Transmit::new(false, false, segment, burst);
            transmit.data_in(1, Extent::default(), len, None)
        };
        assert_eq!(count(8192, 262_144, 1), 1);
        assert_eq!(count(8192, 262_144, 65_536), 8);
        // A burst of 8192 takes three segments of 3072; 20480 bytes are two bursts and 4096 bytes.
        assert_eq!(count(3072, 8192, 20_480), 3 + 3 + 2);
        assert_eq!(count(1 << 20, 8192, 20_480), 3);
    }

    #[test]
    fn data_in_out_of_a_buffer_is_counted_as_copied_and_other_segments_are_not() {
        let mut transmit = Transmit::new(false, false, 8192, 262_144);
        let mut window = Window::new(1, 1, Depth { initial: 4, limit: 4 }, 0, None);
        transmit.status(super::super::pdu::NopIn::default().encode(), vec![0; 100]);
        transmit.prepare(&mut window);
        assert_eq!(transmit.copied, 0);
        transmit.status(DataIn::default().encode(), vec![0; 512]);
        transmit.prepare(&mut window);
        assert_eq!(transmit.copied, 512);
    }
}
