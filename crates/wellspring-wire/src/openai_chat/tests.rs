use insta::assert_snapshot;
use proptest::prelude::*;
use serde_json::{Value, json};
use wellspring_core::{
    CallResult, Content, MediaSource, Message, ModelSettings, OutputSchema, Thinking, ToolChoice,
    ToolContent, ToolOutcome, ToolResult, ToolSpec,
};

use super::*;
use crate::framer::Framer;
use crate::provider::CUT_ARGUMENTS;
use crate::provider::testing::{Heard, request, stream, stream_cut_anywhere, whole};

fn sse(chunks: &[Value]) -> String {
    chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect()
}

/// With `[DONE]` behind it.
fn read(chunks: &[Value]) -> Heard {
    read_text(&format!("{}data: [DONE]\n\n", sse(chunks)))
}

fn read_text(body: &str) -> Heard {
    stream_cut_anywhere(Reader::default, &Framer::sse(), body)
}

fn chunk(delta: Value) -> Value {
    json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "system_fingerprint": null,
        "choices": [{"index": 0, "delta": delta, "finish_reason": null, "logprobs": null}]})
}

fn finish(reason: &str) -> Value {
    json!({"id": "c", "model": "m", "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

fn call(delta: Value) -> Value {
    chunk(json!({"tool_calls": [delta]}))
}

fn texts(heard: &Heard) -> Vec<String> {
    let Message::Assistant { parts, .. } = heard.message() else { unreachable!() };
    parts.iter().map(|part| format!("{} {}", part.kind, part.text)).collect()
}

#[test]
fn a_thought_a_text_and_calls() {
    let heard = read(&[
        chunk(json!({"role": "assistant", "content": ""})),
        chunk(json!({"reasoning_content": "Hm"})),
        chunk(json!({"content": "Hello \"you\"\n"})),
        chunk(json!({"content": " 😀", "tool_calls": null, "refusal": null})),
        call(
            json!({"index": 0, "id": "call_a", "type": "function", "function": {"name": "read", "arguments": ""}}),
        ),
        call(json!({"index": 0, "function": {"arguments": "{\"a\":"}})),
        call(json!({"index": 0, "function": {"arguments": "1}"}})),
        call(
            json!({"index": 1, "id": "call_b", "type": "function", "function": {"name": "now", "arguments": "{}"},
            "extra_content": {"google": {"thought_signature": "s"}}}),
        ),
        finish("tool_calls"),
        json!({"id": "c", "model": "m", "choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13,
            "prompt_tokens_details": {"cached_tokens": 3}, "completion_tokens_details": {"reasoning_tokens": 2}, "cost": 0.5}}),
    ]);
    assert_snapshot!(heard.lines(), @r#"
    part 0 started thought
    part 0 annotated {"other":{"name":"vendor","origin":"openai_chat","value":"openai-compatible"}}
    part 0 delta "Hm"
    part 0 finished
    part 1 started text
    part 1 delta "Hello \"you\"\n"
    part 1 delta " 😀"
    part 1 finished
    part 2 started call read
    part 2 annotated {"provider_id":"call_a"}
    part 2 delta "{\"a\":"
    part 2 delta "1}"
    part 3 started call now
    part 3 annotated {"provider_id":"call_b"}
    part 3 annotated {"other":{"name":"call","origin":"openai_chat","value":{"extra_content":{"google":{"thought_signature":"s"}}}}}
    part 3 delta "{}"
    part 2 finished
    part 3 finished
    stop ["tool_calls",{"scope":"turn","provider":"openai-compatible","model":"m","input":9,"output":4,"reasoning":2,"cached_input":3,"cost":{"amount":0.5,"currency":"USD"}}]
    "#);
}

/// What the kin leave out, repeat, or call otherwise; each with what must come of it.
#[test]
fn in_the_wild() {
    let first = || chunk(json!({"role": "assistant", "content": null}));
    let cases: Vec<(&str, Vec<Value>, &[&str])> = vec![
        (
            "another word for thoughts",
            vec![first(), chunk(json!({"reasoning": "Hm"})), chunk(json!({"content": "a"}))],
            &["thought Hm", "text a"],
        ),
        (
            "thoughts under two names",
            vec![first(), chunk(json!({"reasoning": "Hm", "reasoning_content": "Hm"}))],
            &["thought Hm"],
        ),
        (
            "thoughts in between",
            vec![
                chunk(json!({"content": "a"})),
                chunk(json!({"reasoning": "b"})),
                chunk(json!({"content": "c"})),
            ],
            &["text a", "thought b", "text c"],
        ),
        (
            "thoughts and text at once",
            vec![first(), chunk(json!({"reasoning": "b", "content": "c"}))],
            &["thought b", "text c"],
        ),
        (
            "content in blocks",
            vec![chunk(
                json!({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "t"}]}, {"type": "text", "text": "x"}]}),
            )],
            &["thought t", "text x"],
        ),
        (
            "calls without an index",
            vec![
                first(),
                call(json!({"id": "a", "function": {"name": "f", "arguments": "{\"x\""}})),
                call(json!({"function": {"arguments": ":1}"}})),
                call(json!({"id": "b", "function": {"name": "f", "arguments": "{}"}})),
                call(json!({"id": "a", "function": {"arguments": " "}})),
            ],
            &["call f {\"x\":1} ", "call f {}"],
        ),
        (
            "the index always 0",
            vec![
                first(),
                call(
                    json!({"index": 0, "id": "a", "function": {"name": "f", "arguments": "{\"x\":1}"}}),
                ),
                call(
                    json!({"index": 0, "id": "b", "function": {"name": "g", "arguments": "{\"y\":2}"}}),
                ),
            ],
            &["call f {\"x\":1}", "call g {\"y\":2}"],
        ),
        (
            "no ids, the index always 0",
            vec![
                first(),
                call(json!({"index": 0, "function": {"name": "f", "arguments": "{\"x\":\"}\"}"}})),
                call(json!({"index": 0, "function": {"name": "g", "arguments": "{}"}})),
            ],
            &["call f {\"x\":\"}\"}", "call g {}"],
        ),
        (
            "id and name in every delta",
            vec![
                first(),
                call(
                    json!({"index": 0, "id": "a", "function": {"name": "f", "arguments": "{\"x\":"}}),
                ),
                call(json!({"index": 0, "id": "a", "function": {"name": "f", "arguments": "1}"}})),
            ],
            &["call f {\"x\":1}"],
        ),
        (
            "the name after the arguments",
            vec![
                first(),
                call(json!({"index": 0, "id": "a", "function": {"arguments": "{\"x\":"}})),
                call(json!({"index": 0, "function": {"name": "f", "arguments": "1}"}})),
            ],
            &["call f {\"x\":1}"],
        ),
        (
            "arguments that are an object",
            vec![
                first(),
                call(json!({"id": "a", "function": {"name": "f", "arguments": {"x": 1}}})),
            ],
            &["call f {\"x\":1}"],
        ),
        (
            "interleaved calls",
            vec![
                first(),
                call(
                    json!({"index": 0, "id": "a", "function": {"name": "f", "arguments": "{\"x\":"}}),
                ),
                call(
                    json!({"index": 1, "id": "b", "function": {"name": "g", "arguments": "{\"y\":"}}),
                ),
                call(json!({"index": 0, "function": {"arguments": "1}"}})),
                call(json!({"index": 1, "function": {"arguments": "2}"}})),
            ],
            &["call f {\"x\":1}", "call g {\"y\":2}"],
        ),
        (
            "another choice",
            vec![
                first(),
                json!({"choices": [{"index": 1, "delta": {"content": "no"}}]}),
                chunk(json!({"content": "yes"})),
            ],
            &["text yes"],
        ),
    ];
    for (what, chunks, want) in cases {
        let called = want.iter().any(|part| part.starts_with("call"));
        let stop = if called { "\"tool_calls\"" } else { "\"end_turn\"" };
        for reason in ["stop", ""] {
            let mut chunks = chunks.clone();
            if !reason.is_empty() {
                chunks.push(finish(reason));
            }
            let heard = read(&chunks);
            assert_eq!(
                (texts(&heard), &heard.error),
                (want.iter().map(|it| (*it).to_owned()).collect(), &None),
                "{what}"
            );
            let said = heard.stop.map(|(stop, _)| serde_json::to_string(&stop).unwrap());
            assert_eq!(said.as_deref(), Some(stop), "{what}");
        }
    }
}

#[test]
fn the_end_and_what_is_none() {
    let hello = || vec![chunk(json!({"role": "assistant", "content": "Hi"}))];
    let with = |more: &[Value]| sse(&[hello(), more.to_vec()].concat());
    let done = "data: [DONE]\n\n";
    let half = call(json!({"index": 0, "id": "a", "function": {"arguments": "{"}}));
    for (body, want) in [
        (with(&[finish("stop")]) + done, "\"end_turn\""),
        (with(&[finish("stop")]), "\"end_turn\""),
        (with(&[]) + done, "\"end_turn\""),
        (with(&[]) + "data: [DONE]", "\"end_turn\""),
        (with(&[finish("length")]), "\"max_tokens\""),
        (with(&[finish("content_filter")]), "\"content_filter\""),
        (with(&[finish("insufficient_system_resource")]), "{\"other\":\"insufficient_system_resource\"}"),
        (with(&[chunk(json!({"refusal": "No."})), finish("stop")]), "\"refusal\""),
        (with(&[]), "Protocol: the answer ended before the model had stopped"),
        (String::new(), "Protocol: the answer ended before the model had stopped"),
        (done.to_owned(), "Protocol: the answer ended before the model had stopped"),
        (with(&[half.clone(), finish("stop")]), "Protocol: a call has no name"),
        (with(&[json!({"error": {"message": "Overloaded", "code": 502}})]) + done, "Unavailable: Overloaded"),
        (with(&[json!({"choices": [{"finish_reason": "error", "error": {"code": 429, "message": "busy"}}]})]), "RateLimited: busy"),
        ("data: {\"error\":{\"message\":\"no such model\",\"type\":\"invalid_request_error\"}}\n\n".to_owned(), "BadRequest: no such model"),
        ("data: nonsense\n\n".to_owned(), "Protocol: an event is not the JSON it should be"),
    ] {
        let heard = read_text(&body);
        let stop = heard.stop.map(|(stop, _)| serde_json::to_string(&stop).unwrap());
        assert_eq!(heard.error.or(stop).as_deref(), Some(want), "{body}");
    }
}

#[test]
fn in_one_piece() {
    let body = json!({"id": "c", "object": "chat.completion", "model": "m", "choices": [{"index": 0, "finish_reason": "tool_calls",
        "message": {"role": "assistant", "content": "Hi", "reasoning_content": "Hm",
            "annotations": [{"type": "url_citation", "url_citation": {"url": "https://a.example", "title": "A", "start_index": 0, "end_index": 2}}],
            "images": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,aW1n"}}],
            "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{\"b\":1,\"a\":2}"}}]}}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2}});
    assert_snapshot!(whole(Reader::default(), &body.to_string()).lines(), @r#"
    part 0 started thought
    part 0 annotated {"other":{"name":"vendor","origin":"openai_chat","value":"openai-compatible"}}
    part 0 delta "Hm"
    part 0 finished
    part 1 started text
    part 1 delta "Hi"
    source {"title":"A","url":"https://a.example"}
    part 1 annotated {"citation":{"type":"url_citation","url_citation":{"end_index":2,"start_index":0,"title":"A","url":"https://a.example"}}}
    file image/png
    part 1 finished
    part 2 started call f
    part 2 annotated {"provider_id":"a"}
    part 2 delta "{\"b\":1,\"a\":2}"
    part 2 finished
    stop ["tool_calls",{"scope":"turn","provider":"openai-compatible","model":"m","input":1,"output":2}]
    "#);
    let error = |body: &str| whole(Reader::default(), body).error;
    assert_eq!(
        error(r#"{"error":{"message":"busy","code":"rate_limit_exceeded"}}"#).as_deref(),
        Some("RateLimited: busy")
    );
    assert_eq!(
        error(r#"{"choices":[]}"#).as_deref(),
        Some("Protocol: the answer ended before the model had stopped")
    );
}

#[test]
fn a_call_that_the_limit_cut_does_not_run() {
    let open = call(json!({"index": 0, "id": "a", "function": {"name": "f", "arguments": ""}}));
    assert_eq!(
        texts(&read(&[open.clone(), finish("length")])),
        [format!("call f {CUT_ARGUMENTS}")]
    );
    assert_eq!(texts(&read(&[open, finish("tool_calls")])), ["call f "]);
}

fn conversation() -> Vec<Message> {
    let heard = read(&[
        chunk(
            json!({"role": "assistant", "reasoning_content": "Hm", "reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}]}),
        ),
        chunk(json!({"content": "Let me look."})),
        call(
            json!({"index": 0, "id": "call_a", "function": {"name": "fs_read", "arguments": "{\"b\": 1}"}, "extra_content": {"s": 1}}),
        ),
        call(json!({"index": 1, "id": "call_a", "function": {"name": "now", "arguments": ""}})),
        finish("tool_calls"),
    ]);
    let asked = heard.message();
    let Message::Assistant { parts, .. } = &asked else { unreachable!() };
    let image = Content::Media {
        media_type: "image/png".into(),
        source: MediaSource::Data("aW1n".into()),
        name: None,
    };
    let result = |part: usize, outcome, content| CallResult {
        call: parts[part].id,
        provider_id: None,
        name: "x".into(),
        outcome,
        result: ToolResult { output: json!({"done": true}), content, inbox: None },
    };
    let media = |media_type: &str, data: &str| Content::Media {
        media_type: media_type.into(),
        source: MediaSource::Data(data.into()),
        name: Some("n".into()),
    };
    let user = vec![
        Content::text("Look"),
        image.clone(),
        media("application/pdf", "cGRm"),
        media("text/csv", "YSxi"),
        media("audio/mpeg", "bXAz"),
        media("video/mp4", ""),
        Content::Link { uri: "https://a.example".into(), name: Some("A".into()), media_type: None },
        Content::Resource { uri: "file:x".into(), text: "words".into(), media_type: None },
    ];
    let results = vec![
        result(2, ToolOutcome::Ok, vec![ToolContent::Content(image)]),
        result(3, ToolOutcome::Error, vec![]),
    ];
    vec![
        Message::User { content: user },
        asked,
        Message::Results { results },
        Message::user("And?"),
    ]
}

#[test]
fn a_request_with_everything() {
    let mut request = request(conversation());
    request.instructions = "Be brief.".into();
    request.tools = [ToolSpec::new("fs/read", "Reads.")].into();
    request.settings = ModelSettings {
        temperature: Some(0.5),
        stop_sequences: vec!["END".into()],
        tool_choice: ToolChoice::Tool("fs/read".into()),
        thinking: Some(Thinking::Effort("low".into())),
        output: Some(OutputSchema { name: "review".into(), schema: json!({"type": "object"}) }),
        extra: Some(json!({"seed": 7, "stream_options": null})),
        ..ModelSettings::default()
    };
    let written = write("gpt-x", &request, &Vendor::OPENAI);
    let pretty: Value = serde_json::from_slice(&written.body).unwrap();
    assert_snapshot!(format!("{pretty:#}\n{:#?}", written.left_out), @r#"
    {
      "max_completion_tokens": 4096,
      "messages": [
        {
          "content": "Be brief.",
          "role": "developer"
        },
        {
          "content": [
            {
              "text": "Look",
              "type": "text"
            },
            {
              "image_url": {
                "url": "data:image/png;base64,aW1n"
              },
              "type": "image_url"
            },
            {
              "file": {
                "file_data": "data:application/pdf;base64,cGRm",
                "filename": "n"
              },
              "type": "file"
            },
            {
              "text": "n:\na,b",
              "type": "text"
            },
            {
              "input_audio": {
                "data": "bXAz",
                "format": "mp3"
              },
              "type": "input_audio"
            },
            {
              "text": "[n (video/mp4) cannot be shown here]",
              "type": "text"
            },
            {
              "text": "A: https://a.example",
              "type": "text"
            },
            {
              "text": "file:x:\nwords",
              "type": "text"
            }
          ],
          "role": "user"
        },
        {
          "content": "Let me look.",
          "role": "assistant",
          "tool_calls": [
            {
              "extra_content": {
                "s": 1
              },
              "function": {
                "arguments": "{\"b\": 1}",
                "name": "fs_read"
              },
              "id": "call_a",
              "type": "function"
            },
            {
              "function": {
                "arguments": "{}",
                "name": "now"
              },
              "id": "call99b04506d4c2ad31",
              "type": "function"
            }
          ]
        },
        {
          "content": "{\"done\":true}",
          "role": "tool",
          "tool_call_id": "call_a"
        },
        {
          "content": "{\"done\":true}",
          "role": "tool",
          "tool_call_id": "call99b04506d4c2ad31"
        },
        {
          "content": [
            {
              "text": "What x shows:",
              "type": "text"
            },
            {
              "image_url": {
                "url": "data:image/png;base64,aW1n"
              },
              "type": "image_url"
            }
          ],
          "role": "user"
        },
        {
          "content": "And?",
          "role": "user"
        }
      ],
      "model": "gpt-x",
      "reasoning_effort": "low",
      "response_format": {
        "json_schema": {
          "name": "review",
          "schema": {
            "type": "object"
          },
          "strict": true
        },
        "type": "json_schema"
      },
      "seed": 7,
      "stop": [
        "END"
      ],
      "stream": true,
      "temperature": 0.5,
      "tool_choice": {
        "function": {
          "name": "fs_read_e3d66a57"
        },
        "type": "function"
      },
      "tools": [
        {
          "function": {
            "description": "Reads.",
            "name": "fs_read_e3d66a57",
            "parameters": {
              "properties": {},
              "type": "object"
            }
          },
          "type": "function"
        }
      ]
    }
    {
        "media that it does not take": 1,
        "thoughts that it does not want back": 1,
    }
    "#);
}

/// What each vendor is sent that others are not.
#[test]
fn vendors() {
    let mut lines = String::new();
    for vendor in Vendor::ALL {
        let mut request = request(conversation());
        request.instructions = "Be brief.".into();
        request.settings.thinking = Some(Thinking::Budget(100));
        request.settings.output = Some(OutputSchema { name: "o".into(), schema: json!({}) });
        let written = write("m", &request, &vendor);
        let mut body: Value = serde_json::from_slice(&written.body).unwrap();
        let messages = body["messages"].take();
        let calls = &messages[2]["tool_calls"];
        lines += &format!(
            "{}: {}\n  {} {} {}\n",
            vendor.name, body, messages[0]["role"], calls[0]["id"], calls[1]["id"]
        );
        lines += &format!("  {:?}\n", written.left_out.keys().collect::<Vec<_>>());
    }
    assert_snapshot!(lines, @r#"
    openai: {"max_completion_tokens":4096,"messages":null,"model":"m","response_format":{"json_schema":{"name":"o","schema":{},"strict":true},"type":"json_schema"},"stream":true,"stream_options":{"include_usage":true}}
      "developer" "call_a" "call99b04506d4c2ad31"
      ["how many tokens to think, which it has no word for", "media that it does not take", "thoughts that it does not want back"]
    openai-compatible: {"max_tokens":4096,"messages":null,"model":"m","response_format":{"json_schema":{"name":"o","schema":{},"strict":true},"type":"json_schema"},"stream":true,"stream_options":{"include_usage":true}}
      "system" "call_a" "call99b04506d4c2ad31"
      ["how many tokens to think, which it has no word for", "media that it does not take", "thoughts that it does not want back"]
    llama.cpp: {"chat_template_kwargs":{"enable_thinking":true},"max_tokens":4096,"messages":null,"model":"m","response_format":{"json_schema":{"name":"o","schema":{},"strict":true},"type":"json_schema"},"stream":true,"stream_options":{"include_usage":true}}
      "system" "call_a" "call99b04506d4c2ad31"
      ["media that it does not take", "thoughts that it does not want back"]
    vllm: {"chat_template_kwargs":{"enable_thinking":true},"max_tokens":4096,"messages":null,"model":"m","response_format":{"json_schema":{"name":"o","schema":{},"strict":true},"type":"json_schema"},"stream":true,"stream_options":{"include_usage":true}}
      "system" "call_a" "call99b04506d4c2ad31"
      ["media that it does not take", "thoughts that it does not want back"]
    ollama: {"max_tokens":4096,"messages":null,"model":"m","response_format":{"json_schema":{"name":"o","schema":{},"strict":true},"type":"json_schema"},"stream":true,"stream_options":{"include_usage":true}}
      "system" "call_a" "call99b04506d4c2ad31"
      ["how many tokens to think, which it has no word for", "media that it does not take", "thoughts that it does not want back"]
    openrouter: {"max_tokens":4096,"messages":null,"model":"m","reasoning":{"max_tokens":100},"response_format":{"json_schema":{"name":"o","schema":{},"strict":true},"type":"json_schema"},"stream":true,"stream_options":{"include_usage":true}}
      "system" "call_a" "call99b04506d4c2ad31"
      ["media that it does not take", "thoughts that it does not want back"]
    deepseek: {"max_tokens":4096,"messages":null,"model":"m","response_format":{"type":"json_object"},"stream":true,"stream_options":{"include_usage":true}}
      "system" "call_a" "call99b04506d4c2ad31"
      ["how many tokens to think, which it has no word for", "media that it does not take", "thoughts that it does not want back"]
    groq: {"max_completion_tokens":4096,"messages":null,"model":"m","response_format":{"json_schema":{"name":"o","schema":{},"strict":true},"type":"json_schema"},"stream":true,"stream_options":{"include_usage":true}}
      "system" "call_a" "call99b04506d4c2ad31"
      ["how many tokens to think, which it has no word for", "media that it does not take", "thoughts that it does not want back"]
    mistral: {"max_tokens":4096,"messages":null,"model":"m","response_format":{"json_schema":{"name":"o","schema":{},"strict":true},"type":"json_schema"},"stream":true}
      "system" "e7ba2c4d6" "13da2c4d6"
      ["how many tokens to think, which it has no word for", "media that it does not take", "thoughts that it does not want back"]
    "#);
    for (url, name) in [
        ("https://api.openai.com/v1", "openai"),
        ("https://api.deepseek.com", "deepseek"),
        ("http://localhost:8080/v1", "openai-compatible"),
        ("https://notopenai.com", "openai-compatible"),
    ] {
        assert_eq!(Vendor::at(url).name, name);
    }
}

#[test]
fn thoughts_go_back_to_those_who_want_them() {
    let with = |vendor: Vendor| {
        let reader = || Reader::new(&request([]), &vendor);
        let body = sse(&[
            chunk(
                json!({"reasoning_content": "Hm", "reasoning_details": [{"type": "reasoning.text", "text": "Hm"}]}),
            ),
            call(
                json!({"index": 0, "id": "aaaaaaaaa", "function": {"name": "f", "arguments": "{}"}}),
            ),
            finish("tool_calls"),
        ]);
        let heard = stream_cut_anywhere(reader, &Framer::sse(), &body);
        let old = write("m", &request([heard.message(), Message::user("Hi")]), &vendor);
        let new = write("m", &request([Message::user("Hi"), heard.message()]), &vendor);
        let message = |body: &[u8], at: usize| {
            let body: Value = serde_json::from_slice(body).unwrap();
            let message = &body["messages"][at];
            format!("{} {}", message["reasoning_content"], message["reasoning_details"])
        };
        (message(&old.body, 0), message(&new.body, 1))
    };
    let none = || "null null".to_owned();
    assert_eq!(with(Vendor::OPENAI), (none(), none()));
    assert_eq!(with(Vendor::DEEPSEEK), (none(), "\"Hm\" null".to_owned()));
    let details = || r#"null [{"text":"Hm","type":"reasoning.text"}]"#.to_owned();
    assert_eq!(with(Vendor::OPENROUTER), (details(), details()));
}

/// Streams that a server could send.
fn arb_deltas() -> impl Strategy<Value = Vec<Value>> {
    let delta = prop_oneof![
        ".{0,6}".prop_map(|text| json!({"content": text})),
        ".{0,6}".prop_map(|text| json!({"reasoning_content": text})),
        (0u32..3, ".{0,6}").prop_map(|(index, text)| json!({"tool_calls": [{"index": index, "function": {"arguments": text}}]})),
        (0u32..3, "[a-z]{1,3}").prop_map(|(index, id)| json!({"tool_calls": [{"index": index, "id": id, "function": {"name": "f", "arguments": "{}"}}]})),
    ];
    prop::collection::vec(delta, 1..12)
}

proptest! {
    #[test]
    fn nonsense_never_panics(body in prop_oneof![
        any::<Vec<u8>>(),
        (arb_deltas(), 0usize..400).prop_map(|(deltas, cut)| {
            let mut body = sse(&deltas.into_iter().map(chunk).collect::<Vec<_>>()).into_bytes();
            if let Some(byte) = body.get_mut(cut) {
                *byte = b'"';
            }
            body
        }),
    ]) {
        let _ = stream(Reader::default(), Framer::sse(), body.chunks(7));
        let _ = whole(Reader::default(), &String::from_utf8_lossy(&body));
    }

    /// What was said goes back: text, calls and arguments as they were.
    #[test]
    fn round_trip(text in ".{0,20}", calls in prop::collection::vec(("[a-z]{1,8}", ".{0,9}"), 0..4)) {
        prop_assume!(!text.is_empty() || !calls.is_empty());
        let calls: Vec<Value> = calls.iter().enumerate().map(|(index, (name, value))| {
            let arguments = json!({"v": value}).to_string();
            json!({"id": format!("call_{index}"), "type": "function", "function": {"name": name, "arguments": arguments}})
        }).collect();
        let mut message = json!({"role": "assistant", "content": text});
        if text.is_empty() {
            message["content"] = Value::Null;
        }
        if !calls.is_empty() {
            message["tool_calls"] = json!(calls);
        }
        let body = json!({"choices": [{"message": message, "finish_reason": "stop"}]});
        let heard = whole(Reader::default(), &body.to_string());
        let written = write("m", &request([heard.message()]), &Vendor::COMPATIBLE);
        let body: Value = serde_json::from_slice(&written.body).unwrap();
        prop_assert_eq!(&body["messages"][0], &message);
    }
}
