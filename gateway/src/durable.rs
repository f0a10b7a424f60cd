//! Small files that a crash leaves whole: as they were before a change, or as they are after it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Makes `parts`, one behind the other, the contents of the file at `path`; on stable storage when it returns. `beside` is
/// where the new file is written before it takes the old one's place, in the same folder.
pub(crate) fn replace(path: &Path, beside: &Path, parts: &[&[u8]]) -> io::Result<()> {
    let mut file = File::create(beside)?;
    for part in parts {
        file.write_all(part)?;
    }
    file.sync_all()?;
    drop(file);
    fs::rename(beside, path)?;
    sync_folder(path)
}

/// Makes the names in a file's folder durable: that the file is there, or is gone.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}
