//! AG-UI over HTTP, with two other implementations' verifiers over every stream.

use std::sync::Arc;

use reqwest::{Method, Response};
use serde_json::{Value, json};
use wellspring_core::{Approval, InboxNo, ToolSpec, Transcript};
use wellspring_engine::tools::{ask_user, from_function};
use wellspring_engine::{AgentDef, Permission, Policy, Rule, Runtime};
use wellspring_log::{AuditFilter, Log, RunFilter};
use wellspring_models::{Gate, Say, Scripted};
use wellspring_server::{ServerConfig, ServerLimits};
use wellspring_wire::ag_ui::proto;

use crate::kit::{Kit, agent, config, echo, models, parts, verify_ag_ui};

/// A request as a client makes it.
pub(crate) fn input(thread: &str, run: &str, messages: Value) -> Value {
    json!({ "threadId": thread, "runId": run, "messages": messages })
}

pub(crate) fn user(id: &str, text: &str) -> Value {
    json!({ "id": id, "role": "user", "content": text })
}

/// The events of a response, checked by both verifiers.
pub(crate) async fn events(response: Response) -> Vec<Value> {
    events_after(response, &json!([])).await
}

/// The same for a client that has some messages already.
pub(crate) async fn events_after(response: Response, messages: &Value) -> Vec<Value> {
    assert_eq!(response.status(), 200);
    verify_ag_ui(&response.text().await.unwrap(), messages)
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}

/// The text of one kind of message, as a client assembles it.
pub(crate) fn text(events: &[Value], kind: &str) -> String {
    let deltas = events.iter().filter(|event| event["type"] == kind);
    deltas.map(|event| event["delta"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_run_and_the_next_one_of_its_thread() {
    let kit = Kit::new(agent([Say::new().thought("Hm.").text("Hello there.")], [])).await;
    let body = input("t", "r1", json!([user("m1", "Hi")]));
    let first = events(kit.post("/ag-ui/agent", &body).send().await.unwrap()).await;
    assert_eq!(first[0]["runId"], json!("r1"));
    assert_eq!(text(&first, "TEXT_MESSAGE_CONTENT"), "Hello there.");
    assert_eq!(text(&first, "REASONING_MESSAGE_CONTENT"), "Hm.");
    let last = first.last().unwrap();
    assert_eq!((&last["type"], &last["threadId"]), (&json!("RUN_FINISHED"), &json!("t")));
    assert_eq!(last["result"], json!("Hello there."));
    // The client sends everything again; only the last message is new.
    let messages = json!([
        user("m1", "Hi"),
        { "id": "a", "role": "assistant", "content": "Hello there." },
        user("m2", "And now?"),
    ]);
    let body = input("t", "r2", messages);
    events(kit.post("/ag-ui/agent", &body).send().await.unwrap()).await;
    let (_, _, runs) = parts(kit.get("/v1/runs").send().await.unwrap()).await;
    let runs = runs["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2);
    assert_eq!(runs[0]["after"], runs[1]["run"]);
    assert_eq!(runs[0]["title"], json!("And now?"));
}

/// A client that reconnects names the same run, or requests it.
#[tokio::test]
async fn a_dropped_client_attaches_again() {
    let gate = Gate::new();
    let kit = Kit::new(agent([Say::new().text("one two ").gate(&gate).text("three")], [])).await;
    let body = input("t", "r", json!([user("m", "Hi")]));
    drop(kit.post("/ag-ui/agent", &body).send().await.unwrap());
    gate.reached(1).await;
    let again = kit.post("/ag-ui/agent", &body).send().await.unwrap();
    let asked = kit.get("/ag-ui/agent/runs/r").send().await.unwrap();
    gate.open();
    let (again, asked) = (events(again).await, events(asked).await);
    assert_eq!(again, asked);
    assert_eq!(kinds(&again)[..2], ["RUN_STARTED", "MESSAGES_SNAPSHOT"]);
    assert!(text(&again, "TEXT_MESSAGE_CONTENT").ends_with("three"));
    // The run belongs to this agent; another agent's URL does not find it.
    let (status, _, said) = parts(kit.get("/ag-ui/another/runs/r").send().await.unwrap()).await;
    assert_eq!((status, said["error"]["code"].as_str()), (404, Some("no_run")));
    let over = events(kit.post("/ag-ui/agent", &body).send().await.unwrap()).await;
    assert_eq!(kinds(&over), ["RUN_STARTED", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]);
    assert_eq!(over[2]["result"], json!("one two three"));
    let (_, _, runs) = parts(kit.get("/v1/runs").send().await.unwrap()).await;
    assert_eq!(runs["runs"].as_array().unwrap().len(), 1);
}

/// A client that joins gets the thread's messages without those of deleted runs, and with all
/// earlier ones.
#[tokio::test]
async fn the_history_of_a_thread_goes_on_without_deleted_runs() {
    let kit = Kit::new(agent([Say::new().text("Hm.")], [])).await;
    let texts = ["one", "two", "three", "four"];
    let mut messages = Vec::new();
    for text in texts {
        messages.push(user(text, text));
        let body = input("t", text, json!(messages));
        events(kit.post("/ag-ui/agent", &body).send().await.unwrap()).await;
    }
    let (_, _, listed) = parts(kit.get("/v1/runs").send().await.unwrap()).await;
    let runs = listed["runs"].as_array().unwrap();
    // From here on in reverse: the run before the last one, and then one before that.
    for (deleted, left) in [(1, ["one", "two", "four"].as_slice()), (2, &["one", "four"])] {
        let path = format!("/v1/runs/{}", runs[deleted]["run"].as_str().unwrap());
        assert_eq!(kit.request(Method::DELETE, &path).send().await.unwrap().status(), 204);
        let joined = events(kit.get("/ag-ui/agent/runs/four").send().await.unwrap()).await;
        let shown = joined[1]["messages"].as_array().unwrap().iter();
        let users = shown.filter(|message| message["role"] == "user");
        let shown: Vec<_> = users.map(|message| message["content"].as_str().unwrap()).collect();
        assert_eq!(shown, left);
    }
}

/// A tool that runs in the page: the AG-UI run ends, and continues with the result.
#[tokio::test]
async fn a_tool_of_the_client() {
    let turns = [Say::new().call("paint", json!({"colour": "blue"})), Say::new().text("Done.")];
    let kit = Kit::new(agent(turns, [])).await;
    let mut body = input("t", "r1", json!([user("m", "Paint it")]));
    body["tools"] = json!([{ "name": "paint", "description": "paints", "parameters": {} }]);
    let first = events(kit.post("/ag-ui/agent", &body).send().await.unwrap()).await;
    let last = first.last().unwrap();
    let pending = last["outcome"]["pendingToolCallIds"].as_array().unwrap();
    assert_eq!(text(&first, "TOOL_CALL_ARGS"), r#"{"colour":"blue"}"#);
    let mut body = input(
        "t",
        "r2",
        json!([
            user("m", "Paint it"),
            { "id": "x", "role": "tool", "toolCallId": pending[0], "content": "painted" },
        ]),
    );
    body["tools"] = json!([{ "name": "paint", "description": "paints", "parameters": {} }]);
    let second = events(kit.post("/ag-ui/agent", &body).send().await.unwrap()).await;
    assert_eq!(second[0]["runId"], json!("r2"));
    assert_eq!(second.last().unwrap()["result"], json!("Done."));
    let (_, _, runs) = parts(kit.get("/v1/runs").send().await.unwrap()).await;
    assert_eq!(runs["runs"].as_array().unwrap().len(), 1, "it is one run");
}

/// A question is an interrupt, and resuming answers it.
#[tokio::test]
async fn an_interrupt_is_resumed() {
    let tool =
        from_function(ToolSpec::new("echo", "says it back"), |arguments: Value, _| async move {
            Ok(wellspring_core::ToolResult::new(arguments["say"].clone()))
        });
    let turns = [Say::new().call("echo", json!({"say": "x"})), Say::new().text("Done.")];
    let mut def = agent(turns, [tool]);
    def.policy = Policy::default().rule(Rule::tool("*").decide(Approval::Ask));
    let kit = Kit::new(def).await;
    let messages = json!([user("m", "Go")]);
    let first =
        events(kit.post("/ag-ui/agent", &input("t", "r1", messages.clone())).send().await.unwrap())
            .await;
    let outcome = &first.last().unwrap()["outcome"];
    assert_eq!(outcome["type"], json!("interrupt"));
    let interrupt = outcome["interrupts"][0]["id"].clone();
    let start = first.iter().find(|event| event["type"] == "TOOL_CALL_START").unwrap();
    let function = json!({ "name": "echo", "arguments": text(&first, "TOOL_CALL_ARGS") });
    let call = json!({ "id": start["toolCallId"], "type": "function", "function": function });
    let messages =
        json!([user("m", "Go"), { "id": "a", "role": "assistant", "toolCalls": [call] }]);
    let mut body = input("t", "r2", messages.clone());
    body["resume"] = json!([{ "interruptId": interrupt, "status": "resolved", "payload": { "approved": true } }]);
    let response = kit.post("/ag-ui/agent", &body).send().await.unwrap();
    let second = events_after(response, &messages).await;
    assert_eq!(second[0]["runId"], json!("r2"));
    assert_eq!(second.last().unwrap()["result"], json!("Done."));
    // A question that is not open cannot be answered.
    body["runId"] = json!("r3");
    let (status, _, said) = parts(kit.post("/ag-ui/agent", &body).send().await.unwrap()).await;
    assert_eq!((status, said["error"]["code"].as_str()), (400, Some("bad_request")));
}

/// A question can be answered neither with a token that lacks the permission, nor by a principal
/// that did not start the run. Nothing reaches the run, and it can still be answered.
#[tokio::test]
async fn an_interrupt_is_not_anybodys_to_resume() {
    let turns = [Say::new().call("echo", json!({"say": "x"})), Say::new().text("Done.")];
    let mut def = agent(turns, [echo()]);
    def.policy = Policy::default().rule(Rule::tool("*").decide(Approval::Ask));
    def.approvers = vec!["boss".into()];
    let mut kit = Kit::with(config(), Runtime::new(Log::in_memory()), def).await;
    use Permission::{Approve, Read, Run};
    let mut secrets = Vec::new();
    for (name, scopes) in
        [("asker", &[Run][..]), ("other", &[Run, Read, Approve]), ("boss", &[Run, Read, Approve])]
    {
        secrets.push(kit.server.tokens().create(name, "one", scopes).await.unwrap());
    }
    kit.token = Some(secrets[0].clone());
    let messages = json!([user("m", "Go")]);
    let first = input("t", "r1", messages.clone());
    let first = events(kit.post("/ag-ui/agent", &first).send().await.unwrap()).await;
    let interrupt = first.last().unwrap()["outcome"]["interrupts"][0]["id"].clone();
    let mut body = input("t", "r2", messages);
    body["resume"] = json!([{ "interruptId": interrupt, "status": "resolved", "payload": { "approved": true } }]);
    let runs = kit.runtime.log().store().list(RunFilter::default()).await.unwrap();
    let run = runs[0].run;
    for (secret, code) in [(&secrets[0], "scope"), (&secrets[1], "not_yours_to_answer")] {
        kit.token = Some(secret.clone());
        let (status, _, said) = parts(kit.post("/ag-ui/agent", &body).send().await.unwrap()).await;
        assert_eq!((status, said["error"]["code"].as_str()), (403, Some(code)));
        let inbox = kit.runtime.log().store().inbox(run, InboxNo(0)).await.unwrap();
        assert_eq!(inbox, []);
    }
    kit.token = Some(secrets[2].clone());
    let response = kit.post("/ag-ui/agent", &body).send().await.unwrap();
    assert_eq!(response.status(), 200);
    let transcript = kit.wait(run).await;
    let answered = transcript.questions.values().next().unwrap().answered.clone().unwrap();
    assert_eq!(answered.by.as_deref(), Some("boss"));
}

/// An answer that does not fit the question is refused before anything happens, as on every
/// surface.
#[tokio::test]
async fn an_interrupt_is_not_resumed_with_what_is_no_answer() {
    let question = json!({ "question": "How many?", "schema": { "type": "integer" } });
    let turns = [Say::new().call("ask_user", question), Say::new().text("Done.")];
    let kit = Kit::new(agent(turns, [ask_user()])).await;
    let messages = json!([user("m", "Go")]);
    let first = input("t", "r1", messages.clone());
    let first = events(kit.post("/ag-ui/agent", &first).send().await.unwrap()).await;
    let interrupt = first.last().unwrap()["outcome"]["interrupts"][0]["id"].clone();
    let run = kit.runtime.log().store().list(RunFilter::default()).await.unwrap()[0].run;
    let mut body = input("t", "r2", messages);
    let resume = |payload: Value| json!([{ "interruptId": interrupt, "status": "resolved", "payload": payload }]);
    body["resume"] = resume(json!("three"));
    let (status, _, said) = parts(kit.post("/ag-ui/agent", &body).send().await.unwrap()).await;
    assert_eq!((status, said["error"]["code"].as_str()), (400, Some("bad_answer")), "{said}");
    let store = kit.runtime.log().store();
    assert_eq!(store.inbox(run, InboxNo(0)).await.unwrap(), []);
    let audit = AuditFilter { tenant: "default".into(), before: None, limit: 9 };
    assert_eq!(store.audit(audit.clone()).await.unwrap(), []);
    body["resume"] = resume(json!(3));
    assert_eq!(kit.post("/ag-ui/agent", &body).send().await.unwrap().status(), 200);
    let transcript = kit.wait(run).await;
    assert_eq!(transcript.answer(wellspring_core::AgentNo::ROOT), "Done.");
    let kept = store.audit(audit).await.unwrap();
    assert_eq!(
        (kept.len(), &*kept[0].act.did, &kept[0].act.details["answer"]),
        (1, "answer", &json!({ "value": 3 }))
    );
}

#[tokio::test]
async fn a_cancelled_run_says_so() {
    let gate = Gate::new();
    let kit = Kit::new(agent([Say::new().text("one ").gate(&gate).text("two")], [])).await;
    let body = input("t", "r", json!([user("m", "Hi")]));
    let response = kit.post("/ag-ui/agent", &body).send().await.unwrap();
    gate.reached(1).await;
    let cancelled = kit.post("/ag-ui/agent/runs/r/cancel", &json!({})).send().await.unwrap();
    assert_eq!(cancelled.status(), 202);
    let events = events(response).await;
    assert_eq!(events.last().unwrap()["outcome"], json!({ "type": "cancelled" }));
}

/// The binary encoding carries the same events as JSON: of a run from its beginning, and of one
/// that is joined while it is active.
#[tokio::test]
async fn protobuf_where_it_is_asked_for() {
    const BINARY: &str = "application/vnd.ag-ui.event+proto";
    let frames = |events: &[Value]| {
        let mut bytes = Vec::new();
        for event in events {
            proto::frame(&serde_json::from_value(event.clone()).unwrap(), &mut bytes);
        }
        bytes
    };
    let gate = Gate::new();
    let kit = Kit::new(agent([Say::new().thought("Hm.").gate(&gate).text("Hello.")], [])).await;
    let body = input("t", "r", json!([user("m", "Hi")]));
    let whole = kit.post("/ag-ui/agent", &body).header("accept", BINARY).send().await.unwrap();
    assert_eq!(whole.headers()["content-type"], BINARY);
    gate.reached(1).await;
    let join = async |accept: &str| {
        let request = kit.get("/ag-ui/agent/runs/r").header("accept", accept);
        request.send().await.unwrap()
    };
    let (as_sse, binary) = (join("text/event-stream").await, join(BINARY).await);
    gate.open();
    let as_sse = events(as_sse).await;
    assert_eq!(text(&as_sse, "TEXT_MESSAGE_CONTENT"), "Hello.");
    assert_eq!(binary.bytes().await.unwrap(), frames(&as_sse));
    let runs = kit.runtime.log().store().list(RunFilter::default()).await.unwrap();
    let from_the_start = kit.events(runs[0].run, "ag_ui").await;
    let from_the_start: Vec<Value> =
        from_the_start.iter().map(|event| serde_json::from_str(&event.data).unwrap()).collect();
    assert_eq!(whole.bytes().await.unwrap(), frames(&from_the_start));
}

/// Two tenants may use the same names: they mean different runs.
#[tokio::test]
async fn names_are_the_tenants_own() {
    let runtime = Runtime::new(Log::in_memory());
    let def = agent([Say::new().text("Hello.")], []);
    let mut kit = Kit::with(config(), runtime, def).await;
    let mut runs = Vec::new();
    for tenant in ["one", "two"] {
        let scopes = [Permission::Run, Permission::Read];
        kit.token = Some(kit.server.tokens().create(tenant, tenant, &scopes).await.unwrap());
        let body = input("t", "r", json!([user("m", "Hi")]));
        let events = events(kit.post("/ag-ui/agent", &body).send().await.unwrap()).await;
        assert_eq!(events.last().unwrap()["result"], json!("Hello."));
        let (_, _, body) = parts(kit.get("/v1/runs").send().await.unwrap()).await;
        assert_eq!(body["runs"].as_array().unwrap().len(), 1);
        runs.push(body["runs"][0]["run"].clone());
    }
    assert_ne!(runs[0], runs[1]);
    let theirs = format!("/ag-ui/agent/runs/{}", runs[0].as_str().unwrap());
    assert_eq!(kit.get(&theirs).send().await.unwrap().status(), 404);
}

/// A run id that another thread or another agent uses is refused: joining that run would lose the
/// request's message.
#[tokio::test]
async fn a_run_id_of_another_thread_is_refused() {
    let says = || Say::new().text("Hello.");
    let kit = Kit::new(agent([says(), says(), says()], [])).await;
    kit.runtime.register(AgentDef { name: "other".into(), ..agent([says()], []) });
    let hi = user("m", "Hi");
    for (thread, run) in [("t", "r"), ("u", "s")] {
        let body = input(thread, run, json!([hi]));
        events(kit.post("/ag-ui/agent", &body).send().await.unwrap()).await;
    }
    let more = json!([hi, user("n", "And now?")]);
    for (agent, body) in [
        ("agent", input("new", "r", json!([hi]))),
        ("agent", input("new", "r", more.clone())),
        ("agent", input("u", "r", more.clone())),
        ("other", input("t", "r", more)),
    ] {
        let request = kit.post(&format!("/ag-ui/{agent}"), &body);
        let (status, _, said) = parts(request.send().await.unwrap()).await;
        assert_eq!((status, said["error"]["code"].as_str()), (409, Some("run_exists")), "{body}");
    }
    let (_, _, runs) = parts(kit.get("/v1/runs").send().await.unwrap()).await;
    assert_eq!(runs["runs"].as_array().unwrap().len(), 2);
}

/// A client whose requests cannot be changed can have the model in its URL.
#[tokio::test]
async fn the_address_may_name_a_model() {
    let mut def = agent([Say::new().text("Hello.")], []);
    def.allow_model = true;
    let kit = Kit::new(def.clone()).await;
    let body = input("t", "r1", json!([user("m1", "Hi")]));
    events(kit.post("/ag-ui/agent?model=large", &body).send().await.unwrap()).await;
    let runs = kit.runtime.log().store().list(wellspring_log::RunFilter::default()).await.unwrap();
    let transcript = kit.wait(runs[0].run).await;
    assert_eq!(models(&transcript), ["large"]);

    def.allow_model = false;
    let kit = Kit::new(def).await;
    let refused = kit.post("/ag-ui/agent?model=large", &body).send().await.unwrap();
    let (status, _, body) = parts(refused).await;
    assert_eq!((status, &body["error"]["code"]), (400, &json!("model_not_allowed")));
}

/// A client that sends no run ids answers two pauses of one thread, each time with a new message
/// and a new state: everything is applied, once.
#[tokio::test]
async fn two_pauses_are_answered_without_run_ids() {
    let kit = Kit::new(asks_twice()).await;
    let mut chat = Chat::new("");
    let mut said = chat.send(&kit, None).await;
    for (n, more) in ["one", "two"].into_iter().enumerate() {
        let interrupt = interrupt(&said);
        chat.says(&said, more);
        chat.body["state"] = json!({ "n": n + 1 });
        said = chat.send(&kit, Some(&interrupt)).await;
    }
    assert_eq!(said.last().unwrap()["result"], json!("Done."));
    let runs = kit.runtime.log().store().list(RunFilter::default()).await.unwrap();
    assert_eq!(runs.len(), 1, "it is one run");
    // Without a run id of its own, the client gets ours.
    assert_eq!(said.last().unwrap()["runId"], json!(runs[0].run));
    let transcript = kit.wait(runs[0].run).await;
    assert_eq!(transcript.state, Some(json!({ "n": 2 })));
    assert_eq!(inputs(&transcript), ["one", "two"]);
}

/// An answer under the run id of the request that asked is applied, and so is what comes with it.
/// The same request again gets the same response; another answer under that id is refused.
#[tokio::test]
async fn an_answer_under_a_known_run_id_counts() {
    let kit = Kit::new(asks_twice()).await;
    let mut chat = Chat::new("r1");
    let first = chat.send(&kit, None).await;
    let interrupted = interrupt(&first);
    chat.says(&first, "one");
    let second = chat.send(&kit, Some(&interrupted)).await;
    assert_ne!(interrupt(&second), interrupted, "it went on to the next question");
    let again = chat.send(&kit, Some(&interrupted)).await;
    assert_eq!(interrupt(&again), interrupt(&second));

    chat.body["resume"][0]["payload"] = json!({ "approved": false });
    let (status, _, said) = parts(kit.post("/ag-ui/agent", &chat.body).send().await.unwrap()).await;
    assert_eq!((status, said["error"]["code"].as_str()), (409, Some("run_exists")), "{said}");

    let last = chat.send(&kit, Some(&interrupt(&second))).await;
    assert_eq!(last.last().unwrap()["result"], json!("Done."));
    let run = kit.runtime.log().store().list(RunFilter::default()).await.unwrap()[0].run;
    assert_eq!(inputs(&kit.wait(run).await), ["one"]);
}

/// Calls a tool that needs approval twice, whatever the user's messages in between.
fn asks_twice() -> AgentDef {
    let call = |say: &str| Say::new().call("echo", json!({ "say": say }));
    let turns = [call("x"), call("y"), Say::new().text("Done.")];
    let mut def = AgentDef::model("agent", Arc::new(Scripted::conversation(turns)));
    def.tools = vec![Arc::new(echo())];
    def.policy = Policy::default().rule(Rule::tool("*").decide(Approval::Ask));
    def
}

/// A client's side of a conversation.
struct Chat {
    body: Value,
}

impl Chat {
    fn new(run: &str) -> Self {
        Self { body: input("t", run, json!([user("m", "Go")])) }
    }

    /// Keeps the call that was made, and adds a message.
    fn says(&mut self, said: &[Value], more: &str) {
        let start = said.iter().rfind(|event| event["type"] == "TOOL_CALL_START").unwrap();
        let function = json!({ "name": "echo", "arguments": "{}" });
        let call = json!({ "id": start["toolCallId"], "type": "function", "function": function });
        let messages = self.body["messages"].as_array_mut().unwrap();
        messages
            .push(json!({ "id": format!("a-{more}"), "role": "assistant", "toolCalls": [call] }));
        messages.push(user(more, more));
    }

    async fn send(&mut self, kit: &Kit, answers: Option<&Value>) -> Vec<Value> {
        if let Some(interrupt) = answers {
            self.body["resume"] = json!([{
                "interruptId": interrupt, "status": "resolved", "payload": { "approved": true },
            }]);
        }
        let response = kit.post("/ag-ui/agent", &self.body).send().await.unwrap();
        events_after(response, &self.body["messages"]).await
    }
}

/// The question with which a stream ended.
fn interrupt(said: &[Value]) -> Value {
    let outcome = &said.last().unwrap()["outcome"];
    assert_eq!(outcome["type"], "interrupt", "{said:?}");
    outcome["interrupts"][0]["id"].clone()
}

/// The user's messages that were added during the run.
fn inputs(transcript: &Transcript) -> Vec<&str> {
    let all = transcript.inputs.values().flatten();
    all.filter_map(|content| content.as_text()).collect()
}

/// Every invalid request gets an error, and the server continues.
#[tokio::test]
async fn malformed_requests_get_errors() {
    let limits = ServerLimits { body_bytes: 4096, ..ServerLimits::default() };
    let def = agent([Say::new().text("Hello there.")], []);
    let kit =
        Kit::with(ServerConfig { limits, ..config() }, Runtime::new(Log::in_memory()), def).await;
    let answer = json!({ "interruptId": "nothing", "status": "resolved", "payload": {} });
    let result = json!({ "id": "x", "role": "tool", "toolCallId": "nothing", "content": "1" });
    let with = |member: &str, value: Value| {
        let mut body = input("t", "r", json!([user("m", "Hi")]));
        body[member] = value;
        body.to_string()
    };
    let deep = format!("{}{}", "[".repeat(1000), "]".repeat(1000));
    let cases = [
        ("agent", "{".to_owned()),
        ("agent", "7".to_owned()),
        ("agent", "[]".to_owned()),
        ("agent", deep),
        ("agent", "\u{0}\u{1}binary".to_owned()),
        ("agent", with("threadId", json!(7))),
        ("agent", with("messages", json!([{ "role": "wizard" }]))),
        ("agent", with("messages", json!([]))),
        ("agent", with("messages", json!([result]))),
        ("agent", with("tools", json!([7]))),
        ("agent", with("resume", json!([answer]))),
        ("agent", with("state", json!("x".repeat(5000)))),
        ("nobody", with("state", json!({}))),
    ];
    let mut said = String::new();
    for (agent, body) in cases {
        let request = kit.request(Method::POST, &format!("/ag-ui/{agent}")).body(body);
        let request = request.header("content-type", "application/json");
        let (status, _, body) = parts(request.send().await.unwrap()).await;
        let error = &body["error"];
        assert!(!error["remedy"].as_str().unwrap().is_empty(), "{body}");
        said += &format!("{status} {}\n", error["code"].as_str().unwrap());
    }
    insta::assert_snapshot!(said, @"
    400 bad_json
    400 bad_json
    400 bad_json
    400 bad_json
    400 bad_json
    400 bad_json
    400 bad_json
    400 no_input
    400 no_input
    400 bad_json
    400 bad_request
    413 too_large
    404 no_agent
    ");
    let body = input("t", "r", json!([user("m", "Hi")]));
    let whole = events(kit.post("/ag-ui/agent", &body).send().await.unwrap()).await;
    assert_eq!(text(&whole, "TEXT_MESSAGE_CONTENT"), "Hello there.");
}
