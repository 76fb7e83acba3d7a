//! Our own API.

use serde_json::json;
use wellspring_models::Say;

use crate::kit::{Kit, agent, parts};

#[tokio::test]
async fn a_run_is_started_watched_and_read() {
    let kit = Kit::new(agent([Say::new().thought("Hm.").text("Hello there.")], [])).await;
    let run = kit.start().await;
    let events = kit.events(run, "agent_event").await;
    let events: Vec<_> = events
        .iter()
        .map(|it| format!("{} {}", it.id.as_deref().unwrap_or("-"), it.data))
        .collect();
    insta::assert_snapshot!(events.join("\n"), @r#"
    4 {"type":"thought","content":"Hm."}
    7 {"type":"stream","content":"Hello "}
    8 {"type":"stream","content":"there."}
    11 {"type":"final"}
    "#);
    let (status, _, body) = parts(kit.get(&format!("/v1/runs/{run}")).send().await.unwrap()).await;
    assert_eq!(status, 200);
    assert_eq!(body["answer"], json!("Hello there."));
    assert_eq!(body["state"], json!("completed"));
}
