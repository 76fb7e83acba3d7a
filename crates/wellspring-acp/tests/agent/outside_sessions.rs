//! Messages outside any session, between a client and a proxied ACP agent.

use serde_json::{Value, json};

use crate::client::{Client, agent, runtime};
use crate::proxy::{asked_of, behind};

/// Number of notifications that are sent at once: more than the queue between two processes holds.
const BURST: usize = 100;

#[tokio::test]
async fn what_names_no_session_reaches_the_agent_and_the_client() {
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("heard").display().to_string();
    let about_all = |method: &str, x: u32| json!({"method": method, "params": {"x": x}});
    let runtime = behind(&json!({"record": record, "prompts": [[
        {"notify_all": about_all("_agent/said", 1)},
        {"notify_all": about_all("agent/unknown", 2)},
        {"request_all": about_all("_agent/asks", 3)},
        {"request_all": about_all("agent/asks", 4)},
    ]]}));
    let client = Client::ready(&runtime, "behind", json!({})).await;
    let mut client = client.answer(|method, params| Ok(json!({"asked": method, "about": params})));
    let says = |x: usize| json!({"jsonrpc": "2.0", "method": "_client/says", "params": {"x": x}});
    let burst: String = (0..BURST).map(|x| format!("{}\n", says(x))).collect();
    client.raw(burst.as_bytes()).await;
    for method in ["_client/asks", "odd/asks"] {
        let answer = client.call(method, json!({"x": 5})).await;
        assert_eq!(answer, Ok(json!({"heard": {"x": 5}})), "{method}");
    }
    // Session ids are ours, so a message with an unknown one is refused, not forwarded.
    for method in ["session/fork", "_client/asks"] {
        let refused = client.call(method, json!({"sessionId": "x"})).await;
        assert_eq!(refused.unwrap_err()["code"], -32601, "{method}");
    }
    let mut want: Vec<_> =
        (0..BURST).map(|x| format!("_client/says {}", json!({"x": x}))).collect();
    want.extend(["_client/asks", "odd/asks"].map(|method| format!("{method} {{\"x\":5}}")));
    let heard = asked_of(&record);
    assert!(heard[0].starts_with("initialize "), "{heard:?}");
    assert_eq!(heard[1..], want);

    let new = json!({"cwd": folder.path(), "mcpServers": []});
    let opened = client.call("session/new", new).await.unwrap();
    client.heard.clear();
    client.prompt(opened["sessionId"].as_str().unwrap(), "go").await.unwrap();
    let beside: Vec<_> = client.heard.iter().filter(|it| it["params"].get("x").is_some()).collect();
    let shown: Vec<_> = beside.iter().map(|it| format!("{}", it["method"])).collect();
    assert_eq!(shown, ["\"_agent/said\"", "\"_agent/asks\""]);
    let answered = json!({"asked": "_agent/asks", "about": {"x": 3}});
    let refused = json!({"code": -32601, "message": "there is no method \"agent/asks\" here"});
    assert_eq!(client.words(), format!("{answered}{refused}"));
}

/// Several clients of an agent all receive its notifications. Its requests outside a session are
/// refused, because it is unknown which client they are for.
#[tokio::test]
async fn several_clients_hear_it_and_none_is_asked() {
    let about_all = |method: &str| json!({"method": method, "params": {"x": 1}});
    let runtime = behind(&json!({"prompts": [[
        {"request_all": about_all("_agent/asks")}, {"notify_all": about_all("_agent/said")}]]}));
    let mut first = Client::ready(&runtime, "behind", json!({})).await;
    let mut second = Client::ready(&runtime, "behind", json!({})).await;
    let new = json!({"cwd": "/", "mcpServers": []});
    let opened = first.call("session/new", new).await.unwrap();
    first.prompt(opened["sessionId"].as_str().unwrap(), "go").await.unwrap();
    let refused = json!({"code": -32601, "message": "there is no method \"_agent/asks\" here"});
    let is_said = |it: &Value| it["method"] == "_agent/said";
    if !first.heard.iter().any(is_said) {
        first.until(is_said).await;
    }
    assert_eq!(first.words(), refused.to_string());
    second.until(is_said).await;
}

/// If the agent is a model, the client gets the error that the method does not exist.
#[tokio::test]
async fn a_model_knows_of_no_extensions() {
    let runtime = runtime([agent("a", [], [])]);
    let mut client = Client::ready(&runtime, "a", json!({})).await;
    client.notify("_client/says", json!({})).await;
    for method in ["_client/asks", "logout"] {
        let refused = client.call(method, json!({})).await.unwrap_err();
        assert_eq!(refused["code"], -32601, "{method}");
    }
}
