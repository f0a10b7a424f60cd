//! Any bytes into a connection in the full feature phase, cut anywhere, with answers, time and a slow reader in between.
//!
//! Input: a byte of settings, then steps: a byte of what and how much, and the bytes for it. When it is over nothing is held.

#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use rbdgate::portal::keys::Negotiated;
use rbdgate::portal::simulated::Simulated;

fuzz_target!(|input: &[u8]| {
    let Some((&settings, mut rest)) = input.split_first() else { return };
    let agreed = Negotiated {
        // Digests would keep the fuzzer out of everything behind them; now and then they are on.
        header_digest: settings & 0x0f == 1,
        data_digest: settings & 0x0f == 2,
        initial_r2t: settings & 0x10 != 0,
        immediate_data: settings & 0x20 != 0,
        max_send_segment: 512 << (settings >> 6),
        max_burst: 4096,
        first_burst: 2048,
        max_outstanding_r2t: 2,
        ..Negotiated::default()
    };
    let mut simulated = Simulated::new(agreed, 2048);
    while let Some((&step, after)) = rest.split_first() {
        rest = after;
        match step >> 6 {
            0 => simulated.answer(),
            1 if step & 1 == 0 => simulated.pass(Duration::from_millis(u64::from(step & 0x3f) * 250)),
            1 => simulated.set_room(usize::from(step & 0x3e) * 16),
            _ => {
                let (bytes, after) = rest.split_at((usize::from(step & 0x7f) * 8).min(rest.len()));
                simulated.feed(bytes);
                rest = after;
            }
        }
        if !simulated.work() {
            break;
        }
    }
    simulated.finish();
});
