//! Properties of the ring as functions of bytes: run by proptest in the unit tests and by cargo-fuzz (`ring/fuzz`).
//!
//! Each panics when its property does not hold, and returns otherwise, whatever the bytes are.

mod hostile;
mod model;

pub use hostile::{consumer, producer};
pub use model::model;

/// Bytes of the fuzzer, taken one decision at a time; zeros when they run out.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn word(&mut self) -> u32 {
        u32::from_le_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }

    /// A number below `end` (which is not 0).
    fn below(&mut self, end: usize) -> usize {
        usize::from(u16::from_le_bytes([self.byte(), self.byte()])) % end
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    fn bytes(most: usize) -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(any::<u8>(), 0..most)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_consumer_survives_any_bytes_from_its_producer(script in bytes(3000)) {
            super::consumer(&script);
        }

        #[test]
        fn a_producer_survives_any_bytes_from_its_consumer(script in bytes(1500)) {
            super::producer(&script);
        }

        #[test]
        fn the_ring_behaves_as_its_model(script in bytes(2000)) {
            super::model(&script);
        }
    }
}
