//! Sense data: what a CHECK CONDITION says, in fixed and in descriptor format (SPC-4).
//!
//! Constants bear the names SPC-4 gives the additional sense codes.

use smallvec::SmallVec;

/// Sense keys (SPC-4).
pub mod key {
    /// Nothing to report.
    pub const NO_SENSE: u8 = 0x0;
    /// The logical unit cannot be accessed now.
    pub const NOT_READY: u8 = 0x2;
    /// The medium, or what keeps it, failed.
    pub const MEDIUM_ERROR: u8 = 0x3;
    /// The device failed.
    pub const HARDWARE_ERROR: u8 = 0x4;
    /// The request was wrong.
    pub const ILLEGAL_REQUEST: u8 = 0x5;
    /// Something has changed that the initiator should know.
    pub const UNIT_ATTENTION: u8 = 0x6;
    /// The block is protected from the access.
    pub const DATA_PROTECT: u8 = 0x7;
    /// A third-party copy ended early.
    pub const COPY_ABORTED: u8 = 0xA;
    /// The data differs from the medium.
    pub const MISCOMPARE: u8 = 0xE;
}

/// One piece of sense data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sense {
    /// Sense key.
    pub key: u8,
    /// Additional sense code.
    pub asc: u8,
    /// Additional sense code qualifier.
    pub ascq: u8,
    /// The INFORMATION field; what it means depends on the command.
    pub information: Option<u64>,
    /// Which field was wrong.
    pub pointer: Option<Pointer>,
    /// How far the operation is that the unit is busy with, in 65536ths.
    pub progress: Option<u16>,
    /// With COPY ABORTED: the segment that was being processed, for the COMMAND-SPECIFIC INFORMATION field.
    pub segment: Option<u16>,
}

/// Field pointer and segment pointer sense-key specific data (SPC-4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pointer {
    /// In the CDB, else in the parameter list or a segment descriptor.
    pub in_cdb: bool,
    /// In the segment descriptor that [`Sense::segment`] names.
    pub in_segment: bool,
    /// The most significant wrong bit, where one bit can be named.
    pub bit: Option<u8>,
    /// First byte of the field.
    pub byte: u16,
}

impl Sense {
    const fn new(key: u8, asc: u8, ascq: u8) -> Self {
        Self { key, asc, ascq, information: None, pointer: None, progress: None, segment: None }
    }

    /// With the INFORMATION field.
    pub const fn with_information(self, information: u64) -> Self {
        Self { information: Some(information), ..self }
    }

    /// With progress indication sense-key specific data.
    pub const fn with_progress(self, progress: u16) -> Self {
        Self { progress: Some(progress), ..self }
    }

    /// The SENSE KEY SPECIFIC field (SPC-4): a field pointer or a progress indication, which no sense data has both of.
    fn key_specific(&self) -> Option<[u8; 3]> {
        let progress = self.progress.map(|progress| {
            let [high, low] = progress.to_be_bytes();
            [0x80, high, low]
        });
        self.pointer.map(Pointer::encode).or(progress)
    }

    /// Names the wrong byte of the CDB.
    pub const fn at_cdb_byte(self, byte: u16) -> Self {
        Self { pointer: Some(Pointer { in_cdb: true, in_segment: false, bit: None, byte }), ..self }
    }

    /// Names the wrong bit of the CDB.
    pub const fn at_cdb_bit(self, byte: u16, bit: u8) -> Self {
        Self { pointer: Some(Pointer { in_cdb: true, in_segment: false, bit: Some(bit), byte }), ..self }
    }

    /// Names the wrong byte of the parameter list.
    pub const fn at_list_byte(self, byte: u16) -> Self {
        Self { pointer: Some(Pointer { in_cdb: false, in_segment: false, bit: None, byte }), ..self }
    }

    /// Names the segment of a copy that was being processed.
    pub const fn at_segment(self, segment: u16) -> Self {
        Self { segment: Some(segment), ..self }
    }

    /// Names the wrong byte of the segment descriptor.
    pub const fn at_segment_byte(self, byte: u16) -> Self {
        Self { pointer: Some(Pointer { in_cdb: false, in_segment: true, bit: None, byte }), ..self }
    }

    /// Key, ASC and ASCQ.
    pub const fn code(&self) -> (u8, u8, u8) {
        (self.key, self.asc, self.ascq)
    }

    /// The bytes: descriptor format if asked for (D_SENSE, DESC), else fixed.
    pub fn encode(&self, descriptor: bool) -> SmallVec<[u8; 32]> {
        if descriptor { self.encode_descriptors() } else { self.encode_fixed() }
    }

    fn encode_fixed(&self) -> SmallVec<[u8; 32]> {
        let mut bytes = SmallVec::from_elem(0, 18);
        bytes[0] = 0x70;
        bytes[2] = self.key;
        // INFORMATION has four bytes here: a value that does not fit is left out, with VALID zero.
        if let Some(information) = self.information.and_then(|value| u32::try_from(value).ok()) {
            bytes[0] |= 0x80;
            bytes[3..7].copy_from_slice(&information.to_be_bytes());
        }
        bytes[7] = 10;
        if let Some(segment) = self.segment {
            // The first two bytes would point at sense data of source and destination: there is none.
            bytes[10..12].copy_from_slice(&segment.to_be_bytes());
        }
        bytes[12] = self.asc;
        bytes[13] = self.ascq;
        if let Some(specific) = self.key_specific() {
            bytes[15..18].copy_from_slice(&specific);
        }
        bytes
    }

    fn encode_descriptors(&self) -> SmallVec<[u8; 32]> {
        let mut bytes: SmallVec<[u8; 32]> =
            SmallVec::from_slice(&[0x72, self.key, self.asc, self.ascq, 0, 0, 0, 0]);
        if let Some(information) = self.information {
            bytes.extend_from_slice(&[0x00, 0x0A, 0x80, 0]);
            bytes.extend_from_slice(&information.to_be_bytes());
        }
        if let Some(segment) = self.segment {
            let [high, low] = segment.to_be_bytes();
            bytes.extend_from_slice(&[0x01, 0x0A, 0, 0, 0, 0, high, low, 0, 0, 0, 0]);
        }
        if let Some(specific) = self.key_specific() {
            bytes.extend_from_slice(&[0x02, 0x06, 0, 0]);
            bytes.extend_from_slice(&specific);
            bytes.push(0);
        }
        bytes[7] = (bytes.len() - 8) as u8;
        bytes
    }
}

impl Pointer {
    fn encode(self) -> [u8; 3] {
        let [high, low] = self.byte.to_be_bytes();
        let bit = self.bit.map_or(0, |bit| 0x08 | bit & 0x07);
        [0x80 | u8::from(self.in_cdb) << 6 | u8::from(self.in_segment) << 5 | bit, high, low]
    }
}

macro_rules! senses {
    ($($name:ident = $key:ident $asc:literal $ascq:literal, $says:literal;)*) => {
        $(#[doc = $says] pub const $name: Sense = Sense::new(key::$key, $asc, $ascq);)*
    };
}

senses! {
    NO_SENSE = NO_SENSE 0x00 0x00, "Nothing to report.";

    BECOMING_READY = NOT_READY 0x04 0x01, "The store is not open yet, or closing.";
    MANUAL_INTERVENTION_REQUIRED = NOT_READY 0x04 0x03, "The LUN has failed by a bug of the gateway.";
    ASYMMETRIC_ACCESS_STATE_TRANSITION = NOT_READY 0x04 0x0A, "The unit is moving between gateways.";
    FORMAT_IN_PROGRESS = NOT_READY 0x04 0x04, "FORMAT UNIT is at work.";
    SELF_TEST_IN_PROGRESS = NOT_READY 0x04 0x09, "A self-test is at work.";
    SANITIZE_IN_PROGRESS = NOT_READY 0x04 0x1B, "SANITIZE is at work.";
    TARGET_PORT_IN_STANDBY_STATE = NOT_READY 0x04 0x0B, "This gateway cannot serve the unit; another path may.";
    TARGET_PORT_IN_UNAVAILABLE_STATE = NOT_READY 0x04 0x0C, "This gateway cannot serve the unit at all; another path may.";
    LOGICAL_UNIT_OFFLINE = NOT_READY 0x04 0x12, "The target port has been taken offline.";
    MEDIUM_NOT_PRESENT = NOT_READY 0x3A 0x00, "Ejected.";

    WRITE_ERROR = MEDIUM_ERROR 0x0C 0x00, "The store failed a write.";
    UNRECOVERED_READ_ERROR = MEDIUM_ERROR 0x11 0x00, "The store failed a read.";
    FORMAT_COMMAND_FAILED = MEDIUM_ERROR 0x31 0x01, "FORMAT UNIT did not reach the end.";
    SANITIZE_COMMAND_FAILED = MEDIUM_ERROR 0x31 0x03, "SANITIZE did not reach the end.";
    LOGICAL_UNIT_FAILED_SELF_TEST = HARDWARE_ERROR 0x3E 0x03, "The store failed the self-test.";
    INTERNAL_TARGET_FAILURE = HARDWARE_ERROR 0x44 0x00, "The gateway broke its own rules.";
    SET_TARGET_PORT_GROUPS_COMMAND_FAILED = HARDWARE_ERROR 0x67 0x0A, "The access states could not be changed.";

    OPERATION_IN_PROGRESS = ILLEGAL_REQUEST 0x00 0x16, "A copy with this list identifier is still going on.";
    INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT = ILLEGAL_REQUEST 0x0E 0x03,
        "The transport carries another length than the CDB calls for, and the command cannot be done in part.";
    PARAMETER_LIST_LENGTH_ERROR = ILLEGAL_REQUEST 0x1A 0x00, "The parameter list ends too early.";
    INVALID_COMMAND_OPERATION_CODE = ILLEGAL_REQUEST 0x20 0x00, "No such command.";
    LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE = ILLEGAL_REQUEST 0x21 0x00, "Beyond the last block.";
    TOKEN_CAUSE_NOT_REPORTABLE = ILLEGAL_REQUEST 0x23 0x00, "Invalid token operation: the token cannot be used like this.";
    UNSUPPORTED_TOKEN_TYPE = ILLEGAL_REQUEST 0x23 0x01, "Invalid token operation: no such type of ROD here.";
    REMOTE_TOKEN_USAGE_NOT_SUPPORTED = ILLEGAL_REQUEST 0x23 0x02,
        "Invalid token operation: its data is where the initiator does not reach.";
    TOKEN_UNKNOWN = ILLEGAL_REQUEST 0x23 0x04, "Invalid token operation: never made, given up or deleted.";
    TOKEN_CORRUPT = ILLEGAL_REQUEST 0x23 0x05, "Invalid token operation: not the token that was made.";
    TOKEN_REVOKED = ILLEGAL_REQUEST 0x23 0x06, "Invalid token operation: the data has been written since.";
    TOKEN_EXPIRED = ILLEGAL_REQUEST 0x23 0x07, "Invalid token operation: not used for its inactivity timeout.";
    INVALID_TOKEN_LENGTH = ILLEGAL_REQUEST 0x23 0x0A, "Invalid token operation: tokens have 512 bytes.";
    INVALID_FIELD_IN_CDB = ILLEGAL_REQUEST 0x24 0x00, "A field of the CDB is wrong.";
    LOGICAL_UNIT_NOT_SUPPORTED = ILLEGAL_REQUEST 0x25 0x00, "No such logical unit.";
    INVALID_FIELD_IN_PARAMETER_LIST = ILLEGAL_REQUEST 0x26 0x00, "A field of the parameter list is wrong.";
    INVALID_RELEASE_OF_PERSISTENT_RESERVATION = ILLEGAL_REQUEST 0x26 0x04,
        "Scope or type is not that of the reservation.";
    TOO_MANY_TARGET_DESCRIPTORS = ILLEGAL_REQUEST 0x26 0x06, "More than the operating parameters allow.";
    UNSUPPORTED_TARGET_DESCRIPTOR_TYPE_CODE = ILLEGAL_REQUEST 0x26 0x07, "Not a kind of descriptor known here.";
    TOO_MANY_SEGMENT_DESCRIPTORS = ILLEGAL_REQUEST 0x26 0x08, "More than the operating parameters allow.";
    UNSUPPORTED_SEGMENT_DESCRIPTOR_TYPE_CODE = ILLEGAL_REQUEST 0x26 0x09, "Not a kind of descriptor known here.";
    INLINE_DATA_LENGTH_EXCEEDED = ILLEGAL_REQUEST 0x26 0x0B, "No inline data is taken.";
    COMMAND_SEQUENCE_ERROR = ILLEGAL_REQUEST 0x2C 0x00, "Something else has to come first.";
    SAVING_PARAMETERS_NOT_SUPPORTED = ILLEGAL_REQUEST 0x39 0x00, "Mode pages have no saved values.";
    MEDIUM_REMOVAL_PREVENTED = ILLEGAL_REQUEST 0x53 0x02, "An initiator holds the medium in.";
    INSUFFICIENT_REGISTRATION_RESOURCES = ILLEGAL_REQUEST 0x55 0x04, "As many nexuses are registered as may be.";

    NOT_READY_TO_READY_CHANGE = UNIT_ATTENTION 0x28 0x00, "The medium may have changed.";
    POWER_ON_OCCURRED = UNIT_ATTENTION 0x29 0x00, "Power on, reset or bus device reset: new to this nexus.";
    SCSI_BUS_RESET_OCCURRED = UNIT_ATTENTION 0x29 0x02, "The target was reset.";
    BUS_DEVICE_RESET_FUNCTION_OCCURRED = UNIT_ATTENTION 0x29 0x03, "The logical unit was reset.";
    I_T_NEXUS_LOSS_OCCURRED = UNIT_ATTENTION 0x29 0x07, "The initiator port has logged in again.";
    MODE_PARAMETERS_CHANGED = UNIT_ATTENTION 0x2A 0x01, "Another nexus has changed mode parameters.";
    RESERVATIONS_PREEMPTED = UNIT_ATTENTION 0x2A 0x03, "Another nexus has cleared reservation and registrations.";
    RESERVATIONS_RELEASED = UNIT_ATTENTION 0x2A 0x04, "The reservation has ended or changed.";
    REGISTRATIONS_PREEMPTED = UNIT_ATTENTION 0x2A 0x05, "Another nexus has taken the registration away.";
    ASYMMETRIC_ACCESS_STATE_CHANGED = UNIT_ATTENTION 0x2A 0x06, "A path has become better or worse.";
    CAPACITY_DATA_HAS_CHANGED = UNIT_ATTENTION 0x2A 0x09, "The disk was resized.";
    COMMANDS_CLEARED_BY_ANOTHER_INITIATOR = UNIT_ATTENTION 0x2F 0x00, "Commands were ended, and not answered (TAS is zero).";
    INQUIRY_DATA_HAS_CHANGED = UNIT_ATTENTION 0x3F 0x03, "What INQUIRY says is no longer so.";
    REPORTED_LUNS_DATA_HAS_CHANGED = UNIT_ATTENTION 0x3F 0x0E, "The initiator has more, fewer or other LUNs.";

    THIN_PROVISIONING_SOFT_THRESHOLD_REACHED = UNIT_ATTENTION 0x38 0x07, "The pool is fuller than its operator wants.";

    WRITE_PROTECTED = DATA_PROTECT 0x27 0x00, "The unit may not be written.";
    SPACE_ALLOCATION_FAILED_WRITE_PROTECT = DATA_PROTECT 0x27 0x07, "The pool is full, or a quota is used up.";

    COPY_ABORTED = COPY_ABORTED 0x00 0x00, "The initiator has ended the copy.";
    THIRD_PARTY_DEVICE_FAILURE = COPY_ABORTED 0x0D 0x01, "The source or the destination failed or refused.";
    COPY_TARGET_DEVICE_NOT_REACHABLE = COPY_ABORTED 0x0D 0x02, "No unit of this name for this initiator.";
    INCORRECT_COPY_TARGET_DEVICE_TYPE = COPY_ABORTED 0x0D 0x03, "Source and destination are block devices.";
    UNEXPECTED_INEXACT_SEGMENT = COPY_ABORTED 0x26 0x0A, "The segment does not fill whole blocks of the destination.";

    MISCOMPARE_DURING_VERIFY_OPERATION = MISCOMPARE 0x1D 0x00, "The first different byte is in INFORMATION.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixed_format_puts_every_field_where_spc_4_4_5_3_has_it() {
        let sense = MISCOMPARE_DURING_VERIFY_OPERATION.with_information(300).at_cdb_bit(1, 5);
        let expected = [0xF0, 0, 0x0E, 0, 0, 1, 44, 10, 0, 0, 0, 0, 0x1D, 0, 0, 0x80 | 0x40 | 0x08 | 5, 0, 1];
        assert_eq!(sense.encode(false).as_slice(), expected);
    }

    #[test]
    fn progress_stands_where_a_field_pointer_would_in_both_formats() {
        // SPC-4, progress indication sense-key specific data: SKSV, then the two bytes.
        let sense = SANITIZE_IN_PROGRESS.with_progress(0x1234);
        assert_eq!(sense.encode(false)[15..18], [0x80, 0x12, 0x34]);
        assert_eq!(sense.encode(true)[8..16], [0x02, 0x06, 0, 0, 0x80, 0x12, 0x34, 0]);
    }

    #[test]
    fn information_that_does_not_fit_four_bytes_is_not_valid_in_fixed_format() {
        let sense = UNRECOVERED_READ_ERROR.with_information(1 << 32);
        let bytes = sense.encode(false);
        assert_eq!(bytes[0], 0x70);
        assert_eq!(bytes[3..7], [0; 4]);
    }

    #[test]
    fn descriptor_format_carries_eight_bytes_of_information_and_the_field_pointer() {
        let sense = INVALID_FIELD_IN_PARAMETER_LIST.with_information(1 << 32).at_list_byte(0x0102);
        let expected = [
            0x72, 5, 0x26, 0, 0, 0, 0, 20, // header
            0, 0x0A, 0x80, 0, 0, 0, 0, 1, 0, 0, 0, 0, // information descriptor
            2, 6, 0, 0, 0x80, 1, 2, 0, // sense key specific descriptor
        ];
        assert_eq!(sense.encode(true).as_slice(), expected);
    }
}
