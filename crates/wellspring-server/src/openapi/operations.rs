//! The OpenAPI description of each route: its purpose, parameters, body and responses.

use axum::http::Method;
use serde_json::{Value, json};
use wellspring_wire::DialectName;
use wellspring_wire::record::KINDS;

use super::schemas::{count, event_id, list, object, optional, part, schema, uuid};

/// Errors that any route may return.
pub(super) const COMMON_ERRORS: &[&str] = &["400", "401", "403", "429", "500", "503"];

/// The description of one route.
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
    let accepted = ("202", "Stored. The run will apply it.", json_content(schema("Accepted")));
    match (method.as_str(), path) {
        ("GET", "/v1/agents") => Described {
            id: "listAgents",
            summary: "Lists the agents.",
            responses: vec![ok("The agents.", schema("Agents"))],
            ..Described::default()
        },
        ("POST", "/v1/runs") => Described {
            id: "startRun",
            summary: "Starts a run. The response is the run, or, with `Accept: text/event-stream`, \
                its events.",
            parameters: vec![dialect(), model(), idempotency_key()],
            body: Some(schema("Start")),
            body_required: true,
            responses: vec![
                ("201", "The run has started.", run_or_events()),
                (
                    "200",
                    "A request with the same key had started it; or its events.",
                    run_or_events(),
                ),
            ],
            errors: &["404", "408", "409", "413", "422"],
        },
        ("GET", "/v1/runs") => Described {
            id: "listRuns",
            summary: "Lists your runs, newest first.",
            parameters: vec![
                query("thread", "Only runs of this thread.", uuid()),
                query("agent", "Only runs of this agent.", json!({ "type": "string" })),
                query("state", "Only runs in this state.", schema("RunState")),
                query(
                    "since",
                    "Only runs created at this Unix time or later, in milliseconds.",
                    count(),
                ),
                query(
                    "before",
                    "Only runs created before this Unix time, in milliseconds.",
                    count(),
                ),
                query("after", "The `next` of the previous page.", uuid()),
                limit(),
            ],
            responses: vec![ok("A page of runs.", schema("Runs"))],
            errors: &["404"],
            ..Described::default()
        },
        ("GET", "/v1/runs/{run}") => Described {
            id: "readRun",
            summary: "A run's current state.",
            responses: vec![ok("The run.", schema("RunDetail"))],
            errors: &["404"],
            ..Described::default()
        },
        ("DELETE", "/v1/runs/{run}") => Described {
            id: "deleteRun",
            summary: "Deletes a finished run.",
            responses: vec![("204", "Deleted.", Value::Null)],
            errors: &["404", "409"],
            ..Described::default()
        },
        ("GET", "/v1/runs/{run}/export") => Described {
            id: "exportRun",
            summary: "All records of the run so far, one per line.",
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
            summary: "A run's events: a stream that can be resumed after any `id`, or, with \
                `Accept: application/json`, a page.",
            parameters: vec![
                query("after", "The id of the last event that the client has.", event_id()),
                json!({
                    "name": "Last-Event-ID",
                    "in": "header",
                    "description": "The id of the last event that the client has. Overrides `after`.",
                    // Some browsers send an empty one at first.
                    "schema": { "anyOf": [event_id(), { "const": "" }] },
                }),
                dialect(),
                query(
                    "reasoning",
                    "Whether to send the model's reasoning, in dialects that have it.",
                    json!({ "enum": ["shown", "hidden"], "default": "shown" }),
                ),
                query(
                    "usage",
                    "Whether to send token usage, in dialects that have it.",
                    json!({ "enum": ["included", "omitted"], "default": "included" }),
                ),
                query(
                    "sub_agents",
                    "For the dialect `agent_event`: whether to send a sub-agent's thoughts too.",
                    json!({ "enum": ["words", "thoughts"], "default": "words" }),
                ),
                query(
                    "kinds",
                    "For the dialect `record`: only these kinds, separated by commas.",
                    json!({ "type": "string", "examples": [KINDS.join(",")] }),
                ),
                query(
                    "wait",
                    "Maximum time in seconds that a page waits for an event.",
                    json!({ "type": "number", "minimum": 0, "maximum": 60 }),
                ),
                query("as", "In a signed URL: the principal.", json!({ "type": "string" })),
                query("expires", "In a signed URL: when it expires.", count()),
                query("signature", "In a signed URL: the signature.", json!({ "type": "string" })),
            ],
            responses: vec![
                ("200", "Events.", {
                    let mut content = json_content(schema("EventPage"));
                    content["text/event-stream"] = json!({ "schema": {} });
                    content
                }),
                ("204", "The run has finished and the client has all of its events.", Value::Null),
            ],
            errors: &["404", "409"],
            ..Described::default()
        },
        ("POST", "/v1/runs/{run}/stream-url") => Described {
            id: "signStream",
            summary: "Creates a URL that opens the run's stream without a header until it \
                expires, for a browser's `EventSource`.",
            body: Some(json!({
                "type": "object",
                "properties": {
                    "seconds": { "type": ["integer", "null"], "minimum": 1, "maximum": 3600 },
                },
                "additionalProperties": false,
            })),
            responses: vec![ok(
                "The URL.",
                object(&[("url", json!({ "type": "string" })), ("expires_at", count())]),
            )],
            errors: &["404", "408", "413"],
            ..Described::default()
        },
        ("POST", "/v1/runs/{run}/cancel") => Described {
            id: "cancelRun",
            summary: "Cancels a run, in any process.",
            body: Some(json!({
                "type": "object",
                "properties": {
                    "when": { "enum": ["now", "after_turn"] },
                    "why": { "type": ["string", "null"] },
                },
                "additionalProperties": false,
            })),
            responses: vec![accepted, ok("The run had already finished.", schema("Run"))],
            errors: &["404", "408", "413"],
            ..Described::default()
        },
        ("POST", "/v1/runs/{run}/tool-results") => Described {
            id: "finishCall",
            summary: "Sends the result of a tool call that ran in the client.",
            body: Some(json!({
                "type": "object",
                "properties": {
                    "call": part(),
                    "output": {},
                    "is_error": { "type": "boolean" },
                    "amend": schema("Amend"),
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
            summary: "Answers a question of the run. The first answer counts.",
            body: Some(json!({
                "type": "object",
                "properties": {
                    "question": part(),
                    "answer": schema("Answer"),
                    "amend": schema("Amend"),
                },
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
            summary: "Adds input to a run, or changes its request. The model gets it from its next \
                turn on. Requires `content`, `amend` or both.",
            parameters: vec![idempotency_key()],
            body: Some(json!({
                "type": "object",
                "properties": { "content": schema("Input"), "amend": schema("Amend") },
                "anyOf": [{ "required": ["content"] }, { "required": ["amend"] }],
                "additionalProperties": false,
            })),
            body_required: true,
            responses: vec![accepted],
            errors: &["404", "408", "409", "413", "422"],
        },
        ("GET", "/v1/threads") => Described {
            id: "listThreads",
            summary: "Lists your threads, the one with the newest run first.",
            parameters: vec![
                query(
                    "search",
                    "Only threads that contain, for each of these words, a word that begins \
                    with it: in the title or in the text of a finished run.",
                    json!({ "type": "string" }),
                ),
                query(
                    "archived",
                    "If true, only archived threads; otherwise only the others.",
                    json!({ "type": "boolean" }),
                ),
                query("after", "The `next` of the previous page.", uuid()),
                limit(),
            ],
            responses: vec![ok("A page of threads.", schema("Threads"))],
            errors: &["404"],
            ..Described::default()
        },
        ("PATCH", "/v1/threads/{thread}") => Described {
            id: "changeThread",
            summary: "Sets a thread's title, archives or restores it. An empty title restores \
                the default, the first words of its first run.",
            body: Some(json!({
                "type": "object",
                "properties": {
                    "title": { "type": ["string", "null"], "maxLength": 200 },
                    "archived": { "type": ["boolean", "null"] },
                },
                "additionalProperties": false,
            })),
            body_required: true,
            responses: vec![ok("The thread.", schema("Thread"))],
            errors: &["404", "408", "413"],
            ..Described::default()
        },
        ("DELETE", "/v1/threads/{thread}") => Described {
            id: "deleteThread",
            summary: "Deletes a thread with all its runs, which must have finished.",
            responses: vec![("204", "Deleted.", Value::Null)],
            errors: &["404", "409"],
            ..Described::default()
        },
        ("GET", "/v1/threads/{thread}") => Described {
            id: "readThread",
            summary: "A thread's newest runs, oldest first. `after` is the run that each one \
                continues, and `next` the position of the runs before them.",
            parameters: vec![query("after", "The `next` of the previous page.", uuid()), limit()],
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
            summary: "The audit log: who answered, cancelled and deleted what, newest first, \
                also for deleted runs.",
            parameters: vec![query("after", "The `next` of the previous page.", count()), limit()],
            responses: vec![ok(
                "A page of entries.",
                object(&[("entries", list(schema("Decision"))), ("next", optional(count()))]),
            )],
            errors: &[],
            ..Described::default()
        },
        ("POST", "/ag-ui/{agent}") => Described {
            id: "runAgUi",
            summary: "AG-UI 1.0: runs an agent, answers a waiting run, or attaches to a run whose \
                `runId` is known. The response is the protocol's events, as SSE or protobuf.",
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
            summary: "AG-UI 1.0: attaches to a run, by the client's id or ours.",
            responses: vec![("200", "The run's events.", ag_ui_events())],
            errors: &["404"],
            ..Described::default()
        },
        ("POST", "/ag-ui/{agent}/runs/{run}/cancel") => Described {
            id: "cancelAgUi",
            summary: "Cancels a run, by the client's id or ours.",
            responses: vec![(
                "202",
                "Stored. The run will stop.",
                json_content(json!({ "type": "object" })),
            )],
            errors: &["404"],
            ..Described::default()
        },
        ("POST", "/ai-sdk/{agent}") => Described {
            id: "chatAiSdk",
            summary: "The AI SDK's chat request: sends a message, answers a waiting run, or \
                regenerates an answer. The response is a UI message stream.",
            body: Some(json!({
                "type": "object",
                "properties": {
                    "id": { "type": "string", "minLength": 1, "maxLength": 255 },
                    "messages": list(json!({ "type": "object" })),
                    "trigger": { "enum": ["submit-message", "regenerate-message"] },
                    "messageId": { "type": "string" },
                },
                "required": ["id", "messages"],
            })),
            body_required: true,
            responses: vec![("200", "The message.", ui_message_stream())],
            errors: &["404", "408", "409", "413"],
            ..Described::default()
        },
        ("GET", "/ai-sdk/{agent}/{chat}/stream") => Described {
            id: "resumeAiSdk",
            summary: "The AI SDK's resumption: the current message from its beginning.",
            parameters: vec![query(
                "finished",
                "Whether to send the last message even if its run has ended.",
                json!({ "type": "boolean", "default": false }),
            )],
            responses: vec![
                ("200", "The message.", ui_message_stream()),
                ("204", "No run of this chat is active.", Value::Null),
            ],
            errors: &["404"],
            ..Described::default()
        },
        ("POST", "/ai-sdk/{agent}/{chat}/stop") => Described {
            id: "stopAiSdk",
            summary: "Stops the run of a chat. (Closing the connection does not stop it.)",
            responses: vec![(
                "202",
                "Whether a run was stopped.",
                json_content(object(&[("stopped", json!({ "type": "boolean" }))])),
            )],
            errors: &["404"],
            ..Described::default()
        },
        ("GET", "/ai-sdk/{agent}/socket") => Described {
            id: "socketAiSdk",
            summary: "A WebSocket for the AI SDK's `WebSocketChatTransport`.",
            responses: vec![("101", "The socket is open.", Value::Null)],
            errors: &["404", "426"],
            ..Described::default()
        },
        ("GET", "/v1/socket") => Described {
            id: "openSocket",
            summary: "A WebSocket: many runs on one connection. docs/server.md describes its \
                messages.",
            responses: vec![("101", "The socket is open.", Value::Null)],
            errors: &["426"],
            ..Described::default()
        },
        ("GET", "/use-ai") => Described {
            id: "openUseAiSocket",
            summary: "A WebSocket for use-ai's clients. docs/use-ai.md describes its messages.",
            responses: vec![("101", "The socket is open.", Value::Null)],
            errors: &["426"],
            ..Described::default()
        },
        ("GET", "/socket.io/") => Described {
            id: "pollSocketIo",
            summary: "Socket.IO 4, for use-ai's clients: opens a session, polls for its packets, \
                or upgrades it to a WebSocket.",
            responses: vec![
                ("200", "Packets.", Value::Null),
                ("101", "The socket is open.", Value::Null),
            ],
            errors: &["400", "426"],
            ..Described::default()
        },
        ("POST", "/socket.io/") => Described {
            id: "pushSocketIo",
            summary: "Socket.IO 4, for use-ai's clients: sends packets of a polling session.",
            responses: vec![("200", "Accepted.", Value::Null)],
            errors: &["400", "408", "413"],
            ..Described::default()
        },
        ("GET", "/healthz") => plain("isAlive", "Whether the process is alive.", "text/plain"),
        ("GET", "/readyz") => {
            plain("isReady", "Whether the server accepts requests.", "text/plain")
        }
        ("GET", "/metrics") => {
            plain("readMetrics", "Metrics in Prometheus' text format.", "text/plain")
        }
        ("GET", "/openapi.json") => {
            plain("readDescription", "This OpenAPI description.", "application/json")
        }
        ("GET", "/") => plain("readPage", "A web page for talking to the agents.", "text/html"),
        ("GET", "/page/style.css") => plain("readStyle", "The page's style sheet.", "text/css"),
        ("GET", "/page/app.js") => script("readApp", "The page's script."),
        ("GET", "/page/client.js") => script("readClient", "AgentEvent over SSE, for any page."),
        ("GET", "/page/dom.js") => script("readDom", "The page's elements and Markdown."),
        ("GET", "/page/form.js") => script("readForm", "The page's forms for questions."),
        ("GET", "/page/outbox.js") => {
            script("readOutbox", "Storage for messages that were not sent yet.")
        }
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
    let responses = vec![("200", "The content.", content)];
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

fn ui_message_stream() -> Value {
    json!({ "text/event-stream": { "schema": {} } })
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
    query("limit", "Maximum number of items.", schema)
}

fn dialect() -> Value {
    let names = DialectName::ALL.map(DialectName::as_str);
    query("dialect", "The dialect of the events.", json!({ "enum": names, "default": "record" }))
}

fn model() -> Value {
    let about = "Another model of the agent's provider, if the agent allows it.";
    query("model", about, json!({ "type": "string" }))
}

fn idempotency_key() -> Value {
    json!({
        "name": "Idempotency-Key",
        "in": "header",
        "description": "Requests with the same key have one effect.",
        "schema": { "type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$" },
    })
}
