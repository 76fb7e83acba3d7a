//! Requests, and how a conversation is sent back.

use insta::assert_snapshot;
use serde_json::{Value, json};
use wellspring_core::{
    CallResult, Content, MediaSource, Message, ModelSettings, OutputSchema, Thinking, ToolChoice,
    ToolContent, ToolOutcome, ToolResult, ToolSpec, TurnRequest,
};

use super::*;

fn body(request: &TurnRequest) -> Value {
    serde_json::from_slice(&write("claude-x", request, &Options { cache: false }).body).unwrap()
}

#[test]
fn a_request_with_everything() {
    let heard = read(&{
        let mut events = vec![
            start(),
            open(
                0,
                json!({"type": "tool_use", "id": "toolu_1", "name": "fs_read_a8ed23ab", "input": {}}),
            ),
            delta(0, json!({"type": "input_json_delta", "partial_json": "{\"b\":1,\"a\":[ 2 ]}"})),
            close(0),
            open(1, json!({"type": "tool_use", "id": "toolu_1", "name": "plan", "input": {}})),
            close(1),
        ];
        events.extend(end("tool_use"));
        events
    });
    let asked = heard.message();
    let Message::Assistant { parts, .. } = &asked else { unreachable!() };
    let image = Content::Media {
        media_type: "image/png".into(),
        source: MediaSource::Data("aW1n".into()),
        name: None,
    };
    let result = |part: usize, outcome, content| CallResult {
        call: parts[part].id,
        provider_id: Some("toolu_1".into()),
        name: "x".into(),
        outcome,
        result: ToolResult { output: json!("done"), content, ..ToolResult::default() },
    };
    let results = vec![
        result(0, ToolOutcome::Ok, vec![ToolContent::Content(image.clone())]),
        result(1, ToolOutcome::Denied, vec![]),
    ];
    let media = |media_type: &str, source| Content::Media {
        media_type: media_type.into(),
        source,
        name: Some("n".into()),
    };
    let user = vec![
        Content::text("Look"),
        image,
        media("application/pdf", MediaSource::Url("https://a.example/x.pdf".into())),
        media("text/csv", MediaSource::Data("YSxi".into())),
        media("audio/wav", MediaSource::Data("".into())),
        Content::Link { uri: "https://a.example".into(), name: Some("A".into()), media_type: None },
        Content::Resource { uri: "file:x".into(), text: "words".into(), media_type: None },
    ];
    let messages = [
        Message::User { content: user },
        asked.clone(),
        Message::Results { results },
        Message::user("And?"),
    ];
    let mut request = request(messages);
    request.instructions = "Be brief.".into();
    let search = ToolSpec {
        parameters: json!({"type": "web_search_20250305", "max_uses": 3}).into(),
        runs_on: wellspring_core::RunsOn::Provider,
        ..ToolSpec::new("web_search", "")
    };
    request.tools = [ToolSpec::new("fs/read", "Reads."), search].into();
    request.settings = ModelSettings {
        temperature: Some(0.5),
        stop_sequences: vec!["END".into()],
        tool_choice: ToolChoice::Tool("fs/read".into()),
        output: Some(OutputSchema { name: "x".into(), schema: json!({"type": "object"}) }),
        extra: Some(json!({"metadata": {"user_id": "u"}})),
        ..ModelSettings::default()
    };
    let written = write("claude-x", &request, &Options::default());
    let pretty: Value = serde_json::from_slice(&written.body).unwrap();
    assert_snapshot!(format!("{pretty:#}\n{:?}", written.left_out), @r#"
    {
      "model": "claude-x",
      "max_tokens": 4096,
      "output_config": {
        "format": {
          "type": "json_schema",
          "schema": {
            "type": "object"
          }
        }
      },
      "stream": true,
      "temperature": 0.5,
      "stop_sequences": [
        "END"
      ],
      "system": [
        {
          "type": "text",
          "text": "Be brief.",
          "cache_control": {
            "type": "ephemeral"
          }
        }
      ],
      "tools": [
        {
          "name": "fs_read_e3d66a57",
          "description": "Reads.",
          "input_schema": {
            "type": "object"
          }
        },
        {
          "type": "web_search_20250305",
          "max_uses": 3,
          "name": "web_search",
          "cache_control": {
            "type": "ephemeral"
          }
        }
      ],
      "tool_choice": {
        "type": "tool",
        "name": "fs_read_e3d66a57"
      },
      "messages": [
        {
          "role": "user",
          "content": [
            {
              "type": "text",
              "text": "Look"
            },
            {
              "type": "image",
              "source": {
                "type": "base64",
                "media_type": "image/png",
                "data": "aW1n"
              }
            },
            {
              "type": "document",
              "source": {
                "type": "url",
                "url": "https://a.example/x.pdf"
              },
              "title": "n"
            },
            {
              "type": "document",
              "source": {
                "type": "text",
                "media_type": "text/plain",
                "data": "a,b"
              },
              "title": "n"
            },
            {
              "type": "text",
              "text": "[n (audio/wav) cannot be shown here]"
            },
            {
              "type": "text",
              "text": "A: https://a.example"
            },
            {
              "type": "document",
              "source": {
                "type": "text",
                "media_type": "text/plain",
                "data": "words"
              },
              "title": "file:x",
              "cache_control": {
                "type": "ephemeral"
              }
            }
          ]
        },
        {
          "role": "assistant",
          "content": [
            {
              "type": "tool_use",
              "id": "toolu_1",
              "name": "fs_read_a8ed23ab",
              "input": {
                "b": 1,
                "a": [
                  2
                ]
              }
            },
            {
              "type": "tool_use",
              "id": "01920000-0000-7000-8000-000000000001-1",
              "name": "plan",
              "input": {}
            }
          ]
        },
        {
          "role": "user",
          "content": [
            {
              "type": "tool_result",
              "tool_use_id": "toolu_1",
              "content": [
                {
                  "type": "text",
                  "text": "done"
                },
                {
                  "type": "image",
                  "source": {
                    "type": "base64",
                    "media_type": "image/png",
                    "data": "aW1n"
                  }
                }
              ]
            },
            {
              "type": "tool_result",
              "tool_use_id": "01920000-0000-7000-8000-000000000001-1",
              "content": "done",
              "is_error": true
            },
            {
              "type": "text",
              "text": "And?",
              "cache_control": {
                "type": "ephemeral"
              }
            }
          ]
        }
      ],
      "metadata": {
        "user_id": "u"
      }
    }
    {"media that are neither images nor documents": 1}
    "#);
    // The arguments are sent back byte for byte.
    assert!(String::from_utf8(written.body).unwrap().contains(r#""input":{"b":1,"a":[ 2 ]}"#));
}

#[test]
fn thinking() {
    let mut request = request([Message::user("Hi")]);
    let mut of = |thinking| {
        request.settings.thinking = thinking;
        request.settings.temperature = Some(1.0);
        let body = body(&request);
        let members = ["max_tokens", "thinking", "output_config", "temperature"];
        members.map(|name| body.get(name).map_or("-".to_owned(), Value::to_string)).join(" ")
    };
    assert_eq!(of(None), "4096 - - 1.0");
    assert_eq!(of(Some(Thinking::Off)), r#"4096 {"type":"disabled"} - 1.0"#);
    assert_eq!(
        of(Some(Thinking::Effort("high".into()))),
        r#"4096 {"type":"adaptive"} {"effort":"high"} -"#
    );
    assert_eq!(
        of(Some(Thinking::Budget(10))),
        r#"5120 {"type":"enabled","budget_tokens":1024} - -"#
    );
}

#[test]
fn what_another_provider_said_goes_on_sensibly() {
    use wellspring_core::{Annotation, MessagePart, Opaque, PartId, PartKind, WirePartId};
    let part = |number: u32, kind, text: &str, annotations: Vec<Annotation>| MessagePart {
        id: WirePartId { run: wellspring_testkit::RUN, part: PartId(number) },
        kind,
        text: text.to_owned(),
        annotations,
    };
    let other = Opaque { origin: "other".into(), raw: json!({"type": "x"}) };
    let parts = vec![
        part(1, PartKind::Thought, "Hm", vec![Annotation::Signature("theirs".into())]),
        part(2, PartKind::TEXT, "Text", vec![Annotation::Citation(json!({"url": "x"}))]),
        part(3, PartKind::TEXT, "", vec![]),
        part(4, PartKind::Opaque(Box::new(other)), "", vec![]),
        part(5, PartKind::call("plan"), "not json", vec![Annotation::ProviderId("call|1".into())]),
    ];
    let message = Message::Assistant { model: "other".into(), parts };
    let written = write("claude-x", &request([message]), &Options { cache: false });
    let body: Value = serde_json::from_slice(&written.body).unwrap();
    assert_snapshot!(format!("{:#}\n{:#?}", body["messages"], written.left_out), @r#"
    [
      {
        "role": "assistant",
        "content": [
          {
            "type": "text",
            "text": "Text"
          },
          {
            "type": "tool_use",
            "id": "01920000-0000-7000-8000-000000000001-5",
            "name": "plan",
            "input": {}
          }
        ]
      }
    ]
    {
        "arguments that are not a JSON object": 1,
        "opaque data of another provider": 1,
        "thoughts without the provider's signature": 1,
    }
    "#);
}

#[test]
fn a_cut_turn_does_not_end_in_a_thought() {
    let events = [
        start(),
        open(0, json!({"type": "thinking", "thinking": "Hm", "signature": "s"})),
        close(0),
    ];
    assert_snapshot!(said_again(&read(&events)), @r#"

    left out: {"thoughts at the end of a turn that was cut short": 1}
    "#);
}
