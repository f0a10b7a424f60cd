//! Opening, locking and creating files; what every store does is in `tests/disk_contract.rs`.

use std::fs;

use tempfile::TempDir;

use super::*;

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
    let (tell, told) = std::sync::mpsc::channel();
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
