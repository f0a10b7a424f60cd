//! Input that breaks the protocol: each gets the protocol's own answer or loses its connection; others do not notice.

use std::io::Write;

use rbdgate::portal::pdu::*;

use crate::kit::initiator::Initiator;
use crate::kit::{Bench, TARGET, eventually, pattern, read10, write10};

fn rejected(initiator: &mut Initiator) -> u8 {
    let pdu = initiator.receive();
    assert_eq!(pdu.header.opcode(), Reject::OPCODE, "{pdu:?}");
    assert_eq!(pdu.data.len(), HEADER);
    Reject::decode(&pdu.header).reason
}

#[test]
fn opcodes_that_do_not_exist_are_rejected_and_the_session_goes_on() {
    let bench = Bench::new();
    let mut initiator = Initiator::session(bench.address, TARGET);
    for opcode in [0x07, 0x1c, 0x20, 0x25, 0x3f, 0x03] {
        let mut header = Header::new(opcode | 0x40);
        header.set_word(24, initiator.cmd_sn);
        initiator.send(header, &[], b"whatever");
        // RFC 7143 section 6.3: a login request has no place after the login.
        let reason = if opcode == 0x03 { Reject::PROTOCOL } else { Reject::UNSUPPORTED };
        assert_eq!(rejected(&mut initiator), reason, "{opcode:02x}");
    }
    initiator.send(Snack { begin: 1, run: 2, ..Snack::default() }.encode(), &[], &[]);
    assert_eq!(rejected(&mut initiator), Reject::SNACK);
    assert_eq!(initiator.read(&[0; 6], 0).status, 0);
    assert_eq!(bench.server().stats().rejects, 7);
}

#[test]
fn a_tag_in_use_is_a_task_in_progress() {
    let bench = Bench::new();
    let mut initiator = Initiator::session(bench.address, TARGET);
    bench.devices[0].withhold();
    let first = initiator.command(&[0; 6], false, false, 0);
    initiator.send(first.encode(), &[], &[]);
    let again = ScsiCommand { task_tag: first.task_tag, ..initiator.command(&[0; 6], false, false, 0) };
    initiator.send(again.encode(), &[], &[]);
    assert_eq!(rejected(&mut initiator), Reject::TASK_IN_PROGRESS);
    bench.devices[0].release();
    assert_eq!(initiator.finish(first.task_tag, &[]).status, 0);
    assert_eq!(initiator.read(&[0; 6], 0).status, 0);
}

#[test]
fn more_immediate_commands_than_are_taken_are_rejected() {
    let bench = Bench::new();
    let mut initiator = Initiator::session(bench.address, TARGET);
    bench.devices[0].withhold();
    for number in 0..17 {
        let mut command = initiator.command(&[0; 6], false, false, 0);
        (command.immediate, initiator.cmd_sn) = (true, command.cmd_sn);
        initiator.send(command.encode(), &[], &[]);
        if number == 16 {
            assert_eq!(rejected(&mut initiator), Reject::TOO_MANY_IMMEDIATE);
        }
    }
    bench.devices[0].release();
    (0..16).for_each(|_| assert_eq!(initiator.receive().header.opcode(), ScsiResponse::OPCODE));
}

#[test]
fn a_segment_longer_than_declared_ends_the_connection_and_others_go_on() {
    let bench = Bench::new();
    let mut good = Initiator::session(bench.address, TARGET);
    let mut bad = Initiator::connect(bench.address);
    bad.isid[5] = 7;
    bad.log_in(TARGET, &[]);
    let mut header = bad.command(&write10(0, 8), false, true, 1 << 24).encode();
    header.set_data_len(0x00ff_ffff);
    bad.stream.write_all(&header.0).unwrap();
    assert!(bad.closed());
    assert_eq!(good.read(&[0; 6], 0).status, 0);
    bench.wait_idle();
}

#[test]
fn a_bad_header_digest_ends_the_connection() {
    let bench = Bench::new();
    let mut initiator = Initiator::session_with(bench.address, TARGET, &[("HeaderDigest", "CRC32C")]);
    let command = initiator.command(&[0; 6], false, false, 0);
    let mut bytes = initiator.frame(command.encode(), &[], &[]);
    bytes[20] ^= 1;
    initiator.stream.write_all(&bytes).unwrap();
    assert!(initiator.closed());
    eventually("it is counted", || bench.server().stats().digest_errors == 1);
}

#[test]
fn data_for_nothing_is_ignored_and_unasked_data_for_something_is_rejected() {
    let bench = Bench::new();
    let mut initiator = Initiator::session(bench.address, TARGET);
    let stray = DataOut { last: true, task_tag: 0x7777, transfer_tag: 0x1234, ..DataOut::default() };
    initiator.send(stray.encode(), &[], &[1; 100]);
    bench.devices[0].withhold();
    let command = initiator.command(&write10(0, 1), false, true, 512);
    initiator.send(command.encode(), &[], &[2; 512]);
    bench.devices[0].wait_withheld(1);
    // The command is in the ring: its blocks are not this end's any more.
    let late = DataOut { last: true, task_tag: command.task_tag, transfer_tag: NO_TAG, ..DataOut::default() };
    initiator.send(late.encode(), &[], &[3; 512]);
    assert_eq!(rejected(&mut initiator), Reject::PROTOCOL);
    let solicited = DataOut { transfer_tag: 5, ..late };
    initiator.send(solicited.encode(), &[], &[4; 512]);
    assert_eq!(rejected(&mut initiator), Reject::PROTOCOL);
    bench.devices[0].release();
    assert_eq!(initiator.finish(command.task_tag, &[]).status, 0);
    assert_eq!(initiator.read(&read10(0, 1), 512).data, vec![2; 512]);
}

#[test]
fn what_is_no_login_before_the_login_is_dropped_without_a_word() {
    let bench = Bench::new();
    let mut oversized = LoginRequest::default().encode();
    oversized.set_data_len(8193);
    let mut with_ahs = LoginRequest::default().encode();
    with_ahs.set_ahs_len(4);
    let http = *b"GET / HTTP/1.1\r\nHost: 127.0.0.1:3260\r\nAccept: */*";
    let mut http_header = Header::new(0);
    http_header.0.copy_from_slice(&http[..HEADER]);
    for header in
        [NopOut::default().encode(), ScsiCommand::default().encode(), oversized, with_ahs, http_header]
    {
        let mut initiator = Initiator::connect(bench.address);
        initiator.stream.write_all(&header.0).unwrap();
        assert!(initiator.try_receive().is_none());
    }
    eventually("they are counted", || bench.server().stats().logins_unfinished == 5);
    eventually("they are gone", || bench.server().stats().connections == 0);
}

#[test]
fn text_that_is_malformed_or_endless_is_rejected() {
    let bench = Bench::new();
    let mut initiator = Initiator::session(bench.address, TARGET);
    let request = |initiator: &mut Initiator, more: bool, transfer_tag: u32, text: &[u8]| {
        let request = TextRequest {
            immediate: true,
            last: !more,
            more,
            task_tag: 0x55,
            transfer_tag,
            cmd_sn: initiator.cmd_sn,
            ..TextRequest::default()
        };
        initiator.send(request.encode(), &[], text);
    };
    request(&mut initiator, false, NO_TAG, b"no equals sign\0");
    assert_eq!(rejected(&mut initiator), Reject::PROTOCOL);
    request(&mut initiator, false, 0x1234, b"");
    assert_eq!(rejected(&mut initiator), Reject::PROTOCOL);
    let mut transfer_tag = NO_TAG;
    let mut taken = 0;
    let refused = loop {
        request(&mut initiator, true, transfer_tag, &[b'a'; 8000]);
        let pdu = initiator.receive();
        if pdu.header.opcode() == Reject::OPCODE {
            break Reject::decode(&pdu.header).reason;
        }
        transfer_tag = TextResponse::decode(&pdu.header).transfer_tag;
        taken += 8000;
        assert!(taken < 100_000, "text without an end was taken");
    };
    assert_eq!(refused, Reject::PROTOCOL);
    request(&mut initiator, false, NO_TAG, &[b'a'; 100_000]);
    assert_eq!(rejected(&mut initiator), Reject::LONG_OPERATION);
    assert_eq!(initiator.read(&[0; 6], 0).status, 0);
}

#[test]
fn a_ping_is_echoed_as_far_as_the_initiator_takes_it() {
    let bench = Bench::new();
    let mut initiator =
        Initiator::session_with(bench.address, TARGET, &[("MaxRecvDataSegmentLength", "1024")]);
    let data = pattern(1, 3001);
    assert_eq!(initiator.ping(&data), data[..1024]);
    assert!(initiator.ping(&[]).is_empty());
    // Declared anew in the full feature phase.
    assert!(initiator.text("MaxRecvDataSegmentLength=4096\0").is_empty());
    assert_eq!(initiator.ping(&data), data);
    let answers = initiator.text("InitialR2T=Yes\0X-other=1\0");
    assert_eq!(
        answers,
        [("InitialR2T".into(), "Reject".into()), ("X-other".into(), "NotUnderstood".into())]
            as [(String, String); 2]
    );
}
