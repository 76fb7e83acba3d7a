//! The API mounted in an application: below its prefix, with its layers and its login.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{Request, StatusCode, header};
use axum::routing::get;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;
use wellspring_engine::{Permission, Principal, Runtime};
use wellspring_log::Log;
use wellspring_models::Say;
use wellspring_server::{Api, AuthError, Authenticate, ServerConfig, router};

use crate::kit::agent;

/// The principal is in a cookie: `user=tenant/name`.
struct Cookie;

impl Authenticate for Cookie {
    fn authenticate<'a>(
        &'a self,
        request: &'a Parts,
    ) -> BoxFuture<'a, Result<Principal, AuthError>> {
        async move {
            let cookie = request.headers.get(header::COOKIE).ok_or(AuthError::Missing)?;
            if cookie == "broken" {
                return Err(AuthError::Failed("the sessions are gone".into()));
            }
            let user = cookie.to_str().ok().and_then(|cookie| cookie.strip_prefix("user="));
            let (tenant, name) =
                user.and_then(|user| user.split_once('/')).ok_or(AuthError::Unknown)?;
            Ok(Principal::new(tenant, name, [Permission::Read, Permission::Run]))
        }
        .boxed()
    }

    fn remedy(&self) -> &'static str {
        "go to /login"
    }
}

async fn api() -> Api {
    let runtime = Runtime::new(Log::in_memory());
    runtime.register(agent([Say::new().text("Hello.")], []));
    Api::builder(runtime).authenticate(Arc::new(Cookie)).open().await.unwrap()
}

async fn ask(app: &Router, request: Request<Body>) -> (StatusCode, String) {
    let response = app.clone().oneshot(request).await.unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

fn request(method: &str, path: &str, cookie: Option<&str>) -> axum::http::request::Builder {
    let request = Request::builder().method(method).uri(path).header("host", "app.example");
    match cookie {
        Some(cookie) => request.header("cookie", cookie),
        None => request,
    }
}

async fn get_(app: &Router, path: &str, cookie: Option<&str>) -> (StatusCode, Value) {
    let (status, body) = ask(app, request("GET", path, cookie).body(Body::empty()).unwrap()).await;
    (status, serde_json::from_str(&body).unwrap_or(Value::String(body)))
}

/// However the API is mounted, each path in a response begins with the prefix.
#[tokio::test]
async fn every_path_has_the_prefix() {
    let api = api().await;
    let merged = router(&api);
    let nested = Router::new().nest("/agents", router(&api));
    let deeper = Router::new().nest("/my", Router::new().nest("/agents", router(&api)));
    let service = Router::new().nest_service("/agents", router(&api));
    for (app, prefix) in
        [(merged, ""), (nested, "/agents"), (deeper, "/my/agents"), (service, "/agents")]
    {
        let app = app.route("/own", get(async || "mine"));
        assert_eq!(get_(&app, "/own", None).await.1, json!("mine"));
        let body = json!({ "agent": "agent", "input": "go" }).to_string();
        let start = request("POST", &format!("{prefix}/v1/runs"), Some("user=one/ada"));
        let (status, started) = ask(&app, start.body(Body::from(body)).unwrap()).await;
        assert_eq!(status, 201, "{started}");
        let started: Value = serde_json::from_str(&started).unwrap();
        let run = started["run"].as_str().unwrap();
        let events = format!("{prefix}/v1/runs/{run}/events");
        assert_eq!(started["events"], json!(events));
        let (status, stream) = get_(&app, &events, Some("user=one/ada")).await;
        assert_eq!(status, 200);
        assert!(stream.as_str().unwrap().contains("run_finished"), "{stream}");
        let sign =
            request("POST", &format!("{prefix}/v1/runs/{run}/stream-url"), Some("user=one/ada"));
        let (_, signed) = ask(&app, sign.body(Body::empty()).unwrap()).await;
        assert!(signed.contains(&format!("\"url\":\"{events}?as=ada&")), "{signed}");
        let servers =
            get_(&app, &format!("{prefix}/openapi.json"), None).await.1["servers"].clone();
        let want = if prefix.is_empty() { json!(null) } else { json!([{ "url": prefix }]) };
        assert_eq!(servers, want);
        let root = if prefix.is_empty() { "/" } else { prefix };
        let page = get_(&app, root, None).await.1;
        let script = format!("src=\"{prefix}/page/app.js\"");
        assert!(page.as_str().is_some_and(|page| page.contains(&script)), "{page}");
        assert_eq!(get_(&app, &format!("{prefix}/page/app.js"), None).await.0, 200);
        assert_eq!(get_(&app, &format!("{prefix}/nothing"), None).await.0, 404);
    }
}

/// The application's own login identifies the principal, and decides on the response to a refusal.
#[tokio::test]
async fn the_applications_login_counts() {
    let api = api().await;
    let app = Router::new().nest("/agents", router(&api));
    let secret = api.tokens().create("mine", "one", &[Permission::Admin]).await.unwrap();
    let mut said = Vec::new();
    for cookie in [None, Some("user=nobody"), Some("broken"), Some("user=one/ada")] {
        let (status, body) = get_(&app, "/agents/v1/runs", cookie).await;
        said.push((
            status.as_u16(),
            body["error"]["code"].clone(),
            body["error"]["remedy"].clone(),
        ));
    }
    let log = "try again; the server's log says more";
    assert_eq!(
        said,
        [
            (401, json!("no_token"), json!("go to /login")),
            (401, json!("bad_token"), json!("go to /login")),
            (503, json!("store"), json!(log)),
            (200, Value::Null, Value::Null),
        ]
    );
    // Tokens are not required, and the permissions are those that the login gave.
    let with_token = request("GET", "/agents/v1/runs", None)
        .header("authorization", format!("Bearer {secret}"))
        .body(Body::empty())
        .unwrap();
    assert_eq!(ask(&app, with_token).await.0, 401);
    assert_eq!(get_(&app, "/agents/v1/audit", Some("user=one/ada")).await.0, 403);
}

/// A browser sends cookies with every request, so requests from pages of other sites are refused.
#[tokio::test]
async fn other_sites_cannot_use_a_visitors_cookie() {
    let api = api().await;
    let app = Router::new().nest("/agents", router(&api));
    let body = json!({ "agent": "agent", "input": "go" }).to_string();
    for (origin, want) in [("https://evil.example", 403), ("https://app.example", 201)] {
        let start = request("POST", "/agents/v1/runs", Some("user=one/ada"))
            .header("origin", origin)
            .body(Body::from(body.clone()))
            .unwrap();
        assert_eq!(ask(&app, start).await.0, want, "{origin}");
    }
}

/// Without a login and without tokens, a mounted API refuses every request: it does not know who
/// can reach the application.
#[tokio::test]
async fn a_mounted_api_is_closed_by_default() {
    let open = async |config: ServerConfig| {
        Api::builder(Runtime::new(Log::in_memory())).config(config).open().await.unwrap()
    };
    let app = router(&open(ServerConfig::default()).await);
    assert_eq!(get_(&app, "/v1/runs", None).await.0, 401);
    assert_eq!(get_(&app, "/healthz", None).await.0, 200);
    // Host names are checked if they are listed.
    let hosts = vec!["other.example".into()];
    let app = router(&open(ServerConfig { hosts, ..ServerConfig::default() }).await);
    assert_eq!(get_(&app, "/healthz", None).await.0, 403);
}

/// A stopped API ends its streams with an event, and starts no runs.
#[tokio::test]
async fn a_mounted_api_drains() {
    let api = api().await;
    let app = Router::new().nest("/agents", router(&api));
    api.stop().await;
    assert_eq!(get_(&app, "/agents/readyz", None).await.0, 503);
    let start = request("POST", "/agents/v1/runs", Some("user=one/ada"));
    let body = json!({ "agent": "agent", "input": "go" }).to_string();
    assert_eq!(ask(&app, start.body(Body::from(body)).unwrap()).await.0, 503);
}
