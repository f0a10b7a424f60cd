//! The engine's operations as requests to the disk, and the blocks that they touch.

use ring::Segments;

use super::inflight::Moved;
use super::pump::Pump;
use super::ranges::{Claim, Kind};
use crate::disk::{Buffer, Request};
use crate::scsi::{Io, Memory};

impl Pump {
    /// The engine's operation as the disk's request; `None` when it is not the disk's.
    pub(super) fn request(
        &mut self,
        place: usize,
        io: Io,
        segments: &Segments,
        payload: bool,
    ) -> Option<Request> {
        let mut moved = Moved::default();
        let buffer = |memory: Memory, moved: &mut u64| match memory {
            Memory::Command { offset, len } => {
                *moved = len as u64;
                let whole = offset == 0 && len == segments.len();
                Buffer::Segments(if whole { segments.clone() } else { segments.slice(offset, len) })
            }
            Memory::Owned(bytes) => Buffer::Owned(bytes),
        };
        let request = match io {
            Io::Read { offset, into } => Request::Read { offset, buffer: buffer(into, &mut moved.read) },
            Io::Write { offset, from, fua } => {
                if let (Memory::Owned(bytes), true) = (&from, payload) {
                    self.shared.figures.bytes_copied.add(bytes.len() as u64);
                }
                Request::Write { offset, buffer: buffer(from, &mut moved.written), fua }
            }
            Io::WriteAtomic { offset, from, fua } => {
                Request::WriteAtomic { offset, buffer: buffer(from, &mut moved.written), fua }
            }
            Io::WriteSame { offset, len, pattern, fua } => Request::WriteSame { offset, len, pattern, fua },
            Io::WriteZeroes { offset, len, deallocate } => Request::WriteZeroes { offset, len, deallocate },
            Io::Discard { offset, len } => Request::Discard { offset, len },
            Io::CompareAndWrite { offset, compare, write, fua } => {
                Request::CompareAndWrite { offset, compare, write, fua }
            }
            Io::Flush => Request::Flush,
            Io::Allocation { offset, len, limit } => Request::Allocation { offset, len, limit },
            Io::Usage => Request::Usage,
            Io::Note(note) => Request::Note { note },
            // Not the disk's, and seen to before: left at a door, waiting for the unit or for other commands.
            Io::Visit(_)
            | Io::Background(_)
            | Io::SetTargetPortGroups(_)
            | Io::SaveReservations(_)
            | Io::EndCommands(_) => return None,
        };
        if let Some(flight) = self.inflight.get(place) {
            flight.moved.read += moved.read;
            flight.moved.written += moved.written;
        }
        Some(request)
    }
}

/// READ and WRITE of any length: the commands whose payload must not be copied.
pub(super) fn is_payload(cdb: &[u8]) -> bool {
    matches!(cdb.first(), Some(0x08 | 0x28 | 0x88 | 0xa8 | 0x0a | 0x2a | 0x8a | 0xaa))
}

/// What a step reads or writes on the lane's own disk: the smallest range that holds all of it.
pub(super) fn touched(io: &[Io]) -> Option<Claim> {
    let range = io.iter().filter_map(Io::range).reduce(|a, b| a.start.min(b.start)..a.end.max(b.end))?;
    let writes = io.iter().any(|io| io.written().is_some());
    Some(Claim { range, kind: if writes { Kind::Write } else { Kind::Read } })
}
