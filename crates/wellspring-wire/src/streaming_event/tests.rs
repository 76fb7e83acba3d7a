use proptest::prelude::*;
use wellspring_testkit::arbitrary::{arb_records, arb_run};

use super::{StreamingEvent, events};
use crate::DialectName;
use crate::test_helpers::{render_samples, typed, written};

#[test]
fn samples() {
    insta::assert_snapshot!(render_samples(DialectName::StreamingEvent));
}

#[test]
fn documented_shape() {
    let json = r#"{"requestId":"turn-0","delta":"a","done":false}"#;
    let event: StreamingEvent = serde_json::from_str(json).unwrap();
    assert_eq!(serde_json::to_string(&event).unwrap(), json);
}

proptest! {
    #[test]
    fn typed_and_json_agree(run in arb_run(), nonsense in arb_records()) {
        for records in [run, nonsense] {
            prop_assert_eq!(
                written(DialectName::StreamingEvent, &records),
                typed(&records, |before, record| Vec::from_iter(events(before.outline(), record)))
            );
        }
    }
}
