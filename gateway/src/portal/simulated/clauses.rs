//! RFC 7143 clause by clause, against one connection in the full feature phase.

use super::*;
use crate::portal::pdu::*;

/// A connection and what it last answered.
pub(super) struct Peer {
    pub(super) simulated: Simulated,
    digests: bool,
    pub(super) cmd_sn: u32,
}

impl Peer {
    pub(super) fn new(agreed: Negotiated) -> Self {
        let digests = agreed.data_digest;
        Self { simulated: Simulated::new(agreed, 4096), digests, cmd_sn: 1 }
    }

    /// A command with the next number.
    pub(super) fn command(&mut self, task_tag: u32) -> ScsiCommand {
        let cmd_sn = self.cmd_sn;
        self.cmd_sn += 1;
        ScsiCommand { last: true, attribute: 1, task_tag, cmd_sn, ..ScsiCommand::default() }
    }

    pub(super) fn write(&mut self, task_tag: u32, len: u32) -> ScsiCommand {
        ScsiCommand { write: true, expected_len: len, ..self.command(task_tag) }
    }

    /// Sends a PDU; what comes back.
    pub(super) fn send(&mut self, mut header: Header, ahs: &[u8], data: &[u8]) -> Vec<(Header, Vec<u8>)> {
        header.set_data_len(data.len());
        header.set_ahs_len(ahs.len());
        let mut bytes = header.0.to_vec();
        bytes.extend_from_slice(ahs);
        let start = bytes.len();
        bytes.extend_from_slice(data);
        bytes.resize(bytes.len() + padding(data.len()), 0);
        if self.digests && !data.is_empty() {
            bytes.extend(crc32c::crc32c(&bytes[start..]).to_le_bytes());
        }
        self.feed(&bytes)
    }

    fn feed(&mut self, bytes: &[u8]) -> Vec<(Header, Vec<u8>)> {
        self.simulated.feed(bytes);
        self.work()
    }

    pub(super) fn work(&mut self) -> Vec<(Header, Vec<u8>)> {
        // What ends in a turn can let go of what waits for it only after the turn.
        self.simulated.work();
        self.simulated.work();
        let output = self.simulated.take_output();
        let (mut rest, mut pdus) = (&output[..], Vec::new());
        while let Some((header, next)) = rest.split_first_chunk::<HEADER>() {
            let header = Header(*header);
            let len = header.data_len();
            pdus.push((header, next[..len].to_vec()));
            let digest = if self.digests && len > 0 { 4 } else { 0 };
            rest = &next[len + padding(len) + digest..];
        }
        pdus
    }

    /// Sends a PDU that is rejected, and nothing else: the reason.
    pub(super) fn rejected(&mut self, header: Header, ahs: &[u8], data: &[u8]) -> u8 {
        let answer = self.send(header, ahs, data);
        assert_eq!(answer.len(), 1, "{answer:?}");
        let bad = &answer[0].1;
        assert_eq!((answer[0].0.opcode(), &bad[16..20]), (Reject::OPCODE, &header.0[16..20]));
        // Section 11.17: the complete header.
        assert_eq!(&bad[HEADER..], ahs);
        Reject::decode(&answer[0].0).reason
    }

    /// That the next command is the next in order, and served.
    pub(super) fn goes_on(mut self) {
        let command = self.command(0x7777);
        assert!(
            self.send(command.encode(), &[], &[]).iter().all(|(header, _)| header.opcode() != Reject::OPCODE)
        );
        self.simulated.answer();
        let answers = self.work();
        let own = answers.iter().find(|(header, _)| header.task_tag() == 0x7777);
        assert!(own.is_some_and(|(header, _)| ScsiResponse::decode(header).status == 0), "{answers:?}");
        self.simulated.finish();
    }
}

/// Key, code and qualifier of the only answer.
pub(super) fn sense(answers: &[(Header, Vec<u8>)]) -> (u8, u8, u8) {
    assert_eq!(answers.len(), 1, "{answers:?}");
    assert_eq!(
        (answers[0].0.opcode(), ScsiResponse::decode(&answers[0].0).status),
        (ScsiResponse::OPCODE, 2)
    );
    let sense = &answers[0].1[2..];
    (sense[2], sense[12], sense[13])
}

pub(super) fn solicited_only() -> Negotiated {
    Negotiated { immediate_data: false, ..Negotiated::default() }
}

#[test]
fn additional_headers_belong_to_commands_alone_11_2_2() {
    let mut peer = Peer::new(Negotiated::default());
    let ping = NopOut { immediate: true, task_tag: 1, transfer_tag: NO_TAG, ..NopOut::default() };
    assert_eq!(peer.rejected(ping.encode(), &[0, 5, 1, 0, 1, 2, 3, 4], &[]), Reject::INVALID_FIELD);
    peer.goes_on();
}

#[test]
fn a_bidirectional_command_is_refused_with_the_residual_of_its_read_part_11_4_5() {
    let mut peer = Peer::new(Negotiated::default());
    let command = ScsiCommand { read: true, ..peer.write(5, 512) };
    // Extended CDB and read length, in any order (11.2.2.2, 11.2.2.4).
    let ahs = [0, 5, 2, 0, 0, 0, 4, 0, 0, 5, 1, 0, 9, 9, 9, 9];
    let answers = peer.send(command.encode(), &ahs, &[]);
    let response = ScsiResponse::decode(&answers[0].0);
    assert!(response.bidirectional_underflow && !response.bidirectional_overflow);
    assert_eq!((response.bidirectional_residual, response.underflow, response.residual), (1024, true, 512));
    assert_eq!(sense(&answers), (5, 0x24, 0));
    // A read length twice, or for a command that only writes.
    let command = ScsiCommand { read: true, ..peer.write(6, 512) };
    let twice = [0, 5, 2, 0, 0, 0, 4, 0, 0, 5, 2, 0, 0, 0, 4, 0];
    assert_eq!(peer.rejected(command.encode(), &twice, &[]), Reject::INVALID_FIELD);
    let command = peer.write(7, 512);
    assert_eq!(peer.rejected(command.encode(), &twice[..8], &[]), Reject::INVALID_FIELD);
    peer.goes_on();
}

#[test]
fn the_reserved_tag_names_no_request_11_2_1() {
    let mut peer = Peer::new(Negotiated::default());
    let command = peer.command(NO_TAG);
    assert_eq!(peer.rejected(command.encode(), &[], &[]), Reject::INVALID_FIELD);
    let (immediate, task_tag) = (true, NO_TAG);
    let management =
        TaskManagementRequest { immediate, task_tag, function: 5, ..TaskManagementRequest::default() };
    assert_eq!(peer.rejected(management.encode(), &[], &[]), Reject::INVALID_FIELD);
    let logout = LogoutRequest { immediate, task_tag, ..LogoutRequest::default() };
    assert_eq!(peer.rejected(logout.encode(), &[], &[]), Reject::INVALID_FIELD);
    // 11.18.1: a NOP-Out without a tag is immediate; it uses no number.
    let ping = NopOut { task_tag, transfer_tag: NO_TAG, cmd_sn: peer.cmd_sn, ..NopOut::default() };
    assert_eq!(peer.rejected(ping.encode(), &[], &[]), Reject::PROTOCOL);
    peer.goes_on();
}

#[test]
fn a_login_request_after_the_login_is_a_protocol_error_6_3() {
    let mut peer = Peer::new(Negotiated::default());
    let login = LoginRequest { task_tag: 3, ..LoginRequest::default() };
    assert_eq!(peer.rejected(login.encode(), &[], &[]), Reject::PROTOCOL);
    peer.goes_on();
}

#[test]
fn what_only_targets_send_is_rejected_and_uses_no_number_11_17() {
    let mut peer = Peer::new(Negotiated::default());
    for opcode in [0x20, 0x25, 0x31, 0x3f] {
        let mut header = Header::new(opcode);
        header.set_word(24, peer.cmd_sn);
        assert_eq!(peer.rejected(header, &[], b"data"), Reject::UNSUPPORTED);
    }
    peer.goes_on();
}

#[test]
fn data_for_an_r2t_that_was_never_sent_is_rejected_11_7() {
    let mut peer = Peer::new(solicited_only());
    let command = peer.write(4, 512);
    let r2t = R2t::decode(&peer.send(command.encode(), &[], &[])[0].0);
    let data = DataOut { last: true, task_tag: 4, transfer_tag: r2t.transfer_tag ^ 1, ..DataOut::default() };
    assert_eq!(peer.rejected(data.encode(), &[], &[1; 512]), Reject::PROTOCOL);
    let data = DataOut { transfer_tag: r2t.transfer_tag, ..data };
    assert!(peer.send(data.encode(), &[], &[1; 512]).is_empty());
    peer.simulated.answer();
    assert_eq!(ScsiResponse::decode(&peer.work()[0].0).status, 0);
    peer.goes_on();
}

#[test]
fn unsolicited_data_of_a_long_command_is_the_first_burst_exactly_11_4_7_2() {
    let agreed = Negotiated { initial_r2t: false, first_burst: 2048, ..Negotiated::default() };
    for len in [1024usize, 1536, 2048] {
        let mut peer = Peer::new(agreed.clone());
        let command = ScsiCommand { last: false, ..peer.write(4, 8192) };
        assert!(peer.send(command.encode(), &[], &[1; 512]).is_empty());
        let (task_tag, transfer_tag, offset) = (4, NO_TAG, 512);
        let data = DataOut { last: true, task_tag, transfer_tag, offset, ..DataOut::default() };
        let answers = peer.send(data.encode(), &[], &vec![1; len - 512]);
        if len == 2048 {
            assert_eq!(R2t::decode(&answers[0].0).offset, 2048);
            assert_eq!(answers[0].0.opcode(), R2t::OPCODE);
        } else {
            assert_eq!(sense(&answers), (0x0b, 0x0c, 0x0d));
            peer.goes_on();
        }
    }
}

#[test]
fn a_command_that_writes_nothing_is_answered_at_once_whatever_its_f_bit_11_3_1() {
    let mut peer = Peer::new(Negotiated::default());
    let command = ScsiCommand { last: false, ..peer.command(4) };
    assert_eq!(sense(&peer.send(command.encode(), &[], &[])), (0x0b, 0x0c, 0x0c));
    peer.goes_on();
}

#[test]
fn a_wrong_data_digest_is_rejected_even_when_the_data_goes_nowhere_7_8() {
    let mut peer = Peer::new(Negotiated { data_digest: true, ..Negotiated::default() });
    let mut stray = DataOut { last: true, task_tag: 99, transfer_tag: 5, ..DataOut::default() }.encode();
    stray.set_data_len(4);
    let mut bytes = stray.0.to_vec();
    bytes.extend(*b"data");
    let good = crc32c::crc32c(b"data");
    bytes.extend(good.to_le_bytes());
    assert!(peer.feed(&bytes).is_empty(), "data of a command that has ended is thrown away");
    bytes[HEADER] ^= 1;
    let answers = peer.feed(&bytes);
    assert_eq!(Reject::decode(&answers[0].0).reason, Reject::DATA_DIGEST);
    peer.goes_on();
}

#[test]
fn a_ping_longer_than_is_echoed_is_rejected_11_18() {
    let mut peer = Peer::new(Negotiated { max_recv_segment: 65_536, ..Negotiated::default() });
    let ping = NopOut { immediate: true, task_tag: 1, transfer_tag: NO_TAG, ..NopOut::default() };
    assert_eq!(peer.rejected(ping.encode(), &[], &[1; 20_000]), Reject::LONG_OPERATION);
    peer.goes_on();
}

#[test]
fn reserved_logout_reasons_are_invalid_and_another_connection_is_not_found_11_14() {
    let mut peer = Peer::new(Negotiated::default());
    let logout = LogoutRequest { immediate: true, reason: 3, task_tag: 1, ..LogoutRequest::default() };
    assert_eq!(peer.rejected(logout.encode(), &[], &[]), Reject::INVALID_FIELD);
    let response = |peer: &mut Peer, reason, cid| {
        let logout = LogoutRequest { reason, cid, ..logout };
        LogoutResponse::decode(&peer.send(logout.encode(), &[], &[])[0].0).response
    };
    // 11.15.1: 1 is "CID not found", 2 "connection recovery is not supported".
    assert_eq!((response(&mut peer, 1, 7), response(&mut peer, 2, 0)), (1, 2));
    peer.goes_on();
}

#[test]
fn commands_after_a_logout_request_wait_for_it_in_vain_11_17_1() {
    let mut peer = Peer::new(Negotiated::default());
    let command = peer.write(4, 512);
    assert!(peer.send(command.encode(), &[], &[1; 512]).is_empty());
    let logout = LogoutRequest { immediate: true, task_tag: 1, ..LogoutRequest::default() };
    assert!(peer.send(logout.encode(), &[], &[]).is_empty(), "the write can still change the medium");
    let command = peer.command(5);
    assert_eq!(peer.rejected(command.encode(), &[], &[]), Reject::WAITING_FOR_LOGOUT);
    peer.simulated.answer();
    let answers = peer.work();
    assert_eq!((answers[0].0.opcode(), answers.len()), (LogoutResponse::OPCODE, 1));
    peer.simulated.finish();
}

#[test]
fn task_management_functions_that_wait_are_bounded() {
    let mut peer = Peer::new(Negotiated::default());
    let command = peer.write(4, 512);
    assert!(peer.send(command.encode(), &[], &[1; 512]).is_empty());
    let reset = TaskManagementRequest {
        immediate: true,
        function: 5,
        task_tag: 9,
        ..TaskManagementRequest::default()
    };
    for _ in 0..64 {
        assert!(peer.send(reset.encode(), &[], &[]).is_empty());
    }
    assert_eq!(peer.rejected(reset.encode(), &[], &[]), Reject::TOO_MANY_IMMEDIATE);
    peer.simulated.answer();
    assert_eq!(peer.work().len(), 64);
    peer.goes_on();
}

#[test]
fn a_key_twice_in_one_text_is_a_protocol_error_6_2() {
    let mut peer = Peer::new(Negotiated::default());
    let (immediate, last, task_tag) = (true, true, 3);
    let text = TextRequest { immediate, last, task_tag, transfer_tag: NO_TAG, ..TextRequest::default() };
    let twice = b"SendTargets=\0SendTargets=\0";
    assert_eq!(peer.rejected(text.encode(), &[], twice), Reject::PROTOCOL);
    peer.goes_on();
}

#[test]
fn a_connection_that_is_dropped_says_so_11_9_1() {
    let mut peer = Peer::new(Negotiated::default());
    let inbox = Arc::clone(&peer.simulated.connection.as_ref().unwrap().inbox);
    inbox.post(crate::portal::inbox::Event::Close { end: End::Revoked, hold: None });
    let message = AsyncMessage::decode(&peer.work()[0].0);
    // Event 3: all connections of the session; Parameter2 is Time2Wait.
    assert_eq!((message.event, message.parameter2, message.task_tag), (3, 2, NO_TAG));
    assert_eq!(peer.simulated.end(), Some(End::Revoked));
    peer.simulated.finish();
}

#[test]
fn replaced_ports_are_let_go_when_their_commands_have_ended() {
    let mut peer = Peer::new(Negotiated::default());
    let command = peer.write(4, 512);
    assert!(peer.send(command.encode(), &[], &[1; 512]).is_empty());
    let connection = peer.simulated.connection.as_mut().unwrap();
    let inbox = Arc::clone(&connection.inbox);
    let target =
        Target { luns: BTreeMap::new(), ..Target::clone(connection.session.target.as_ref().unwrap()) };
    connection.luns.retarget(&target, &View::default(), &inbox);
    connection.session.target = None;
    let port = Arc::downgrade(&peer.simulated.consumers[0].1);
    let held = |port: &std::sync::Weak<Port>| port.strong_count();
    let before = held(&port);
    peer.simulated.pass(Duration::from_secs(2));
    peer.work();
    assert_eq!(held(&port), before, "its command is still in the ring");
    peer.simulated.answer();
    peer.work();
    peer.simulated.pass(Duration::from_secs(2));
    peer.work();
    assert!(held(&port) < before);
    peer.simulated.finish();
}
