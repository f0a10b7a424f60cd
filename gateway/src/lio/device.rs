//! Actions on one TCMU device.

use std::io;

use super::kernel::Kernel;
use super::names;

/// What becomes of commands that the kernel has queued when a ring is reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outstanding {
    /// BUSY: initiators send them again.
    Retried,
    /// CHECK CONDITION: they have failed.
    Failed,
}

/// Holds commands back, or lets them through again. While blocked the kernel answers new commands BUSY and still takes answers
/// to those that are on the ring.
pub fn block(kernel: &dyn Kernel, backstore: &str, blocked: bool) -> io::Result<()> {
    let path = format!("{}/action/block_dev", names::backstore(backstore));
    kernel.write(&path, if blocked { "1" } else { "0" })
}

/// Whether commands are held back.
pub fn is_blocked(kernel: &dyn Kernel, backstore: &str) -> io::Result<bool> {
    let path = format!("{}/action/block_dev", names::backstore(backstore));
    Ok(kernel.read(&path)?.trim() != "0")
}

/// Ends every command that the kernel has queued and empties the ring.
///
/// The data area's blocks are given out anew at once: no operation of a store may still read or write them. That holds when
/// the process that had the ring is gone, or has drained.
pub fn reset_ring(kernel: &dyn Kernel, backstore: &str, outstanding: Outstanding) -> io::Result<()> {
    let path = format!("{}/action/reset_ring", names::backstore(backstore));
    kernel.write(
        &path,
        match outstanding {
            Outstanding::Retried => "1",
            Outstanding::Failed => "2",
        },
    )
}

/// Tells the kernel a new size, bytes. Somebody has to listen to its events, or it refuses.
pub fn set_size(kernel: &dyn Kernel, backstore: &str, size: u64) -> io::Result<()> {
    kernel.write(&format!("{}/attrib/dev_size", names::backstore(backstore)), &size.to_string())
}
