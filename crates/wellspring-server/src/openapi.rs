//! The API described, in OpenAPI 3.1: made of the table of routes, so that none is missing.

use std::sync::OnceLock;

use axum::http::Method;
use serde_json::{Map, Value, json};
use wellspring_wire::DialectName;

use crate::auth::TokenScope;
use crate::kind::KINDS;
use crate::surfaces::{Route, routes};

/// The description as it is served.
pub(crate) fn text() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| description(&routes()).to_string())
}

fn description(routes: &[Route]) -> Value {
    let mut paths = Map::new();
    for route in routes {
        let operations = paths.entry(route.path).or_insert_with(|| json!({}));
        operations[route.method.as_str().to_ascii_lowercase()] = operation(route);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Wellspring",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Runs of agents: started, watched from anywhere, answered, stopped. \
                A closed connection changes nothing; reading on after the last id misses nothing.",
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "paths": paths,
        "components": {
            "schemas": schemas(),
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
    })
}

fn operation(route: &Route) -> Value {
    let what = describe(&route.method, route.path);
    let mut responses = Map::new();
    for (status, description, content) in what.responses {
        let mut response = json!({ "description": description });
        if !content.is_null() {
            response["content"] = content;
        }
        responses.insert(status.to_owned(), response);
    }
    let error = json!({
        "description": "What went wrong, and what to do about it.",
        "content": { "application/json": { "schema": schema("Error") } },
    });
    for status in what.errors.iter().chain(COMMON_ERRORS) {
        responses.entry(*status).or_insert_with(|| error.clone());
    }
    let mut parameters = what.parameters;
    for name in ["run", "thread", "agent"] {
        if route.path.contains(&format!("{{{name}}}")) {
            let text = json!({ "type": "string" });
            parameters
                .push(json!({ "name": name, "in": "path", "required": true, "schema": text }));
        }
    }
    let mut operation = json!({
        "operationId": what.id,
        "summary": what.summary,
        "parameters": parameters,
        "responses": responses,
    });
    if let Some(body) = what.body {
        operation["requestBody"] = json!({
            "required": what.body_required,
            "content": { "application/json": { "schema": body } },
        });
    }
    if let Some(scope) = route.scope {
        operation["security"] = json!([{ "token": [] }]);
        operation["x-scope"] = json!(scope.as_str());
        if scope != TokenScope::Read {
            operation["description"] = json!(format!("Needs the scope `{}`.", scope.as_str()));
        }
    }
    operation
}

/// What anything may answer.
const COMMON_ERRORS: &[&str] = &["400", "401", "403", "429", "500", "503"];

/// What is said of one route.
#[derive(Default)]
struct Described {
    id: &'static str,
    summary: &'static str,
    parameters: Vec<Value>,
    body: Option<Value>,
    body_required: bool,
    responses: Vec<(&'static str, &'static str, Value)>,
    errors: &'static [&'static str],
}

fn describe(method: &Method, path: &str) -> Described {
    let ok = |description, schema: Value| ("200", description, json_content(schema));
    let accepted =
        ("202", "It is durable, and the run will see it.", json_content(schema("Accepted")));
    match (method.as_str(), path) {
        ("GET", "/v1/agents") => Described {
            id: "listAgents",
            summary: "The agents that can be asked.",
            responses: vec![ok("The agents.", schema("Agents"))],
            ..Described::default()
        },
        ("POST", "/v1/runs") => Described {
            id: "startRun",
            summary: "Starts a run. The answer is the run, or its events straight away where \
                `Accept: text/event-stream` asks for them.",
            parameters: vec![dialect(), model(), idempotency_key()],
            body: Some(schema("Start")),
            body_required: true,
            responses: vec![
                ("201", "The run has started.", run_or_events()),
                ("200", "The key had started it before; or its events.", run_or_events()),
            ],
            errors: &["404", "408", "409", "413", "422"],
        },
        ("GET", "/v1/runs") => Described {
            id: "listRuns",
            summary: "Your runs, newest first.",
            parameters: vec![
                query("thread", "Only of this thread.", uuid()),
                query("agent", "Only of this agent.", json!({ "type": "string" })),
                query("state", "Only in this state.", schema("RunState")),
                query("since", "Created then or later, in milliseconds.", count()),
                query("before", "Created before then, in milliseconds.", count()),
                query("after", "The `next` of the page before.", uuid()),
                limit(),
            ],
            responses: vec![ok("A page of runs.", schema("Runs"))],
            errors: &["404"],
            ..Described::default()
        },
        ("GET", "/v1/runs/{run}") => Described {
            id: "readRun",
            summary: "A run as it stands.",
            responses: vec![ok("The run.", schema("RunDetail"))],
            errors: &["404"],
            ..Described::default()
        },
        ("DELETE", "/v1/runs/{run}") => Described {
            id: "deleteRun",
            summary: "Deletes a run that is over.",
            responses: vec![("204", "It is gone.", Value::Null)],
            errors: &["404", "409"],
            ..Described::default()
        },
        ("GET", "/v1/runs/{run}/export") => Described {
            id: "exportRun",
            summary: "Every record that the run has now, one per line.",
            responses: vec![(
                "200",
                "The records.",
                json!({ "application/x-ndjson": { "schema": { "type": "string" } } }),
            )],
            errors: &["404"],
            ..Described::default()
        },
        ("GET", "/v1/runs/{run}/events") => Described {
            id: "readEvents",
            summary: "A run's events: a stream that can be resumed after any `id`, or pages of \
                them where only `Accept: application/json` is asked for.",
            parameters: vec![
                query("after", "The last id that was seen.", event_id()),
                json!({
                    "name": "Last-Event-ID",
                    "in": "header",
                    "description": "The last id that was seen; it counts more than `after`.",
                    // Some send an empty one before they have seen anything.
                    "schema": { "anyOf": [event_id(), { "const": "" }] },
                }),
                dialect(),
                query(
                    "kinds",
                    "Of the records, only these kinds; separated by commas.",
                    json!({ "type": "string", "examples": [KINDS.join(",")] }),
                ),
                query(
                    "wait",
                    "How many seconds a page may wait for an event.",
                    json!({ "type": "number", "minimum": 0, "maximum": 60 }),
                ),
                query("as", "Of a signed address: whose.", json!({ "type": "string" })),
                query("expires", "Of a signed address: until when.", count()),
                query("signature", "Of a signed address: its proof.", json!({ "type": "string" })),
            ],
            responses: vec![
                ("200", "Events.", {
                    let mut content = json_content(schema("EventPage"));
                    content["text/event-stream"] = json!({ "schema": {} });
                    content
                }),
                ("204", "The run is over and all of it was seen.", Value::Null),
            ],
            errors: &["404", "409"],
            ..Described::default()
        },
        ("POST", "/v1/runs/{run}/stream-url") => Described {
            id: "signStream",
            summary: "An address that opens the run's stream for a while without a header, for \
                a browser's `EventSource`.",
            body: Some(json!({
                "type": "object",
                "properties": {
                    "seconds": { "type": ["integer", "null"], "minimum": 1, "maximum": 3600 },
                },
                "additionalProperties": false,
            })),
            responses: vec![ok(
                "The address.",
                object(&[("url", json!({ "type": "string" })), ("expires_at", count())]),
            )],
            errors: &["404", "408", "413"],
            ..Described::default()
        },
        ("POST", "/v1/runs/{run}/cancel") => Described {
            id: "cancelRun",
            summary: "Stops a run, wherever it runs.",
            body: Some(json!({
                "type": "object",
                "properties": {
                    "when": { "enum": ["now", "after_turn"] },
                    "why": { "type": ["string", "null"] },
                },
                "additionalProperties": false,
            })),
            responses: vec![accepted, ok("It was over already.", schema("Run"))],
            errors: &["404", "408", "413"],
            ..Described::default()
        },
        ("POST", "/v1/runs/{run}/tool-results") => Described {
            id: "finishCall",
            summary: "The result of a call that ran in the client.",
            body: Some(json!({
                "type": "object",
                "properties": {
                    "call": part(),
                    "output": {},
                    "is_error": { "type": "boolean" },
                },
                "required": ["call", "output"],
                "additionalProperties": false,
            })),
            body_required: true,
            responses: vec![accepted],
            errors: &["404", "408", "409", "413"],
            ..Described::default()
        },
        ("POST", "/v1/runs/{run}/answers") => Described {
            id: "answerQuestion",
            summary: "The answer to a question of the run. The first one counts.",
            body: Some(json!({
                "type": "object",
                "properties": { "question": part(), "answer": schema("Answer") },
                "required": ["question", "answer"],
                "additionalProperties": false,
            })),
            body_required: true,
            responses: vec![accepted],
            errors: &["404", "408", "409", "413"],
            ..Described::default()
        },
        ("POST", "/v1/runs/{run}/input") => Described {
            id: "addInput",
            summary: "Adds to what the run was asked; the model sees it from its next turn on.",
            parameters: vec![idempotency_key()],
            body: Some(json!({
                "type": "object",
                "properties": { "content": schema("Input") },
                "required": ["content"],
                "additionalProperties": false,
            })),
            body_required: true,
            responses: vec![accepted],
            errors: &["404", "408", "409", "413"],
        },
        ("GET", "/v1/threads") => Described {
            id: "listThreads",
            summary: "Your threads, the one with the newest run first.",
            parameters: vec![query("after", "The `next` of the page before.", uuid()), limit()],
            responses: vec![ok("A page of threads.", schema("Threads"))],
            errors: &["404"],
            ..Described::default()
        },
        ("GET", "/v1/threads/{thread}") => Described {
            id: "readThread",
            summary: "A thread's newest runs, oldest first; `after` says which run each \
                continues, and `next` leads to the runs before them.",
            parameters: vec![query("after", "The `next` of the page before.", uuid()), limit()],
            responses: vec![ok(
                "The thread.",
                object(&[
                    ("thread", uuid()),
                    ("runs", list(schema("Run"))),
                    ("next", optional(uuid())),
                ]),
            )],
            errors: &["404"],
            ..Described::default()
        },
        ("GET", "/v1/audit") => Described {
            id: "readAudit",
            summary: "Who answered, cancelled and deleted what, newest first; also of runs that \
                are gone.",
            parameters: vec![query("after", "The `next` of the page before.", count()), limit()],
            responses: vec![ok(
                "A page of decisions.",
                object(&[("entries", list(schema("Decision"))), ("next", optional(count()))]),
            )],
            errors: &[],
            ..Described::default()
        },
        ("POST", "/ag-ui/{agent}") => Described {
            id: "runAgUi",
            summary: "AG-UI 1.0: runs an agent, answers a run that waits, or attaches to a run \
                whose `runId` is known. The answer is the protocol's events, as SSE or protobuf.",
            parameters: vec![model()],
            body: Some(json!({
                "type": "object",
                "properties": {
                    "threadId": { "type": "string" },
                    "runId": { "type": "string" },
                    "messages": list(json!({ "type": "object" })),
                },
                "required": ["threadId", "runId", "messages"],
            })),
            body_required: true,
            responses: vec![("200", "The run's events.", ag_ui_events())],
            errors: &["404", "408", "409", "413"],
        },
        ("GET", "/ag-ui/{agent}/runs/{run}") => Described {
            id: "attachAgUi",
            summary: "AG-UI 1.0: attaches to a run, by the client's name of it or by ours.",
            responses: vec![("200", "The run's events.", ag_ui_events())],
            errors: &["404"],
            ..Described::default()
        },
        ("POST", "/ag-ui/{agent}/runs/{run}/cancel") => Described {
            id: "cancelAgUi",
            summary: "Stops a run, by the client's name of it or by ours.",
            responses: vec![("202", "It will stop.", json_content(json!({ "type": "object" })))],
            errors: &["404"],
            ..Described::default()
        },
        ("GET", "/healthz") => plain("isAlive", "Whether the server is alive.", "text/plain"),
        ("GET", "/readyz") => plain("isReady", "Whether to send requests here.", "text/plain"),
        ("GET", "/metrics") => {
            plain("readMetrics", "What operators watch, for Prometheus.", "text/plain")
        }
        ("GET", "/openapi.json") => {
            plain("readDescription", "This description.", "application/json")
        }
        ("GET", "/") => plain("readPage", "A page to talk to the agents.", "text/html"),
        ("GET", "/page/style.css") => plain("readStyle", "How the page looks.", "text/css"),
        ("GET", "/page/client.js") => {
            plain("readClient", "AgentEvent over SSE, for pages.", "text/javascript")
        }
        ("GET", "/page/app.js") => plain("readApp", "What the page does.", "text/javascript"),
        _ => Described::default(),
    }
}

fn plain(id: &'static str, summary: &'static str, media_type: &str) -> Described {
    let mut content = json!({});
    content[media_type] = json!({ "schema": {} });
    let responses = vec![("200", "It.", content)];
    Described { id, summary, responses, ..Described::default() }
}

fn schemas() -> Value {
    let text = || json!({ "type": "string" });
    let any = || json!({});
    let content = json!({
        "description": "A block: words, a medium, a link, or a text from somewhere.",
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
                "thread": { "type": ["string", "null"], "description": "The thread to go on with." },
                "after": { "type": ["string", "null"], "description": "The run to continue." },
                "model": { "type": ["string", "null"] },
                "streaming": { "type": ["boolean", "null"] },
                "result_schema": { "description": "The JSON schema of the typed result." },
                "client_tools": list(json!({
                    "type": "object",
                    "properties": { "name": text(), "description": text(), "parameters": {} },
                    "required": ["name"],
                })),
                "context": list(object(&[("description", text()), ("value", text())])),
                "state": { "description": "The state shared with the screen." },
            },
            "required": ["agent", "input"],
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
            ("threads", list(object(&[
                ("thread", uuid()),
                ("agent", text()),
                ("title", text()),
                ("state", schema("RunState")),
                ("latest_run", uuid()),
                ("updated_at", count()),
            ]))),
            ("next", optional(uuid())),
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
                    "arguments": { "description": "Instead of the model's." },
                },
            })),
            one("deny", json!({
                "type": "object",
                "properties": {
                    "reason": { "type": ["string", "null"] },
                    "scope": {
                        "enum": ["once", "thread", "always"],
                        "description": "For a remote agent that offers to remember a no.",
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

fn schema(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

fn json_content(schema: Value) -> Value {
    json!({ "application/json": { "schema": schema } })
}

fn run_or_events() -> Value {
    let started = json!({
        "allOf": [
            schema("Run"),
            { "type": "object", "properties": { "events": { "type": "string" } } },
        ],
    });
    let mut content = json_content(started);
    content["text/event-stream"] = json!({ "schema": {} });
    content
}

fn ag_ui_events() -> Value {
    json!({
        "text/event-stream": { "schema": {} },
        "application/vnd.ag-ui.event+proto": { "schema": {} },
    })
}

/// An object with exactly these members, all of them there.
fn object(members: &[(&str, Value)]) -> Value {
    let names: Vec<_> = members.iter().map(|(name, _)| *name).collect();
    let members: Map<_, _> =
        members.iter().map(|(name, schema)| ((*name).to_owned(), schema.clone())).collect();
    json!({ "type": "object", "properties": members, "required": names })
}

/// One of several forms, named by its only member.
fn one(name: &str, schema: Value) -> Value {
    let mut form = object(&[(name, schema)]);
    form["additionalProperties"] = json!(false);
    form
}

fn list(items: Value) -> Value {
    json!({ "type": "array", "items": items })
}

fn optional(schema: Value) -> Value {
    json!({ "oneOf": [schema, { "type": "null" }] })
}

fn uuid() -> Value {
    json!({ "type": "string", "format": "uuid" })
}

fn count() -> Value {
    json!({ "type": "integer", "minimum": 0, "maximum": u64::MAX })
}

/// A record's number, or an event's within it.
fn event_id() -> Value {
    json!({ "type": "string", "pattern": "^[0-9]{1,9}([.][0-9]{1,4})?$" })
}

fn part() -> Value {
    json!({ "type": "integer", "minimum": 0, "maximum": u32::MAX })
}

fn query(name: &str, description: &str, schema: Value) -> Value {
    json!({ "name": name, "in": "query", "description": description, "schema": schema })
}

fn limit() -> Value {
    let schema = json!({ "type": "integer", "minimum": 1, "maximum": 200, "default": 50 });
    query("limit", "How many at most.", schema)
}

fn dialect() -> Value {
    let names = DialectName::ALL.map(DialectName::as_str);
    query("dialect", "In whose words.", json!({ "enum": names, "default": "record" }))
}

fn model() -> Value {
    let about = "Another model of the agent's provider, where the agent allows it.";
    query("model", about, json!({ "type": "string" }))
}

fn idempotency_key() -> Value {
    json!({
        "name": "Idempotency-Key",
        "in": "header",
        "description": "However often it is sent with the same key, it counts once.",
        "schema": { "type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$" },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_is_described() {
        let undescribed: Vec<_> = routes()
            .iter()
            .filter(|route| describe(&route.method, route.path).id.is_empty())
            .map(|route| format!("{} {}", route.method, route.path))
            .collect();
        assert_eq!(undescribed, [""; 0]);
    }

    #[test]
    fn operations_have_names_of_their_own() {
        let mut names: Vec<_> =
            routes().iter().map(|route| describe(&route.method, route.path).id).collect();
        names.sort_unstable();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
