//! RFC 7143, sequences: numbers of commands and of data, and what is out of order (sections 4.2.2, 7.8, 7.9 and 11.7).

use super::clauses::{Peer, sense, solicited_only};
use super::*;
use crate::portal::pdu::*;

/// What a command is asked for first, and the answer to that: 512 bytes in one PDU.
fn asked(peer: &mut Peer, len: u32) -> DataOut {
    let command = ScsiCommand { lun: 0, ..peer.write(4, len) };
    let answers = peer.send(command.encode(), &[], &[]);
    assert_eq!(answers[0].0.opcode(), R2t::OPCODE);
    let r2t = R2t::decode(&answers[0].0);
    DataOut {
        last: true,
        task_tag: 4,
        transfer_tag: r2t.transfer_tag,
        offset: r2t.offset,
        ..DataOut::default()
    }
}

/// Lost data (sections 7.8 and 7.9): Protocol Service CRC error, when all that was asked for has come.
const LOST: (u8, u8, u8) = (0x0b, 0x47, 0x05);

#[test]
fn data_with_a_wrong_number_is_lost_data_11_7_5() {
    for data_sn in [1, 7, u32::MAX] {
        let mut peer = Peer::new(solicited_only());
        let data = DataOut { data_sn, ..asked(&mut peer, 512) };
        assert_eq!(sense(&peer.send(data.encode(), &[], &[1; 512])), LOST);
        peer.goes_on();
    }
}

#[test]
fn a_number_that_is_left_out_or_comes_twice_within_a_sequence_is_lost_data_11_7_5() {
    for second in [0, 2] {
        let mut peer = Peer::new(solicited_only());
        let first = DataOut { last: false, ..asked(&mut peer, 1024) };
        assert!(peer.send(first.encode(), &[], &[1; 512]).is_empty());
        let last = DataOut { last: true, data_sn: second, offset: 512, ..first };
        assert_eq!(sense(&peer.send(last.encode(), &[], &[1; 512])), LOST);
        peer.goes_on();
    }
}

#[test]
fn data_at_a_wrong_offset_is_lost_data_11_7_6() {
    for offset in [4, 512, u32::MAX - 511] {
        let mut peer = Peer::new(solicited_only());
        let data = DataOut { offset, ..asked(&mut peer, 512) };
        assert_eq!(sense(&peer.send(data.encode(), &[], &[1; 512])), LOST);
        peer.goes_on();
    }
}

#[test]
fn data_for_another_lun_than_its_command_is_lost_data_11_7() {
    let mut peer = Peer::new(solicited_only());
    let data = DataOut { lun: 1 << 48, ..asked(&mut peer, 512) };
    assert_eq!(sense(&peer.send(data.encode(), &[], &[1; 512])), LOST);
    peer.goes_on();
}

#[test]
fn more_or_less_data_than_was_asked_for_is_the_wrong_amount_11_4_7_2() {
    for len in [508, 516, 1024] {
        let mut peer = Peer::new(solicited_only());
        let data = asked(&mut peer, 512);
        assert_eq!(sense(&peer.send(data.encode(), &[], &vec![1; len])), (0x0b, 0x0c, 0x0d));
        peer.goes_on();
    }
}

#[test]
fn a_command_outside_the_window_is_ignored_silently_4_2_2_1() {
    let mut peer = Peer::new(Negotiated::default());
    // Taken before, just beyond MaxCmdSN, and half the numbers away.
    for cmd_sn in [0, u32::MAX, 1 + 64, 1 + 4096, 1 + (1 << 31)] {
        let command = ScsiCommand { last: true, attribute: 1, task_tag: 9, cmd_sn, ..ScsiCommand::default() };
        assert!(peer.send(command.encode(), &[], &[]).is_empty(), "{cmd_sn}");
        let ping = NopOut { task_tag: 9, transfer_tag: NO_TAG, cmd_sn, ..NopOut::default() };
        assert!(peer.send(ping.encode(), &[], b"x").is_empty(), "{cmd_sn}");
    }
    peer.goes_on();
}

#[test]
fn duplicates_of_what_waits_for_its_turn_are_ignored_however_many_come_4_2_2_1() {
    let mut peer = Peer::new(Negotiated::default());
    // More of them than may wait, were they kept.
    for _ in 0..400 {
        let ping = NopOut { task_tag: 9, transfer_tag: NO_TAG, cmd_sn: 2, ..NopOut::default() };
        assert!(peer.send(ping.encode(), &[], &[7; 4096]).is_empty());
    }
    let first = NopOut { task_tag: 8, transfer_tag: NO_TAG, cmd_sn: 1, ..NopOut::default() };
    let answers = peer.send(first.encode(), &[], b"first");
    let tags: Vec<u32> = answers.iter().map(|(header, _)| header.task_tag()).collect();
    assert_eq!(tags, [8, 9], "in order, and each once");
    peer.command(0);
    peer.command(0);
    peer.goes_on();
}

#[test]
fn commands_that_overtake_others_are_carried_out_in_the_order_of_their_numbers_4_2_2_1() {
    let mut peer = Peer::new(Negotiated::default());
    let ping = |cmd_sn| NopOut { task_tag: cmd_sn, transfer_tag: NO_TAG, cmd_sn, ..NopOut::default() };
    for cmd_sn in [4, 2, 3] {
        assert!(peer.send(ping(cmd_sn).encode(), &[], b"x").is_empty());
    }
    let answers = peer.send(ping(1).encode(), &[], b"x");
    let tags: Vec<u32> = answers.iter().map(|(header, _)| header.task_tag()).collect();
    assert_eq!(tags, [1, 2, 3, 4]);
    (0..4).for_each(|_| _ = peer.command(0));
    peer.goes_on();
}
