//! REPORT SUPPORTED OPERATION CODES and … TASK MANAGEMENT FUNCTIONS: what is said is what is done.

use proptest::prelude::*;

use super::bench::{geometry, out, room_of};
use super::{Bench, cdb12, sense};
use crate::disk::Geometry;
use crate::scsi::Settings;
use crate::scsi::cdb;
use crate::scsi::opcode::{self, Class, Requires};
use crate::scsi::step::status;

/// REPORT SUPPORTED OPERATION CODES (SPC-4).
fn rsoc(options: u8, code: u8, action: u16, allocation: u32) -> [u8; 12] {
    let mut cdb = cdb12(0xA3, 0, allocation);
    (cdb[1], cdb[2], cdb[3]) = (0x0C, options, code);
    cdb[4..6].copy_from_slice(&action.to_be_bytes());
    cdb
}

/// Units that differ in which commands they have.
fn units() -> Vec<Bench> {
    let thick = Geometry { provisioning: None, ..geometry() };
    let removable = Settings { removable: true, ..Settings::default() };
    let mut set_from_outside = Bench::new();
    set_from_outside.through(super::alua::Cluster::new(true));
    vec![
        set_from_outside,
        Bench::new(),
        Bench::with(thick, Settings::default(), 1 << 20),
        Bench::with(geometry(), removable, 1 << 20),
    ]
}

/// (operation code, service action, CDB length) of the all_commands format (SPC-4).
fn every_command(bench: &mut Bench) -> Vec<(u8, Option<u16>, usize)> {
    let data = bench.reads(&rsoc(0, 0, 0, 65536), 65536);
    assert_eq!(u32::from_be_bytes(data[..4].try_into().unwrap()) as usize + 4, data.len());
    data[4..]
        .chunks_exact(8)
        .map(|d| {
            let action = (d[5] & 1 != 0).then(|| u16::from_be_bytes([d[2], d[3]]));
            (d[0], action, usize::from(u16::from_be_bytes([d[6], d[7]])))
        })
        .collect()
}

/// Whether the unit knows the command at all: neither the operation code is refused nor the service action (SPC-4).
fn accepts(bench: &mut Bench, code: u8, action: u8) -> bool {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1]) = (code, action);
    let ended = bench.run(&cdb, &mut out(&[]));
    let has_actions = opcode::all().iter().any(|row| row.code == code && row.service_action.is_some());
    let unknown_action = sense::INVALID_FIELD_IN_CDB.at_cdb_bit(1, 4).encode(false);
    ended.status == status::GOOD
        || super::bench::code(&ended.sense) != sense::INVALID_COMMAND_OPERATION_CODE.code()
            && !(has_actions && ended.sense == *unknown_action)
}

#[test]
fn a_command_is_accepted_if_and_only_if_it_is_reported() {
    for mut bench in units() {
        let reported = every_command(&mut bench);
        for code in 0..=255 {
            let own: Vec<_> = reported.iter().filter(|row| row.0 == code).collect();
            for action in 0..32 {
                let listed = own.iter().any(|row| row.1.is_none_or(|own| own == u16::from(action)));
                // Byte 1 is not a service action of codes that have none: a zero there is enough.
                if action == 0 || own.is_empty() || own[0].1.is_some() {
                    assert_eq!(accepts(&mut bench, code, action), listed, "{code:02x}/{action:02x}");
                }
            }
        }
    }
}

#[test]
fn the_one_command_format_agrees_with_the_list_and_shows_the_usage_map() {
    // SPC-4, one_command format: SUPPORT 011b with the map, 001b without.
    for mut bench in units() {
        let reported = every_command(&mut bench);
        for row in opcode::all() {
            let listed = reported.iter().find(|own| (own.0, own.1) == (row.code, row.service_action));
            let (options, action) = row.service_action.map_or((1, 0), |action| (2, action));
            for options in [options, 3] {
                let data = bench.reads(&rsoc(options, row.code, action, 64), 64);
                if listed.is_some() {
                    assert_eq!(data[..2], [0, 0x03]);
                    assert_eq!(usize::from(data[3]), row.usage.len());
                    assert_eq!(data[4..], *row.usage);
                } else {
                    assert_eq!(data, [0, 0x01, 0, 0]);
                }
            }
        }
        for code in [0x05, 0xC0, 0xFF] {
            for options in [1, 2, 3] {
                assert_eq!(bench.reads(&rsoc(options, code, 0, 64), 64), [0, 0x01, 0, 0]);
            }
        }
        assert_eq!(bench.reads(&rsoc(2, 0x9E, 0x1F, 64), 64), [0, 0x01, 0, 0]);
        assert_eq!(bench.reads(&rsoc(3, 0x28, 1, 64), 64), [0, 0x01, 0, 0]);
    }
}

#[test]
fn reporting_options_that_do_not_fit_the_operation_code_are_refused() {
    // SPC-4, REPORTING OPTIONS field.
    let mut bench = Bench::new();
    bench.fails(&rsoc(1, 0x9E, 0, 64), sense::INVALID_FIELD_IN_CDB);
    bench.fails(&rsoc(2, 0x28, 0, 64), sense::INVALID_FIELD_IN_CDB);
    for options in 4..8 {
        bench.fails(&rsoc(options, 0x28, 0, 64), sense::INVALID_FIELD_IN_CDB);
    }
}

#[test]
fn rctd_adds_a_timeouts_descriptor_to_each_command() {
    let mut bench = Bench::new();
    let count = every_command(&mut bench).len();
    let data = bench.reads(&rsoc(0x80, 0, 0, 65536), 65536);
    assert_eq!(data.len(), 4 + count * 20);
    for command in data[4..].chunks_exact(20) {
        // CTDP; the descriptor's length.
        assert_eq!(command[5] & 0x02, 0x02);
        assert_eq!(command[8..10], [0, 0x0A]);
    }
    let one = bench.reads(&rsoc(0x81, 0x28, 0, 64), 64);
    assert_eq!((one[1], one.len()), (0x83, 4 + 10 + 12));
    assert_eq!(one[14..16], [0, 0x0A]);
}

#[test]
fn reports_are_cut_to_the_allocation_length() {
    let mut bench = Bench::new();
    for allocation in [0, 3, 4, 5, 100] {
        let ended = bench.run(&rsoc(0, 0, 0, allocation), &mut room_of(4096));
        assert_eq!(ended.data.len(), allocation as usize);
    }
}

#[test]
fn a_bit_that_the_usage_map_does_not_have_is_refused_by_name() {
    // SPC-4, reserved fields and field pointers; the map and the check are one.
    for mut bench in units() {
        for (code, action, length) in every_command(&mut bench) {
            let mut cdb = vec![0; length];
            (cdb[0], cdb[1]) = (code, action.unwrap_or(0) as u8);
            let row = opcode::find(&cdb).unwrap();
            let first = if action.is_some() { 5 } else { 0 };
            for byte in 1..length {
                for bit in if byte == 1 { first } else { 0 }..8 {
                    if row.usage[byte] & 1 << bit != 0 {
                        continue;
                    }
                    let mut cdb = cdb.clone();
                    cdb[byte] |= 1 << bit;
                    let ended = bench.fails(&cdb, sense::INVALID_FIELD_IN_CDB);
                    assert_eq!(ended.sense[15..18], [0xC8 | bit, 0, byte as u8], "{cdb:02x?}");
                }
            }
        }
    }
}

#[test]
fn a_cdb_that_ends_too_early_is_refused() {
    let mut bench = Bench::new();
    bench.fails(&[], sense::INVALID_COMMAND_OPERATION_CODE);
    for row in opcode::all().iter().filter(|row| matches!(row.requires, Requires::Nothing | Requires::Thin)) {
        let mut cdb = row.usage.to_vec();
        cdb.truncate(row.usage.len() - 1);
        bench.fails(&cdb, sense::INVALID_FIELD_IN_CDB);
    }
}

#[test]
fn the_table_is_ordered_and_its_labels_are_distinct() {
    let rows = opcode::all();
    assert!(rows.is_sorted_by_key(|row| (row.code, row.service_action)));
    let names: std::collections::BTreeSet<_> = rows.iter().map(|row| row.name).collect();
    assert_eq!(names.len(), rows.len());
    for row in rows {
        assert_eq!(row.usage[0], row.code);
        // SPC-4, GROUP CODE: the group code fixes the length.
        let length = [6, 10, 10, 0, 16, 12, 0, 0][usize::from(row.code >> 5)];
        assert_eq!(row.usage.len(), length, "{}", row.name);
        assert!(opcode::find(row.usage).is_some_and(|found| std::ptr::eq(found, row)));
        assert_eq!(opcode::label(row.usage), row.name);
    }
    assert_eq!((opcode::label(&[0xC0]), opcode::class(&[0xC0])), ("unknown", Class::Unknown));
    assert_eq!((opcode::label(&[]), opcode::class(&[])), ("unknown", Class::Unknown));
    for (index, class) in Class::ALL.into_iter().enumerate() {
        assert_eq!(class.index(), index);
    }
}

#[test]
fn task_management_functions_are_reported_in_both_forms() {
    // SPC-4, REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS.
    let mut bench = Bench::new();
    let mut cdb = cdb12(0xA3, 0, 64);
    cdb[1] = 0x0D;
    assert_eq!(bench.reads(&cdb, 64), [0xDA, 0, 0, 0]);
    cdb[2] = 0x80;
    let extended = bench.reads(&cdb, 64);
    assert_eq!((extended.len(), extended[0], extended[3]), (16, 0xDA, 0x0C));
}

proptest! {
    #[test]
    fn no_bit_of_a_usage_map_is_refused_as_reserved_whatever_goes_with_it(
        index in any::<prop::sample::Index>(),
        bits in prop::collection::vec(any::<u8>(), 16),
    ) {
        // SPC-4, CDB USAGE DATA: these bits are evaluated. What a field's value means is the command's to judge.
        let row = index.get(opcode::all());
        let mut cdb: Vec<u8> = row.usage.iter().zip(bits).map(|(usage, bits)| usage & bits).collect();
        cdb[0] = row.code;
        if let Some(action) = row.service_action {
            cdb[1] = cdb[1] & 0xE0 | action as u8;
        }
        let found = opcode::find(&cdb);
        prop_assert!(found.is_some_and(|found| std::ptr::eq(found, row)), "{}", row.name);
        prop_assert!(cdb::parse(found, &cdb).is_ok(), "{}: {cdb:02x?}", row.name);
    }
}
