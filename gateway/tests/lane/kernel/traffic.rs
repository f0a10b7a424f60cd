//! One process and its kernel.

use std::sync::Arc;

use rbdgate::disk::memory::Memory;
use ring::TaskManagementKind;

use super::*;

fn memory(bytes: u64) -> Arc<dyn Disk> {
    Arc::new(Memory::new(bytes, 512))
}

#[test]
fn what_is_written_is_read_back_through_wraps_and_full_rings() {
    let (reactors, kernel, disk) = (Reactors::start(1).unwrap(), machine(64), memory(8 << 20));
    let lane = serve(&kernel, &reactors, &disk);
    // More at once than the ring or the data area hold, in lengths that leave the blocks in pieces.
    let length = |index: u32| 1 + index % 23;
    let pattern = |index: u32| vec![index as u8 ^ 0x5a; length(index) as usize * 512];
    let writes: Vec<u64> = (0..600).map(|index| write(&kernel, index * 24, pattern(index))).collect();
    for tag in writes {
        assert_eq!(status(&kernel, tag), GOOD);
    }
    let reads: Vec<u64> = (0..600).map(|index| read(&kernel, index * 24, length(index) as u16)).collect();
    for (index, tag) in (0..).zip(reads) {
        let answer = answer(&kernel, tag);
        assert_eq!((answer.status, answer.data == pattern(index)), (GOOD, true), "{index}");
    }
    assert!(!kernel.is_broken());
    assert_eq!(kernel.outstanding(), 0);
    let usage = lane.stats().ring;
    assert_eq!((usage.ring, usage.data_in_use), (RING.into(), 0));
    assert!(usage.data >= (64 * BLOCK) as u64);
    end(lane.stop());
}

#[test]
fn short_data_carries_no_byte_of_an_earlier_command() {
    let (reactors, kernel, disk) = (Reactors::start(1).unwrap(), machine(1), memory(1 << 20));
    let lane = serve(&kernel, &reactors, &disk);
    let secret = write(&kernel, 0, vec![0xee; BLOCK]);
    assert_eq!(status(&kernel, secret), GOOD);
    // INQUIRY into the same block: SPC-4 has 36 bytes and more, and a residual says how many.
    let inquiry = answer(&kernel, kernel.send(&[0x12, 0, 0, 4, 0, 0], Data::In(1024)));
    assert_eq!(inquiry.status, GOOD);
    assert!((36..1024).contains(&inquiry.data.len()), "{}", inquiry.data.len());
    assert!(!inquiry.data.contains(&0xee));
    end(lane.stop());
}

#[test]
fn nobody_is_greeted_and_a_reset_is_told_by_the_kernel_only() {
    let (reactors, kernel, disk) = (Reactors::start(1).unwrap(), machine(8), memory(1 << 20));
    let lane = serve(&kernel, &reactors, &disk);
    let ready = || kernel.send(&[0; 6], Data::None);
    assert_eq!(status(&kernel, ready()), GOOD);
    kernel.notify(TaskManagementKind::LunReset, &[]);
    // SAM-5: every nexus hears of a reset once; LIO, which knows them, tells them.
    assert_eq!(status(&kernel, ready()), GOOD);
    disk.resize(2 << 20, false).unwrap();
    let told = (0..100).map(|_| status(&kernel, ready())).filter(|status| *status == CHECK_CONDITION).count();
    // SBC-3, CAPACITY DATA HAS CHANGED: the kernel does not tell of it.
    assert_eq!(told, 1);
    end(lane.stop());
}

#[test]
fn reservations_are_the_kernel_s_and_refused_when_they_come_through() {
    let (reactors, kernel, disk) = (Reactors::start(1).unwrap(), machine(8), memory(1 << 20));
    let lane = serve(&kernel, &reactors, &disk);
    let mut list = vec![0; 24];
    list[15] = 7;
    // SPC-4, PERSISTENT RESERVE OUT, REGISTER; SPC-2, RESERVE(6).
    let register = kernel.send(&[0x5f, 0, 0, 0, 0, 0, 0, 0, 24, 0], Data::Out(list));
    let reserve = kernel.send(&[0x16, 0, 0, 0, 0, 0], Data::None);
    for tag in [register, reserve] {
        let answer = answer(&kernel, tag);
        let sense = answer.sense.unwrap();
        assert_eq!((answer.status, sense[2], sense[12]), (CHECK_CONDITION, 0x05, 0x20), "{sense:?}");
    }
    end(lane.stop());
}

#[test]
fn a_removed_device_ends_its_lane() {
    let (reactors, kernel, disk) = (Reactors::start(1).unwrap(), machine(8), memory(1 << 20));
    let lane = serve(&kernel, &reactors, &disk);
    assert_eq!(status(&kernel, read(&kernel, 0, 1)), GOOD);
    kernel.remove();
    drop(adopt(&kernel));
    end(lane.stop());
}
