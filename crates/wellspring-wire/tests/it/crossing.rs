//! A conversation that began with one provider continues with any other, also after an abort.
//!
//! Each provider sends the same answer in its own format: a signed thought, some text, a call;
//! then, given the result, the final text. The recorded conversation is written for all five.
//! The bodies are snapshots; their consistency is checked for every place where a run can be
//! cut short.

use std::fmt::Write as _;

use serde_json::Value;
use wellspring_core::{
    AgentNo, Batch, Event, Message, ModelSettings, PartId, PartKind, PartShape, Stop, ToolOutcome,
    ToolResult, Transcript, TurnRequest, VoidReason,
};
use wellspring_testkit::RunBuilder;
use wellspring_wire::provider::{AnswerReader, Written};
use wellspring_wire::{Framer, anthropic, gemini, ollama, openai_chat, openai_responses};

struct Provider {
    name: &'static str,
    reader: fn(&TurnRequest) -> Box<dyn AnswerReader>,
    framer: fn() -> Framer,
    write: fn(&TurnRequest) -> Written,
    /// A thought, text and a call.
    first: &'static str,
    /// The answer.
    second: &'static str,
    /// The bytes of the first turn that must be sent back to this provider unchanged.
    own: &'static [&'static str],
}

const PROVIDERS: &[Provider] = &[
    Provider {
        name: "anthropic",
        reader: |request| Box::new(anthropic::Reader::new(request)),
        framer: Framer::sse,
        write: |request| {
            anthropic::write("claude-x", request, &anthropic::Options { cache: false })
        },
        first: include_str!("crossing/anthropic_first.sse"),
        second: include_str!("crossing/anthropic_second.sse"),
        own: &["c2lnLWFudGhyb3BpYw==", "Let me think.", r#"{"tz":"UTC","at":1.50}"#],
    },
    Provider {
        name: "openai_chat",
        reader: |request| {
            Box::new(openai_chat::Reader::new(request, &openai_chat::Vendor::DEEPSEEK))
        },
        framer: Framer::sse,
        write: |request| {
            let vendor = openai_chat::Vendor::DEEPSEEK;
            openai_chat::write("m", request, &vendor)
        },
        first: include_str!("crossing/openai_chat_first.sse"),
        second: include_str!("crossing/openai_chat_second.sse"),
        own: &[r#""{\"tz\":\"UTC\",\"at\":1.50}""#],
    },
    Provider {
        name: "openai_responses",
        reader: |request| Box::new(openai_responses::Reader::new(request)),
        framer: Framer::sse,
        write: |request| openai_responses::write("gpt-5.1", request),
        first: include_str!("crossing/openai_responses_first.sse"),
        second: include_str!("crossing/openai_responses_second.sse"),
        own: &[
            "gAAAAAB-openai",
            "Let me think.",
            r#""{\"tz\":\"UTC\",\"at\":1.50}""#,
            r#""id":"rs_1""#,
            r#""id":"fc_1""#,
        ],
    },
    Provider {
        name: "gemini",
        reader: |request| Box::new(gemini::Reader::new(request)),
        framer: Framer::sse,
        write: |request| gemini::write("gemini-3-flash", request),
        first: include_str!("crossing/gemini_first.sse"),
        second: include_str!("crossing/gemini_second.sse"),
        own: &["c2lnLWdlbWluaQ==", "Let me think.", r#"{"tz":"UTC","at":1.50}"#],
    },
    Provider {
        name: "ollama",
        reader: |request| Box::new(ollama::Reader::new(request)),
        framer: Framer::ndjson,
        write: |request| ollama::write("qwen3", request),
        first: include_str!("crossing/ollama_first.ndjson"),
        second: include_str!("crossing/ollama_second.ndjson"),
        own: &["Let me think.", r#"{"tz":"UTC","at":1.50}"#],
    },
];

fn request(messages: Vec<Message>) -> TurnRequest {
    TurnRequest {
        model: None,
        instructions: "Be brief.".into(),
        messages: messages.into(),
        tools: [].into(),
        streaming: true,
        settings: ModelSettings::default(),
    }
}

fn read(provider: &Provider, body: &str) -> (Vec<Event>, Stop) {
    let mut reader = (provider.reader)(&request(Vec::new()));
    let mut framer = (provider.framer)();
    let mut batch = Batch::default();
    let mut bytes = body.as_bytes();
    while let Some(frame) = framer.next(&mut bytes).unwrap() {
        reader.push(frame, &mut batch).unwrap();
    }
    reader.end(&mut batch).unwrap();
    let (stop, _) = batch.take_stop().unwrap();
    (batch.into_events().map(|(_, event)| event).collect(), stop)
}

/// Adds a model's answer. Returns the calls of our tools whose arguments are complete.
fn say(run: &mut RunBuilder, events: Vec<Event>) -> Vec<PartId> {
    let first = run.outline().next_part.0;
    let mut calls = Vec::new();
    let mut whole = Vec::new();
    for mut event in events {
        event.rename_parts(|part| PartId(first + part.0));
        if let Event::PartStarted { part, kind: PartKind::ToolCall(call) } = &event
            && call.runs_on.is_ours()
        {
            calls.push(*part);
        }
        if let Event::PartFinished { part } = &event
            && calls.contains(part)
        {
            whole.push(*part);
        }
        run.push(event);
    }
    whole
}

/// The recorded conversation with a provider, and the next question.
fn recorded(provider: &Provider) -> TurnRequest {
    let mut run = RunBuilder::new("demo", "What time is it?");
    run.turn();
    let (events, stop) = read(provider, provider.first);
    let calls = say(&mut run, events);
    run.stop(stop);
    for call in calls {
        run.start(call).ok(call, "12:00");
    }
    run.turn();
    let (events, stop) = read(provider, provider.second);
    say(&mut run, events);
    run.stop(stop);
    asked_again(&run.complete())
}

/// The same, cut short after this many events of the first turn.
fn cut_short(provider: &Provider, after: usize) -> TurnRequest {
    let mut run = RunBuilder::new("demo", "What time is it?");
    run.turn();
    let (events, _) = read(provider, provider.first);
    let calls = say(&mut run, events.into_iter().take(after).collect());
    // As in the engine: text that was shown stays, an incomplete call does not.
    let open = run.outline().parts.iter().filter(|(_, part)| part.open);
    let open: Vec<(PartId, bool)> =
        open.map(|(id, part)| (*id, part.grown && part.shape != PartShape::Call)).collect();
    for (part, stays) in open {
        if stays {
            run.close(part);
        } else {
            run.void(&[part], VoidReason::Abandoned);
        }
    }
    for call in calls {
        run.result(call, ToolOutcome::Interrupted, ToolResult::new("the run was cancelled"));
    }
    asked_again(&run.cancel("enough"))
}

fn asked_again(records: &[wellspring_core::Record]) -> TurnRequest {
    let mut messages = Transcript::fold(records).messages(AgentNo::ROOT);
    messages.push(Message::user("And in Paris?"));
    request(messages)
}

fn rendered(written: &Written) -> String {
    let body = String::from_utf8(written.body.clone()).unwrap();
    let mut text = body.replace(&wellspring_testkit::RUN.to_string(), "run");
    for (what, count) in &written.left_out {
        let _ = write!(text, "\n  left out: {what} ({count})");
    }
    text
}

#[test]
fn goes_on_with_every_provider() {
    for from in PROVIDERS {
        let request = recorded(from);
        let mut bodies = String::new();
        for to in PROVIDERS {
            let _ = writeln!(bodies, "# {}\n{}\n", to.name, rendered(&(to.write)(&request)));
        }
        insta::assert_snapshot!(format!("from_{}", from.name), bodies);
    }
}

#[test]
fn goes_on_with_itself_as_it_was() {
    for provider in PROVIDERS {
        let written = (provider.write)(&recorded(provider));
        let body = String::from_utf8(written.body).unwrap();
        for own in provider.own {
            assert!(body.contains(own), "{}: {own} is not in {body}", provider.name);
        }
    }
}

#[test]
fn nothing_of_another_provider_goes_out() {
    for from in PROVIDERS {
        for to in PROVIDERS.iter().filter(|to| to.name != from.name) {
            let body = String::from_utf8((to.write)(&recorded(from)).body).unwrap();
            let secret = ["c2lnLWFudGhyb3BpYw==", "gAAAAAB-openai", "c2lnLWdlbWluaQ=="];
            for signature in secret {
                assert!(!body.contains(signature), "{} to {}: {body}", from.name, to.name);
            }
            assert!(body.contains("It is noon."), "{} to {}: {body}", from.name, to.name);
        }
    }
}

/// Wherever a run is cut short, its history can be sent to every provider: each call is directly
/// followed by its result, and there are no other results.
#[test]
fn goes_on_after_an_abort() {
    for from in PROVIDERS {
        let events = read(from, from.first).0.len();
        for after in 0..=events {
            let request = cut_short(from, after);
            for to in PROVIDERS {
                let written = (to.write)(&request);
                let body: Value = serde_json::from_slice(&written.body).unwrap();
                let (calls, results) = calls_and_results(&body);
                assert_eq!(calls, results, "{} to {} after {after}: {body}", from.name, to.name);
                assert!(body.to_string().contains("And in Paris?"));
            }
        }
        let mut bodies = String::new();
        let request = cut_short(from, events);
        for to in PROVIDERS {
            let _ = writeln!(bodies, "# {}\n{}\n", to.name, rendered(&(to.write)(&request)));
        }
        insta::assert_snapshot!(format!("aborted_{}", from.name), bodies);
    }
}

/// The ids of calls, and the ids of results, in any provider's body.
fn calls_and_results(body: &Value) -> (Vec<String>, Vec<String>) {
    let (mut calls, mut results) = (Vec::new(), Vec::new());
    let text =
        |value: &Value, name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    walk(body, &mut |object| {
        match object.get("type").and_then(Value::as_str) {
            Some("tool_use") => calls.extend(text(object, "id")),
            Some("tool_result") => results.extend(text(object, "tool_use_id")),
            Some("function_call") => calls.extend(text(object, "call_id")),
            Some("function_call_output") => results.extend(text(object, "call_id")),
            _ => {}
        }
        if let Some(called) = object.get("tool_calls").and_then(Value::as_array) {
            calls.extend(called.iter().filter_map(|call| text(call, "id")));
        }
        results.extend(text(object, "tool_call_id"));
        calls.extend(object.get("functionCall").and_then(|call| text(call, "name")));
        results.extend(object.get("functionResponse").and_then(|call| text(call, "name")));
    });
    (calls, results)
}

fn walk(value: &Value, each: &mut impl FnMut(&Value)) {
    match value {
        Value::Object(members) => {
            each(value);
            members.values().for_each(|member| walk(member, each));
        }
        Value::Array(items) => items.iter().for_each(|item| walk(item, each)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
