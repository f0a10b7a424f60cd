//! Both ends, several LUNs and one pool against a model: who has which blocks, and what stands in them.

use std::collections::BTreeMap;
use std::future::Future;
use std::io::IoSlice;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::Script;
use crate::{
    Allocate, AllocateError, Command, Consumer, Entry, Extent, Nexus, Options, Pool, Producer, Request,
    Response, create,
};

const BLOCK: u64 = 4096;

/// One LUN: both ends, and the model of what is where.
struct Lun {
    producer: Producer<u32>,
    consumer: Consumer,
    /// Marks this LUN's bytes: the upper two bits, so that a byte tells whose it is. Never 0.
    mark: u8,
    /// Allocated and not pushed.
    held: Vec<Extent>,
    waiting: Vec<Pin<Box<Allocate>>>,
    /// Pushed and not reaped, by context.
    in_flight: BTreeMap<u32, Sent>,
    taken: Vec<Command>,
    next: u32,
}

/// What the model knows of a command in flight.
#[derive(Debug)]
struct Sent {
    id: u16,
    blocks: Vec<(u64, u64)>,
    len: usize,
    /// Filled by the producer with [`Lun::byte`]: a write.
    filled: bool,
    /// Bytes the consumer put in, and said so.
    answered: Option<Option<usize>>,
}

/// Each command is completed exactly once, with its own bytes and no other's; no two commands share a block; the pool's
/// figures are exact, and the memory that the kernel counts is never more than is charged.
pub fn model(script: &[u8]) {
    let mut script = Script(script);
    let pool = Pool::new(limit(&mut script));
    let mut luns: Vec<Lun> =
        (1..=1 + script.byte() % 3).map(|mark| Lun::new(&pool, mark, &mut script)).collect();
    while !script.is_empty() {
        let count = luns.len();
        let lun = &mut luns[script.below(count)];
        match script.byte() % 16 {
            0..=2 => lun.allocate(&pool, &mut script),
            3 => lun.wait(&mut script),
            4 => lun.poll(&mut script),
            5..=7 => lun.push(&mut script),
            8 => drop(lun.producer.publish()),
            9 | 10 => lun.take(),
            11 | 12 => lun.complete(&mut script),
            13 => lun.reap(),
            14 => match script.byte() % 4 {
                0 => pool.set_limit(limit(&mut script)),
                1 => drop(pool.reclaim_idle(Duration::ZERO)),
                2 if !lun.held.is_empty() => drop(lun.held.swap_remove(script.below(lun.held.len()))),
                _ => drop(pool.try_reserve(script.below(100_000)).map(|mut reserve| {
                    let extent = lun.producer.allocate_from(&mut reserve, script.below(30_000));
                    lun.held.extend(extent.ok().filter(|extent| !extent.is_empty()));
                })),
            },
            _ => lun.run_dry(),
        }
        check(&pool, &luns);
    }
    for lun in &mut luns {
        lun.held.clear();
        lun.waiting.clear();
        lun.run_dry();
        assert!(lun.in_flight.is_empty(), "lost: {:?}", lun.in_flight);
    }
    check(&pool, &luns);
    assert_eq!((pool.usage().in_use, pool.usage().waiting_luns), (0, 0));
    pool.reclaim_idle(Duration::ZERO);
    assert_eq!(pool.usage().charged, luns.len() as u64 * BLOCK, "an idle LUN keeps its mailbox' page");
    drop(luns);
    assert_eq!((pool.usage().charged, pool.usage().luns), (0, 0));
}

fn limit(script: &mut Script<'_>) -> u64 {
    (1 + script.below(64)) as u64 * 8 * 1024
}

fn check(pool: &Pool, luns: &[Lun]) {
    let usage = pool.usage();
    let (mut charged, mut in_use, mut commands) = (0, 0, 0);
    for lun in luns {
        let area = lun.producer.usage();
        let mine = area.backed + area.command_area_backed;
        charged += mine;
        commands += area.command_area_backed;
        assert!(lun.producer.resident().expect("fstat") <= mine, "memory that is not charged");
        let pieces = || lun.in_flight.values().flat_map(|sent| sent.blocks.iter().copied());
        let held = || lun.held.iter().flat_map(|extent| extent.iovecs());
        let mut blocks: Vec<(u64, u64)> =
            pieces().chain(held()).map(|(base, len)| (base, len.next_multiple_of(BLOCK))).collect();
        blocks.sort_unstable();
        assert!(
            blocks.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0),
            "two commands share a block"
        );
        let taken = blocks.iter().map(|(_, len)| len).sum::<u64>();
        assert_eq!(area.in_use, taken);
        in_use += taken;
        assert_eq!(area.in_flight, lun.in_flight.len());
    }
    assert_eq!(usage.charged, charged);
    assert!(usage.in_use >= in_use, "{usage:?}");
    if usage.charged > usage.limit {
        assert!(usage.charged <= in_use + commands, "beyond the limit with memory to spare: {usage:?}");
    }
}

impl Lun {
    fn new(pool: &Pool, mark: u8, script: &mut Script<'_>) -> Self {
        let options = Options {
            command_area: 4096 * (1 + script.below(3)),
            data_area: 4096 * (1 + script.below(200)),
            largest_command: 4096,
            ..Options::default()
        };
        let (producer, consumer) = create(&options, pool).expect("memfd");
        let (held, waiting, in_flight, taken) = Default::default();
        Self { producer, consumer, mark, held, waiting, in_flight, taken, next: 0 }
    }

    fn byte(&self, context: u32) -> u8 {
        self.mark << 6 | (context % 64) as u8
    }

    fn allocate(&mut self, pool: &Pool, script: &mut Script<'_>) {
        let len = script.below(60_000);
        match self.producer.try_allocate(len) {
            Ok(extent) => self.keep(extent, len),
            Err(AllocateError::TooLarge) => {
                let need = (len as u64).next_multiple_of(BLOCK);
                assert!(need > self.producer.usage().data_area || need > pool.usage().limit);
            }
            Err(AllocateError::Exhausted) => {}
        }
    }

    /// What stands in a new extent may be old, but it is this LUN's.
    fn keep(&mut self, extent: Extent, len: usize) {
        assert_eq!(extent.len(), len);
        let foreign = contents(&extent).into_iter().find(|byte| *byte != 0 && byte >> 6 != self.mark);
        assert_eq!(foreign, None, "bytes of another LUN");
        if len > 0 {
            self.held.push(extent);
        }
    }

    fn wait(&mut self, script: &mut Script<'_>) {
        if self.waiting.len() < 8 {
            self.waiting.push(Box::pin(self.producer.allocate(script.below(60_000))));
        }
        self.poll(script);
    }

    fn poll(&mut self, script: &mut Script<'_>) {
        if self.waiting.is_empty() {
            return;
        }
        let index = script.below(self.waiting.len());
        if script.byte() < 32 {
            drop(self.waiting.swap_remove(index));
            return;
        }
        match self.waiting[index].as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => {}
            Poll::Ready(result) => {
                drop(self.waiting.swap_remove(index));
                match result {
                    Ok(extent) => {
                        let len = extent.len();
                        self.keep(extent, len);
                    }
                    Err(error) => assert_eq!(error, AllocateError::TooLarge),
                }
            }
        }
    }

    fn push(&mut self, script: &mut Script<'_>) {
        let mut data = match self.held.len() {
            0 => Extent::default(),
            held => self.held.swap_remove(script.below(held)),
        };
        let (context, filled) = (self.next, script.byte().is_multiple_of(2));
        let byte = self.byte(context);
        if filled {
            let mut slices = Vec::new();
            let len = data.len();
            data.io_slices_mut(0..len, &mut slices);
            slices.iter_mut().for_each(|slice| slice.fill(byte));
        }
        let (blocks, len) = (data.iovecs().collect(), data.len());
        let cdb = vec![0x2a; 1 + script.below(40)];
        let nexus = Nexus::new(context, u32::from(filled));
        match self.producer.push(Request { cdb: &cdb, nexus, data, context }) {
            Ok(id) => {
                assert!(self.in_flight.values().all(|sent| sent.id != id), "an id is used twice");
                self.in_flight.insert(context, Sent { id, blocks, len, filled, answered: None });
                self.next += 1;
            }
            Err(rejected) => {
                assert_eq!((rejected.context, rejected.data.len()), (context, len));
                self.held.extend(Some(rejected.data).filter(|data| !data.is_empty()));
            }
        }
    }

    fn take(&mut self) {
        if let Ok(Entry::Command(command)) = self.consumer.next() {
            let (context, sent) = self.sent(&command);
            assert_eq!((command.id(), command.data().len()), (sent.id, sent.len));
            if sent.filled {
                assert_eq!(command.data().compare(0, &vec![self.byte(context); sent.len]), Ok(()));
            }
            self.taken.push(command);
        }
    }

    fn sent(&self, command: &Command) -> (u32, &Sent) {
        let context = command.nexus().id();
        (context, &self.in_flight[&context])
    }

    fn complete(&mut self, script: &mut Script<'_>) {
        if self.taken.is_empty() {
            return;
        }
        let command = self.taken.swap_remove(script.below(self.taken.len()));
        let (context, sent) = self.sent(&command);
        let (len, filled) = (sent.len, sent.filled);
        let put = match script.byte() % 4 {
            1 if !filled => 0,
            2 if !filled => script.below(len + 1),
            _ => len,
        };
        if filled {
            assert_eq!(
                command.data().compare(0, &vec![self.byte(context); len]),
                Ok(()),
                "written by another"
            );
        } else {
            command.data().fill(0, put, self.byte(context));
        }
        let transfer = (put < len).then_some(put);
        self.in_flight.get_mut(&context).expect("in flight").answered = Some(transfer);
        self.consumer.complete(command, Response { transfer, ..Response::good() });
        if script.byte().is_multiple_of(2) {
            let _ = self.consumer.commit();
        }
    }

    fn reap(&mut self) {
        let (mark, in_flight) = (self.mark, &mut self.in_flight);
        let count = self.producer.reap(|done| {
            let sent = in_flight.remove(&done.context).expect("completed twice, or never sent");
            assert_eq!((done.id, done.data.len()), (sent.id, sent.len));
            assert_eq!(done.transfer.map(|len| len as usize), sent.answered.expect("never answered"));
            let bytes = contents(&done.data);
            let byte = mark << 6 | (done.context % 64) as u8;
            let own = sent.answered.flatten().unwrap_or(sent.len);
            assert!(bytes[..own].iter().all(|found| *found == byte), "another command's bytes");
            assert!(own > 0 || bytes.iter().all(|found| *found == 0), "stale bytes");
        });
        assert!(count.is_ok());
    }

    /// Everything that was pushed is answered and reaped.
    fn run_dry(&mut self) {
        let _ = self.producer.publish();
        loop {
            let before = self.taken.len();
            self.take();
            if self.taken.len() == before {
                break;
            }
        }
        while !self.taken.is_empty() {
            self.complete(&mut Script(&[]));
        }
        let _ = self.consumer.commit();
        self.reap();
    }
}

fn contents(extent: &Extent) -> Vec<u8> {
    let mut slices: Vec<IoSlice<'_>> = Vec::new();
    extent.io_slices(0..extent.len(), &mut slices);
    let mut all = Vec::with_capacity(extent.len());
    slices.iter().for_each(|slice| all.extend_from_slice(slice));
    all
}
