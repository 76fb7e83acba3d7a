//! What a delta costs from a provider's bytes to events: `cargo bench -p wellspring-wire
//! --bench answers`.
//!
//! The body is a long answer as the provider streams it, in chunks of 1400 bytes, as one packet
//! carries them. An item is a delta. `baseline` reads the same bytes with `eventsource-stream`
//! and `serde_json`, into a tree and to the text in it, as most clients do. The allocations
//! that are shown are of the whole body.

#![expect(clippy::unwrap_used, reason = "a bench fails by panicking")]

use divan::counter::ItemsCount;
use divan::{AllocProfiler, Bencher};
use eventsource_stream::Eventsource as _;
use futures::StreamExt as _;
use serde_json::Value;
use wellspring_core::{Batch, ModelSettings, TurnRequest};
use wellspring_wire::provider::AnswerReader;
use wellspring_wire::{Framer, anthropic, gemini, ollama, openai_chat, openai_responses};

#[global_allocator]
static ALLOCATIONS: AllocProfiler = AllocProfiler::system();

fn main() {
    divan::main();
}

const DELTAS: usize = 1000;
const CHUNK_BYTES: usize = 1400;

/// What a model's deltas look like: short, and some need escaping.
const WORDS: [&str; 8] =
    [" the", " spring", ",", " which", "\\n\\n", " \\\"cold\\\"", " w\u{e4}ter", " is"];

struct Provider {
    name: &'static str,
    reader: fn(&TurnRequest) -> Box<dyn AnswerReader>,
    framer: fn() -> Framer,
    start: &'static str,
    /// Around each delta's text.
    delta: (&'static str, &'static str),
    end: &'static str,
    /// Where the text is in the tree.
    pointer: &'static str,
}

impl std::fmt::Display for Provider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

const PROVIDERS: [Provider; 5] = [
    Provider {
        name: "anthropic",
        reader: |request| Box::new(anthropic::Reader::new(request)),
        framer: Framer::sse,
        start: concat!(
            "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"m\"}}\n\n",
            "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,",
            "\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
        ),
        delta: (
            "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"",
            "\"}}\n\n",
        ),
        end: concat!(
            "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n",
            "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\n",
            "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
        ),
        pointer: "/delta/text",
    },
    Provider {
        name: "openai_chat",
        reader: |request| Box::new(openai_chat::Reader::new(request, &openai_chat::Vendor::OPENAI)),
        framer: Framer::sse,
        start: "",
        delta: (
            "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1763200000,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"",
            "\"},\"finish_reason\":null}]}\n\n",
        ),
        end: "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n",
        pointer: "/choices/0/delta/content",
    },
    Provider {
        name: "openai_responses",
        reader: |request| Box::new(openai_responses::Reader::new(request)),
        framer: Framer::sse,
        start: concat!(
            "event: response.output_item.added\ndata: {\"type\":\"response.output_item.added\",\"output_index\":0,",
            "\"item\":{\"id\":\"msg_1\",\"type\":\"message\",\"content\":[]}}\n\n",
            "event: response.content_part.added\ndata: {\"type\":\"response.content_part.added\",\"output_index\":0,",
            "\"content_index\":0,\"item_id\":\"msg_1\",\"part\":{\"type\":\"output_text\",\"text\":\"\"}}\n\n",
        ),
        delta: (
            "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"sequence_number\":9,\"item_id\":\"msg_1\",\"output_index\":0,\"content_index\":0,\"delta\":\"",
            "\",\"logprobs\":[],\"obfuscation\":\"Xa9\"}\n\n",
        ),
        end: "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"status\":\"completed\"}}\n\n",
        pointer: "/delta",
    },
    Provider {
        name: "gemini",
        reader: |request| Box::new(gemini::Reader::new(request)),
        framer: Framer::sse,
        start: "",
        delta: (
            "data: {\"candidates\": [{\"content\": {\"parts\": [{\"text\": \"",
            "\"}],\"role\": \"model\"},\"index\": 0}],\"usageMetadata\": {\"promptTokenCount\": 11,\"totalTokenCount\": 11},\"modelVersion\": \"gemini-3-flash\",\"responseId\": \"x1Ya\"}\r\n\r\n",
        ),
        end: "data: {\"candidates\": [{\"finishReason\": \"STOP\"}],\"usageMetadata\": {}}\r\n\r\n",
        pointer: "/candidates/0/content/parts/0/text",
    },
    Provider {
        name: "ollama",
        reader: |request| Box::new(ollama::Reader::new(request)),
        framer: Framer::ndjson,
        start: "",
        delta: (
            "{\"model\":\"qwen3\",\"created_at\":\"2026-11-15T12:00:00.000000Z\",\"message\":{\"role\":\"assistant\",\"content\":\"",
            "\"},\"done\":false}\n",
        ),
        end: "{\"model\":\"qwen3\",\"done\":true,\"done_reason\":\"stop\"}\n",
        pointer: "/message/content",
    },
];

impl Provider {
    fn body(&self) -> Vec<u8> {
        let mut body = self.start.to_owned();
        for word in WORDS.iter().cycle().take(DELTAS) {
            body.extend([self.delta.0, word, self.delta.1]);
        }
        body.push_str(self.end);
        body.into_bytes()
    }
}

fn request() -> TurnRequest {
    TurnRequest {
        model: None,
        instructions: "".into(),
        messages: [].into(),
        tools: [].into(),
        streaming: true,
        settings: ModelSettings::default(),
    }
}

#[divan::bench(args = PROVIDERS)]
fn ours(bencher: Bencher<'_, '_>, provider: &Provider) {
    let body = provider.body();
    let request = request();
    bencher.counter(ItemsCount::new(DELTAS)).bench(|| {
        let mut reader = (provider.reader)(&request);
        let mut framer = (provider.framer)();
        let mut batch = Batch::default();
        let mut bytes = 0;
        for mut chunk in body.chunks(CHUNK_BYTES) {
            while let Some(frame) = framer.next(&mut chunk).unwrap() {
                reader.push(frame, &mut batch).unwrap();
            }
            // What the client hands on after each read.
            bytes += batch.take().text_bytes();
        }
        reader.end(&mut batch).unwrap();
        assert!(bytes > 4 * DELTAS, "it says only {bytes} bytes");
        bytes
    });
}

#[divan::bench(args = PROVIDERS)]
fn baseline(bencher: Bencher<'_, '_>, provider: &Provider) {
    let body = provider.body();
    let is_lines = provider.name == "ollama";
    bencher.counter(ItemsCount::new(DELTAS)).bench(|| {
        let mut bytes = 0;
        let mut read = |data: &str| {
            let tree: Value = serde_json::from_str(data).unwrap_or_default();
            let text = tree.pointer(provider.pointer).and_then(Value::as_str);
            bytes += text.unwrap_or_default().to_owned().len();
        };
        if is_lines {
            std::str::from_utf8(&body).unwrap().lines().for_each(&mut read);
        } else {
            let chunks = body.chunks(CHUNK_BYTES).map(Ok::<_, std::convert::Infallible>);
            let mut events = futures::stream::iter(chunks).eventsource();
            futures::executor::block_on(async {
                while let Some(event) = events.next().await {
                    read(&event.unwrap().data);
                }
            });
        }
        assert!(bytes > 4 * DELTAS, "it says only {bytes} bytes");
        bytes
    });
}
