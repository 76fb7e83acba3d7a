//! The session of a proxied ACP agent. It is opened together with the client's session, so that the
//! client knows from the start what the agent offers, and the user's choices reach it immediately.

use std::sync::{Arc, Weak};

use serde_json::{Value, json};
use wellspring_core::{Extended, RemoteAgent as _, ThreadId};
use wellspring_engine::Backend;
use wellspring_wire::acp::{carry, members_except, merge};

use super::prompt::{COMMANDS_UPDATE, acp_agent};
use super::session::{News, Session};
use super::{Agent, text};
use crate::client::{AcpError, Chosen, Listener, SESSION_OPENED, THEIR_MODE};
use crate::lock;
use crate::rpc::{Next, Peer, Reply, RpcError};

/// Maximum number of runs of a thread that are searched for the session of its agent.
const RUNS_LOOKED_AT_MAX: usize = 50;

impl Agent {
    /// Opens the session of the agent, if it is an ACP agent. If that fails, the user is told, and
    /// the next prompt tries again.
    pub(super) async fn reach(&self, session: &Arc<Session>) {
        if let Err(error) = self.try_reach(session).await {
            session.unreached(&error);
        }
    }

    /// The same for a new session. If the agent requires a login and offers one, this is an error,
    /// which makes the client offer the login methods.
    pub(super) async fn reach_or_log_in(&self, session: &Arc<Session>) -> Result<(), RpcError> {
        match self.try_reach(session).await {
            Ok(()) => {}
            Err(AcpError::Login { methods }) if !methods.is_empty() => {
                lock(&self.sessions).remove(&session.thread);
                let error = AcpError::Login { methods };
                return Err(RpcError::new(RpcError::LOGIN_FIRST, error.to_string()));
            }
            Err(error) => session.unreached(&error),
        }
        Ok(())
    }

    /// The same; reports the error to the caller.
    pub(super) async fn try_reach(&self, session: &Arc<Session>) -> Result<(), AcpError> {
        let Ok(def) = self.def(session) else { return Ok(()) };
        let Backend::Remote(remote) = &def.backend else { return Ok(()) };
        let Some(agent) = acp_agent(&**remote) else { return Ok(()) };
        self.attend(agent);
        let handle = self.handle(session.thread, agent.name()).await;
        let thread = session.thread;
        let (link, said) = agent.prepare(thread, &session.cwd, &def.tools, handle.as_ref()).await?;
        let mut state = session.state();
        state.link = Some(link);
        state.options.learn(SESSION_OPENED, &said);
        Ok(())
    }

    /// The handle of the session that an agent had in a thread.
    async fn handle(&self, thread: ThreadId, agent: &str) -> Option<Value> {
        let latest = self.latest(thread).await.ok()??;
        for info in self.control.history(latest.run, RUNS_LOOKED_AT_MAX).await.ok()? {
            let mut transcript = self.control.transcript(info.run).await.ok()?;
            if let Some(handle) = transcript.attached.remove(agent) {
                return Some(handle);
            }
        }
        None
    }

    /// Closes what was opened for a session and never used.
    pub(super) fn leave(&self, session: &Session) {
        let name = session.state().agent.clone();
        if let Some(def) = self.runtime.agent(&name)
            && let Backend::Remote(remote) = &def.backend
            && let Some(agent) = acp_agent(&**remote)
        {
            agent.forget(session.thread);
        }
    }

    /// One mode per agent, and the agent's own modes.
    pub(super) fn modes(&self, session: &Session) -> Value {
        let mut state = session.state();
        let mut modes = Vec::new();
        for def in self.runtime.agents() {
            let mut mode = json!({"id": def.name, "name": def.name});
            if !def.description.is_empty() {
                mode["description"] = (&*def.description).into();
            }
            modes.push(mode);
            if def.name == state.agent {
                let theirs = state.options.modes().iter().filter_map(|theirs| {
                    let mut mode = theirs.clone();
                    mode["id"] = own_mode(&def.name, theirs["id"].as_str()?).into();
                    mode["name"] = format!("{}: {}", def.name, theirs["name"].as_str()?).into();
                    Some(mode)
                });
                modes.extend(theirs);
            }
        }
        // The protocol cannot replace the list later, so this is the list that the client keeps.
        state.listed_modes_of = Some(state.agent.clone());
        let current = state.mode().unwrap_or_else(|| state.agent.to_string());
        let mut modes = json!({"currentModeId": current, "availableModes": modes});
        merge(&mut modes, &state.options.about_modes());
        modes
    }

    /// Switches to another agent, or to another mode of this one.
    pub(super) fn set_mode(
        self: Arc<Self>,
        params: &Value,
    ) -> Result<impl Future<Output = Result<Reply, RpcError>> + use<>, RpcError> {
        let session = self.session(params)?;
        let mode: Box<str> = text(params, "modeId")?.into();
        let more = members_except(params, &["sessionId", "modeId"]);
        let theirs = {
            let mut state = session.state();
            let prefix = own_mode(&state.agent, "");
            match mode.strip_prefix(&prefix) {
                Some(theirs) if self.runtime.agent(&mode).is_none() => {
                    state.options.choose_mode(theirs)?;
                    Some(Value::from(theirs))
                }
                Some(_) | None => None,
            }
        };
        if theirs.is_none() {
            if self.runtime.agent(&mode).is_none() {
                return Err(RpcError::invalid(format!(
                    "there is no mode {mode:?}; modes are agents"
                )));
            }
            self.leave(&session);
            session.switch(&mode);
        }
        Ok(async move {
            let mut result = json!({});
            match theirs {
                Some(theirs) => {
                    result = self.choose(&session, THEIR_MODE, &theirs, &more).await?;
                    let mut state = session.state();
                    state.news.options |= !state.options.is_empty();
                }
                None => {
                    self.reach(&session).await;
                    session.expect_news();
                }
            }
            let updates = session.take_news().into_iter();
            let after = updates.map(|update| ("session/update", session.update(update)));
            Ok(Reply { after: after.collect(), ..result.into() })
        })
    }

    /// Sets an option of the agent.
    pub(super) fn set_option(
        self: Arc<Self>,
        params: &Value,
    ) -> Result<impl Future<Output = Result<Reply, RpcError>> + use<>, RpcError> {
        let session = self.session(params)?;
        let (option, value) =
            (Box::<str>::from(text(params, "configId")?), params["value"].clone());
        let more = members_except(params, &["sessionId", "configId", "value", "type"]);
        session.state().options.choose(&option, &value)?;
        Ok(async move {
            let mut result = self.choose(&session, &option, &value, &more).await?;
            let update = session.state().options.update();
            merge(&mut result, &members_except(&update, &["sessionUpdate"]));
            Ok(result.into())
        })
    }

    /// Sets the user's choice in the agent, and returns the further members of its answer. An agent
    /// that cannot be reached gets the choice before its next prompt.
    async fn choose(
        &self,
        session: &Session,
        option: &str,
        value: &Value,
        more: &Value,
    ) -> Result<Value, RpcError> {
        let Some(link) = session.state().link.clone() else { return Ok(json!({})) };
        match link.choose(option, value, more).await {
            Ok(Chosen { options, more }) => {
                if let Some(options) = options {
                    let said = json!({"configOptions": options});
                    session.state().options.learn("config_option_update", &said);
                }
                return Ok(more);
            }
            Err(error @ AcpError::Answer { .. }) => {
                session.state().options.take_back(option, &link.said());
                return Err(RpcError::invalid(error.to_string()));
            }
            Err(error) => {
                tracing::warn!(%error, "failed to set an option; the agent gets it before its next prompt")
            }
        }
        Ok(json!({}))
    }

    /// Sends the client what an agent's message changed.
    pub(super) async fn learn(&self, session: &Session, said: &Extended) -> Result<(), RpcError> {
        session.overhear(&said.name, &said.value);
        for update in session.take_news() {
            self.update(session, update).await?;
        }
        Ok(())
    }

    /// The members of the answer to an opened session that describe its agent.
    pub(super) fn offered(&self, session: &Session, mut result: Value) -> Value {
        result["modes"] = self.modes(session);
        let state = session.state();
        // Further members of the agent's own answer.
        let said = state.link.as_ref().map(|link| link.said()).unwrap_or_default();
        merge(&mut result, &members_except(&said, &["sessionId", "modes", "configOptions"]));
        carry(&mut result, state.options.odd());
        if !state.options.is_empty() {
            result["configOptions"] = json!(state.options.listed());
        }
        result
    }

    /// Sends the updates of a session from now on, since the client knows it now.
    pub(super) fn announcing(&self, session: &Arc<Session>) -> Next {
        let (session, peer) = (Arc::clone(session), self.peer.clone());
        Next(Box::new(move || {
            session.state().is_announced = true;
            tell_news(&session, &peer);
        }))
    }
}

/// Sends updates to the client while no prompt is active.
pub(super) fn listener(session: &Arc<Session>, peer: &Peer) -> Listener {
    let (session, peer): (Weak<Session>, _) = (Arc::downgrade(session), peer.clone());
    Arc::new(move |update: &Value| {
        if let (Some(session), Some(name)) = (session.upgrade(), update["sessionUpdate"].as_str()) {
            session.overhear(name, update);
            tell_news(&session, &peer);
        }
    })
}

/// One task at a time: it sends the current state, not every change.
fn tell_news(session: &Arc<Session>, peer: &Peer) {
    {
        let mut state = session.state();
        if !state.is_announced || state.is_telling || state.news == News::default() {
            return;
        }
        state.is_telling = true;
    }
    let (session, peer) = (Arc::clone(session), peer.clone());
    tokio::spawn(async move {
        loop {
            let updates = session.take_news();
            if updates.is_empty() {
                let mut state = session.state();
                if state.news == News::default() {
                    state.is_telling = false;
                    return;
                }
            }
            for update in updates {
                if peer.notify("session/update", &session.update(update)).await.is_err() {
                    return;
                }
            }
        }
    });
}

impl Session {
    /// Records that its agent could not be reached.
    fn unreached(&self, error: &AcpError) {
        let mut state = self.state();
        let note = format!(
            "The agent {} could not be reached: {error}. The next prompt tries again.",
            state.agent
        );
        state.notes.push(note);
    }

    /// Applies an agent's message about its modes, options or commands.
    fn overhear(&self, name: &str, said: &Value) {
        let mut state = self.state();
        let mode = state.mode();
        if name == COMMANDS_UPDATE {
            state.news.commands |= state.their_commands.learn(said);
        } else if state.options.learn(name, said) {
            state.news.options = true;
            state.news.mode |= state.mode() != mode;
        }
    }

    /// The changes of modes, options and commands that the client does not know.
    pub(super) fn take_news(&self) -> Vec<Value> {
        let mut state = self.state();
        let News { commands, options, mode } = std::mem::take(&mut state.news);
        let mode = state.mode().filter(|_| mode);
        let mode =
            mode.map(|id| json!({"sessionUpdate": "current_mode_update", "currentModeId": id}));
        let options = options.then(|| state.options.update());
        let commands = commands.then(|| state.their_commands.update());
        mode.into_iter().chain(options).chain(commands).collect()
    }

    /// Marks everything that the agent offers as unknown to the client.
    pub(super) fn expect_news(&self) {
        let mut state = self.state();
        state.news.commands = true;
        state.news.options |= !state.options.is_empty();
        state.news.mode |= state.mode().is_some();
    }
}

/// The client's id of an agent's own mode.
pub(super) fn own_mode(agent: &str, mode: &str) -> String {
    format!("{agent}/{mode}")
}
