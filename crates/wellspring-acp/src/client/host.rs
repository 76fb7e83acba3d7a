//! The client that we serve, as the host of an agent that we drive for it: its files, its
//! terminals, and its user's choices among the agent's options.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use futures::future::{BoxFuture, FutureExt as _};
use serde_json::{Value, json};
use wellspring_core::{Answer, CancellationToken, Content, QuestionId};
use wellspring_wire::acp;

use super::connection::Listener;
use super::session::Link;
use super::terminal::{TERMINAL_BYTES_MAX, TERMINALS_MAX};
use crate::lock;
use crate::rpc::{Request, RpcError};

/// A client whose files and terminals an agent may use.
pub(crate) trait Host: Send + Sync {
    /// Whether it supports a method.
    fn offers(&self, method: &str) -> bool;

    /// Calls a method. The parameters are the agent's; the host fills in its own session.
    /// The token is cancelled when the answer is no longer needed.
    fn ask(
        &self,
        method: &str,
        params: Value,
        cancelled: CancellationToken,
    ) -> BoxFuture<'static, Result<Value, RpcError>>;

    /// Waits until a terminal was shown to the user, up to a time limit.
    fn shown(&self, terminal: &str) -> BoxFuture<'static, ()>;

    /// The user's choices for the agent, by option id.
    fn choices(&self) -> Vec<(Box<str>, Value)>;

    /// The client's prompt in its own blocks.
    fn prompted(&self) -> Option<Arc<Prompted>>;

    /// The client's original answer to a question, if it answered it; once.
    fn answered(&self, question: QuestionId, answer: &Answer) -> Option<Value>;

    /// The directories that the client has open besides the working directory.
    fn directories(&self) -> Vec<Box<str>>;

    /// Further members of the client's `session/new`.
    fn opening(&self) -> Value;

    /// Receives the agent's messages between prompts.
    fn listener(&self) -> Listener;

    /// Receives the handle of the agent's session.
    fn opened(&self, link: Arc<Link>);
}

/// A prompt as a client sent it.
#[derive(Debug, Default)]
pub(crate) struct Prompted {
    pub(crate) blocks: Vec<Value>,
    /// Further members.
    pub(crate) more: Value,
}

/// The id of the option that stands for an agent's modes.
pub(crate) const THEIR_MODE: &str = "their-mode";

/// A host during one run. When dropped, terminals that the agent left open are released.
pub(super) struct Hosted {
    host: Arc<dyn Host>,
    terminals: Arc<Mutex<HostTerminals>>,
}

#[derive(Default)]
struct HostTerminals {
    /// Open terminals, and whether their output has been logged.
    open: BTreeMap<Box<str>, bool>,
    /// Terminals that are being created.
    coming: usize,
    over: bool,
}

/// The output of a host's terminal, once its command has ended.
pub(super) struct Written {
    pub(super) terminal: Box<str>,
    pub(super) text: String,
}

impl Hosted {
    pub(super) fn new(host: Arc<dyn Host>) -> Self {
        Self { host, terminals: Arc::default() }
    }

    pub(super) fn offers(&self, method: &str) -> bool {
        self.host.offers(method)
    }

    pub(super) fn choices(&self) -> Vec<(Box<str>, Value)> {
        self.host.choices()
    }

    /// The client's prompt in its own blocks, if it matches our reading of it.
    pub(super) fn prompted(&self, input: &[Content]) -> Option<Arc<Prompted>> {
        let is_it = |it: &Arc<Prompted>| acp::prompt(&it.blocks).is_ok_and(|said| said == input);
        self.host.prompted().filter(is_it)
    }

    pub(super) fn answered(&self, question: QuestionId, answer: &Answer) -> Option<Value> {
        self.host.answered(question, answer)
    }

    /// Forwards a request. `is_shown` is whether the agent has shown the terminal that it is
    /// about.
    pub(super) fn serve(
        &self,
        mut request: Request,
        is_shown: bool,
    ) -> BoxFuture<'static, Option<Written>> {
        let (host, terminals) = (Arc::clone(&self.host), Arc::clone(&self.terminals));
        let (params, cancelled) = (request.params.take(), request.cancelled.clone());
        let terminal: Box<str> = params["terminalId"].as_str().unwrap_or_default().into();
        async move {
            let mut written = None;
            let answer = match &*request.method {
                "terminal/create" => create(host, terminals, params).await,
                "terminal/wait_for_exit" => {
                    let answer = host.ask(&request.method, params, cancelled).await;
                    if answer.is_ok() {
                        written = output(&*host, &terminals, terminal).await;
                    }
                    answer
                }
                "terminal/release" => {
                    written = output(&*host, &terminals, terminal.clone()).await;
                    if is_shown {
                        // A terminal can be shown only before it is released.
                        host.shown(&terminal).await;
                    }
                    lock(&terminals).open.remove(&terminal);
                    host.ask(&request.method, params, cancelled).await
                }
                method => host.ask(method, params, cancelled).await,
            };
            request.give(answer).await;
            written
        }
        .boxed()
    }
}

/// In its own task: a terminal that is created after the run has ended is released.
async fn create(
    host: Arc<dyn Host>,
    terminals: Arc<Mutex<HostTerminals>>,
    mut params: Value,
) -> Result<Value, RpcError> {
    {
        let mut open_terminals = lock(&terminals);
        if open_terminals.open.len() + open_terminals.coming >= TERMINALS_MAX {
            let why = format!("there are {TERMINALS_MAX} terminals already; release some");
            return Err(RpcError::failed(why));
        }
        open_terminals.coming += 1;
    }
    let limit = params["outputByteLimit"].as_u64().unwrap_or(u64::MAX);
    params["outputByteLimit"] = limit.min(TERMINAL_BYTES_MAX as u64).into();
    let creating = tokio::spawn(async move {
        let answer = host.ask("terminal/create", params, CancellationToken::new()).await;
        let id = answer.as_ref().ok().and_then(|it| it["terminalId"].as_str());
        let is_over = {
            let mut open_terminals = lock(&terminals);
            open_terminals.coming -= 1;
            if let (Some(id), false) = (id, open_terminals.over) {
                open_terminals.open.insert(id.into(), false);
            }
            open_terminals.over
        };
        if let (Some(id), true) = (id, is_over) {
            release(&*host, id).await;
        }
        answer
    });
    creating.await.unwrap_or_else(|_| Err(RpcError::failed("it could not be done")))
}

/// What a terminal wrote, for the log; once.
async fn output(
    host: &dyn Host,
    open_terminals: &Mutex<HostTerminals>,
    terminal: Box<str>,
) -> Option<Written> {
    let is_known =
        lock(open_terminals).open.get_mut(&terminal).map(|known| std::mem::replace(known, true));
    if is_known != Some(false) {
        return None;
    }
    let answer = ask(host, "terminal/output", &terminal).await.ok()?;
    Some(Written { terminal, text: answer["output"].as_str()?.to_owned() })
}

/// Sends a request about a terminal.
async fn ask(host: &dyn Host, method: &str, terminal: &str) -> Result<Value, RpcError> {
    host.ask(method, json!({"terminalId": terminal}), CancellationToken::new()).await
}

async fn release(host: &dyn Host, terminal: &str) {
    if let Err(error) = ask(host, "terminal/release", terminal).await {
        tracing::debug!(%error, "the client failed to release its terminal");
    }
}

impl Drop for Hosted {
    fn drop(&mut self) {
        let left = {
            let mut open_terminals = lock(&self.terminals);
            open_terminals.over = true;
            std::mem::take(&mut open_terminals.open)
        };
        if let (false, Ok(runtime)) = (left.is_empty(), tokio::runtime::Handle::try_current()) {
            let host = Arc::clone(&self.host);
            runtime.spawn(async move {
                for terminal in left.keys() {
                    release(&*host, terminal).await;
                }
            });
        }
    }
}
