use proptest::prelude::*;
use serde_json::{Value, json};
use wellspring_core::{
    Content, MediaSource, Message, ModelSettings, Thinking, ToolChoice, ToolSpec, TurnRequest,
};

use super::*;
use crate::Framer;
use crate::answers::Answers;
use crate::provider::ToolNames;

const ANSWERS: Answers =
    Answers { reader: || Box::new(Reader::new(ToolNames::default())), framer: Framer::sse };

macro_rules! fixture {
    ($name:literal) => {
        include_bytes!(concat!("../../fixtures/openai_responses/", $name)).as_slice()
    };
}

const STREAMS: &[(&str, &[u8])] = &[
    ("text", fixture!("text.sse")),
    ("reasoning_tool_calls", fixture!("reasoning_tool_calls.sse")),
    ("silent_reasoning", fixture!("silent_reasoning.sse")),
    ("hosted_tools", fixture!("hosted_tools.sse")),
    ("custom_and_computer", fixture!("custom_and_computer.sse")),
    ("refusal", fixture!("refusal.sse")),
    ("reasoning_text", fixture!("reasoning_text.sse")),
    ("emulator", fixture!("emulator.sse")),
    ("failed", fixture!("failed.sse")),
    ("error", fixture!("error.sse")),
    ("incomplete", fixture!("incomplete.sse")),
    ("incomplete_call", fixture!("incomplete_call.sse")),
];

#[test]
fn streams() {
    for (name, body) in STREAMS {
        insta::assert_snapshot!(*name, ANSWERS.render(body));
    }
}

#[test]
fn whole_response() {
    insta::assert_snapshot!("whole", ANSWERS.render_whole(fixture!("whole.json")));
}

#[test]
fn cut_at_every_byte() {
    ANSWERS.cut_everywhere(fixture!("emulator.sse"));
    ANSWERS.cut_everywhere(fixture!("error.sse"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn cut_at_random(stream in 0..STREAMS.len(), cuts: [prop::sample::Index; 12]) {
        let body = STREAMS[stream].1;
        let mut cuts = cuts.map(|cut| cut.index(body.len()));
        cuts.sort_unstable();
        prop_assert_eq!(ANSWERS.render_cut(body, &cuts), ANSWERS.render(body));
    }

    /// Events in any order, and with anything missing, are read or refused.
    #[test]
    fn any_order(stream in 0..STREAMS.len(), order in prop::collection::vec(any::<prop::sample::Index>(), 0..40)) {
        let text = std::str::from_utf8(STREAMS[stream].1).unwrap();
        let events: Vec<&str> = text.split_inclusive("\n\n").collect();
        let body: String = order.iter().map(|index| *index.get(&events)).collect();
        ANSWERS.render(body.as_bytes());
    }

    #[test]
    fn any_bytes(bytes: Vec<u8>) {
        ANSWERS.render(&[b"data: ".as_slice(), &bytes, b"\n\n"].concat());
        ANSWERS.render_whole(&bytes);
    }
}

/// Where a response ends.
#[test]
fn ends() {
    let start = r#"data: {"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","call_id":"c","name":"f"}}"#;
    let whole = r#"data: {"type":"response.function_call_arguments.done","output_index":0,"arguments":"{}"}"#;
    let done = r#"data: {"type":"response.completed","response":{}}"#;
    let end = |events: &[&str]| {
        let rendered = ANSWERS.render(events.join("\n\n").as_bytes());
        rendered.lines().last().unwrap_or_default().to_owned()
    };
    insta::assert_snapshot!([
        end(&[]),
        end(&[start]),
        end(&[start, whole]),
        end(&[start, done]),
        end(&[start, whole, done]),
        end(&[r#"data: {"type":"response.incomplete","response":{"incomplete_details":{"reason":"content_filter"}}}"#]),
        end(&[r#"data: {"type":"response.cancelled","response":{}}"#]),
        end(&[r#"data: {"error":{"message":"no","type":"invalid_request_error"}}"#]),
        end(&[r#"data: {"type":"error","error":{"message":"slow","code":"429"}}"#]),
        end(&[r#"data: {"type":"response.output_text.delta","delta":7}"#]),
        end(&["data: <html>"]),
    ].join("\n"), @"
    error Protocol the answer ended before the model had stopped
    error Protocol the answer ended before the model had stopped
    error Protocol the answer ended before the model had stopped
    error Protocol the response ended inside a call
    stop ToolCalls null
    stop ContentFilter null
    error Unavailable the response was cancelled
    error BadRequest no
    error Unavailable slow
    error Protocol the answer ended before the model had stopped
    error Protocol an event is not the JSON it should be
    ");
}

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

fn body(request: &TurnRequest, model: &str) -> Value {
    serde_json::from_slice(&write(request, model).body).unwrap()
}

/// What a response has as its output is the next request's input.
#[test]
fn items_go_back_as_they_came() {
    for (name, stream) in STREAMS {
        let text = std::str::from_utf8(stream).unwrap();
        let last = text.lines().rfind(|line| line.contains("response.completed\"")).unwrap_or("");
        let Some(last) = last.strip_prefix("data: ") else { continue };
        let last: Value = serde_json::from_str(last).unwrap();
        let output = last["response"]["output"].as_array().unwrap();

        let request = request(ANSWERS.conversation("Well?", stream));
        let input = body(&request, "gpt-5.1")["input"].as_array().unwrap().clone();
        assert_eq!(&input[1..=output.len()], output, "{name}");
        assert!(write(&request, "gpt-5.1").left_out.is_empty(), "{name}");
        for result in &input[1 + output.len()..] {
            assert!(result["type"].as_str().unwrap().ends_with("_output"), "{name} {result}");
        }
    }
}

#[test]
fn settings() {
    let media = |media_type: &str, source| Content::Media {
        media_type: media_type.into(),
        source,
        name: Some("it".into()),
    };
    let mut request = request(vec![Message::User {
        content: vec![
            Content::text("Look:"),
            media("image/png", MediaSource::Data("aW0=".into())),
            media("image/png", MediaSource::Url("https://example.com/i.png".into())),
            media("application/pdf", MediaSource::Data("cGRm".into())),
            media("application/pdf", MediaSource::Url("https://example.com/d.pdf".into())),
            media("audio/wav", MediaSource::Data("d2F2".into())),
            Content::Resource { uri: "file:///a".into(), text: "A".into(), media_type: None },
            Content::Link { uri: "https://example.com".into(), name: None, media_type: None },
        ],
    }]);
    request.tools = [ToolSpec::new("files/read", "Reads."), ToolSpec::default()].into();
    request.streaming = false;
    request.settings = ModelSettings {
        max_output_tokens: 99,
        temperature: Some(0.5),
        stop_sequences: vec!["END".into()],
        thinking: Some(Thinking::Effort("high".into())),
        tool_choice: ToolChoice::Tool("files/read".into()),
        extra: Some(json!({
            "tools": [{ "type": "web_search" }],
            "include": ["web_search_call.results"],
            "text": { "format": { "type": "json_schema", "name": "x", "schema": {} } },
            "store": true,
            "temperature": null,
        })),
    };
    insta::assert_json_snapshot!("settings", body(&request, "gpt-5.1"));
    let left_out: Vec<_> = write(&request, "gpt-5.1").left_out.into_iter().collect();
    assert_eq!(left_out, [("sound or film", 1), ("stop sequences", 1)]);
}

/// Only models that reason may be asked for what they reasoned.
#[test]
fn who_reasons() {
    let asked = |model: &str, thinking| {
        let mut request = request(vec![Message::user("Hello?")]);
        request.settings.thinking = thinking;
        let body = body(&request, model);
        format!("{} {}", body["include"], body["reasoning"])
    };
    let plain = ["gpt-4.1", "gpt-3.5-turbo", "llama", "omni"].map(|model| asked(model, None));
    assert_eq!(plain, [(); 4].map(|()| "null null"));
    for model in ["gpt-5", "gpt-5.1-codex", "o3-mini", "codex-mini-latest", "openai/gpt-5"] {
        assert_eq!(asked(model, None), r#"["reasoning.encrypted_content"] null"#, "{model}");
    }
    assert_eq!(
        [Thinking::Off, Thinking::Budget(1000), Thinking::Budget(20_000)]
            .map(|thinking| asked("local", Some(thinking))),
        [
            r#"["reasoning.encrypted_content"] {"effort":"none"}"#,
            r#"["reasoning.encrypted_content"] {"effort":"low","summary":"auto"}"#,
            r#"["reasoning.encrypted_content"] {"effort":"high","summary":"auto"}"#,
        ]
    );
}
