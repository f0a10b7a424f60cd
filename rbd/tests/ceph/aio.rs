//! The data path against a real Ceph: every trap of librbd's aio calls has a test.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use rbd::{Bytes, Compared, Errno, OUT_OF_RANGE};

use crate::bench::{PATIENCE, eventually};
use crate::io::*;

const MIB: u64 = 1 << 20;

#[test]
fn what_is_written_is_read_back() {
    let image = image("aio", 8 * MIB);
    let data: Vec<u8> = (0..200_000_u32).map(|n| (n % 251) as u8).collect();
    write(&image, 4 * MIB - 1000, data.clone()).unwrap(); // across two objects
    assert_eq!(read_ok(&image, 4 * MIB - 1000, data.len()), data);
    assert_eq!(flush(&image), Ok(()));
}

#[test]
fn what_was_never_written_reads_as_zeros() {
    let image = image("aio", MIB);
    assert_eq!(read_ok(&image, 0, 8192), vec![0; 8192]);
}

#[test]
fn a_read_past_the_end_is_short_and_leaves_the_rest_of_the_buffer() {
    let image = image("aio", MIB);
    write(&image, MIB - 512, vec![7; 512]).unwrap();
    let (result, data) = read(&image, MIB - 512, 2048);
    assert_eq!(result, Ok(512));
    assert_eq!(data[..512], [7; 512]);
    assert!(data[512..].iter().all(|byte| *byte == 0xEE));
    assert_eq!(read(&image, MIB, 512).0, Ok(0));
    assert_eq!(read(&image, u64::MAX - 100, 512).0, Ok(0));
}

#[test]
fn a_write_past_the_end_is_refused_and_nothing_of_it_lands() {
    // librbd would write the part inside and report success.
    let image = image("aio", MIB);
    assert_eq!(write(&image, MIB - 512, vec![7; 1024]), Err(OUT_OF_RANGE));
    assert_eq!(write(&image, MIB, vec![7; 512]), Err(OUT_OF_RANGE));
    assert_eq!(write(&image, u64::MAX - 10, vec![7; 512]), Err(OUT_OF_RANGE));
    assert_eq!(discard(&image, MIB - 512, 1024), Err(OUT_OF_RANGE));
    assert_eq!(write_zeroes(&image, MIB - 512, 1024, false), Err(OUT_OF_RANGE));
    assert_eq!(write_same(&image, MIB - 512, 1024, vec![7; 512]), Err(OUT_OF_RANGE));
    assert_eq!(compare_and_write(&image, MIB, vec![0; 512], vec![7; 512]), Err(OUT_OF_RANGE));
    assert_eq!(read_ok(&image, MIB - 512, 512), vec![0; 512]);
}

#[test]
fn a_range_of_no_length_never_reaches_librbd_which_would_abort() {
    let image = image("aio", MIB);
    assert_eq!(read(&image, 0, 0), (Ok(0), vec![]));
    assert_eq!(write(&image, 0, vec![]), Ok(()));
    assert_eq!(write(&image, MIB, vec![]), Ok(()));
    assert_eq!(discard(&image, 0, 0), Ok(()));
    assert_eq!(write_zeroes(&image, 0, 0, false), Ok(()));
}

#[test]
fn a_small_discard_succeeds_and_leaves_the_data_where_write_zeroes_clears_it() {
    let image = image("aio", 4 * MIB);
    write(&image, 0, vec![7; 128 << 10]).unwrap();
    assert_eq!(discard(&image, 4096, 4096), Ok(()));
    assert_eq!(
        read_ok(&image, 4096, 4096),
        vec![7; 4096],
        "the documented trap is gone: look at rbd::aio::discard"
    );
    assert_eq!(discard(&image, 0, 64 << 10), Ok(()));
    assert_eq!(read_ok(&image, 0, 64 << 10), vec![0; 64 << 10]);
    assert_eq!(write_zeroes(&image, 68 << 10, 4096, false), Ok(()));
    assert_eq!(read_ok(&image, 68 << 10, 4096), vec![0; 4096]);
    assert_eq!(read_ok(&image, 64 << 10, 4096), vec![7; 4096]);
    assert_eq!(write_zeroes(&image, 100 << 10, 512, true), Ok(()));
    assert_eq!(read_ok(&image, 100 << 10, 512), vec![0; 512]);
}

#[test]
fn a_discard_or_zeroing_of_several_gibibytes_is_one_call() {
    let image = image("aio", 6 << 30);
    write(&image, 5 << 30, vec![7; 4096]).unwrap();
    assert_eq!(discard(&image, 0, 6 << 30), Ok(()));
    assert_eq!(read_ok(&image, 5 << 30, 4096), vec![0; 4096]);
    write(&image, 5 << 30, vec![7; 4096]).unwrap();
    assert_eq!(write_zeroes(&image, 0, 6 << 30, false), Ok(()));
    assert_eq!(read_ok(&image, 5 << 30, 4096), vec![0; 4096]);
}

#[test]
fn write_same_repeats_its_pattern_and_wants_a_multiple_of_it() {
    let image = image("aio", MIB);
    let pattern: Vec<u8> = (0..512_u32).map(|n| n as u8).collect();
    write_same(&image, 1024, 4096, pattern.clone()).unwrap();
    assert_eq!(read_ok(&image, 1024, 4096), pattern.repeat(8));
    assert_eq!(read_ok(&image, 0, 1024), vec![0; 1024]);
    assert_eq!(write_same(&image, 0, 1000, pattern), Err(Errno(libc::EINVAL)));
    assert_eq!(write_same(&image, 0, 1000, vec![]), Err(Errno(libc::EINVAL)));
}

#[test]
fn write_same_of_zeros_leaves_zeros_even_in_a_range_too_small_to_discard() {
    let image = image("aio", MIB);
    write(&image, 0, vec![7; 8192]).unwrap();
    write_same(&image, 512, 4096, vec![0; 512]).unwrap();
    assert_eq!(read_ok(&image, 512, 4096), vec![0; 4096]);
    assert_eq!(read_ok(&image, 0, 512), vec![7; 512]);
}

#[test]
fn compare_and_write_reports_the_first_difference_and_stays_within_a_sector() {
    let image = image("aio", MIB);
    assert_eq!(compare_and_write(&image, 512, vec![0; 512], vec![1; 512]), Ok(Compared::Written));
    assert_eq!(read_ok(&image, 512, 512), vec![1; 512]);
    let mut expected = vec![1; 512];
    expected[300] = 9;
    assert_eq!(compare_and_write(&image, 512, expected, vec![2; 512]), Ok(Compared::Differs(300)));
    assert_eq!(read_ok(&image, 512, 512), vec![1; 512]);
    // What librbd refuses is refused before it is asked.
    assert_eq!(compare_and_write(&image, 0, vec![0; 1024], vec![0; 1024]), Err(Errno(libc::EINVAL)));
    assert_eq!(compare_and_write(&image, 256, vec![0; 512], vec![0; 512]), Err(Errno(libc::EINVAL)));
    assert_eq!(compare_and_write(&image, 0, vec![0; 512], vec![0; 256]), Err(Errno(libc::EINVAL)));
    assert_eq!(compare_and_write(&image, 256, vec![0; 256], vec![3; 256]), Ok(Compared::Written));
}

#[test]
fn more_iovecs_than_librbd_takes_are_one_operation() {
    // librbd refuses more than 1024 with EINVAL.
    let image = image("aio", 16 * MIB);
    let data: Vec<u8> = (0..2500 * 512_u32).map(|n| (n % 253) as u8).collect();
    let pieces = Bytes::in_pieces(data.clone(), 512);
    assert_eq!(wait(|done| image.write(512, pieces, move |result, _pieces| done(result))), Ok(()));
    assert_eq!(read_ok(&image, 512, data.len()), data);
    let into = Bytes::in_pieces(vec![0; data.len()], 512);
    let (result, into) =
        wait(|done| image.read(512, into, move |result, into: Bytes| done((result, into.into_vec()))));
    assert_eq!(result, Ok(data.len()));
    assert!(into == data);
}

#[test]
fn a_short_read_in_many_parts_counts_what_was_read() {
    let image = image("aio", MIB);
    let into = Bytes::in_pieces(vec![0; 2500 * 512], 512);
    assert_eq!(
        wait(|done| image.read(512, into, move |result, _into| done(result))),
        Ok((MIB - 512) as usize)
    );
}

#[test]
fn many_operations_in_flight_each_end_once_with_their_own_memory() {
    let image = image("aio", 16 * MIB);
    let (tell, told) = mpsc::channel();
    let in_all = 512;
    for n in 0..in_all {
        let tell = tell.clone();
        let data = Bytes::from(vec![n as u8; 4096]);
        image.write(n * 4096, data, move |result, data| tell.send((n, result, data.into_vec())).unwrap());
    }
    let mut seen = vec![0; in_all as usize];
    for _ in 0..in_all {
        let (n, result, data) = told.recv_timeout(PATIENCE).unwrap();
        assert_eq!(result, Ok(()));
        assert_eq!(data, vec![n as u8; 4096]);
        seen[n as usize] += 1;
    }
    assert!(seen.iter().all(|times| *times == 1));
    eventually("nothing is in flight", || image.in_flight() == 0);
    for n in 0..in_all {
        let tell = tell.clone();
        let into = Bytes::from(vec![0; 4096]);
        image.read(n * 4096, into, move |result, data| {
            tell.send((n, result.map(drop), data.into_vec())).unwrap();
        });
    }
    for _ in 0..in_all {
        let (n, result, data) = told.recv_timeout(PATIENCE).unwrap();
        assert_eq!((result, data), (Ok(()), vec![n as u8; 4096]));
    }
}

#[test]
fn a_panic_in_a_completion_is_stopped_and_the_next_operations_go_on() {
    let image = image("aio", MIB);
    let called = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&called);
    image.write(0, Bytes::from(vec![1; 512]), move |_result, _buffer| {
        count.fetch_add(1, Ordering::SeqCst);
        panic!("the test's own panic");
    });
    eventually("the completion ran", || called.load(Ordering::SeqCst) == 1);
    eventually("it counts as ended", || image.in_flight() == 0);
    assert_eq!(write(&image, 512, vec![2; 512]), Ok(()));
}

#[test]
fn closing_waits_for_what_is_in_flight() {
    let image = image("aio", 64 * MIB);
    let ended = Arc::new(AtomicUsize::new(0));
    for n in 0..32 {
        let ended = Arc::clone(&ended);
        image.write(n * MIB, Bytes::from(vec![1; MIB as usize]), move |result, _buffer| {
            assert_eq!(result, Ok(()));
            ended.fetch_add(1, Ordering::SeqCst);
        });
    }
    image.close(PATIENCE).unwrap();
    assert_eq!(ended.load(Ordering::SeqCst), 32);
}
