//! How answers are read.

use insta::assert_snapshot;
use serde_json::{Value, json};

use super::*;
use crate::provider::CUT_ARGUMENTS;
use crate::provider::tests::whole;

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
    part 0 annotated {"other":{"origin":"openai_chat","name":"vendor","value":"openai-compatible"}}
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
    part 3 annotated {"other":{"origin":"openai_chat","name":"call","value":{"extra_content":{"google":{"thought_signature":"s"}}}}}
    part 3 delta "{}"
    part 2 finished
    part 3 finished
    stop ["tool_calls",{"scope":"turn","provider":"openai-compatible","model":"m","input":9,"output":4,"reasoning":2,"cached_input":3,"cost":{"amount":0.5,"currency":"USD"}}]
    "#);
}

/// Members that servers omit, repeat or name differently, with the expected result.
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
            "one id for all calls",
            vec![
                call(
                    json!({"index": 0, "id": "a", "function": {"name": "f", "arguments": "{\"x\":1}"}}),
                ),
                call(
                    json!({"index": 0, "id": "a", "function": {"name": "f", "arguments": "{\"x\":2}"}}),
                ),
            ],
            &["call f {\"x\":1}", "call f {\"x\":2}"],
        ),
        (
            "one id for all calls, and no index",
            vec![chunk(json!({"tool_calls": [
                {"id": "a", "function": {"name": "f", "arguments": "{}"}},
                {"id": "a", "function": {"name": "f", "arguments": "{}"}}]}))],
            &["call f {}", "call f {}"],
        ),
        (
            "neither ids nor indices, and arguments later",
            vec![
                call(json!({"function": {"name": "f", "arguments": ""}})),
                call(json!({"function": {"name": "g", "arguments": "{}"}})),
                call(json!({"function": {"name": "g", "arguments": "{\"y\":2}"}})),
            ],
            &["call f ", "call g {}", "call g {\"y\":2}"],
        ),
        (
            "id and name once more at the end",
            vec![
                call(json!({"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}})),
                call(json!({"index": 0, "id": "a", "function": {"name": "f", "arguments": ""}})),
            ],
            &["call f {}"],
        ),
        (
            "arguments that are not an object",
            vec![call(json!({"index": 0, "id": "a", "function": {"name": "f", "arguments": [1]}}))],
            &["call f [1]"],
        ),
        (
            "thoughts as an object",
            vec![chunk(json!({"reasoning": {"content": "Hm"}})), chunk(json!({"content": "a"}))],
            &["thought Hm", "text a"],
        ),
        (
            "thoughts only in their details",
            vec![
                chunk(json!({"reasoning_details": [{"type": "reasoning.text", "text": "Hm"}]})),
                chunk(
                    json!({"reasoning_details": [{"type": "reasoning.summary", "summary": "m"}]}),
                ),
                chunk(json!({"content": "a"})),
            ],
            &["thought Hmm", "text a"],
        ),
        (
            "thoughts as reasoning_text",
            vec![chunk(json!({"reasoning_text": "Hm"})), chunk(json!({"content": "a"}))],
            &["thought Hm", "text a"],
        ),
        (
            "thoughts in tags",
            vec![
                chunk(json!({"content": "<th"})),
                chunk(json!({"content": "ink>\nHm</"})),
                chunk(json!({"content": "think>\n\na </think>"})),
            ],
            &["thought \nHm", "text a </think>"],
        ),
        (
            "a tag that never ends",
            vec![chunk(json!({"content": "<think>Hm </thin"}))],
            &["thought Hm </thin"],
        ),
        (
            "tags beside thoughts",
            vec![chunk(json!({"reasoning": "Hm"})), chunk(json!({"content": "<think>a"}))],
            &["thought Hm", "text <think>a"],
        ),
        (
            "reasons to stop that are empty",
            vec![
                json!({"choices": [{"delta": {"content": "a"}, "finish_reason": ""}]}),
                json!({"choices": [{"delta": {"content": "b"}, "finish_reason": "null"}]}),
                json!({"choices": [{"delta": {"content": "c"}, "finish_reason": "None"}]}),
            ],
            &["text abc"],
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
        // Without a finish reason, a call without arguments may have been cut off.
        let reasons = if want.contains(&"call f ") { &["stop"][..] } else { &["stop", ""] };
        let called = want.iter().any(|part| part.starts_with("call"));
        let stop = if called { "\"tool_calls\"" } else { "\"end_turn\"" };
        for reason in reasons {
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
    let open = call(json!({"index": 0, "id": "a", "function": {"name": "f", "arguments": ""}}));
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
        (with(&[finish("")]), "Protocol: the answer ended before the model had stopped"),
        (with(&[finish("null")]), "Protocol: the answer ended before the model had stopped"),
        (with(&[open.clone(), finish("")]) + done, "Protocol: the answer ended before the model had stopped"),
        (with(std::slice::from_ref(&open)) + done, "Protocol: the answer ended before the model had stopped"),
        (with(&[half.clone(), finish("stop")]), "Protocol: a call has no name"),
        (with(&[json!({"error": {"message": "Overloaded", "code": 502}})]) + done, "Unavailable: Overloaded"),
        (with(&[json!({"choices": [{"finish_reason": "error", "error": {"code": 429, "message": "busy"}}]})]), "RateLimited: busy"),
        ("data: {\"error\":{\"message\":\"no such model\",\"type\":\"invalid_request_error\"}}\n\n".to_owned(), "BadRequest: no such model"),
        ("data: nonsense\n\n".to_owned(), "Protocol: an event is not the expected JSON"),
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
    part 0 annotated {"other":{"origin":"openai_chat","name":"vendor","value":"openai-compatible"}}
    part 0 delta "Hm"
    part 0 finished
    part 1 started text
    part 1 delta "Hi"
    source {"url":"https://a.example","title":"A"}
    part 1 annotated {"citation":{"type":"url_citation","url_citation":{"url":"https://a.example","title":"A","start_index":0,"end_index":2}}}
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

/// If the start tag is part of the prompt, only the end tag arrives. Text that was streamed by
/// then is annotated, so that it is not part of the answer.
#[test]
fn a_thought_with_only_its_end_tag() {
    let heard = read(&[
        chunk(json!({"content": "Hm\n"})),
        chunk(json!({"content": "</think>\n\nHi"})),
        finish("stop"),
    ]);
    assert_snapshot!(heard.lines(), @r#"
    part 0 started text
    part 0 delta "Hm\n"
    part 0 annotated preamble
    part 0 finished
    part 1 started text
    part 1 delta "Hi"
    part 1 finished
    stop ["end_turn",null]
    "#);
    let body = json!({"choices": [{"message": {"content": "Hm\n</think>\n\nHi"}, "finish_reason": "stop"}]});
    let heard = whole(Reader::default(), &body.to_string());
    assert_eq!(texts(&heard), ["thought Hm\n", "text Hi"]);
}
