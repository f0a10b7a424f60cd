//! Opening, locking and creating files; what every store does is in `tests/disk_contract.rs`.

use std::fs;
use std::sync::mpsc::{Sender, channel};

use tempfile::TempDir;

use super::*;
use crate::disk::{Buffer, Completion, CompletionQueue, Request};

struct Told(Sender<Completion>);

impl CompletionQueue for Told {
    fn push(&self, completion: Completion) {
        self.0.send(completion).unwrap();
    }
}

fn options(folder: &TempDir, create: Option<u64>) -> Options {
    Options { path: folder.path().join("disk.img"), block_size: 512, create, read_only: false }
}

fn open(options: &Options) -> Result<FileDisk, OpenError> {
    FileDisk::open(options, &Workers::start(1).unwrap())
}

#[test]
fn a_new_file_is_sparse_and_an_old_one_keeps_its_size() {
    use std::os::unix::fs::MetadataExt;

    let folder = TempDir::new().unwrap();
    let disk = open(&options(&folder, Some(1 << 30))).unwrap();
    assert_eq!(disk.size(), 1 << 30);
    assert_eq!(fs::metadata(folder.path().join("disk.img")).unwrap().blocks(), 0);
    drop(disk);
    assert_eq!(open(&options(&folder, Some(1 << 20))).unwrap().size(), 1 << 30);
}

#[test]
fn one_file_is_served_once_until_it_is_closed() {
    let folder = TempDir::new().unwrap();
    let first = open(&options(&folder, Some(1 << 20))).unwrap();
    assert!(matches!(open(&options(&folder, None)), Err(OpenError::Locked { .. })));
    let reader = Options { read_only: true, ..options(&folder, None) };
    assert!(matches!(open(&reader), Err(OpenError::Locked { .. })));
    first.close();
    let readers = [open(&reader).unwrap(), open(&reader).unwrap()];
    assert!(readers[0].geometry().read_only);
}

#[test]
fn refusals_say_in_one_sentence_what_to_do() {
    let folder = TempDir::new().unwrap();
    let message = |options: &Options| open(options).unwrap_err().to_string();
    assert!(message(&options(&folder, None)).ends_with("does not exist (give a size to have it created)"));
    assert!(message(&options(&folder, Some(1000))).contains("not a multiple of the block size"));
    let directory = Options { path: folder.path().to_owned(), read_only: true, ..options(&folder, None) };
    assert!(message(&directory).ends_with("this is a folder; a disk needs a file"));
    let odd = Options { block_size: 520, ..options(&folder, Some(1 << 20)) };
    assert!(message(&odd).contains("520 is not possible; 512 and 4096 are"));
    fs::write(folder.path().join("disk.img"), [0; 100]).unwrap();
    assert!(message(&options(&folder, None)).contains("no whole block"));
}

#[test]
fn a_file_that_is_no_multiple_of_the_block_size_loses_its_last_piece() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("disk.img"), [0; 1500]).unwrap();
    assert_eq!(open(&options(&folder, None)).unwrap().size(), 1024);
}

#[test]
fn a_new_size_reaches_the_listener() {
    let folder = TempDir::new().unwrap();
    let disk = open(&options(&folder, Some(1 << 20))).unwrap();
    let (tell, told) = channel();
    disk.on_resize(Box::new(move |size| tell.send(size).unwrap()));
    OpenOptions::new().write(true).open(folder.path().join("disk.img")).unwrap().set_len(2 << 20).unwrap();
    assert_eq!(disk.size(), 1 << 20);
    disk.refresh().unwrap();
    assert_eq!((disk.size(), told.recv().unwrap()), (2 << 20, 2 << 20));
    disk.resize(1 << 20).unwrap();
    assert_eq!((disk.size(), told.recv().unwrap()), (1 << 20, 1 << 20));
    disk.refresh().unwrap();
    assert!(told.try_recv().is_err());
}

#[test]
fn a_discard_shrinks_the_file_and_never_zeroes_a_neighbour() {
    let folder = TempDir::new().unwrap();
    let disk = open(&options(&folder, Some(64 << 20))).unwrap();
    let (tell, told) = channel();
    let queue: Arc<dyn CompletionQueue> = Arc::new(Told(tell));
    let run = |request: Request| {
        disk.submit(Operation { request, completer: Completer::new(Arc::clone(&queue), 0) });
        told.recv().unwrap()
    };
    let used = || run(Request::Usage).result.unwrap().usage.unwrap().used.unwrap();
    for at in 0..4_u64 {
        let buffer = Buffer::Owned(vec![7; 1 << 20]);
        run(Request::Write { offset: at << 20, buffer, fua: false }).result.unwrap();
    }
    let full = used();
    assert!(full >= 4 << 20);
    // SBC-3, UNMAP: a whole MiB goes back; an unaligned range gives back what lies whole within it.
    run(Request::Discard { offset: 1 << 20, len: 1 << 20 }).result.unwrap();
    assert!(used() <= full - (1 << 20));
    run(Request::Discard { offset: (2 << 20) + 512, len: 1 << 19 }).result.unwrap();
    assert!(used() <= full - (1 << 20) - (1 << 19) + 8192);
    let read = |offset| run(Request::Read { offset, buffer: Buffer::Owned(vec![0; 512]) }).buffer.unwrap();
    for neighbour in [(1 << 20) - 512, 2 << 20, (2 << 20) + 512 + (1 << 19)] {
        assert_eq!(read(neighbour), [7; 512], "{neighbour}");
    }
    for gone in [1 << 20, (2 << 20) - 512, (2 << 20) + 512, (2 << 20) + (1 << 19)] {
        assert_eq!(read(gone), [0; 512], "{gone}");
    }
    assert_eq!(disk.geometry().provisioning.as_ref().map(|thin| thin.granularity <= 1 << 20), Some(true));
}

#[test]
fn a_write_that_was_admitted_before_a_cut_does_not_make_the_file_longer_again() {
    let folder = TempDir::new().unwrap();
    let workers = Workers::start(1).unwrap();
    let disk = FileDisk::open(&options(&folder, Some(1 << 20)), &workers).unwrap();
    // The only worker is busy, so that the write waits in line while the file is cut.
    let (release, held) = channel::<()>();
    let busy = Job::new(move || assert!(held.recv().is_err()), disk.gate.enter().unwrap());
    workers.put(&workers.line(), busy);
    let (tell, told) = channel();
    let request = Request::Write { offset: (1 << 20) - 512, buffer: Buffer::Owned(vec![7; 512]), fua: false };
    disk.submit(Operation { request, completer: Completer::new(Arc::new(Told(tell)), 0) });
    assert_eq!(disk.resize(1 << 19).unwrap(), 1 << 19);
    drop(release);
    let completion = told.recv().unwrap();
    assert_eq!(completion.result.unwrap_err(), Error::OutOfRange);
    assert_eq!(completion.buffer.map(|buffer| buffer.len()), Some(512));
    assert_eq!(disk.refresh().unwrap(), 1 << 19);
}
