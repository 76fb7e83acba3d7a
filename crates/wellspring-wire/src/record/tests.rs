use proptest::prelude::*;
use wellspring_core::Outline;
use wellspring_testkit::arbitrary::arb_record;
use wellspring_testkit::samples;

use super::{KINDS, Records, kind};
use crate::test_helpers::render_samples;
use crate::{Dialect as _, DialectName, Encoder, Options, Out};

#[test]
fn samples() {
    insta::assert_snapshot!(render_samples(DialectName::Record));
}

/// The kinds are the names in the JSON, and the samples contain no others.
#[test]
fn kinds_are_the_names_in_the_json() {
    for sample in samples::all() {
        for record in &sample.records {
            let json = serde_json::to_value(&record.event).unwrap();
            let names: Vec<_> = json.as_object().unwrap().keys().cloned().collect();
            assert_eq!(names, [kind(&record.event)]);
            assert!(KINDS.contains(&kind(&record.event)));
        }
    }
}

#[test]
fn a_reader_chooses_kinds() {
    let kinds = Some(["run_started", "run_finished"].into());
    let choice = DialectName::Record.with(Options { kinds, ..Options::default() }).unwrap();
    let records = samples::one_of_each();
    let mut out = Out::default();
    Encoder::new(&choice).frame(&records, &mut out);
    let seen: Vec<u64> = out.events().map(|(position, _)| position.seq.0).collect();
    assert_eq!(seen, [1, records.len() as u64]);
}

proptest! {
    /// Records written by hand are the same as those that the log writes.
    #[test]
    fn by_hand_as_by_serde(record in arb_record()) {
        let mut out = Out::default();
        Records::default().encode((&Outline::default()).into(), &record, &mut out);
        let written: Vec<&[u8]> = out.events().map(|(_, json)| json).collect();
        prop_assert_eq!(written, [&serde_json::to_vec(&record).unwrap()[..]]);
    }
}
