//! A ring between two processes, and one that a third party writes into while it runs.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ring::{
    Consumer, Entry, Extent, NextError, Nexus, OpenError, Options, Pool, Producer, Request, Response, create,
};

/// Names the descriptor to the other process.
const FD: &str = "RBDGATE_RING_TEST_FD";
const COMMANDS: u32 = 3000;

/// The other process runs this test with [`FD`] set; without, it is nothing.
#[test]
fn consumer_process() {
    let Ok(fd) = std::env::var(FD) else { return };
    let file = File::options().read(true).write(true).open(format!("/proc/self/fd/{fd}")).unwrap();
    let mut consumer = Consumer::open(file.as_fd()).unwrap();
    drop(file);
    let (mut answered, deadline) = (0, Instant::now() + Duration::from_secs(60));
    while answered < COMMANDS {
        assert!(Instant::now() < deadline, "{answered} commands came");
        match consumer.next() {
            Ok(Entry::Command(command)) => {
                let mut data = vec![0; command.data().len()];
                command.data().copy_out(0, &mut data);
                data.iter_mut().for_each(|byte| *byte ^= 0xff);
                command.data().copy_in(0, &data);
                consumer.complete(command, Response::good());
                answered += 1;
            }
            Ok(Entry::TaskManagement(notice)) => panic!("{notice:?}"),
            Err(NextError::Empty) => {
                let _ = consumer.commit();
                std::thread::yield_now();
            }
            Err(NextError::Corrupt(cause)) => panic!("{cause}"),
        }
    }
    let _ = consumer.commit();
}

#[test]
fn another_process_answers_three_thousand_commands() {
    let options = Options {
        command_area: 16 << 10,
        data_area: 1 << 20,
        largest_command: 64 << 10,
        ..Options::default()
    };
    let (producer, own_consumer) = create::<u32>(&options, &Pool::new(8 << 20)).unwrap();
    // Inherited across exec under its own number, unlike the ring's own descriptor.
    let fd = nix::unistd::dup(producer.as_fd()).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "consumer_process", "--nocapture"])
        .env(FD, fd.as_raw_fd().to_string())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    drop(fd);
    let (mut sent, mut done) = (0, 0);
    let deadline = Instant::now() + Duration::from_secs(60);
    while done < COMMANDS {
        assert!(Instant::now() < deadline, "{done} of {sent} commands were answered");
        while sent < COMMANDS && send(&producer, sent) {
            sent += 1;
        }
        let _ = producer.publish();
        done += producer.reap(|done| check(done.context, &done.data)).unwrap() as u32;
        std::thread::yield_now();
    }
    assert!(child.wait().unwrap().success());
    assert_eq!(producer.usage().in_use, 0);
    drop(own_consumer);
}

fn send(producer: &Producer<u32>, context: u32) -> bool {
    let Ok(mut data) = producer.try_allocate(1 + context as usize * 37 % 20_000) else { return false };
    let (len, mut slices) = (data.len(), Vec::new());
    data.io_slices_mut(0..len, &mut slices);
    slices.iter_mut().for_each(|slice| slice.fill(context as u8));
    producer.push(Request { cdb: &[0x2a; 10], nexus: Nexus::UNKNOWN, data, context }).is_ok()
}

fn check(context: u32, data: &Extent) {
    let mut slices = Vec::new();
    data.io_slices(0..data.len(), &mut slices);
    assert_eq!(data.len(), 1 + context as usize * 37 % 20_000);
    assert!(slices.iter().all(|slice| slice.iter().all(|byte| *byte == !(context as u8))));
}

#[test]
fn a_file_that_could_shrink_under_the_mapping_is_refused() {
    let file = tempfile();
    file.set_len(1 << 20).unwrap();
    assert!(matches!(Consumer::open(file.as_fd()), Err(OpenError::Memory(_))));
}

/// An unlinked ordinary file: it takes no seals.
fn tempfile() -> File {
    let path = std::env::temp_dir().join(format!("rbdgate-ring-{}", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    file
}

#[test]
fn a_ring_cannot_be_shrunk_grown_or_sealed_further() {
    let (producer, _consumer) = create::<u32>(&Options::default(), &Pool::new(8 << 20)).unwrap();
    let file = File::from(producer.as_fd().try_clone_to_owned().unwrap());
    let len = file.metadata().unwrap().len();
    assert!(file.set_len(len - 4096).is_err());
    assert!(file.set_len(len + 4096).is_err());
    let seal = nix::fcntl::FcntlArg::F_ADD_SEALS(nix::fcntl::SealFlag::F_SEAL_WRITE);
    assert!(nix::fcntl::fcntl(&file, seal).is_err());
}

#[test]
fn bytes_written_from_elsewhere_while_it_runs_hurt_nobody() {
    let pool = Pool::new(8 << 20);
    let options =
        Options { command_area: 4096, data_area: 1 << 20, largest_command: 64 << 10, ..Options::default() };
    let mut corrupt = 0;
    for round in 0..20u64 {
        let (producer, mut consumer) = create::<u32>(&options, &pool).unwrap();
        let file = File::from(producer.as_fd().try_clone_to_owned().unwrap());
        let stop = Arc::new(AtomicBool::new(false));
        let vandal = std::thread::spawn({
            let stop = Arc::clone(&stop);
            move || vandalise(&file, round, &stop)
        });
        let mut taken = Vec::new();
        for context in 0..2000 {
            send(&producer, context);
            let _ = producer.publish();
            while let Ok(entry) = consumer.next() {
                taken.extend(match entry {
                    Entry::Command(command) => Some(command),
                    Entry::TaskManagement(_) => None,
                });
            }
            for command in taken.drain(..) {
                command.data().fill(0, command.data().len(), 1);
                consumer.complete(command, Response::good());
            }
            let _ = consumer.commit();
            let _ = producer.reap(drop);
        }
        stop.store(true, Ordering::Relaxed);
        vandal.join().unwrap();
        corrupt += u32::from(producer.corrupt().is_some() || consumer.corrupt().is_some());
        assert_eq!(consumer.outstanding(), 0);
    }
    assert!(corrupt > 0, "nothing was hit");
    assert_eq!((pool.usage().in_use, pool.usage().charged), (0, 0));
}

/// Writes numbers everywhere in the mailbox and the ring.
fn vandalise(file: &File, seed: u64, stop: &AtomicBool) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    while !stop.load(Ordering::Relaxed) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let value = (state >> 16) as u32 >> (state % 32);
        file.write_at(&value.to_ne_bytes(), (state >> 32) % 1024 * 4).unwrap();
    }
}
