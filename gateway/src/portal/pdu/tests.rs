//! Layouts checked against the figures of RFC 7143 section 11, and that nothing is lost on the way.

use proptest::prelude::*;

use super::*;

fn random_header() -> impl Strategy<Value = Header> {
    proptest::collection::vec(any::<u8>(), HEADER).prop_map(|bytes| Header(std::array::from_fn(|i| bytes[i])))
}

/// Decoding what was encoded gives the same fields, for any header whatsoever.
macro_rules! round_trips {
    ($($name:ident),*) => {
        proptest! {
            #[test]
            fn every_pdu_survives_encoding_with_unknown_values(header in random_header()) {
                $({
                    let pdu = $name::decode(&header);
                    prop_assert_eq!($name::decode(&pdu.encode()), pdu);
                    prop_assert_eq!(pdu.encode().opcode(), $name::OPCODE);
                })*
            }
        }
    };
}
round_trips!(
    NopOut,
    ScsiCommand,
    TaskManagementRequest,
    LoginRequest,
    TextRequest,
    DataOut,
    LogoutRequest,
    Snack,
    NopIn,
    ScsiResponse,
    TaskManagementResponse,
    LoginResponse,
    TextResponse,
    DataIn,
    LogoutResponse,
    R2t,
    AsyncMessage,
    Reject
);

#[test]
fn a_scsi_command_lies_as_in_figure_11_3() {
    let command = ScsiCommand {
        immediate: false,
        last: true,
        read: true,
        write: false,
        attribute: 1,
        lun: 0x0005_0000_0000_0000,
        task_tag: 0x0102_0304,
        expected_len: 0x1000,
        cmd_sn: 7,
        exp_stat_sn: 9,
        cdb: [0x28, 0, 0, 0, 0, 1, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0],
    };
    let Header(bytes) = command.encode();
    assert_eq!(bytes[..4], [0x01, 0xc1, 0, 0]);
    assert_eq!(bytes[8..12], [0, 5, 0, 0]);
    assert_eq!(bytes[16..24], [1, 2, 3, 4, 0, 0, 0x10, 0]);
    assert_eq!(bytes[24..33], [0, 0, 0, 7, 0, 0, 0, 9, 0x28]);
}

#[test]
fn a_login_request_is_always_immediate() {
    let bytes = LoginRequest { transit: true, stage: 1, next_stage: 3, ..Default::default() }.encode().0;
    assert_eq!(bytes[..2], [0x43, 0x87]);
}

#[test]
fn lengths_are_24_bit_and_padding_reaches_the_next_word() {
    let mut header = Header::new(0x05);
    header.set_data_len(0x0001_0203);
    header.set_ahs_len(1020);
    assert_eq!((header.data_len(), header.ahs_len()), (0x0001_0203, 1020));
    assert_eq!([0, 1, 2, 3, 4].map(padding), [0, 3, 2, 1, 0]);
}

#[test]
fn serial_numbers_wrap() {
    assert!(before(0xffff_ffff, 0) && !before(0, 0xffff_ffff) && !before(5, 5));
}
