//! Sessions as a whole: many at a time, silence, shutdown, a corrupt ring, pipelines.

use std::time::Duration;

use rbdgate::portal::Parameters;
use rbdgate::portal::pdu::*;

use crate::kit::initiator::Initiator;
use crate::kit::{Bench, Setup, TARGET, eventually, pattern, read10, write10};

#[test]
fn several_sessions_of_one_initiator_and_several_initiators_use_one_lun() {
    let bench = Bench::new();
    let mut sessions: Vec<_> = (0..6u8)
        .map(|number| {
            let mut initiator = Initiator::connect(bench.address);
            initiator.isid[5] = number / 2;
            initiator.name = format!("iqn.2026-01.example:host{}", number % 2);
            initiator.log_in(TARGET, &[]);
            initiator
        })
        .collect();
    let data = pattern(3, 4096);
    assert_eq!(sessions[0].write(&write10(0, 8), &data, 4096).status, 0);
    for session in &mut sessions {
        assert_eq!(session.read(&read10(0, 8), 4096).data, data);
    }
    assert_eq!((bench.server().sessions().len(), bench.nexuses.len()), (6, 6));
    drop(sessions);
    eventually("all are gone", || bench.server().sessions().is_empty() && bench.nexuses.is_empty());
}

#[test]
fn a_pipeline_of_commands_is_taken_in_few_reads_and_every_one_is_answered() {
    let bench = Bench::new();
    let mut initiator = Initiator::session(bench.address, TARGET);
    initiator.ping(b"");
    let data = pattern(4, 32 * 512);
    // In one write each: reads only, writes only, and a mixture.
    for round in 0..3 {
        let mut bytes = Vec::new();
        let commands: Vec<_> = (0..32usize)
            .map(|number| {
                let (lba, part) = (number as u32, number * 512..(number + 1) * 512);
                let write = round == 1 || round == 2 && number % 3 == 0;
                let command = if write {
                    let command = initiator.command(&write10(lba, 1), false, true, 512);
                    bytes.extend(initiator.frame(command.encode(), &[], &data[part]));
                    command
                } else {
                    let command = initiator.command(&read10(lba, 1), true, false, 512);
                    bytes.extend(initiator.frame(command.encode(), &[], &[]));
                    command
                };
                command.task_tag
            })
            .collect();
        std::io::Write::write_all(&mut initiator.stream, &bytes).unwrap();
        let mut answered: Vec<_> = commands.iter().map(|_| initiator.receive().header.task_tag()).collect();
        answered.sort_unstable();
        assert_eq!(answered, commands);
    }
    assert_eq!(initiator.read(&read10(0, 32), data.len()).data, data);
    assert_eq!(bench.server().stats().bytes_copied, 0);
}

#[test]
fn pdus_that_arrive_byte_by_byte_are_taken_as_well() {
    let bench = Bench::new();
    let keys = [("HeaderDigest", "CRC32C"), ("DataDigest", "CRC32C")];
    let mut initiator = Initiator::session_with(bench.address, TARGET, &keys);
    let command = initiator.command(&write10(1, 1), false, true, 512);
    let data = pattern(5, 512);
    for byte in initiator.frame(command.encode(), &[], &data).chunks(7) {
        std::io::Write::write_all(&mut initiator.stream, byte).unwrap();
        std::thread::sleep(Duration::from_micros(200));
    }
    assert_eq!(initiator.finish(command.task_tag, &[]).status, 0);
    assert_eq!(initiator.read(&read10(1, 1), 512).data, data);
}

#[test]
fn a_silent_initiator_is_pinged_and_then_dropped_and_one_that_answers_stays() {
    let (nop_interval, nop_timeout) = (Duration::from_millis(100), Duration::from_millis(400));
    let parameters = Parameters { nop_interval, nop_timeout, ..Parameters::default() };
    let bench = Bench::with(Setup { parameters, ..Setup::default() });
    let mut polite = Initiator::session(bench.address, TARGET);
    for _ in 0..8 {
        let ping = NopIn::decode(&polite.receive().header);
        assert_eq!(ping.task_tag, NO_TAG);
        assert_ne!(ping.transfer_tag, NO_TAG);
        let pong = NopOut {
            immediate: true,
            lun: ping.lun,
            task_tag: NO_TAG,
            transfer_tag: ping.transfer_tag,
            cmd_sn: polite.cmd_sn,
            exp_stat_sn: polite.exp_stat_sn,
        };
        polite.send(pong.encode(), &[], &[]);
    }
    assert_eq!(bench.server().sessions().len(), 1);
    // Now it is silent.
    assert_eq!(polite.receive().header.opcode(), NopIn::OPCODE);
    assert!(polite.try_receive().is_none());
    eventually("it is gone", || bench.server().sessions().is_empty());
}

#[test]
fn shutdown_asks_for_a_logout_and_closes_what_stays() {
    let mut bench = Bench::new();
    let mut leaves = Initiator::session(bench.address, TARGET);
    let mut stays = Initiator::connect(bench.address);
    stays.isid[5] = 9;
    stays.log_in(TARGET, &[]);
    let address = bench.address;
    let server = bench.server.take().unwrap();
    let shutdown = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(server.shutdown(Duration::from_millis(500)));
    });
    for initiator in [&mut leaves, &mut stays] {
        let message = AsyncMessage::decode(&initiator.receive().header);
        assert_eq!((message.event, message.task_tag), (1, NO_TAG));
    }
    assert_eq!(leaves.log_out(0), 0);
    assert!(leaves.closed() && stays.closed());
    shutdown.join().unwrap();
    assert!(std::net::TcpStream::connect(address).is_err(), "still listening");
}

#[test]
fn what_a_dropped_connection_left_in_the_ring_ends_there_and_its_blocks_come_back() {
    let bench = Bench::new();
    let mut initiator = Initiator::session(bench.address, TARGET);
    bench.devices[0].withhold();
    for number in 0..8 {
        let command = initiator.command(&read10(number, 8), true, false, 4096);
        initiator.send(command.encode(), &[], &[]);
    }
    bench.devices[0].wait_withheld(8);
    drop(initiator);
    eventually("the session is gone", || bench.server().sessions().is_empty());
    assert_eq!((bench.pool.usage().in_use, bench.nexuses.len()), (8 * 4096, 1));
    bench.devices[0].release();
    bench.wait_idle();
    eventually("the nexus is free", || bench.nexuses.is_empty());
}

#[test]
fn an_initiator_that_does_not_read_is_not_read_from_for_ever() {
    let bench = Bench::new();
    let mut initiator = Initiator::session(bench.address, TARGET);
    let ping = NopOut {
        immediate: true,
        task_tag: 1,
        transfer_tag: NO_TAG,
        cmd_sn: initiator.cmd_sn,
        ..NopOut::default()
    };
    let frame = initiator.frame(ping.encode(), &[], &[7; 8192]);
    initiator.stream.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut sent = 0usize;
    // Until the pipe is full (a short write); what the gateway holds meanwhile is bounded.
    while let Ok(written) = std::io::Write::write(&mut initiator.stream, &frame)
        && written == frame.len()
        && sent < 1 << 30
    {
        sent += written;
    }
    assert!(sent < 1 << 30, "a gigabyte of pings was swallowed");
    let mut other = Initiator::connect(bench.address);
    other.isid[5] = 3;
    other.log_in(TARGET, &[]);
    assert_eq!(other.read(&[0; 6], 0).status, 0);
}

#[test]
fn a_corrupt_ring_fails_its_lun_and_no_other_and_nobody_waits_for_it() {
    let bench = Bench::with(Setup { luns: 2, ..Setup::default() });
    let mut initiator = Initiator::session(bench.address, TARGET);
    bench.devices[0].withhold();
    let command = initiator.command(&write10(0, 1), false, true, 512);
    initiator.send(command.encode(), &[], &[1; 512]);
    bench.devices[0].wait_withheld(1);
    // The owner writes nonsense over the tail of the ring (offset 64 of the mailbox).
    let memory = std::fs::File::from(bench.producers[0].as_fd().try_clone_to_owned().unwrap());
    std::os::unix::fs::FileExt::write_all_at(&memory, &0xffff_fff3u32.to_ne_bytes(), 64).unwrap();
    bench.devices[0].bell().ring();
    // NOT READY, MANUAL INTERVENTION REQUIRED, for what was in it and for what comes.
    assert_eq!(initiator.finish(command.task_tag, &[]).sense(), Some((2, 4, 3)));
    assert_eq!(initiator.read(&read10(0, 1), 512).sense(), Some((2, 4, 3)));
    let mut other = initiator.command(&read10(0, 1), true, false, 512);
    other.lun = 1 << 48;
    initiator.send(other.encode(), &[], &[]);
    assert_eq!(initiator.finish(other.task_tag, &[]).status, 0);
    // Its writes never come back; a reset and a new login do not wait for them.
    assert_eq!(initiator.manage(5, &command), 0);
    let mut again = Initiator::session(bench.address, TARGET);
    assert_eq!(again.read(&read10(0, 1), 512).sense(), Some((2, 4, 3)));
}

#[test]
fn a_lun_whose_lane_has_ended_answers_what_comes_late_and_holds_nobody_up() {
    let bench = Bench::with(Setup { lanes: true, ..Setup::default() });
    let keys = [("InitialR2T", "Yes"), ("ImmediateData", "No")];
    let mut initiator = Initiator::session_with(bench.address, TARGET, &keys);
    while initiator.read(&[0; 6], 0).status != 0 {}
    let data = pattern(1, 4096);
    let command = initiator.command(&write10(0, 8), false, true, data.len());
    initiator.send(command.encode(), &[], &[]);
    let r2t = R2t::decode(&initiator.receive().header);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(bench.lanes[0].stop());
    // LOGICAL UNIT IS IN PROCESS OF BECOMING READY: for the write whose data was on its way, and for what comes.
    initiator.answer_r2t(&r2t, &data);
    assert_eq!(initiator.finish(command.task_tag, &[]).sense(), Some((2, 4, 1)));
    assert_eq!(initiator.read(&read10(0, 1), 512).sense(), Some((2, 4, 1)));
    assert_eq!(initiator.manage(5, &command), 0);
    let mut again = Initiator::session(bench.address, TARGET);
    assert_eq!(again.ping(b"x"), b"x");
}
