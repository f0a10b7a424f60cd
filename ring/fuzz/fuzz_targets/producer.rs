//! A producer over a consumer that writes any bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|script: &[u8]| ring::fuzz::producer(script));
