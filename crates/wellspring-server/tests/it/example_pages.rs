//! The pages in `examples/`, each in a real browser, used as a person would.

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
use wellspring_core::{Approval, Model};
use wellspring_engine::{AgentDef, Policy, Rule, Runtime};
use wellspring_log::Log;
use wellspring_models::{Gate, Say, Scripted};
use wellspring_server::{Api, router};

use crate::kit::{agent, echo, has_peer};
use crate::page::{chromium, has_chromium};

/// How long a browser may take for all of it.
const PATIENCE: Duration = Duration::from_secs(120);

/// What every page shows, whatever its protocol.
const SEEN: &str = "\
the agents are offered
the text has begun
the text has grown
the run is over
the tool ran in the page
the agent knows
the run is over
the user is asked
and allows it
the run is over
a text that does not go on
stopped
the text has begun again
after the reload the text is there
and it goes on without a repeated word
with the conversation before it
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn use_ai_over_socket_io() {
    let page = Page {
        example: "use-ai-socketio",
        peer: "WELLSPRING_PEER_USE_AI_PAGE",
        stopped: "Run aborted by user",
    };
    page.is_used().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ai_sdk_with_react() {
    let page =
        Page { example: "ai-sdk-react", peer: "WELLSPRING_PEER_AI_SDK_PAGE", stopped: "Stopped." };
    page.is_used().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ag_ui_with_its_client() {
    let page =
        Page { example: "ag-ui-client", peer: "WELLSPRING_PEER_AG_UI_PAGE", stopped: "Stopped." };
    page.is_used().await;
}

/// A page of `examples/`.
struct Page {
    /// Its folder.
    example: &'static str,
    /// The variable that is set if its packages are installed.
    peer: &'static str,
    /// What it shows after a stop.
    stopped: &'static str,
}

impl Page {
    /// Text that grows while it streams, a tool in the page, an approval, a stop, and a reload in
    /// mid-answer.
    async fn is_used(&self) {
        if !has_peer(self.peer) || !has_chromium() {
            return;
        }
        let (page, script) = self.build().await;
        let gate = Gate::new();
        let runtime = Runtime::new(Log::in_memory());
        for (name, def) in agents(&gate) {
            runtime.register(AgentDef { name: name.into(), ..def });
        }
        let api =
            Api::builder(runtime.clone()).authenticate(Arc::new(Anyone)).open().await.unwrap();
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
        assert_eq!(said, SEEN);
        api.stop().await;
    }

    /// The page with its user, and its script, built as its README says.
    async fn build(&self) -> (String, String) {
        let folder =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(self.example);
        let own = tempfile::tempdir().unwrap();
        let outdir = format!("--outdir={}", own.path().display());
        let built = Command::new("npm")
            .args(["run", "build", "--silent", "--", "--log-level=error", &outdir])
            .current_dir(&folder)
            .status()
            .await
            .unwrap();
        assert!(built.success());
        let script = std::fs::read_to_string(own.path().join("main.js")).unwrap();
        let page = std::fs::read_to_string(folder.join("www/index.html")).unwrap();
        let user =
            format!("<script src=\"/test/user.js\" data-stopped=\"{}\"></script>", self.stopped);
        (page.replace("</body>", &format!("{user}</body>")), script)
    }
}

/// An agent for each of the user's actions.
fn agents(gate: &Gate) -> [(&'static str, AgentDef); 4] {
    let grow = Say::new().text("one ").unfinished().gate(gate).more(0, "two");
    let paint = Say::new().call("paint", json!({"colour": "teal"}));
    let model = Arc::new(Scripted::with(move |_| grow.clone())) as Arc<dyn Model>;
    let work = Say::new().call("echo", json!({"say": "x"}));
    let mut ask = agent([work, Say::new().text("Done.")], [echo()]);
    ask.policy = Policy::default().rule(Rule::tool("*").decide(Approval::Ask));
    [
        ("grow", AgentDef::model("grow", model)),
        ("paint", agent([paint, Say::new().text("Painted.")], [])),
        ("ask", ask),
        ("stuck", agent([Say::new().text("forever ").hang()], [])),
    ]
}

const USER: &str = include_str!("../peer/examples/user.js");

fn javascript(script: String) -> ([(&'static str, &'static str); 1], String) {
    ([("content-type", "text/javascript")], script)
}

/// Accepts every request: these tests are about the pages.
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
