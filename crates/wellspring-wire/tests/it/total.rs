//! Any record after any other is fine.

use proptest::prelude::*;
use serde_json::Value;
use wellspring_core::Outline;
use wellspring_testkit::arbitrary::arb_records;
use wellspring_wire::{DialectName, Out};

proptest! {
    #[test]
    fn nonsense_gives_json(records in arb_records()) {
        for name in DialectName::ALL {
            let mut dialect = name.dialect();
            let mut outline = Outline::default();
            let mut out = Out::default();
            for record in &records {
                out.begin(record.seq);
                dialect.encode(&outline, record, &mut out);
                dialect.frame_end(&mut out);
                outline.apply(record);
            }
            for (_, json) in out.events() {
                prop_assert!(serde_json::from_slice::<Value>(json).is_ok_and(|json| json.is_object()));
            }
        }
    }
}
