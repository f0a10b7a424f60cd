//! The unsafe room of this crate: memory that another party may change at any time, and the one case where it may not.
//!
//! Three rules, which the other modules rely on and cannot break (the constructors are here):
//!
//! 1. **Words.** Header and entry words are reached only as atomics ([`Mapping`]); bulk bytes are copied word by word
//!    with relaxed atomics, or handed to the operating system or to librbd as iovecs ([`Scatter`]). There is no `&[u8]`.
//! 2. **Except own blocks.** A [`Run`] is a set of blocks that the in-process producer owns alone: allocated and not
//!    published, or completed and not freed. The [`Ledger`] hands each block to at most one `Run`, so a `Run` may be
//!    sliced. (A hostile process that has the fd can still write there; it makes the *bytes* unpredictable, and every
//!    reader of them treats them as unpredictable.)
//! 3. **Alive.** Whatever points into a mapping holds an `Arc` of it. A memfd is mapped only when it is sealed against
//!    shrinking, so no access faults.

mod ledger;
mod mapping;
mod memfd;
mod scatter;
mod vectored;

pub(crate) use ledger::{Ledger, Run, spans};
pub(crate) use mapping::{Mapping, Words};
pub(crate) use memfd::{allocated_bytes, back, create_sealed, duplicate_sealed, punch};
pub(crate) use scatter::{Lease, Scatter};

/// Size of a page of this machine.
pub(crate) fn page_size() -> usize {
    // The call cannot fail for this name; 4 KiB is the smallest page of every supported machine.
    nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE)
        .ok()
        .flatten()
        .and_then(|size| usize::try_from(size).ok())
        .unwrap_or(4096)
}
