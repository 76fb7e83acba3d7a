//! A dialect resumed at any position continues exactly.

use proptest::prelude::*;
use proptest::sample::Index;
use wellspring_core::{Outline, Record, Transcript};
use wellspring_testkit::arbitrary::{arb_run, arb_small_run};
use wellspring_testkit::samples;
use wellspring_wire::{Conversation, DialectName, Encoder, Out, WirePosition};

type Events = Vec<(WirePosition, Vec<u8>)>;

/// What a reader gets that resumes after `after` with an outline of the first `known` records.
/// Each record is a frame: that is the finest way to read a run.
fn read(dialect: DialectName, records: &[Record], known: usize, after: WirePosition) -> Events {
    read_on(Encoder::resume(dialect, outline(&records[..known]), after), after, records, 1)
}

fn outline(records: &[Record]) -> Outline {
    let mut outline = Outline::default();
    records.iter().for_each(|record| outline.apply(record));
    outline
}

/// Goes on with a run after a position. A dialect that needs the conversation is given it.
fn read_on(mut encoder: Encoder, after: WirePosition, records: &[Record], frame: usize) -> Events {
    let mut out = Out::default();
    let known = encoder.outline().head;
    for frame in records.chunks(frame) {
        // As a cursor does: what is not news is apart from what is.
        let unknown = frame.partition_point(|record| record.seq <= known);
        let news = frame.partition_point(|record| record.seq <= after.whole()).max(unknown);
        for slice in [&frame[unknown..news], &frame[news..]] {
            if encoder.needs(slice) {
                let past = &records[..encoder.outline().head.0 as usize];
                encoder.recall(Conversation::of(Transcript::fold(past)));
            }
            if !slice.is_empty() {
                encoder.frame(slice, &mut out);
            }
        }
    }
    out.events().map(|(at, json)| (at, json.to_vec())).collect()
}

/// How many records' outline a reader may start from: any number up to the position's, but a
/// dialect that remembers starts at the beginning.
fn known_max(dialect: DialectName, after: WirePosition) -> usize {
    if dialect.remembers() { 0 } else { after.whole().0 as usize }
}

fn resumes_everywhere(records: &[Record]) {
    for dialect in DialectName::ALL {
        let all = read(dialect, records, 0, WirePosition::START);
        for (index, (after, _)) in all.iter().enumerate() {
            let known = known_max(dialect, *after);
            let rest = read(dialect, records, known, *after);
            assert_eq!(rest, all[index + 1..], "{dialect} after {after}");
        }
    }
}

#[test]
fn samples_resume_after_every_event() {
    for sample in samples::all() {
        resumes_everywhere(&sample.records);
    }
}

/// A position that no event has is between those that are there.
#[test]
fn positions_between_events() {
    let records = samples::tool_with_content();
    let all = read(DialectName::ThoughtEvent, &records, 0, WirePosition::START);
    for (after, seen) in [("0", 0), ("3.0", 0), ("3.9", 1), ("4", 1), ("10.0", 4), ("10.1", 5)] {
        let rest = read(DialectName::ThoughtEvent, &records, 0, after.parse().unwrap());
        assert_eq!(rest, all[seen..], "after {after}");
    }
    let beyond = read(DialectName::ThoughtEvent, &records, 0, "99".parse().unwrap());
    assert_eq!(beyond, []);
}

proptest! {
    #[test]
    fn small_runs_resume_after_every_event(records in arb_small_run()) {
        resumes_everywhere(&records);
    }

    /// From any outline at or before the position, and whatever the frames are: a log keeps
    /// them as they were written, so who resumes reads the same ones.
    #[test]
    fn runs_resume(
        records in arb_run(),
        dialect in prop::sample::select(DialectName::ALL.as_slice()),
        cut: Index,
        known: Index,
        frame in 1usize..9,
    ) {
        let all = read_on(Encoder::new(dialect), WirePosition::START, &records, frame);
        prop_assume!(!all.is_empty());
        let cut = cut.index(all.len());
        let after = all[cut].0;
        // An outline is kept where a frame ends.
        let frames = known_max(dialect, after) / frame;
        let known = outline(&records[..known.index(frames + 1) * frame]);
        let rest = read_on(Encoder::resume(dialect, known, after), after, &records, frame);
        prop_assert_eq!(&rest[..], &all[cut + 1..]);
    }

    /// Only a view says more or less often how things stand, depending on the frames; it ends
    /// with the same.
    #[test]
    fn frames_change_nothing(
        records in arb_run(),
        dialect in prop::sample::select(DialectName::ALL.as_slice()),
        frame in 2usize..9,
    ) {
        let fine = read(dialect, &records, 0, WirePosition::START);
        let coarse = read_on(Encoder::new(dialect), WirePosition::START, &records, frame);
        if dialect == DialectName::StreamDelta {
            prop_assert_eq!(coarse.last(), fine.last());
        } else {
            prop_assert_eq!(&coarse[..], &fine[..]);
        }
        // The outline that a reader ends with is the run's.
        let mut encoder = Encoder::new(dialect);
        encoder.frame(&records, &mut Out::default());
        prop_assert_eq!(encoder.outline(), &outline(&records));
    }
}
