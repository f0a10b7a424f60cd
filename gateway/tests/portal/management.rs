//! Task management (RFC 7143 sections 11.5 and 11.6) and reinstatement against commands that the device keeps.

use std::time::Duration;

use rbdgate::portal::pdu::*;
use ring::TaskManagementKind;

use crate::kit::initiator::Initiator;
use crate::kit::{Bench, Setup, TARGET, eventually, pattern, read10, write10};

const ABORT_TASK: u8 = 1;
const ABORT_TASK_SET: u8 = 2;
const CLEAR_TASK_SET: u8 = 4;
const LUN_RESET: u8 = 5;
const WARM_RESET: u8 = 6;
const COLD_RESET: u8 = 7;

/// Sends a WRITE of one block with its data.
fn write(initiator: &mut Initiator, seed: u64) -> ScsiCommand {
    let command = initiator.command(&write10(seed as u32, 1), false, true, 512);
    initiator.send(command.encode(), &[], &pattern(seed, 512));
    command
}

fn read(initiator: &mut Initiator) -> ScsiCommand {
    let command = initiator.command(&read10(0, 8), true, false, 4096);
    initiator.send(command.encode(), &[], &[]);
    command
}

/// Whether nothing has come for a moment. A late arrival cannot make a correct target fail.
fn quiet(initiator: &mut Initiator) -> bool {
    initiator.stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let quiet = initiator.stream.peek(&mut [0]).is_err();
    initiator.stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    quiet
}

fn another(bench: &Bench, number: u8) -> Initiator {
    let mut initiator = Initiator::connect(bench.address);
    initiator.isid[5] = number;
    initiator.log_in(TARGET, &[]);
    initiator
}

#[test]
fn an_aborted_read_is_never_answered_and_not_waited_for_but_keeps_its_blocks() {
    let bench = Bench::new();
    let mut initiator = Initiator::session(bench.address, TARGET);
    bench.devices[0].withhold();
    let command = read(&mut initiator);
    bench.devices[0].wait_withheld(1);
    assert_eq!(initiator.manage(ABORT_TASK, &command), 0);
    assert_eq!(bench.pool.usage().in_use, 4096);
    eventually("the lane is told", || bench.devices[0].notices() == [(TaskManagementKind::AbortTask, 1)]);
    bench.devices[0].release();
    bench.wait_idle();
    // The next answer is the next command's.
    assert_eq!(initiator.read(&[0; 6], 0).status, 0);
}

#[test]
fn the_answer_to_aborting_a_write_waits_until_it_can_no_longer_reach_the_medium() {
    let bench = Bench::new();
    let mut initiator = Initiator::session(bench.address, TARGET);
    bench.devices[0].withhold();
    let command = write(&mut initiator, 1);
    bench.devices[0].wait_withheld(1);
    initiator.send_management(ABORT_TASK, &command);
    assert!(quiet(&mut initiator));
    // Pings do not wait.
    assert_eq!(initiator.ping(b"x"), b"x");
    bench.devices[0].release();
    let pdu = initiator.receive().header;
    assert_eq!(pdu.opcode(), TaskManagementResponse::OPCODE);
    assert_eq!(TaskManagementResponse::decode(&pdu).response, 0);
    bench.wait_idle();
}

#[test]
fn a_command_without_data_is_waited_for_whatever_direction_it_was_given() {
    let bench = Bench::new();
    let mut initiator = Initiator::session(bench.address, TARGET);
    bench.devices[0].withhold();
    // WRITE SAME(16) with NDOB.
    let command = initiator.command(&[0x93, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0], true, false, 0);
    initiator.send(command.encode(), &[], &[]);
    bench.devices[0].wait_withheld(1);
    initiator.send_management(ABORT_TASK, &command);
    assert!(quiet(&mut initiator));
    bench.devices[0].release();
    assert_eq!(initiator.receive().header.opcode(), TaskManagementResponse::OPCODE);
}

#[test]
fn aborting_a_write_again_waits_for_it_again() {
    let bench = Bench::new();
    let mut initiator = Initiator::session(bench.address, TARGET);
    bench.devices[0].withhold();
    let command = write(&mut initiator, 1);
    bench.devices[0].wait_withheld(1);
    let first = initiator.send_management(ABORT_TASK, &command);
    let second = initiator.send_management(ABORT_TASK, &command);
    assert!(quiet(&mut initiator));
    bench.devices[0].release();
    let mut answered = [initiator.receive().header, initiator.receive().header].map(|pdu| {
        assert_eq!(TaskManagementResponse::decode(&pdu).response, 0);
        pdu.task_tag()
    });
    answered.sort_unstable();
    assert_eq!(answered, [first, second]);
}

#[test]
fn a_write_held_back_by_an_aborted_one_is_ended_without_being_started() {
    let bench = Bench::new();
    let keys = [("InitialR2T", "Yes"), ("ImmediateData", "No")];
    let mut initiator = Initiator::session_with(bench.address, TARGET, &keys);
    let first = initiator.command(&write10(3, 8), false, true, 4096);
    initiator.send(first.encode(), &[], &[]);
    assert_eq!(initiator.receive().header.opcode(), R2t::OPCODE);
    // SYNCHRONIZE CACHE, ORDERED: needs nothing but its turn.
    let mut ordered = initiator.command(&[0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0], false, false, 0);
    ordered.attribute = 2;
    initiator.send(ordered.encode(), &[], &[]);
    assert_eq!(initiator.manage(ABORT_TASK_SET, &first), 0);
    assert_eq!(initiator.read(&[0; 6], 0).status, 0);
    assert_eq!(bench.devices[0].seen(), [0]);
}

#[test]
fn a_write_that_still_waits_for_data_ends_at_once_and_its_late_data_is_thrown_away() {
    let bench = Bench::new();
    let keys = [("InitialR2T", "Yes"), ("ImmediateData", "No")];
    let mut initiator = Initiator::session_with(bench.address, TARGET, &keys);
    let command = initiator.command(&write10(3, 8), false, true, 4096);
    initiator.send(command.encode(), &[], &[]);
    let r2t = R2t::decode(&initiator.receive().header);
    assert_eq!(initiator.manage(ABORT_TASK, &command), 0);
    bench.wait_idle();
    initiator.answer_r2t(&r2t, &[7; 4096]);
    assert_eq!(initiator.read(&read10(3, 8), 4096).data, vec![0; 4096]);
    assert!(bench.devices[0].notices().is_empty());
}

#[test]
fn a_tag_that_is_not_there_does_not_exist_and_one_on_its_way_counts_as_received() {
    let bench = Bench::new();
    let mut initiator = Initiator::session(bench.address, TARGET);
    let done = initiator.command(&[0; 6], false, false, 0);
    initiator.send(done.encode(), &[], &[]);
    initiator.finish(done.task_tag, &[]);
    assert_eq!(initiator.manage(ABORT_TASK, &done), 1);
    // Not sent before the function: its number is used up, and it is ignored when it comes.
    let late = initiator.command(&[0xaa, 0, 0, 0, 0, 0], false, false, 0);
    assert_eq!(initiator.manage(ABORT_TASK, &late), 0);
    initiator.send(late.encode(), &[], &[]);
    assert_eq!(initiator.read(&[0; 6], 0).status, 0);
    assert_eq!(bench.devices[0].seen(), [0, 0]);
}

#[test]
fn abort_task_set_ends_the_nexus_own_commands_and_no_others() {
    let bench = Bench::new();
    let (mut one, mut two) = (another(&bench, 1), another(&bench, 2));
    bench.devices[0].withhold();
    let mine = read(&mut one);
    bench.devices[0].wait_withheld(1);
    let theirs = read(&mut two);
    bench.devices[0].wait_withheld(2);
    assert_eq!(one.manage(ABORT_TASK_SET, &mine), 0);
    bench.devices[0].release();
    assert_eq!(two.finish(theirs.task_tag, &[]).status, 0);
    assert_eq!(one.read(&[0; 6], 0).status, 0);
}

#[test]
fn resets_and_clear_task_set_end_every_nexus_commands_and_wait_for_their_writes() {
    for function in [CLEAR_TASK_SET, LUN_RESET, WARM_RESET] {
        let bench = Bench::new();
        let (mut one, mut two) = (another(&bench, 1), another(&bench, 2));
        bench.devices[0].withhold();
        let theirs = write(&mut two, 5);
        bench.devices[0].wait_withheld(1);
        let other = ScsiCommand { task_tag: NO_TAG, ..ScsiCommand::default() };
        one.send_management(function, &other);
        assert!(quiet(&mut one), "{function}");
        eventually("the lane is told", || {
            bench.devices[0].notices().contains(&(TaskManagementKind::AbortTask, 1))
        });
        bench.devices[0].release();
        assert_eq!(one.receive().header.opcode(), TaskManagementResponse::OPCODE);
        // SAM-5, TAS: the other nexus is answered, here by a device that had gone on regardless, and goes on.
        assert_eq!(two.finish(theirs.task_tag, &[]).status, 0);
        let next = two.command(&[0; 6], false, false, 0);
        two.send(next.encode(), &[], &[]);
        assert_eq!(two.finish(next.task_tag, &[]).status, 0);
        let kind = match function {
            LUN_RESET => Some(TaskManagementKind::LunReset),
            WARM_RESET => Some(TaskManagementKind::TargetWarmReset),
            _ => None,
        };
        let told = bench.devices[0].notices();
        assert!(kind.is_none_or(|kind| told.contains(&(kind, 0))), "{function}: {told:?}");
    }
}

#[test]
fn a_reset_waits_for_the_writes_of_a_session_that_is_gone() {
    let bench = Bench::new();
    let (mut one, mut two) = (another(&bench, 1), another(&bench, 2));
    bench.devices[0].withhold();
    write(&mut two, 5);
    bench.devices[0].wait_withheld(1);
    drop(two);
    eventually("it is gone", || bench.server().stats().sessions == 1);
    one.send_management(LUN_RESET, &ScsiCommand::default());
    assert!(quiet(&mut one));
    bench.devices[0].release();
    assert_eq!(one.receive().header.opcode(), TaskManagementResponse::OPCODE);
    bench.wait_idle();
}

#[test]
fn a_cold_reset_is_answered_and_closes_every_connection() {
    let bench = Bench::with(Setup { luns: 2, ..Setup::default() });
    let (mut one, mut two) = (another(&bench, 1), another(&bench, 2));
    assert_eq!(one.manage(COLD_RESET, &ScsiCommand::default()), 0);
    assert!(one.closed() && two.closed());
    for device in &bench.devices[..2] {
        eventually("the lane is told", || {
            device.notices().contains(&(TaskManagementKind::TargetColdReset, 0))
        });
    }
}

#[test]
fn functions_that_are_not_offered_are_refused_with_their_own_codes() {
    let bench = Bench::new();
    let mut initiator = Initiator::session(bench.address, TARGET);
    let here = ScsiCommand::default();
    let nowhere = ScsiCommand { lun: 9 << 48, ..here };
    assert_eq!(initiator.manage(3, &here), 5);
    assert_eq!(initiator.manage(8, &here), 4);
    assert_eq!(initiator.manage(77, &here), 255);
    for function in [ABORT_TASK_SET, CLEAR_TASK_SET, LUN_RESET] {
        assert_eq!(initiator.manage(function, &nowhere), 2);
    }
}

#[test]
fn a_login_that_takes_a_sessions_place_waits_for_its_writes() {
    let bench = Bench::new();
    let mut old = Initiator::session(bench.address, TARGET);
    bench.devices[0].withhold();
    write(&mut old, 7);
    read(&mut old);
    bench.devices[0].wait_withheld(2);
    let address = bench.address;
    let login = std::thread::spawn(move || Initiator::session(address, TARGET));
    assert!(old.closed());
    std::thread::sleep(Duration::from_millis(100));
    assert!(!login.is_finished(), "the login did not wait");
    bench.devices[0].release();
    let mut new = login.join().unwrap();
    assert_eq!(new.read(&read10(7, 1), 512).data, pattern(7, 512));
    assert_eq!(bench.server().sessions().len(), 1);
    bench.wait_idle();
    eventually("the old nexus is gone", || bench.nexuses.len() == 1);
}

#[test]
fn a_login_waits_for_the_writes_of_a_session_of_its_port_that_lost_its_connection() {
    let bench = Bench::new();
    let mut old = Initiator::session(bench.address, TARGET);
    bench.devices[0].withhold();
    write(&mut old, 7);
    bench.devices[0].wait_withheld(1);
    drop(old);
    eventually("it is gone", || bench.server().sessions().is_empty());
    let address = bench.address;
    let login = std::thread::spawn(move || Initiator::session(address, TARGET));
    // Another initiator port is not held up.
    assert_eq!(another(&bench, 2).ping(b"x"), b"x");
    std::thread::sleep(Duration::from_millis(100));
    assert!(!login.is_finished(), "the login did not wait");
    bench.devices[0].release();
    let mut new = login.join().unwrap();
    assert_eq!(new.read(&read10(7, 1), 512).data, pattern(7, 512));
    bench.wait_idle();
    drop(new);
    eventually("nothing is kept", || bench.nexuses.is_empty());
}

#[test]
fn a_session_can_be_reinstated_by_its_own_id() {
    let bench = Bench::new();
    let mut old = Initiator::session(bench.address, TARGET);
    let mut new = Initiator::connect(bench.address);
    new.tsih = old.tsih;
    new.log_in(TARGET, &[]);
    assert_eq!(new.tsih, old.tsih);
    assert!(old.closed());
    assert_eq!(new.read(&[0; 6], 0).status, 0);
}

#[test]
fn a_logout_waits_for_writes_as_well() {
    let bench = Bench::new();
    let mut initiator = Initiator::session(bench.address, TARGET);
    assert_eq!(initiator.log_out(2), 2, "recovery is not supported");
    bench.devices[0].withhold();
    write(&mut initiator, 1);
    bench.devices[0].wait_withheld(1);
    let logout = LogoutRequest { immediate: true, cmd_sn: initiator.cmd_sn, ..LogoutRequest::default() };
    initiator.send(logout.encode(), &[], &[]);
    assert!(quiet(&mut initiator));
    bench.devices[0].release();
    assert_eq!(initiator.receive().header.opcode(), LogoutResponse::OPCODE);
    assert!(initiator.closed());
    bench.wait_idle();
}
