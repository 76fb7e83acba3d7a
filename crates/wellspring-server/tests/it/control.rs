//! Permission to follow a run over AG-UI.

use serde_json::json;
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
    kit.token = Some(other);
    let (status, _, said) = parts(kit.post("/ag-ui/agent", &body).send().await.unwrap()).await;
    assert_eq!((status, said["error"]["code"].as_str()), (403, Some("scope")), "{said}");
}
