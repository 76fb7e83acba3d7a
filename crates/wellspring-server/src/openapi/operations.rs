//! What is said of each route: what it is for, what it takes and what it answers.

use axum::http::Method;
use serde_json::{Value, json};
use wellspring_wire::DialectName;
use wellspring_wire::record::KINDS;

use super::schemas::{count, event_id, list, object, optional, part, schema, uuid};

/// What anything may answer.
pub(super) const COMMON_ERRORS: &[&str] = &["400", "401", "403", "429", "500", "503"];

/// What is said of one route.
#[derive(Default)]
pub(super) struct Described {
    pub(super) id: &'static str,
    pub(super) summary: &'static str,
    pub(super) parameters: Vec<Value>,
    pub(super) body: Option<Value>,
    pub(super) body_required: bool,
    pub(super) responses: Vec<(&'static str, &'static str, Value)>,
    pub(super) errors: &'static [&'static str],
}

pub(super) fn describe(method: &Method, path: &str) -> Described {
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
                    "reasoning",
                    "Whether the model's reasoning is sent, in dialects that have it.",
                    json!({ "enum": ["shown", "hidden"], "default": "shown" }),
                ),
                query(
                    "usage",
                    "Whether spent tokens are sent, in dialects that have them.",
                    json!({ "enum": ["included", "omitted"], "default": "included" }),
                ),
                query(
                    "kinds",
                    "For the dialect `record`: only these kinds, separated by commas.",
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
        ("GET", "/page/style.css") => plain("readStyle", "The page's style sheet.", "text/css"),
        ("GET", "/page/app.js") => script("readApp", "The page's script."),
        ("GET", "/page/client.js") => script("readClient", "AgentEvent over SSE, for any page."),
        ("GET", "/page/dom.js") => script("readDom", "The page's elements and Markdown."),
        ("GET", "/page/form.js") => script("readForm", "The page's forms for questions."),
        ("GET", "/page/outbox.js") => script("readOutbox", "Messages not sent yet."),
        ("GET", "/page/records.js") => script("readRecords", "The fold from records to a view."),
        ("GET", "/page/streams.js") => script("readStreams", "Streams shared by all tabs."),
        ("GET", "/page/worker.js") => script("readWorker", "The worker that tabs share."),
        _ => Described::default(),
    }
}

fn script(id: &'static str, summary: &'static str) -> Described {
    plain(id, summary, "text/javascript")
}

fn plain(id: &'static str, summary: &'static str, media_type: &str) -> Described {
    let mut content = json!({});
    content[media_type] = json!({ "schema": {} });
    let responses = vec![("200", "It.", content)];
    Described { id, summary, responses, ..Described::default() }
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
