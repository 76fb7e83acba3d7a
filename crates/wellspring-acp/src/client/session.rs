//! Sessions of an agent: opened, loaded or resumed, and kept for the thread's next run.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use wellspring_core::{CancellationToken, RunId, Tool};
use wellspring_wire::acp::{members_except, merge};

use super::config::AcpConfig;
use super::connection::{Connection, Listener, Queue};
use super::error::AcpError;
use super::files::Files;
use super::host::THEIR_MODE;
use super::prompt::Before;
use super::running_agent::{Peer, within};
use super::tools::Toolbox;
use crate::lock;
use crate::rpc::RpcError;

/// A session with an agent.
pub(super) struct Session {
    pub(super) link: Arc<Link>,
    pub(super) queue: Queue,
    pub(super) tools: Option<Toolbox>,
    pub(super) files: Files,
    /// Directories besides the working directory.
    directories: Vec<Box<str>>,
    /// The last run that prompted it. Another branch of the thread must not continue it.
    pub(super) last_run: Option<RunId>,
}

/// A shared handle to a session.
pub(crate) struct Link {
    pub(super) id: Box<str>,
    pub(super) peer: Arc<Peer>,
    pub(super) connection: Arc<Connection>,
    limit: Duration,
    /// The agent's modes and options, as they are now.
    said: Arc<Mutex<Value>>,
    /// The user's choices among its options, by id.
    chosen: Mutex<BTreeMap<Box<str>, Value>>,
    /// The `_meta` of the client's cancel.
    cancelled_with: Mutex<Option<Value>>,
}

/// The agent's answer to a choice.
#[derive(Debug, Default)]
pub(crate) struct Chosen {
    /// All of its options, if it reports them.
    pub(crate) options: Option<Value>,
    /// Everything else in the answer.
    pub(crate) more: Value,
}

/// A session, and what it knows.
pub(super) struct Opened {
    pub(super) session: Session,
    pub(super) before: Before,
    /// What became of an earlier session, for the log.
    pub(super) note: Option<&'static str>,
    /// The agent's answer to `session/new`: its modes and options.
    pub(super) said: Value,
}

/// The properties of a session.
pub(super) struct Wanted<'a> {
    pub(super) tools: &'a [Arc<dyn Tool>],
    pub(super) files: Files,
    pub(super) directories: Vec<Box<str>>,
    /// The run that prompts it, or that prompted it last.
    pub(super) run: Option<RunId>,
    /// Whether its queue is read from the start.
    pub(super) is_read: bool,
    /// Further members of the client's own `session/new`.
    pub(super) more: Value,
    pub(super) listener: Option<Listener>,
}

/// The handle of a session.
pub(super) struct Handle {
    pub(super) session: Box<str>,
    pub(super) run: Option<RunId>,
    pub(super) cwd: Option<Box<str>>,
}

impl Handle {
    pub(super) fn read(handle: &Value) -> Option<Self> {
        Some(Self {
            session: handle["session"].as_str()?.into(),
            run: handle["run"].as_str().and_then(|run| run.parse().ok()),
            cwd: handle["cwd"].as_str().map(Into::into),
        })
    }
}

impl Session {
    /// Its handle for the log.
    pub(super) fn handle(&self) -> Value {
        let cwd = self.files.root().display().to_string();
        let run = self.last_run.map(|run| run.to_string());
        json!({"session": self.link.id, "run": run, "cwd": cwd})
    }

    /// Whether it can be continued as it is, given the thread's latest run.
    pub(super) fn fits(&self, wanted: &Wanted<'_>, earlier: Option<&Handle>) -> bool {
        let tools = match &self.tools {
            Some(tools) => tools.has(wanted.tools),
            None => wanted.tools.is_empty(),
        };
        tools
            && self.link.peer.is_well()
            && earlier.and_then(|handle| handle.run) == self.last_run
            && self.files.root() == wanted.files.root()
            && self.directories == wanted.directories
    }

    /// Opens a session: an earlier one again if the agent can, or else a new one.
    pub(super) async fn open(
        peer: Arc<Peer>,
        config: &AcpConfig,
        wanted: Wanted<'_>,
        earlier: Option<&Handle>,
    ) -> Result<Opened, AcpError> {
        let Wanted { tools, files, directories, run, is_read, more, listener } = wanted;
        let now: Arc<Mutex<Value>> = Arc::default();
        let listener = listener.map(|listener| -> Listener {
            let now = Arc::clone(&now);
            Arc::new(move |update: &Value| {
                track(&now, update);
                listener(update);
            })
        });
        let connection = Arc::clone(&peer.connection);
        let tools = Toolbox::open(tools).await?;
        let servers = match &tools {
            Some(tools) => json!([tools.server(&peer, config)?]),
            None => json!([]),
        };
        let cwd = files.root().to_str().unwrap_or_default();
        let same_place = |handle: &&Handle| handle.cwd.as_deref().is_none_or(|it| it == cwd);
        let mut params = json!({"cwd": cwd, "mcpServers": servers});
        if more.is_object() {
            merge(&mut params, &more);
        }
        if !directories.is_empty() && peer.capability(DIRECTORIES) {
            params["additionalDirectories"] = json!(directories);
        }
        let limit = config.timeouts.session;
        let again = [
            ("/sessionCapabilities/resume", "session/resume", "resumed"),
            ("/loadSession", "session/load", "loaded"),
        ];
        let again = again.into_iter().find(|(capability, ..)| peer.capability(capability));
        let mut note = earlier.map(|_| "new session: the agent cannot continue a session");
        if let (Some(handle), Some((_, method, how))) = (earlier.filter(same_place), again) {
            params["sessionId"] = json!(handle.session);
            let (route, mut queue) = Queue::new(listener.clone());
            queue.begin();
            connection.route(&handle.session, route);
            let asked = connection.request(method, params.clone());
            let continued = tokio::select! {
                continued = within(limit, "continuing its session", asked) => continued,
                // What it replays is already in the log.
                () = drain(&mut queue) => Err(AcpError::Lost("the connection ended")),
            };
            // Its answer arrived after the replay.
            queue.rest_and_forget();
            match continued {
                Ok(said) => {
                    if is_read {
                        queue.begin();
                    }
                    let link = Link::new(handle.session.clone(), peer, config, &said, now);
                    let session = Self { link, queue, tools, files, directories, last_run: run };
                    // Another process of the agent may not know the session.
                    session.link.set_own_mode(config).await?;
                    let before = Before::Continued;
                    return Ok(Opened { session, before, note: Some(how), said });
                }
                Err(error @ (AcpError::Answer { .. } | AcpError::TimedOut { .. })) => {
                    tracing::warn!(%error, "a session could not be continued, so a new one is opened");
                    connection.forget(&handle.session);
                    note = Some("new session: the agent failed to continue the session");
                }
                Err(error) => return Err(logged_in(error, &peer)),
            }
        }
        if let Some(members) = params.as_object_mut() {
            members.shift_remove("sessionId");
        }
        let (route, queue) = Queue::new(listener);
        if is_read {
            queue.begin();
        }
        let opened = connection.open("session/new", params, route);
        let answer = within(limit, "opening a session", opened).await;
        let said = answer.map_err(|error| logged_in(error, &peer))?;
        let Some(id) = said["sessionId"].as_str() else {
            let what = "its new session has no id".into();
            return Err(AcpError::Protocol { what, last_words: "".into() });
        };
        let link = Link::new(id.into(), peer, config, &said, now);
        let session = Self { link, queue, tools, files, directories, last_run: run };
        session.link.set_own_mode(config).await?;
        Ok(Opened { session, before: Before::New, note, said })
    }

    /// Closes the session.
    pub(super) fn close(self) {
        let Link { id, peer, connection, .. } = &*self.link;
        connection.forget(id);
        if peer.capability("/sessionCapabilities/close") {
            // A courtesy; nothing waits for the answer.
            let connection = Arc::clone(connection);
            let params = json!({"sessionId": id});
            tokio::spawn(async move {
                let closing = connection.request("session/close", params);
                let _ = tokio::time::timeout(super::agent::CLOSE_TIME, closing).await;
            });
        }
    }
}

/// Whether an agent accepts more than one directory.
const DIRECTORIES: &str = "/sessionCapabilities/additionalDirectories";

impl Link {
    /// Keeps the `_meta` of the client's cancel for `session/cancel`.
    pub(crate) fn cancel_with(&self, more: Value) {
        *lock(&self.cancelled_with) = Some(more);
    }

    /// The parameters of `session/cancel`.
    pub(super) fn cancel(&self) -> Value {
        let mut params = json!({"sessionId": self.id});
        if let Some(more) = lock(&self.cancelled_with).take() {
            merge(&mut params, &more);
        }
        params
    }

    fn new(
        id: Box<str>,
        peer: Arc<Peer>,
        config: &AcpConfig,
        said: &Value,
        now: Arc<Mutex<Value>>,
    ) -> Arc<Self> {
        // Later values win.
        let mut whole = if said.is_object() { said.clone() } else { json!({}) };
        let mut later = lock(&now);
        if let Some(mode) = later["modes"].get_mut("currentModeId") {
            enter_mode(&mut whole, mode.take());
        }
        if let Some(options) = later.get_mut("configOptions") {
            whole["configOptions"] = options.take();
        }
        *later = whole;
        drop(later);
        Arc::new(Self {
            id,
            connection: Arc::clone(&peer.connection),
            peer,
            limit: config.timeouts.session,
            said: now,
            chosen: Mutex::default(),
            cancelled_with: Mutex::default(),
        })
    }

    /// The modes and options as they are now.
    pub(crate) fn said(&self) -> Value {
        lock(&self.said).clone()
    }

    /// Updates the modes and options from an agent's message.
    pub(super) fn track(&self, update: &Value) {
        track(&self.said, update);
    }

    /// Whether the agent knows its additional directories.
    pub(crate) fn knows_directories(&self) -> bool {
        self.peer.capability(DIRECTORIES)
    }

    /// Sets the configured mode.
    async fn set_own_mode(&self, config: &AcpConfig) -> Result<(), AcpError> {
        match &config.mode {
            Some(mode) => self.set_mode(&json!(mode), &json!({})).await.map(drop),
            None => Ok(()),
        }
    }

    async fn set_mode(&self, mode: &Value, more: &Value) -> Result<Value, AcpError> {
        let mut params = json!({"sessionId": self.id, "modeId": mode});
        merge(&mut params, more);
        let set = self.connection.request("session/set_mode", params);
        let answer = within(self.limit, "setting its mode", set).await?;
        let mut said = lock(&self.said);
        if said["modes"].is_object() {
            said["modes"]["currentModeId"] = mode.clone();
        }
        Ok(members_except(&answer, &[]))
    }

    /// Applies the user's choices that the agent does not know yet.
    pub(super) async fn remind(
        &self,
        option: &str,
        value: &Value,
    ) -> Result<Option<Value>, AcpError> {
        if lock(&self.chosen).get(option) == Some(value) {
            return Ok(None);
        }
        Ok(self.choose(option, value, &json!({})).await?.options)
    }

    /// Applies a choice; `more` holds further members of the client's request.
    pub(crate) async fn choose(
        &self,
        option: &str,
        value: &Value,
        more: &Value,
    ) -> Result<Chosen, AcpError> {
        let mut chosen = Chosen::default();
        if option == THEIR_MODE {
            chosen.more = self.set_mode(value, more).await?;
        } else {
            let mut params = json!({"sessionId": self.id, "configId": option, "value": value});
            if value.is_boolean() {
                params["type"] = "boolean".into();
            }
            merge(&mut params, more);
            let set = self.connection.request("session/set_config_option", params);
            let mut now = within(self.limit, "setting an option", set).await?;
            chosen.more = members_except(&now, &["configOptions"]);
            chosen.options = Some(now["configOptions"].take()).filter(Value::is_array);
            if let Some(options) = &chosen.options {
                lock(&self.said)["configOptions"] = options.clone();
            }
        }
        lock(&self.chosen).insert(option.into(), value.clone());
        Ok(chosen)
    }

    /// Forwards a request of the client that we do not understand.
    pub(crate) async fn pass_on(
        &self,
        method: &str,
        mut params: Value,
        cancelled: &CancellationToken,
    ) -> Result<Value, RpcError> {
        params["sessionId"] = (&*self.id).into();
        self.connection.pass_on(method, &params, cancelled).await
    }

    /// Forwards a notification of that kind.
    pub(crate) async fn tell(&self, method: &str, mut params: Value) {
        params["sessionId"] = (&*self.id).into();
        self.connection.notify(method, &params).await;
    }
}

/// Updates modes and options from an agent's message.
fn track(said: &Mutex<Value>, update: &Value) {
    match update["sessionUpdate"].as_str() {
        Some("config_option_update") => {
            if update["configOptions"].is_array() {
                lock(said)["configOptions"] = update["configOptions"].clone();
            }
        }
        Some("current_mode_update") => {
            enter_mode(&mut lock(said), update["currentModeId"].clone());
        }
        Some(_) | None => {}
    }
}

/// Updates the current mode, if the agent has modes and this is one.
fn enter_mode(said: &mut Value, mode: Value) {
    let modes = &mut said["modes"];
    if mode.is_string() && (modes.is_object() || modes.is_null()) {
        modes["currentModeId"] = mode;
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Reads and drops everything, until it is dropped.
async fn drain(queue: &mut Queue) {
    while queue.next().await.is_some() {}
}

/// Adds how to log in, if a login is missing.
fn logged_in(error: AcpError, peer: &Peer) -> AcpError {
    if let AcpError::Login { .. } = error {
        return AcpError::Login { methods: peer.logins() };
    }
    error
}
