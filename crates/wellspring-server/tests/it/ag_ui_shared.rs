//! What an AG-UI client and an agent share besides text: state, context, tools, media, plans and
//! sub-agents.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use wellspring_core::{Content, MediaSource, Message, Tool, TurnRequest};
use wellspring_engine::AgentDef;
use wellspring_engine::tools::{call_agent, update_plan};
use wellspring_log::RunFilter;
use wellspring_models::{Say, Scripted};

use crate::ag_ui::{events, events_after, input, text, user};
use crate::kit::{Kit, agent};

/// The requests that a model got, turn by turn.
type Asked = Arc<Mutex<Vec<TurnRequest>>>;

/// An agent whose model follows a script and keeps its requests.
fn listening(turns: impl IntoIterator<Item = Say>) -> (AgentDef, Asked) {
    let turns: Vec<Say> = turns.into_iter().collect();
    let asked = Asked::default();
    let heard = Arc::clone(&asked);
    let model = Scripted::with(move |request| {
        let mut heard = heard.lock().unwrap();
        heard.push(request.clone());
        turns[heard.len() - 1].clone()
    });
    (AgentDef::model("agent", Arc::new(model)), asked)
}

/// The tools of each turn, and everything after the agent's own instructions.
fn told(asked: &Asked) -> Vec<(Vec<String>, String)> {
    let told = |request: &TurnRequest| {
        let tools = request.tools.iter().map(|tool| tool.name.to_string()).collect();
        (tools, request.instructions.trim_start().to_owned())
    };
    asked.lock().unwrap().iter().map(told).collect()
}

fn tool(name: &str) -> Value {
    json!({ "name": name, "description": "does it", "parameters": { "type": "object" } })
}

/// The model gets the tools, context and state of the request. From an answer on it gets the
/// answer's, also after another pause; members that the answer leaves out stay.
#[tokio::test]
async fn state_context_and_tools_come_with_a_request_and_with_an_answer() {
    let paint = |colour: &str| Say::new().call("paint", json!({ "colour": colour }));
    let (def, asked) = listening([paint("blue"), paint("red"), Say::new().text("Done.")]);
    let kit = Kit::new(def).await;
    let mut body = input("t", "r1", json!([user("m", "Paint it")]));
    body["tools"] = json!([tool("paint")]);
    body["context"] = json!([{ "description": "page", "value": "/one" }]);
    body["state"] = json!({ "n": 1 });
    body["parentRunId"] = json!("r0");
    let mut streams = vec![events(kit.post("/ag-ui/agent", &body).send().await.unwrap()).await];
    let mut messages = vec![user("m", "Paint it")];
    for (run, more) in [
        (
            "r2",
            json!({
                "tools": [tool("paint"), tool("wipe")],
                "context": [{ "description": "page", "value": "/two" }],
                "state": { "n": 2 },
                "parentRunId": "r1",
            }),
        ),
        ("r3", json!({ "state": { "n": 2 } })),
    ] {
        let said = streams.last().unwrap();
        let start = said.iter().rfind(|event| event["type"] == "TOOL_CALL_START").unwrap();
        let function = json!({ "name": "paint", "arguments": "{}" });
        let call = json!({ "id": start["toolCallId"], "type": "function", "function": function });
        messages
            .push(json!({ "id": format!("a-{run}"), "role": "assistant", "toolCalls": [call] }));
        let pending = said.last().unwrap()["outcome"]["pendingToolCallIds"][0].clone();
        messages.push(json!({
            "id": format!("x-{run}"), "role": "tool", "toolCallId": pending, "content": "painted",
        }));
        let mut body = input("t", run, json!(messages));
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let response = kit.post("/ag-ui/agent", &body).send().await.unwrap();
        streams.push(events_after(response, &json!(messages)).await);
    }
    let begun = |stream: &Vec<Value>| {
        let states = stream.iter().filter(|event| event["type"] == "STATE_SNAPSHOT");
        let states: Vec<Value> = states.map(|event| event["snapshot"].clone()).collect();
        (stream[0]["runId"].clone(), stream[0]["parentRunId"].clone(), states)
    };
    assert_eq!(
        streams.iter().map(begun).collect::<Vec<_>>(),
        [
            (json!("r1"), json!("r0"), vec![json!({ "n": 1 })]),
            (json!("r2"), json!("r1"), vec![json!({ "n": 2 })]),
            (json!("r3"), Value::Null, vec![]),
        ]
    );
    assert_eq!(streams[2].last().unwrap()["result"], json!("Done."));
    let words = |page: &str, n: u8| {
        format!("page:\n{page}\n\nThe state shared with the user's screen:\n{{\"n\":{n}}}")
    };
    let both = ["paint", "wipe"].map(str::to_owned).to_vec();
    assert_eq!(
        told(&asked),
        [
            (vec!["paint".to_owned()], words("/one", 1)),
            (both.clone(), words("/two", 2)),
            (both, words("/two", 2)),
        ]
    );
    let runs = kit.runtime.log().store().list(RunFilter::default()).await.unwrap();
    assert_eq!(runs.len(), 1, "it is one run");
}

/// Images and documents reach the model unchanged.
#[tokio::test]
async fn multimodal_input_reaches_the_model() {
    let (def, asked) = listening([Say::new().text("A cat.")]);
    let kit = Kit::new(def).await;
    let parts = json!([
        { "type": "text", "text": "What is this?" },
        { "type": "image", "source": { "type": "data", "value": "AAEC", "mimeType": "image/png" } },
        { "type": "document", "source": {
            "type": "url", "value": "https://example.com/a.pdf", "mimeType": "application/pdf",
        } },
    ]);
    let body = input("t", "r", json!([{ "id": "m", "role": "user", "content": parts }]));
    let said = events(kit.post("/ag-ui/agent", &body).send().await.unwrap()).await;
    assert_eq!(text(&said, "TEXT_MESSAGE_CONTENT"), "A cat.");
    let media = |media_type: &str, source| Content::Media {
        media_type: media_type.into(),
        source,
        name: None,
    };
    let content = vec![
        Content::text("What is this?"),
        media("image/png", MediaSource::Data("AAEC".into())),
        media("application/pdf", MediaSource::Url("https://example.com/a.pdf".into())),
    ];
    assert_eq!(*asked.lock().unwrap()[0].messages, [Message::User { content }]);
    // A file that only some provider has cannot be fetched, so the request is refused before the
    // run starts.
    let file = json!([{ "type": "image", "source": { "type": "file", "value": "file-1" } }]);
    let body = input("u", "s", json!([{ "id": "m", "role": "user", "content": file }]));
    assert_eq!(kit.post("/ag-ui/agent", &body).send().await.unwrap().status(), 400);
}

/// A plan is an activity, and a sub-agent's events carry its own id.
#[tokio::test]
async fn plans_and_sub_agents_are_shown() {
    let entries = json!([{ "content": "look", "status": "in_progress" }]);
    let plan = Say::new().call("update_plan", json!({ "entries": entries }));
    let ask = Say::new().call("call-agent", json!({ "agentId": "librarian", "input": "Find it." }));
    let mut def = agent([plan, ask, Say::new().text("Done.")], [update_plan()]);
    def.tools.push(Arc::new(call_agent([("librarian", "Finds books.")])) as Arc<dyn Tool>);
    def.sub_agents = vec!["librarian".into()];
    let kit = Kit::new(def).await;
    let found = AgentDef { name: "librarian".into(), ..agent([Say::new().text("Shelf 7.")], []) };
    kit.runtime.register(found);
    let body = input("t", "r", json!([user("m", "Go")]));
    let said = events(kit.post("/ag-ui/agent", &body).send().await.unwrap()).await;
    let of = |kind: &str| said.iter().find(|event| event["type"] == kind).unwrap_or(&Value::Null);
    let activity = of("ACTIVITY_SNAPSHOT");
    let status = &activity["content"]["entries"][0];
    assert_eq!((&status["content"], &status["status"]), (&json!("look"), &json!("in_progress")));
    let (started, ended) = (of("SUBAGENT_STARTED"), of("SUBAGENT_FINISHED"));
    assert_eq!(started["name"], json!("librarian"));
    assert_eq!(ended["subagentRunId"], started["subagentRunId"]);
    let words = |owner: &Value| {
        let mine = said.iter().filter(|event| event["subagentRunId"] == *owner).cloned();
        text(&mine.collect::<Vec<_>>(), "TEXT_MESSAGE_CONTENT")
    };
    assert_eq!(words(&started["subagentRunId"]), "Shelf 7.");
    assert_eq!(words(&Value::Null), "Done.");
    let results = said.iter().filter(|event| event["type"] == "TOOL_CALL_RESULT");
    assert_eq!(results.count(), 2);
}
