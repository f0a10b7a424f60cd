//! Both ends, several LUNs and one pool against their model.
#![no_main]

libfuzzer_sys::fuzz_target!(|script: &[u8]| ring::fuzz::model(script));
