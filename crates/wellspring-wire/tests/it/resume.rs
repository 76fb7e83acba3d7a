//! A dialect resumed at any position continues exactly.

use proptest::prelude::*;
use proptest::sample::Index;
use wellspring_core::{Outline, Record, Transcript};
use wellspring_testkit::arbitrary::{arb_run, arb_small_run};
use wellspring_testkit::samples;
use wellspring_wire::{DialectName, Encoder, Fold, Out, WirePosition};

type Events = Vec<(WirePosition, Vec<u8>)>;

/// The events for a reader that resumes after `after` with a fold of the first `known` records.
/// Each record is a frame of its own.
fn read(dialect: DialectName, records: &[Record], known: usize, after: WirePosition) -> Events {
    read_on(resume(dialect, &records[..known], after), after, records, 1)
}

/// An encoder that resumes from the fold of these records.
fn resume(dialect: DialectName, known: &[Record], after: WirePosition) -> Encoder {
    match dialect.dialect().fold() {
        Fold::Outline | Fold::Records => Encoder::resume(dialect, outline(known), after),
        Fold::Transcript => Encoder::resume(dialect, Transcript::fold(known), after),
    }
}

fn outline(records: &[Record]) -> Outline {
    let mut outline = Outline::default();
    records.iter().for_each(|record| outline.apply(record));
    outline
}

/// Continues a run after a position.
fn read_on(mut encoder: Encoder, after: WirePosition, records: &[Record], frame: usize) -> Events {
    let mut out = Out::default();
    let known = encoder.outline().head;
    for frame in records.chunks(frame) {
        // As a cursor does: old and new records are separate frames.
        let unknown = frame.partition_point(|record| record.seq <= known);
        let news = frame.partition_point(|record| record.seq <= after.whole()).max(unknown);
        for slice in [&frame[unknown..news], &frame[news..]] {
            if !slice.is_empty() {
                encoder.frame(slice, &mut out);
            }
        }
    }
    out.events().map(|(at, json)| (at, json.to_vec())).collect()
}

/// The maximum number of records in the fold: up to the position, or 0 for a dialect that folds the
/// records itself.
fn known_max(dialect: DialectName, after: WirePosition) -> usize {
    match dialect.dialect().fold() {
        Fold::Outline | Fold::Transcript => after.whole().0 as usize,
        Fold::Records => 0,
    }
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

/// A position between two events is valid too.
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

    /// From any fold at or before the position, and for any frames. The log keeps frames as
    /// they were written, so a resuming reader gets the same frames.
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
        // A fold is kept at the end of a frame.
        let frames = known_max(dialect, after) / frame;
        let known = &records[..known.index(frames + 1) * frame];
        let rest = read_on(resume(dialect, known, after), after, &records, frame);
        prop_assert_eq!(&rest[..], &all[cut + 1..]);
    }

    /// Only a view emits more or fewer snapshots, depending on the frames; the last one is the
    /// same.
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
        // The encoder's outline at the end is the run's.
        let mut encoder = Encoder::new(dialect);
        encoder.frame(&records, &mut Out::default());
        prop_assert_eq!(encoder.outline(), &outline(&records));
    }
}
