//! Writes `docs/dialects.md`: one run in every dialect.

use std::fmt::Write as _;
use std::path::Path;

use wellspring_core::Transcript;
use wellspring_testkit::{RUN, samples};
use wellspring_wire::{DialectName, Out};

const HEAD: &str = "\
# One run in every dialect

What each dialect says of each record of one run. This file is written by a test; \
`UPDATE_DOCS=1 cargo test -p wellspring-wire` writes it again.

The run: a thought, a plan, a tool with progress and content, then an answer whose first \
attempt breaks off and is made again. Each record is a frame of its own here. The `record` \
dialect is the record's own JSON and is left out; `run` stands for the run's id.
";

/// The dialects in the order of their columns.
const COLUMNS: [DialectName; 9] = [
    DialectName::ThoughtEvent,
    DialectName::AgentEvent,
    DialectName::TurnEvent,
    DialectName::StreamingEvent,
    DialectName::StreamDelta,
    DialectName::AgUi,
    DialectName::UseAi,
    DialectName::Acp,
    DialectName::AiSdk,
];

#[test]
fn the_table_is_fresh() {
    check("dialects.md", &table());
}

/// Compares a page of `docs/` with the generated one, or writes it.
pub(crate) fn check(name: &str, page: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, page).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(committed, page, "run with UPDATE_DOCS=1 to write docs/{name} again");
}

fn table() -> String {
    let mut text = HEAD.to_owned();
    let names = COLUMNS.map(|name| format!(" {name} |")).concat();
    let _ =
        write!(text, "\n| | record |{names}\n| --- | --- |{}\n", " --- |".repeat(COLUMNS.len()));
    let mut dialects = COLUMNS.map(DialectName::dialect);
    let mut transcript = Transcript::default();
    for record in samples::one_of_each() {
        let before = transcript.clone();
        transcript.apply(&record);
        let _ = write!(text, "| {} | {} |", record.seq, cell(&record.event.to_string()));
        for dialect in &mut dialects {
            let mut out = Out::default();
            dialect.encode((&before).into(), &record, &mut out);
            dialect.frame_end((&transcript).into(), &mut out);
            let said = out.events().map(|(_, json)| code(std::str::from_utf8(json).unwrap()));
            let _ = write!(text, " {} |", said.collect::<Vec<_>>().join("<br>"));
        }
        text.push('\n');
    }
    text
}

fn code(json: &str) -> String {
    format!("`{}`", cell(&json.replace(&RUN.to_string(), "run")))
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}
