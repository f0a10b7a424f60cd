//! READ and WRITE in every shape: immediate, unsolicited and solicited data, bursts, residuals, digests, order.

use rbdgate::portal::Parameters;
use rbdgate::portal::pdu::*;

use crate::kit::initiator::Initiator;
use crate::kit::{Bench, Setup, TARGET, eventually, pattern, read10, write10};

/// Keys for every way in which data-out can come.
const WAYS: [&[(&str, &str)]; 4] = [
    &[("InitialR2T", "Yes"), ("ImmediateData", "No")],
    &[("InitialR2T", "Yes"), ("ImmediateData", "Yes"), ("FirstBurstLength", "4096")],
    &[
        ("InitialR2T", "No"),
        ("ImmediateData", "No"),
        ("FirstBurstLength", "20480"),
        ("MaxBurstLength", "65536"),
    ],
    &[
        ("InitialR2T", "No"),
        ("ImmediateData", "Yes"),
        ("FirstBurstLength", "20480"),
        ("MaxBurstLength", "32768"),
        ("MaxOutstandingR2T", "8"),
        ("MaxRecvDataSegmentLength", "12288"),
    ],
];

/// Writes `data` at `lba` with `immediate` bytes in the command and `unsolicited` bytes after it.
fn write_with(initiator: &mut Initiator, lba: u32, data: &[u8], immediate: usize, unsolicited: usize) -> u8 {
    let blocks = (data.len() / 512) as u16;
    let mut command = initiator.command(&write10(lba, blocks), false, true, data.len());
    command.last = unsolicited == 0;
    initiator.send(command.encode(), &[], &data[..immediate]);
    let end = immediate + unsolicited;
    let (mut at, mut data_sn) = (immediate, 0);
    while at < end {
        let len = (end - at).min(8192);
        let pdu = DataOut {
            last: at + len == end,
            task_tag: command.task_tag,
            transfer_tag: NO_TAG,
            data_sn,
            offset: at as u32,
            ..DataOut::default()
        };
        initiator.send(pdu.encode(), &[], &data[at..at + len]);
        (at, data_sn) = (at + len, data_sn + 1);
    }
    initiator.finish(command.task_tag, data).status
}

#[test]
fn what_was_written_is_read_in_every_negotiated_way_and_size() {
    let bench = Bench::new();
    for (seed, keys) in WAYS.iter().enumerate() {
        let mut keys = keys.to_vec();
        let digests = if seed % 2 == 0 { "None" } else { "CRC32C" };
        keys.extend([("HeaderDigest", digests), ("DataDigest", digests)]);
        let mut initiator = Initiator::session_with(bench.address, TARGET, &keys);
        let has = |key: &str, value: &str| initiator.agreed.get(key).is_some_and(|agreed| agreed == value);
        let (immediate, unsolicited) = (has("ImmediateData", "Yes"), has("InitialR2T", "No"));
        let first_burst =
            initiator.agreed.get("FirstBurstLength").map_or(65_536, |text| text.parse().unwrap());
        for (round, blocks) in [1usize, 3, 8, 40, 41, 128, 600, 2048].into_iter().enumerate() {
            let data = pattern((seed * 100 + round) as u64, blocks * 512);
            let now = if immediate { data.len().min(4096) } else { 0 };
            let more = if unsolicited { data.len().min(first_burst) - now } else { 0 };
            assert_eq!(write_with(&mut initiator, 10, &data, now, more), 0, "{keys:?} {blocks}");
            let answer = initiator.read(&read10(10, blocks as u16), data.len());
            assert_eq!((answer.status, answer.overflow, answer.underflow), (0, None, None));
            assert!(answer.data == data, "{keys:?} {blocks}: the data differs");
        }
        assert_eq!(initiator.log_out(0), 0);
    }
    assert_eq!(bench.server().stats().bytes_copied, 0);
    bench.wait_idle();
}

#[test]
fn data_in_is_split_by_segment_and_burst_with_final_bits() {
    let bench = Bench::new();
    let keys = [("MaxRecvDataSegmentLength", "3072"), ("MaxBurstLength", "8192")];
    let mut initiator = Initiator::session_with(bench.address, TARGET, &keys);
    let command = initiator.command(&read10(0, 40), true, false, 20_480);
    initiator.send(command.encode(), &[], &[]);
    let mut parts = Vec::new();
    loop {
        let data_in = DataIn::decode(&initiator.receive().header);
        parts.push((data_in.offset, data_in.last));
        if data_in.has_status {
            break;
        }
        assert_eq!((data_in.stat_sn, data_in.transfer_tag), (0, NO_TAG));
    }
    // Bursts end at 8192, 16384 and 20480.
    let expected = [
        (0, false),
        (3072, false),
        (6144, true),
        (8192, false),
        (11_264, false),
        (14_336, true),
        (16_384, false),
        (19_456, true),
    ];
    assert_eq!(parts, expected);
}

#[test]
fn many_r2ts_are_out_at_a_time_but_no_more_than_agreed() {
    let bench = Bench::new();
    let keys = [
        ("InitialR2T", "Yes"),
        ("ImmediateData", "No"),
        ("MaxBurstLength", "4096"),
        ("MaxOutstandingR2T", "3"),
    ];
    let mut initiator = Initiator::session_with(bench.address, TARGET, &keys);
    let data = pattern(1, 5 * 4096);
    let command = initiator.command(&write10(0, 40), false, true, data.len());
    initiator.send(command.encode(), &[], &[]);
    let mut out: Vec<R2t> = (0..3).map(|_| R2t::decode(&initiator.receive().header)).collect();
    assert_eq!(
        out.iter().map(|r2t| (r2t.r2t_sn, r2t.offset)).collect::<Vec<_>>(),
        [(0, 0), (1, 4096), (2, 8192)]
    );
    // A ping is answered while data is out, and no further R2T comes before data has.
    assert_eq!(initiator.ping(b"still here"), b"still here");
    initiator.answer_r2t(&out.remove(0), &data);
    out.push(R2t::decode(&initiator.receive().header));
    assert_eq!(out[2].r2t_sn, 3);
    for r2t in &out {
        initiator.answer_r2t(r2t, &data);
    }
    assert_eq!(initiator.finish(command.task_tag, &data).status, 0);
    assert!(initiator.read(&read10(0, 40), data.len()).data == data);
}

#[test]
fn residuals_are_counted_in_both_directions() {
    let bench = Bench::new();
    let mut initiator = Initiator::session(bench.address, TARGET);
    let data = pattern(2, 1024);
    assert_eq!(initiator.write(&write10(5, 2), &data, 1024).status, 0);
    // More expected than the CDB calls for.
    let under = initiator.read(&read10(5, 1), 1024);
    assert_eq!((under.status, under.underflow, under.overflow), (0, Some(512), None));
    assert_eq!(under.data, data[..512]);
    // Less.
    let over = initiator.read(&read10(5, 2), 512);
    assert_eq!((over.status, over.underflow, over.overflow), (0, None, Some(512)));
    assert_eq!(over.data, data[..512]);
    // Nothing expected at all.
    let none = initiator.read(&read10(5, 2), 0);
    assert_eq!((none.status, none.overflow, none.data.len()), (0, Some(1024), 0));
    let written = initiator.write(&write10(5, 1), &data, 1024);
    assert_eq!((written.status, written.underflow), (0, Some(512)));
    let written = initiator.write(&write10(5, 2), &data[..512], 512);
    assert_eq!((written.status, written.overflow), (0, Some(512)));
}

#[test]
fn a_failed_read_sends_sense_and_no_data() {
    let bench = Bench::new();
    let mut initiator = Initiator::session(bench.address, TARGET);
    let answer = initiator.read(&read10(1_000_000, 8), 4096);
    assert_eq!((answer.status, answer.sense(), answer.data.len()), (2, Some((5, 0x21, 0)), 0));
    assert_eq!(answer.underflow, Some(4096));
    bench.wait_idle();
}

#[test]
fn a_luns_commands_are_answered_by_the_absent_port_when_the_lun_is_not_there() {
    let bench = Bench::with(Setup { luns: 2, ..Setup::default() });
    let mut initiator = Initiator::session(bench.address, TARGET);
    for (lun, device) in
        [(0u64, 0), (1 << 48, 1), (0x4001 << 48, 1), (7 << 48, 2), (0xc1 << 56, 2), (1 << 56, 2)]
    {
        let before = bench.devices[device].seen().len();
        let mut command = initiator.command(&[0; 6], false, false, 0);
        command.lun = lun;
        initiator.send(command.encode(), &[], &[]);
        assert_eq!(initiator.finish(command.task_tag, &[]).status, 0);
        assert_eq!(bench.devices[device].seen().len(), before + 1, "{lun:x}");
    }
}

#[test]
fn ordered_commands_wait_for_those_before_and_hold_back_those_after() {
    let bench = Bench::new();
    let mut initiator = Initiator::session(bench.address, TARGET);
    let device = &bench.devices[0];
    device.withhold();
    let mut send = |opcode: u8, attribute: u8| {
        let mut command = initiator.command(&[opcode, 0, 0, 0, 0, 0], false, false, 0);
        command.attribute = attribute;
        initiator.send(command.encode(), &[], &[]);
    };
    // Simple, ordered, simple, head of queue; opcodes tell them apart.
    for (opcode, attribute) in [(0xa1, 1), (0xa2, 2), (0xa3, 1), (0xa4, 3)] {
        send(opcode, attribute);
    }
    device.wait_withheld(2);
    assert_eq!(device.seen(), [0xa1, 0xa4]);
    device.release();
    eventually("all four run", || device.seen().len() == 4);
    assert_eq!(device.seen()[2..], [0xa2, 0xa3]);
    let mut send = |opcode: u8, attribute: u8| {
        let mut command = initiator.command(&[opcode, 0, 0, 0, 0, 0], false, false, 0);
        command.attribute = attribute;
        initiator.send(command.encode(), &[], &[]);
        initiator.receive();
    };
    // Four answers are still in the stream; the fifth is for an attribute that is not supported.
    (0..4).for_each(|_| send(0xa5, 1));
}

#[test]
fn an_aca_attribute_is_an_invalid_message() {
    let bench = Bench::new();
    let mut initiator = Initiator::session(bench.address, TARGET);
    let mut command = initiator.command(&[0; 6], false, false, 0);
    command.attribute = 4;
    initiator.send(command.encode(), &[], &[]);
    assert_eq!(initiator.finish(command.task_tag, &[]).sense(), Some((5, 0x49, 0)));
}

#[test]
fn commands_are_run_in_the_order_of_their_numbers_whatever_the_order_they_come_in() {
    let bench = Bench::new();
    let mut initiator = Initiator::session(bench.address, TARGET);
    let opcodes = [0xb0, 0xb1, 0xb2, 0xb3];
    let commands: Vec<_> =
        opcodes.iter().map(|opcode| initiator.command(&[*opcode, 0, 0, 0, 0, 0], false, false, 0)).collect();
    for command in commands.iter().rev() {
        initiator.send(command.encode(), &[], &[]);
    }
    (0..4).for_each(|_| drop(initiator.receive()));
    assert_eq!(bench.devices[0].seen(), opcodes);
}

#[test]
fn an_extended_cdb_is_joined_from_its_ahs() {
    let bench = Bench::new();
    let mut initiator = Initiator::session(bench.address, TARGET);
    let command = initiator.command(&[0x7f; 16], false, false, 0);
    // 32 bytes of CDB: 16 in the AHS, counted with the reserved byte.
    let mut ahs = vec![0, 17, 1, 0];
    ahs.extend([0x11; 16]);
    initiator.send(command.encode(), &ahs, &[]);
    assert_eq!(initiator.finish(command.task_tag, &[]).sense(), Some((5, 0x20, 0)));
    for bad in [vec![0, 5, 2, 0, 0, 0, 16, 0], vec![0, 200, 1, 0], vec![0, 1, 1, 0], vec![0, 0, 1, 0]] {
        let command = initiator.command(&[0x7f; 16], false, false, 0);
        initiator.send(command.encode(), &bad, &[]);
        let pdu = initiator.receive();
        let reject = Reject::decode(&pdu.header);
        assert_eq!((pdu.header.opcode(), reject.reason), (Reject::OPCODE, Reject::INVALID_FIELD), "{bad:?}");
        assert_eq!(pdu.data[..4], command.encode().0[..4]);
    }
    // The numbers of the refused commands are used up.
    assert_eq!(initiator.read(&[0; 6], 0).status, 0);
}

#[test]
fn wrong_data_sequences_fail_their_command_and_nothing_of_it_is_written() {
    let bench = Bench::new();
    let keys = [("InitialR2T", "Yes"), ("ImmediateData", "No")];
    let mut initiator = Initiator::session_with(bench.address, TARGET, &keys);
    let data = pattern(3, 1024);
    let cases = [
        // DataSN, offset, length
        (7u32, 0u32, 1024usize, (0x0b, 0x47, 5)),
        (0, 512, 512, (0x0b, 0x47, 5)),
        (0, 0, 512, (0x0b, 0x0c, 0x0d)),
        (0, 0, 1536, (0x0b, 0x0c, 0x0d)),
    ];
    for (data_sn, offset, len, sense) in cases {
        let command = initiator.command(&write10(0, 2), false, true, 1024);
        initiator.send(command.encode(), &[], &[]);
        let r2t = R2t::decode(&initiator.receive().header);
        let pdu = DataOut {
            last: true,
            task_tag: command.task_tag,
            transfer_tag: r2t.transfer_tag,
            data_sn,
            offset,
            ..DataOut::default()
        };
        initiator.send(pdu.encode(), &[], &vec![9; len]);
        let answer = initiator.finish(command.task_tag, &data);
        assert_eq!((answer.status, answer.sense()), (2, Some(sense)));
    }
    assert_eq!(initiator.read(&read10(0, 2), 1024).data, vec![0; 1024]);
    bench.wait_idle();
}

#[test]
fn data_that_may_not_come_unasked_fails_its_command() {
    let bench = Bench::new();
    let keys = [("InitialR2T", "Yes"), ("ImmediateData", "No")];
    let mut initiator = Initiator::session_with(bench.address, TARGET, &keys);
    let data = pattern(4, 512);
    let answer = initiator.write(&write10(0, 1), &data, 512);
    assert_eq!((answer.status, answer.sense()), (2, Some((0x0b, 0x0c, 0x0c))));
    let mut longer = Initiator::connect(bench.address);
    longer.isid[5] = 9;
    longer.log_in(TARGET, &[("FirstBurstLength", "512"), ("ImmediateData", "Yes")]);
    let answer = longer.write(&write10(0, 2), &pattern(5, 1024), 1024);
    assert_eq!((answer.status, answer.sense()), (2, Some((0x0b, 0x0c, 0x0d))));
    assert_eq!(longer.read(&read10(0, 2), 1024).data, vec![0; 1024]);
}

#[test]
fn a_bad_data_digest_is_rejected_and_fails_the_command_or_drops_the_ping() {
    let bench = Bench::new();
    let keys = [("InitialR2T", "Yes"), ("ImmediateData", "No"), ("DataDigest", "CRC32C")];
    let mut initiator = Initiator::session_with(bench.address, TARGET, &keys);
    let command = initiator.command(&write10(0, 1), false, true, 512);
    initiator.send(command.encode(), &[], &[]);
    let r2t = R2t::decode(&initiator.receive().header);
    let pdu = DataOut {
        last: true,
        task_tag: command.task_tag,
        transfer_tag: r2t.transfer_tag,
        ..DataOut::default()
    };
    let mut bytes = initiator.frame(pdu.encode(), &[], &[1; 512]);
    bytes[60] ^= 1;
    std::io::Write::write_all(&mut initiator.stream, &bytes).unwrap();
    let reject = initiator.receive().header;
    assert_eq!((reject.opcode(), Reject::decode(&reject).reason), (Reject::OPCODE, Reject::DATA_DIGEST));
    assert_eq!(initiator.finish(command.task_tag, &[]).sense(), Some((0x0b, 0x47, 5)));
    assert_eq!(initiator.read(&read10(0, 1), 512).data, vec![0; 512]);
    assert_eq!(bench.server().stats().digest_errors, 1);
}

#[test]
fn a_command_whose_immediate_data_is_damaged_counts_as_never_sent_and_can_be_sent_again() {
    let bench = Bench::new();
    let mut initiator = Initiator::session_with(bench.address, TARGET, &[("DataDigest", "CRC32C")]);
    let command = initiator.command(&write10(0, 1), false, true, 512);
    let whole = initiator.frame(command.encode(), &[], &[6; 512]);
    let mut damaged = whole.clone();
    damaged[100] ^= 1;
    for bytes in [&damaged, &whole] {
        std::io::Write::write_all(&mut initiator.stream, bytes).unwrap();
    }
    let reject = initiator.receive().header;
    assert_eq!((reject.opcode(), Reject::decode(&reject).reason), (Reject::OPCODE, Reject::DATA_DIGEST));
    assert_eq!(initiator.finish(command.task_tag, &[]).status, 0);
    assert_eq!(initiator.read(&read10(0, 1), 512).data, vec![6; 512]);
}

#[test]
fn the_window_closes_at_the_queue_depth_and_opens_with_the_answers() {
    let parameters = Parameters { queue_depth: 4, ..Parameters::default() };
    let bench = Bench::with(Setup { parameters, ..Setup::default() });
    let mut initiator = Initiator::session(bench.address, TARGET);
    bench.devices[0].withhold();
    // Told with the first answer of the full feature phase.
    initiator.ping(b"");
    assert_eq!(initiator.max_cmd_sn, initiator.cmd_sn + 3);
    let commands: Vec<_> = (0..5).map(|_| initiator.command(&[0; 6], false, false, 0)).collect();
    for command in &commands {
        initiator.send(command.encode(), &[], &[]);
    }
    bench.devices[0].wait_withheld(4);
    initiator.ping(b"");
    assert_eq!(initiator.max_cmd_sn, commands[3].cmd_sn, "the window is closed");
    bench.devices[0].release();
    (0..4).for_each(|_| drop(initiator.receive()));
    // The fifth was beyond the window and ignored; it can be sent again.
    assert_eq!(initiator.max_cmd_sn, commands[3].cmd_sn + 4);
    initiator.send(commands[4].encode(), &[], &[]);
    assert_eq!(initiator.finish(commands[4].task_tag, &[]).status, 0);
    assert_eq!(bench.devices[0].seen().len(), 5);
}
