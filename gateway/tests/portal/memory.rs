//! The data area under pressure: credit, waiting, TASK SET FULL, timeouts.

use std::time::Duration;

use rbdgate::portal::Parameters;
use rbdgate::portal::pdu::*;
use ring::Options;

use crate::kit::initiator::Initiator;
use crate::kit::{Bench, Setup, TARGET, eventually, pattern, read10, write10};

fn small(data_area: usize, qfull_timeout: Duration) -> Setup {
    let options = Options { data_area, largest_command: 64 << 10, ..Options::default() };
    Setup { options, qfull_timeout, ..Setup::default() }
}

const KEYS: [(&str, &str); 2] = [("InitialR2T", "Yes"), ("ImmediateData", "No")];

#[test]
fn a_command_larger_than_the_whole_area_is_refused_at_once() {
    let bench = Bench::with(small(256 << 10, Duration::from_secs(10)));
    let mut initiator = Initiator::session_with(bench.address, TARGET, &KEYS);
    let read = initiator.read(&read10(0, 1024), 512 << 10);
    assert_eq!((read.status, read.sense()), (2, Some((5, 0x24, 0))));
    let write = initiator.write(&write10(0, 1024), &vec![1; 512 << 10], 0);
    assert_eq!((write.status, write.sense()), (2, Some((5, 0x24, 0))));
    assert_eq!(initiator.read(&read10(0, 8), 4096).status, 0);
}

#[test]
fn commands_wait_their_turn_for_blocks_and_pings_do_not() {
    let bench = Bench::with(small(64 << 10, Duration::from_secs(10)));
    let mut initiator = Initiator::session_with(bench.address, TARGET, &KEYS);
    bench.devices[0].withhold();
    let commands: Vec<_> =
        (0..6).map(|number| initiator.command(&read10(number * 128, 64), true, false, 32 << 10)).collect();
    for command in &commands {
        initiator.send(command.encode(), &[], &[]);
    }
    // Two fit.
    bench.devices[0].wait_withheld(2);
    assert_eq!(initiator.ping(b"alive"), b"alive");
    assert_eq!(initiator.manage(1, &commands[5]), 0);
    bench.devices[0].release();
    for command in &commands[..5] {
        assert_eq!(initiator.finish(command.task_tag, &[]).data.len(), 32 << 10);
    }
    bench.wait_idle();
}

#[test]
fn who_waits_too_long_gets_task_set_full() {
    let bench = Bench::with(small(64 << 10, Duration::from_millis(200)));
    let mut initiator = Initiator::session_with(bench.address, TARGET, &KEYS);
    bench.devices[0].withhold();
    let first = initiator.command(&read10(0, 128), true, false, 64 << 10);
    initiator.send(first.encode(), &[], &[]);
    bench.devices[0].wait_withheld(1);
    let read = initiator.read(&read10(0, 8), 4096);
    assert_eq!((read.status, read.underflow), (0x28, Some(4096)));
    assert_eq!(initiator.write(&write10(0, 8), &[1; 4096], 0).status, 0x28);
    bench.devices[0].release();
    assert_eq!(initiator.finish(first.task_tag, &[]).status, 0);
    assert_eq!(initiator.write(&write10(0, 8), &[1; 4096], 0).status, 0);
}

#[test]
fn unsolicited_data_without_a_place_is_thrown_away_and_answered_task_set_full() {
    let bench = Bench::with(small(64 << 10, Duration::from_secs(10)));
    let mut initiator = Initiator::session_with(bench.address, TARGET, &[("InitialR2T", "No")]);
    bench.devices[0].withhold();
    let first = initiator.command(&read10(0, 128), true, false, 64 << 10);
    initiator.send(first.encode(), &[], &[]);
    bench.devices[0].wait_withheld(1);
    let data = pattern(9, 16 << 10);
    // Immediate data, then immediate and unsolicited data.
    assert_eq!(initiator.write(&write10(0, 8), &data[..4096], 4096).status, 0x28);
    let mut command = initiator.command(&write10(0, 32), false, true, data.len());
    command.last = false;
    initiator.send(command.encode(), &[], &data[..4096]);
    for (data_sn, at) in (4096..data.len()).step_by(4096).enumerate() {
        let pdu = DataOut {
            last: at + 4096 == data.len(),
            task_tag: command.task_tag,
            transfer_tag: NO_TAG,
            data_sn: data_sn as u32,
            offset: at as u32,
            ..DataOut::default()
        };
        initiator.send(pdu.encode(), &[], &data[at..at + 4096]);
    }
    assert_eq!(initiator.finish(command.task_tag, &[]).status, 0x28);
    bench.devices[0].release();
    assert_eq!(initiator.finish(first.task_tag, &[]).status, 0);
    assert_eq!(initiator.read(&read10(0, 8), 4096).data, vec![0; 4096]);
    bench.wait_idle();
}

#[test]
fn data_that_never_comes_frees_its_blocks_after_the_timeout() {
    let parameters = Parameters { data_out_timeout: Duration::from_millis(200), ..Parameters::default() };
    let bench = Bench::with(Setup { parameters, ..Setup::default() });
    let mut initiator = Initiator::session_with(bench.address, TARGET, &KEYS);
    let command = initiator.command(&write10(0, 8), false, true, 4096);
    initiator.send(command.encode(), &[], &[]);
    let r2t = R2t::decode(&initiator.receive().header);
    assert_eq!(bench.pool.usage().in_use, 4096);
    let answer = initiator.finish(command.task_tag, &[]);
    assert_eq!((answer.status, answer.sense()), (2, Some((0x0b, 0x0c, 0x0d))));
    bench.wait_idle();
    // Too late: it goes nowhere.
    initiator.answer_r2t(&r2t, &[5; 4096]);
    assert_eq!(initiator.read(&read10(0, 8), 4096).data, vec![0; 4096]);
}

#[test]
fn large_writes_join_their_unsolicited_and_solicited_blocks() {
    let bench = Bench::with(Setup { blocks: 16_384, ..Setup::default() });
    let keys = [("InitialR2T", "No"), ("FirstBurstLength", "10000"), ("MaxBurstLength", "300000")];
    let mut initiator = Initiator::session_with(bench.address, TARGET, &keys);
    let data = pattern(11, 3 << 20);
    assert_eq!(initiator.write(&write10(100, 6144), &data, 9999).status, 0);
    assert!(initiator.read(&read10(100, 6144), data.len()).data == data);
    bench.wait_idle();
}

#[test]
fn many_sessions_share_a_small_pool_and_every_one_makes_progress() {
    let mut setup = small(4 << 20, Duration::from_secs(20));
    (setup.pool, setup.luns) = (2 << 20, 4);
    // The command areas count too.
    setup.options.command_area = 64 << 10;
    let bench = Bench::with(setup);
    let workers: Vec<_> = (0..8u8)
        .map(|number| {
            let address = bench.address;
            std::thread::spawn(move || {
                let mut initiator = Initiator::connect(address);
                initiator.isid[5] = number;
                initiator.log_in(TARGET, &[("InitialR2T", "No"), ("FirstBurstLength", "65536")]);
                let lun = u64::from(number % 4) << 48;
                for round in 0..30u64 {
                    let data = pattern(u64::from(number) * 100 + round, 48 << 10);
                    let lba = u32::from(number) * 512;
                    let mut tries = 0;
                    while {
                        let mut command = initiator.command(&write10(lba, 96), false, true, data.len());
                        command.lun = lun;
                        initiator.send(command.encode(), &[], &data[..8192]);
                        let status = initiator.finish(command.task_tag, &data).status;
                        assert!(matches!(status, 0 | 0x28));
                        status != 0
                    } {
                        // What an initiator does with TASK SET FULL.
                        tries += 1;
                        assert!(tries < 1000, "no progress");
                        std::thread::sleep(Duration::from_millis(5));
                    }
                    let mut command = initiator.command(&read10(lba, 96), true, false, data.len());
                    command.lun = lun;
                    initiator.send(command.encode(), &[], &[]);
                    let answer = initiator.finish(command.task_tag, &[]);
                    assert!(answer.status == 0 && answer.data == data);
                }
            })
        })
        .collect();
    for worker in workers {
        worker.join().unwrap();
    }
    bench.wait_idle();
    eventually("what was set aside is given back", || bench.pool.usage().reserved == 0);
}

#[test]
fn commands_that_hold_first_bursts_and_wait_for_the_rest_do_not_wait_for_each_other_for_ever() {
    let mut setup = small(16 << 20, Duration::from_secs(60));
    (setup.pool, setup.options.command_area) = (2 << 20, 64 << 10);
    // These initiators answer no pings while they wait.
    setup.parameters.nop_interval = Duration::ZERO;
    let bench = Bench::with(setup);
    // Each holds a quarter of a mebibyte and wants a mebibyte and a half: five of them leave too little for any.
    let started = std::time::Instant::now();
    let workers: Vec<_> = (0..5u8)
        .map(|number| {
            let address = bench.address;
            std::thread::spawn(move || {
                let mut initiator = Initiator::connect(address);
                initiator.isid[5] = number;
                initiator.log_in(TARGET, &[("InitialR2T", "No"), ("FirstBurstLength", "262144")]);
                let data = pattern(number.into(), 3 << 19);
                let command = initiator.command(&write10(0, 3072), false, true, data.len());
                initiator.send(command.encode(), &[], &data[..256 << 10]);
                initiator.finish(command.task_tag, &data).status
            })
        })
        .collect();
    let statuses: Vec<u8> = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
    assert!(
        statuses.iter().all(|status| matches!(status, 0 | 0x28)) && statuses.contains(&0),
        "{statuses:02x?}"
    );
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    bench.wait_idle();
}
