//! What the kernel does for a backstore beside its ring: the files in its configfs folder `action/`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ring::uio::Identity;

/// What becomes of the commands that are outstanding when a ring is reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outstanding {
    /// BUSY: the initiator sends them again.
    Retried = 1,
    /// CHECK CONDITION: the initiator takes another path, or gives up.
    Failed = 2,
}

/// The two files of a backstore, or what stands in for them.
pub trait Actions: Send + Sync {
    /// `block_dev`. Blocked: what is answered in the ring is taken up, new commands are answered BUSY, and so are those
    /// that wait for room. Not an error when it is so already.
    fn set_blocked(&self, blocked: bool) -> io::Result<()>;

    /// `reset_ring`: ends every outstanding command and empties the ring, whose cursors then are 0. Only for whoever has the
    /// device open, and takes nothing from the ring.
    fn reset_ring(&self, outstanding: Outstanding) -> io::Result<()>;
}

/// The kernel's own.
#[derive(Clone, Debug)]
pub struct Configfs {
    folder: PathBuf,
}

impl Configfs {
    /// Those of one backstore; `target` is `/sys/kernel/config/target`.
    pub fn new(target: &Path, backstore: &Identity) -> Self {
        let folder = target.join(format!("core/user_{}/{}/action", backstore.hba, backstore.name));
        Self { folder }
    }

    fn write(&self, file: &str, value: u8) -> io::Result<()> {
        let path = self.folder.join(file);
        // One write of the whole value, as configfs wants it, into a file that is there.
        let outcome = fs::OpenOptions::new()
            .write(true)
            .open(&path)
            .and_then(|mut file| io::Write::write_all(&mut file, value.to_string().as_bytes()));
        outcome.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
    }
}

impl Actions for Configfs {
    fn set_blocked(&self, blocked: bool) -> io::Result<()> {
        self.write("block_dev", blocked.into())
    }

    fn reset_ring(&self, outstanding: Outstanding) -> io::Result<()> {
        self.write("reset_ring", outstanding as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_the_backstore_are_written_and_never_made() {
        let root = tempfile::tempdir().unwrap();
        let identity = Identity::parse("tcm-user/3/disk/rbdgate/x").unwrap();
        let actions = Configfs::new(root.path(), &identity);
        let missing = actions.set_blocked(true).unwrap_err();
        assert!(missing.to_string().contains("core/user_3/disk/action/block_dev"), "{missing}");
        let folder = root.path().join("core/user_3/disk/action");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("block_dev"), "").unwrap();
        fs::write(folder.join("reset_ring"), "").unwrap();
        actions.set_blocked(true).unwrap();
        actions.reset_ring(Outstanding::Failed).unwrap();
        let read = |file| fs::read_to_string(folder.join(file)).unwrap();
        assert_eq!((read("block_dev"), read("reset_ring")), ("1".into(), "2".into()));
    }
}
