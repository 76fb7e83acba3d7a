//! `examples/use-ai-socketio` in a real browser, used as a person would.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::response::Html;
use axum::routing::{get, post};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::sync::mpsc;
use wellspring_core::Model;
use wellspring_engine::{AgentDef, Runtime};
use wellspring_log::Log;
use wellspring_models::{Gate, Say, Scripted};
use wellspring_server::{Api, router};

use crate::kit::agent;
use crate::page::{chromium, has_chromium};

/// How long a browser may take for all of it.
const PATIENCE: Duration = Duration::from_secs(120);

/// Text that grows while it streams, a tool in the page, an abort, and a reload in mid-answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn somebody_uses_the_example_over_socket_io() {
    if std::env::var_os("WELLSPRING_PEER_USE_AI_PAGE").is_none() {
        println!("skipped: WELLSPRING_PEER_USE_AI_PAGE is not set; `cargo xtask test` sets it");
        return;
    }
    if !has_chromium() {
        return;
    }
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/use-ai-socketio");
    let own = tempfile::tempdir().unwrap();
    let built = Command::new("node_modules/.bin/esbuild")
        .args(["src/main.ts", "--bundle", "--log-level=error"])
        .arg(format!("--outdir={}", own.path().display()))
        .current_dir(&example)
        .status()
        .await
        .unwrap();
    assert!(built.success());
    let script = std::fs::read_to_string(own.path().join("main.js")).unwrap();
    let page = std::fs::read_to_string(example.join("www/index.html")).unwrap();
    let page = page.replace("</body>", "<script src=\"/test/user.js\"></script></body>");

    let runtime = Runtime::new(Log::in_memory());
    let gate = Gate::new();
    let grow = Say::new().text("one ").unfinished().gate(&gate).more(0, "two");
    let paint = Say::new().call("paint", json!({"colour": "teal"}));
    let model = Arc::new(Scripted::with(move |_| grow.clone())) as Arc<dyn Model>;
    for (name, def) in [
        ("grow", AgentDef::model("grow", model)),
        ("paint", agent([paint, Say::new().text("Painted.")], [])),
        ("stuck", agent([Say::new().text("forever ").hang()], [])),
    ] {
        runtime.register(AgentDef { name: name.into(), ..def });
    }
    let api = Api::builder(runtime.clone()).authenticate(Arc::new(Anyone)).open().await.unwrap();
    let (tell, mut told) = mpsc::unbounded_channel();
    let app = Router::new()
        .route("/test/page", get(async move || Html(page)))
        .route("/test/js/main.js", get(async move || javascript(script)))
        .route("/test/user.js", get(async || javascript(USER.to_owned())))
        .route("/test/pass", post(async move || gate.pass()))
        .route("/test/said", post(async move |said: String| tell.send(said).unwrap()))
        .merge(router(&api));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/test/page", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });

    let profile = tempfile::tempdir().unwrap();
    let mut browser = chromium(profile.path(), &[&url]);
    let said = tokio::time::timeout(PATIENCE, told.recv()).await.unwrap().unwrap();
    browser.kill().await.unwrap();
    insta::assert_snapshot!(said, @"
    the agents are offered
    the text has begun
    the text has grown
    the run is over
    the tool ran in the page
    the agent knows
    the run is over
    a text that does not go on
    aborted
    the text has begun again
    after the reload the text is there
    and it goes on without a repeated word
    with the conversation before it
    ");
    api.stop().await;
}

const USER: &str = include_str!("../peer/use_ai/page.js");

fn javascript(script: String) -> ([(&'static str, &'static str); 1], String) {
    ([("content-type", "text/javascript")], script)
}

/// Lets every request in: this is about the page.
struct Anyone;

impl wellspring_server::Authenticate for Anyone {
    fn authenticate<'a>(
        &'a self,
        _: &'a axum::http::request::Parts,
    ) -> futures::future::BoxFuture<
        'a,
        Result<wellspring_engine::Principal, wellspring_server::AuthError>,
    > {
        Box::pin(async { Ok(wellspring_engine::Principal::local()) })
    }
}
