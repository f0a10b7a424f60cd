//! RFC 7143, what requests refer to: numbers outside the window, R2Ts, text exchanges, tasks to be aborted.

use super::clauses::{Peer, sense, solicited_only};
use super::*;
use crate::portal::pdu::*;

fn answer(r2t: &R2t) -> DataOut {
    let (task_tag, transfer_tag, lun) = (r2t.task_tag, r2t.transfer_tag, r2t.lun);
    DataOut { last: true, task_tag, transfer_tag, lun, ..DataOut::default() }
}

#[test]
fn r2ts_are_answered_in_their_order_13_19() {
    let mut peer = Peer::new(Negotiated { max_burst: 512, max_outstanding_r2t: 2, ..solicited_only() });
    let command = peer.write(4, 1024);
    let r2ts: Vec<_> =
        peer.send(command.encode(), &[], &[]).iter().map(|(header, _)| R2t::decode(header)).collect();
    assert_eq!(r2ts.len(), 2);
    let second = DataOut { offset: 512, ..answer(&r2ts[1]) };
    assert!(peer.send(second.encode(), &[], &[1; 512]).is_empty());
    assert_eq!(sense(&peer.send(answer(&r2ts[0]).encode(), &[], &[1; 512])), (0x0b, 0x47, 0x05));
    peer.goes_on();
}

#[test]
fn a_number_outside_the_window_or_there_twice_is_ignored_silently_4_2_2_1() {
    let mut peer = Peer::new(Negotiated::default());
    let command =
        |cmd_sn| ScsiCommand { last: true, attribute: 1, task_tag: cmd_sn, cmd_sn, ..ScsiCommand::default() };
    // What else is wrong with them makes no difference: no tag, an opcode that is not known, a text too long.
    let text = |cmd_sn| TextRequest {
        last: true,
        task_tag: 8,
        transfer_tag: NO_TAG,
        cmd_sn,
        ..TextRequest::default()
    };
    for cmd_sn in [0, 1 << 20, u32::MAX] {
        let logout = LogoutRequest { task_tag: NO_TAG, cmd_sn, ..LogoutRequest::default() };
        let mut unknown = Header::new(0x1c);
        unknown.set_word(24, cmd_sn);
        for header in [command(cmd_sn).encode(), logout.encode(), unknown, text(cmd_sn).encode()] {
            assert!(peer.send(header, &[], &[]).is_empty(), "{header:?}");
        }
        assert!(peer.send(text(cmd_sn).encode(), &[], b"SendTargets=\0").is_empty());
    }
    // Early, and once more: the first one counts, however often it is sent again.
    let early = NopOut { task_tag: 9, transfer_tag: NO_TAG, cmd_sn: 2, ..NopOut::default() };
    for _ in 0..100 {
        assert!(peer.send(early.encode(), &[], &[5; 8192]).is_empty());
    }
    assert!(peer.send(command(2).encode(), &[], &[]).is_empty());
    let answers = peer.send(command(1).encode(), &[], &[]);
    assert_eq!((answers.len(), answers[0].0.task_tag()), (1, 9));
    peer.simulated.answer();
    assert_eq!(peer.work()[0].0.task_tag(), 1);
    peer.cmd_sn = 3;
    peer.goes_on();
}

#[test]
fn a_reject_brings_the_whole_header_back_with_its_ahs_11_17() {
    let mut peer = Peer::new(Negotiated::default());
    let command = peer.command(4);
    let ahs = [0, 5, 9, 0, 1, 2, 3, 4];
    let answers = peer.send(command.encode(), &ahs, &[]);
    assert_eq!(Reject::decode(&answers[0].0).reason, Reject::INVALID_FIELD);
    assert_eq!((answers[0].1.len(), &answers[0].1[HEADER..]), (HEADER + 8, &ahs[..]));
    // Not more than the initiator takes (13.12).
    let mut peer = Peer::new(Negotiated { max_send_segment: 512, ..Negotiated::default() });
    let command = peer.command(4);
    let answers = peer.send(command.encode(), &[9; 1020], &[]);
    assert_eq!(answers[0].1.len(), 512);
    peer.goes_on();
}

#[test]
fn a_text_exchange_that_is_not_under_way_cannot_go_on_11_10_4() {
    let mut peer = Peer::new(Negotiated::default());
    for transfer_tag in [0, 1, 0x1234] {
        let text =
            TextRequest { immediate: true, last: true, task_tag: 8, transfer_tag, ..TextRequest::default() };
        assert_eq!(peer.rejected(text.encode(), &[], &[]), Reject::PROTOCOL);
    }
    peer.goes_on();
}

#[test]
fn abort_task_with_another_commands_number_is_rejected_11_5_5() {
    let mut peer = Peer::new(Negotiated::default());
    let command = peer.write(4, 512);
    assert!(peer.send(command.encode(), &[], &[1; 512]).is_empty());
    let abort = |ref_cmd_sn| TaskManagementRequest {
        immediate: true,
        function: 1,
        task_tag: 9,
        referenced_tag: 4,
        cmd_sn: command.cmd_sn + 1,
        ref_cmd_sn,
        ..TaskManagementRequest::default()
    };
    let response = |answers: &[(Header, Vec<u8>)]| TaskManagementResponse::decode(&answers[0].0).response;
    assert_eq!(response(&peer.send(abort(command.cmd_sn + 7).encode(), &[], &[])), 255);
    assert!(peer.send(abort(command.cmd_sn).encode(), &[], &[]).is_empty(), "the write is waited for");
    peer.simulated.answer();
    assert_eq!(response(&peer.work()), 0);
    peer.goes_on();
}
