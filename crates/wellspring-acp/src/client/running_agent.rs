//! A connection to an agent, and how many prompts it serves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use wellspring_wire::acp::merge;

use super::broadcast::Attending;
use super::config::{AcpConfig, AcpTransport, FileAccess};
use super::connection::Connection;
use super::error::AcpError;
use super::message_log::Recorder;
use super::{http, stdio, ws};

/// The protocol version that we speak.
const VERSION: u64 = 1;

/// A running agent.
pub(super) struct Peer {
    pub(super) connection: Arc<Connection>,
    /// Its `initialize` result.
    pub(super) info: Value,
    prompts: AtomicUsize,
    /// Set when a prompt was given up: the agent gets no more prompts, and ends with its last one.
    given_up: AtomicBool,
}

impl Peer {
    /// Starts or connects to an agent and negotiates a version. `client` holds the `initialize`
    /// parameters of the client that we serve.
    pub(super) async fn start(
        config: &AcpConfig,
        client: &Value,
        attending: Attending,
    ) -> Result<Self, AcpError> {
        let limit = config.timeouts.start;
        within(limit, "its start", async {
            let wire = match &config.transport {
                AcpTransport::Url(url) if url.starts_with("ws") => ws::open(url, config).await?,
                AcpTransport::Url(url) => http::open(url, config)?,
                AcpTransport::Name(_) | AcpTransport::Command(_) => stdio::start(config)?,
            };
            let record = config.record.as_deref().map(Recorder::open).transpose()?;
            let connection = Connection::new(wire, record, attending);
            let info = connection.request("initialize", hello(config, client)).await?;
            if info["protocolVersion"].as_u64() != Some(VERSION) {
                let theirs = info["protocolVersion"].to_string().into();
                return Err(AcpError::Version { theirs });
            }
            Ok(Self {
                connection: Arc::new(connection),
                info,
                prompts: AtomicUsize::new(0),
                given_up: AtomicBool::new(false),
            })
        })
        .await
    }

    /// Whether it accepts further prompts.
    pub(super) fn is_well(&self) -> bool {
        !self.given_up.load(Ordering::Relaxed) && self.connection.ended().is_none()
    }

    pub(super) fn prompts(&self) -> usize {
        self.prompts.load(Ordering::Relaxed)
    }

    pub(super) fn capability(&self, path: &str) -> bool {
        let capability = self.info["agentCapabilities"].pointer(path);
        // Some capabilities are flags, others are objects whose presence counts.
        capability.is_some_and(|it| it.as_bool().unwrap_or(!it.is_null()))
    }

    /// The agent's login methods, as text.
    pub(super) fn logins(&self) -> Vec<Box<str>> {
        let methods = self.info["authMethods"].as_array().into_iter().flatten();
        let said = methods.filter_map(|method| {
            let name = method["name"].as_str().or(method["id"].as_str())?;
            Some(match method["description"].as_str().filter(|said| !said.is_empty()) {
                Some(description) => format!("{name} ({description})").into(),
                None => name.into(),
            })
        });
        said.collect()
    }

    /// Counts a prompt until the guard is dropped.
    pub(super) fn serve(self: &Arc<Self>) -> Serving {
        self.prompts.fetch_add(1, Ordering::Relaxed);
        Serving(Arc::clone(self))
    }

    /// Ends it as soon as it serves no prompt.
    fn give_up(&self) {
        self.given_up.store(true, Ordering::Relaxed);
        self.end_if_idle();
    }

    fn end_if_idle(&self) {
        if !self.is_well() && self.prompts() == 0 {
            self.connection.cut();
        }
    }
}

/// A prompt that counts towards a process.
pub(super) struct Serving(Arc<Peer>);

impl Serving {
    /// Gives the prompt up: the agent did not end it.
    pub(super) fn give_up(self) {
        let peer = Arc::clone(&self.0);
        drop(self);
        peer.give_up();
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.prompts.fetch_sub(1, Ordering::Relaxed);
        self.0.end_if_idle();
    }
}

/// Our own capabilities, whichever client we serve; the client's `_meta` goes to
/// the agent.
fn hello(config: &AcpConfig, client: &Value) -> Value {
    let (read, write) = match config.files {
        FileAccess::Write => (true, true),
        FileAccess::Read => (true, false),
        FileAccess::None => (false, false),
    };
    let mut hello = json!({
        "protocolVersion": VERSION,
        "clientCapabilities": {
            "fs": {"readTextFile": read, "writeTextFile": write},
            "terminal": config.terminals,
            "elicitation": {"form": {}},
            // They are in the log, so every viewer gets them.
            "session": {"notices": {}, "compaction": {}},
        },
        "clientInfo": {"name": "wellspring", "version": env!("CARGO_PKG_VERSION")},
    });
    let meta = |of: &Value| json!({"_meta": of["_meta"]});
    if client["_meta"].is_object() {
        merge(&mut hello, &meta(client));
    }
    if client["clientInfo"].is_object() {
        let info = json!({"wellspring": {"clientInfo": client["clientInfo"]}});
        merge(&mut hello, &json!({"_meta": info}));
    }
    let capabilities = &client["clientCapabilities"];
    if capabilities["_meta"].is_object() {
        merge(&mut hello["clientCapabilities"], &meta(capabilities));
    }
    hello
}

/// Fails what takes too long.
pub(super) async fn within<T>(
    limit: Duration,
    what: &'static str,
    work: impl Future<Output = Result<T, AcpError>>,
) -> Result<T, AcpError> {
    let late = AcpError::TimedOut { what, limit };
    tokio::time::timeout(limit, work).await.unwrap_or(Err(late))
}
