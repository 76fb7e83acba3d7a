use proptest::prelude::*;
use wellspring_core::Outline;
use wellspring_testkit::arbitrary::arb_record;

use super::Records;
use crate::testing::render_samples;
use crate::{Dialect as _, DialectName, Out};

#[test]
fn samples() {
    insta::assert_snapshot!(render_samples(DialectName::Record));
}

proptest! {
    /// What is written by hand is what the log would write.
    #[test]
    fn by_hand_as_by_serde(record in arb_record()) {
        let mut out = Out::default();
        Records.encode(&Outline::default(), &record, &mut out);
        let written: Vec<&[u8]> = out.events().map(|(_, json)| json).collect();
        prop_assert_eq!(written, [&serde_json::to_vec(&record).unwrap()[..]]);
    }
}
