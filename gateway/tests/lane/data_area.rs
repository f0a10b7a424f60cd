//! The data area under load and at rest: it grows with what the commands need, eight busy LUNs share a small limit, and
//! the memory goes back when nobody needs it.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rbdgate::disk::Disk;
use rbdgate::disk::fault::{Fault, Settings};
use rbdgate::disk::memory::Memory;
use ring::{Extent, Options, Pool};

use crate::driver::*;

const SIZE: u64 = 64 << 20;
const MIB: u64 = 1 << 20;

fn slow(latency: Duration) -> Arc<dyn Disk> {
    let settings = Settings { latency, ..Settings::default() };
    Arc::new(Fault::new(Arc::new(Memory::new(SIZE, BLOCK as u32)), settings).unwrap())
}

/// The mappings of this process: where, of which file (inode), and resident bytes.
fn mappings() -> Vec<(std::ops::Range<usize>, u64, u64)> {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut mappings = Vec::new();
    for line in smaps.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        if let Some((start, end)) = words[0].split_once('-') {
            let address = |text| usize::from_str_radix(text, 16).unwrap();
            mappings.push((address(start)..address(end), words[4].parse().unwrap(), 0));
        } else if words[0] == "Rss:" {
            mappings.last_mut().unwrap().2 = words[1].parse::<u64>().unwrap() * 1024;
        }
    }
    mappings
}

/// The memfd that a driver's data area lies in.
fn memfd(driver: &mut Driver) -> u64 {
    let address = addresses(&driver.allocate(4096))[0].start;
    mappings().into_iter().find(|(range, ..)| range.contains(&address)).unwrap().1
}

/// Bytes of these memfds that the process has resident, as the kernel sees it.
fn resident(memfds: &[u64]) -> u64 {
    mappings().iter().filter(|(_, inode, _)| memfds.contains(inode)).map(|(.., resident)| resident).sum()
}

#[test]
fn an_area_grows_past_a_mebibyte_under_load_and_falls_to_its_floor_when_idle() {
    let reactors = reactors(1);
    let setup = Setup { pool: Pool::new(256 * MIB), ..Setup::default() };
    let mut driver = Driver::start(reactors.pick(), slow(Duration::from_millis(20)), &setup);
    let memfd = [memfd(&mut driver)];
    let before = resident(&memfd);
    assert!(driver.producer.usage().backed < MIB, "nothing is allocated at first");
    let mut tags = Vec::new();
    for index in 0..64u64 {
        tags.push(driver.send(&write_16(index * 512, 512), &pattern(index, 256 * 1024)).0);
    }
    let busy = driver.producer.usage();
    assert!(busy.backed >= 16 * MIB && busy.in_use >= 16 * MIB, "{busy:?}");
    let peak = resident(&memfd);
    assert!(peak >= before + 15 * MIB, "{before} → {peak}");
    assert_eq!(setup.pool.reclaim_idle(Duration::ZERO), 0, "nothing is taken from under commands");
    for tag in tags {
        assert_eq!(driver.wait(tag).status, GOOD);
    }
    assert_eq!(setup.pool.reclaim_idle(Duration::from_secs(3600)), 0, "not idle for long enough");
    assert!(setup.pool.reclaim_idle(Duration::ZERO) >= 15 * MIB);
    let after = resident(&memfd);
    assert!(after < before + MIB, "{before} → {peak} → {after}");
    // And it serves again, with the bytes it was given.
    assert!(driver.get(&read_16(512, 512), 256 * 1024).bytes() == pattern(1, 256 * 1024));
    driver.stop();
}

/// Blocks filled with `bytes`; answered commands give theirs back while there are none.
fn blocks(driver: &mut Driver, running: &mut VecDeque<u64>, bytes: &[u8]) -> Extent {
    let mut data = loop {
        match (driver.producer.try_allocate(bytes.len()), running.pop_front()) {
            (Ok(data), oldest) => {
                oldest.into_iter().for_each(|tag| running.push_front(tag));
                break data;
            }
            (Err(_), Some(oldest)) => assert_eq!(driver.wait(oldest).status, GOOD),
            (Err(_), None) => break driver.allocate(bytes.len()),
        }
    };
    fill(&mut data, bytes);
    data
}

/// Bytes that these files hold together at one moment; `None` if it cannot be told, because something moved while they were
/// looked at one after the other: what one gives to another meanwhile would count twice, or not at all.
fn at_one_moment(rings: &[File]) -> Option<u64> {
    let look = || rings.iter().map(|ring| ring.metadata().unwrap().blocks() * 512).collect::<Vec<_>>();
    let first = look();
    (first == look()).then(|| first.iter().sum())
}

#[test]
fn eight_busy_luns_under_a_small_limit_all_make_progress_and_stay_below_it() {
    const LIMIT: u64 = 24 * MIB;
    // Grants are decided on what commands hold. Pages of the command areas can come on top while commands hold all of it: a
    // few per LUN.
    const PAGES: u64 = 8 * (64 << 10);
    let reactors = reactors(2);
    let pool = Pool::new(LIMIT);
    let options = Options { command_area: 256 * 1024, data_area: 64 << 20, ..Options::default() };
    let mut rings = Vec::new();
    let lanes: Vec<_> = (0..8u64)
        .map(|lun| {
            let setup = Setup { options: options.clone(), pool: pool.clone(), ..Setup::default() };
            let mut driver = Driver::start(reactors.pick(), slow(Duration::from_millis(2)), &setup);
            rings.push(File::from(driver.producer.as_fd().try_clone_to_owned().unwrap()));
            thread::spawn(move || {
                let bytes = pattern(lun, 1 << 20);
                let deadline = Instant::now() + Duration::from_secs(2);
                let mut rounds = 0u64;
                while Instant::now() < deadline {
                    // Sixteen commands of 1 MiB want 16 MiB per LUN, 128 MiB together.
                    let mut running = VecDeque::new();
                    for index in 0..16u64 {
                        let data = blocks(&mut driver, &mut running, &bytes);
                        running.push_back(driver.submit(&write_16(index * 2048, 2048), data).0);
                    }
                    for tag in running {
                        assert_eq!(driver.wait(tag).status, GOOD);
                    }
                    rounds += 1;
                }
                assert!(driver.get(&read_16(15 * 2048, 2048), 1 << 20).bytes() == bytes);
                driver.stop();
                rounds
            })
        })
        .collect();
    let (mut looks, mut peak) = (0, 0);
    while lanes.iter().any(|lane| !lane.is_finished()) {
        let usage = pool.usage();
        assert!(usage.charged <= LIMIT + PAGES && usage.in_use <= LIMIT, "{usage:?}");
        if let Some(bytes) = at_one_moment(&rings) {
            (looks, peak) = (looks + 1, peak.max(bytes));
        }
        thread::sleep(Duration::from_millis(1));
    }
    let rounds: Vec<_> = lanes.into_iter().map(|lane| lane.join().unwrap()).collect();
    assert!(rounds.iter().all(|rounds| *rounds > 0), "{rounds:?}");
    assert!(peak <= LIMIT + PAGES, "{peak} held");
    assert!(looks >= 20 && peak >= LIMIT / 2, "{peak} held at most, in {looks} looks");
}
