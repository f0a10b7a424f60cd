//! Changing a disk's size while it is served.

use super::Geometry;

/// Why a disk keeps its size. Every message is one sentence for the person who asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResizeError {
    /// Its store cannot be resized, or not from here.
    #[error("this store cannot be resized from here")]
    Unsupported,
    /// It would be cut, which nobody has allowed.
    #[error(
        "it has {now} bytes and would be cut to {wanted}: what lies behind that would be lost; shrink it explicitly"
    )]
    Shrinks {
        /// Its size, bytes.
        now: u64,
        /// What was asked for.
        wanted: u64,
    },
    /// Not whole blocks, or none.
    #[error("{wanted} bytes are not a multiple of its block size of {block} bytes")]
    Blocks {
        /// What was asked for.
        wanted: u64,
        /// The logical block.
        block: u32,
    },
    /// It is served read-only.
    #[error("it is served read-only")]
    ReadOnly,
    /// The store refused; in its words.
    #[error("the store refuses: {0}")]
    Store(String),
}

/// What can be said against a size before the store is asked.
pub(super) fn check(geometry: &Geometry, now: u64, wanted: u64, shrink: bool) -> Result<(), ResizeError> {
    let block = geometry.block_size;
    if geometry.read_only {
        return Err(ResizeError::ReadOnly);
    }
    if wanted == 0 || !wanted.is_multiple_of(block.into()) {
        return Err(ResizeError::Blocks { wanted, block });
    }
    if wanted < now && !shrink {
        return Err(ResizeError::Shrinks { now, wanted });
    }
    Ok(())
}
