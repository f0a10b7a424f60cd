//! Store errors as sense data: one function, one place.

use crate::disk::Error;

use super::sense::{self, Sense};

/// What the store was doing when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Reading, or asking about the medium.
    Read,
    /// Changing the medium, or making changes stable.
    Write,
    /// A self-test.
    Test,
}

/// The sense data for an error of the store.
pub(super) fn sense(error: &Error, access: Access) -> Sense {
    match error {
        Error::OutOfRange => sense::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE,
        // SBC-3, thin provisioning: what VMware pauses a virtual machine on, where a medium error would fail it.
        Error::NoSpace => sense::SPACE_ALLOCATION_FAILED_WRITE_PROTECT,
        Error::ReadOnly => sense::WRITE_PROTECTED,
        // NOT READY fails the path, not the disk: path checkers move on to another gateway.
        Error::Fenced => sense::TARGET_PORT_IN_STANDBY_STATE,
        Error::NotReady => sense::BECOMING_READY,
        Error::Miscompare(at) => sense::MISCOMPARE_DURING_VERIFY_OPERATION.with_information(*at as u64),
        Error::Unsupported => sense::INVALID_FIELD_IN_CDB,
        Error::Io(_) => match access {
            Access::Read => sense::UNRECOVERED_READ_ERROR,
            Access::Write => sense::WRITE_ERROR,
            Access::Test => sense::LOGICAL_UNIT_FAILED_SELF_TEST,
        },
    }
}
