//! One process after another.

use std::sync::Arc;
use std::time::Instant;

use rbdgate::disk::fault::{self, Fault};
use rbdgate::disk::memory::Memory;
use rbdgate::lane::kernel::Taken;
use ring::{Entry, Response, TaskManagementKind};

use super::*;

/// A disk whose operations take this long.
fn slow(latency: Duration) -> (Arc<dyn Disk>, Arc<dyn Disk>) {
    let memory: Arc<dyn Disk> = Arc::new(Memory::new(1 << 20, 512));
    let settings = fault::Settings { latency, ..Default::default() };
    (Arc::new(Fault::new(Arc::clone(&memory), settings).unwrap()), memory)
}

#[test]
fn a_hand_over_under_load_fails_no_command() {
    let (reactors, kernel) = (Reactors::start(1).unwrap(), machine(16));
    let (disk, _) = slow(Duration::from_millis(2));
    let mut lane = serve(&kernel, &reactors, &disk);
    let mut sent = Vec::new();
    for round in 0..10_u32 {
        sent.extend((0..40).map(|index| write(&kernel, round * 40 + index, vec![index as u8; 512])));
        // What it has taken is answered; the rest waits for the next one, in the ring and in front of it.
        end(lane.leave());
        let adopted = adopt(&kernel);
        assert_eq!(adopted.taken(), Taken::HandedOver);
        let served = Served {
            name: "test".into(),
            unit: unit(&disk, true),
            disk: Arc::clone(&disk),
            reservations: NoReservations::new(),
        };
        lane = adopted.serve(&reactors.all()[0], served).unwrap();
    }
    for tag in sent {
        assert_eq!(status(&kernel, tag), GOOD);
    }
    assert!(!kernel.is_broken());
    end(lane.stop());
}

#[test]
fn after_a_death_what_was_outstanding_is_sent_back_and_nothing_else() {
    let kernel = machine(16);
    // The predecessor takes two, answers the second into the first one's slot, and dies.
    let (device, mut consumer) = kernel.claim().unwrap().attach().unwrap();
    let sent: Vec<u64> = (0..3).map(|lba| write(&kernel, lba, vec![0x11; 512])).collect();
    let mut take = || match consumer.next() {
        Ok(Entry::Command(command)) => command,
        other => panic!("{other:?}"),
    };
    let (first, second) = (take(), take());
    consumer.complete(second, Response::good());
    let _ = consumer.commit();
    assert!(device.kick());
    assert_eq!(status(&kernel, sent[1]), GOOD);
    Box::leak(Box::new(first.id()));
    kernel_dies(first, consumer, device);

    let reactors = Reactors::start(1).unwrap();
    let disk: Arc<dyn Disk> = Arc::new(Memory::new(1 << 20, 512));
    let adopted = adopt(&kernel);
    assert_eq!(adopted.taken(), Taken::Recovered);
    assert_eq!((status(&kernel, sent[0]), status(&kernel, sent[2])), (BUSY, BUSY));
    // Until it is served there is nobody to take it.
    assert_eq!(status(&kernel, read(&kernel, 0, 1)), BUSY);
    let served = Served {
        name: "test".into(),
        unit: unit(&disk, true),
        disk: Arc::clone(&disk),
        reservations: NoReservations::new(),
    };
    let lane = adopted.serve(&reactors.all()[0], served).unwrap();
    let retried = write(&kernel, 0, vec![0x22; 512]);
    assert_eq!(status(&kernel, retried), GOOD);
    assert_eq!(answer(&kernel, read(&kernel, 0, 1)).data, vec![0x22; 512]);
    // What the dead one had answered has not been carried out again.
    assert_eq!(answer(&kernel, read(&kernel, 1, 1)).data, vec![0; 512]);
    assert!(!kernel.is_broken());
    end(lane.stop());
}

/// As `kill -9` does: nothing is answered, and the memory is unmapped and the file closed.
fn kernel_dies(command: ring::Command, consumer: ring::Consumer, device: uio::Device) {
    // A dropped command is answered by the next commit, which does not come; a debug build says that it is a bug.
    let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(command)));
    assert_eq!(dropped.is_err(), cfg!(debug_assertions));
    drop((consumer, device));
}

#[test]
fn a_command_that_the_kernel_has_given_up_keeps_its_memory_until_it_is_answered() {
    let (reactors, kernel) = (Reactors::start(1).unwrap(), machine(2));
    let (disk, below) = slow(Duration::from_millis(300));
    let lane = serve(&kernel, &reactors, &disk);
    let late = write(&kernel, 0, vec![0x33; 512]);
    kernel.expire(late);
    assert_eq!(status(&kernel, late), CHECK_CONDITION);
    let started = Instant::now();
    assert_eq!(status(&kernel, write(&kernel, 1, vec![0x44; 2 * BLOCK])), GOOD);
    assert!(started.elapsed() >= Duration::from_millis(300), "it had to wait for the late one's block");
    assert!(!kernel.is_broken());
    assert_eq!(below.size(), 1 << 20);
    end(lane.stop());
}

#[test]
fn aborted_commands_are_answered_when_the_disk_has_let_go_of_them() {
    let (reactors, kernel) = (Reactors::start(1).unwrap(), machine(16));
    let (disk, _) = slow(Duration::from_millis(50));
    let lane = serve(&kernel, &reactors, &disk);
    let sent: Vec<u64> = (0..4).map(|lba| write(&kernel, lba, vec![0x55; 512])).collect();
    kernel.notify(TaskManagementKind::AbortTask, &sent[1..2]);
    let answers: Vec<u8> = sent.iter().map(|tag| status(&kernel, *tag)).collect();
    assert_eq!(answers, [GOOD, TASK_ABORTED, GOOD, GOOD]);
    let more: Vec<u64> = (0..4).map(|lba| write(&kernel, lba, vec![0x66; 512])).collect();
    kernel.notify(TaskManagementKind::LunReset, &more);
    assert!(more.iter().all(|tag| status(&kernel, *tag) == TASK_ABORTED));
    assert!(!kernel.is_broken());
    end(lane.stop());
}

#[test]
fn a_device_in_use_is_busy_for_everybody_else() {
    let (reactors, kernel) = (Reactors::start(1).unwrap(), machine(4));
    let (disk, _) = slow(Duration::ZERO);
    let lane = serve(&kernel, &reactors, &disk);
    assert!(matches!(kernel.claim().unwrap_err().reason, uio::OpenDeviceReason::Busy));
    end(lane.stop());
    assert_eq!(adopt(&kernel).taken(), Taken::HandedOver);
}
