//! Tests of all providers with recorded streams of real servers, cut at every byte.

use super::{Heard, stream_cut_anywhere};
use crate::{Framer, anthropic, gemini, ollama, openai_chat, openai_responses};

type Read = fn(&str) -> Heard;

const ANTHROPIC: Read =
    |body| stream_cut_anywhere(anthropic::Reader::default, &Framer::sse(), body);
const CHAT: Read = |body| stream_cut_anywhere(openai_chat::Reader::default, &Framer::sse(), body);
const RESPONSES: Read =
    |body| stream_cut_anywhere(openai_responses::Reader::default, &Framer::sse(), body);
const GEMINI: Read = |body| stream_cut_anywhere(gemini::Reader::default, &Framer::sse(), body);
const OLLAMA: Read = |body| stream_cut_anywhere(ollama::Reader::default, &Framer::ndjson(), body);

macro_rules! recorded {
    ($($read:ident $name:literal,)*) => {
        [$(($name, include_str!(concat!("../../../fixtures/recorded/", $name)), $read)),*]
    };
}

#[test]
fn recorded_streams() {
    for (name, body, read) in recorded![
        ANTHROPIC "aimock/anthropic-words.sse",
        ANTHROPIC "aimock/anthropic-calls.sse",
        ANTHROPIC "llama/anthropic-words.sse",
        CHAT "aimock/openai_chat-words.sse",
        CHAT "aimock/openai_chat-calls.sse",
        CHAT "llama/openai_chat-words.sse",
        RESPONSES "aimock/openai_responses-words.sse",
        RESPONSES "aimock/openai_responses-calls.sse",
        RESPONSES "llama/openai_responses-words.sse",
        GEMINI "aimock/gemini-words.sse",
        GEMINI "aimock/gemini-calls.sse",
        OLLAMA "aimock/ollama-words.ndjson",
        OLLAMA "aimock/ollama-calls.ndjson",
    ] {
        let heard = read(body);
        heard.check();
        insta::assert_snapshot!(name.replace('/', "-"), heard.lines());
    }
}
