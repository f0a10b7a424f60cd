//! The few answers that the portal makes without asking the SCSI engine: what the transport itself must report
//! (RFC 7143 section 11.4.7.2), a command that no data area can hold, and a LUN whose ring has failed.

/// Sense key, additional sense code and its qualifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sense(u8, u8, u8);

impl Sense {
    /// Data came that was not allowed to come unasked.
    pub(crate) const UNEXPECTED_DATA: Self = Self(0x0b, 0x0c, 0x0c);
    /// More or less data came than was announced or asked for.
    pub(crate) const WRONG_AMOUNT: Self = Self(0x0b, 0x0c, 0x0d);
    /// A data digest did not match.
    pub(crate) const DATA_DIGEST: Self = Self(0x0b, 0x47, 0x05);
    /// INVALID FIELD IN CDB: longer than the whole data area, or bidirectional.
    pub(crate) const INVALID_FIELD: Self = Self(0x05, 0x24, 0x00);
    /// INVALID MESSAGE: a task attribute that is not supported (SAM-5 8.6).
    pub(crate) const INVALID_MESSAGE: Self = Self(0x05, 0x49, 0x00);
    /// LOGICAL UNIT NOT READY, MANUAL INTERVENTION REQUIRED.
    pub(crate) const FAILED: Self = Self(0x02, 0x04, 0x03);
    /// LOGICAL UNIT IS IN PROCESS OF BECOMING READY.
    pub(crate) const BECOMING_READY: Self = Self(0x02, 0x04, 0x01);
    /// INVALID COMMAND OPERATION CODE: the ring's owner does not know the entry.
    pub(crate) const UNKNOWN: Self = Self(0x05, 0x20, 0x00);

    /// Current, fixed format, 18 bytes.
    pub(crate) fn fixed(self) -> [u8; 18] {
        let mut bytes = [0; 18];
        (bytes[0], bytes[2], bytes[7], bytes[12], bytes[13]) = (0x70, self.0, 10, self.1, self.2);
        bytes
    }
}

/// How much of a completion's sense buffer is sense data: the additional length says so in both formats.
pub(crate) fn len(sense: &[u8; 96]) -> usize {
    (8 + usize::from(sense[7])).min(sense.len())
}
