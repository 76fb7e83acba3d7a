//! Being an ACP agent: any agent of a runtime, for any editor.
//!
//! A session is a thread, a prompt is a run, and its updates are a cursor over the log in the
//! dialect [`acp`]. So a session survives its process, can be loaded and resumed, and can be
//! watched and answered through other surfaces at the same time. A mode is an agent: switching it
//! changes the agent of the next prompt.
//!
//! # What a client brings
//!
//! MCP servers in the request that opens a session are tools of its agent. If a client supports
//! files or terminals, agents that are models can use them: `read_file`, `write_file` and
//! `run_shell_command` then work through the client, and see unsaved files. They are subject to the
//! agent's policy like any tool; writing and running ask first. An agent that speaks ACP itself
//! uses the client's files and terminals directly, and its session is opened together with the
//! client's, so that its modes and options are known from the start. The same applies to
//! sub-agents. Questions go to the client as permission requests, or as forms if it supports them.
//!
//! # What is deliberately absent
//!
//! A queue: a client that reads slowly makes its cursor lag, and nothing else. Authentication: the
//! user who starts the process is the local principal.

mod broadcast;
mod commands;
mod host;
mod initialize;
mod mcp;
mod options;
mod prompt;
mod proxied;
mod replay;
mod serve;
mod session;
mod sessions;
mod tools;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt as _, ready};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;
use wellspring_core::{CancellationToken, ThreadId};
use wellspring_engine::{Control, Runtime};
use wellspring_wire::acp;

pub use crate::rpc::PENDING_MAX;
pub use initialize::INTRODUCTION_TIME;
pub use mcp::SERVERS_MAX;
pub use replay::REPLAY_RUNS_MAX;
pub use serve::REQUESTS_MAX;
pub use session::SESSIONS_MAX;
pub use sessions::{DIRECTORIES_MAX, LIST_PAGE, LIST_SCANNED_MAX};

use crate::client::{AcpAgent, Link, Prompted};
use crate::lock;
use crate::rpc::{self, Peer, Reply, RpcError};
use serve::Handler;
use session::{Running, Session};

/// Writes that wait for a client that does not read, each of some updates: few, because what
/// waits longer is better left in the log.
const WRITES_WAITING_MAX: usize = 4;

/// How long a client that disconnects has to read the last messages.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How long a proxied agent may take to accept a notification before it misses it. Until then no
/// further message of the client is read, not even a cancel.
const TELL_TIME: Duration = Duration::from_secs(5);

/// The version of the protocol that is spoken.
const VERSION: u64 = 1;

/// The agents of a runtime, for one client.
///
/// ```
/// use std::sync::Arc;
/// use serde_json::{Value, json};
/// use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
/// use wellspring_acp::agent::AcpSurface;
/// use wellspring_engine::{AgentDef, Runtime};
/// use wellspring_log::Log;
/// use wellspring_models::{Say, Scripted};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let runtime = Runtime::new(Log::in_memory());
/// runtime.register(AgentDef::model("greeter", Arc::new(Scripted::new([Say::new().text("Hello.")]))));
/// let surface = AcpSurface::new(runtime.local(), "greeter")?;
/// let (client, agent) = tokio::io::duplex(64 * 1024);
/// let (input, output) = tokio::io::split(agent);
/// tokio::spawn(surface.serve(input, output));
///
/// let (read, mut write) = tokio::io::split(client);
/// let initialize = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": 1}});
/// write.write_all(format!("{initialize}\n").as_bytes()).await?;
/// let line = BufReader::new(read).lines().next_line().await?.unwrap();
/// let answer: Value = serde_json::from_str(&line)?;
/// assert_eq!(answer["result"]["protocolVersion"], 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct AcpSurface {
    control: Control,
    agent: Box<str>,
}

/// The runtime has no agent of this name.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("there is no agent {name:?}; there are: {known}")]
pub struct UnknownAgent {
    name: Box<str>,
    known: String,
}

impl AcpSurface {
    /// All agents that are registered, for one principal; `agent` is the one that a new session
    /// talks to.
    ///
    /// # Errors
    ///
    /// When there is no agent of that name.
    pub fn new(control: Control, agent: &str) -> Result<Self, UnknownAgent> {
        let runtime = control.runtime();
        if runtime.agent(agent).is_none() {
            let known: Vec<_> = runtime.agents().iter().map(|it| it.name.to_string()).collect();
            return Err(UnknownAgent { name: agent.into(), known: known.join(", ") });
        }
        Ok(Self { control, agent: agent.into() })
    }

    /// Serves one client until it closes its side. Runs continue in the runtime.
    ///
    /// # Errors
    ///
    /// When reading fails, or the client sends a message larger than
    /// [`EVENT_BYTES_MAX`](wellspring_wire::EVENT_BYTES_MAX).
    ///
    /// # Cancel safety
    ///
    /// When dropped, the client is disconnected, and runs continue.
    pub async fn serve(
        self,
        input: impl AsyncRead + Unpin + Send,
        output: impl AsyncWrite + Send + Unpin + 'static,
    ) -> std::io::Result<()> {
        let (out, lines) = mpsc::channel(WRITES_WAITING_MAX);
        let writing = AbortOnDropHandle::new(tokio::spawn(rpc::write(output, lines)));
        let peer = Peer::new(out);
        let agent = Agent {
            runtime: self.control.runtime().clone(),
            control: self.control,
            peer: peer.clone(),
            default_agent: self.agent,
            client: Mutex::default(),
            sessions: Mutex::default(),
            attended: Mutex::default(),
        };
        let served = serve::serve(&peer, input, &Arc::new(agent)).await;
        // A client that still reads gets the remaining messages.
        let _ = tokio::time::timeout(LAST_WORDS, writing).await;
        served
    }
}

/// The state of one client's connection.
struct Agent {
    control: Control,
    runtime: Runtime,
    peer: Peer,
    default_agent: Box<str>,
    client: Mutex<Client>,
    sessions: Mutex<BTreeMap<ThreadId, Arc<Session>>>,
    /// The tasks that forward messages outside sessions from proxied agents to the client, by
    /// agent.
    attended: Mutex<BTreeMap<Box<str>, AbortOnDropHandle<()>>>,
}

/// What a client can do.
#[derive(Clone, Copy, Debug, Default)]
struct Client {
    reads_files: bool,
    writes_files: bool,
    has_terminals: bool,
    has_forms: bool,
    has_notices: bool,
    has_compaction: bool,
}

impl Client {
    fn of(capabilities: &Value) -> Self {
        let is_there = |value: &Value| value.is_object() || *value == json!(true);
        Self {
            reads_files: capabilities["fs"]["readTextFile"] == json!(true),
            writes_files: capabilities["fs"]["writeTextFile"] == json!(true),
            has_terminals: capabilities["terminal"] == json!(true),
            has_forms: is_there(&capabilities["elicitation"]["form"]),
            has_notices: is_there(&capabilities["session"]["notices"]),
            has_compaction: is_there(&capabilities["session"]["compaction"]),
        }
    }
}

impl Handler for Arc<Agent> {
    fn request(
        &self,
        method: &str,
        params: Value,
        cancelled: CancellationToken,
    ) -> BoxFuture<'static, Result<Reply, RpcError>> {
        let agent = Arc::clone(self);
        let quick = |done: Result<Value, RpcError>| ready(done.map(Reply::from)).boxed();
        let slow: BoxFuture<'static, Result<Reply, RpcError>> = match method {
            "initialize" => self.initialize(&params).map(|said| Ok(said.into())).boxed(),
            "authenticate" => match self.behind() {
                Some(behind) => return pass_on(behind, method, params, cancelled),
                None => return quick(Err(initialize::no_login())),
            },
            "session/set_mode" => match agent.set_mode(&params) {
                Ok(setting) => setting.boxed(),
                Err(error) => return quick(Err(error)),
            },
            "session/set_config_option" => match agent.set_option(&params) {
                Ok(setting) => setting.boxed(),
                Err(error) => return quick(Err(error)),
            },
            "session/close" => return quick(self.close(&params)),
            // It ends by its own means when it is cancelled.
            "session/prompt" => {
                return match self.begin_prompt(&params, cancelled) {
                    Ok((running, input)) => {
                        async move { agent.prompt(running, input).await }.boxed()
                    }
                    Err(error) => ready(Err(error)).boxed(),
                };
            }
            "session/new" => async move { agent.new_session(&params).await }.boxed(),
            "session/load" => async move { agent.load(&params).await }.boxed(),
            "session/resume" => async move { agent.resume(&params).await }.boxed(),
            "session/list" => async move { agent.list(&params).await }.boxed(),
            "session/delete" => async move { agent.delete(&params).await }.boxed(),
            // Unknown methods may be known to a proxied agent.
            method => match self.knows(method, &params) {
                Some(Knows::Session(link)) => {
                    let method = method.to_owned();
                    return async move {
                        Ok(link.pass_on(&method, params, &cancelled).await?.into())
                    }
                    .boxed();
                }
                Some(Knows::Agent(behind)) => return pass_on(behind, method, params, cancelled),
                None => return quick(Err(RpcError::no_method(method))),
            },
        };
        async move {
            tokio::select! {
                done = slow => done,
                () = cancelled.cancelled() => {
                    Err(RpcError::cancelled())
                }
            }
        }
        .boxed()
    }

    fn notification(&self, method: &str, params: Value) -> BoxFuture<'static, ()> {
        if method == "session/cancel" {
            if let Ok(session) = self.session(&params) {
                session.cancel(&params);
            }
            return ready(()).boxed();
        }
        let knows = self.knows(method, &params);
        let method = method.to_owned();
        let telling = async move {
            match knows {
                Some(Knows::Session(link)) => link.tell(&method, params).await,
                Some(Knows::Agent(behind)) => behind.tell(&method, &params).await,
                None => tracing::debug!(method, "a notification that means nothing here"),
            }
        };
        async move {
            if tokio::time::timeout(TELL_TIME, telling).await.is_err() {
                tracing::warn!("an agent that does not read misses a notification");
            }
        }
        .boxed()
    }
}

/// The receiver of a method that we do not know.
enum Knows {
    /// The proxied agent of a session.
    Session(Arc<Link>),
    /// The agent that a new session talks to.
    Agent(AcpAgent),
}

/// Lets a proxied agent answer a request outside any session.
fn pass_on(
    behind: AcpAgent,
    method: &str,
    params: Value,
    cancelled: CancellationToken,
) -> BoxFuture<'static, Result<Reply, RpcError>> {
    let method = method.to_owned();
    async move { Ok(behind.pass_on(&method, &params, &cancelled).await?.into()) }.boxed()
}

impl Agent {
    /// What happens to a prompt before the next message is read: from here on it can be
    /// cancelled, and no other can begin.
    fn begin_prompt(
        &self,
        params: &Value,
        cancelled: CancellationToken,
    ) -> Result<(Running, Vec<wellspring_core::Content>), RpcError> {
        let session = self.session(params)?;
        let blocks = params["prompt"].as_array();
        let blocks = blocks.ok_or_else(|| RpcError::invalid("`prompt` is not a list of blocks"))?;
        let input = acp::prompt(blocks).map_err(|error| RpcError::invalid(error.to_string()))?;
        if input.is_empty() {
            return Err(RpcError::invalid("the prompt is empty"));
        }
        let more = acp::members_except(params, &["sessionId", "prompt"]);
        let prompted = Prompted { blocks: blocks.clone(), more };
        Ok((session.begin(prompted, cancelled)?, input))
    }

    fn close(&self, params: &Value) -> Result<Value, RpcError> {
        let session = self.session(params)?;
        session.cancel(params);
        self.leave(&session);
        lock(&self.sessions).remove(&session.thread);
        Ok(json!({}))
    }

    fn client(&self) -> Client {
        *lock(&self.client)
    }

    /// The receiver of a method that we do not know: the proxied agent of the session that it
    /// names, or else the agent of new sessions. Methods about sessions are ours, except for the
    /// choice of a model, which the protocol had before it had options. Methods about messages
    /// apply to one connection only.
    fn knows(&self, method: &str, params: &Value) -> Option<Knows> {
        if method.starts_with("$/")
            || method.starts_with("session/") && method != "session/set_model"
        {
            return None;
        }
        if params.get("sessionId").is_none() {
            return self.behind().map(Knows::Agent);
        }
        let link = self.session(params).ok()?.state().link.clone();
        link.map(Knows::Session)
    }

    /// The session that a request names.
    fn session(&self, params: &Value) -> Result<Arc<Session>, RpcError> {
        let thread = thread(params)?;
        lock(&self.sessions).get(&thread).cloned().ok_or_else(|| {
            let message = format!("session {thread} is not open; load or resume it first");
            RpcError::new(RpcError::NOT_FOUND, message)
        })
    }

    /// Tells the client something about a session.
    async fn update(&self, session: &Session, update: Value) -> Result<(), RpcError> {
        Ok(self.peer.notify("session/update", &session.update(update)).await?)
    }
}

fn thread(params: &Value) -> Result<ThreadId, RpcError> {
    let id = text(params, "sessionId")?;
    id.parse().map_err(|_| {
        RpcError::new(RpcError::NOT_FOUND, format!("{id:?} is not the id of a session"))
    })
}

fn text<'a>(params: &'a Value, name: &str) -> Result<&'a str, RpcError> {
    params[name].as_str().ok_or_else(|| RpcError::invalid(format!("`{name}` is not a text")))
}
