//! Any record may follow any other.

use proptest::prelude::*;
use serde_json::Value;
use wellspring_core::Transcript;
use wellspring_testkit::arbitrary::{arb_records, arb_run};
use wellspring_wire::{DialectName, Encoder, Out};

proptest! {
    #[test]
    fn nonsense_gives_json(records in arb_records()) {
        for name in DialectName::ALL {
            let mut dialect = name.dialect();
            let mut transcript = Transcript::default();
            let mut out = Out::default();
            for record in &records {
                out.begin(record.seq);
                dialect.encode((&transcript).into(), record, &mut out);
                transcript.apply(record);
                dialect.frame_end((&transcript).into(), &mut out);
            }
            for (_, json) in out.events() {
                prop_assert!(serde_json::from_slice::<Value>(json).is_ok_and(|json| json.is_object()));
            }
        }
    }

    /// A run has one end: except for the native dialect, no dialect repeats what an invalid log
    /// contains after the end. So `final` never follows `error`.
    #[test]
    fn nothing_follows_the_end(run in arb_run(), mut nonsense in arb_records()) {
        let end = run.iter().last().map(|record| record.event.clone());
        let restarted = run.first().map(|record| record.event.clone());
        for (record, event) in nonsense.iter_mut().zip([end, restarted].into_iter().flatten()) {
            record.event = event;
        }
        for (seq, record) in (run.len() as u64 + 1..).zip(&mut nonsense) {
            record.seq.0 = seq;
        }
        for name in DialectName::ALL.into_iter().filter(|name| *name != DialectName::Record) {
            let mut encoder = Encoder::new(name);
            encoder.frame(&run, &mut Out::default());
            let mut out = Out::default();
            encoder.frame(&nonsense, &mut out);
            prop_assert!(out.is_empty(), "{} goes on", name);
        }
    }
}
