use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};
use wellspring_core::{
    CallResult, Content, MediaSource, Message, ModelSettings, OutputSchema, RunsOn, Thinking,
    ToolChoice, ToolOutcome, ToolSpec, TurnRequest,
};

use super::arguments::{Arguments, BYTES_MAX, DEPTH_MAX, Path, Piece, Step};
use super::types::PartialArg;
use super::*;
use crate::Framer;
use crate::provider::ReadError;
use crate::provider::tests::{Heard, checked, request, stream, stream_cut_anywhere, whole};
use crate::test_helpers::cut;

fn read(body: impl AsRef<[u8]>) -> Heard {
    checked(Reader::default(), Framer::sse(), body)
}

macro_rules! fixture {
    ($name:literal) => {
        include_str!(concat!("../../fixtures/gemini/", $name))
    };
}

const STREAMS: &[(&str, &str)] = &[
    ("text", fixture!("text.sse")),
    ("thought_signed", fixture!("thought_signed.sse")),
    ("tool_calls", fixture!("tool_calls.sse")),
    ("partial_args", fixture!("partial_args.sse")),
    ("partial_args_cut", fixture!("partial_args_cut.sse")),
    ("code_and_files", fixture!("code_and_files.sse")),
    ("grounded", fixture!("grounded.sse")),
    ("blocked", fixture!("blocked.sse")),
    ("error", fixture!("error.sse")),
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
fn whole_answer() {
    insta::assert_snapshot!("whole", whole(Reader::default(), fixture!("whole.json")).lines());
}

/// A server that splits UTF-16 text may split surrogate pairs.
#[test]
fn half_a_character() {
    let chunk = |text: &str, more: &str| {
        let parts = format!(r#"{{"parts":[{{"text":"{text}"}}]}}"#);
        format!("data: {{\"candidates\":[{{\"content\":{parts}{more}}}]}}\n\n")
    };
    let end = r#","finishReason":"STOP""#;
    let body = [chunk(r"a\ud83d", ""), chunk(r"\ude00\ud83d", ""), chunk(r"\ude00", end)].concat();
    insta::assert_snapshot!(read(body).lines(), @r#"
    part 0 started text
    part 0 delta "a"
    part 0 delta "😀"
    part 0 delta "😀"
    part 0 finished
    stop ["end_turn",null]
    "#);
}

/// Every finish reason of the API.
#[test]
fn reasons() {
    let mut table = String::new();
    for reason in [
        "FINISH_REASON_UNSPECIFIED",
        "STOP",
        "MAX_TOKENS",
        "SAFETY",
        "RECITATION",
        "LANGUAGE",
        "OTHER",
        "BLOCKLIST",
        "PROHIBITED_CONTENT",
        "SPII",
        "MALFORMED_FUNCTION_CALL",
        "MODEL_ARMOR",
        "IMAGE_SAFETY",
        "IMAGE_PROHIBITED_CONTENT",
        "IMAGE_RECITATION",
        "IMAGE_OTHER",
        "NO_IMAGE",
        "UNEXPECTED_TOOL_CALL",
        "TOO_MANY_TOOL_CALLS",
        "MISSING_THOUGHT_SIGNATURE",
        "MALFORMED_RESPONSE",
        "",
    ] {
        let chunk = json!({ "candidates": [{ "finishReason": reason, "finishMessage": "so" }] });
        let heard = read(format!("data: {chunk}\n\n"));
        table.push_str(&format!("{reason:26} {}", heard.lines()));
    }
    insta::assert_snapshot!(table);
}

fn body(model: &str, request: &TurnRequest) -> Value {
    serde_json::from_slice(&write(model, request).body).unwrap()
}

/// All parts of an answer; consecutive texts of one kind are joined unless one is signed.
fn parts_of(body: &str) -> Vec<Value> {
    let mut parts: Vec<Value> = Vec::new();
    for line in body.lines().filter_map(|line| line.strip_prefix("data: ")) {
        let chunk: Value = serde_json::from_str(line).unwrap();
        let new = chunk["candidates"][0]["content"]["parts"].as_array().cloned();
        for part in new.unwrap_or_default() {
            let plain =
                |part: &Value| part.get("text").is_some() && part.get("thoughtSignature").is_none();
            match parts.last_mut() {
                _ if part == json!({ "text": "" }) => {}
                Some(last)
                    if plain(last)
                        && plain(&part)
                        && last.get("thought") == part.get("thought") =>
                {
                    let joined = format!(
                        "{}{}",
                        last["text"].as_str().unwrap(),
                        part["text"].as_str().unwrap()
                    );
                    last["text"] = joined.into();
                }
                _ => parts.push(part),
            }
        }
    }
    parts
}

/// An answer is sent back in the next request, with signatures at their positions.
#[test]
fn parts_go_back_as_they_came() {
    for (name, stream) in STREAMS {
        if ["partial_args", "partial_args_cut", "blocked", "error"].contains(name) {
            continue;
        }
        let request = request(read(stream).conversation("Well?"));
        let body = body("gemini-3-flash", &request);
        assert_eq!(body["contents"][1]["parts"], Value::Array(parts_of(stream)), "{name}");
        assert!(write("gemini-3-flash", &request).left_out.is_empty(), "{name}");
    }
    let request = request(read(fixture!("partial_args.sse")).conversation("Well?"));
    insta::assert_snapshot!(body("gemini-3-flash", &request)["contents"][1], @r#"{"role":"model","parts":[{"functionCall":{"id":"fc-8","name":"book","args":{"city":"Paris \"🌊\"","guests":[{"name":"Ann","first class":true},{"name":"Bo"}],"nights":3,"note":null}},"thoughtSignature":"c2lnLXA="}]}"#);
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
            media("video/mp4", MediaSource::Url("https://example.com/v.mp4".into())),
            Content::Resource { uri: "file:///a".into(), text: "A".into(), media_type: None },
        ],
    }]);
    let hosted = ToolSpec {
        runs_on: RunsOn::Provider,
        parameters: json!({ "googleSearch": {} }).into(),
        ..ToolSpec::new("search", "")
    };
    let mut typed = ToolSpec::new("7/read", "Reads.");
    typed.parameters = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "additionalProperties": false,
        "$defs": {
            "Mode": { "oneOf": [{ "const": "fast", "description": "Quick" }, { "type": "null" }] },
            "Tree": { "type": "object", "properties": { "left": { "$ref": "#/$defs/Tree" } } },
        },
        "properties": {
            "path": { "type": ["string", "null"], "format": "uri", "examples": ["a"] },
            "mode": { "$ref": "#/$defs/Mode", "description": "How" },
            "lines": { "type": "array", "prefixItems": [], "exclusiveMinimum": 0 },
            "level": { "enum": [1, 2] },
            "kind": { "allOf": [{ "type": "string" }, { "enum": ["a", "b"] }] },
            "either": { "type": ["string", "integer"] },
            "any": true,
        },
        "required": ["path", "gone"],
    })
    .into();
    request.tools = [typed, ToolSpec::new("plain", "Takes nothing."), hosted].into();
    request.instructions = "Be brief.".into();
    request.settings = ModelSettings {
        max_output_tokens: 99,
        temperature: Some(0.5),
        stop_sequences: vec!["END".into()],
        thinking: Some(Thinking::Effort("high".into())),
        tool_choice: ToolChoice::Tool("7/read".into()),
        output: Some(OutputSchema { name: "x".into(), schema: json!({ "type": "object" }) }),
        extra: Some(json!({
            "generationConfig": { "seed": 7, "temperature": null },
            "safetySettings": [{ "category": "HARM_CATEGORY_HATE_SPEECH", "threshold": "OFF" }],
        })),
    };
    insta::assert_json_snapshot!("settings", body("gemini-3-flash", &request));
    assert!(write("gemini-3-flash", &request).left_out.is_empty());
}

/// Schemas that refer to themselves, to missing definitions, or to too many.
#[test]
fn endless_schemas() {
    let tree = json!({
        "type": "object",
        "properties": { "left": { "$ref": "#" }, "right": { "$ref": "#/nowhere" } },
    });
    insta::assert_snapshot!(super::schema::declared(&tree).unwrap(), @r#"{"type":"object","properties":{"left":{"type":"object","properties":{"left":{"type":"object"},"right":{}}},"right":{}}}"#);

    let mut definitions = serde_json::Map::new();
    for level in 0..40 {
        let next = json!({ "$ref": format!("#/$defs/{}", level + 1) });
        let pair = json!({ "type": "object", "properties": { "a": next, "b": next } });
        definitions.insert(level.to_string(), pair);
    }
    let wide = json!({ "$defs": definitions, "properties": { "all": { "$ref": "#/$defs/0" } } });
    let declared = super::schema::declared(&wide).unwrap().to_string();
    assert!(declared.len() < 400_000, "{} bytes", declared.len());
}

#[test]
fn thinking() {
    let asked = |model, thinking| {
        let mut request = request([Message::user("Hello?")]);
        request.settings.thinking = Some(thinking);
        body(model, &request)["generationConfig"]["thinkingConfig"].to_string()
    };
    let all = [Thinking::Off, Thinking::Effort("low".into()), Thinking::Budget(7)];
    assert_eq!(
        all.clone().map(|thinking| asked("models/gemini-2.5-flash", thinking)),
        [
            r#"{"thinkingBudget":0}"#,
            r#"{"thinkingBudget":1024,"includeThoughts":true}"#,
            r#"{"thinkingBudget":7,"includeThoughts":true}"#,
        ]
    );
    assert_eq!(
        all.map(|thinking| asked("gemini-3-pro", thinking)),
        [
            r#"{"thinkingLevel":"minimal"}"#,
            r#"{"thinkingLevel":"low","includeThoughts":true}"#,
            r#"{"thinkingBudget":7,"includeThoughts":true}"#,
        ]
    );
}

/// A call without a signature gets a placeholder if the model checks signatures.
#[test]
fn unsigned_calls() {
    let chunk = json!({ "candidates": [{ "finishReason": "STOP", "content": { "parts": [
        { "functionCall": { "name": "a", "args": {} } }, { "functionCall": { "name": "b" } },
    ] } }] });
    let mut messages = read(format!("data: {chunk}\n\n")).conversation("Well?");
    if let Some(Message::Results { results }) = messages.last_mut() {
        let denied = CallResult { outcome: ToolOutcome::Denied, ..results[1].clone() };
        results[1] = denied;
    }
    let request = request(messages);
    let sent = |model| {
        let contents = &body(model, &request)["contents"];
        format!("{}\n{}", contents[1]["parts"], contents[2]["parts"])
    };
    insta::assert_snapshot!(sent("gemini-2.5-pro"), @r#"
    [{"functionCall":{"name":"a","args":{}}},{"functionCall":{"name":"b"}}]
    [{"functionResponse":{"name":"a","response":{"output":"done"}}},{"functionResponse":{"name":"b","response":{"error":"done"}}}]
    "#);
    insta::assert_snapshot!(sent("gemini-3-pro"), @r#"
    [{"functionCall":{"name":"a","args":{}},"thoughtSignature":"skip_thought_signature_validator"},{"functionCall":{"name":"b"}}]
    [{"functionResponse":{"name":"a","response":{"output":"done"}}},{"functionResponse":{"name":"b","response":{"error":"done"}}}]
    "#);
}

#[test]
fn paths() {
    let key = |key: &'static str| Step::Key(key.into());
    for (path, steps) in [
        ("$.a.b_c", Some(vec![key("a"), key("b_c")])),
        ("$.a[0][12].ä", Some(vec![key("a"), Step::Index(0), Step::Index(12), key("ä")])),
        (r#"$['a.b']["c'd"]['e\'"f']"#, Some(vec![key("a.b"), key("c'd"), key("e'\"f")])),
        ("$['a\\u00e4']", Some(vec![key("aä")])),
        ("$", None),
        ("a", None),
        ("$.", None),
        ("$[*]", None),
        ("$[-1]", None),
        ("$['a'", None),
        ("$..a", None),
    ] {
        assert_eq!(parse(path), steps, "{path}");
    }
    let path = |depth: usize| format!("$.a{}", "[0]".repeat(depth - 1));
    assert!(parse(&path(DEPTH_MAX)).is_some());
    assert_eq!(parse(&path(DEPTH_MAX + 1)), None);
}

fn parse(path: &str) -> Option<Vec<Step<'_>>> {
    Path::new(path).map(|path| path.steps().collect())
}

/// Adds one piece, as on the wire.
fn push(
    arguments: &mut Arguments,
    path: &str,
    value: &Value,
    continues: bool,
    text: &mut String,
) -> Result<(), ReadError> {
    let member = match value {
        Value::String(_) => "stringValue",
        Value::Number(_) => "numberValue",
        Value::Bool(_) => "boolValue",
        Value::Null | Value::Array(_) | Value::Object(_) => "nullValue",
    };
    let piece = json!({ "jsonPath": path, member: value, "willContinue": continues }).to_string();
    let piece: PartialArg<'_> = serde_json::from_str(&piece).unwrap();
    arguments.push(Piece::of(&piece), text)
}

/// Arguments beyond the limits.
#[test]
fn arguments_are_bounded() {
    let mut arguments = Arguments::default();
    let mut text = String::new();
    let most = json!("x".repeat(BYTES_MAX - 1));
    push(&mut arguments, "$.a", &most, true, &mut text).unwrap();
    let error = push(&mut arguments, "$.a", &json!(""), true, &mut text).unwrap_err();
    assert!(matches!(error, ReadError::TooMuch(_)), "{error}");
}

/// A string continues however its path is written, and across a split surrogate pair.
#[test]
fn pieces_of_a_string() {
    let pieces = [
        r#"{"jsonPath":"$.a","stringValue":"x\ud83d","willContinue":true}"#,
        r#"{"jsonPath":"$['a']","stringValue":"\ude00\u0001\"","willContinue":true}"#,
        r#"{"jsonPath":"$[\"a\"]","stringValue":"\ud83d"}"#,
        r#"{"jsonPath":"$.b","stringValue":"\ud83d","willContinue":true}"#,
        r#"{"jsonPath":"$.c","numberValue":1}"#,
    ];
    let mut arguments = Arguments::default();
    let mut texts = Vec::new();
    for piece in pieces {
        let mut text = String::new();
        let piece: PartialArg<'_> = serde_json::from_str(piece).unwrap();
        arguments.push(Piece::of(&piece), &mut text).unwrap();
        texts.push(text);
    }
    let mut text = String::new();
    assert!(!arguments.end(&mut text));
    texts.push(text);
    let want =
        [r#"{"a":"x"#, r#"😀\u0001\""#, "\u{fffd}\"", r#","b":""#, "\u{fffd}\",\"c\":1", "}"];
    assert_eq!(texts, want);
}

/// Sets a value in a tree of values, by its path.
fn put(tree: &mut Value, path: &[Step<'_>], value: &Value) {
    match path {
        [] => match (tree, value) {
            (Value::String(text), Value::String(more)) => text.push_str(more),
            (tree, value) => *tree = value.clone(),
        },
        [Step::Key(key), rest @ ..] => {
            if !tree.is_object() {
                *tree = json!({});
            }
            put(&mut tree[&**key], rest, value);
        }
        [Step::Index(index), rest @ ..] => {
            if !tree.is_array() {
                *tree = json!([]);
            }
            let list = tree.as_array_mut().unwrap();
            if list.len() == *index {
                list.push(Value::Null);
            }
            put(&mut list[*index], rest, value);
        }
    }
}

proptest! {
    /// Values in any order: the text is JSON and parses to the combined value.
    #[test]
    fn arguments_are_json(
        pieces in prop::collection::vec((
            prop_oneof![
                Just("$.a"), Just("$.b"), Just("$.c.d"), Just("$.c.e"), Just("$.c.f.g"),
                Just("$.l[0]"), Just("$.l[1]"), Just("$.m[0].x"), Just("$.m[0].y"), Just("$.m[1].x"),
            ],
            prop_oneof![Just(json!("x\"\\\n🌊")), Just(json!("")), Just(json!(1.5)), Just(json!(null)), Just(json!(true))],
            any::<bool>(),
        ), 0..24),
    ) {
        let mut arguments = Arguments::default();
        let mut text = String::new();
        let mut tree = json!({});
        for (path, value, continues) in pieces {
            if push(&mut arguments, path, &value, continues, &mut text).is_err() {
                return Ok(());
            }
            put(&mut tree, &parse(path).unwrap(), &value);
            prop_assert!(serde_json::from_str::<Value>(&text).is_err(), "{} is whole too early", text);
        }
        arguments.end(&mut text);
        prop_assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), tree, "{}", text);
    }

    #[test]
    fn any_path(path: String) {
        let _ = parse(&path);
        let _ = parse(&format!("$['{path}']"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(wellspring_testkit::soak(64, 4096)))]

    #[test]
    fn cut_at_random(at in 0..STREAMS.len(), cuts: [Index; 12]) {
        let body = STREAMS[at].1;
        let chunks = cut(body.as_bytes(), &cuts);
        prop_assert_eq!(stream(Reader::default(), Framer::sse(), chunks), read(body));
    }

    /// Chunks in any order, with some missing, are read or rejected.
    #[test]
    fn any_order(order in prop::collection::vec((0..STREAMS.len(), any::<Index>()), 0..40)) {
        let mut body = String::new();
        for (at, index) in order {
            let chunks: Vec<&str> = STREAMS[at].1.split_inclusive("\r\n\r\n").collect();
            body.push_str(chunks[index.index(chunks.len())]);
        }
        read(body);
    }

    #[test]
    fn any_bytes(bytes: Vec<u8>) {
        read([b"data: ".as_slice(), &bytes, b"\n\n"].concat());
        whole(Reader::default(), &String::from_utf8_lossy(&bytes));
    }
}
