//! The application in a real browser, over its own login.
#![expect(clippy::unwrap_used, reason = "a test, in its helpers too")]

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use futures::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

/// How long all of it may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// A user logs in, talks to the agent under `/agents`, and no other user sees it.
#[tokio::test]
async fn a_user_logs_in_and_talks_to_the_agent() {
    if std::env::var_os("WELLSPRING_PEER_CHROMIUM").is_none() {
        println!("skipped: WELLSPRING_PEER_CHROMIUM is not set; `cargo xtask test` sets it");
        return;
    }
    tokio::time::timeout(PATIENCE, session()).await.unwrap();
}

async fn session() {
    let (_application, url) = application().await;
    let profile = tempfile::tempdir().unwrap();
    let mut browser = Browser::open(profile.path()).await;
    browser.go(&url).await;
    let runs =
        "fetch('/agents/v1/runs').then(async it => [it.status, (await it.json()).runs?.length])";
    assert_eq!(browser.evaluate(runs).await, json!([401, null]));

    browser.log_in("ada").await;
    assert_eq!(browser.evaluate(runs).await, json!([200, 0]));
    browser.evaluate("document.querySelector('a').click()").await;
    browser.until("document.querySelector('#agent option')?.value === 'greeter'").await;
    assert_eq!(browser.evaluate("location.pathname").await, json!("/agents"));
    let ask = "document.querySelector('#input').value = 'Hello?'; \
               document.querySelector('#ask').requestSubmit()";
    browser.evaluate(ask).await;
    browser
        .until(
            "document.querySelector('#runs').textContent.includes('Hello from the mounted agent.')",
        )
        .await;
    assert_eq!(browser.evaluate(runs).await, json!([200, 1]));

    browser.go(&url).await;
    browser.until("document.querySelector('form[action=\"/logout\"]')").await;
    browser.evaluate("document.querySelector('form').requestSubmit()").await;
    browser.until("document.querySelector('form[action=\"/login\"]')").await;
    assert_eq!(browser.evaluate(runs).await, json!([401, null]));
    browser.log_in("bob").await;
    assert_eq!(browser.evaluate(runs).await, json!([200, 0]));
}

/// The example, and where it is.
async fn application() -> (Child, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_example-mounted"))
        .arg("127.0.0.1:0")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let url = lines.next_line().await.unwrap().unwrap();
    (child, url)
}

/// A browser, told what to do over its DevTools protocol.
struct Browser {
    _process: Child,
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    asked: u64,
}

impl Browser {
    async fn open(profile: &Path) -> Self {
        let process = Command::new("chromium")
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0"])
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg("about:blank")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        // It writes down its port once it listens.
        let port = loop {
            let text = tokio::fs::read_to_string(profile.join("DevToolsActivePort")).await;
            if let Some(port) = text.ok().and_then(|text| Some(text.split_once('\n')?.0.to_owned()))
            {
                break port;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let list = client.get(format!("http://127.0.0.1:{port}/json/list"));
        let url = loop {
            let tabs: Vec<Value> =
                list.try_clone().unwrap().send().await.unwrap().json().await.unwrap();
            let tab = tabs.iter().find(|tab| tab["type"] == "page");
            if let Some(url) = tab.and_then(|tab| tab["webSocketDebuggerUrl"].as_str()) {
                break url.to_owned();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        let (socket, _) = tokio_tungstenite::connect_async(url).await.unwrap();
        Self { _process: process, socket, asked: 0 }
    }

    async fn call(&mut self, method: &str, params: Value) -> Value {
        self.asked += 1;
        let text = json!({ "id": self.asked, "method": method, "params": params }).to_string();
        self.socket.send(Message::text(text)).await.unwrap();
        loop {
            let message = self.socket.next().await.unwrap().unwrap();
            let Message::Text(text) = message else { continue };
            let answer: Value = serde_json::from_str(&text).unwrap();
            if answer["id"] == self.asked {
                return answer;
            }
        }
    }

    async fn go(&mut self, url: &str) {
        self.call("Page.navigate", json!({ "url": url })).await;
        let loaded = format!(
            "document.readyState === 'complete' && location.href.startsWith({})",
            json!(url)
        );
        self.until(&loaded).await;
    }

    /// The value of an expression on the page, awaited if it is a promise.
    async fn evaluate(&mut self, expression: &str) -> Value {
        let params =
            json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let answer = self.call("Runtime.evaluate", params).await;
        answer["result"]["result"]["value"].clone()
    }

    /// Waits until an expression is true on the page that is shown then.
    async fn until(&mut self, expression: &str) {
        let expression = format!("!!({expression})");
        while self.evaluate(&expression).await != json!(true) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn log_in(&mut self, user: &str) {
        self.until("document.querySelector('form[action=\"/login\"]')").await;
        let fill = format!(
            "document.querySelector('input').value = {}; document.querySelector('form').requestSubmit()",
            json!(user)
        );
        self.evaluate(&fill).await;
        let welcome =
            format!("document.body.innerText.includes({})", json!(format!("Welcome, {user}")));
        self.until(&welcome).await;
    }
}
