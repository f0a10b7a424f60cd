//! The note that a file disk keeps ([`Request::Note`](crate::disk::Request::Note)): a small file beside the disk's, so that
//! it goes where the folder goes and a person sees it.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::beside;
use crate::durable;

/// More than a note ever has.
const MOST: u64 = 64 << 10;

/// Where the note of a disk is.
pub(super) fn path(disk: &Path) -> PathBuf {
    beside(disk, ".unfinished")
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
            durable::replace(path, &new, &[note])
        }
        None => match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => durable::sync_folder(path),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_what_was_noted_last_until_it_is_forgotten() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = path(&folder.path().join("disk.img"));
        assert_eq!(read(&path).unwrap(), None);
        write(&path, None).unwrap();
        for note in [&[1, 2, 3][..], &[4]] {
            write(&path, Some(note)).unwrap();
            assert_eq!(read(&path).unwrap().as_deref(), Some(note));
        }
        write(&path, None).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
