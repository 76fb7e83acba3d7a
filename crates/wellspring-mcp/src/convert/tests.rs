use std::time::Duration;

use serde_json::json;
use wellspring_core::ToolTimeouts;

use super::*;

#[test]
fn hints_and_the_configuration() {
    let mut config = McpConfig::stdio("s", "x", [""; 0]);
    config.timeouts.call = ToolTimeouts { idle: Some(Duration::from_secs(5)), total: None };
    config.approval.insert("trusted".into(), Approval::Allow);
    let row = |config: &McpConfig, name: &str, hints: Value| {
        let (own, spec) = spec(config, "s", &json!({"name": name, "annotations": hints})).unwrap();
        assert_eq!((&*own, spec.timeouts), (name, config.timeouts.call));
        (spec.kind, spec.mode, spec.approval(), spec.idempotent)
    };
    use {Approval::*, ToolKind::*, ToolMode::*};
    for (name, hints, want) in [
        ("t", json!(null), (Other, Sequential, Ask, false)),
        ("t", json!({"readOnlyHint": true}), (Read, Parallel, Allow, true)),
        (
            "t",
            json!({"readOnlyHint": true, "destructiveHint": true}),
            (Read, Parallel, Allow, true),
        ),
        ("t", json!({"destructiveHint": true}), (Delete, Sequential, Ask, false)),
        ("t", json!({"destructiveHint": false}), (ToolKind::Edit, Sequential, Ask, false)),
        ("t", json!({"idempotentHint": true}), (Other, Sequential, Ask, true)),
        ("trusted", json!({"destructiveHint": true}), (Delete, Sequential, Allow, false)),
    ] {
        assert_eq!(row(&config, name, hints.clone()), want, "{name} {hints}");
    }
    config.approval_default = Some(Deny);
    assert_eq!(row(&config, "t", json!({"readOnlyHint": true})), (Read, Parallel, Deny, true));
    assert_eq!(row(&config, "trusted", json!(null)), (Other, Sequential, Allow, false));
}

#[test]
fn a_whole_spec() {
    let config = McpConfig::stdio("s", "x", [""; 0]);
    let schema = json!({"type": "object", "properties": {"a": {"type": "number"}}});
    let tool = json!({
        "name": "get-sum", "title": "Sum", "description": "d".repeat(DESCRIPTION_BYTES_MAX + 5),
        "inputSchema": schema, "annotations": {"title": "Not this"},
    });
    let (own, got) = spec(&config, "s", &tool).unwrap();
    let cut = format!("{}\n[... 5 bytes left out ...]", "d".repeat(DESCRIPTION_BYTES_MAX));
    let want = ToolSpec {
        parameters: schema.into(),
        title: Some("Sum".into()),
        mode: ToolMode::Sequential,
        approval: Some(Approval::Ask),
        ..ToolSpec::new("s__get-sum", cut)
    };
    assert_eq!((&*own, got), ("get-sum", want));
    assert_eq!(spec(&config, "s", &json!({"title": "nameless"})), None);
    let (_, bare) = spec(&config, "s", &json!({"name": "t", "inputSchema": true})).unwrap();
    assert_eq!(*bare.parameters, json!({"type": "object"}));
}

fn content(content: Content) -> ToolContent {
    ToolContent::Content(content)
}

fn media(media_type: &str, data: &str, name: Option<&str>) -> Content {
    Content::Media {
        media_type: media_type.into(),
        source: MediaSource::Data(data.into()),
        name: name.map(Into::into),
    }
}

#[test]
fn every_kind_of_block() {
    let got = result(&json!({"content": [
        {"type": "text", "text": "look:"},
        {"type": "image", "data": "aW1n", "mimeType": "image/gif"},
        {"type": "audio", "data": "c25k", "mimeType": "audio/ogg"},
        {"type": "resource", "resource": {"uri": "file:///a", "mimeType": "text/plain", "text": "A"}},
        {"type": "resource", "resource": {"uri": "file:///b", "blob": "Yg=="}},
        {"type": "resource_link", "uri": "file:///c", "name": "c", "mimeType": "text/csv"},
        {"type": "smell", "of": "cheese"},
    ]}))
    .unwrap();
    let text = "look:\n[image/gif]\n[audio/ogg]\nfile:///a:\nA\n\
        [application/octet-stream: file:///b]\nc: file:///c\n{\"type\":\"smell\",\"of\":\"cheese\"}";
    let want = ToolResult {
        output: text.into(),
        content: vec![
            content(Content::text("look:")),
            content(media("image/gif", "aW1n", None)),
            content(media("audio/ogg", "c25k", None)),
            content(Content::Resource {
                uri: "file:///a".into(),
                text: "A".into(),
                media_type: Some("text/plain".into()),
            }),
            content(media("application/octet-stream", "Yg==", Some("file:///b"))),
            content(Content::Link {
                uri: "file:///c".into(),
                name: Some("c".into()),
                media_type: Some("text/csv".into()),
            }),
            content(Content::text("{\"type\":\"smell\",\"of\":\"cheese\"}")),
        ],
        ..ToolResult::default()
    };
    assert_eq!(got, want);
}

#[test]
fn words_structure_and_errors() {
    let text = |text: &str| json!({"type": "text", "text": text});
    let words = result(&json!({"content": [text("a"), text("b")]})).unwrap();
    assert_eq!(words, ToolResult::new("a\nb"));
    let structured = json!({"content": [text("{}")], "structuredContent": {"n": 1}});
    let want = ToolResult {
        output: json!({"n": 1}),
        content: vec![content(Content::text("{}"))],
        ..ToolResult::default()
    };
    assert_eq!(result(&structured).unwrap(), want);
    // Too much structured content: only the text is used, and it is truncated.
    let long = "x".repeat(RESULT_BYTES_MAX + 1);
    let much = result(&json!({"content": [text(&long)], "structuredContent": [long]})).unwrap();
    let cut = format!("{}\n[... 1 bytes left out ...]", "x".repeat(RESULT_BYTES_MAX));
    assert_eq!(much, ToolResult::new(cut));
    let error = |value: Value| result(&value).unwrap_err().to_string();
    assert_eq!(error(json!({"content": [text("no")], "isError": true})), "no");
    assert_eq!(error(json!({"isError": true})), "the tool failed without an error message");
    assert_eq!(result(&json!({})).unwrap(), ToolResult::new(""));
}
