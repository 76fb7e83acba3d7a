//! Slash commands.

use std::sync::Arc;

use serde_json::{Value, json};
use wellspring_core::{Content, Usage};
use wellspring_log::{RunFilter, RunState};
use wellspring_wire::acp::{carry, members_except, merge, part_offers};

use super::Agent;
use super::prompt::COMMANDS_UPDATE;
use super::session::Session;
use crate::rpc::RpcError;

/// Maximum number of runs that `/runs` and `/usage` read.
const RUNS_SHOWN: usize = 50;

/// A command and its argument.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Command {
    name: &'static str,
    rest: String,
}

/// Name, description, and a hint for the argument.
const COMMANDS: [(&str, &str, Option<&str>); 4] = [
    ("agent", "Talk to another agent from now on, or list them", Some("name of the agent")),
    (
        "model",
        "Use another model of the agent's provider, or show the current one",
        Some("name of the model"),
    ),
    ("runs", "List this session's runs with their ids, to replay or export them", None),
    ("usage", "Sum up the tokens that this session has used", None),
];

impl Command {
    /// Parses a prompt that is one of our commands.
    pub(super) fn of(input: &[Content], session: &Session) -> Option<Self> {
        let [Content::Text(text)] = input else { return None };
        let typed = text.trim().strip_prefix('/')?;
        let (name, rest) = typed.split_once(char::is_whitespace).unwrap_or((typed, ""));
        let (name, ..) = COMMANDS.into_iter().find(|it| it.0 == name)?;
        let is_theirs = session.state().their_commands.has(name);
        (!is_theirs).then(|| Self { name, rest: rest.trim().into() })
    }
}

/// The commands of a proxied agent.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Commands {
    /// The commands that have the protocol's form.
    listed: Vec<Value>,
    /// The agent's own update, including commands that we do not offer.
    more: Value,
}

impl Commands {
    /// Applies an `available_commands_update`. Returns whether anything changed.
    pub(super) fn learn(&mut self, said: &Value) -> bool {
        let before = self.clone();
        let (mut sound, odd) = part_offers(said);
        if let Value::Array(listed) = sound["availableCommands"].take() {
            self.listed = listed;
        }
        self.more = members_except(said, &["sessionUpdate", "availableCommands"]);
        carry(&mut self.more, &members_except(&odd, &["modes", "configOptions"]));
        before != *self
    }

    fn has(&self, name: &str) -> bool {
        self.listed.iter().any(|it| it["name"] == name)
    }

    /// The commands for the client: the agent's, and then ours.
    pub(super) fn update(&self) -> Value {
        let mut commands = self.listed.clone();
        for (name, description, hint) in COMMANDS {
            if !self.has(name) {
                let mut command = json!({"name": name, "description": description});
                if let Some(hint) = hint {
                    command["input"] = json!({"hint": hint});
                }
                commands.push(command);
            }
        }
        let mut update = json!({"sessionUpdate": COMMANDS_UPDATE, "availableCommands": commands});
        merge(&mut update, &members_except(&self.more, &[]));
        update
    }
}

impl Agent {
    /// Runs a command, and sends its output to the client.
    pub(super) async fn obey(
        &self,
        session: &Arc<Session>,
        command: Command,
    ) -> Result<(), RpcError> {
        let said = match (command.name, &*command.rest) {
            ("agent", "") => self.agents(session),
            ("agent", name) => self.switch(session, name).await?,
            ("model", name) => self.model(session, name),
            ("runs", _) => self.list_runs(session).await?,
            _ => self.sum_up(session).await?,
        };
        let content = json!({"type": "text", "text": said});
        self.update(session, json!({"sessionUpdate": "agent_message_chunk", "content": content}))
            .await
    }

    fn agents(&self, session: &Session) -> String {
        let current = session.state().agent.clone();
        let mut said = String::new();
        for def in self.runtime.agents() {
            let mark = if def.name == current { " (now)" } else { "" };
            let dash = if def.description.is_empty() { "" } else { " – " };
            said += &format!("- `{}`{mark}{dash}{}\n", def.name, def.description);
        }
        said
    }

    async fn switch(&self, session: &Arc<Session>, name: &str) -> Result<String, RpcError> {
        let Some(def) = self.runtime.agent(name) else {
            return Ok(format!(
                "There is no agent `{name}`. There are:\n\n{}",
                self.agents(session)
            ));
        };
        let update = json!({"sessionUpdate": "current_mode_update", "currentModeId": def.name});
        self.update(session, update).await?;
        self.leave(session);
        session.switch(&def.name);
        self.reach(session).await;
        session.expect_news();
        for update in session.take_news() {
            self.update(session, update).await?;
        }
        Ok(format!("From now on you talk to `{}`.", def.name))
    }

    fn model(&self, session: &Session, name: &str) -> String {
        let mut state = session.state();
        let agent = state.agent.clone();
        match self.runtime.agent(&agent) {
            _ if name.is_empty() => match &state.model {
                Some(model) => format!("`{agent}` uses the model `{model}`."),
                None => format!("`{agent}` uses its own model."),
            },
            Some(def) if def.allow_model => {
                state.model = Some(name.into());
                format!("From now on `{agent}` uses the model `{name}`.")
            }
            Some(_) | None => format!("`{agent}` has only its own model."),
        }
    }

    async fn list_runs(&self, session: &Session) -> Result<String, RpcError> {
        let filter =
            RunFilter { thread: Some(session.thread), limit: RUNS_SHOWN, ..RunFilter::default() };
        let runs = self.runs(filter).await?;
        if runs.is_empty() {
            return Ok("Nothing ran in this session yet.".into());
        }
        let mut said = String::new();
        for info in runs {
            let state = match info.state {
                RunState::Running => "running",
                RunState::Paused => "waiting",
                RunState::Completed => "completed",
                RunState::Cancelled => "cancelled",
                RunState::Failed => "failed",
            };
            said += &format!("- `{}` {state}, by `{}`: {}\n", info.run, info.agent, info.title);
        }
        said += "\nSee one again with `wellspring runs replay ID`.";
        Ok(said)
    }

    async fn sum_up(&self, session: &Session) -> Result<String, RpcError> {
        let filter =
            RunFilter { thread: Some(session.thread), limit: RUNS_SHOWN, ..RunFilter::default() };
        let mut total = Usage::default();
        for info in self.runs(filter).await? {
            let transcript = self.control.transcript(info.run).await;
            total.add(&transcript.map_err(|error| RpcError::internal(&error))?.usage);
        }
        let cost = total.cost.map(|cost| format!(", {:.4} {}", cost.amount, cost.currency));
        let (input, output) = (total.input, total.output);
        Ok(format!("{input} tokens in, {output} out{}.", cost.unwrap_or_default()))
    }
}
