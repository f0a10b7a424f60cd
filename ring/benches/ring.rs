//! What the ring itself costs: nanoseconds per command and per allocation, printed.
//!
//! `cargo bench -p rbdgate-ring`
#![expect(clippy::print_stdout, clippy::expect_used, reason = "a benchmark prints, and stops at once")]

use std::hint::black_box;
use std::time::Instant;

use ring::{Consumer, Entry, Extent, Nexus, Options, Pool, Producer, Request, Response, create};

const CDB: [u8; 10] = [0x28, 0, 0, 0, 0, 0, 0, 0, 8, 0];

fn main() {
    println!("{:<56} {:>8} {:>8}", "nanoseconds for one", "best", "median");
    for (len, depth) in [(0, 1), (4 << 10, 1), (4 << 10, 32), (256 << 10, 1), (256 << 10, 32)] {
        let name = format!("command, {} KiB, {depth} at a time", len >> 10);
        measure(&name, depth, commands(len, depth));
    }
    for len in [4 << 10, 256 << 10] {
        for busy in [0, 400] {
            measure(
                &format!("allocate and free {} KiB, {busy} others held", len >> 10),
                1,
                allocations(len, busy),
            );
        }
    }
    measure("allocate and free 256 KiB in an area in pieces", 1, in_pieces(256 << 10));
}

/// Runs for about a second in rounds of a tenth of a millisecond. Shown are the best tenth (a machine that does nothing
/// else) and the median.
fn measure(name: &str, per_call: usize, mut call: impl FnMut()) {
    let begin = Instant::now();
    let (mut rounds, mut calls) = (Vec::new(), 8);
    while begin.elapsed().as_millis() < 1000 {
        let start = Instant::now();
        (0..calls).for_each(|_| call());
        let nanos = start.elapsed().as_nanos();
        rounds.push(nanos as f64 / (calls * per_call) as f64);
        if nanos < 100_000 {
            calls += 1 + calls / 8;
        }
    }
    let mut rounds = rounds.split_off(rounds.len() / 10);
    rounds.sort_by(f64::total_cmp);
    println!("{name:<56} {:>8.0} {:>8.0}", rounds[rounds.len() / 10], rounds[rounds.len() / 2]);
}

fn ring() -> (Producer<u64>, Consumer) {
    create(&Options::default(), &Pool::new(2 << 30)).expect("memfd")
}

fn commands(len: usize, depth: usize) -> impl FnMut() {
    let (producer, mut consumer) = ring();
    let mut commands = Vec::new();
    move || {
        for context in 0..depth as u64 {
            let data = producer.try_allocate(len).expect("room");
            let request = Request { cdb: &CDB, nexus: Nexus::new(1, 0), data, context };
            producer.push(request).expect("room");
        }
        let _ = black_box(producer.publish());
        while let Ok(Entry::Command(command)) = consumer.next() {
            commands.push(command);
        }
        for command in commands.drain(..) {
            consumer.complete(command, Response::good());
        }
        let _ = black_box(consumer.commit());
        let reaped = producer.reap(|completion| drop(black_box(completion))).expect("a sound ring");
        assert_eq!(reaped, depth);
    }
}

fn allocations(len: usize, busy: usize) -> impl FnMut() {
    let (producer, consumer) = ring();
    let held: Vec<Extent> = (0..busy).map(|_| producer.try_allocate(64 << 10).expect("room")).collect();
    move || {
        black_box((&held, &consumer));
        drop(black_box(producer.try_allocate(len).expect("room")));
    }
}

/// No run of the area below 256 MiB is longer than three blocks.
fn in_pieces(len: usize) -> impl FnMut() {
    let (producer, consumer) = ring();
    let mut all: Vec<Extent> = (0..65_536).map(|_| producer.try_allocate(4096).expect("room")).collect();
    let mut index = 0;
    all.retain(|_| {
        index += 1;
        index % 4 == 0
    });
    move || {
        black_box((&all, &consumer));
        drop(black_box(producer.try_allocate(len).expect("room")));
    }
}
