//! The cost of one event from a provider: `cargo bench -p wellspring-wire --bench providers`.
//!
//! The body is what a provider sends while a model answers: events of 100 to 200 bytes, in
//! chunks of 1400 bytes, the size of one packet. `frame` splits it into events; `read` maps
//! them to our events. For comparison, `eventsource-stream` splits the same chunks, and
//! `serde_json` parses them into a type with only the required members.

#![expect(clippy::unwrap_used, reason = "a bench fails by panicking")]

use std::time::{Duration, Instant};

use eventsource_stream::Eventsource as _;
use futures::StreamExt as _;
use serde::Deserialize;
use wellspring_core::Batch;
use wellspring_testkit::figures::{Scale, figure, median};
use wellspring_wire::provider::AnswerReader;
use wellspring_wire::{Framer, anthropic, gemini, ollama, openai_chat, openai_responses};

/// Deltas per answer.
const DELTAS: usize = 1000;

/// Bytes per chunk: the size of one packet.
const CHUNK_BYTES: usize = 1400;

/// Short deltas as a model sends them; some need escaping.
const WORDS: [&str; 8] =
    [" the", " spring", ",", " which", "\\n\\n", " \\\"cold\\\"", " w\u{e4}ter", " is"];

fn main() {
    let samples = Scale::asked().rounds(300);
    let anthropic = anthropic_body();
    let chat = chat_body();
    frames(samples, &anthropic);
    let theirs = others(samples, "anthropic", &anthropic, |data| {
        #[derive(Deserialize)]
        struct Event {
            delta: Option<Delta>,
        }
        #[derive(Deserialize)]
        struct Delta {
            text: Option<String>,
        }
        let event: Event = serde_json::from_str(data).unwrap();
        event.delta.and_then(|delta| delta.text).map_or(0, |text| text.len())
    });
    ours(samples, "anthropic", &anthropic, Framer::sse, anthropic::Reader::default, &theirs);
    let theirs = others(samples, "openai_chat", &chat, |data| {
        #[derive(Deserialize)]
        struct Chunk {
            choices: Vec<Choice>,
        }
        #[derive(Deserialize)]
        struct Choice {
            delta: Delta,
        }
        #[derive(Deserialize)]
        struct Delta {
            content: Option<String>,
        }
        if data == "[DONE]" {
            return 0;
        }
        let chunk: Chunk = serde_json::from_str(data).unwrap();
        let texts = chunk.choices.into_iter().filter_map(|choice| choice.delta.content);
        texts.map(|text| text.len()).sum()
    });
    ours(samples, "openai_chat", &chat, Framer::sse, openai_chat::Reader::default, &theirs);
    let body = responses_body();
    let theirs = others(samples, "openai_responses", &body, |data| {
        #[derive(Deserialize)]
        struct Event {
            delta: Option<String>,
        }
        let event: Event = serde_json::from_str(data).unwrap();
        event.delta.map_or(0, |text| text.len())
    });
    let reader = openai_responses::Reader::default;
    ours(samples, "openai_responses", &body, Framer::sse, reader, &theirs);
    let body = gemini_body();
    let theirs = others(samples, "gemini", &body, |data| {
        #[derive(Deserialize)]
        struct Chunk {
            candidates: Vec<Candidate>,
        }
        #[derive(Deserialize)]
        struct Candidate {
            content: Option<Content>,
        }
        #[derive(Deserialize)]
        struct Content {
            parts: Vec<Part>,
        }
        #[derive(Deserialize)]
        struct Part {
            text: Option<String>,
        }
        let chunk: Chunk = serde_json::from_str(data).unwrap();
        let contents = chunk.candidates.into_iter().filter_map(|candidate| candidate.content);
        let texts = contents.flat_map(|content| content.parts).filter_map(|part| part.text);
        texts.map(|text| text.len()).sum()
    });
    ours(samples, "gemini", &body, Framer::sse, gemini::Reader::default, &theirs);
    // Splitting lines needs no other crate; the comparison is with `serde_json` alone.
    let body = ollama_body();
    let cost = median(samples, DELTAS, || {
        timed(|| {
            #[derive(Deserialize)]
            struct Line {
                message: Option<Message>,
            }
            #[derive(Deserialize)]
            struct Message {
                content: String,
            }
            let lines = body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
            lines
                .map(|line| {
                    let line: Line = serde_json::from_slice(line).unwrap();
                    line.message.map_or(0, |message| message.content.len())
                })
                .sum()
        })
    });
    let theirs = "provider/read/ollama/serde_json";
    figure(theirs.to_owned(), cost, "ns/event", None);
    ours(samples, "ollama", &body, Framer::ndjson, ollama::Reader::default, theirs);
}

fn frames(samples: usize, body: &[u8]) {
    let theirs = median(samples, DELTAS, || timed(|| by_another(body, str::len)));
    figure("provider/frame/eventsource-stream".to_owned(), theirs, "ns/event", None);
    let ours = median(samples, DELTAS, || {
        timed(|| {
            let mut framer = Framer::sse();
            let mut bytes = 0;
            for mut chunk in body.chunks(CHUNK_BYTES) {
                while let Some(frame) = framer.next(&mut chunk).unwrap() {
                    bytes += frame.data.len();
                }
            }
            bytes
        })
    });
    let beside = Some("provider/frame/eventsource-stream");
    figure("provider/frame/ours".to_owned(), ours, "ns/event", beside);
}

fn others(samples: usize, name: &str, body: &[u8], read: impl Fn(&str) -> usize + Copy) -> String {
    assert!(by_another(body, read) >= DELTAS, "the other crate yields the deltas");
    let cost = median(samples, DELTAS, || timed(|| by_another(body, read)));
    let figured = format!("provider/read/{name}/eventsource-stream+serde_json");
    figure(figured.clone(), cost, "ns/event", None);
    figured
}

fn ours<R: AnswerReader>(
    samples: usize,
    name: &str,
    body: &[u8],
    framer: fn() -> Framer,
    reader: impl Fn() -> R,
    theirs: &str,
) {
    let read = || {
        let (mut framer, mut reader, mut batch) = (framer(), reader(), Batch::default());
        let mut bytes = 0;
        for mut chunk in body.chunks(CHUNK_BYTES) {
            while let Some(frame) = framer.next(&mut chunk).unwrap() {
                reader.push(frame, &mut batch).unwrap();
            }
            bytes += batch.take().text_bytes();
        }
        reader.end(&mut batch).unwrap();
        bytes
    };
    assert!(read() >= DELTAS, "the reader yields the deltas");
    let cost = median(samples, DELTAS, || timed(read));
    figure(format!("provider/read/{name}/ours"), cost, "ns/event", Some(theirs));
}

fn timed(work: impl FnOnce() -> usize) -> Duration {
    let began = Instant::now();
    std::hint::black_box(work());
    began.elapsed()
}

fn by_another(body: &[u8], read: impl Fn(&str) -> usize) -> usize {
    let chunks = body.chunks(CHUNK_BYTES).map(Ok::<_, std::convert::Infallible>);
    let mut events = futures::stream::iter(chunks).eventsource();
    futures::executor::block_on(async {
        let mut bytes = 0;
        while let Some(event) = events.next().await {
            bytes += read(&event.unwrap().data);
        }
        bytes
    })
}

fn anthropic_body() -> Vec<u8> {
    let event = |json: &str| format!("event: content_block_delta\ndata: {json}\n\n");
    let mut body =
        event(r#"{"type":"message_start","message":{"model":"m","usage":{"input_tokens":1}}}"#);
    body += &event(
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
    );
    for word in WORDS.iter().cycle().take(DELTAS) {
        let delta = format!(r#"{{"type":"text_delta","text":"{word}"}}"#);
        body += &event(&format!(r#"{{"type":"content_block_delta","index":0,"delta":{delta}}}"#));
    }
    body += &event(r#"{"type":"content_block_stop","index":0}"#);
    body += &event(r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#);
    body += &event(r#"{"type":"message_stop"}"#);
    body.into_bytes()
}

/// Random padding that OpenAI adds so that an event's length does not reveal its text's length.
fn padding(number: usize) -> &'static str {
    &"nR3wQz8LkP1x"[..number % 12]
}

fn chat_body() -> Vec<u8> {
    let mut body = String::new();
    for (number, word) in WORDS.iter().cycle().take(DELTAS).enumerate() {
        let padding = padding(number);
        let choice = format!(
            r#"{{"index":0,"delta":{{"content":"{word}"}},"logprobs":null,"finish_reason":null}}"#
        );
        body += &format!(
            "data: {{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{choice}],\"obfuscation\":\"{padding}\"}}\n\n"
        );
    }
    body += "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    body.into_bytes()
}

fn responses_body() -> Vec<u8> {
    let event = |name: &str, members: &str| {
        format!("event: response.{name}\ndata: {{\"type\":\"response.{name}\",{members}}}\n\n")
    };
    let place = r#""item_id":"msg_1","output_index":0,"content_index":0"#;
    let item = r#""output_index":0,"item":{"id":"msg_1","type":"message","content":[]}"#;
    let part = r#""part":{"type":"output_text","text":""}"#;
    let mut body = event("output_item.added", item);
    body += &event("content_part.added", &format!("{place},{part}"));
    for (number, word) in WORDS.iter().cycle().take(DELTAS).enumerate() {
        let padding = padding(number);
        let delta = format!(
            r#""sequence_number":{number},{place},"delta":"{word}","logprobs":[],"obfuscation":"{padding}""#
        );
        body += &event("output_text.delta", &delta);
    }
    body += &event("completed", r#""response":{"status":"completed"}"#);
    body.into_bytes()
}

fn gemini_body() -> Vec<u8> {
    let mut body = String::new();
    for (number, word) in WORDS.iter().cycle().take(DELTAS).enumerate() {
        let content = format!(r#"{{"parts": [{{"text": "{word}"}}],"role": "model"}}"#);
        body += &format!(
            "data: {{\"candidates\": [{{\"content\": {content},\"index\": 0}}],\"usageMetadata\": {{\"promptTokenCount\": 11,\"candidatesTokenCount\": {number}}},\"modelVersion\": \"m\"}}\r\n\r\n"
        );
    }
    body += "data: {\"candidates\": [{\"finishReason\": \"STOP\"}],\"usageMetadata\": {}}\r\n\r\n";
    body.into_bytes()
}

fn ollama_body() -> Vec<u8> {
    let mut body = String::new();
    for (number, word) in WORDS.iter().cycle().take(DELTAS).enumerate() {
        let message = format!(r#"{{"role":"assistant","content":"{word}"}}"#);
        body += &format!(
            "{{\"model\":\"m\",\"created_at\":\"2026-11-15T12:00:00.{number:09}Z\",\"message\":{message},\"done\":false}}\n"
        );
    }
    body += "{\"model\":\"m\",\"done\":true,\"done_reason\":\"stop\"}\n";
    body.into_bytes()
}
