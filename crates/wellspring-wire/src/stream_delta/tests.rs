use proptest::prelude::*;
use wellspring_core::{AgentNo, Millis, Outcome, PartKind, Stop, Transcript};
use wellspring_testkit::RunBuilder;
use wellspring_testkit::arbitrary::arb_run;

use super::StreamDelta;
use crate::test_helpers::render_samples;
use crate::{DialectName, Encoder, Out};

#[test]
fn samples() {
    insta::assert_snapshot!(render_samples(DialectName::StreamDelta));
}

/// The documented shapes survive reading into our types and writing again.
#[test]
fn documented_shapes() {
    for json in [
        r#"{"phase":"thinking","thinking":"Hm.","thinkingElapsedMs":5}"#,
        r#"{"phase":"content","content":"a"}"#,
        r#"{"phase":"content","content":"a","thinking":"Hm.","thinkingDurationMs":5}"#,
        r#"{"phase":"final","content":"a"}"#,
        r#"{"phase":"final","content":"a","thinking":"Hm.","thinkingDurationMs":5}"#,
        r#"{"phase":"error","error":"no"}"#,
    ] {
        let event: StreamDelta = serde_json::from_str(json).unwrap();
        assert_eq!(serde_json::to_string(&event).unwrap(), json);
    }
}

/// The thinking time counts only the thoughts, not the time between them. While a thought is
/// open, the time grows.
#[test]
fn thinking_time() {
    let mut run = RunBuilder::new("demo", "Think twice.");
    run.turn();
    let first = run.open(PartKind::Thought);
    run.delta(first, "Once.").wait(80).close(first);
    run.wait(1_000);
    let second = run.open(PartKind::Thought);
    run.delta(second, "Twice.");
    let records = run.records();
    let last = records.last().unwrap().at;
    assert_eq!(
        StreamDelta::of(&Transcript::fold(&records), Millis(last.0 + 7)),
        Some(StreamDelta::Thinking {
            thinking: "Once.\n\nTwice.".into(),
            thinking_elapsed_ms: 100 + 10 + 7,
        })
    );
}

/// Each frame gives one snapshot, of its end; none if nothing visible changed.
#[test]
fn one_snapshot_per_frame() {
    let mut run = RunBuilder::new("demo", "Hello?");
    run.turn().text(&["Hello", " there", "."]);
    run.stop(Stop::EndTurn);
    let records = run.records();
    let mut encoder = Encoder::new(DialectName::StreamDelta);
    let mut out = Out::default();
    for frame in [&records[..2], &records[2..6], &records[6..]] {
        encoder.frame(frame, &mut out);
    }
    let events: Vec<_> = out
        .events()
        .map(|(at, json)| (at.to_string(), std::str::from_utf8(json).unwrap()))
        .collect();
    assert_eq!(events, [("6".to_owned(), r#"{"phase":"content","content":"Hello there."}"#)]);
}

proptest! {
    /// The last snapshot has the transcript's text, except for the paragraph breaks.
    #[test]
    fn the_end_is_the_transcripts(run in arb_run()) {
        let transcript = Transcript::fold(&run);
        let unbroken = |text: &str| text.replace('\n', "");
        match (StreamDelta::of(&transcript, Millis(u64::MAX)), transcript.outcome.clone().unwrap()) {
            (Some(StreamDelta::Final { content, .. }), Outcome::Completed { .. }) => {
                prop_assert_eq!(unbroken(&content), unbroken(&transcript.words(AgentNo::ROOT)));
            }
            (Some(StreamDelta::Error { .. }), Outcome::Cancelled { .. } | Outcome::Failed { .. }) => {}
            (snapshot, outcome) => prop_assert!(false, "{snapshot:?} after {outcome}"),
        }
    }
}
