//! Any list: copies equal a model that works on plain memory, and nothing outside the named ranges changes.

use proptest::collection::vec;
use proptest::prelude::*;

use super::{all_but, extended_copy, naa, parameters, segment};
use crate::scsi::step::status;
use crate::scsi::tests::Bench;
use crate::scsi::tests::bench::{SERIAL, geometry, out, pattern};

/// Blocks of the model's disk.
const BLOCKS: u64 = 600;

fn bench() -> Bench {
    let settings = crate::scsi::Settings { lun: 1, ..Default::default() };
    let mut bench = Bench::with(geometry(), settings, BLOCKS * 512);
    bench.store(0, &pattern(BLOCKS as usize * 512));
    bench
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 128 }))]

    #[test]
    fn segments_do_what_memory_moves_would(
        segments in vec((0..BLOCKS + 20, 0..BLOCKS + 20, 0..300_u16), 1..8),
        spare in 1..5_u64,
    ) {
        let mut bench = bench();
        // Little memory: pieces of 64 KiB, so that these segments have several.
        let _most = all_but(&bench, spare * (64 << 10));
        let list: Vec<_> =
            segments.iter().map(|(from, to, blocks)| segment((0, 0), *blocks, *from, *to)).collect();
        let list = parameters(1, &[naa(SERIAL)], &list);
        let ended = bench.run(&extended_copy(list.len()), &mut out(&list));

        let mut model = pattern(BLOCKS as usize * 512);
        let reaches = |(from, to, blocks): &(u64, u64, u16)| from.max(to) + u64::from(*blocks) <= BLOCKS;
        let good = segments.iter().all(reaches);
        prop_assert_eq!(ended.status == status::GOOD, good);
        for (from, to, blocks) in segments.iter().filter(|_| good) {
            let (from, to, len) = (*from as usize * 512, *to as usize * 512, usize::from(*blocks) * 512);
            model.copy_within(from..from + len, to);
        }
        prop_assert!(bench.load(0, model.len()) == model);
    }

    #[test]
    fn any_bytes_are_answered_and_a_refused_list_changes_nothing(
        mut list in vec(any::<u8>(), 0..400),
        near in any::<bool>(),
        noise in vec((0..120_usize, any::<u8>()), 0..4),
        claimed in prop_oneof![Just(None), (0..500_usize).prop_map(Some)],
    ) {
        if near {
            list = parameters(1, &[naa(SERIAL)], &[segment((0, 0), 3, 9, 40), segment((0, 0xFFFF), 1, 1, 2)]);
            for (at, byte) in noise {
                if let Some(place) = list.get_mut(at) {
                    *place = byte;
                }
            }
        }
        let mut bench = bench();
        let ended = bench.run(&extended_copy(claimed.unwrap_or(list.len())), &mut out(&list));
        if ended.status != status::GOOD {
            prop_assert!(ended.io.is_empty());
            prop_assert!(bench.load(0, BLOCKS as usize * 512) == pattern(BLOCKS as usize * 512));
        }
    }
}
