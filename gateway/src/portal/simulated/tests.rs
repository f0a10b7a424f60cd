//! The core against anything a peer may send: it answers, waits or ends, and lets go of everything.

use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;

use super::*;
use crate::portal::inbox::{Event, Hold};
use crate::portal::pdu::*;

/// One thing that happens to a connection.
#[derive(Clone, Debug)]
enum Step {
    /// A PDU: opcode with I bit, flags, tags from a small range, lengths, and its data segment.
    Pdu {
        header: Box<[u8; HEADER]>,
        tame: bool,
        data: usize,
    },
    Bytes(Vec<u8>),
    Answer,
    Pass(u64),
    Room(usize),
    HangUp,
}

fn step() -> impl Strategy<Value = Step> {
    let opcode = prop_oneof![
        4 => Just(0x01u8), 4 => Just(0x05u8), 2 => Just(0x42u8), 1 => Just(0x40u8), 1 => Just(0x04u8),
        1 => Just(0x06u8), 1 => any::<u8>()
    ];
    let pdu = (opcode, proptest::collection::vec(any::<u8>(), HEADER), any::<[u8; 4]>(), 0usize..6000);
    let pdu = pdu.prop_map(|(opcode, bytes, small, data)| {
        let mut header: [u8; HEADER] = std::array::from_fn(|i| bytes[i]);
        header[0] = opcode;
        // Mostly what could be meant: few tags, few LUNs, moderate lengths.
        let tame = small[0] < 240;
        if tame {
            header[8..16].copy_from_slice(&[0, small[1] & 1, 0, 0, 0, 0, 0, 0]);
            header[16..20].copy_from_slice(&[0, 0, 0, small[2] & 7]);
            if opcode == 0x05 {
                let transfer_tag =
                    if small[3] & 1 == 0 { NO_TAG } else { u32::from(small[3] >> 5) << 22 | 1 };
                header[20..24].copy_from_slice(&transfer_tag.to_be_bytes());
                header[36..48].copy_from_slice(&[0; 12]);
            } else {
                header[20..24].copy_from_slice(&[0, small[3] & 3, small[1], 0]);
            }
        }
        Step::Pdu { header: Box::new(header), tame, data: if small[1] & 3 == 0 { data } else { 0 } }
    });
    prop_oneof![
        12 => pdu,
        1 => proptest::collection::vec(any::<u8>(), 0..100).prop_map(Step::Bytes),
        4 => Just(Step::Answer),
        1 => (0u64..30_000).prop_map(Step::Pass),
        1 => prop_oneof![Just(usize::MAX), 0usize..200].prop_map(Step::Room),
        1 => Just(Step::HangUp),
    ]
}

fn negotiated() -> impl Strategy<Value = Negotiated> {
    (any::<[bool; 4]>(), 512u32..8192, 512u32..20_000, 1u16..5).prop_map(|(flags, segment, burst, r2ts)| {
        Negotiated {
            header_digest: flags[0],
            data_digest: flags[1],
            initial_r2t: flags[2],
            immediate_data: flags[3],
            max_send_segment: segment,
            max_burst: burst,
            first_burst: burst / 2 + 256,
            max_outstanding_r2t: r2ts,
            ..Negotiated::default()
        }
    })
}

/// Puts a PDU on the wire; command numbers and digests are right unless it is a wild one.
fn send(
    simulated: &mut Simulated,
    agreed: &Negotiated,
    cmd_sn: &mut u32,
    mut header: Header,
    tame: bool,
    data: usize,
) {
    if tame {
        header.0[4] = 0;
        header.set_data_len(data);
        if !matches!(header.opcode(), 0x05) {
            header.set_word(24, *cmd_sn);
            *cmd_sn = cmd_sn.wrapping_add(u32::from(!header.immediate()));
        }
    }
    let mut bytes = header.0.to_vec();
    if agreed.header_digest && tame {
        bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
    }
    if data > 0 {
        let start = bytes.len();
        bytes.resize(start + data + padding(data), 0x5a);
        if agreed.data_digest {
            bytes.extend(crc32c::crc32c(&bytes[start..]).to_le_bytes());
        }
    }
    simulated.feed(&bytes);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_pdus_is_survived_and_leaves_nothing_behind(
        agreed in negotiated(), steps in proptest::collection::vec(step(), 1..60), chunk in 2048usize..9000
    ) {
        let mut simulated = Simulated::new(agreed.clone(), chunk);
        let mut cmd_sn = 1;
        for step in steps {
            match step {
                Step::Pdu { header, tame, data } => {
                    send(&mut simulated, &agreed, &mut cmd_sn, Header(*header), tame, data);
                }
                Step::Bytes(bytes) => simulated.feed(&bytes),
                Step::Answer => simulated.answer(),
                Step::Pass(milliseconds) => simulated.pass(Duration::from_millis(milliseconds)),
                Step::Room(room) => simulated.set_room(room),
                Step::HangUp => simulated.hang_up(),
            }
            if !simulated.work() {
                break;
            }
        }
        prop_assert!(well_formed(&simulated.take_output(), &agreed));
        simulated.finish();
    }

    #[test]
    fn random_bytes_are_survived_however_they_are_cut(
        bytes in proptest::collection::vec(any::<u8>(), 0..4000), cut in 1usize..500
    ) {
        let mut simulated = Simulated::new(Negotiated::default(), 2048);
        for part in bytes.chunks(cut) {
            simulated.feed(part);
            simulated.work();
            simulated.answer();
        }
        simulated.finish();
    }
}

/// Whether the output is whole PDUs with target opcodes, but for one that may be cut off at the end.
fn well_formed(mut output: &[u8], agreed: &Negotiated) -> bool {
    let digest = |on: bool| if on { 4 } else { 0 };
    while output.len() >= HEADER {
        let header = Header(std::array::from_fn(|i| output[i]));
        let data = header.data_len();
        let known = matches!(header.0[0], 0x20..=0x26 | 0x31 | 0x32 | 0x3f);
        if !known || header.ahs_len() > 0 || data > agreed.max_send_segment as usize {
            return false;
        }
        let body = if data > 0 { data + padding(data) + digest(agreed.data_digest) } else { 0 };
        output = output.get(HEADER + digest(agreed.header_digest) + body..).unwrap_or_default();
    }
    true
}

#[test]
fn a_sequence_of_commands_keeps_the_numbers_of_the_standard() {
    let mut simulated = Simulated::new(Negotiated::default(), 4096);
    for number in 1..=3 {
        let command = ScsiCommand {
            last: true,
            task_tag: number,
            cmd_sn: number,
            attribute: 1,
            ..ScsiCommand::default()
        };
        simulated.feed(&command.encode().0);
    }
    assert!(simulated.work());
    simulated.answer();
    assert!(simulated.work());
    let output = simulated.take_output();
    let answers: Vec<_> = output
        .chunks(HEADER)
        .map(|bytes| ScsiResponse::decode(&Header(std::array::from_fn(|i| bytes[i]))))
        .collect();
    assert_eq!(
        answers.iter().map(|answer| (answer.task_tag, answer.stat_sn)).collect::<Vec<_>>(),
        [(1, 1), (2, 2), (3, 3)]
    );
    assert!(answers.iter().all(|answer| answer.exp_cmd_sn == 4 && !before(answer.max_cmd_sn, 4 + 28)));
    simulated.finish();
}

#[test]
fn a_silent_peer_is_pinged_and_dropped_by_the_clock_alone() {
    let mut simulated = Simulated::new(Negotiated::default(), 4096);
    assert!(simulated.work());
    simulated.pass(Duration::from_secs(5));
    assert!(simulated.work());
    assert_eq!(simulated.take_output()[0], NopIn::OPCODE);
    simulated.pass(Duration::from_secs(4));
    assert!(simulated.work());
    simulated.pass(Duration::from_secs(1));
    assert!(!simulated.work());
    assert_eq!(simulated.end(), Some(End::Silent));
    simulated.finish();
}

#[test]
fn a_connection_that_is_closed_first_still_holds_whoever_asks_next() {
    let mut simulated = Simulated::new(Negotiated::default(), 4096);
    let (last, write) = (true, true);
    let command = ScsiCommand {
        last,
        write,
        task_tag: 1,
        cmd_sn: 1,
        expected_len: 512,
        attribute: 1,
        ..ScsiCommand::default()
    };
    let mut header = command.encode();
    header.set_data_len(512);
    simulated.feed(&header.0);
    simulated.feed(&[7; 512]);
    assert!(simulated.work());

    let fired = Arc::new(AtomicBool::new(false));
    let fire = Arc::clone(&fired);
    let hold = Hold::new(move || fire.store(true, Ordering::SeqCst));
    let port = Arc::clone(&simulated.consumers[0].1);
    let inbox = Arc::clone(&simulated.connection.as_ref().unwrap().inbox);
    inbox.post(Event::Close { end: End::Revoked, hold: None });
    inbox.post(Event::Abort { port, hold, cleared: false });
    assert!(!simulated.work());
    assert!(!fired.load(Ordering::SeqCst), "the write can still change the medium");
    simulated.answer();
    assert!(fired.load(Ordering::SeqCst));
    simulated.finish();
}
