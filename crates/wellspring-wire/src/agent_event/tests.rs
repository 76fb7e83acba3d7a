use crate::DialectName;
use crate::testing::render_samples;

#[test]
fn samples() {
    insta::assert_snapshot!(render_samples(DialectName::AgentEvent));
}
