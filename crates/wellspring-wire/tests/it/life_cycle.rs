//! The start and the end of streams, in every dialect: points 6 and 7 of the contract of
//! `Dialect`.

use proptest::prelude::*;
use serde_json::Value;
use wellspring_core::Transcript;
use wellspring_testkit::arbitrary::arb_run;
use wellspring_wire::{
    Closed, DialectName, Encoder, Encoding, Joins, Options, Out, Positions, Reasoning,
    ReasoningEvents, SubAgents, UsageReports, WirePosition,
};

const WHY: Closed<'_> =
    Closed { code: "draining", message: "the server is shutting down", remedy: "read on" };

fn is_objects(out: &Out) -> bool {
    let is_object = |json| serde_json::from_slice::<Value>(json).is_ok_and(|it| it.is_object());
    out.events().all(|(_, json)| is_object(json))
}

/// A stream that is cut off reports the reason in one event.
#[test]
fn every_dialect_says_that_a_stream_was_cut_off() {
    let mut said = String::new();
    for name in DialectName::ALL {
        let mut out = Out::default();
        name.dialect().close(&WHY, &mut out);
        assert_eq!(out.len(), 1, "{name}");
        assert!(is_objects(&out), "{name}");
        let framing = name.dialect().framing();
        let bytes = framing.frame(&out, Positions::Absent);
        said += &format!("{name}: {}\n", String::from_utf8(bytes).unwrap().trim());
    }
    insta::assert_snapshot!(said);
}

/// Options that a dialect does not offer are refused by name.
#[test]
fn options_are_offered_or_refused() {
    let chosen = [
        Options { reasoning: Reasoning::Hidden, ..Options::default() },
        Options { reasoning_events: ReasoningEvents::Thinking, ..Options::default() },
        Options { usage: UsageReports::Omitted, ..Options::default() },
        Options { encoding: Encoding::Binary, ..Options::default() },
        Options { kinds: Some(["run_started"].into()), ..Options::default() },
        Options { sub_agents: SubAgents::Thoughts, ..Options::default() },
    ];
    let mut refused = String::new();
    for name in DialectName::ALL {
        assert!(name.with(Options::default()).is_ok());
        for options in &chosen {
            if let Err(error) = name.with(options.clone()) {
                refused += &format!("{error}\n");
            }
        }
    }
    insta::assert_snapshot!(refused);
}

proptest! {
    /// Joining, interrupting and closing emit JSON objects at any point of a run, and do not
    /// change later events.
    #[test]
    fn the_life_cycle_changes_nothing(
        run in arb_run(),
        cut: prop::sample::Index,
        name in prop::sample::select(DialectName::ALL.as_slice()),
    ) {
        let (past, rest) = run.split_at(cut.index(run.len() + 1));
        let transcript = Transcript::fold(past);
        let after = WirePosition::after(transcript.outline.head);
        let mut plain = Encoder::new(name);
        plain.frame(past, &mut Out::default());
        let mut told = Encoder::new(name);
        told.frame(past, &mut Out::default());
        let mut out = Out::default();
        told.join(&mut out);
        prop_assert!(is_objects(&out));
        let dialect = name.dialect();
        prop_assert_eq!(dialect.joins() == Joins::Snapshot && !past.is_empty(), !out.is_empty());
        dialect.interrupt(&transcript.outline, &mut out);
        dialect.close(&WHY, &mut out);
        prop_assert!(is_objects(&out));
        let (mut want, mut got) = (Out::default(), Out::default());
        plain.frame(rest, &mut want);
        told.frame(rest, &mut got);
        prop_assert_eq!(
            want.events().collect::<Vec<_>>(),
            got.events().collect::<Vec<_>>(),
            "{} after {}", name, after
        );
    }

    /// Encoding the same records again gives the same events.
    #[test]
    fn the_same_records_give_the_same_events(run in arb_run()) {
        for name in DialectName::ALL {
            let (mut first, mut second) = (Out::default(), Out::default());
            Encoder::new(name).frame(&run, &mut first);
            Encoder::new(name).frame(&run, &mut second);
            prop_assert_eq!(first.events().collect::<Vec<_>>(), second.events().collect::<Vec<_>>());
        }
    }

    /// Hidden reasoning appears in no event.
    #[test]
    fn hidden_reasoning_is_not_said(run in arb_run()) {
        let options = Options { reasoning: Reasoning::Hidden, ..Options::default() };
        for name in DialectName::ALL {
            let Ok(choice) = name.with(options.clone()) else { continue };
            let mut out = Out::default();
            Encoder::new(&choice).frame(&run, &mut out);
            for (_, json) in out.events() {
                let json = std::str::from_utf8(json).unwrap();
                for word in ["\"thought\"", "thinking", "agent_thought_chunk", "REASONING"] {
                    prop_assert!(!json.contains(word), "{}: {}", name, json);
                }
            }
        }
    }
}
