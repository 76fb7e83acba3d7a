//! Folding a prefix and then the rest gives the same as folding everything, also if the fold is
//! stored in between.

use proptest::prelude::*;
use proptest::sample::Index;
use serde::Serialize;
use serde::de::DeserializeOwned;
use wellspring_core::{
    AgentNo, Annotation, Checker, Event, Message, Millis, Outline, PartKind, Record, Seq,
    Transcript, Usage, UsageScope,
};
use wellspring_testkit::arbitrary::{arb_record, arb_records, arb_run, arb_small_run};
use wellspring_testkit::{RunBuilder, samples};

fn outline(records: &[Record]) -> Outline {
    let mut outline = Outline::default();
    records.iter().for_each(|record| outline.apply(record));
    outline
}

/// The fold after storing and reading it.
fn stored<T: Serialize + DeserializeOwned>(value: &T) -> T {
    serde_json::from_str(&serde_json::to_string(value).unwrap()).unwrap()
}

fn folds_at(records: &[Record], cut: usize) {
    let (prefix, rest) = records.split_at(cut);

    let mut transcript = stored(&Transcript::fold(prefix));
    transcript.extend(rest);
    assert_eq!(transcript, Transcript::fold(records), "transcript cut at {cut}");

    let mut resumed = stored(&outline(prefix));
    rest.iter().for_each(|record| resumed.apply(record));
    assert_eq!(resumed, transcript.outline, "outline cut at {cut}");
}

/// A remote agent's run may have no turns; the usage that it reports is the run's.
#[test]
fn a_run_without_turns_spends_what_it_reports() {
    let reported = |seq: u64, agent: u32, scope: UsageScope, input: u64| Record {
        seq: Seq(seq),
        agent: AgentNo(agent),
        at: Millis(0),
        event: Event::UsageReported(Box::new(Usage { scope, input, ..Usage::default() })),
    };
    let records = [
        reported(1, 0, UsageScope::Run, 5),
        reported(2, 0, UsageScope::Session, 900),
        reported(3, 1, UsageScope::Run, 70),
        reported(4, 0, UsageScope::Run, 8),
    ];
    let spent = Usage { scope: UsageScope::Run, input: 78, ..Usage::default() };
    assert_eq!(Transcript::fold(&records).usage, spent);
}

/// A server may report only at the end that a text was a thought.
#[test]
fn a_text_that_turned_out_to_be_a_thought_is_not_the_answer() {
    let mut run = RunBuilder::new("agent", "go");
    run.turn();
    let part = run.text(&["Hm"]);
    run.push(Event::PartAnnotated { part, annotation: Box::new(Annotation::Preamble) });
    run.text(&["Hi"]);
    let transcript = Transcript::fold(&run.records());
    assert_eq!(transcript.answer(AgentNo::ROOT), "Hi");
    let messages = transcript.messages(AgentNo::ROOT);
    let Some(Message::Assistant { parts, .. }) = messages.last() else { panic!("{messages:?}") };
    let kinds: Vec<_> = parts.iter().map(|part| &part.kind).collect();
    assert_eq!(kinds, [&PartKind::Thought, &PartKind::TEXT]);
}

#[test]
fn samples_fold_at_every_cut() {
    for sample in samples::all() {
        (0..=sample.records.len()).for_each(|cut| folds_at(&sample.records, cut));
    }
}

proptest! {
    #[test]
    fn small_runs_fold_at_every_cut(records in arb_small_run()) {
        (0..=records.len()).for_each(|cut| folds_at(&records, cut));
    }

    #[test]
    fn runs_fold_at_any_cut(records in arb_run(), cut: Index) {
        folds_at(&records, cut.index(records.len() + 1));
    }

    /// Every generated run is valid, and so is every prefix of it. At its end nothing is open.
    #[test]
    fn runs_keep_the_grammar(records in arb_run(), cut: Index) {
        let outline = Checker::check(&records).unwrap();
        prop_assert!(outline.finished);
        prop_assert!(outline.calls.is_empty() && outline.questions.is_empty());
        prop_assert_eq!(outline.agents.keys().collect::<Vec<_>>(), [&AgentNo::ROOT]);
        prop_assert!(outline.parts.values().all(|part| !part.open));
        Checker::check(&records[..cut.index(records.len())]).unwrap();
    }

    /// A transcript has exactly the text of the parts that were not voided.
    #[test]
    fn no_word_is_lost(records in arb_run()) {
        let mut texts = std::collections::BTreeMap::<_, String>::new();
        for record in &records {
            if let Event::PartStarted { part, .. } = &record.event {
                texts.insert(*part, String::new());
            } else if let Event::PartDelta { part, chunk } = &record.event {
                texts.entry(*part).or_default().push_str(chunk);
            } else if let Event::PartsVoided { parts, .. } = &record.event {
                texts.retain(|part, _| !parts.contains(part));
            }
        }
        let transcript = Transcript::fold(&records);
        let folded = transcript.parts.into_iter().map(|(id, part)| (id, part.text));
        prop_assert_eq!(folded.collect::<std::collections::BTreeMap<_, _>>(), texts);
    }

    /// Invalid records can be folded too, and the checker reports them.
    #[test]
    fn nonsense_folds(records in arb_records(), cut: Index) {
        let (prefix, rest) = records.split_at(cut.index(records.len() + 1));
        let mut transcript = Transcript::fold(prefix);
        transcript.extend(rest);
        prop_assert_eq!(&transcript.outline, &outline(&records));
        prop_assert_eq!(transcript, Transcript::fold(&records));
        let _ = Checker::check(&records);
    }

    /// The stored records equal the appended ones.
    #[test]
    fn records_come_back_from_json(record in arb_record()) {
        prop_assert_eq!(stored(&record), record);
    }
}
