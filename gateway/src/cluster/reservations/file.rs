//! A store in a local file: one file per unit in one folder, replaced as a whole.
//!
//! The file's first line says what it is, its number, and a checksum of the rest. A new state is written to a file beside
//! it, made stable, renamed over the old one, and the folder made stable: a crash leaves one or the other, whole. A file
//! that is not whole is reported and never taken for an empty one: that would hand a reserved unit to everybody.

use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use super::{Done, Listener, Outcome, Snapshot, Store, Unreadable};
use crate::durable;

const MAGIC: &str = "rbdgate-reservations";
const VERSION: u32 = 1;

/// A folder of reservation files, and the thread that writes them: a file system may take its time.
#[derive(Clone)]
pub struct Directory {
    folder: PathBuf,
    jobs: Sender<Job>,
}

struct Job {
    path: PathBuf,
    expected: u64,
    state: Vec<u8>,
    done: Done,
}

/// The file of one unit.
#[derive(Clone, Debug)]
pub struct File {
    path: PathBuf,
    directory: Directory,
}

impl Directory {
    /// Uses `folder`, which is made by [`Directory::probe`], or when something is first saved. Its thread ends with the last file.
    pub fn start(folder: impl Into<PathBuf>) -> io::Result<Self> {
        let (jobs, inbox) = channel();
        std::thread::Builder::new().name("reservations".into()).spawn(move || work(&inbox))?;
        Ok(Self { folder: folder.into(), jobs })
    }

    /// Makes the folder, and a file in it that does not stay: whether a save can succeed is known before one is asked for.
    pub fn probe(&self) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        // No unit's file begins with a dot.
        let path = self.folder.join(format!(".probe-{}", std::process::id()));
        let written = fs::File::create(&path).and_then(|mut file| file.write_all(b"\n"));
        let removed = fs::remove_file(&path);
        written.and(removed)
    }

    /// The store of the unit with this name (its serial number, or whatever else stays with it for ever).
    pub fn unit(&self, name: &str) -> Arc<File> {
        let path = self.folder.join(format!("{}.reservations", safe(name)));
        Arc::new(File { path, directory: self.clone() })
    }
}

/// A name as a file's: letters, digits, `-`, `_` and inner dots stay, every other byte is spelt out. Different names stay
/// different.
fn safe(name: &str) -> String {
    let mut safe = String::new();
    for (index, byte) in name.bytes().enumerate() {
        let plain = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') || byte == b'.' && index > 0;
        if plain { safe.push(char::from(byte)) } else { safe.push_str(&format!("%{byte:02X}")) }
    }
    safe
}

impl Store for File {
    fn load(&self) -> Result<Snapshot, Unreadable> {
        read(&self.path)
    }

    fn save(&self, expected: u64, state: Vec<u8>, done: Done) {
        let job = Job { path: self.path.clone(), expected, state, done };
        if let Err(lost) = self.directory.jobs.send(job) {
            (lost.0.done)(Outcome::Failed("the thread that writes reservations has ended".into()));
        }
    }

    /// One process has the folder to itself: there are no others.
    fn on_change(&self, _: Listener) {}
}

fn work(jobs: &Receiver<Job>) {
    while let Ok(Job { path, expected, state, done }) = jobs.recv() {
        done(replace(&path, expected, state));
    }
}

fn replace(path: &Path, expected: u64, state: Vec<u8>) -> Outcome {
    let there = match read(path) {
        Ok(there) => there,
        Err(error) => return Outcome::Failed(error.to_string()),
    };
    if there.number != expected {
        return Outcome::Changed(there);
    }
    match write(path, expected + 1, &state) {
        Ok(()) => Outcome::Saved(expected + 1),
        Err(error) => Outcome::Failed(format!("cannot write {}: {error}", path.display())),
    }
}

fn write(path: &Path, number: u64, state: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or_else(|| Path::new("."));
    fs::create_dir_all(folder)?;
    let head = format!("{MAGIC} {VERSION} {number} {:08x}\n", crc32c::crc32c(state));
    durable::replace(path, &path.with_extension("new"), &[head.as_bytes(), state])
}

fn read(path: &Path) -> Result<Snapshot, Unreadable> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Snapshot::default()),
        Err(error) => {
            return Err(Unreadable(format!("cannot read the reservations in {}: {error}", path.display())));
        }
    };
    parse(&bytes).map_err(|what| {
        Unreadable(format!(
            "the reservations in {} {what}; restore the file, or remove it to begin without reservations",
            path.display()
        ))
    })
}

fn parse(bytes: &[u8]) -> Result<Snapshot, String> {
    let damaged = || "are damaged".to_owned();
    let end = bytes.iter().position(|byte| *byte == b'\n').ok_or_else(damaged)?;
    let (head, state) = (bytes.get(..end).ok_or_else(damaged)?, bytes.get(end + 1..).ok_or_else(damaged)?);
    let head = std::str::from_utf8(head).ok().ok_or_else(damaged)?;
    let mut words = head.split(' ');
    let magic = words.next();
    let version: Option<u32> = words.next().and_then(|word| word.parse().ok());
    match (magic, version) {
        (Some(MAGIC), Some(VERSION)) => {}
        (Some(MAGIC), Some(later)) => {
            return Err(format!("have version {later}; this release reads version {VERSION}"));
        }
        _ => return Err(damaged()),
    }
    let number = words.next().and_then(|word| word.parse().ok()).filter(|number| *number > 0);
    let sum = words.next().and_then(|word| u32::from_str_radix(word, 16).ok());
    match (number, sum, words.next()) {
        (Some(number), Some(sum), None) if sum == crc32c::crc32c(state) => {
            Ok(Snapshot { number, state: state.to_vec() })
        }
        _ => Err(damaged()),
    }
}

impl fmt::Debug for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Directory").field("folder", &self.folder).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    fn save(store: &dyn Store, expected: u64, state: &[u8]) -> Outcome {
        let (sender, receiver) = channel();
        store.save(expected, state.to_vec(), Box::new(move |outcome| sender.send(outcome).unwrap()));
        receiver.recv().unwrap()
    }

    #[test]
    fn a_state_survives_the_store_and_a_late_save_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let unit = Directory::start(folder.path().join("state")).unwrap().unit("disk 1");
        assert_eq!(unit.load().unwrap(), Snapshot::default());
        assert!(matches!(save(&*unit, 0, b"one\n"), Outcome::Saved(1)));
        assert!(matches!(save(&*unit, 1, b"two"), Outcome::Saved(2)));
        let again = Directory::start(folder.path().join("state")).unwrap().unit("disk 1");
        let there = Snapshot { number: 2, state: b"two".to_vec() };
        assert_eq!(again.load().unwrap(), there);
        assert!(matches!(save(&*again, 1, b"late"), Outcome::Changed(now) if now == there));
        assert_eq!(again.load().unwrap(), there);
    }

    #[test]
    fn a_damaged_file_is_an_error_that_names_it_and_is_never_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let unit = Directory::start(folder.path()).unwrap().unit("d");
        assert!(matches!(save(&*unit, 0, b"state"), Outcome::Saved(1)));
        let path = folder.path().join("d.reservations");
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut broken = whole.clone();
            broken[at] ^= 0x04;
            fs::write(&path, &broken).unwrap();
            if let Ok(there) = unit.load() {
                // The number is not under the checksum; a state that is not what was saved never passes.
                assert_eq!(there.state, b"state");
                continue;
            }
            let error = unit.load().unwrap_err().to_string();
            assert!(error.contains("d.reservations"), "{error}");
            assert!(matches!(save(&*unit, 1, b"other"), Outcome::Failed(_)));
            assert_eq!(fs::read(&path).unwrap(), broken);
            fs::write(&path, &broken[..at]).unwrap();
            assert!(unit.load().is_err(), "cut at {at}");
        }
        fs::write(&path, "rbdgate-reservations 2 1 00000000\n").unwrap();
        assert!(unit.load().unwrap_err().to_string().contains("version 2"));
    }

    #[test]
    fn a_folder_that_cannot_be_written_fails_the_save() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let directory = Directory::start(&file).unwrap();
        assert!(directory.probe().is_err(), "known before anything is saved");
        assert!(matches!(save(&*directory.unit("d"), 0, b"state"), Outcome::Failed(_)));
    }

    #[test]
    fn a_folder_that_has_been_probed_is_there_and_empty() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("a/state");
        Directory::start(&state).unwrap().probe().unwrap();
        assert_eq!(fs::read_dir(&state).unwrap().count(), 0);
    }

    #[test]
    fn names_of_files_are_safe_and_distinct() {
        assert_eq!(safe("8e9a1d6c-12f3_x.y"), "8e9a1d6c-12f3_x.y");
        assert_eq!(safe("../a/b c%"), "%2E.%2Fa%2Fb%20c%25");
        assert_ne!(safe("a/b"), safe("a%2Fb"));
    }
}
