//! Simulates the plan for a million concurrent runs in `docs/nats.md`: how many runs each stream
//! gets, how long events wait for the leader of such a stream, and what the loss of a leader costs.
//!
//! `cargo run --release -p wellspring-log --example million_runs`
#![expect(clippy::print_stdout, reason = "an example prints what it found")]
#![expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the numbers are small, and a simulation needs few digits"
)]

use std::cmp::Reverse;
use std::collections::BinaryHeap;

const RUNS: usize = 1_000_000;
const STREAMS: usize = 100;
const TENANTS: usize = 10_000;

/// The share of runs whose model is writing.
const WRITING: f64 = 0.4;

/// Microseconds between two events of a run whose model is writing.
const EVENT_EVERY: u64 = 250_000;

/// Microseconds that an append takes besides its turn at the leader: the way to it and between
/// replicas.
const ROUND_TRIP: u64 = 1_000;

/// Appends per second that the leader of a stream accepts.
const APPENDS: u64 = 40_000;

/// The runs of a stream whose events are as many as the appends that its leader accepts.
const MOST: usize = (APPENDS as f64 / WRITING) as usize * EVENT_EVERY as usize / 1_000_000;

/// How long a stream has no leader after its server was lost, in microseconds.
const ELECTION: u64 = 6_000_000;

fn main() {
    let equal = vec![RUNS / TENANTS; TENANTS];
    // The second tenant has half as many runs as the first, the third a third, and so on.
    let whole: f64 = (1..=TENANTS).map(|rank| 1.0 / rank as f64).sum();
    let unequal: Vec<_> =
        (1..=TENANTS).map(|rank| (RUNS as f64 / rank as f64 / whole) as usize).collect();
    println!("runs of the largest of {STREAMS} streams, and streams with more than {MOST} runs");
    for (how, streams) in [
        ("equal tenants, by hash", by_hash(&equal)),
        ("unequal tenants, by hash", by_hash(&unequal)),
        ("unequal tenants, by size", by_size(&unequal)),
    ] {
        let largest = streams.iter().max().copied().unwrap_or_default();
        let full = streams.iter().filter(|runs| **runs > MOST).count();
        println!("  {how:25} {largest:>7} {full:>3}");
    }
    let tenants = unequal.iter().filter(|runs| **runs > MOST).count();
    println!("  largest tenant            {:>7} {tenants:>3}", unequal[0]);

    println!("\nevents of a stream whose leader accepts {APPENDS} appends per second");
    println!("    runs  appends/s  events/append   wait p50       p99       max");
    let share = RUNS / STREAMS;
    for runs in [share, 2 * share, 3 * share, unequal[0]] {
        println!("{}", stream(runs, None));
    }
    println!("the same, and its leader is lost for {} s", ELECTION / 1_000_000);
    for runs in [share, 2 * share, 3 * share, unequal[0]] {
        println!("{}", stream(runs, Some(5_000_000)));
    }
}

/// The runs of each stream, if a hash of the tenant's name chooses the stream.
fn by_hash(tenants: &[usize]) -> Vec<usize> {
    let mut streams = vec![0; STREAMS];
    for (name, runs) in tenants.iter().enumerate() {
        streams[(mixed(name as u64) % STREAMS as u64) as usize] += runs;
    }
    streams
}

/// The runs of each stream, if each tenant, the largest first, gets the emptiest stream.
fn by_size(tenants: &[usize]) -> Vec<usize> {
    let mut streams: BinaryHeap<_> = (0..STREAMS).map(|_| Reverse(0)).collect();
    for runs in tenants {
        if let Some(mut emptiest) = streams.peek_mut() {
            emptiest.0 += runs;
        }
    }
    streams.into_iter().map(|Reverse(runs)| runs).collect()
}

/// A hash (SplitMix64), the same in every run of the simulation.
fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// A run whose model is writing: it has one append in flight, and events that arrive meanwhile are
/// the next append.
struct Writer {
    /// When its first event arrives.
    phase: u64,
    /// Events that are stored or in the append in flight.
    sent: u64,
    /// Of these, those in the append in flight.
    in_flight: u64,
}

/// A line of the table: a stream with this many runs, for 20 simulated seconds, and how long events
/// waited until they were stored.
fn stream(runs: usize, lost_at: Option<u64>) -> String {
    const END: u64 = 20_000_000;
    let count = (runs as f64 * WRITING) as usize;
    let mut writers: Vec<_> = (0..count)
        .map(|number| Writer { phase: mixed(number as u64) % EVENT_EVERY, sent: 0, in_flight: 0 })
        .collect();
    let mut next: BinaryHeap<_> =
        writers.iter().enumerate().map(|(number, it)| Reverse((it.phase, number))).collect();
    // The leader takes appends in turn. `free` is when it takes the next one, in picoseconds.
    let (each, mut free) = (1_000_000_000_000 / APPENDS, 0);
    let (mut appends, mut waits) = (0_u64, Vec::new());
    while let Some(Reverse((now, number))) = next.pop().filter(|Reverse((now, _))| *now < END) {
        let writer = &mut writers[number];
        let first = writer.sent - writer.in_flight;
        appends += u64::from(writer.in_flight > 0);
        waits.extend((first..writer.sent).map(|event| now - writer.phase - event * EVENT_EVERY));
        let arrived = (now - writer.phase) / EVENT_EVERY + 1;
        writer.in_flight = arrived - writer.sent;
        writer.sent = arrived;
        if writer.in_flight == 0 {
            next.push(Reverse((writer.phase + arrived * EVENT_EVERY, number)));
            continue;
        }
        let mut turn = (now * 1_000_000).max(free);
        if let Some(lost) = lost_at
            && (lost..lost + ELECTION).contains(&(turn / 1_000_000))
        {
            turn = (lost + ELECTION) * 1_000_000;
        }
        free = turn + each;
        next.push(Reverse((free / 1_000_000 + ROUND_TRIP, number)));
    }
    waits.sort_unstable();
    let at = |share: usize| waits[(waits.len() - 1) * share / 100] as f64 / 1e3;
    format!(
        "{runs:>8}  {:>9.0}  {:>13.2}  {:>6.0} ms {:>6.0} ms {:>6.0} ms",
        appends as f64 / (END as f64 / 1e6),
        waits.len() as f64 / appends as f64,
        at(50),
        at(99),
        at(100),
    )
}
