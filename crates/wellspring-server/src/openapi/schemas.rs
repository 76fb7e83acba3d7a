//! The schemas of requests and responses.

use serde_json::{Map, Value, json};

pub(super) fn schemas() -> Value {
    let text = || json!({ "type": "string" });
    let any = || json!({});
    let content = json!({
        "description": "A content block: text, media, a link, or an embedded document.",
        "oneOf": [
            one("text", text()),
            one("media", json!({
                "type": "object",
                "properties": {
                    "media_type": text(),
                    "source": { "oneOf": [one("data", text()), one("url", text())] },
                    "name": optional(text()),
                },
                "required": ["media_type", "source"],
            })),
            one("link", json!({
                "type": "object",
                "properties": { "uri": text(), "name": optional(text()), "media_type": optional(text()) },
                "required": ["uri"],
            })),
            one("resource", json!({
                "type": "object",
                "properties": { "uri": text(), "text": text(), "media_type": optional(text()) },
                "required": ["uri", "text"],
            })),
        ],
    });
    let run = [
        ("run", uuid()),
        ("thread", uuid()),
        ("agent", text()),
        ("after", optional(uuid())),
        ("title", text()),
        ("state", schema("RunState")),
        ("head", count()),
        ("created_at", count()),
        ("updated_at", count()),
    ];
    let detail = [
        ("input", json!({ "type": ["array", "null"], "items": schema("Content") })),
        ("answer", text()),
        ("result", any()),
        ("outcome", any()),
        ("usage", json!({ "type": "object" })),
        ("plan", list(json!({ "type": "object" }))),
        (
            "waits_for",
            object(&[
                ("questions", list(json!({ "type": "object" }))),
                ("calls", list(json!({ "type": "object" }))),
            ]),
        ),
    ];
    let client_tools = list(json!({
        "type": "object",
        "properties": { "name": text(), "description": text(), "parameters": {} },
        "required": ["name"],
    }));
    let context = list(object(&[("description", text()), ("value", text())]));
    json!({
        "Error": object(&[(
            "error",
            object(&[("code", text()), ("message", text()), ("remedy", text())]),
        )]),
        "Content": content,
        "Input": { "oneOf": [
            { "type": "string" },
            { "type": "array", "items": schema("Content"), "minItems": 1 },
        ] },
        "Start": {
            "type": "object",
            "properties": {
                "agent": text(),
                "input": schema("Input"),
                "thread": { "type": ["string", "null"], "description": "The thread to continue." },
                "after": { "type": ["string", "null"], "description": "The run to continue." },
                "model": { "type": ["string", "null"] },
                "streaming": { "type": ["boolean", "null"] },
                "result_schema": { "description": "The JSON schema of the typed result." },
                "client_tools": client_tools,
                "context": context,
                "state": { "description": "The state shared with the screen." },
            },
            "required": ["agent", "input"],
            "additionalProperties": false,
        },
        "Amend": {
            "description": "Changes to a run's request. Absent members stay as they were.",
            "type": ["object", "null"],
            "properties": {
                "client_tools": optional(client_tools),
                "context": optional(context),
                "state": { "description": "The state shared with the screen." },
            },
            "additionalProperties": false,
        },
        "RunState": { "enum": ["running", "paused", "completed", "cancelled", "failed"] },
        "Run": object(&run),
        "RunDetail": object(&run.iter().chain(&detail).cloned().collect::<Vec<_>>()),
        "Runs": object(&[("runs", list(schema("Run"))), ("next", optional(uuid()))]),
        "Agents": object(&[("agents", list(object(&[
            ("name", text()),
            ("description", text()),
            ("tools", list(text())),
            ("allows_model", json!({ "type": "boolean" })),
        ])))]),
        "Threads": object(&[
            ("threads", list(schema("Thread"))),
            ("next", optional(uuid())),
        ]),
        "Thread": object(&[
            ("thread", uuid()),
            ("agent", text()),
            ("title", text()),
            ("archived", json!({ "type": "boolean" })),
            ("runs", count()),
            ("state", schema("RunState")),
            ("latest_run", uuid()),
            ("created_at", count()),
            ("updated_at", count()),
        ]),
        "EventPage": object(&[
            ("events", list(object(&[("id", text()), ("data", any())]))),
            ("next", text()),
            ("done", json!({ "type": "boolean" })),
        ]),
        "Accepted": object(&[("inbox", count()), ("existed", json!({ "type": "boolean" }))]),
        "Answer": { "oneOf": [
            one("approve", json!({
                "type": "object",
                "properties": {
                    "scope": { "enum": ["once", "thread", "always"] },
                    "arguments": { "description": "Replaces the model's arguments." },
                },
            })),
            one("deny", json!({
                "type": "object",
                "properties": {
                    "reason": { "type": ["string", "null"] },
                    "scope": {
                        "enum": ["once", "thread", "always"],
                        "description": "For a remote agent that can remember a refusal.",
                    },
                },
            })),
            one("choose", list(text())),
            one("value", any()),
        ] },
        "Decision": {
            "type": "object",
            "properties": {
                "run": uuid(),
                "agent": text(),
                "did": { "enum": ["approve", "deny", "answer", "cancel", "delete"] },
                "question": count(),
                "prompt": optional(text()),
                "tool": optional(text()),
                "arguments": optional(text()),
                "answer": any(),
                "why": optional(text()),
                "by": text(),
                "at": count(),
            },
            "required": ["run", "agent", "did", "by", "at"],
        },
    })
}

pub(super) fn schema(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

/// An object with exactly these members, all of them required.
pub(super) fn object(members: &[(&str, Value)]) -> Value {
    let names: Vec<_> = members.iter().map(|(name, _)| *name).collect();
    let members: Map<_, _> =
        members.iter().map(|(name, schema)| ((*name).to_owned(), schema.clone())).collect();
    json!({ "type": "object", "properties": members, "required": names })
}

/// An object whose only member names one of several forms.
fn one(name: &str, schema: Value) -> Value {
    let mut form = object(&[(name, schema)]);
    form["additionalProperties"] = json!(false);
    form
}

pub(super) fn list(items: Value) -> Value {
    json!({ "type": "array", "items": items })
}

pub(super) fn optional(schema: Value) -> Value {
    json!({ "oneOf": [schema, { "type": "null" }] })
}

pub(super) fn uuid() -> Value {
    json!({ "type": "string", "format": "uuid" })
}

pub(super) fn count() -> Value {
    json!({ "type": "integer", "minimum": 0, "maximum": u64::MAX })
}

/// A position: `seq` or `seq.k`.
pub(super) fn event_id() -> Value {
    json!({ "type": "string", "pattern": "^[0-9]{1,9}([.][0-9]{1,4})?$" })
}

pub(super) fn part() -> Value {
    json!({ "type": "integer", "minimum": 0, "maximum": u32::MAX })
}
