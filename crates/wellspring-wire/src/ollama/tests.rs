use proptest::prelude::*;
use serde_json::{Value, json};
use wellspring_core::{
    Content, MediaSource, Message, ModelSettings, OutputSchema, Thinking, ToolChoice, ToolSpec,
    TurnRequest,
};

use super::*;
use crate::Framer;
use crate::provider::tests::{Heard, checked, request, stream_cut_anywhere, whole};

fn read(body: impl AsRef<[u8]>) -> Heard {
    checked(Reader::default(), Framer::ndjson(), body)
}

macro_rules! fixture {
    ($name:literal) => {
        include_str!(concat!("../../fixtures/ollama/", $name))
    };
}

#[test]
fn streams() {
    for (name, body) in [
        ("text", fixture!("text.ndjson")),
        ("thinking_tool_calls", fixture!("thinking_tool_calls.ndjson")),
        ("length", fixture!("length.ndjson")),
        ("error", fixture!("error.ndjson")),
    ] {
        let heard = stream_cut_anywhere(Reader::default, &Framer::ndjson(), body);
        heard.check();
        insta::assert_snapshot!(name, heard.lines());
    }
}

#[test]
fn whole_answer() {
    insta::assert_snapshot!("whole", whole(Reader::default(), fixture!("whole.json")).lines());
    let lines = fixture!("text.ndjson");
    assert_eq!(whole(Reader::default(), lines), read(lines));
}

/// Servers that implement Ollama's API with deviations.
#[test]
fn imitations() {
    let lines = |lines: &[&str]| read(lines.join("\n")).lines();
    insta::assert_snapshot!(lines(&[
        r#"{"message":{"tool_calls":[{"function":{"name":"clock","arguments":"{\"tz\":\"UTC\"}"}}]}}"#,
        r#"{"message":{"content":7}}"#,
        r#"{"message":{"content":null,"images":["aW0="]},"done":true,"done_reason":"unload"}"#,
        r#"{"done":true}"#,
    ]), @r#"
    part 0 started call clock
    part 0 delta "{\"tz\":\"UTC\"}"
    part 0 finished
    extended ollama line {"message":{"content":7}}
    file image/png
    stop [{"other":"unload"},null]
    "#);
    insta::assert_snapshot!(lines(&[
        r#"{"message":{"content":"<think>Hm</think>"}}"#,
        r#"{"message":{"content":"\n\nHi"}}"#,
        r#"{"message":{"content":"","reasoning":"more"}}"#,
        r#"{"done":true,"done_reason":"null"}"#,
    ]), @r#"
    part 0 started thought
    part 0 annotated {"other":{"origin":"ollama","name":"thinking","value":true}}
    part 0 delta "Hm"
    part 0 finished
    part 1 started text
    part 1 delta "Hi"
    part 1 finished
    part 2 started thought
    part 2 annotated {"other":{"origin":"ollama","name":"thinking","value":true}}
    part 2 delta "more"
    part 2 finished
    stop ["end_turn",null]
    "#);
    insta::assert_snapshot!(lines(&[r#"{"error":{"message":"no","type":"invalid_request_error"}}"#]), @"error BadRequest: no");
    insta::assert_snapshot!(lines(&[r#"{"message":{"content":"a"}}"#, "{"]), @r#"
    part 0 started text
    part 0 delta "a"
    error Protocol: an event is not the expected JSON
    "#);
    insta::assert_snapshot!(lines(&[r#"{"message":{"content":"a"}}"#]), @r#"
    part 0 started text
    part 0 delta "a"
    error Protocol: the answer ended before the model had stopped
    "#);
}

/// A server that splits UTF-16 text may split surrogate pairs.
#[test]
fn half_a_character() {
    let line = |text: &str| format!("{{\"message\":{{\"content\":\"{text}\"}},\"done\":false}}\n");
    let body = [&line(r"a\ud83d"), &line(r"\ude00"), "{\"done\":true}"].concat();
    insta::assert_snapshot!(read(body).lines(), @r#"
    part 0 started text
    part 0 delta "a"
    part 0 delta "😀"
    part 0 finished
    stop ["end_turn",null]
    "#);
}

fn body(model: &str, request: &TurnRequest) -> Value {
    serde_json::from_slice(&write(model, request).body).unwrap()
}

#[test]
fn a_turn_goes_back_as_one_message() {
    let request = request(read(fixture!("thinking_tool_calls.ndjson")).conversation("Well?"));
    insta::assert_snapshot!(str::from_utf8(&write("qwen3", &request).body).unwrap(), @r#"{"model":"qwen3","messages":[{"role":"user","content":"Well?"},{"role":"assistant","content":"Let me look.","thinking":"Hm. Paris.","tool_calls":[{"id":"call_1","function":{"name":"get_weather","arguments":{"unit":"c","city":"Paris"}}},{"id":"01920000-0000-7000-8000-000000000001-3","function":{"name":"clock","arguments":{}}}]},{"role":"tool","content":"done","tool_name":"get_weather","tool_call_id":"call_1"},{"role":"tool","content":"done","tool_name":"clock","tool_call_id":"01920000-0000-7000-8000-000000000001-3"}],"options":{"num_predict":4096},"stream":true}"#);
    assert!(write("qwen3", &request).left_out.is_empty());
}

#[test]
fn settings() {
    let media = |media_type: &str, source| Content::Media {
        media_type: media_type.into(),
        source,
        name: None,
    };
    let mut request = request(vec![Message::User {
        content: vec![
            Content::text("Look:"),
            media("image/png", MediaSource::Data("aW0=".into())),
            media("image/png", MediaSource::Url("https://example.com/i.png".into())),
            media("application/pdf", MediaSource::Data("cGRm".into())),
            Content::Link {
                uri: "https://example.com".into(),
                name: Some("it".into()),
                media_type: None,
            },
        ],
    }]);
    request.tools = [ToolSpec::new("files/read", "Reads."), ToolSpec::default()].into();
    request.streaming = false;
    request.settings = ModelSettings {
        max_output_tokens: 99,
        temperature: Some(0.5),
        stop_sequences: vec!["END".into()],
        thinking: Some(Thinking::Effort("high".into())),
        tool_choice: ToolChoice::Required,
        output: Some(OutputSchema { name: "x".into(), schema: json!({ "type": "object" }) }),
        extra: Some(json!({
            "options": { "num_ctx": 8192, "temperature": null },
            "keep_alive": "5m",
        })),
    };
    insta::assert_json_snapshot!("settings", body("qwen3", &request));
    let left_out: Vec<_> = write("qwen3", &request).left_out.into_iter().collect();
    assert_eq!(
        left_out,
        [("images given by URL", 1), ("media other than images", 1), ("the forced tool choice", 1)]
    );
    request.settings.tool_choice = ToolChoice::None;
    assert_eq!(body("qwen3", &request)["tools"], Value::Null);
}

#[test]
fn thinking() {
    let asked = |model, thinking| {
        let mut request = request([Message::user("Hello?")]);
        request.settings.thinking = Some(thinking);
        body(model, &request)["think"].to_string()
    };
    let all = [
        Thinking::Off,
        Thinking::Effort("low".into()),
        Thinking::Budget(7),
        Thinking::Budget(9000),
        Thinking::Budget(90_000),
    ];
    assert_eq!(
        all.clone().map(|thinking| asked("qwen3", thinking)),
        ["false", "true", "true", "true", "true"]
    );
    assert_eq!(
        all.map(|thinking| asked("library/gpt-oss:20b", thinking)),
        ["false", "\"low\"", "\"low\"", "true", "\"high\""]
    );
}

proptest! {
    #[test]
    fn any_bytes(bytes: Vec<u8>) {
        read(&bytes);
        whole(Reader::default(), &String::from_utf8_lossy(&bytes));
    }
}
