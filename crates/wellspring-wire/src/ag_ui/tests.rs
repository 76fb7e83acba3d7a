mod client;
mod encoding;
mod peer;
mod remote;
mod requests;
mod rules;

use std::fmt::Write as _;

use ag_ui::server::EventVerifier;
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::Value;
use wellspring_core::{Event, Outline, PartShape, Record, Transcript, VoidReason};
use wellspring_testkit::arbitrary::{arb_records, arb_run, arb_small_run};
use wellspring_testkit::{RUN, THREAD, samples};

use self::client::{Client, Settled};
use self::rules::Rules;
use super::join::interrupted;
use super::{AgUi, messages};
use crate::test_helpers::{outlined, typed, written};
use crate::{DialectName, Encoder, Options, Out, Reasoning, UsageReports, WirePosition};

fn read(mut encoder: Encoder, records: &[Record], frame: usize) -> Out {
    let mut out = Out::default();
    for frame in records.chunks(frame) {
        encoder.frame(frame, &mut out);
    }
    out
}

fn values(out: &Out) -> Vec<Value> {
    out.events().map(|(_, json)| serde_json::from_slice(json).unwrap()).collect()
}

fn whole(records: &[Record]) -> Vec<Value> {
    values(&read(Encoder::new(DialectName::AgUi), records, 1))
}

/// The events for a client that attaches after `cut` records.
fn joined(records: &[Record], cut: usize, frame: usize) -> Vec<Value> {
    let (past, rest) = records.split_at(cut);
    let transcript = Transcript::fold(past);
    let after = WirePosition::after(transcript.outline.head);
    let mut encoder = Encoder::resume(DialectName::AgUi, transcript, after);
    let mut first = Out::default();
    encoder.join(&mut first);
    let mut events = values(&first);
    events.extend(values(&read(encoder, rest, frame)));
    events
}

/// The final state of the client that made the request, and so already has the input.
fn asker(records: &[Record], events: &[Value]) -> Settled {
    settled(records, Client::with(asked(records)).fold(events))
}

/// The messages of the client that made the request.
fn asked(records: &[Record]) -> Vec<Value> {
    let asked = messages(&Transcript::fold(&records[..1]));
    asked.iter().map(|message| serde_json::to_value(message).unwrap()).collect()
}

/// The final state of a client that attached later.
fn joiner(records: &[Record], events: &[Value]) -> Settled {
    settled(records, Client::default().fold(events))
}

/// A client's conversation, normalised where joining may order it differently. A call whose
/// preceding text was voided gets a message of its own, which clients put last, so after such a
/// void the order is ignored. Empty progress is ignored too.
fn settled(records: &[Record], client: Client) -> Settled {
    let parts_stay = |record: &Record| {
        let why = |why| matches!(record.event, Event::PartsVoided { why: said, .. } if said == why);
        why(VoidReason::Replaced) || why(VoidReason::Abandoned)
    };
    let mut settled = client.settled();
    settled.1.retain(|activity| {
        !activity.contains(r#""content":{"content":[],"output":{},"toolCallId""#)
    });
    if records.iter().any(parts_stay) {
        settled.0.sort_by_key(|message| message["id"].to_string());
    }
    settled
}

/// The verifier of the `ag-ui` crate, which knows one run. Each further run on the stream gets
/// a new verifier, which starts with the messages that the client has by then.
fn verify(events: &[Value]) -> Result<(), String> {
    let mut verifier = EventVerifier::new();
    let mut client = Client::default();
    for (index, event) in events.iter().enumerate() {
        let mut shown = event.clone();
        if event["type"] == "RUN_STARTED" {
            verifier = EventVerifier::new();
            shown["input"] = serde_json::json!({
                "threadId": "t", "runId": "r", "messages": client.messages,
            });
        }
        let typed: ag_ui::Event =
            serde_json::from_value(shown).map_err(|error| format!("{error}: {event}"))?;
        verifier.observe(&typed).map_err(|error| format!("event {index}, {error}: {event}"))?;
        client.apply(event);
    }
    Ok(())
}

#[test]
fn samples() {
    let mut text = String::new();
    for sample in samples::all() {
        let _ = writeln!(text, "# {}", sample.name);
        let out = read(Encoder::new(DialectName::AgUi), &sample.records, 1);
        for (position, json) in out.events() {
            let json = std::str::from_utf8(json).unwrap();
            let json = json.replace(&RUN.to_string(), "run").replace(&THREAD.to_string(), "thread");
            let _ = writeln!(text, "{:<6}{json}", position.to_string());
        }
        text.push('\n');
    }
    insta::assert_snapshot!(text);
}

/// The fast path that writes bytes by hand agrees with the types.
fn agrees(records: &[Record]) {
    let dialect = AgUi::default();
    let typed = typed(records, |before, record| dialect.events(before, record));
    assert_eq!(written(DialectName::AgUi, records), typed);
    let read: Vec<super::types::Event> =
        typed.iter().map(|event| serde_json::from_value(event.clone()).unwrap()).collect();
    let again: Vec<Value> = read.iter().map(|event| serde_json::to_value(event).unwrap()).collect();
    assert_eq!(again, typed);
}

/// Whether two parts of one stream of a call are open at once, as when it shows two terminals.
fn outputs_overlap(run: &[Record]) -> bool {
    let mut outline = Outline::default();
    run.iter().any(|record| {
        outline.apply(record);
        let shapes: Vec<_> = outline.parts.values().map(|part| part.shape).collect();
        let is_output = |shape: &&PartShape| matches!(shape, PartShape::Output(..));
        let outputs = || shapes.iter().filter(is_output);
        outputs().any(|shape| outputs().filter(|other| *other == shape).count() > 1)
    })
}

proptest! {
    #[test]
    fn typed_and_json_agree(run in arb_run(), nonsense in arb_records()) {
        agrees(&run);
        agrees(&nonsense);
    }

    /// Any legal run keeps the official client's rules and passes the verifier of the `ag-ui`
    /// crate, also for a reader that has only the outline.
    #[test]
    fn any_run_is_legal(run in arb_run()) {
        for events in [whole(&run), outlined(DialectName::AgUi, &run)] {
            let rules = Rules::check(&events);
            prop_assert!(rules.as_ref().is_ok_and(|rules| !rules.is_running()), "{rules:?}");
            prop_assert_eq!(verify(&events), Ok(()));
        }
    }

    /// Events that a reader opted out of are left out, and the rest is still legal.
    #[test]
    fn options_leave_out_what_they_name(run in arb_run()) {
        let options = Options {
            reasoning: Reasoning::Hidden,
            usage: UsageReports::Omitted,
            ..Options::default()
        };
        let encoder = Encoder::new(&DialectName::AgUi.with(options).unwrap());
        let events = values(&read(encoder, &run, 1));
        prop_assert_eq!(verify(&events), Ok(()));
        let text = serde_json::to_string(&events).unwrap();
        for word in ["REASONING_", r#""role":"reasoning""#, "inputTokens"] {
            prop_assert!(!text.contains(word), "{} in {}", word, text);
        }
    }

    /// A client that attaches at any point gets a legal run, and ends in the same state as a
    /// client that was there from the start.
    #[test]
    fn joining_anywhere_reaches_the_same(run in arb_run(), cut: Index, frame in 1usize..9) {
        // Joining loses the order of overlapping outputs: see `# Lossy`.
        prop_assume!(!outputs_overlap(&run));
        let cut = 1 + cut.index(run.len());
        let events = joined(&run, cut, frame);
        let rules = Rules::check(&events);
        prop_assert!(rules.as_ref().is_ok_and(|rules| !rules.is_running()), "{rules:?}");
        prop_assert_eq!(verify(&events), Ok(()));
        prop_assert_eq!(joiner(&run, &events), asker(&run, &whole(&run)));
    }

    /// While a question blocks the run, the wire's run can end at any point, for clients that
    /// were there before and for those that attach just then.
    #[test]
    fn any_run_can_be_interrupted(run in arb_run()) {
        for cut in 1..run.len() {
            let past = &run[..cut];
            let transcript = Transcript::fold(past);
            let ending = interrupted(&transcript.outline);
            let asked = transcript.outline.questions.values().any(|asked| asked.blocking);
            prop_assert_eq!(!ending.is_empty(), asked);
            if !asked || transcript.outline.paused.is_some() {
                continue;
            }
            for mut events in [whole(past), joined(past, cut, 1)] {
                events.extend(ending.iter().map(|event| serde_json::to_value(event).unwrap()));
                let rules = Rules::check(&events);
                prop_assert!(rules.as_ref().is_ok_and(|rules| !rules.is_running()), "{rules:?}");
                prop_assert_eq!(verify(&events), Ok(()));
            }
        }
    }

    #[test]
    fn joining_a_small_run_everywhere(run in arb_small_run()) {
        let all = whole(&run);
        for cut in 1..=run.len() {
            let events = joined(&run, cut, 1);
            prop_assert_eq!(verify(&events), Ok(()));
            prop_assert_eq!(joiner(&run, &events), asker(&run, &all));
        }
    }
}

#[test]
fn samples_join_everywhere() {
    for sample in samples::all() {
        let all = whole(&sample.records);
        assert_eq!(verify(&all), Ok(()), "{}", sample.name);
        for cut in 1..=sample.records.len() {
            let events = joined(&sample.records, cut, 1);
            assert_eq!(verify(&events), Ok(()), "{} at {cut}", sample.name);
            assert_eq!(
                joiner(&sample.records, &events),
                asker(&sample.records, &all),
                "{} at {cut}",
                sample.name
            );
        }
    }
}
