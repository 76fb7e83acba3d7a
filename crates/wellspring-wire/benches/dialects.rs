//! The cost of one event in each dialect: `cargo bench -p wellspring-wire --bench dialects`.
//!
//! `delta` is the hot path: frames of 32 text deltas of the root agent, including the outline's
//! fold, encoded into a reused buffer. `run` is a sample run with most kinds of events.

use std::time::Instant;

use wellspring_core::{AgentNo, Event, Millis, PartId, PartKind, Record, Seq};
use wellspring_testkit::figures::{Scale, figure, median};
use wellspring_testkit::{RunBuilder, samples};
use wellspring_wire::{DialectName, Encoder, Out};

/// Short deltas as a model sends them; some need escaping.
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

/// Panics if the dialect emits nothing for these records: measuring it would be meaningless.
fn says_something(dialect: DialectName, prefix: &[Record], frame: &[Record]) {
    let (mut encoder, mut out) = encoder(dialect, prefix);
    encoder.frame(frame, &mut out);
    // `stream_delta` emits one event per frame; the others one for at least every fourth record
    // here.
    let least = if dialect == DialectName::StreamDelta { 1 } else { frame.len() / 4 };
    assert!(
        out.len() >= least,
        "{dialect} emits only {} events for {} records",
        out.len(),
        frame.len()
    );
}

/// An encoder that has already encoded these records, with a grown buffer.
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
