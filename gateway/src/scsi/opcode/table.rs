//! The rows, in order of operation code and service action.

use super::{Attention, Class, Flow, Medium, Opcode, Requires, Reservation};
use crate::scsi::{
    background, buffer, capacity, compare, condition, copy, inquiry, log, luns, mode, provision, reservation,
    supported, target_port_groups, transfer, verify,
};

// Byte 1 of the usage maps: RDPROTECT, WRPROTECT and VRPROTECT (0xE0) are not there, the disk has no protection
// information; nor ANCHOR (ANC_SUP is zero), nor NACA in the CONTROL byte (NORMACA is zero). FUA_NV and SYNC_NV, obsolete
// since SBC-3, may be set and change nothing. GROUP NUMBER may be set and is ignored (GROUP_SUP is zero).
#[rustfmt::skip]
pub(super) const TABLE: &[Opcode] = &[
    Opcode::new(&[0x00, 0, 0, 0, 0, 0], "test_unit_ready", Class::Query, condition::test_unit_ready)
        .medium(Medium::Read).reservation(Reservation::Legacy),
    Opcode::new(&[0x03, 0x01, 0, 0, 0xFF, 0], "request_sense", Class::Query, condition::request_sense)
        .data(Flow::In).attention(Attention::Returned),
    Opcode::new(&[0x04, 0x3F, 0, 0, 0, 0], "format_unit", Class::Provision, background::format_unit)
        .writes().data(Flow::Out),
    Opcode::new(&[0x08, 0x1F, 0xFF, 0xFF, 0xFF, 0], "read_6", Class::Read, transfer::read)
        .reads().data(Flow::In),
    Opcode::new(&[0x0A, 0x1F, 0xFF, 0xFF, 0xFF, 0], "write_6", Class::Write, transfer::write)
        .writes().data(Flow::Out),
    Opcode::new(&[0x12, 0x01, 0xFF, 0xFF, 0xFF, 0], "inquiry", Class::Query, inquiry::inquiry)
        .data(Flow::In).attention(Attention::Passed),
    Opcode::new(&[0x15, 0x11, 0, 0, 0xFF, 0], "mode_select_6", Class::Control, mode::select)
        .data(Flow::Out).reservation(Reservation::Write),
    Opcode::new(&[0x16, 0, 0xFF, 0, 0, 0], "reserve_6", Class::Control, reservation::reserve)
        .reservation(Reservation::Special),
    Opcode::new(&[0x17, 0, 0xFF, 0, 0, 0], "release_6", Class::Control, reservation::release)
        .reservation(Reservation::Special),
    Opcode::new(&[0x1A, 0x08, 0xFF, 0xFF, 0xFF, 0], "mode_sense_6", Class::Query, mode::sense)
        .data(Flow::In).reservation(Reservation::Read),
    Opcode::new(&[0x1B, 0x01, 0, 0x0F, 0xF7, 0], "start_stop_unit", Class::Control, condition::start_stop_unit)
        .reservation(Reservation::Special),
    Opcode::new(&[0x1C, 0x01, 0xFF, 0xFF, 0xFF, 0], "receive_diagnostic_results", Class::Query,
            background::receive_results)
        .data(Flow::In).reservation(Reservation::Read),
    Opcode::new(&[0x1D, 0xF7, 0, 0xFF, 0xFF, 0], "send_diagnostic", Class::Control, background::send)
        .data(Flow::Out).reservation(Reservation::Write),
    Opcode::new(&[0x1E, 0, 0, 0, 0x01, 0], "prevent_allow_medium_removal", Class::Control,
            condition::prevent_allow_medium_removal)
        .reservation(Reservation::Special).requires(Requires::Removable),
    Opcode::new(&[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], "read_capacity_10", Class::Query, capacity::read_capacity_10)
        .medium(Medium::Read).data(Flow::In),
    Opcode::new(&[0x28, 0x1A, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0xFF, 0xFF, 0], "read_10", Class::Read, transfer::read)
        .reads().data(Flow::In),
    Opcode::new(&[0x2A, 0x1A, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0xFF, 0xFF, 0], "write_10", Class::Write, transfer::write)
        .writes().data(Flow::Out),
    Opcode::new(&[0x2E, 0x12, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0xFF, 0xFF, 0], "write_and_verify_10", Class::Write,
            verify::write_and_verify)
        .writes().data(Flow::Out),
    Opcode::new(&[0x2F, 0x16, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0xFF, 0xFF, 0], "verify_10", Class::Verify, verify::verify)
        .reads().data(Flow::Out),
    Opcode::new(&[0x34, 0x02, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0xFF, 0xFF, 0], "pre_fetch_10", Class::Read,
            transfer::pre_fetch)
        .reads(),
    Opcode::new(&[0x35, 0x06, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0xFF, 0xFF, 0], "synchronize_cache_10", Class::Flush,
            transfer::synchronize_cache)
        .medium(Medium::Read).reservation(Reservation::Write),
    Opcode::new(&[0x37, 0, 0x1F, 0, 0, 0, 0, 0xFF, 0xFF, 0], "read_defect_data_10", Class::Query,
            transfer::read_defect_data)
        .data(Flow::In).reservation(Reservation::Read),
    Opcode::new(&[0x3B, 0x1F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0], "write_buffer", Class::Control,
            buffer::write)
        .data(Flow::Out).reservation(Reservation::Write),
    Opcode::new(&[0x3C, 0x1F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0], "read_buffer", Class::Query, buffer::read)
        .data(Flow::In).reservation(Reservation::Read),
    Opcode::new(&[0x41, 0x08, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0xFF, 0xFF, 0], "write_same_10", Class::Provision,
            provision::write_same)
        .writes().data(Flow::Out),
    Opcode::new(&[0x42, 0, 0, 0, 0, 0, 0x1F, 0xFF, 0xFF, 0], "unmap", Class::Provision, provision::unmap)
        .writes().data(Flow::Out).requires(Requires::Thin),
    Opcode::new(&[0x48, 0xA1, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0], "sanitize_overwrite", Class::Provision, background::overwrite)
        .action().writes().data(Flow::Out),
    Opcode::new(&[0x48, 0xA2, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0], "sanitize_block_erase", Class::Provision,
            background::block_erase)
        .action().writes().requires(Requires::Thin),
    Opcode::new(&[0x48, 0xBF, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0], "sanitize_exit_failure_mode", Class::Provision,
            background::exit_failure_mode)
        .action().writes(),
    Opcode::new(&[0x4D, 0, 0xFF, 0xFF, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0], "log_sense", Class::Query, log::sense)
        .data(Flow::In),
    Opcode::new(&[0x55, 0x11, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0], "mode_select_10", Class::Control, mode::select)
        .data(Flow::Out).reservation(Reservation::Write),
    Opcode::new(&[0x56, 0, 0xFF, 0, 0, 0, 0, 0, 0, 0], "reserve_10", Class::Control, reservation::reserve)
        .reservation(Reservation::Special),
    Opcode::new(&[0x57, 0, 0xFF, 0, 0, 0, 0, 0, 0, 0], "release_10", Class::Control, reservation::release)
        .reservation(Reservation::Special),
    Opcode::new(&[0x5A, 0x18, 0xFF, 0xFF, 0, 0, 0, 0xFF, 0xFF, 0], "mode_sense_10", Class::Query, mode::sense)
        .data(Flow::In).reservation(Reservation::Read),
    Opcode::new(&[0x5E, 0x00, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0], "persistent_reserve_in_read_keys", Class::Query,
            reservation::persistent_reserve_in)
        .action().data(Flow::In).reservation(Reservation::Special),
    Opcode::new(&[0x5E, 0x01, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0], "persistent_reserve_in_read_reservation", Class::Query,
            reservation::persistent_reserve_in)
        .action().data(Flow::In).reservation(Reservation::Special),
    Opcode::new(&[0x5E, 0x02, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0], "persistent_reserve_in_report_capabilities", Class::Query,
            reservation::persistent_reserve_in)
        .action().data(Flow::In).reservation(Reservation::Special),
    Opcode::new(&[0x5E, 0x03, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0], "persistent_reserve_in_read_full_status", Class::Query,
            reservation::persistent_reserve_in)
        .action().data(Flow::In).reservation(Reservation::Special),
    Opcode::new(&[0x5F, 0x00, 0xFF, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0], "persistent_reserve_out_register", Class::Control,
            reservation::persistent_reserve_out)
        .action().data(Flow::Out).reservation(Reservation::Special),
    Opcode::new(&[0x5F, 0x01, 0xFF, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0], "persistent_reserve_out_reserve", Class::Control,
            reservation::persistent_reserve_out)
        .action().data(Flow::Out).reservation(Reservation::Special),
    Opcode::new(&[0x5F, 0x02, 0xFF, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0], "persistent_reserve_out_release", Class::Control,
            reservation::persistent_reserve_out)
        .action().data(Flow::Out).reservation(Reservation::Special),
    Opcode::new(&[0x5F, 0x03, 0xFF, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0], "persistent_reserve_out_clear", Class::Control,
            reservation::persistent_reserve_out)
        .action().data(Flow::Out).reservation(Reservation::Special),
    Opcode::new(&[0x5F, 0x04, 0xFF, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0], "persistent_reserve_out_preempt", Class::Control,
            reservation::persistent_reserve_out)
        .action().data(Flow::Out).reservation(Reservation::Special),
    Opcode::new(&[0x5F, 0x05, 0xFF, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0], "persistent_reserve_out_preempt_and_abort", Class::Control,
            reservation::persistent_reserve_out)
        .action().data(Flow::Out).reservation(Reservation::Special),
    Opcode::new(&[0x5F, 0x06, 0xFF, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0], "persistent_reserve_out_register_and_ignore_existing_key", Class::Control,
            reservation::persistent_reserve_out)
        .action().data(Flow::Out).reservation(Reservation::Special),
    Opcode::new(&[0x5F, 0x07, 0xFF, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0], "persistent_reserve_out_register_and_move", Class::Control,
            reservation::persistent_reserve_out)
        .action().data(Flow::Out).reservation(Reservation::Special),
    Opcode::new(&[0x83, 0x00, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0], "extended_copy", Class::Copy,
            copy::extended_copy)
        .action().medium(Medium::Read).data(Flow::Out).reservation(Reservation::Write),
    Opcode::new(&[0x83, 0x10, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0], "populate_token",
            Class::Copy, copy::populate_token)
        .action().reads().data(Flow::Out),
    Opcode::new(&[0x83, 0x11, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0], "write_using_token",
            Class::Copy, copy::write_using_token)
        .action().writes().data(Flow::Out),
    Opcode::new(&[0x83, 0x1C, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], "copy_operation_abort",
            Class::Control, copy::copy_operation_abort)
        .action(),
    Opcode::new(&[0x84, 0x00, 0xFF, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0], "receive_copy_status",
            Class::Query, copy::copy_status)
        .action().data(Flow::In).reservation(Reservation::Read),
    Opcode::new(&[0x84, 0x03, 0xFF, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0],
            "receive_copy_operating_parameters", Class::Query, copy::operating_parameters)
        .action().data(Flow::In).reservation(Reservation::Read),
    Opcode::new(&[0x84, 0x04, 0xFF, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0],
            "receive_copy_failed_segment_details", Class::Query, copy::failed_segment_details)
        .action().data(Flow::In).reservation(Reservation::Read),
    Opcode::new(&[0x84, 0x07, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0],
            "receive_rod_token_information", Class::Query, copy::receive_rod_token_information)
        .action().data(Flow::In).reservation(Reservation::Read),
    Opcode::new(&[0x88, 0x1A, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0],
            "read_16", Class::Read, transfer::read)
        .reads().data(Flow::In),
    Opcode::new(&[0x89, 0x1A, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0xFF, 0x1F, 0],
            "compare_and_write", Class::Atomic, compare::compare_and_write)
        .writes().data(Flow::Out),
    Opcode::new(&[0x8A, 0x1A, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0],
            "write_16", Class::Write, transfer::write)
        .writes().data(Flow::Out),
    Opcode::new(&[0x8B, 0x1A, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0],
            "orwrite_16", Class::Atomic, compare::orwrite)
        .writes().data(Flow::Out),
    Opcode::new(&[0x8E, 0x12, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0],
            "write_and_verify_16", Class::Write, verify::write_and_verify)
        .writes().data(Flow::Out),
    Opcode::new(&[0x8F, 0x16, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0],
            "verify_16", Class::Verify, verify::verify)
        .reads().data(Flow::Out),
    Opcode::new(&[0x90, 0x02, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0],
            "pre_fetch_16", Class::Read, transfer::pre_fetch)
        .reads(),
    Opcode::new(&[0x91, 0x06, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0],
            "synchronize_cache_16", Class::Flush, transfer::synchronize_cache)
        .medium(Medium::Read).reservation(Reservation::Write),
    Opcode::new(&[0x93, 0x09, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0],
            "write_same_16", Class::Provision, provision::write_same)
        .writes().data(Flow::Out),
    Opcode::new(&[0x9C, 0x18, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0xFF, 0xFF, 0x1F, 0],
            "write_atomic_16", Class::Write, transfer::write_atomic)
        .writes().data(Flow::Out).requires(Requires::Atomic),
    Opcode::new(&[0x9E, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0], "read_capacity_16", Class::Query,
            capacity::read_capacity_16)
        .action().medium(Medium::Read).data(Flow::In),
    Opcode::new(&[0x9E, 0x12, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0],
            "get_lba_status", Class::Query, capacity::get_lba_status)
        .action().reads().data(Flow::In).requires(Requires::Thin),
    Opcode::new(&[0xA0, 0, 0xFF, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0], "report_luns", Class::Query, luns::report_luns)
        .data(Flow::In).attention(Attention::Passed),
    Opcode::new(&[0xA3, 0x2A, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0], "report_target_port_groups", Class::Query,
            target_port_groups::report)
        .action().data(Flow::In),
    Opcode::new(&[0xA3, 0x0C, 0x87, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0],
            "report_supported_operation_codes", Class::Query, supported::operation_codes)
        .action().data(Flow::In).reservation(Reservation::Read),
    Opcode::new(&[0xA3, 0x0D, 0x80, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0],
            "report_supported_task_management_functions", Class::Query, supported::task_management_functions)
        .action().data(Flow::In).reservation(Reservation::Read),
    Opcode::new(&[0xA4, 0x0A, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0], "set_target_port_groups", Class::Control,
            target_port_groups::set)
        .action().data(Flow::Out).reservation(Reservation::Write).requires(Requires::ExplicitAccess),
    Opcode::new(&[0xA8, 0x1A, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0], "read_12", Class::Read,
            transfer::read)
        .reads().data(Flow::In),
    Opcode::new(&[0xAA, 0x1A, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0], "write_12", Class::Write,
            transfer::write)
        .writes().data(Flow::Out),
    Opcode::new(&[0xAE, 0x12, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0], "write_and_verify_12",
            Class::Write, verify::write_and_verify)
        .writes().data(Flow::Out),
    Opcode::new(&[0xAF, 0x16, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0], "verify_12", Class::Verify,
            verify::verify)
        .reads().data(Flow::Out),
    Opcode::new(&[0xB7, 0x1F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0], "read_defect_data_12", Class::Query,
            transfer::read_defect_data)
        .data(Flow::In).reservation(Reservation::Read),
];
