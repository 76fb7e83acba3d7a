//! An ACP agent is served like any other agent: over HTTP in every dialect, with questions, lost
//! connections and resumes, and called by another agent.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Child;
use std::time::Duration;

use serde_json::{Value, json};
use wellspring_core::{Event, Outcome};
use wellspring_testkit::FakeProvider;

use crate::acp_agents::config;
use crate::kit::Home;
use crate::providers::{anthropic, anthropic_call};

/// A server, until it is dropped.
struct Server(Child, SocketAddr);

impl Server {
    fn start(home: &Home) -> Self {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut command = home.paced(0, &["serve", "--listen", &address.to_string()]);
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, format!("Wellspring is at http://{address}\n"));
        Self(child, address)
    }

    fn ask(&self, method: &str, path: &str, headers: &str, body: &str) -> TcpStream {
        let mut socket = TcpStream::connect(self.1).unwrap();
        // Long enough that only a hang exceeds it.
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}\
             content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        socket.write_all(request.as_bytes()).unwrap();
        socket
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        let mut answer = String::new();
        self.ask("POST", path, "", &body.to_string()).read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 20"), "{answer}");
        serde_json::from_str(body).unwrap_or_default()
    }

    fn run(&self, agent: &str, input: &str) -> String {
        let run = self.post("/v1/runs", &json!({"agent": agent, "input": input}));
        run["run"].as_str().unwrap().to_owned()
    }

    /// A run's events after an id, with their ids and data.
    fn events(&self, run: &str, dialect: &str, after: &str) -> impl Iterator<Item = Seen> + use<> {
        let path = format!("/v1/runs/{run}/events?dialect={dialect}");
        events(self.ask("GET", &path, &format!("last-event-id: {after}\r\n"), ""))
    }

    fn allow(&self, run: &str) {
        let yes = json!({"question": 0, "answer": {"approve": {"scope": "once"}}});
        self.post(&format!("/v1/runs/{run}/answers"), &yes);
    }

    /// Reads a run up to its question, and approves.
    fn allow_when_asked(&self, run: &str) -> Vec<Seen> {
        let mut seen = Vec::new();
        for event in self.events(run, "record", "0") {
            let asks = event.1.contains("question_asked");
            seen.push(event);
            if asks {
                break;
            }
        }
        self.allow(run);
        seen
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An event: its id and its data.
type Seen = (String, String);

fn events(stream: TcpStream) -> impl Iterator<Item = Seen> {
    let mut id = String::new();
    BufReader::new(stream).lines().map(Result::unwrap).filter_map(move |line| {
        if let Some(said) = line.strip_prefix("id: ") {
            id = said.to_owned();
        }
        let data = line.strip_prefix("data: ")?;
        Some((id.clone(), data.to_owned()))
    })
}

/// A text without the parts that differ between runs.
fn plain(text: &str) -> String {
    let ids = regex::Regex::new("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}").unwrap();
    let at = regex::Regex::new(r#""(at|timestamp|startedAt)":\d+"#).unwrap();
    at.replace_all(&ids.replace_all(text, "ID"), "\"$1\":0").into_owned()
}

fn shown(events: &[Seen]) -> String {
    let lines = events.iter().map(|(_, data)| format!("{data}\n"));
    plain(&lines.collect::<String>())
}

/// Thoughts, a call that needs approval, and an answer.
fn script() -> Value {
    let options = json!([
        {"optionId": "n", "name": "Rather not", "kind": "reject_once"},
        {"optionId": "y", "name": "Go ahead", "kind": "allow_once"},
    ]);
    json!({"capabilities": {"sessionCapabilities": {"resume": {}}}, "prompts": [[
        {"thought": "Hm."},
        {"update": {"sessionUpdate": "tool_call", "toolCallId": "e", "title": "Edit", "kind": "edit",
            "status": "pending", "rawInput": {"path": "a"}}},
        {"request": {"method": "session/request_permission",
            "params": {"toolCall": {"toolCallId": "e"}, "options": options}}},
        {"update": {"sessionUpdate": "tool_call_update", "toolCallId": "e", "status": "completed",
            "content": [{"type": "diff", "path": "/a", "oldText": "old", "newText": "new"}]}},
        {"text": "Done."},
    ]]})
}

#[test]
fn it_is_served_in_every_dialect_asked_about_and_resumed() {
    let home = Home::with_files(&[("wellspring.toml", &config(&script(), ""))]);
    let server = Server::start(&home);
    let run = server.run("other", "Edit it");
    // The reader is disconnected at the question, and reconnects.
    let mut seen = server.allow_when_asked(&run);
    let last = seen.last().unwrap().0.clone();
    seen.extend(server.events(&run, "record", &last));
    assert_eq!(seen, server.events(&run, "record", "0").collect::<Vec<_>>());

    let dialects = ["record", "thought_event", "agent_event", "turn_event", "ag_ui", "acp"];
    for dialect in dialects {
        let whole: Vec<Seen> = server.events(&run, dialect, "0").collect();
        assert!(!whole.is_empty(), "{dialect}");
        for (at, (id, _)) in whole.iter().enumerate() {
            let rest: Vec<Seen> = server.events(&run, dialect, id).collect();
            assert_eq!(rest, whole[at + 1..], "{dialect} after {id}");
        }
    }
    let thoughts: Vec<Seen> = server.events(&run, "thought_event", "0").collect();
    insta::assert_snapshot!(shown(&thoughts), @r#"
    {"type":"thought","text":"Hm."}
    {"type":"tool_start","id":"e","title":"Edit","kind":"edit"}
    {"type":"tool_update","id":"e","status":"waiting","content":[{"type":"content","content":{"type":"text","text":"Allow Edit?"}},{"type":"content","content":{"type":"text","text":"{\"subtype\":\"question\",\"question\":0,\"prompt\":\"Allow Edit?\",\"form\":\"approve\"}"}}]}
    {"type":"message","text":"{\"outcome\":{\"outcome\":\"selected\",\"optionId\":\"y\"}}"}
    {"type":"tool_update","id":"e","status":"completed","content":[{"type":"diff","path":"/a","oldText":"old","newText":"new"}]}
    {"type":"tool_done","id":"e","status":"completed"}
    {"type":"message","text":"Done."}
    "#);
    let acp: Vec<Seen> = server.events(&run, "acp", "0").collect();
    insta::assert_snapshot!(shown(&acp), @r#"
    {"sessionUpdate":"user_message_chunk","content":{"type":"text","text":"Edit it"},"messageId":"ID-input"}
    {"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"Hm."},"messageId":"ID-0"}
    {"sessionUpdate":"tool_call","toolCallId":"ID-1","title":"Edit","name":"edit","kind":"edit","status":"pending"}
    {"sessionUpdate":"tool_call_update","toolCallId":"ID-1","rawInput":{"path":"a"}}
    {"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"{\"outcome\":{\"outcome\":\"selected\",\"optionId\":\"y\"}}"},"messageId":"ID-2"}
    {"sessionUpdate":"tool_call_update","toolCallId":"ID-1","status":"in_progress"}
    {"sessionUpdate":"tool_call_update","toolCallId":"ID-1","status":"completed","content":[{"type":"diff","path":"/a","newText":"new","oldText":"old"}]}
    {"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"Done."},"messageId":"ID-2"}
    "#);

    // The same over AG-UI, whose clients answer with their next request.
    let input = |run: &str, more: Value| {
        let mut input = json!({"threadId": "t", "runId": run, "state": {}, "tools": [], "context": [],
            "forwardedProps": {}, "messages": [{"id": "m", "role": "user", "content": "Edit it"}]});
        input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        input
    };
    let play = |input: &Value| {
        let accept = "accept: text/event-stream\r\n";
        events(server.ask("POST", "/ag-ui/other", accept, &input.to_string()))
    };
    // The agent waits for the answer without a pause of the run; over AG-UI it still ends with an
    // interrupt.
    let said = |input: &Value| -> Vec<Value> {
        play(input).map(|(_, data)| serde_json::from_str(&data).unwrap()).collect()
    };
    let kinds = |said: &[Value]| {
        said.iter().map(|event| event["type"].as_str().unwrap()).collect::<Vec<_>>().join("\n")
    };
    let first = said(&input("r1", json!({})));
    insta::assert_snapshot!(kinds(&first), @"
    RUN_STARTED
    STATE_SNAPSHOT
    REASONING_START
    REASONING_MESSAGE_START
    REASONING_MESSAGE_CONTENT
    REASONING_MESSAGE_END
    REASONING_END
    TOOL_CALL_START
    CUSTOM
    RAW
    TOOL_CALL_ARGS
    TOOL_CALL_END
    CUSTOM
    RUN_FINISHED
    ");
    // A client that reconnects gets the same question; its answer continues the run.
    let again = said(&input("r1", json!({})));
    let outcome = &first.last().unwrap()["outcome"];
    assert_eq!(&again.last().unwrap()["outcome"], outcome);
    let answer = json!({"interruptId": outcome["interrupts"][0]["id"], "status": "resolved",
        "payload": {"approved": true}});
    let second = said(&input("r2", json!({"resume": [answer]})));
    insta::assert_snapshot!(kinds(&second), @"
    RUN_STARTED
    MESSAGES_SNAPSHOT
    STATE_SNAPSHOT
    TEXT_MESSAGE_START
    TEXT_MESSAGE_CONTENT
    CUSTOM
    TOOL_CALL_RESULT
    TEXT_MESSAGE_CONTENT
    TEXT_MESSAGE_END
    RUN_FINISHED
    ");
    assert_eq!(second.last().unwrap()["outcome"], json!({"type": "success"}));
    // Each request's stream uses the run id of that request; everything else uses the first one.
    let names = |said: &[Value]| {
        let named = said.iter().filter(|event| event.get("runId").is_some());
        named.map(|event| format!("{} {}", event["type"], event["runId"])).collect::<Vec<_>>()
    };
    let both = |run: &str| ["RUN_STARTED", "RUN_FINISHED"].map(|it| format!("{it:?} {run:?}"));
    assert_eq!(names(&first), both("r1"));
    assert_eq!(names(&second), both("r2"));
    assert_eq!(names(&said(&input("r1", json!({})))), both("r1"));
    assert_eq!(names(&said(&input("r2", json!({})))), both("r2"));
    let attach = server.ask("GET", "/ag-ui/other/runs/r2", "", "");
    let attached: Vec<Value> =
        events(attach).map(|(_, data)| serde_json::from_str(&data).unwrap()).collect();
    assert_eq!(names(&attached), both("r1"));
}

/// Another agent calls it: its text is the result of the call, and its questions are asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_agent_calls_it() {
    let call = anthropic_call("call-agent", r#"{"agentId":"other","input":"Edit it"}"#);
    let fake = FakeProvider::start([call, anthropic("It is done.")]).await.unwrap();
    let more = format!(
        "{}\n[providers.anthropic]\nbase_url = \"{}\"\n\
         [agents.boss]\nmodel = \"anthropic\"\nsub_agents = [\"other\"]\n",
        config(&script(), ""),
        fake.url()
    );
    let home = Home::with_files(&[("wellspring.toml", &more)]);
    tokio::task::spawn_blocking(move || {
        let server = Server::start(&home);
        let run = server.run("boss", "Have it edited");
        server.allow_when_asked(&run);
        let end = server.events(&run, "record", "0").last().unwrap();
        assert!(end.1.contains("run_finished"), "{end:?}");
        let (records, _) = home.records(&run);
        let told = records.iter().filter(|record| !record.agent.is_root()).map(|record| {
            if let Event::Attached { origin, .. } = &record.event {
                return format!("attached to {origin}\n");
            }
            format!("{}\n", record.event)
        });
        insta::assert_snapshot!(told.collect::<String>(), @r#"
        agent other started by 0
        attached to other
        part 1 started thought
        part 1 delta "Hm."
        part 1 finished
        part 2 started call edit on agent
        part 2 annotated {"provider_id":"e"}
        extended acp session/request_permission {"toolCall":{"toolCallId":"e"},"options":[{"optionId":"n","name":"Rather not","kind":"reject_once"},{"optionId":"y","name":"Go ahead","kind":"allow_once"}]}
        part 2 delta "{\"path\":\"a\"}"
        part 2 finished
        question 0 asked approve "Allow Edit?"
        question 0 answered {"approve":{"scope":"once"}}
        part 3 started text
        part 3 delta "{\"outcome\":{\"outcome\":\"selected\",\"optionId\":\"y\"}}"
        tool 2 started parallel
        tool 2 finished ok null [{"diff":{"path":"/a","old_text":"old","new_text":"new"}}]
        part 3 delta "Done."
        part 3 finished
        agent finished completed end_turn
        "#);
        let Event::RunFinished { outcome } = &records.last().unwrap().event else { panic!() };
        assert!(matches!(**outcome, Outcome::Completed { .. }), "{outcome}");
    })
    .await
    .unwrap();
    // The calling agent gets the called agent's text.
    let told = fake.asked().pop().unwrap().body["messages"][2]["content"][0]["content"].clone();
    insta::assert_snapshot!(told.to_string(), @r#""{\"outcome\":{\"outcome\":\"selected\",\"optionId\":\"y\"}}Done.""#);
}
