//! Memory files: creation, seals, and giving pages back.

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;

use nix::fcntl::{FallocateFlags, FcntlArg, SealFlag, fallocate, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};

/// A memfd of `len` bytes, none of them backed, sealed against shrinking, growing and further seals.
pub(crate) fn create_sealed(len: u64) -> io::Result<File> {
    let fd = memfd_create(c"rbdgate-ring", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?;
    let file = File::from(fd);
    file.set_len(len)?;
    let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
    fcntl(&file, FcntlArg::F_ADD_SEALS(seals))?;
    Ok(file)
}

/// A handle of its own on a memfd that another process made; refused unless it cannot shrink under a mapping.
pub(crate) fn duplicate_sealed(fd: BorrowedFd<'_>) -> io::Result<File> {
    let file = File::from(fd.try_clone_to_owned()?);
    let seals = SealFlag::from_bits_truncate(fcntl(&file, FcntlArg::F_GET_SEALS)?);
    if !seals.contains(SealFlag::F_SEAL_SHRINK) {
        fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK))?;
    }
    Ok(file)
}

/// Frees the pages of a range; they read as zeros afterwards.
pub(crate) fn punch(file: &File, offset: usize, len: usize) -> io::Result<()> {
    let mode = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    Ok(fallocate(file, mode, offset as i64, len as i64)?)
}

/// Allocates the pages of a range.
pub(crate) fn back(file: &File, offset: usize, len: usize) -> io::Result<()> {
    Ok(fallocate(file, FallocateFlags::empty(), offset as i64, len as i64)?)
}

/// Bytes of memory that the file holds now.
pub(crate) fn allocated_bytes(file: &File) -> io::Result<u64> {
    Ok(file.metadata()?.blocks() * 512)
}
