//! Shared functions for tests, mostly those of the dialects.

use std::fmt::Write as _;

use proptest::sample::Index;
use serde_json::Value;
use wellspring_core::{Record, Transcript};
use wellspring_testkit::samples;

use crate::{Before, DialectName, Encoder, Out, WirePosition};

/// Every sample run in a dialect: one wire event per line, after its position. Each record is
/// its own frame.
pub(crate) fn render_samples(dialect: DialectName) -> String {
    let mut text = String::new();
    for sample in samples::all() {
        let _ = writeln!(text, "# {}", sample.name);
        for (position, json) in encode(dialect, &sample.records) {
            // The run's id is the same in every line, so it is shortened.
            let json = json.replace(&wellspring_testkit::RUN.to_string(), "run");
            let _ = writeln!(text, "{position:<6}{json}");
        }
        text.push('\n');
    }
    text
}

/// A run in a dialect, with positions.
pub(crate) fn encode(dialect: DialectName, records: &[Record]) -> Vec<(String, String)> {
    let mut encoder = Encoder::new(dialect);
    let mut out = Out::default();
    for record in records {
        encoder.frame(std::slice::from_ref(record), &mut out);
    }
    let text = |json: &[u8]| String::from_utf8(json.into()).unwrap();
    out.events().map(|(position, json)| (position.to_string(), text(json))).collect()
}

/// The JSON that a dialect emits for any records, in or out of order.
pub(crate) fn written(dialect: DialectName, records: &[Record]) -> Vec<Value> {
    let mut dialect = dialect.dialect();
    let mut transcript = Transcript::default();
    let mut out = Out::default();
    for record in records {
        dialect.encode((&transcript).into(), record, &mut out);
        transcript.apply(record);
    }
    out.events().map(|(_, json)| serde_json::from_slice(json).unwrap()).collect()
}

/// The JSON that a dialect emits if it only has the outline.
pub(crate) fn outlined(dialect: DialectName, records: &[Record]) -> Vec<Value> {
    let mut encoder =
        Encoder::resume(dialect, wellspring_core::Outline::default(), WirePosition::START);
    let mut out = Out::default();
    encoder.frame(records, &mut out);
    out.events().map(|(_, json)| serde_json::from_slice(json).unwrap()).collect()
}

/// The JSON of the dialect's typed events.
pub(crate) fn typed<T: serde::Serialize>(
    records: &[Record],
    mut events: impl FnMut(Before<'_>, &Record) -> Vec<T>,
) -> Vec<Value> {
    let mut transcript = Transcript::default();
    let mut all = Vec::new();
    for record in records {
        let events = events((&transcript).into(), record);
        all.extend(events.iter().map(|event| serde_json::to_value(event).unwrap()));
        transcript.apply(record);
    }
    all
}

/// Splits an input at these places.
pub(crate) fn cut<'a>(input: &'a [u8], cuts: &[Index]) -> Vec<&'a [u8]> {
    let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(input.len() + 1)).collect();
    at.sort_unstable();
    let mut start = 0;
    let mut chunks = Vec::new();
    for end in at.into_iter().chain([input.len()]) {
        chunks.push(&input[start..end]);
        start = end;
    }
    chunks
}
