//! How answers are read.

use insta::assert_snapshot;
use serde_json::{Value, json};
use wellspring_core::Message;

use super::*;
use crate::provider::tests::{stream_cut_anywhere, whole};
use crate::sse_reader::Framer;

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
    part 0 annotated {"other":{"origin":"anthropic","name":"block","value":{"type":"thinking"}}}
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

    // The same answer without streaming.
    let body = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x",
        "content": [{"type": "thinking", "thinking": "Hm\n", "signature": "c2ln"},
            {"type": "text", "text": "Hello \"you\" 😀"}],
        "stop_reason": "tool_use", "stop_sequence": null,
        "usage": {"input_tokens": 10, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 2, "output_tokens": 42}});
    let body = body.to_string().replace(
        "😀\"}",
        "😀\"},{\"type\":\"tool_use\",\"id\":\"toolu_1\",\"name\":\"read\",\"input\":{\"z\":1,\"a\":2.0}}",
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
    part 0 annotated {"other":{"origin":"anthropic","name":"block","value":{"type":"server_tool_use"}}}
    part 0 delta "{\"query\":\"spring\"}"
    part 0 finished
    tool 0 started parallel
    part 1 started opaque anthropic
    tool 0 finished ok [{"type":"web_search_result","url":"https://a.example","title":"A"}]
    part 1 finished
    part 2 started text
    part 2 delta "Wells."
    source {"url":"https://a.example","title":"A","quote":"wells"}
    part 2 annotated {"citation":{"type":"web_search_result_location","url":"https://a.example","title":"A","encrypted_index":"Ei","cited_text":"wells"}}
    part 2 finished
    part 3 started call echo on provider
    part 3 annotated {"provider_id":"mcptoolu_1"}
    part 3 annotated {"other":{"origin":"anthropic","name":"block","value":{"type":"mcp_tool_use","server_name":"s"}}}
    part 3 delta "{\"a\":1}"
    part 3 finished
    tool 3 started parallel
    part 4 started opaque anthropic
    tool 3 finished error [{"type":"text","text":"no"}]
    part 4 finished
    part 5 started opaque anthropic
    file application/octet-stream
    part 5 finished
    stop ["end_turn",{"scope":"turn","provider":"anthropic","model":"claude-x","input":17,"output":42,"cached_input":5,"cache_write":2}]
    "#);
    assert_snapshot!(said_again(&heard), @r#"
    {"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"query":"spring"}}
    {"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[{"type":"web_search_result","url":"https://a.example","title":"A","encrypted_content":"Eq"}]}
    {"type":"text","text":"Wells.","citations":[{"type":"web_search_result_location","url":"https://a.example","title":"A","encrypted_index":"Ei","cited_text":"wells"}]}
    {"type":"mcp_tool_use","id":"mcptoolu_1","name":"echo","input":{"a":1},"server_name":"s"}
    {"type":"mcp_tool_result","tool_use_id":"mcptoolu_1","is_error":true,"content":[{"type":"text","text":"no"}]}
    {"type":"container_upload","file_id":"file_1"}
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
    part 0 annotated {"other":{"origin":"anthropic","name":"block","value":{"type":"redacted_thinking"}}}
    part 0 finished
    part 1 started opaque anthropic
    part 1 annotated {"other":{"origin":"anthropic","name":"delta","value":{"type":"text_delta","text":"b"}}}
    part 1 annotated {"other":{"origin":"anthropic","name":"delta","value":{"type":"hologram_delta","angle":90}}}
    part 1 annotated {"other":{"origin":"anthropic","name":"delta","value":{"type":"input_json_delta","partial_json":"{\"q\":"}}}
    part 1 annotated {"other":{"origin":"anthropic","name":"delta","value":{"type":"input_json_delta","partial_json":"1}"}}}
    part 1 finished
    extended anthropic weather {"type":"weather","sunny":true}
    part 2 started call now
    part 2 annotated {"provider_id":"toolu_1"}
    part 2 annotated {"other":{"origin":"anthropic","name":"block","value":{"caller":{"type":"direct"}}}}
    part 2 finished
    extended anthropic message_delta {"container":{"id":"c"},"stop_sequence":"END"}
    extended anthropic server_tool_use {"web_search_requests":1}
    stop ["stop_sequence",{"scope":"turn","provider":"anthropic","model":"claude-x","input":17,"output":3,"cached_input":5,"cache_write":2}]
    "#);
    assert_snapshot!(said_again(&heard), @r#"
    {"type":"redacted_thinking","data":"b64"}
    {"type":"hologram","depth":3,"text":"ab","input":{"q":1}}
    {"type":"tool_use","id":"toolu_1","name":"now","input":{},"caller":{"type":"direct"}}
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

/// A signature may arrive after other blocks have started, or after its block has ended.
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
    {"type":"thinking","thinking":"Hm","signature":"late"}
    {"type":"text","text":"Hi"}
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
            "Protocol: block 0 got a delta after its end",
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
        (vec![json!([1])], "Protocol: an event is not the expected JSON"),
    ];
    for (events, want) in cases {
        assert_eq!(read(&events).error.as_deref(), Some(want), "{events:?}");
    }
    let whole = |body: &str| whole(Reader::default(), body).error;
    assert_eq!(
        whole("{}").as_deref(),
        Some("Protocol: the answer ended before the model had stopped")
    );
    assert_eq!(whole("<html>").as_deref(), Some("Protocol: an event is not the expected JSON"));
    let error = r#"{"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}"#;
    assert_eq!(whole(error).as_deref(), Some("RateLimited: slow down"));
}

/// A call that the output limit cut off must not look like a call without arguments.
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
