//! An RBD disk on the data area of a real ring: librbd reads and writes the command's own blocks.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::io::{Read, Write};

use rbdgate::disk::{Buffer, Disk, Error, Request};
use ring::{Consumer, Entry, Extent, Nexus, Options, Pool, Producer, Request as RingRequest, Response};

use crate::inbox::Bench;

const MIB: usize = 1 << 20;

struct Ring {
    producer: Producer<()>,
    consumer: Consumer,
}

impl Ring {
    fn new() -> Self {
        let options = Options { data_area: 64 * MIB, largest_command: 16 * MIB, ..Options::default() };
        let (producer, consumer) = ring::create(&options, &Pool::new(64 << 20)).unwrap();
        Self { producer, consumer }
    }

    /// Sends a command with this buffer, carries it out by `request`, and gives the buffer back.
    fn carry_out(
        &mut self,
        disk: &mut Bench,
        data: Extent,
        request: impl FnOnce(Buffer) -> Request,
    ) -> (Result<(), Error>, Extent) {
        let sent = RingRequest { cdb: &[0; 16], nexus: Nexus::UNKNOWN, data, context: () };
        self.producer.push(sent).unwrap();
        let _ = self.producer.publish();
        let Ok(Entry::Command(command)) = self.consumer.next() else { panic!("a command was sent") };
        let result = disk.run(request(Buffer::Segments(command.data().clone()))).map(drop);
        self.consumer.complete(command, Response::good());
        let _ = self.consumer.commit();
        assert_eq!(self.consumer.withheld(), 0, "the disk has let go of the segments");
        let mut back = None;
        self.producer.reap(|completion| back = Some(completion.data)).unwrap();
        (result, back.unwrap())
    }

    /// A buffer with this content.
    fn filled(&self, content: &[u8]) -> Extent {
        let mut extent = self.producer.try_allocate(content.len()).unwrap();
        let mut parts = Vec::new();
        extent.io_slices_mut(0..content.len(), &mut parts);
        let mut rest = content;
        for part in &mut parts {
            rest.read_exact(part).unwrap();
        }
        extent
    }

    /// Uses the area up page by page and gives every second page back: what follows is in pieces of one page.
    fn fragment(&self) -> Vec<Extent> {
        let pages: Vec<Extent> = std::iter::from_fn(|| self.producer.try_allocate(4096).ok()).collect();
        let mut kept = Vec::new();
        for (index, page) in pages.into_iter().enumerate() {
            if index % 2 == 0 {
                kept.push(page);
            }
        }
        kept
    }
}

fn content_of(extent: &Extent) -> Vec<u8> {
    let mut parts = Vec::new();
    extent.io_slices(0..extent.len(), &mut parts);
    let mut content = Vec::new();
    for part in &parts {
        content.write_all(part).unwrap();
    }
    content
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n % 251) as u8).collect()
}

#[test]
fn ceph_a_command_s_own_blocks_are_written_and_read() {
    let (mut disk, mut ring) = (Bench::new(16 << 20), Ring::new());
    let data = pattern(MIB + 512);
    let out = ring.filled(&data);
    let write = |buffer| Request::Write { offset: 512, buffer, fua: false };
    assert_eq!(ring.carry_out(&mut disk, out, write).0, Ok(()));
    assert_eq!(disk.read(512, data.len()).unwrap(), data);
    let room = ring.filled(&vec![0xEE; data.len()]);
    let (result, got) = ring.carry_out(&mut disk, room, |buffer| Request::Read { offset: 512, buffer });
    assert_eq!(result, Ok(()));
    assert!(content_of(&got) == data);
}

#[test]
fn ceph_a_command_in_more_pieces_than_librbd_takes_is_one_command() {
    let (mut disk, mut ring) = (Bench::new(16 << 20), Ring::new());
    let kept = ring.fragment();
    let data = pattern(8 * MIB);
    let out = ring.filled(&data);
    assert!(out.pieces() > 1024, "{}", out.pieces());
    let write = |buffer| Request::Write { offset: 4096, buffer, fua: false };
    let (result, back) = ring.carry_out(&mut disk, out, write);
    assert_eq!(result, Ok(()));
    drop(back);
    let room = ring.filled(&vec![0xEE; data.len()]);
    let (result, got) = ring.carry_out(&mut disk, room, |buffer| Request::Read { offset: 4096, buffer });
    assert_eq!(result, Ok(()));
    assert!(content_of(&got) == data);
    drop(kept);
}

#[test]
fn ceph_a_refused_command_gives_its_blocks_back() {
    let (mut disk, mut ring) = (Bench::new(1 << 20), Ring::new());
    let out = ring.filled(&pattern(4096));
    let write = |buffer| Request::Write { offset: 1 << 20, buffer, fua: false };
    assert_eq!(ring.carry_out(&mut disk, out, write).0, Err(Error::OutOfRange));
    disk.disk.close();
    let out = ring.filled(&pattern(4096));
    let write = |buffer| Request::Write { offset: 0, buffer, fua: false };
    assert_eq!(ring.carry_out(&mut disk, out, write).0, Err(Error::NotReady));
}
