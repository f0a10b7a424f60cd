//! Whatever the bytes.

use proptest::collection::vec;
use proptest::prelude::*;

use super::Bench;
use super::bench::{Buffer, geometry};
use crate::disk::Geometry;
use crate::scsi::Settings;
use crate::scsi::opcode::{self, Flow};
use crate::scsi::step::{Direction, status};

fn directions() -> impl Strategy<Value = Direction> {
    prop_oneof![Just(Direction::Unknown), Just(Direction::In), Just(Direction::Out)]
}

/// A CDB of some command, with any values in the fields it has; addresses often within the disk.
fn commands() -> impl Strategy<Value = Vec<u8>> {
    (0..opcode::all().len(), vec(any::<u8>(), 16), any::<bool>(), 0..4_u8).prop_map(
        |(row, noise, near, keep)| {
            let row = &opcode::all()[row];
            let mut cdb: Vec<u8> = row.usage.iter().zip(&noise).map(|(usage, noise)| usage & noise).collect();
            cdb[0] = row.code;
            if let Some(action) = row.service_action {
                cdb[1] = cdb[1] & 0xE0 | action as u8;
            }
            if near {
                // Leaves low-order bytes of the multi-byte fields.
                let zero = match cdb.len() {
                    6 => 1..3,
                    10 => 2..4,
                    12 => 2..8,
                    _ => 2..8,
                };
                for byte in &mut cdb[zero] {
                    *byte = 0;
                }
                if cdb.len() == 16 {
                    cdb[10..12 + usize::from(keep > 1)].fill(0);
                }
            }
            cdb
        },
    )
}

fn benches() -> impl Strategy<Value = (u32, bool, u32, bool)> {
    (
        prop_oneof![Just(512_u32), Just(4096)],
        any::<bool>(),
        prop_oneof![Just(0_u32), Just(512)],
        any::<bool>(),
    )
}

fn bench((block_size, thin, compare_and_write, removable): (u32, bool, u32, bool)) -> Bench {
    let mut geometry = Geometry { block_size, compare_and_write, ..geometry() };
    if !thin {
        geometry.provisioning = None;
    }
    Bench::with(geometry, Settings { removable, ..Settings::default() }, 4 << 20)
}

/// The allocation length of a CDB that has one.
fn allocation(cdb: &[u8]) -> usize {
    let be = |at: std::ops::Range<usize>| cdb[at].iter().fold(0, |n, byte| n << 8 | usize::from(*byte));
    match cdb[0] {
        0x12 | 0x1C => be(3..5),
        0x03 | 0x1A => be(4..5),
        0x37 | 0x4D | 0x5A | 0x5E => be(7..9),
        0x3C => be(6..9),
        0xA0 | 0xA3 | 0xB7 => be(6..10),
        0x9E => be(10..14),
        0x25 => 8,
        _ => usize::MAX,
    }
}

/// Runs a command; the bench checks steps and requests. Checks the answer.
fn check(bench: &mut Bench, cdb: &[u8], bytes: Vec<u8>, direction: Direction) {
    let len = bytes.len();
    let ended = bench.run(cdb, &mut Buffer { bytes, direction });
    let row = opcode::find(cdb);
    match ended.status {
        status::GOOD => {
            let row = row.expect("a command without a row was carried out");
            assert!(ended.sense.is_empty());
            assert!(ended.parameter_data <= allocation(cdb).max(len), "{cdb:02x?}");
            if !matches!(row.class, opcode::Class::Read) {
                assert!(ended.parameter_data <= allocation(cdb), "{cdb:02x?}");
            }
            if row.data != Flow::In {
                assert!(ended.data.is_empty(), "{cdb:02x?}");
            }
        }
        status::CHECK_CONDITION => {
            assert!(matches!(ended.sense.first(), Some(0x70 | 0xF0 | 0x72)));
            assert!((8..=32).contains(&ended.sense.len()));
            assert!(ended.data.is_empty());
        }
        // PERSISTENT RESERVE OUT with a key that is not the sender's, or beside RESERVE.
        status::RESERVATION_CONFLICT => {
            assert!(row.is_some_and(|row| row.reservation == opcode::Reservation::Special), "{cdb:02x?}");
            assert!(ended.sense.is_empty() && ended.data.is_empty());
        }
        other => panic!("status {other:02x} of {cdb:02x?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 512 }))]

    #[test]
    fn any_bytes_at_all_are_answered(
        kind in benches(),
        cdb in vec(any::<u8>(), 0..=260),
        data in vec(any::<u8>(), 0..3000),
        direction in directions(),
    ) {
        check(&mut bench(kind), &cdb, data, direction);
    }

    #[test]
    fn any_command_with_any_fields_and_any_data_is_answered(
        kind in benches(),
        commands in vec((commands(), vec(any::<u8>(), 0..2500), prop_oneof![Just(0_usize), 0..20_000_usize]), 1..6),
        direction in directions(),
    ) {
        let mut bench = bench(kind);
        for (cdb, mut data, more) in commands {
            data.resize(data.len() + more, 0);
            check(&mut bench, &cdb, data, direction);
        }
    }

    #[test]
    fn no_allocation_length_is_exceeded(
        kind in benches(),
        cdb in commands().prop_filter("no parameter data", |cdb| allocation(cdb) != usize::MAX),
        small in 0..70_u8,
    ) {
        let mut bench = bench(kind);
        let mut cdb = cdb;
        // A small allocation length, where it has one.
        match cdb[0] {
            0x12 => cdb[3..5].copy_from_slice(&[0, small]),
            0x03 | 0x1A => cdb[4] = small,
            0x5A | 0x5E => cdb[7..9].copy_from_slice(&[0, small]),
            0xA0 | 0xA3 => cdb[6..10].copy_from_slice(&[0, 0, 0, small]),
            0x9E => cdb[10..14].copy_from_slice(&[0, 0, 0, small]),
            _ => {}
        }
        check(&mut bench, &cdb, vec![0xEE; 300], Direction::In);
    }

    #[test]
    fn what_is_written_is_what_is_read(
        block_size in prop_oneof![Just(512_u32), Just(4096)],
        lba in 0..200_u64,
        blocks in 1..40_u32,
        seed in any::<u8>(),
        room in 0..200_000_usize,
    ) {
        let mut bench = bench((block_size, true, 0, false));
        let len = blocks as usize * block_size as usize;
        let data: Vec<u8> = (0..len).map(|at| (at / 3) as u8 ^ seed).collect();
        bench.writes(&super::cdb16(0x8A, lba, blocks), &data);
        prop_assert_eq!(bench.reads(&super::cdb16(0x88, lba, blocks), room), &data[..len.min(room)]);
    }
}
