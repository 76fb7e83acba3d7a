//! Permission to follow a run over AG-UI.

use serde_json::{Value, json};
use wellspring_core::Approval;
use wellspring_engine::{Permission, Policy, Rule, Runtime};
use wellspring_log::Log;
use wellspring_models::Say;

use crate::ag_ui::{events, input, user};
use crate::kit::{Kit, agent, config, echo, parts};

/// A server whose agent asks twice, one after the other.
async fn asks_twice() -> Kit {
    let say = |word: &str| Say::new().call("echo", json!({ "say": word }));
    let mut def = agent([say("a"), say("b"), Say::new().text("Done.")], [echo()]);
    def.policy = Policy::default().rule(Rule::tool("*").decide(Approval::Ask));
    Kit::with(config(), Runtime::new(Log::in_memory()), def).await
}

/// A token that may only start runs cannot read a conversation by naming one of its runs.
#[tokio::test]
async fn a_token_without_read_cannot_attach() {
    let mut kit = asks_twice().await;
    let tokens = kit.server.tokens();
    let asker = tokens.create("asker", "one", &[Permission::Run, Permission::Read]).await.unwrap();
    let other = tokens.create("other", "one", &[Permission::Run]).await.unwrap();
    kit.token = Some(asker);
    let body = input("t", "r", json!([user("m", "Go")]));
    events(kit.post("/ag-ui/agent", &body).send().await.unwrap()).await;
    assert_eq!(kit.post("/ag-ui/agent", &body).send().await.unwrap().status(), 200);
    let (_, _, listed) = parts(kit.get("/v1/runs").send().await.unwrap()).await;
    kit.token = Some(other);
    let more = input("t", "r2", json!([user("m", "Go"), user("n", "Repeat that.")]));
    let (run, thread) = (&listed["runs"][0]["run"], &listed["runs"][0]["thread"]);
    let native = |place: &str, id: &Value| {
        let mut body = json!({ "agent": "agent", "input": "Repeat that." });
        body[place] = id.clone();
        ("/v1/runs", body)
    };
    for (path, body) in [
        ("/ag-ui/agent", body),
        // It cannot have it repeated by a run of its own either.
        ("/ag-ui/agent", more),
        native("after", run),
        native("thread", thread),
    ] {
        let (status, _, said) = parts(kit.post(path, &body).send().await.unwrap()).await;
        let code = said["error"]["code"].as_str();
        assert_eq!((status, code), (403, Some("scope")), "{path} {body}: {said}");
    }
}
