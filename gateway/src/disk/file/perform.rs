//! One request against an open file, on a worker thread, with the errors of the system turned into the disk's own.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::statvfs::fstatvfs;
use nix::unistd::{Whence, lseek};

use super::lost::Lost;
use super::{Beside, note};
use crate::disk::request::append_extent;
use crate::disk::{AllocationExtent, Buffer, Error, Outcome, Request, Usage};

/// The largest single write of repeated bytes.
const STRIDE: usize = 1024 * 1024;

/// Carries out one admitted request. `beside` is what the disk keeps beside its file.
pub(super) fn perform(
    file: &File,
    beside: &Beside,
    lost: &Lost,
    request: &mut Request,
) -> Result<Outcome, Error> {
    if request.writes() {
        beside.journal.settle(file).map_err(|error| from_system(&error))?;
    }
    match request {
        Request::Read { offset, buffer } => read(file, *offset, buffer),
        Request::Write { offset, buffer: Buffer::Segments(segments), fua } => {
            match segments.write_at(file.as_fd(), *offset, *fua) {
                // Refused, or taken and not synced? What is refused is refused again; what is not may have been lost.
                Err(error) if *fua && from_system(&error) == Error::NoSpace => {
                    match segments.write_at(file.as_fd(), *offset, false) {
                        Ok(()) => Err(lost.remember(error)),
                        refused => refused,
                    }
                }
                result => result,
            }
        }
        Request::Write { offset, buffer: Buffer::Owned(bytes), fua } => {
            file.write_all_at(bytes, *offset).and_then(|()| sync_if(file, lost, *fua))
        }
        Request::WriteSame { offset, len, pattern, fua } => {
            write_same(file, *offset, *len, pattern).and_then(|()| sync_if(file, lost, *fua))
        }
        Request::WriteZeroes { offset, len, deallocate: true } | Request::Discard { offset, len } => {
            let punch = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
            zero(file, *offset, *len, punch)
        }
        Request::WriteZeroes { offset, len, deallocate: false } => {
            let keep = FallocateFlags::FALLOC_FL_ZERO_RANGE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
            zero(file, *offset, *len, keep)
        }
        Request::CompareAndWrite { .. } => return Err(Error::Unsupported),
        Request::WriteAtomic { offset, buffer, .. } => beside.journal.write(file, *offset, buffer),
        Request::Note { note } => note::write(&beside.note, note.as_deref()),
        Request::Usage => {
            let usage = usage(file).map_err(|error| from_system(&error))?;
            return Ok(Outcome { usage: Some(Box::new(usage)), ..Outcome::default() });
        }
        Request::Flush => lost.sync(file),
        Request::Allocation { offset, len, limit } => {
            let extents = allocation(file, *offset, *len, *limit);
            return Ok(Outcome { extents, ..Outcome::default() });
        }
    }
    .map(|()| Outcome::default())
    .map_err(|error| from_system(&error))
}

/// What the file takes of its file system. A block device has no such figures.
fn usage(file: &File) -> io::Result<Usage> {
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Ok(Usage::default());
    }
    let pool = fstatvfs(file)?;
    let bytes = |blocks: u64| blocks.saturating_mul(pool.fragment_size());
    Ok(Usage {
        // st_blocks counts 512 bytes each, whatever the file system's blocks are.
        used: Some(metadata.blocks() * 512),
        available: Some(bytes(pool.blocks_available())),
        pool: Some(bytes(pool.blocks())),
    })
}

/// What a system error means for the disk.
fn from_system(error: &io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT) => Error::NoSpace,
        Some(libc::EROFS | libc::EPERM | libc::EACCES) => Error::ReadOnly,
        Some(libc::EFBIG) => Error::OutOfRange,
        Some(errno) => Error::Io(errno),
        None => Error::Io(libc::EIO),
    }
}

fn read(file: &File, offset: u64, buffer: &mut Buffer) -> io::Result<()> {
    match buffer {
        Buffer::Segments(segments) => {
            let filled = segments.read_at(file.as_fd(), offset)?;
            if filled < segments.len() {
                segments.fill(filled, segments.len() - filled, 0);
            }
        }
        Buffer::Owned(bytes) => {
            let mut filled = 0;
            while filled < bytes.len() {
                match file.read_at(&mut bytes[filled..], offset + filled as u64) {
                    Ok(0) => break,
                    Ok(more) => filled += more,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            bytes[filled..].fill(0);
        }
    }
    Ok(())
}

fn sync_if(file: &File, lost: &Lost, fua: bool) -> io::Result<()> {
    if fua { lost.sync(file) } else { Ok(()) }
}

fn write_same(file: &File, offset: u64, len: u64, pattern: &[u8]) -> io::Result<()> {
    let repeats = (STRIDE / pattern.len()).max(1).min((len / pattern.len() as u64) as usize);
    let stride = pattern.repeat(repeats);
    let mut done = 0;
    while done < len {
        let part = stride.len().min((len - done) as usize);
        file.write_all_at(&stride[..part], offset + done)?;
        done += part as u64;
    }
    Ok(())
}

/// Zeroes a range by `mode`, or by writing where the file system knows neither holes nor zero ranges.
fn zero(file: &File, offset: u64, len: u64, mode: FallocateFlags) -> io::Result<()> {
    loop {
        return match fallocate(file, mode, offset as libc::off_t, len as libc::off_t) {
            Ok(()) => Ok(()),
            Err(Errno::EINTR) => continue,
            Err(Errno::EOPNOTSUPP | Errno::ENOSYS | Errno::EINVAL) => {
                write_same(file, offset, len, &[0; 512])
            }
            Err(errno) => Err(errno.into()),
        };
    }
}

/// Walks data and holes; a file system without that knowledge counts as fully allocated. Data is rounded outward to
/// 4 KiB, so that an extent never ends inside a block.
fn allocation(file: &File, offset: u64, len: u64, limit: usize) -> Vec<AllocationExtent> {
    const ROUND: u64 = 4096;
    let end = offset + len;
    let mut extents = Vec::new();
    let mut at = offset;
    while at < end {
        let (data, hole) = match lseek(file, at as libc::off_t, Whence::SeekData) {
            Ok(data) => {
                let hole = lseek(file, data, Whence::SeekHole).map_or(end, |hole| hole as u64);
                let data = (data as u64 / ROUND * ROUND).clamp(at, end);
                (data, hole.next_multiple_of(ROUND).clamp(data, end))
            }
            Err(Errno::ENXIO) => (end, end),
            Err(_) => (at, end),
        };
        if !append_extent(&mut extents, at..data, false, limit)
            || !append_extent(&mut extents, data..hole, true, limit)
        {
            break;
        }
        at = hole.max(at + 1);
    }
    extents
}
