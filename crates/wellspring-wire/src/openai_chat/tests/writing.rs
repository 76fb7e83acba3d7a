//! Requests to each vendor, and how a conversation is sent back.

use insta::assert_snapshot;
use serde_json::{Value, json};
use wellspring_core::{
    CallResult, Content, MediaSource, Message, ModelSettings, OutputSchema, Thinking, ToolChoice,
    ToolContent, ToolOutcome, ToolResult, ToolSpec,
};

use super::*;

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
        result: ToolResult { output: json!({"done": true}), content, ..ToolResult::default() },
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
      "model": "gpt-x",
      "max_completion_tokens": 4096,
      "stream": true,
      "reasoning_effort": "low",
      "temperature": 0.5,
      "stop": [
        "END"
      ],
      "response_format": {
        "type": "json_schema",
        "json_schema": {
          "name": "review",
          "schema": {
            "type": "object"
          },
          "strict": true
        }
      },
      "tools": [
        {
          "type": "function",
          "function": {
            "name": "fs_read_e3d66a57",
            "description": "Reads.",
            "parameters": {
              "type": "object",
              "properties": {}
            }
          }
        }
      ],
      "tool_choice": {
        "type": "function",
        "function": {
          "name": "fs_read_e3d66a57"
        }
      },
      "messages": [
        {
          "role": "developer",
          "content": "Be brief."
        },
        {
          "role": "user",
          "content": [
            {
              "type": "text",
              "text": "Look"
            },
            {
              "type": "image_url",
              "image_url": {
                "url": "data:image/png;base64,aW1n"
              }
            },
            {
              "type": "file",
              "file": {
                "filename": "n",
                "file_data": "data:application/pdf;base64,cGRm"
              }
            },
            {
              "type": "text",
              "text": "n:\na,b"
            },
            {
              "type": "input_audio",
              "input_audio": {
                "data": "bXAz",
                "format": "mp3"
              }
            },
            {
              "type": "text",
              "text": "[n (video/mp4) cannot be shown here]"
            },
            {
              "type": "text",
              "text": "A: https://a.example"
            },
            {
              "type": "text",
              "text": "file:x:\nwords"
            }
          ]
        },
        {
          "role": "assistant",
          "content": "Let me look.",
          "tool_calls": [
            {
              "id": "call_a",
              "type": "function",
              "function": {
                "name": "fs_read",
                "arguments": "{\"b\": 1}"
              },
              "extra_content": {
                "s": 1
              }
            },
            {
              "id": "call99b04506d4c2ad31",
              "type": "function",
              "function": {
                "name": "now",
                "arguments": "{}"
              }
            }
          ]
        },
        {
          "role": "tool",
          "tool_call_id": "call_a",
          "content": "{\"done\":true}"
        },
        {
          "role": "tool",
          "tool_call_id": "call99b04506d4c2ad31",
          "content": "{\"done\":true}"
        },
        {
          "role": "user",
          "content": [
            {
              "type": "text",
              "text": "What x shows:"
            },
            {
              "type": "image_url",
              "image_url": {
                "url": "data:image/png;base64,aW1n"
              }
            }
          ]
        },
        {
          "role": "user",
          "content": "And?"
        }
      ],
      "seed": 7
    }
    {
        "media that it does not support": 1,
        "thoughts that it does not accept back": 1,
    }
    "#);
}

/// The members that only some vendors get.
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
    openai: {"model":"m","max_completion_tokens":4096,"stream":true,"stream_options":{"include_usage":true},"response_format":{"type":"json_schema","json_schema":{"name":"o","schema":{},"strict":true}},"messages":null}
      "developer" "call_a" "call99b04506d4c2ad31"
      ["media that it does not support", "the thinking budget in tokens, which it does not support", "thoughts that it does not accept back"]
    openai-compatible: {"model":"m","max_tokens":4096,"stream":true,"stream_options":{"include_usage":true},"response_format":{"type":"json_schema","json_schema":{"name":"o","schema":{},"strict":true}},"messages":null}
      "system" "call_a" "call99b04506d4c2ad31"
      ["media that it does not support", "the thinking budget in tokens, which it does not support", "thoughts that it does not accept back"]
    llama.cpp: {"model":"m","max_tokens":4096,"stream":true,"stream_options":{"include_usage":true},"chat_template_kwargs":{"enable_thinking":true},"response_format":{"type":"json_schema","json_schema":{"name":"o","schema":{},"strict":true}},"messages":null}
      "system" "call_a" "call99b04506d4c2ad31"
      ["media that it does not support", "thoughts that it does not accept back"]
    vllm: {"model":"m","max_tokens":4096,"stream":true,"stream_options":{"include_usage":true},"chat_template_kwargs":{"enable_thinking":true},"response_format":{"type":"json_schema","json_schema":{"name":"o","schema":{},"strict":true}},"messages":null}
      "system" "call_a" "call99b04506d4c2ad31"
      ["media that it does not support", "thoughts that it does not accept back"]
    ollama: {"model":"m","max_tokens":4096,"stream":true,"stream_options":{"include_usage":true},"response_format":{"type":"json_schema","json_schema":{"name":"o","schema":{},"strict":true}},"messages":null}
      "system" "call_a" "call99b04506d4c2ad31"
      ["media that it does not support", "the thinking budget in tokens, which it does not support", "thoughts that it does not accept back"]
    openrouter: {"model":"m","max_tokens":4096,"stream":true,"stream_options":{"include_usage":true},"reasoning":{"max_tokens":100},"response_format":{"type":"json_schema","json_schema":{"name":"o","schema":{},"strict":true}},"messages":null}
      "system" "call_a" "call99b04506d4c2ad31"
      ["media that it does not support", "thoughts that it does not accept back"]
    deepseek: {"model":"m","max_tokens":4096,"stream":true,"stream_options":{"include_usage":true},"response_format":{"type":"json_object"},"messages":null}
      "system" "call_a" "call99b04506d4c2ad31"
      ["media that it does not support", "the thinking budget in tokens, which it does not support", "thoughts that it does not accept back"]
    groq: {"model":"m","max_completion_tokens":4096,"stream":true,"stream_options":{"include_usage":true},"response_format":{"type":"json_schema","json_schema":{"name":"o","schema":{},"strict":true}},"messages":null}
      "system" "call_a" "call99b04506d4c2ad31"
      ["media that it does not support", "the thinking budget in tokens, which it does not support", "thoughts that it does not accept back"]
    mistral: {"model":"m","max_tokens":4096,"stream":true,"response_format":{"type":"json_schema","json_schema":{"name":"o","schema":{},"strict":true}},"messages":null}
      "system" "e7ba2c4d6" "13da2c4d6"
      ["media that it does not support", "the thinking budget in tokens, which it does not support", "thoughts that it does not accept back"]
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
    let details = || r#"null [{"type":"reasoning.text","text":"Hm"}]"#.to_owned();
    assert_eq!(with(Vendor::OPENROUTER), (details(), details()));
}
