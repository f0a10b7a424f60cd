//! What becomes of the commands of one nexus when another ends them (SAM-5, TAS), over real sessions and lanes.

use std::sync::Arc;

use rbdgate::disk::Request;
use rbdgate::disk::fault::{Fault, Settings, Verdict};
use rbdgate::disk::memory::Memory;
use rbdgate::portal::pdu::{ScsiCommand, TaskManagementResponse};

use crate::kit::initiator::Initiator;
use crate::kit::{Bench, Setup, TARGET, eventually, pattern, read10, write10};

const CLEAR_TASK_SET: u8 = 4;
const LUN_RESET: u8 = 5;
const WARM_RESET: u8 = 6;
const TASK_ABORTED: u8 = 0x40;

/// A LUN whose disk keeps writes, with two initiator ports that have heard of the power-on.
fn bench() -> (Bench, Arc<Fault>, Initiator, Initiator) {
    let fault = Arc::new(Fault::new(Arc::new(Memory::new(8 << 20, 512)), Settings::default()).unwrap());
    let setup = Setup { lanes: true, disk: Some(Arc::clone(&fault) as _), ..Setup::default() };
    let bench = Bench::with(setup);
    let [one, two] = [1, 2].map(|number| {
        let mut initiator = Initiator::connect(bench.address);
        initiator.isid[5] = number;
        initiator.log_in(TARGET, &[]);
        assert_eq!(initiator.read(&[0; 6], 0).sense(), Some((6, 0x29, 0)));
        initiator
    });
    fault.set_rule(Some(Box::new(|request| match request {
        Request::Write { .. } => Verdict::Withhold,
        _ => Verdict::Pass,
    })));
    (bench, fault, one, two)
}

fn write(initiator: &mut Initiator) -> ScsiCommand {
    let command = initiator.command(&write10(9, 1), false, true, 512);
    initiator.send(command.encode(), &[], &pattern(1, 512));
    command
}

/// A command whose data the target has asked for and not got.
fn half_a_write(initiator: &mut Initiator) -> ScsiCommand {
    let command = initiator.command(&write10(99, 600), false, true, 600 * 512);
    let mut begun = command;
    begun.last = true;
    initiator.send(begun.encode(), &[], &[]);
    assert_eq!(initiator.receive().header.opcode(), rbdgate::portal::pdu::R2t::OPCODE);
    command
}

/// The target's answer to a function that was sent.
fn answered(initiator: &mut Initiator) -> u8 {
    TaskManagementResponse::decode(&initiator.receive().header).response
}

#[test]
fn commands_that_another_nexus_ends_are_answered_task_aborted() {
    // SAM-5, TAS; control mode page. The function is answered when they can no longer change the medium.
    for function in [CLEAR_TASK_SET, LUN_RESET, WARM_RESET] {
        let (_bench, fault, mut one, mut two) = bench();
        let unfinished = half_a_write(&mut two);
        let at_disk = write(&mut two);
        eventually("it is at the disk", || fault.withheld() == 1);
        one.send_management(function, &ScsiCommand::default());
        assert_eq!(two.finish(unfinished.task_tag, &[]).status, TASK_ABORTED, "{function}");
        // Answered behind the notice, which the lane has then seen.
        assert_eq!(one.read(&[0x12, 0, 0, 0, 36, 0], 36).status, 0);
        fault.set_rule(None);
        fault.release();
        assert_eq!(two.finish(at_disk.task_tag, &[]).status, TASK_ABORTED, "{function}");
        assert_eq!(answered(&mut one), 0);
        // SAM-5, logical unit reset and hard reset: every nexus is told.
        let told = match function {
            LUN_RESET => Some((6, 0x29, 3)),
            WARM_RESET => Some((6, 0x29, 2)),
            _ => None,
        };
        for initiator in [&mut one, &mut two] {
            assert_eq!(initiator.read(&[0; 6], 0).sense(), told, "{function}");
            assert_eq!(initiator.read(&read10(9, 1), 512).status, 0);
        }
    }
}

#[test]
fn with_tas_zero_they_are_not_answered_and_the_nexus_is_told() {
    // SAM-5, CLEAR TASK SET with TAS zero: COMMANDS CLEARED BY ANOTHER INITIATOR.
    let (_bench, fault, mut one, mut two) = bench();
    // MODE SELECT (6), control mode page: TAS off.
    let page = one.read(&[0x1A, 0x08, 0x0A, 0, 255, 0], 255).data;
    let mut list = page;
    (list[0], list[2], list[4 + 5]) = (0, 0, 0);
    let select = [0x15, 0x10, 0, 0, list.len() as u8, 0];
    let answer = one.write(&select, &list, list.len());
    assert_eq!(answer.status, 0, "{answer:02x?}");
    assert_eq!(two.read(&[0; 6], 0).sense(), Some((6, 0x2A, 1)));
    half_a_write(&mut two);
    write(&mut two);
    eventually("it is at the disk", || fault.withheld() == 1);
    one.send_management(CLEAR_TASK_SET, &ScsiCommand::default());
    // Answered behind the notice, which the lane has then seen.
    assert_eq!(one.read(&[0x12, 0, 0, 0, 36, 0], 36).status, 0);
    fault.set_rule(None);
    fault.release();
    assert_eq!(answered(&mut one), 0);
    // The next thing that it hears is the answer to its next command.
    assert_eq!(two.read(&[0; 6], 0).sense(), Some((6, 0x2F, 0)));
    assert_eq!(two.read(&[0; 6], 0).status, 0);
    assert_eq!(one.read(&[0; 6], 0).status, 0);
}
