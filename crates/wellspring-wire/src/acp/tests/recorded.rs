//! Recordings of real agents.

use std::collections::BTreeMap;

use serde_json::Value;
use wellspring_core::{Batch, Event};

use crate::acp::read::tests::check;
use crate::acp::{OurTools, Reader};

/// Reads a recording: the events of each session.
fn read(recording: &str) -> BTreeMap<String, Vec<Event>> {
    let mut sessions: BTreeMap<String, (Reader, Batch)> = BTreeMap::new();
    for line in recording.lines() {
        let mut message: Value = serde_json::from_str(line).unwrap();
        let id = message["sessionId"].as_str().or(message["params"]["sessionId"].as_str());
        let (reader, batch) = sessions.entry(id.unwrap().to_owned()).or_insert_with(|| {
            let tools = OurTools::new("wellspring", ["clock", "return_result"]);
            (Reader::new(tools), Batch::default())
        });
        match message["method"].as_str() {
            Some("session/update") => reader.update(message["params"]["update"].take(), batch),
            Some(_) => drop(reader.permission(&message["params"], batch)),
            None => reader.end(&message["result"], batch),
        }
    }
    let events = sessions.into_iter().map(|(id, (mut reader, mut batch))| {
        reader.close(&mut batch);
        (id, batch.into_events().map(|(_, event)| event).collect())
    });
    events.collect()
}

/// What the agent shows of a session, without extended events.
fn shown(recording: &str) -> String {
    let mut lines = String::new();
    for (session, events) in read(recording) {
        check(&events);
        lines += &format!("{session}\n");
        for event in events {
            if let Event::Extended(extended) = event {
                lines += &format!("  extended {}\n", extended.name);
            } else if !matches!(event, Event::PartAnnotated { .. }) {
                lines += &format!("  {event}\n");
            }
        }
    }
    lines
}

#[test]
fn recordings() {
    for (agent, recording) in [
        ("claude", include_str!("../../../fixtures/acp/claude.jsonl")),
        ("codex", include_str!("../../../fixtures/acp/codex.jsonl")),
        ("gemini", include_str!("../../../fixtures/acp/gemini.jsonl")),
        ("opencode", include_str!("../../../fixtures/acp/opencode.jsonl")),
    ] {
        insta::assert_snapshot!(agent, shown(recording));
    }
}
