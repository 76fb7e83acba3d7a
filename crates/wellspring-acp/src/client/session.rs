//! A session with an agent: opened, loaded or resumed, and kept for the thread's next run.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use wellspring_core::{RemoteRequest, RunId};

use super::config::AcpConfig;
use super::connection::{Connection, Queue};
use super::error::AcpError;
use super::files::Files;
use super::host::THEIR_MODE;
use super::peer::{Peer, within};
use super::prompt::Before;
use super::tools::Toolbox;

/// A session with an agent.
pub(super) struct Session {
    pub(super) id: Box<str>,
    pub(super) peer: Arc<Peer>,
    pub(super) connection: Arc<Connection>,
    pub(super) queue: Queue,
    pub(super) tools: Option<Toolbox>,
    pub(super) files: Files,
    /// The last run that prompted it. Another branch of the thread must not go on with it.
    pub(super) last_run: RunId,
    /// What was chosen among its options, by their ids.
    chosen: BTreeMap<Box<str>, Value>,
}

/// A session, and what it knows.
pub(super) struct Opened {
    pub(super) session: Session,
    pub(super) before: Before,
    /// What became of an earlier session, for the log.
    pub(super) note: Option<&'static str>,
    /// What the agent said when it opened it: its modes and options.
    pub(super) said: Value,
}

/// How a session is found again.
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
    /// Its handle in the log.
    pub(super) fn handle(&self) -> Value {
        let cwd = self.files.root().display().to_string();
        json!({"session": self.id, "run": self.last_run.to_string(), "cwd": cwd})
    }

    /// Whether a run can go on with it as it is.
    pub(super) fn fits(&self, request: &RemoteRequest, handle: &Handle, files: &Files) -> bool {
        let tools = match &self.tools {
            Some(tools) => tools.has(&request.tools),
            None => request.tools.is_empty(),
        };
        tools
            && self.peer.is_well()
            && handle.run == Some(self.last_run)
            && self.files.root() == files.root()
    }

    /// Opens one: an earlier one again, where the agent can, or else a new one.
    pub(super) async fn open(
        peer: Arc<Peer>,
        config: &AcpConfig,
        request: &RemoteRequest,
        earlier: Option<&Handle>,
        files: Files,
    ) -> Result<Opened, AcpError> {
        let connection = Arc::clone(&peer.connection);
        let tools = Toolbox::open(&request.tools).await?;
        let servers = match &tools {
            Some(tools) => json!([tools.server(&peer, config)?]),
            None => json!([]),
        };
        let cwd = files.root().to_str().unwrap_or_default();
        let same_place = |handle: &&Handle| handle.cwd.as_deref().is_none_or(|it| it == cwd);
        let mut params = json!({"cwd": cwd, "mcpServers": servers});
        let limit = config.timeouts.session;
        let again = [
            ("/sessionCapabilities/resume", "session/resume", "resumed"),
            ("/loadSession", "session/load", "loaded"),
        ];
        let again = again.into_iter().find(|(capability, ..)| peer.capability(capability));
        let mut note = earlier.map(|_| "started anew: the agent cannot continue a session");
        if let (Some(handle), Some((_, method, how))) = (earlier.filter(same_place), again) {
            params["sessionId"] = json!(handle.session);
            let (route, mut queue) = Queue::new();
            connection.route(&handle.session, route);
            let asked = connection.request(method, params.clone());
            let continued = tokio::select! {
                continued = within(limit, "continuing its session", asked) => continued,
                // What it replays is in the log already.
                () = drain(&mut queue) => Err(AcpError::Lost("the connection ended")),
            };
            // Its answer came after the last of it.
            while queue.next_now().is_some() {}
            match continued {
                Ok(said) => {
                    let session = Self {
                        chosen: BTreeMap::new(),
                        id: handle.session.clone(),
                        connection,
                        queue,
                        tools,
                        files,
                        last_run: request.run,
                        peer,
                    };
                    // Another process of the agent may not know it.
                    if let Some(mode) = &config.mode {
                        session.set_mode(&json!(mode), config).await?;
                    }
                    let before = Before::Continued;
                    return Ok(Opened { session, before, note: Some(how), said });
                }
                Err(error @ (AcpError::Answer { .. } | AcpError::TimedOut { .. })) => {
                    tracing::warn!(%error, "a session could not be continued, so a new one is opened");
                    connection.forget(&handle.session);
                    note = Some("started anew: the agent could not continue the session");
                }
                Err(error) => return Err(logged_in(error, &peer)),
            }
        }
        if let Some(members) = params.as_object_mut() {
            members.remove("sessionId");
        }
        let (route, queue) = Queue::new();
        let opened = connection.open("session/new", params, route);
        let answer = within(limit, "opening a session", opened).await;
        let answer = answer.map_err(|error| logged_in(error, &peer))?;
        let Some(id) = answer["sessionId"].as_str() else {
            let what = "its new session has no id".into();
            return Err(AcpError::Protocol { what, last_words: "".into() });
        };
        let session = Self {
            id: id.into(),
            chosen: BTreeMap::new(),
            connection,
            queue,
            tools,
            files,
            last_run: request.run,
            peer,
        };
        if let Some(mode) = &config.mode {
            session.set_mode(&json!(mode), config).await?;
        }
        Ok(Opened { session, before: Before::New, note, said: answer })
    }

    async fn set_mode(&self, mode: &Value, config: &AcpConfig) -> Result<(), AcpError> {
        let params = json!({"sessionId": self.id, "modeId": mode});
        let set = self.connection.request("session/set_mode", params);
        within(config.timeouts.session, "setting its mode", set).await.map(drop)
    }

    /// Has the agent do as the user chose, where that is news to it. Gives all of its options if
    /// it says what they are now.
    pub(super) async fn choose(
        &mut self,
        option: &str,
        value: &Value,
        config: &AcpConfig,
    ) -> Result<Option<Value>, AcpError> {
        if self.chosen.get(option) == Some(value) {
            return Ok(None);
        }
        let mut options = None;
        if option == THEIR_MODE {
            self.set_mode(value, config).await?;
        } else {
            let mut params = json!({"sessionId": self.id, "configId": option, "value": value});
            if value.is_boolean() {
                params["type"] = "boolean".into();
            }
            let set = self.connection.request("session/set_config_option", params);
            let mut said = within(config.timeouts.session, "setting an option", set).await?;
            options = Some(said["configOptions"].take()).filter(Value::is_array);
        }
        self.chosen.insert(option.into(), value.clone());
        Ok(options)
    }

    /// Ends it for good.
    pub(super) fn close(self) {
        self.connection.forget(&self.id);
        if self.peer.capability("/sessionCapabilities/close") {
            // Asked for as a courtesy; nobody waits for the answer.
            let connection = Arc::clone(&self.connection);
            let params = json!({"sessionId": self.id});
            tokio::spawn(async move {
                let closing = connection.request("session/close", params);
                let _ = tokio::time::timeout(super::agent::CLOSE_TIME, closing).await;
            });
        }
    }
}

/// Reads and forgets, for ever.
async fn drain(queue: &mut Queue) {
    while queue.next().await.is_some() {}
}

/// Says how to log in, if that is what is missing.
fn logged_in(error: AcpError, peer: &Peer) -> AcpError {
    if let AcpError::Login { .. } = error {
        return AcpError::Login { methods: peer.logins() };
    }
    error
}
