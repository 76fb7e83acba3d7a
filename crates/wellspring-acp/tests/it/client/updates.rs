//! An agent's updates become events of the run.

use serde_json::json;
use wellspring_core::RunRequest;

use super::kit::{play, shown, steps};

#[tokio::test]
async fn words_thoughts_calls_and_plans_are_in_the_run() {
    let agent = steps(json!([
        {"thought": "Hm."},
        {"text": "I look."},
        {"update": {"sessionUpdate": "tool_call", "toolCallId": "c", "title": "Look", "kind": "read",
            "status": "pending", "rawInput": {"path": "a"}}},
        {"update": {"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "completed",
            "content": [{"type": "content", "content": {"type": "text", "text": "a file"}}]}},
        {"update": {"sessionUpdate": "plan", "entries": [{"content": "one", "status": "in_progress"}]}},
        {"update": {"sessionUpdate": "current_mode_update", "currentModeId": "code"}},
        {"update": {"sessionUpdate": "usage_update", "used": 5, "size": 100}},
        {"update": {"sessionUpdate": "from_the_future", "x": 1}},
        {"text": "Done."},
        {"stop": {"stopReason": "max_tokens", "usage": {"totalTokens": 3, "inputTokens": 1, "outputTokens": 2}}},
    ]));
    let records = play(agent, RunRequest::text("go")).await;
    insta::assert_snapshot!(shown(&records), @r#"
    part 0 started thought
    part 0 delta "Hm."
    part 0 finished
    part 1 started text
    part 1 delta "I look."
    part 1 finished
    part 2 started call read on agent
    part 2 annotated {"provider_id":"c"}
    part 2 delta "{\"path\":\"a\"}"
    part 2 finished
    tool 2 started parallel
    tool 2 finished ok "a file" [{"content":{"text":"a file"}}]
    plan [in_progress] one
    extended acp current_mode_update {"sessionUpdate":"current_mode_update","currentModeId":"code"}
    usage 0 in, 0 out
    extended acp from_the_future {"sessionUpdate":"from_the_future","x":1}
    part 3 started text
    part 3 delta "Done."
    part 3 finished
    usage 1 in, 2 out
    run finished completed max_tokens
    "#);
}

#[tokio::test]
async fn an_agent_is_told_who_it_is_what_is_asked_and_what_is_around() {
    use wellspring_core::{Content, ContextNote};
    let mut agent = steps(json!([{"tell": true}]));
    agent.instructions = "Be brief.".into();
    let request = RunRequest {
        input: vec![
            Content::text("Read this:"),
            Content::Resource { uri: "file:///a".into(), text: "A".into(), media_type: None },
            Content::Link { uri: "https://example.com/b".into(), name: None, media_type: None },
        ],
        context: vec![ContextNote { description: "Page".into(), value: "home".into() }],
        ..RunRequest::default()
    };
    let records = play(agent, request).await;
    let told: serde_json::Value = serde_json::from_str(&super::kit::words(&records)).unwrap();
    assert_eq!(
        told,
        json!([
            {"type": "text", "text": "Be brief."},
            {"type": "text", "text": "Page:\nhome"},
            {"type": "text", "text": "Read this:"},
            {"type": "text", "text": "file:///a:\nA"},
            {"type": "resource_link", "uri": "https://example.com/b", "name": "b"},
        ])
    );
}
