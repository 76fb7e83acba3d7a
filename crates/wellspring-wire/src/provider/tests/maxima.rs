//! Tests the limits on everything that a reader keeps: input up to a limit is read.

use serde_json::{Value, json};
use wellspring_core::Event;

use super::{Heard, stream};
use crate::anthropic::BLOCKS_MAX;
use crate::openai_chat::{CALLS_MAX, EARLY_BYTES_MAX};
use crate::openai_responses::ITEMS_MAX;
use crate::provider::AnswerReader;
use crate::provider::SOURCES_MAX;
use crate::{Framer, anthropic, gemini, openai_chat, openai_responses};

fn read(reader: impl AnswerReader, events: impl IntoIterator<Item = Value>) -> Heard {
    let body: String = events.into_iter().map(|event| format!("data: {event}\n\n")).collect();
    stream(reader, Framer::sse(), [body.as_bytes()])
}

/// Whether the limit was exceeded. A truncated answer is a different error.
fn is_too_much(heard: &Heard) -> bool {
    let error = heard.error.as_deref().unwrap_or_default();
    ["more than", "too many", "no name"].iter().any(|words| error.contains(words))
}

fn sources(heard: &Heard) -> usize {
    heard.events.iter().filter(|event| matches!(event, Event::SourceCited(_))).count()
}

fn chunk(delta: &Value) -> Value {
    json!({"choices": [{"index": 0, "delta": delta}]})
}

#[test]
fn blocks_items_and_calls() {
    let blocks = |count: usize| {
        let block = json!({"type": "text", "text": ""});
        let event =
            |index| json!({"type": "content_block_start", "index": index, "content_block": block});
        is_too_much(&read(anthropic::Reader::default(), (0..count).map(event)))
    };
    let items = |count: usize| {
        let event = |index: usize| {
            let item = json!({"id": index.to_string(), "type": "message"});
            json!({"type": "response.output_item.added", "output_index": index, "item": item})
        };
        is_too_much(&read(openai_responses::Reader::default(), (0..count).map(event)))
    };
    let calls = |count: usize| {
        let event = |index: usize| {
            let function = json!({"name": "f", "arguments": ""});
            let call = json!({"index": index, "id": index.to_string(), "function": function});
            chunk(&json!({"tool_calls": [call]}))
        };
        is_too_much(&read(openai_chat::Reader::default(), (0..count).map(event)))
    };
    assert_eq!((blocks(BLOCKS_MAX), blocks(BLOCKS_MAX + 1)), (false, true));
    assert_eq!((items(ITEMS_MAX), items(ITEMS_MAX + 1)), (false, true));
    assert_eq!((calls(CALLS_MAX), calls(CALLS_MAX + 1)), (false, true));
}

/// Arguments may arrive before the name of their call.
#[test]
fn arguments_without_a_name() {
    let early = |bytes: usize| {
        let function = json!({"arguments": "x".repeat(bytes)});
        let event = chunk(&json!({"tool_calls": [{"index": 0, "function": function}]}));
        is_too_much(&read(openai_chat::Reader::default(), [event]))
    };
    assert_eq!((early(EARLY_BYTES_MAX), early(EARLY_BYTES_MAX + 1)), (false, true));
}

/// Citations beyond the last reported source are kept.
#[test]
fn sources_that_are_named() {
    let numbers = || 0..=SOURCES_MAX;
    let url = |number: usize| format!("https://example.com/{number}");
    let begin = json!({"type": "content_block_start", "index": 0,
        "content_block": {"type": "text", "text": ""}});
    let cites = numbers().map(|number| {
        let citation = json!({"type": "web_search_result_location", "url": url(number)});
        json!({"type": "content_block_delta", "index": 0,
            "delta": {"type": "citations_delta", "citation": citation}})
    });
    let anthropic = read(anthropic::Reader::default(), [begin].into_iter().chain(cites));
    let chat = read(
        openai_chat::Reader::default(),
        numbers().map(|number| {
            let cited = json!({"type": "url_citation", "url_citation": {"url": url(number)}});
            chunk(&json!({"content": "x", "annotations": [cited]}))
        }),
    );
    let chunks = numbers().map(|number| json!({"web": {"uri": url(number)}}));
    let grounding = json!({"groundingChunks": chunks.collect::<Vec<_>>()});
    let words = json!({"parts": [{"text": "x"}]});
    let answer = json!({"candidates": [{"content": words, "groundingMetadata": grounding}]});
    let gemini = read(gemini::Reader::default(), [answer]);
    for heard in [&anthropic, &chat, &gemini] {
        assert_eq!(sources(heard), SOURCES_MAX);
        assert!(!is_too_much(heard), "{:?}", heard.error);
    }
    let kept = |heard: &Heard| {
        let cited = |event: &&Event| event.to_string().contains("example.com");
        heard.events.iter().filter(cited).count() - sources(heard)
    };
    assert_eq!((kept(&anthropic), kept(&chat)), (SOURCES_MAX + 1, SOURCES_MAX + 1));
}
