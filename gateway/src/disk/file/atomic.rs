//! Writes that no crash tears ([`Request::WriteAtomic`](crate::disk::Request::WriteAtomic)): a file system promises that of no
//! write, however short.
//!
//! The data goes into a *journal* beside the disk's file first, then into the disk, then the journal is emptied; each step is
//! on stable storage before the next begins. Whoever opens the disk carries out what a whole journal holds. So a crash before
//! the first sync leaves the disk as it was, one after it leaves the write done, and no later write is ever undone, because the
//! journal is empty before the atomic write is answered.
//!
//! A step that fails leaves a *debt*: the record must be erased, or carried out, before anything else is written. Otherwise
//! whoever opens the disk next would put it over newer data, or half of the write would stay for ever.
//!
//! One such write at a time: there is one journal.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};

use super::beside;
use super::lost::Lost;
use crate::disk::Buffer;

/// The longest such write, bytes.
pub(super) const LONGEST: u64 = 1 << 20;

/// First bytes of a journal that holds a write; then its offset, its length, and the checksum of both and the data.
const MAGIC: [u8; 8] = *b"rbdgate1";
const HEADER: usize = 32;

/// The journal of one disk.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    slot: Mutex<Slot>,
    /// There is a debt; read without the lock.
    owes: AtomicBool,
    /// Remembers that the disk could not sync.
    lost: Arc<Lost>,
}

#[derive(Debug, Default)]
struct Slot {
    /// Made at the first write.
    file: Option<File>,
    debt: Option<Debt>,
}

/// What a write that failed has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Debt {
    /// A record that may or may not be stable, of a write that has not touched the disk.
    Erase,
    /// A stable record, of a write that the disk may have in part.
    CarryOut,
}

impl Journal {
    /// The journal of the disk in a file; nothing is made yet.
    pub(super) fn of(disk: &Path, lost: Arc<Lost>) -> Self {
        Self { path: beside(disk, ".atomic"), slot: Mutex::default(), owes: AtomicBool::new(false), lost }
    }

    /// Carries out what a crash has left in the journal, and empties it.
    pub(super) fn recover(&self, disk: &File) -> io::Result<()> {
        let journal = match OpenOptions::new().read(true).write(true).open(&self.path) {
            Ok(journal) => journal,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        self.carry_out(&journal, disk)
    }

    /// Whether a write is waiting to be carried out.
    pub(super) fn is_pending(&self) -> io::Result<bool> {
        match File::open(&self.path) {
            Ok(journal) => Ok(held(&journal)?.is_some()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn carry_out(&self, journal: &File, disk: &File) -> io::Result<()> {
        if let Some((offset, data)) = held(journal)? {
            tracing::warn!(journal = %self.path.display(), offset, len = data.len(), "an atomic write is carried out again");
            disk.write_all_at(&data, offset)?;
            self.lost.sync(disk)?;
        }
        empty(journal)
    }

    fn lock(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pays what a write that failed has left. Before anything else is written; while it fails, nothing is.
    pub(super) fn settle(&self, disk: &File) -> io::Result<()> {
        if self.owes.load(Ordering::Acquire) { self.pay(&mut self.lock(), disk) } else { Ok(()) }
    }

    fn pay(&self, slot: &mut Slot, disk: &File) -> io::Result<()> {
        match (&slot.file, slot.debt) {
            (Some(journal), Some(Debt::Erase)) => empty(journal)?,
            (Some(journal), Some(Debt::CarryOut)) => self.carry_out(journal, disk)?,
            _ => {}
        }
        slot.debt = None;
        self.owes.store(false, Ordering::Release);
        Ok(())
    }

    /// Writes the buffer whole or not at all.
    pub(super) fn write(&self, disk: &File, offset: u64, buffer: &Buffer) -> io::Result<()> {
        let mut record = vec![0; HEADER + buffer.len()];
        match buffer {
            Buffer::Segments(segments) => segments.copy_out(0, &mut record[HEADER..]),
            Buffer::Owned(bytes) => record[HEADER..].copy_from_slice(bytes),
        }
        record[..8].copy_from_slice(&MAGIC);
        record[8..16].copy_from_slice(&offset.to_be_bytes());
        record[16..24].copy_from_slice(&(buffer.len() as u64).to_be_bytes());
        let sum = checksum(&record);
        record[24..28].copy_from_slice(&sum.to_be_bytes());

        let mut slot = self.lock();
        self.pay(&mut slot, disk)?;
        let journal = match slot.file.take() {
            Some(journal) => journal,
            None => self.make()?,
        };
        let slot = &mut *slot;
        let journal = slot.file.insert(journal);
        // What does not fit must be found out before the disk is touched.
        reserve(disk, offset, buffer.len() as u64)?;
        slot.debt = Some(Debt::Erase);
        let noted = journal.write_all_at(&record, 0).and_then(|()| journal.sync_data());
        let done = noted.and_then(|()| {
            slot.debt = Some(Debt::CarryOut);
            disk.write_all_at(&record[HEADER..], offset)?;
            self.lost.sync(disk)?;
            empty(journal)
        });
        match done {
            Ok(()) => slot.debt = None,
            Err(_) => {
                self.owes.store(true, Ordering::Release);
                // If this fails too, the next write tries again.
                let _ = self.pay(slot, disk);
            }
        }
        done
    }

    fn make(&self) -> io::Result<File> {
        let journal =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&self.path)?;
        super::sync_directory(&self.path)?;
        Ok(journal)
    }
}

/// Allocates a range of the disk, where the file system can.
fn reserve(disk: &File, offset: u64, len: u64) -> io::Result<()> {
    let keep = FallocateFlags::FALLOC_FL_KEEP_SIZE;
    match fallocate(disk, keep, offset as libc::off_t, len as libc::off_t) {
        Ok(()) | Err(Errno::EOPNOTSUPP | Errno::ENOSYS | Errno::EINVAL | Errno::EINTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

fn empty(journal: &File) -> io::Result<()> {
    journal.write_all_at(&[0; HEADER], 0)?;
    journal.sync_data()
}

/// The write that the journal holds whole.
fn held(journal: &File) -> io::Result<Option<(u64, Vec<u8>)>> {
    let mut header = [0; HEADER];
    match journal.read_exact_at(&mut header, 0) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let number =
        |at: usize| header[at..at + 8].iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    let (offset, len) = (number(8), number(16));
    if header[..8] != MAGIC || len > LONGEST {
        return Ok(None);
    }
    let mut record = header.to_vec();
    record.resize(HEADER + len as usize, 0);
    match journal.read_exact_at(&mut record[HEADER..], HEADER as u64) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let whole = record[24..28] == checksum(&record).to_be_bytes();
    Ok(whole.then(|| (offset, record.split_off(HEADER))))
}

/// Over the header up to the checksum, and the data.
fn checksum(record: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&record[..24]), &record[HEADER..])
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    struct Bench {
        folder: TempDir,
        disk: File,
    }

    impl Bench {
        fn new() -> Self {
            let folder = TempDir::new().unwrap();
            let path = folder.path().join("disk.img");
            let disk = OpenOptions::new().read(true).write(true).create_new(true).open(path).unwrap();
            disk.set_len(1 << 20).unwrap();
            Self { folder, disk }
        }

        fn journal(&self) -> Journal {
            Journal::of(&self.folder.path().join("disk.img"), Arc::default())
        }

        fn content(&self) -> Vec<u8> {
            let mut bytes = vec![0; 1 << 20];
            self.disk.read_exact_at(&mut bytes, 0).unwrap();
            bytes
        }
    }

    #[test]
    fn an_atomic_write_leaves_an_empty_journal() {
        let bench = Bench::new();
        let journal = bench.journal();
        journal.write(&bench.disk, 4096, &Buffer::Owned(vec![7; 8192])).unwrap();
        assert_eq!(bench.content()[4096..12288], [7; 8192]);
        bench.disk.write_all_at(&[8; 512], 4096).unwrap();
        bench.journal().recover(&bench.disk).unwrap();
        assert_eq!(bench.content()[4096..4608], [8; 512], "what came later stays");
    }

    #[test]
    fn a_crash_at_any_byte_of_the_journal_leaves_all_or_nothing() {
        let bench = Bench::new();
        let journal = bench.journal();
        journal.write(&bench.disk, 0, &Buffer::Owned(vec![1; 2048])).unwrap();
        // The record of a write, as it is before it is emptied.
        let mut record =
            [&MAGIC[..], &512_u64.to_be_bytes(), &2048_u64.to_be_bytes(), &[0; 8], &[9; 2048]].concat();
        let sum = checksum(&record).to_be_bytes();
        record[24..28].copy_from_slice(&sum);
        for torn in [0, 1, 8, 20, 27, 32, 33, 1000, record.len() - 1] {
            std::fs::write(&journal.path, &record[..torn]).unwrap();
            bench.journal().recover(&bench.disk).unwrap();
            assert_eq!(bench.content()[..2560], [&[1; 2048][..], &[0; 512]].concat(), "torn at {torn}");
        }
        // Torn on the disk instead: a part of it had been written.
        std::fs::write(&journal.path, &record).unwrap();
        bench.disk.write_all_at(&[9; 700], 512).unwrap();
        bench.journal().recover(&bench.disk).unwrap();
        assert_eq!(bench.content()[..2560], [&[1; 512][..], &[9; 2048]].concat());
        assert!(held(&File::open(&journal.path).unwrap()).unwrap().is_none());
    }

    /// A file that takes no writes, in the place of a store that fails.
    fn refusing(path: &Path) -> File {
        File::open(path).unwrap()
    }

    #[test]
    fn a_write_that_the_disk_refused_is_carried_out_before_anything_else_is_written() {
        let bench = Bench::new();
        let (journal, path) = (bench.journal(), bench.folder.path().join("disk.img"));
        let broken = refusing(&path);
        // The record is stable; the disk fails.
        journal.write(&bench.disk, 0, &Buffer::Owned(vec![1; 512])).unwrap();
        let mut record =
            [&MAGIC[..], &0_u64.to_be_bytes(), &1024_u64.to_be_bytes(), &[0; 8], &[9; 1024]].concat();
        let sum = checksum(&record).to_be_bytes();
        record[24..28].copy_from_slice(&sum);
        journal.lock().file.as_ref().unwrap().write_all_at(&record, 0).unwrap();
        journal.lock().debt = Some(Debt::CarryOut);
        journal.owes.store(true, Ordering::Release);
        assert!(journal.settle(&broken).is_err(), "nothing else may be written");
        assert!(journal.settle(&broken).is_err());
        assert_eq!(bench.content()[..512], [1; 512]);
        journal.settle(&bench.disk).unwrap();
        assert_eq!(bench.content()[..1024], [9; 1024]);
        // A newer write stays, whoever opens the disk next.
        bench.disk.write_all_at(&[3; 512], 0).unwrap();
        bench.journal().recover(&bench.disk).unwrap();
        assert_eq!(bench.content()[..512], [3; 512]);
    }

    #[test]
    fn a_record_that_may_not_be_stable_is_erased_before_anything_else_is_written() {
        let bench = Bench::new();
        let journal = bench.journal();
        journal.write(&bench.disk, 0, &Buffer::Owned(vec![1; 512])).unwrap();
        let mut record =
            [&MAGIC[..], &0_u64.to_be_bytes(), &512_u64.to_be_bytes(), &[0; 8], &[9; 512]].concat();
        let sum = checksum(&record).to_be_bytes();
        record[24..28].copy_from_slice(&sum);
        let whole = journal.lock().file.replace(refusing(&journal.path)).unwrap();
        whole.write_all_at(&record, 0).unwrap();
        journal.lock().debt = Some(Debt::Erase);
        journal.owes.store(true, Ordering::Release);
        assert!(journal.is_pending().unwrap());
        assert!(journal.settle(&bench.disk).is_err(), "the journal cannot be erased");
        journal.lock().file = Some(whole);
        journal.settle(&bench.disk).unwrap();
        assert!(!journal.is_pending().unwrap());
        bench.journal().recover(&bench.disk).unwrap();
        assert_eq!(bench.content()[..512], [1; 512]);
    }

    #[test]
    fn a_write_that_fails_leaves_no_record_behind() {
        let bench = Bench::new();
        let journal = bench.journal();
        journal.write(&bench.disk, 0, &Buffer::Owned(vec![1; 512])).unwrap();
        let whole = journal.lock().file.replace(refusing(&journal.path)).unwrap();
        assert!(journal.write(&bench.disk, 0, &Buffer::Owned(vec![2; 512])).is_err());
        assert!(journal.settle(&bench.disk).is_err());
        journal.lock().file = Some(whole);
        journal.write(&bench.disk, 512, &Buffer::Owned(vec![3; 512])).unwrap();
        assert_eq!(bench.content()[..1024], [[1; 512], [3; 512]].concat());
    }

    #[test]
    fn a_debt_whose_sync_fails_is_remembered_for_every_later_flush() {
        let bench = Bench::new();
        let journal = bench.journal();
        journal.write(&bench.disk, 0, &Buffer::Owned(vec![1; 512])).unwrap();
        let mut record =
            [&MAGIC[..], &0_u64.to_be_bytes(), &512_u64.to_be_bytes(), &[0; 8], &[9; 512]].concat();
        let sum = checksum(&record).to_be_bytes();
        record[24..28].copy_from_slice(&sum);
        journal.lock().file.as_ref().unwrap().write_all_at(&record, 0).unwrap();
        journal.lock().debt = Some(Debt::CarryOut);
        journal.owes.store(true, Ordering::Release);
        // It takes writes and cannot sync.
        let unsyncable = OpenOptions::new().write(true).open("/dev/null").unwrap();
        assert!(journal.settle(&unsyncable).is_err());
        journal.settle(&bench.disk).unwrap();
        let later =
            journal.lost.guard(&mut crate::disk::Request::Flush, |_| Ok(crate::disk::Outcome::default()));
        assert!(later.is_err(), "what the failed sync has dropped is not known");
    }

    #[test]
    fn a_journal_of_nonsense_is_no_write() {
        let bench = Bench::new();
        let journal = bench.journal();
        let mut record = [&MAGIC[..], &0_u64.to_be_bytes(), &u64::MAX.to_be_bytes(), &[0; 8]].concat();
        std::fs::write(&journal.path, &record).unwrap();
        journal.recover(&bench.disk).unwrap();
        record[16..24].copy_from_slice(&512_u64.to_be_bytes());
        record.extend_from_slice(&[5; 512]);
        std::fs::write(&journal.path, &record).unwrap();
        journal.recover(&bench.disk).unwrap();
        assert_eq!(bench.content(), vec![0; 1 << 20]);
    }
}
