//! The note that a file disk keeps ([`Request::Note`](crate::disk::Request::Note)): a small file beside the disk's, so that
//! it goes where the folder goes and a person sees it.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use super::sync_directory;

/// More than a note ever has.
const MOST: u64 = 64 << 10;

/// Where the note of a disk is.
pub(super) fn path(disk: &Path) -> PathBuf {
    let mut name = disk.file_name().map_or_else(OsString::new, OsString::from);
    name.push(".unfinished");
    disk.with_file_name(name)
}

/// What is noted; `None` when there is no note. One that cannot be read must not look like none.
pub(super) fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut note = Vec::new();
    file.take(MOST).read_to_end(&mut note)?;
    Ok(Some(note))
}

/// Replaces the note, or removes it; on stable storage when it returns.
pub(super) fn write(path: &Path, note: Option<&[u8]>) -> io::Result<()> {
    match note {
        Some(note) => {
            let mut name = path.as_os_str().to_owned();
            name.push(".new");
            let new = PathBuf::from(name);
            let mut file = File::create(&new)?;
            file.write_all(note)?;
            file.sync_all()?;
            fs::rename(&new, path)?;
        }
        None => match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        },
    }
    // The folder exists when the file does not.
    path.parent().map_or(Ok(()), |folder| sync_directory(&folder.join(".")))
}
