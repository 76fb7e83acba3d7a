use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};
use wellspring_core::{
    Content, MediaSource, Message, ModelSettings, OutputSchema, RunsOn, Stop, Thinking, ToolChoice,
    ToolSpec, TurnRequest,
};

use super::*;
use crate::Framer;
use crate::provider::tests::{Heard, checked, request, stream, stream_cut_anywhere, whole};
use crate::test_helpers::cut;

fn read(body: impl AsRef<[u8]>) -> Heard {
    checked(Reader::default(), Framer::sse(), body)
}

macro_rules! fixture {
    ($name:literal) => {
        include_str!(concat!("../../fixtures/openai_responses/", $name))
    };
}

const STREAMS: &[(&str, &str)] = &[
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
        let heard = stream_cut_anywhere(Reader::default, &Framer::sse(), body);
        heard.check();
        insta::assert_snapshot!(*name, heard.lines());
    }
}

#[test]
fn whole_response() {
    insta::assert_snapshot!("whole", whole(Reader::default(), fixture!("whole.json")).lines());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(wellspring_testkit::soak(64, 4096)))]

    #[test]
    fn cut_at_random(at in 0..STREAMS.len(), cuts: [Index; 12]) {
        let body = STREAMS[at].1;
        let chunks = cut(body.as_bytes(), &cuts);
        prop_assert_eq!(stream(Reader::default(), Framer::sse(), chunks), read(body));
    }

    /// Events in any order, with some missing, are read or rejected.
    #[test]
    fn any_order(stream in 0..STREAMS.len(), order in prop::collection::vec(any::<Index>(), 0..40)) {
        let events: Vec<&str> = STREAMS[stream].1.split_inclusive("\n\n").collect();
        let body: String = order.iter().map(|index| *index.get(&events)).collect();
        read(body);
    }

    #[test]
    fn any_bytes(bytes: Vec<u8>) {
        read([b"data: ".as_slice(), &bytes, b"\n\n"].concat());
        whole(Reader::default(), &String::from_utf8_lossy(&bytes));
    }
}

/// A server that splits UTF-16 text may split surrogate pairs.
#[test]
fn half_a_character() {
    let event = |name: &str, members: &str| {
        format!("data: {{\"type\":\"response.{name}\",\"item_id\":\"m\",{members}}}\n\n")
    };
    let body = [
        event("output_item.added", r#""item":{"id":"m","type":"message"}"#),
        event("output_text.delta", r#""delta":"a\ud83d""#),
        event("output_text.delta", r#""delta":"\ude00\ud83d""#),
        event("output_text.done", r#""text":"a😀😀!""#),
        event("completed", r#""response":{}"#),
    ];
    insta::assert_snapshot!(read(body.concat()).lines(), @r#"
    part 0 started text
    part 0 delta "a"
    part 0 delta "😀"
    part 0 delta "😀!"
    part 0 finished
    stop ["end_turn",null]
    "#);
}

/// Where a response ends.
#[test]
fn ends() {
    let start = r#"data: {"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","call_id":"c","name":"f"}}"#;
    let whole = r#"data: {"type":"response.function_call_arguments.done","output_index":0,"arguments":"{}"}"#;
    let done = r#"data: {"type":"response.completed","response":{}}"#;
    let end = |events: &[&str]| {
        let heard = read(events.join("\n\n")).lines();
        heard.lines().last().unwrap_or_default().to_owned()
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
    ].join("\n"), @r#"
    error Protocol: the answer ended before the model had stopped
    error Protocol: the answer ended before the model had stopped
    error Protocol: the answer ended before the model had stopped
    error Protocol: the response ended inside a call
    stop ["tool_calls",null]
    stop ["content_filter",null]
    error Unavailable: the response was cancelled
    error BadRequest: no
    error Unavailable: slow
    error Protocol: the answer ended before the model had stopped
    error Protocol: an event is not the expected JSON
    "#);
}

fn body(model: &str, request: &TurnRequest) -> Value {
    serde_json::from_slice(&write(model, request).body).unwrap()
}

/// The output of a response is the input of the next request.
#[test]
fn items_go_back_as_they_came() {
    for (name, stream) in STREAMS {
        let last = stream.lines().rfind(|line| line.contains("response.completed\"")).unwrap_or("");
        let Some(last) = last.strip_prefix("data: ") else { continue };
        let last: Value = serde_json::from_str(last).unwrap();
        let output = last["response"]["output"].as_array().unwrap();

        let request = request(read(stream).conversation("Well?"));
        let input = body("gpt-5.1", &request)["input"].as_array().unwrap().clone();
        assert_eq!(&input[1..=output.len()], output, "{name}");
        assert!(write("gpt-5.1", &request).left_out.is_empty(), "{name}");
        for result in &input[1 + output.len()..] {
            assert!(result["type"].as_str().unwrap().ends_with("_output"), "{name} {result}");
        }
    }
}

/// llama.cpp rejects assistant items without a type, also its own.
#[test]
fn items_of_the_assistant_carry_their_type() {
    let own = read(
        r#"data: {"type":"response.output_item.done","output_index":0,"item":{"id":"m","role":"assistant","content":[{"type":"output_text","text":"Hi"}]}}

data: {"type":"response.completed","response":{}}"#,
    );
    let mut foreign = own.message();
    if let Message::Assistant { parts, .. } = &mut foreign {
        parts[0].annotations.clear();
    }
    let item = |message: Message| body("m", &request([message]))["input"][0].clone();
    let content = json!([{"type": "output_text", "text": "Hi"}]);
    assert_eq!(
        [item(own.message()), item(foreign)],
        [
            json!({"id": "m", "type": "message", "role": "assistant", "content": content}),
            json!({"type": "message", "role": "assistant", "content": content}),
        ]
    );
}

/// Compatible servers that send neither indexes nor ids, arguments that are not a string, or an
/// empty status.
#[test]
fn calls_without_a_place_or_an_id() {
    let item = |name: &str, arguments: &str| {
        format!(r#"{{"type":"function_call","name":"{name}","arguments":{arguments}}}"#)
    };
    let event = |kind: &str, item: String| {
        format!("data: {{\"type\":\"response.output_item.{kind}\",\"item\":{item}}}\n\n")
    };
    let stream = [
        event("added", item("f", "\"\"")),
        event("done", item("f", "\"{}\"")),
        event("added", item("g", "null")),
        event("done", item("g", "{\"y\":2}")),
        "data: {\"type\":\"response.completed\",\"response\":{\"status\":\"null\"}}\n\n".to_owned(),
    ]
    .concat();
    let heard = read(stream);
    let Message::Assistant { parts, .. } = heard.message() else { unreachable!() };
    let calls: Vec<_> = parts.iter().map(|part| format!("{} {}", part.kind, part.text)).collect();
    assert_eq!(calls, ["call f {}", "call g {\"y\":2}"]);
    assert_eq!((heard.stop, heard.error), (Some((Stop::ToolCalls, None)), None));
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
    let hosted = ToolSpec {
        runs_on: RunsOn::Provider,
        parameters: json!({ "type": "web_search" }).into(),
        ..ToolSpec::new("web_search", "")
    };
    request.tools = [ToolSpec::new("files/read", "Reads."), ToolSpec::default(), hosted].into();
    request.instructions = "Be brief.".into();
    request.streaming = false;
    request.settings = ModelSettings {
        max_output_tokens: 99,
        temperature: Some(0.5),
        stop_sequences: vec!["END".into()],
        thinking: Some(Thinking::Effort("high".into())),
        tool_choice: ToolChoice::Tool("files/read".into()),
        output: Some(OutputSchema { name: "x".into(), schema: json!({}) }),
        extra: Some(json!({
            "store": true,
            "temperature": null,
        })),
    };
    insta::assert_json_snapshot!("settings", body("gpt-5.1", &request));
    let left_out: Vec<_> = write("gpt-5.1", &request).left_out.into_iter().collect();
    assert_eq!(
        left_out,
        [("media that are neither images nor documents", 1), ("stop sequences", 1)]
    );
}

/// Only reasoning models may be asked for their reasoning.
#[test]
fn who_reasons() {
    let asked = |model: &str, thinking| {
        let mut request = request(vec![Message::user("Hello?")]);
        request.settings.thinking = thinking;
        let body = body(model, &request);
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
