//! Authentication, permissions and origins.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use wellspring_core::{Approval, Millis, ToolSpec};
use wellspring_engine::Permission;
use wellspring_engine::tools::from_function;
use wellspring_engine::{Policy, Rule, Runtime};
use wellspring_log::{Clock, Log, LogOptions, MemoryStore};
use wellspring_models::Say;
use wellspring_server::{ServeError, Server, ServerConfig, Tokens};

use crate::kit::{Kit, agent, config, parts};

/// A server with two tenants, and an admin token of each.
pub(crate) async fn two_tenants(config: ServerConfig) -> (Kit, [String; 2]) {
    let runtime = Runtime::new(Log::in_memory());
    let tokens = Tokens::new(runtime.log().store().clone());
    let mine = tokens.create("mine", "one", &[Permission::Admin]).await.unwrap();
    let other = tokens.create("other", "two", &[Permission::Admin]).await.unwrap();
    let tool =
        from_function(ToolSpec::new("echo", "says it back"), |arguments: Value, _| async move {
            Ok(wellspring_core::ToolResult::new(arguments["say"].clone()))
        });
    let mut def =
        agent([Say::new().call("echo", json!({"say": "x"})), Say::new().text("Done.")], [tool]);
    def.policy = Policy::default().rule(Rule::tool("*").decide(Approval::Ask));
    let mut kit = Kit::with(config, runtime, def).await;
    kit.token = Some(mine.clone());
    (kit, [mine, other])
}

/// All routes, from the OpenAPI description: method, path, permission.
async fn routes(kit: &Kit) -> Vec<(Method, String, Option<String>)> {
    let (_, _, description) = parts(kit.get("/openapi.json").send().await.unwrap()).await;
    let paths: BTreeMap<String, BTreeMap<String, Value>> =
        serde_json::from_value(description["paths"].clone()).unwrap();
    let mut routes = Vec::new();
    for (path, operations) in paths {
        for (method, operation) in operations {
            let method = Method::from_bytes(method.to_ascii_uppercase().as_bytes()).unwrap();
            let scope = operation["x-scope"].as_str().map(str::to_owned);
            routes.push((method, path.clone(), scope));
        }
    }
    assert!(routes.len() > 15);
    routes
}

/// A valid body for a route.
fn body_for(path: &str, run: &str, thread: &str) -> Value {
    if path.ends_with("/answers") {
        json!({ "question": 0, "answer": { "approve": {} } })
    } else if path.ends_with("/tool-results") {
        json!({ "call": 0, "output": "x" })
    } else if path.ends_with("/input") {
        json!({ "content": "more" })
    } else if path == "/v1/runs" {
        json!({ "agent": "agent", "input": "go", "thread": thread, "after": run })
    } else {
        json!({})
    }
}

/// With another tenant's token, ids of this tenant are not found on any route, and nothing changes.
#[tokio::test]
async fn another_tenants_runs_are_not_found_on_every_route() {
    let (kit, secrets) = two_tenants(config()).await;
    not_found_on_every_route(kit, secrets).await;
    let (kit, secrets) = two_tenants(config()).await;
    not_found_on_every_route(kit.mounted().await, secrets).await;
}

async fn not_found_on_every_route(mut kit: Kit, [mine, other]: [String; 2]) {
    let run = kit.start().await;
    // The run waits for an approval.
    kit.paused(run).await;
    let info = kit.runtime.log().store().info(run).await.unwrap().unwrap();
    let (run, thread) = (run.to_string(), info.thread.to_string());
    let before = kit.runtime.log().transcript(run.parse().unwrap()).await.unwrap();
    kit.token = Some(other);
    for (method, path, scope) in routes(&kit).await {
        // Ids that clients choose are per tenant: for another tenant they start another run.
        if scope.is_none() || path == "/ag-ui/{agent}" || path == "/metrics" {
            continue;
        }
        // These take our ids only inside their messages; other tests cover them.
        let sockets = ["/v1/socket", "/use-ai", "/socket.io/"];
        if sockets.contains(&&*path) || path.starts_with("/ai-sdk/") {
            continue;
        }
        let filled = path.replace("{run}", &run).replace("{thread}", &thread);
        let filled = filled.replace("{agent}", "agent");
        let mut request = kit.request(method.clone(), &filled);
        if method == Method::POST {
            request = request.json(&body_for(&path, &run, &thread));
        }
        let (status, _, body) = parts(request.send().await.unwrap()).await;
        let text = body.to_string();
        if path.contains('{') || method == Method::POST {
            assert_eq!(status, 404, "{method} {path}: {text}");
        } else {
            assert_eq!(status, 200, "{method} {path}: {text}");
            assert!(!text.contains(&run) && !text.contains(&thread), "{method} {path}: {text}");
        }
    }
    for path in [format!("/v1/runs?after={run}"), format!("/v1/threads?after={run}")] {
        assert_eq!(kit.get(&path).send().await.unwrap().status(), 404, "{path}");
    }
    let (_, _, body) =
        parts(kit.get(&format!("/v1/runs?thread={thread}")).send().await.unwrap()).await;
    assert_eq!(body, json!({ "runs": [], "next": null }));
    for place in [json!({ "thread": thread }), json!({ "after": run })] {
        let mut body = json!({ "agent": "agent", "input": "go" });
        body.as_object_mut().unwrap().extend(place.as_object().unwrap().clone());
        let response = kit.post("/v1/runs", &body).send().await.unwrap();
        assert_eq!(response.status(), 404, "{body}");
    }
    // Ids that clients choose are per tenant, so our ids used as such name something else.
    let message = json!({ "id": "m", "role": "user", "content": "go" });
    let result = json!({
        "id": "x", "role": "tool", "toolCallId": format!("{run}-0"), "content": "forged",
    });
    let resume = json!([{
        "interruptId": format!("{run}-0"), "status": "resolved", "payload": { "approved": true },
    }]);
    for (messages, resume, want) in [
        (json!([message]), json!([]), 200),
        (json!([message, result]), json!([]), 400),
        (json!([message]), resume, 400),
    ] {
        let body = json!({
            "threadId": thread, "runId": run, "messages": messages, "resume": resume,
        });
        let body = if want == 200 {
            body
        } else {
            // The first request started a run with that id, and this one would attach to it.
            json!({ "threadId": run, "runId": "another", "messages": messages, "resume": resume })
        };
        let response = kit.post("/ag-ui/agent", &body).send().await.unwrap();
        assert_eq!(response.status(), want, "{body}");
        let text = response.text().await.unwrap();
        assert!(want != 200 || text.contains("\"interrupt\""), "a run of its own: {text}");
    }
    kit.token = Some(mine);
    let after = kit.runtime.log().transcript(run.parse().unwrap()).await.unwrap();
    assert_eq!(after, before, "nothing came of it");
    assert!(
        kit.runtime
            .log()
            .store()
            .inbox(run.parse().unwrap(), wellspring_core::InboxNo(0))
            .await
            .unwrap()
            .is_empty()
    );
}

/// Requests without a token, with an invalid one, and with one that has too few permissions.
#[tokio::test]
async fn every_route_holds_to_its_scope() {
    let (kit, _) = two_tenants(config()).await;
    scopes_on_every_route(kit).await;
    let (kit, _) = two_tenants(config()).await;
    scopes_on_every_route(kit.mounted().await).await;
}

async fn scopes_on_every_route(mut kit: Kit) {
    let tokens = kit.server.tokens();
    let mut secrets = BTreeMap::new();
    for scope in Permission::ALL {
        let secret = tokens.create(scope.as_str(), "one", &[scope]).await.unwrap();
        secrets.insert(scope.as_str(), secret);
    }
    for (method, path, scope) in routes(&kit).await {
        let path = path.replace("{run}", "x").replace("{thread}", "x").replace("{agent}", "agent");
        let path = path.replace("{chat}", "x");
        for secret in [None, Some("ws_mine_nonsense".to_owned())] {
            kit.token = secret;
            let status = kit.request(method.clone(), &path).send().await.unwrap().status();
            assert_eq!(status == 401, scope.is_some(), "{method} {path}: {status}");
        }
        for (name, secret) in &secrets {
            kit.token = Some(secret.clone());
            let status = kit.request(method.clone(), &path).send().await.unwrap().status();
            let allowed = scope.as_deref().is_none_or(|scope| scope == *name || *name == "admin");
            // Operators of one tenant cannot read figures of all tenants.
            let allowed = allowed && path != "/metrics";
            assert_eq!(status != 403, allowed, "{method} {path} with {name}: {status}");
        }
    }
}

/// Only the server's operator reads figures of all tenants.
#[tokio::test]
async fn the_servers_figures_are_its_operators_alone() {
    let (mut kit, [mine, _]) = two_tenants(config()).await;
    let tokens = kit.server.tokens();
    let reader = tokens.create("reader", "default", &[Permission::Read]).await.unwrap();
    let operator = tokens.create("operator", "default", &[Permission::Admin]).await.unwrap();
    let mut said = Vec::new();
    for secret in [mine, reader, operator] {
        kit.token = Some(secret);
        let (status, _, body) = parts(kit.get("/metrics").send().await.unwrap()).await;
        said.push((status, body["error"]["code"].as_str().unwrap_or_default().to_owned()));
    }
    let refused = |code: &str| (403, code.to_owned());
    assert_eq!(said, [refused("operators_only"), refused("scope"), (200, String::new())]);
}

#[tokio::test]
async fn a_signed_address_opens_one_stream_for_a_while() {
    let (mut kit, [_, other]) = two_tenants(config()).await;
    let (run, second) = (kit.start().await, kit.start().await);
    let sign = kit.post(&format!("/v1/runs/{run}/stream-url"), &json!({ "seconds": 60 }));
    let (status, _, signed) = parts(sign.send().await.unwrap()).await;
    assert_eq!(status, 200);
    let url = signed["url"].as_str().unwrap().to_owned();
    kit.token = None;
    assert_eq!(kit.get(&format!("{url}&dialect=agent_event")).send().await.unwrap().status(), 200);
    let expires = signed["expires_at"].to_string();
    let code = async |url: String| {
        let (status, _, body) = parts(kit.get(&url).send().await.unwrap()).await;
        assert_eq!(status, 401);
        body["error"]["code"].as_str().unwrap().to_owned()
    };
    assert_eq!(code(url.replace(&run.to_string(), &second.to_string())).await, "bad_signature");
    assert_eq!(code(url.replace(&expires, "9999999999999")).await, "bad_signature");
    assert_eq!(code(url.replace("as=mine", "as=other")).await, "bad_signature");
    // Signed URLs of a revoked token are invalid.
    kit.server.tokens().revoke("mine").await.unwrap();
    assert_eq!(code(url).await, "bad_token");
    kit.token = Some(other);
    assert_eq!(kit.get("/v1/runs").send().await.unwrap().status(), 200);
}

/// A clock that the test sets.
struct ByHand(AtomicU64);

impl Clock for ByHand {
    fn now(&self) -> Millis {
        Millis(self.0.load(Ordering::SeqCst))
    }
}

#[tokio::test]
async fn a_signed_address_expires() {
    let clock = Arc::new(ByHand(AtomicU64::new(1_000_000)));
    let options =
        LogOptions { clock: Arc::clone(&clock) as Arc<dyn Clock>, ..LogOptions::default() };
    let log = Log::new(Arc::new(MemoryStore::default()), options);
    let kit = Kit::with(config(), Runtime::new(log), agent([Say::new().text("Hello.")], [])).await;
    let run = kit.start().await;
    let sign = kit.post(&format!("/v1/runs/{run}/stream-url"), &json!({ "seconds": 60 }));
    let (_, _, signed) = parts(sign.send().await.unwrap()).await;
    assert_eq!(signed["expires_at"], json!(1_060_000));
    let url = signed["url"].as_str().unwrap();
    clock.0.store(1_060_000, Ordering::SeqCst);
    assert_eq!(kit.get(url).send().await.unwrap().status(), 200);
    clock.0.store(1_060_001, Ordering::SeqCst);
    let (status, _, body) = parts(kit.get(url).send().await.unwrap()).await;
    assert_eq!((status, body["error"]["code"].as_str()), (401, Some("expired")));
}

/// A server on a non-loopback address requires a token for everything.
#[tokio::test]
async fn refuses_to_listen_elsewhere_without_a_token() {
    let runtime = Runtime::new(Log::in_memory());
    let config = ServerConfig { listen: "0.0.0.0:0".parse().unwrap(), ..ServerConfig::default() };
    let start = || Server::builder(runtime.clone()).config(config.clone()).start();
    let error = start().await.unwrap_err();
    assert!(matches!(error, ServeError::NoToken { .. }), "{error}");
    Tokens::new(runtime.log().store().clone())
        .create("one", "default", &[Permission::Read])
        .await
        .unwrap();
    start().await.unwrap().stop().await;
}

/// A host name that resolves to this machine (DNS rebinding), and a page of another site.
#[tokio::test]
async fn foreign_names_and_pages_are_refused() {
    let config = ServerConfig { cors: vec!["https://app.example".into()], ..config() };
    let kit = Kit::with(config, Runtime::new(Log::in_memory()), agent([], [])).await;
    let address = kit.server.address().to_string();
    let port = kit.server.address().port();
    let ask = async |headers: &[(&str, &str)]| {
        let mut request = kit.get("/v1/runs");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (status, headers, body) = parts(request.send().await.unwrap()).await;
        let allowed =
            headers.get("access-control-allow-origin").map(|it| it.to_str().unwrap().to_owned());
        (status, body["error"]["code"].as_str().unwrap_or_default().to_owned(), allowed)
    };
    let fine = |allowed: Option<&str>| (200, String::new(), allowed.map(str::to_owned));
    let refused = |code: &str| (403, code.to_owned(), None);
    assert_eq!(ask(&[]).await, fine(None));
    assert_eq!(ask(&[("host", &format!("localhost:{port}"))]).await, fine(None));
    assert_eq!(ask(&[("host", "evil.example")]).await, refused("bad_host"));
    assert_eq!(ask(&[("host", &format!("evil.example:{port}"))]).await, refused("bad_host"));
    assert_eq!(ask(&[("origin", &format!("http://{address}"))]).await, fine(None));
    assert_eq!(ask(&[("origin", "http://evil.example")]).await, refused("cross_site"));
    assert_eq!(ask(&[("origin", "null")]).await, refused("cross_site"));
    assert_eq!(ask(&[("origin", "https://app.example")]).await, fine(Some("https://app.example")));
    let preflight =
        kit.request(Method::OPTIONS, "/v1/runs").header("origin", "https://app.example");
    let response = preflight.send().await.unwrap();
    assert_eq!(response.status(), StatusCode::NO_CONTENT);
    assert!(
        response.headers()["access-control-allow-headers"]
            .to_str()
            .unwrap()
            .contains("last-event-id")
    );
}

/// On other addresses too: the server's own address is always accepted as a host, a name must be
/// listed.
#[tokio::test]
async fn elsewhere_names_have_to_be_known_too() {
    let mut said = Vec::new();
    for (listen, hosts) in [("0.0.0.0:0", &[][..]), ("0.0.0.0:0", &["known.example"])] {
        let hosts = hosts.iter().map(|host| (*host).into()).collect();
        let config = ServerConfig { listen: listen.parse().unwrap(), hosts, ..config() };
        let runtime = Runtime::new(Log::in_memory());
        let tokens = Tokens::new(runtime.log().store().clone());
        let secret = tokens.create("mine", "one", &[Permission::Admin]).await.unwrap();
        let mut kit = Kit::with(config, runtime, agent([], [])).await;
        kit.token = Some(secret);
        let port = kit.server.address().port();
        for host in ["localhost", "192.0.2.7", "[2001:db8::7]", "known.example", "evil.example"] {
            let url = format!("http://127.0.0.1:{port}/v1/runs");
            let request = kit.client.get(url).bearer_auth(kit.token.as_ref().unwrap());
            let response = request.header("host", format!("{host}:{port}")).send().await.unwrap();
            said.push(response.status().as_u16());
        }
    }
    assert_eq!(said, [200, 200, 200, 403, 403, 200, 200, 200, 200, 403]);
}

/// Once tokens were required, they stay required.
#[tokio::test]
async fn revoking_the_last_token_leaves_the_server_closed() {
    let kit = Kit::new(agent([], [])).await;
    let status = async || kit.get("/v1/runs").send().await.unwrap().status().as_u16();
    assert_eq!(status().await, 200);
    kit.server.tokens().create("only", "default", &[]).await.unwrap();
    assert_eq!(status().await, 401);
    assert!(kit.server.tokens().revoke("only").await.unwrap());
    assert_eq!(status().await, 401);
}
