//! Random runs for property tests.

mod records;
mod runs;

pub use records::{arb_event, arb_json, arb_record, arb_records};
pub use runs::{arb_run, arb_small_run};
