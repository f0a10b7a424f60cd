//! Any conversation of login requests with a target that wants CHAP: nobody is admitted without the proof.
//!
//! Input: requests, each 48 bytes of header, a byte of text length (times 4) and the text.

#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use rbdgate::portal::chap::{Algorithm, Chap, Credential};
use rbdgate::portal::login::{Login, Progress};
use rbdgate::portal::pdu::{HEADER, Header, LoginRequest};
use rbdgate::portal::{Auth, Directory};
use rbdgate::secret::Secret;

fn directory() -> Directory {
    let credential = |user: &str| Credential { user: user.into(), secret: Secret::new(user.repeat(4)) };
    let chap = Chap {
        initiator: credential("alice"),
        target: Some(credential("gate")),
        algorithms: Algorithm::ALL.to_vec(),
    };
    Directory { discovery: Auth::Chap(Arc::new(chap)), ..Directory::default() }
}

fuzz_target!(|input: &[u8]| {
    let mut login = Login::new(Arc::new(directory()), || Some([7; 33]));
    let mut rest = input;
    while let Some((header, after)) = rest.split_first_chunk::<HEADER>() {
        let Some((&len, after)) = after.split_first() else { return };
        let (text, after) = after.split_at((usize::from(len) * 4).min(after.len()));
        match login.request(&LoginRequest::decode(&Header(*header)), text) {
            Progress::Continue(_) => rest = after,
            Progress::Failed(..) => return,
            // The fuzzer may work the digest out; without a response nobody comes this far.
            Progress::Admitted(..) => assert!(input.windows(7).any(|bytes| bytes == b"CHAP_R=")),
        }
    }
});
