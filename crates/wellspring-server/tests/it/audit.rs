//! The audit log.

use std::sync::Arc;
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use wellspring_core::Millis;
use wellspring_engine::Runtime;
use wellspring_log::{AuditFilter, Log, LogOptions, MemoryStore, RunFilter, TokioClock};
use wellspring_models::{Gate, Say};
use wellspring_server::ServerConfig;

use crate::access::two_tenants;
use crate::kit::{Kit, agent, config, parts};

/// A page of the audit log without the times, which are checked here, and the next page's position.
async fn page(kit: &Kit, query: &str) -> (Vec<Value>, Value) {
    let (status, _, body) =
        parts(kit.get(&format!("/v1/audit{query}")).send().await.unwrap()).await;
    assert_eq!(status, 200, "{body}");
    let mut entries = body["entries"].as_array().unwrap().clone();
    let now = kit.runtime.log().clock().now().0;
    for entry in &mut entries {
        let at = entry.as_object_mut().unwrap().remove("at").unwrap().as_u64().unwrap();
        assert!(at <= now && now - at < 600_000, "at {at}, now {now}");
    }
    (entries, body["next"].clone())
}

/// The log keeps who answered, cancelled and deleted, also after the runs are deleted. It is for
/// operators of the same tenant, and a repeated request adds no entry.
#[tokio::test]
async fn what_was_decided_outlives_the_runs() {
    let (mut kit, [mine, other]) = two_tenants(config()).await;
    let (answered, stopped) = (kit.start().await, kit.start().await);
    kit.paused(answered).await;
    kit.paused(stopped).await;
    let path = format!("/v1/runs/{answered}/answers");
    // An invalid answer adds no entry.
    let wrong = json!({ "question": 0, "answer": { "value": 7 } });
    assert_eq!(kit.post(&path, &wrong).send().await.unwrap().status(), 400);
    let yes = json!({ "question": 0, "answer": { "approve": {} } });
    assert_eq!(kit.post(&path, &yes).send().await.unwrap().status(), 202);
    kit.wait(answered).await;
    let (status, _, body) = parts(kit.post(&path, &yes).send().await.unwrap()).await;
    assert_eq!((status, body["error"]["code"].as_str()), (409, Some("finished")));
    let delete = |run| kit.request(Method::DELETE, &format!("/v1/runs/{run}"));
    assert_eq!(delete(stopped).send().await.unwrap().status(), 409, "it is not over");
    let cancel = format!("/v1/runs/{stopped}/cancel");
    let why = json!({ "why": "enough" });
    assert_eq!(kit.post(&cancel, &why).send().await.unwrap().status(), 202);
    kit.wait(stopped).await;
    assert_eq!(kit.post(&cancel, &why).send().await.unwrap().status(), 200);
    for run in [answered, stopped] {
        assert_eq!(delete(run).send().await.unwrap().status(), 204);
        assert_eq!(delete(run).send().await.unwrap().status(), 404);
    }
    let (entries, next) = page(&kit, "").await;
    let prompt = entries[3]["prompt"].clone();
    assert!(prompt.as_str().is_some_and(|prompt| !prompt.is_empty()));
    let deleted = |run| json!({ "agent": "agent", "by": "mine", "did": "delete", "run": run });
    let cancelled = json!({
        "agent": "agent", "by": "mine", "did": "cancel", "run": stopped, "why": "enough",
    });
    let approved = json!({
        "agent": "agent", "by": "mine", "did": "approve", "run": answered, "question": 0,
        "prompt": prompt, "tool": "echo", "arguments": "{\"say\":\"x\"}",
        "answer": { "approve": { "scope": "once" } },
    });
    assert_eq!(entries, [deleted(stopped), deleted(answered), cancelled, approved]);
    assert_eq!(next, Value::Null);
    let (first, next) = page(&kit, "?limit=3").await;
    assert_eq!(first, entries[..3]);
    let (rest, next) = page(&kit, &format!("?limit=3&after={next}")).await;
    assert_eq!((&rest[..], next), (&entries[3..], Value::Null));
    kit.token = Some(other);
    assert_eq!(page(&kit, "").await, (vec![], Value::Null));
    kit.token = Some(mine);
    assert_eq!(kit.get("/v1/audit?after=x").send().await.unwrap().status(), 400);
}

/// Retention deletes the run, but not the entry about who cancelled it.
#[tokio::test]
async fn retention_leaves_what_was_decided() {
    let store = MemoryStore::default();
    let log = |at| {
        let clock = Arc::new(TokioClock::starting_at(at));
        Log::new(Arc::new(store.reopen()), LogOptions { clock, ..LogOptions::default() })
    };
    let gate = Gate::new();
    let def = || agent([Say::new().gate(&gate).text("Hello.")], []);
    let before = Kit::with(config(), Runtime::new(log(Millis(1_000))), def()).await;
    let run = before.start().await;
    let cancel = before.post(&format!("/v1/runs/{run}/cancel"), &json!({}));
    assert_eq!(cancel.send().await.unwrap().status(), 202);
    before.wait(run).await;
    before.server.stop().await;
    let retention = Some(Duration::from_secs(60));
    let config = ServerConfig { retention, ..config() };
    let kit = Kit::with(config, Runtime::new(log(Millis(100_000_000))), def()).await;
    let store = kit.runtime.log().store();
    while !store.list(RunFilter::default()).await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    let filter = AuditFilter { tenant: "default".into(), before: None, limit: 9 };
    let kept = store.audit(filter).await.unwrap();
    let kept: Vec<_> =
        kept.iter().map(|kept| (kept.act.run, &*kept.act.did, &*kept.act.by)).collect();
    assert_eq!(kept, [(run, "cancel", "local")]);
}
