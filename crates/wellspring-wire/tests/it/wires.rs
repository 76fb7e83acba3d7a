//! Writes `docs/wires.md`: which sections of one run arrive on every wire.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::{Value, json};
use wellspring_core::{
    Answer, Checker, Choice, Event, FailureKind, FileProduced, Form, MediaSource, Outcome,
    PartKind, PlanEntry, PlanStatus, Priority, Record, Seq, Stop, Transcript, VoidReason, Wait,
};
use wellspring_testkit::RunBuilder;
use wellspring_wire::{DialectName, Out};

const HEAD: &str = "\
# One run on every wire

What arrives of one run in every dialect, and what does not. This file is written by a test; \
`UPDATE_DOCS=1 cargo test -p wellspring-wire` writes it again.

The run: a thought, a plan, two parallel tools with progress, questions of every form, a turn \
that is attempted again, a sub-agent, a file, and an error at its end. A cell names the events \
that carry the content of its row; *no* means that the content does not arrive. For rows without \
content (an answer, an end, voided text), a cell names all events except text. \
[dialects.md](dialects.md) shows the events themselves. Every dialect can also be read at \
`/v1/runs/{run}/events` and on `/v1/socket`.
";

/// The section whose text is voided.
const TAKEN_BACK: &str = "its text, taken back";

/// A section of the run.
struct Section {
    name: &'static str,
    /// Texts by which the section is recognised in a dialect's events. If it is empty, any event
    /// except text counts.
    words: &'static [&'static str],
    /// The first record of the section.
    from: Seq,
}

#[derive(Default)]
struct Sections(Vec<Section>);

impl Sections {
    fn begin(&mut self, run: &RunBuilder, name: &'static str, words: &'static [&'static str]) {
        self.0.push(Section { name, words, from: Seq(run.head().0 + 1) });
    }

    fn of(&self, seq: Seq) -> Option<usize> {
        self.0.iter().rposition(|section| section.from <= seq)
    }
}

fn the_run() -> (Vec<Record>, Sections) {
    let mut at = Sections::default();
    let mut run = RunBuilder::new("demo", "Go.");
    run.turn();
    at.begin(&run, "thought", &["I wonder"]);
    run.thought(&["I wonder."]);
    at.begin(&run, "text", &["Look here"]);
    run.text(&["Look here."]);
    at.begin(&run, "plan", &["Weigh it"]);
    let (status, priority) = (PlanStatus::InProgress, Priority::Medium);
    run.push(Event::PlanUpdated {
        entries: vec![PlanEntry { content: "Weigh it".into(), status, priority }],
    });
    at.begin(&run, "two parallel calls", &["scales", "ruler"]);
    let scales = run.call("scales", &[r#"{"unit":"kg"}"#]);
    let ruler = run.call("ruler", &[r#"{"unit":"cm"}"#]);
    run.stop(Stop::ToolCalls);
    at.begin(&run, "question: approve a call", &["May I weigh"]);
    let may = run.ask(Some(scales), "May I weigh?", Form::Approve);
    run.push(Event::RunPaused { waits: vec![Wait::Question(may)] });
    run.push(Event::RunResumed { inbox: None, wire_run: None, amended: None });
    at.begin(&run, "its answer", &[]);
    run.answer(may, Answer::yes());
    run.start(scales).start(ruler);
    at.begin(&run, "progress of both", &["half weighed", "half measured"]);
    run.progress(scales, json!("half weighed")).progress(ruler, json!("half measured"));
    at.begin(&run, "results of both", &["3 kg", "7 cm"]);
    run.ok(ruler, "7 cm").ok(scales, "3 kg");
    at.begin(&run, "question: choose", &["Which spring", "Thermal"]);
    let choice = |id: &str, label: &str| Choice { id: id.into(), label: label.into() };
    let choices = vec![choice("hot", "Thermal"), choice("cold", "Cold")];
    let which = run.ask(None, "Which spring?", Form::Choose { choices, multiple: false });
    at.begin(&run, "question: a form", &["How deep", "integer"]);
    let deep = run.ask(None, "How deep?", Form::Schema(json!({"type": "integer"})));
    let waits = vec![Wait::Question(which), Wait::Question(deep)];
    run.push(Event::RunPaused { waits });
    run.push(Event::RunResumed { inbox: None, wire_run: None, amended: None });
    at.begin(&run, "answers to both", &["hot", "42"]);
    run.answer(which, Answer::Choose(vec!["hot".into()])).answer(deep, Answer::Value(json!(42)));
    at.begin(&run, "a turn that breaks off", &["It weighs fo"]);
    run.turn();
    let broken = run.open(PartKind::TEXT);
    run.delta(broken, "It weighs fo");
    at.begin(&run, TAKEN_BACK, &[]);
    run.void(&[broken], VoidReason::Restarted);
    at.begin(&run, "the turn, attempted again", &["It weighs three"]);
    run.turn();
    run.text(&["It weighs three."]);
    at.begin(&run, "sub-agent", &["archivist"]);
    let call = run.call("ask-librarian", &[r#"{"about":"shelves"}"#]);
    run.stop(Stop::ToolCalls).start(call);
    run.sub_agent("archivist", Some(call));
    run.turn();
    at.begin(&run, "its text", &["Shelf 4"]);
    run.text(&["Shelf 4."]);
    at.begin(&run, "its end", &[]);
    run.stop(Stop::EndTurn).sub_agent_done(Outcome::Completed { stop: Stop::EndTurn });
    run.ok(call, "done").turn();
    at.begin(&run, "file", &["map.png"]);
    run.push(Event::FileProduced(Box::new(FileProduced {
        media_type: "image/png".into(),
        source: MediaSource::Url("https://files.example/map.png".into()),
        name: Some("map.png".into()),
    })));
    at.begin(&run, "error", &["no luck"]);
    let records = run.fail(FailureKind::Refused, "no luck");
    assert!(Checker::check(&records).is_ok_and(|outline| outline.finished));
    (records, at)
}

#[test]
fn the_table_of_wires_is_fresh() {
    crate::docs::check("wires.md", &page());
}

fn page() -> String {
    let (records, sections) = the_run();
    let columns: Vec<_> = DialectName::ALL.map(|name| arrived(name, &records, &sections)).into();
    let mut text = HEAD.to_owned();
    let names = DialectName::ALL.map(|name| format!(" {name} |")).concat();
    let lines = " --- |".repeat(DialectName::ALL.len());
    let _ = write!(text, "\n| |{names}\n| --- |{lines}\n");
    for (index, section) in sections.0.iter().enumerate() {
        let _ = write!(text, "| {} |", section.name);
        for column in &columns {
            let kinds: Vec<_> = column[index].iter().map(|kind| format!("`{kind}`")).collect();
            let cell = if kinds.is_empty() { "*no*".to_owned() } else { kinds.join(" ") };
            let _ = write!(text, " {cell} |");
        }
        text.push('\n');
    }
    text.push_str("\n## What does not arrive, and how a question is answered\n\n");
    text.push_str(
        "| dialect | available on | what does not arrive | how a question is answered |\n",
    );
    text.push_str("| --- | --- | --- | --- |\n");
    for (name, column) in DialectName::ALL.into_iter().zip(&columns) {
        let missing = sections.0.iter().zip(column).filter(|(_, kinds)| kinds.is_empty());
        let missing: Vec<_> = missing.map(|(section, _)| section.name).collect();
        let missing = if missing.is_empty() { "nothing".to_owned() } else { missing.join("; ") };
        let (wire, answer) = wire(name);
        let _ = writeln!(text, "| {name} | {wire} | {missing} | {answer} |");
    }
    text
}

/// The kinds of events that carry each section in a dialect.
fn arrived(name: DialectName, records: &[Record], sections: &Sections) -> Vec<BTreeSet<String>> {
    let mut dialect = name.dialect();
    let mut transcript = Transcript::default();
    let mut said: Vec<Vec<Value>> = sections.0.iter().map(|_| Vec::new()).collect();
    for record in records {
        let before = transcript.clone();
        transcript.apply(record);
        let mut out = Out::default();
        dialect.encode((&before).into(), record, &mut out);
        dialect.frame_end((&transcript).into(), &mut out);
        let events = out.events().map(|(_, json)| serde_json::from_slice(json).unwrap());
        if let Some(section) = sections.of(record.seq) {
            said[section].extend(events);
        }
    }
    let text_kinds: BTreeSet<_> = said[1].iter().map(kind).collect();
    // A dialect that sends the whole text each time removes voided text from the next snapshot.
    let sends_all_text = name == DialectName::StreamDelta;
    let each = sections.0.iter().zip(&said);
    each.map(|(section, events)| {
        let texts: Vec<_> = events.iter().map(Value::to_string).collect();
        let all = texts.concat();
        if section.words.is_empty() {
            let counts = |kind: &String| {
                !text_kinds.contains(kind) || (sends_all_text && section.name == TAKEN_BACK)
            };
            return events.iter().map(kind).filter(counts).collect();
        }
        if !section.words.iter().all(|word| all.contains(word)) {
            return BTreeSet::new();
        }
        let carries = |text: &String| section.words.iter().any(|word| text.contains(word));
        let carriers = events.iter().zip(&texts).filter(|(_, text)| carries(text));
        carriers.map(|(event, _)| kind(event)).collect()
    })
    .collect()
}

/// The name of an event in its dialect.
fn kind(event: &Value) -> String {
    let named = ["type", "sessionUpdate", "phase"].iter().find_map(|name| event[*name].as_str());
    let own = || event["event"].as_object().and_then(|event| event.keys().next().cloned());
    let name = named.map(ToOwned::to_owned).or_else(own).unwrap_or_else(|| "delta".to_owned());
    match event["name"].as_str().filter(|_| name == "CUSTOM") {
        Some(custom) => format!("{name} {custom}"),
        None => name,
    }
}

/// The wires of a dialect, and how its clients answer questions.
fn wire(name: DialectName) -> (&'static str, &'static str) {
    const OTHERWISE: &str = "not in the stream, which goes one way: by \
                             `POST /v1/runs/{run}/answers`, or by `answer` on `/v1/socket`";
    match name {
        DialectName::Record
        | DialectName::ThoughtEvent
        | DialectName::TurnEvent
        | DialectName::StreamingEvent
        | DialectName::AgentEvent
        | DialectName::StreamDelta => ("the library, `/v1`", OTHERWISE),
        DialectName::AgUi => (
            "`/ag-ui/{agent}`",
            "`resume` of the next run; the stream ends with the outcome `interrupt`",
        ),
        DialectName::Acp => (
            "`wellspring acp`, over stdio, HTTP and WebSocket",
            "the agent asks by `session/request_permission` or `elicitation/create`, which are \
             requests and not updates; an error is the answer to `session/prompt`",
        ),
        DialectName::AiSdk => (
            "`/ai-sdk/{agent}`, over HTTP and WebSocket",
            "approvals by `addToolApprovalResponse`, all others by `answers` in the body",
        ),
        DialectName::UseAi => (
            "`/socket.io/`, `/use-ai`",
            "approvals by `tool_approval_response`, all others by a `tool_result` with the \
             question's id",
        ),
    }
}
