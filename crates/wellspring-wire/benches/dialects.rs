//! What an event costs in each dialect: `cargo bench -p wellspring-wire --bench dialects`.
//!
//! `delta` is the hot path: frames of 32 deltas of the root's text, the outline's fold
//! included, into a kept buffer. `run` is a sample run with one of most things.

use std::time::Instant;

use wellspring_core::{AgentNo, Event, Millis, PartId, PartKind, Record, Seq};
use wellspring_testkit::figures::{Scale, figure, median};
use wellspring_testkit::{RunBuilder, samples};
use wellspring_wire::{DialectName, Encoder, Out};

/// What a model's deltas look like: short, and some need escaping.
const WORDS: [&str; 8] =
    [" the", " spring", ",", " which", "\n\n", " \"cold\"", " w\u{e4}ter", " is"];

/// Records in one append.
const FRAME: usize = 32;

fn main() {
    let samples = Scale::asked().rounds(20_000);
    let mut run = RunBuilder::new("demo", "Hello?");
    run.turn();
    let part = run.open(PartKind::TEXT);
    let frame = deltas(part, run.head());
    compare("delta", samples, &run.records(), &frame);
    compare("run", samples / 10, &[], &samples::one_of_each());
}

/// One figure per dialect, each beside the native form.
fn compare(what: &str, samples: usize, prefix: &[Record], frame: &[Record]) {
    let baseline = format!("dialect/{what}/{}", DialectName::Record);
    for dialect in DialectName::ALL {
        says_something(dialect, prefix, frame);
        let cost = median(samples, frame.len(), || {
            let (mut encoder, mut out) = encoder(dialect, prefix);
            let began = Instant::now();
            encoder.frame(frame, &mut out);
            began.elapsed()
        });
        let beside = (dialect != DialectName::Record).then_some(baseline.as_str());
        figure(format!("dialect/{what}/{dialect}"), cost, "ns/record", beside);
    }
}

fn deltas(part: PartId, head: Seq) -> Vec<Record> {
    let words = WORDS.iter().cycle().take(FRAME);
    let record = |(index, word): (usize, &&str)| Record {
        seq: Seq(head.0 + 1 + index as u64),
        agent: AgentNo::ROOT,
        at: Millis(0),
        event: Event::PartDelta { part, chunk: (*word).into() },
    };
    words.enumerate().map(record).collect()
}

/// A dialect that does not know the part says nothing, very fast: refuse to measure that.
fn says_something(dialect: DialectName, prefix: &[Record], frame: &[Record]) {
    let (mut encoder, mut out) = encoder(dialect, prefix);
    encoder.frame(frame, &mut out);
    // A view says one thing per frame; the others say something of every fourth record here.
    let least = if dialect == DialectName::StreamDelta { 1 } else { frame.len() / 4 };
    assert!(out.len() >= least, "{dialect} says only {} of {} records", out.len(), frame.len());
}

/// An encoder that has had some records, and a buffer that has grown already.
fn encoder(dialect: DialectName, records: &[Record]) -> (Encoder, Out) {
    let mut encoder = Encoder::new(dialect);
    let mut out = Out::default();
    encoder.frame(records, &mut out);
    for _ in 0..64 {
        out.event(&" ".repeat(128));
    }
    out.clear();
    (encoder, out)
}
