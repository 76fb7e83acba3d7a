//! Threads: conversations over several runs.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use wellspring_core::{AgentNo, Message, ThreadId};
use wellspring_engine::HISTORY_RUNS_MAX;
use wellspring_log::{RunFilter, RunInfo};

use crate::agent::Agent;
use crate::error::ThinkError;
use crate::think::Think;

/// A conversation with an agent. The messages are in the log; this is a handle.
///
/// ```
/// use wellspring::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), wellspring::ThinkError> {
/// let model = Scripted::conversation([
///     Say::new().text("Pleased to meet you, Ada."),
///     Say::new().text("You are Ada."),
/// ]);
/// let thread = Agent::model(model).thread();
/// thread.say("I am Ada.").run().await?;
/// assert_eq!(thread.say("Who am I?").run().await?, "You are Ada.");
/// assert_eq!(thread.history().await?.len(), 4);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Thread {
    agent: Agent,
    id: ThreadId,
}

impl Thread {
    pub(crate) fn new(agent: Agent, id: ThreadId) -> Self {
        Self { agent, id }
    }

    /// The thread's id, for [`Agent::open_thread`].
    #[must_use]
    pub fn id(&self) -> ThreadId {
        self.id
    }

    /// The thread's agent.
    #[must_use]
    pub fn agent(&self) -> &Agent {
        &self.agent
    }

    /// Starts a request with a typed result in this conversation, as [`Agent::think`] does.
    pub fn think<T: DeserializeOwned + JsonSchema>(&self) -> Think<T> {
        self.agent.think().thread(self)
    }

    /// Starts a request with a text in this conversation, as [`Agent::say`] does.
    pub fn say(&self, text: impl AsRef<str>) -> Think<String> {
        self.agent.say(text).thread(self)
    }

    /// Its runs, the latest first; at most [`HISTORY_RUNS_MAX`], the number that an agent gets.
    ///
    /// # Errors
    ///
    /// If the log cannot be read.
    pub async fn runs(&self) -> Result<Vec<RunInfo>, ThinkError> {
        let filter =
            RunFilter { thread: Some(self.id), limit: HISTORY_RUNS_MAX, ..RunFilter::default() };
        Ok(self.agent.engine().local().list(filter).await?)
    }

    /// The conversation so far, along its latest branch, as the agent will get it.
    ///
    /// # Errors
    ///
    /// If the log cannot be read.
    pub async fn history(&self) -> Result<Vec<Message>, ThinkError> {
        let control = self.agent.engine().local();
        let Some(latest) = self.runs().await?.into_iter().next() else { return Ok(Vec::new()) };
        let mut newest_first = Vec::new();
        for info in control.history(latest.run, HISTORY_RUNS_MAX).await? {
            newest_first.push(control.transcript(info.run).await?.messages(AgentNo::ROOT));
        }
        Ok(newest_first.into_iter().rev().flatten().collect())
    }
}
