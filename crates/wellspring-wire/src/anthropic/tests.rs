use insta::assert_snapshot;
use proptest::prelude::*;
use serde_json::{Value, json};
use wellspring_core::{
    CallResult, Content, MediaSource, Message, ModelSettings, OutputSchema, Thinking, ToolChoice,
    ToolContent, ToolOutcome, ToolResult, ToolSpec, TurnRequest,
};

use super::*;
use crate::framer::Framer;
use crate::provider::testing::{Heard, request, stream, stream_cut_anywhere, whole};

/// A stream of these events.
fn sse(events: &[Value]) -> String {
    let line = |event: &Value| {
        format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or("x"))
    };
    events.iter().map(line).collect()
}

fn read(events: &[Value]) -> Heard {
    stream_cut_anywhere(Reader::default, &Framer::sse(), &sse(events))
}

fn start() -> Value {
    json!({"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant",
        "model": "claude-x", "content": [], "stop_reason": null,
        "usage": {"input_tokens": 10, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 2, "output_tokens": 1}}})
}

fn open(index: u32, block: Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

fn delta(index: u32, delta: Value) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

fn close(index: u32) -> Value {
    json!({"type": "content_block_stop", "index": index})
}

fn end(reason: &str) -> [Value; 2] {
    let delta = json!({"stop_reason": reason, "stop_sequence": null});
    [
        json!({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 42}}),
        json!({"type": "message_stop"}),
    ]
}

fn stop() -> Vec<Value> {
    end("end_turn").into()
}

fn text_block() -> Value {
    json!({"type": "text", "text": ""})
}

#[test]
fn a_thought_a_text_and_a_call() {
    let mut events = vec![
        start(),
        json!({"type": "ping"}),
        open(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
        delta(0, json!({"type": "thinking_delta", "thinking": "Hm\n"})),
        delta(0, json!({"type": "signature_delta", "signature": "c2ln"})),
        close(0),
        open(1, text_block()),
        delta(1, json!({"type": "text_delta", "text": "Hello \"you\" 😀"})),
        delta(1, json!({"type": "text_delta", "text": ""})),
        close(1),
        open(2, json!({"type": "tool_use", "id": "toolu_1", "name": "read", "input": {}})),
        delta(2, json!({"type": "input_json_delta", "partial_json": ""})),
        delta(2, json!({"type": "input_json_delta", "partial_json": "{\"z\":1,"})),
        delta(2, json!({"type": "input_json_delta", "partial_json": "\"a\":2.0}"})),
        close(2),
    ];
    events.extend(end("tool_use"));
    let heard = read(&events);
    assert_snapshot!(heard.lines(), @r#"
    usage 17 in, 1 out
    part 0 started thought
    part 0 annotated {"other":{"name":"block","origin":"anthropic","value":{"type":"thinking"}}}
    part 0 delta "Hm\n"
    part 0 annotated {"signature":"c2ln"}
    part 0 finished
    part 1 started text
    part 1 delta "Hello \"you\" 😀"
    part 1 finished
    part 2 started call read
    part 2 annotated {"provider_id":"toolu_1"}
    part 2 delta "{\"z\":1,"
    part 2 delta "\"a\":2.0}"
    part 2 finished
    stop ["tool_calls",{"scope":"turn","provider":"anthropic","model":"claude-x","input":17,"output":42,"cached_input":5,"cache_write":2}]
    "#);

    // The same in one piece.
    let body = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x",
        "content": [{"type": "thinking", "thinking": "Hm\n", "signature": "c2ln"},
            {"type": "text", "text": "Hello \"you\" 😀"}],
        "stop_reason": "tool_use", "stop_sequence": null,
        "usage": {"input_tokens": 10, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 2, "output_tokens": 42}});
    let body = body.to_string().replace(
        "😀\",\"type\":\"text\"}",
        "😀\",\"type\":\"text\"},{\"type\":\"tool_use\",\"id\":\"toolu_1\",\"name\":\"read\",\"input\":{\"z\":1,\"a\":2.0}}",
    );
    let at_once = whole(Reader::default(), &body);
    assert_eq!(at_once.stop, heard.stop);
    assert_eq!(said_again(&at_once), said_again(&heard));
}

#[test]
fn a_tool_that_runs_at_the_provider() {
    let mut events = vec![
        start(),
        open(
            0,
            json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}),
        ),
        delta(0, json!({"type": "input_json_delta", "partial_json": "{\"query\":\"spring\"}"})),
        close(0),
        open(
            1,
            json!({"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [
            {"type": "web_search_result", "url": "https://a.example", "title": "A", "encrypted_content": "Eq"}]}),
        ),
        close(1),
        open(2, json!({"type": "text", "text": "", "citations": []})),
        delta(2, json!({"type": "text_delta", "text": "Wells."})),
        delta(
            2,
            json!({"type": "citations_delta", "citation": {"type": "web_search_result_location",
            "url": "https://a.example", "title": "A", "encrypted_index": "Ei", "cited_text": "wells"}}),
        ),
        close(2),
        open(
            3,
            json!({"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "echo", "server_name": "s", "input": {"a": 1}}),
        ),
        close(3),
        open(
            4,
            json!({"type": "mcp_tool_result", "tool_use_id": "mcptoolu_1", "is_error": true, "content": [{"type": "text", "text": "no"}]}),
        ),
        close(4),
        open(5, json!({"type": "container_upload", "file_id": "file_1"})),
        close(5),
    ];
    events.extend(stop());
    let heard = read(&events);
    assert_snapshot!(heard.lines(), @r#"
    usage 17 in, 1 out
    part 0 started call web_search on provider
    part 0 annotated {"provider_id":"srvtoolu_1"}
    part 0 annotated {"other":{"name":"block","origin":"anthropic","value":{"type":"server_tool_use"}}}
    part 0 delta "{\"query\":\"spring\"}"
    part 0 finished
    tool 0 started parallel
    part 1 started opaque anthropic
    tool 0 finished ok [{"title":"A","type":"web_search_result","url":"https://a.example"}]
    part 1 finished
    part 2 started text
    part 2 delta "Wells."
    source {"quote":"wells","title":"A","url":"https://a.example"}
    part 2 annotated {"citation":{"cited_text":"wells","encrypted_index":"Ei","title":"A","type":"web_search_result_location","url":"https://a.example"}}
    part 2 finished
    part 3 started call echo on provider
    part 3 annotated {"provider_id":"mcptoolu_1"}
    part 3 annotated {"other":{"name":"block","origin":"anthropic","value":{"server_name":"s","type":"mcp_tool_use"}}}
    part 3 delta "{\"a\":1}"
    part 3 finished
    tool 3 started parallel
    part 4 started opaque anthropic
    tool 3 finished error [{"text":"no","type":"text"}]
    part 4 finished
    part 5 started opaque anthropic
    file application/octet-stream
    part 5 finished
    stop ["end_turn",{"scope":"turn","provider":"anthropic","model":"claude-x","input":17,"output":42,"cached_input":5,"cache_write":2}]
    "#);
    assert_snapshot!(said_again(&heard), @r#"
    {"id":"srvtoolu_1","input":{"query":"spring"},"name":"web_search","type":"server_tool_use"}
    {"content":[{"encrypted_content":"Eq","title":"A","type":"web_search_result","url":"https://a.example"}],"tool_use_id":"srvtoolu_1","type":"web_search_tool_result"}
    {"citations":[{"cited_text":"wells","encrypted_index":"Ei","title":"A","type":"web_search_result_location","url":"https://a.example"}],"text":"Wells.","type":"text"}
    {"id":"mcptoolu_1","input":{"a":1},"name":"echo","server_name":"s","type":"mcp_tool_use"}
    {"content":[{"text":"no","type":"text"}],"is_error":true,"tool_use_id":"mcptoolu_1","type":"mcp_tool_result"}
    {"file_id":"file_1","type":"container_upload"}
    left out: {}
    "#);
}

#[test]
fn what_is_newer_than_this_code_is_kept() {
    let mut events = vec![
        start(),
        open(0, json!({"type": "redacted_thinking", "data": "b64"})),
        close(0),
        open(1, json!({"type": "hologram", "depth": 3, "text": "a"})),
        delta(1, json!({"type": "text_delta", "text": "b"})),
        delta(1, json!({"type": "hologram_delta", "angle": 90})),
        delta(1, json!({"type": "input_json_delta", "partial_json": "{\"q\":"})),
        delta(1, json!({"type": "input_json_delta", "partial_json": "1}"})),
        close(1),
        json!({"type": "weather", "sunny": true}),
        open(
            2,
            json!({"type": "tool_use", "id": "toolu_1", "name": "now", "input": {}, "caller": {"type": "direct"}}),
        ),
        close(2),
        json!({"type": "message_delta", "delta": {"stop_reason": "stop_sequence", "stop_sequence": "END", "container": {"id": "c"}},
            "usage": {"output_tokens": 3, "server_tool_use": {"web_search_requests": 1}}}),
        json!({"type": "message_stop"}),
    ];
    let heard = read(&events);
    assert_snapshot!(heard.lines(), @r#"
    usage 17 in, 1 out
    part 0 started thought
    part 0 annotated {"encrypted":"b64"}
    part 0 annotated {"other":{"name":"block","origin":"anthropic","value":{"type":"redacted_thinking"}}}
    part 0 finished
    part 1 started opaque anthropic
    part 1 annotated {"other":{"name":"delta","origin":"anthropic","value":{"text":"b","type":"text_delta"}}}
    part 1 annotated {"other":{"name":"delta","origin":"anthropic","value":{"angle":90,"type":"hologram_delta"}}}
    part 1 annotated {"other":{"name":"delta","origin":"anthropic","value":{"partial_json":"{\"q\":","type":"input_json_delta"}}}
    part 1 annotated {"other":{"name":"delta","origin":"anthropic","value":{"partial_json":"1}","type":"input_json_delta"}}}
    part 1 finished
    extended anthropic weather {"sunny":true,"type":"weather"}
    part 2 started call now
    part 2 annotated {"provider_id":"toolu_1"}
    part 2 annotated {"other":{"name":"block","origin":"anthropic","value":{"caller":{"type":"direct"}}}}
    part 2 finished
    extended anthropic message_delta {"container":{"id":"c"},"stop_sequence":"END"}
    extended anthropic server_tool_use {"web_search_requests":1}
    stop ["stop_sequence",{"scope":"turn","provider":"anthropic","model":"claude-x","input":17,"output":3,"cached_input":5,"cache_write":2}]
    "#);
    assert_snapshot!(said_again(&heard), @r#"
    {"data":"b64","type":"redacted_thinking"}
    {"depth":3,"input":{"q":1},"text":"ab","type":"hologram"}
    {"caller":{"type":"direct"},"id":"toolu_1","input":{},"name":"now","type":"tool_use"}
    left out: {}
    "#);
    events.insert(
        1,
        json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
    );
    assert_snapshot!(read(&events).lines(), @"
    usage 17 in, 1 out
    error Unavailable: Overloaded
    ");
}

/// A signature may come when its block is no longer the last one, or has ended.
#[test]
fn blocks_overlap() {
    let thinking = || json!({"type": "thinking", "thinking": "Hm", "signature": ""});
    let signature = || delta(0, json!({"type": "signature_delta", "signature": "late"}));
    let mut open_still =
        vec![start(), open(0, thinking()), open(1, text_block()), signature(), close(0)];
    open_still.extend([delta(1, json!({"type": "text_delta", "text": "Hi"})), close(1)]);
    open_still.extend(stop());
    let mut ended =
        vec![start(), open(0, thinking()), close(0), open(1, text_block()), signature()];
    ended.extend([delta(1, json!({"type": "text_delta", "text": "Hi"})), close(1)]);
    ended.extend(stop());
    let (open_still, ended) = (read(&open_still), read(&ended));
    assert_eq!((open_still.error.as_deref(), ended.error.as_deref()), (None, None));
    assert_eq!(said_again(&open_still), said_again(&ended));
    assert_snapshot!(said_again(&ended), @r#"
    {"signature":"late","thinking":"Hm","type":"thinking"}
    {"text":"Hi","type":"text"}
    left out: {}
    "#);
}

#[test]
fn what_the_protocol_forbids() {
    let text = |index| delta(index, json!({"type": "text_delta", "text": "x"}));
    let call = || json!({"type": "tool_use", "id": "t", "name": "n", "input": {}});
    let cases: Vec<(Vec<Value>, &str)> = vec![
        (vec![start(), text(0)], "Protocol: block 0 never began"),
        (vec![start(), close(3)], "Protocol: block 3 never began"),
        (
            vec![start(), open(0, text_block()), open(0, text_block())],
            "Protocol: block 0 began twice",
        ),
        (
            vec![start(), open(0, text_block()), close(0), text(0)],
            "Protocol: block 0 went on after its end",
        ),
        (
            vec![start(), open(0, call()), json!({"type": "message_stop"})],
            "Protocol: the model stopped within the call of block 0",
        ),
        (
            vec![start(), open(0, text_block()), text(0), close(0)],
            "Protocol: the answer ended before the model had stopped",
        ),
        (
            vec![start(), open(0, text_block()), text(0), close(0), end("end_turn")[0].clone()],
            "Protocol: the answer ended before the model had stopped",
        ),
        (vec![], "Protocol: the answer ended before the model had stopped"),
        (vec![json!([1])], "Protocol: an event is not the JSON it should be"),
    ];
    for (events, want) in cases {
        assert_eq!(read(&events).error.as_deref(), Some(want), "{events:?}");
    }
    let whole = |body: &str| whole(Reader::default(), body).error;
    assert_eq!(
        whole("{}").as_deref(),
        Some("Protocol: the answer ended before the model had stopped")
    );
    assert_eq!(whole("<html>").as_deref(), Some("Protocol: an event is not the JSON it should be"));
    let error = r#"{"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}"#;
    assert_eq!(whole(error).as_deref(), Some("RateLimited: slow down"));
}

/// A call that the output limit cut must not look like one that takes no arguments.
#[test]
fn a_call_without_arguments() {
    let call = || json!({"type": "tool_use", "id": "t", "name": "now", "input": {}});
    for (reason, arguments) in [("tool_use", ""), ("max_tokens", crate::provider::CUT_ARGUMENTS)] {
        let mut events = vec![start(), open(0, call()), close(0)];
        events.extend(end(reason));
        let Message::Assistant { parts, .. } = read(&events).message() else { unreachable!() };
        assert_eq!(parts[0].text, arguments);
    }
}

#[test]
fn padding_order_and_spaces_do_not_matter() {
    let body = "data: { \"index\" : 0 , \"delta\" : { \"text\" : \"a\\u00e4\\n\" , \"type\" : \"text_delta\" } , \"type\" : \"content_block_delta\" }\n\n\
        data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"b\"},\"p\":\"abcdefgh\"}\n\n\
        data: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"c\\ud83d\"}}\n\n";
    let body = format!("{}{body}{}data: [DONE]\n\n", sse(&[open(0, text_block())]), sse(&stop()));
    let heard = stream_cut_anywhere(Reader::default, &Framer::sse(), &body);
    let Message::Assistant { parts, .. } = heard.message() else { unreachable!() };
    assert_eq!((heard.error, &*parts[0].text), (None, "aä\nbc\u{fffd}"));
}

fn body(request: &TurnRequest) -> Value {
    serde_json::from_slice(&write("claude-x", request, &Options { cache: false }).body).unwrap()
}

/// The message as it goes back, and what was left out of it.
fn said_again(heard: &Heard) -> String {
    let written = write("claude-x", &request([heard.message()]), &Options { cache: false });
    let body: Value = serde_json::from_slice(&written.body).unwrap();
    let blocks = body["messages"][0]["content"].as_array().cloned().unwrap_or_default();
    let lines: Vec<String> = blocks.iter().map(Value::to_string).collect();
    format!("{}\nleft out: {:?}", lines.join("\n"), written.left_out)
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
        result: ToolResult { output: json!("done"), content, inbox: None },
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
      "max_tokens": 4096,
      "messages": [
        {
          "content": [
            {
              "text": "Look",
              "type": "text"
            },
            {
              "source": {
                "data": "aW1n",
                "media_type": "image/png",
                "type": "base64"
              },
              "type": "image"
            },
            {
              "source": {
                "type": "url",
                "url": "https://a.example/x.pdf"
              },
              "title": "n",
              "type": "document"
            },
            {
              "source": {
                "data": "a,b",
                "media_type": "text/plain",
                "type": "text"
              },
              "title": "n",
              "type": "document"
            },
            {
              "text": "[n (audio/wav) cannot be shown here]",
              "type": "text"
            },
            {
              "text": "A: https://a.example",
              "type": "text"
            },
            {
              "cache_control": {
                "type": "ephemeral"
              },
              "source": {
                "data": "words",
                "media_type": "text/plain",
                "type": "text"
              },
              "title": "file:x",
              "type": "document"
            }
          ],
          "role": "user"
        },
        {
          "content": [
            {
              "id": "toolu_1",
              "input": {
                "a": [
                  2
                ],
                "b": 1
              },
              "name": "fs_read_a8ed23ab",
              "type": "tool_use"
            },
            {
              "id": "01920000-0000-7000-8000-000000000001-1",
              "input": {},
              "name": "plan",
              "type": "tool_use"
            }
          ],
          "role": "assistant"
        },
        {
          "content": [
            {
              "content": [
                {
                  "text": "done",
                  "type": "text"
                },
                {
                  "source": {
                    "data": "aW1n",
                    "media_type": "image/png",
                    "type": "base64"
                  },
                  "type": "image"
                }
              ],
              "tool_use_id": "toolu_1",
              "type": "tool_result"
            },
            {
              "content": "done",
              "is_error": true,
              "tool_use_id": "01920000-0000-7000-8000-000000000001-1",
              "type": "tool_result"
            },
            {
              "cache_control": {
                "type": "ephemeral"
              },
              "text": "And?",
              "type": "text"
            }
          ],
          "role": "user"
        }
      ],
      "metadata": {
        "user_id": "u"
      },
      "model": "claude-x",
      "output_config": {
        "format": {
          "schema": {
            "type": "object"
          },
          "type": "json_schema"
        }
      },
      "stop_sequences": [
        "END"
      ],
      "stream": true,
      "system": [
        {
          "cache_control": {
            "type": "ephemeral"
          },
          "text": "Be brief.",
          "type": "text"
        }
      ],
      "temperature": 0.5,
      "tool_choice": {
        "name": "fs_read_e3d66a57",
        "type": "tool"
      },
      "tools": [
        {
          "description": "Reads.",
          "input_schema": {
            "type": "object"
          },
          "name": "fs_read_e3d66a57"
        },
        {
          "cache_control": {
            "type": "ephemeral"
          },
          "max_uses": 3,
          "name": "web_search",
          "type": "web_search_20250305"
        }
      ]
    }
    {"media that are neither images nor documents": 1}
    "#);
    // The arguments go back to the byte.
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
        r#"5120 {"budget_tokens":1024,"type":"enabled"} - -"#
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
        "content": [
          {
            "text": "Text",
            "type": "text"
          },
          {
            "id": "01920000-0000-7000-8000-000000000001-5",
            "input": {},
            "name": "plan",
            "type": "tool_use"
          }
        ],
        "role": "assistant"
      }
    ]
    {
        "arguments that are no JSON object": 1,
        "thoughts that the provider did not sign": 1,
        "what only another provider can read": 1,
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

/// A stream that a provider could send: blocks with deltas, some of them new to us.
fn arb_blocks() -> impl Strategy<Value = Vec<(Value, Vec<Value>)>> {
    let text = prop::collection::vec(".{0,8}", 0..4);
    let block = prop_oneof![
        text.clone().prop_map(|texts| {
            let delta = |text: &String| json!({"type": "text_delta", "text": text});
            (text_block(), texts.iter().map(delta).collect())
        }),
        (text.clone(), "[a-zA-Z0-9+/=]{1,20}").prop_map(|(texts, signature)| {
            let delta = |text: &String| json!({"type": "thinking_delta", "thinking": text});
            let mut deltas: Vec<Value> = texts.iter().map(delta).collect();
            deltas.push(json!({"type": "signature_delta", "signature": signature}));
            (json!({"type": "thinking", "thinking": "", "signature": ""}), deltas)
        }),
        ("[a-zA-Z0-9+/=]{1,20}")
            .prop_map(|data| (json!({"type": "redacted_thinking", "data": data}), vec![])),
        ("[a-z_]{1,9}", text, "[a-z]{1,6}").prop_map(|(name, texts, id)| {
            let input = json!({"texts": texts}).to_string();
            let middle =
                input.char_indices().nth(input.chars().count() / 2).map_or(0, |(at, _)| at);
            let delta = |text: &str| json!({"type": "input_json_delta", "partial_json": text});
            let deltas = vec![delta(&input[..middle]), delta(&input[middle..])];
            (json!({"type": "tool_use", "id": id, "name": name, "input": {}}), deltas)
        }),
        (0u32..9).prop_map(|n| (
            json!({"type": "future_block", "n": n, "text": ""}),
            vec![json!({"type": "text_delta", "text": "t"})]
        )),
    ];
    prop::collection::vec(block, 1..6)
}

fn stream_of(blocks: &[(Value, Vec<Value>)]) -> Vec<Value> {
    let mut events = vec![start()];
    for (index, (block, deltas)) in (0..).zip(blocks) {
        events.push(open(index, block.clone()));
        events.extend(deltas.iter().map(|it| delta(index, it.clone())));
        events.push(close(index));
    }
    events.extend(stop());
    events
}

proptest! {
    /// What the provider said goes back as it came: read, written, and read again whole.
    #[test]
    fn round_trip(mut blocks in arb_blocks()) {
        // A message must not end in a thought, and ids are unique within a conversation.
        blocks.push((json!({"type": "text", "text": "."}), vec![]));
        for (index, (block, _)) in blocks.iter_mut().enumerate() {
            if let Some(id) = block.get_mut("id") {
                *id = json!(format!("toolu_{index}"));
            }
        }
        let heard = stream(Reader::default(), Framer::sse(), [sse(&stream_of(&blocks)).as_bytes()]);
        prop_assert_eq!(&heard.error, &None);
        let written = write("claude-x", &request([heard.message()]), &Options { cache: false });
        prop_assert_eq!(&written.left_out, &Default::default());
        let body: Value = serde_json::from_slice(&written.body).unwrap();
        let want: Vec<Value> = blocks.iter().filter_map(|(block, deltas)| assembled(block, deltas)).collect();
        prop_assert_eq!(&body["messages"][0]["content"], &Value::Array(want.clone()));

        let answer = json!({"type": "message", "content": want, "stop_reason": "end_turn"});
        let again = whole(Reader::default(), &answer.to_string());
        let rewritten = write("claude-x", &request([again.message()]), &Options { cache: false });
        prop_assert_eq!(&rewritten, &written);
    }

    #[test]
    fn nonsense_never_panics(body in prop_oneof![
        any::<Vec<u8>>(),
        prop::collection::vec(arb_event(), 0..12).prop_map(|events| sse(&events).into_bytes()),
    ]) {
        let _ = stream(Reader::default(), Framer::sse(), body.chunks(7));
        let _ = whole(Reader::default(), &String::from_utf8_lossy(&body));
    }
}

/// A block as the provider would show it after its last delta; none when nothing is in it.
fn assembled(block: &Value, deltas: &[Value]) -> Option<Value> {
    let mut block = block.clone();
    let mut input = String::new();
    for delta in deltas {
        let text = |name: &str| delta[name].as_str().unwrap_or_default();
        for name in ["text", "thinking", "signature"] {
            if delta.get(name).is_some() {
                block[name] = json!(format!("{}{}", block[name].as_str().unwrap(), text(name)));
            }
        }
        input.push_str(text("partial_json"));
    }
    if !input.is_empty() {
        block["input"] = serde_json::from_str(&input).unwrap();
    }
    (block["type"] != "text" || block["text"] != "").then_some(block)
}

/// An event whose members are of any type.
fn arb_event() -> impl Strategy<Value = Value> {
    let kind = prop::sample::select(vec![
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
        "error",
        "ping",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<u32>().prop_map(Value::from),
        prop::sample::select(vec!["text", "tool_use", "text_delta", "thinking", "x"])
            .prop_map(Value::from),
    ];
    let object = prop::collection::btree_map(
        prop::sample::select(vec![
            "type",
            "text",
            "input",
            "id",
            "name",
            "content",
            "usage",
            "stop_reason",
        ]),
        leaf.clone(),
        0..5,
    )
    .prop_map(|map| serde_json::to_value(map).unwrap());
    let any = prop_oneof![leaf, object];
    let member = prop::sample::select(vec!["index", "delta", "content_block", "message", "usage"]);
    (kind, prop::collection::btree_map(member, any, 0..4)).prop_map(|(kind, members)| {
        let mut event = serde_json::to_value(members).unwrap();
        event["type"] = json!(kind);
        event
    })
}
