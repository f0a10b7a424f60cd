//! A command's buffer from both sides: extents of the producer, segments of the consumer, scattered over the data area.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::AsFd;

use ring::{
    Command, Consumer, Direction, Entry, Extent, Nexus, Options, Pool, Producer, Request, Response, Segments,
    create,
};

const PAGE: usize = 4096;

/// A ring whose data area has only single free blocks, the even ones, and what keeps it so.
fn scattered() -> (Producer<()>, Consumer, Vec<Extent>) {
    let options = Options { data_area: 64 * PAGE, largest_command: 32 * PAGE, ..Options::default() };
    let (producer, consumer) = create(&options, &Pool::new(1 << 20)).unwrap();
    let blocks: Vec<Extent> = (0..64).map(|_| producer.try_allocate(PAGE).unwrap()).collect();
    let odd =
        blocks.into_iter().enumerate().filter(|(index, _)| index % 2 == 1).map(|(_, block)| block).collect();
    (producer, consumer, odd)
}

/// A command over `len` scattered bytes that count up.
fn command(producer: &Producer<()>, consumer: &mut Consumer, len: usize) -> Command {
    let mut data = producer.try_allocate(len).unwrap();
    assert_eq!(data.pieces(), len.div_ceil(PAGE));
    let mut slices: Vec<IoSliceMut<'_>> = Vec::new();
    data.io_slices_mut(0..len, &mut slices);
    slices.iter_mut().flat_map(|slice| slice.iter_mut()).zip(0u32..).for_each(|(byte, at)| *byte = at as u8);
    producer.push(Request { cdb: &[0x2a; 10], nexus: Nexus::UNKNOWN, data, context: () }).unwrap();
    let _ = producer.publish();
    let Ok(Entry::Command(command)) = consumer.next() else { panic!("no command") };
    command
}

fn bytes(segments: &Segments) -> Vec<u8> {
    let mut bytes = vec![0; segments.len()];
    segments.copy_out(0, &mut bytes);
    bytes
}

fn file(name: &str) -> File {
    let path = std::env::temp_dir().join(format!("rbdgate-ring-{name}-{}", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    file
}

#[test]
fn bytes_are_reached_across_pieces_at_any_alignment() {
    let (producer, mut consumer, _odd) = scattered();
    let command = command(&producer, &mut consumer, 3 * PAGE + 5);
    let data = command.data().clone();
    let counted: Vec<u8> = (0..3 * PAGE + 5).map(|at| at as u8).collect();
    assert_eq!(bytes(&data), counted);
    for (offset, len) in [(0, 1), (4093, 7), (4095, 4099), (8191, 2), (3, 3 * PAGE + 2), (3 * PAGE + 5, 0)] {
        let mut part = vec![0; len];
        data.copy_out(offset, &mut part);
        assert_eq!(part, counted[offset..offset + len]);
        assert_eq!(bytes(&data.slice(offset, len)), part);
        assert_eq!(data.compare(offset, &part), Ok(()));
        if len > 1 {
            part[len - 1] ^= 1;
            assert_eq!(data.compare(offset, &part), Err(len - 1));
        }
    }
    data.fill(4090, 20, 0xaa);
    data.copy_in(2, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
    let mut expected = counted;
    expected[4090..4110].fill(0xaa);
    expected[2..13].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
    assert_eq!(bytes(&data), expected);
    drop(data);
    consumer.complete(command, Response::good());
}

#[test]
fn iovecs_cover_the_buffer_and_nothing_else() {
    let (producer, mut consumer, _odd) = scattered();
    let command = command(&producer, &mut consumer, 2 * PAGE + 100);
    let lens = |segments: &Segments| segments.iovecs().iter().map(|iovec| iovec.iov_len).collect::<Vec<_>>();
    assert_eq!(lens(command.data()), [PAGE, PAGE, 100]);
    assert_eq!(lens(&command.data().slice(PAGE - 1, PAGE + 2)), [1, PAGE, 1]);
    assert!(command.data().slice(5, 0).is_empty());
    assert_eq!(command.bidi_data().len(), 0);
    consumer.complete(command, Response::good());
}

#[test]
#[should_panic(expected = "outside a buffer")]
fn a_range_outside_is_the_callers_bug() {
    let (producer, mut consumer, _odd) = scattered();
    let command = command(&producer, &mut consumer, 100);
    let data = command.data().clone();
    consumer.complete(command, Response::good());
    data.fill(90, 11, 0);
}

#[test]
fn files_are_read_and_written_in_place() {
    let (producer, mut consumer, _odd) = scattered();
    let command = command(&producer, &mut consumer, 5 * PAGE + 77);
    let (data, file) = (command.data().clone(), file("rw"));
    let before = bytes(&data);
    data.write_at(file.as_fd(), 512, false).unwrap();
    data.slice(10, 20).write_at(file.as_fd(), 0, true).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 512 + before.len() as u64);
    data.fill(0, data.len(), 0);
    assert_eq!(data.read_at(file.as_fd(), 512).unwrap(), before.len());
    assert_eq!(bytes(&data), before);
    assert_eq!(data.read_at(file.as_fd(), 512 + 1000).unwrap(), before.len() - 1000, "short only at the end");
    assert_eq!(data.slice(0, 20).read_at(file.as_fd(), 0).unwrap(), 20);
    assert_eq!(data.compare(0, &before[10..30]), Ok(()));
    let read_only = File::open("/proc/self/exe").unwrap();
    assert!(data.write_at(read_only.as_fd(), 0, false).is_err());
    drop(data);
    consumer.complete(command, Response::good());
}

#[test]
fn more_pieces_than_one_call_takes_are_no_matter() {
    let options = Options { data_area: 4096 * PAGE, largest_command: PAGE, ..Options::default() };
    let (producer, mut consumer) = create(&options, &Pool::new(64 << 20)).unwrap();
    let blocks: Vec<Extent> = (0..4096).map(|_| producer.try_allocate(PAGE).unwrap()).collect();
    let _odd: Vec<_> = blocks.into_iter().enumerate().filter(|(index, _)| index % 2 == 1).collect();
    let command = command(&producer, &mut consumer, 2000 * PAGE);
    let (data, file) = (command.data().clone(), file("pieces"));
    let before = bytes(&data);
    data.write_at(file.as_fd(), 0, false).unwrap();
    data.fill(0, data.len(), 0xff);
    assert_eq!(data.read_at(file.as_fd(), 0).unwrap(), before.len());
    assert!(bytes(&data) == before);
    drop(data);
    consumer.complete(command, Response::good());
}

#[test]
fn the_lowest_run_that_fits_goes_first_and_else_the_lowest_blocks() {
    let (producer, _consumer, mut odd) = scattered();
    assert_eq!(producer.try_allocate(3 * PAGE).unwrap().pieces(), 3);
    // Blocks 20, 21 and 22 are free in a row now.
    odd.remove(10);
    let three = producer.try_allocate(3 * PAGE).unwrap();
    assert_eq!(three.pieces(), 1);
    assert_eq!(producer.try_allocate(5 * PAGE).unwrap().pieces(), 5);
    drop((three, odd));
    assert_eq!(producer.try_allocate(64 * PAGE).unwrap().pieces(), 1, "the whole area is one run again");
}

#[test]
fn a_range_of_an_extent_is_sliced_across_its_pieces() {
    let (producer, _consumer, _odd) = scattered();
    let mut data = producer.try_allocate(3 * PAGE - 9).unwrap();
    data.zero();
    let mut slices: Vec<IoSliceMut<'_>> = Vec::new();
    data.io_slices_mut(PAGE - 3..2 * PAGE + 4, &mut slices);
    assert_eq!(slices.iter().map(|slice| slice.len()).collect::<Vec<_>>(), [3, PAGE, 4]);
    slices.iter_mut().for_each(|slice| slice.fill(1));
    let mut slices: Vec<IoSlice<'_>> = Vec::new();
    data.io_slices(0..data.len(), &mut slices);
    let all: Vec<u8> = slices.iter().flat_map(|slice| slice.to_vec()).collect();
    assert!(
        all.iter().enumerate().all(|(at, byte)| *byte == u8::from((PAGE - 3..2 * PAGE + 4).contains(&at)))
    );
    assert_eq!((all.len(), data.len()), (3 * PAGE - 9, 3 * PAGE - 9));
}

#[test]
fn an_extent_grows_by_another_of_its_lun() {
    let (producer, mut consumer, _odd) = scattered();
    let mut data = producer.try_allocate(2 * PAGE).unwrap();
    data.append(producer.try_allocate(PAGE + 1).unwrap());
    data.append(Extent::default());
    data.set_direction(Direction::In);
    assert_eq!((data.len(), data.pieces()), (3 * PAGE + 1, 4));
    producer.push(Request { cdb: &[0x28; 10], nexus: Nexus::UNKNOWN, data, context: () }).unwrap();
    let _ = producer.publish();
    let Ok(Entry::Command(command)) = consumer.next() else { panic!("no command") };
    assert_eq!((command.data().len(), command.direction()), (3 * PAGE + 1, Direction::In));
    consumer.complete(command, Response::good());
    let _ = consumer.commit();
    producer.reap(drop).unwrap();
    assert_eq!(producer.usage().in_use, 32 * PAGE as u64);
}
