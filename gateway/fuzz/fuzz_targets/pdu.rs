//! Any header as every PDU: decoding keeps what it does not know, and encoding gives it back. Any text and binary value.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rbdgate::names;
use rbdgate::portal::pdu::*;
use rbdgate::portal::text;

macro_rules! round_trip {
    ($header:expr, $($name:ident),*) => {
        $({
            let pdu = $name::decode($header);
            assert_eq!($name::decode(&pdu.encode()), pdu);
        })*
    };
}

fuzz_target!(|input: &[u8]| {
    if let Some((header, rest)) = input.split_first_chunk::<HEADER>() {
        let header = Header(*header);
        round_trip!(
            &header,
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
        if let Ok(pairs) = text::parse(rest) {
            for (key, value) in pairs {
                let _ = (text::decode_binary(value, 1024), text::decode_number(value));
                if let Ok(name) = names::normalize(key) {
                    assert_eq!(names::normalize(&name).as_deref(), Ok(name.as_str()));
                }
            }
        }
    }
});
