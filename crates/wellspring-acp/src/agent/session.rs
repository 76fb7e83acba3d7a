//! A session: a thread, and what a client said about it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::{Value, json};
use tokio::sync::watch;
use wellspring_core::{Answer, CancellationToken, QuestionId, ThreadId};
use wellspring_mcp::McpConnection;
use wellspring_wire::acp::besides;

use super::commands::Commands;
use super::options::Options;
use super::proxied::own_mode;
use crate::client::{Link, Prompted, SERVED_MAX};
use crate::lock;
use crate::rpc::RpcError;

/// Maximum number of open sessions of a client: more than an editor has windows. Each costs little,
/// apart from its MCP servers.
pub const SESSIONS_MAX: usize = 256;

pub(super) struct Session {
    pub(super) thread: ThreadId,
    /// What the client calls it.
    pub(super) id: Box<str>,
    pub(super) cwd: Box<str>,
    /// Other directories that the client has open.
    pub(super) others: Vec<Box<str>>,
    pub(super) mcp: Vec<McpConnection>,
    /// What else the client said when it opened it.
    pub(super) opening: Value,
    /// The client's terminals that it was asked to show.
    shown_terminals: watch::Sender<BTreeSet<Box<str>>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// Who is asked next.
    pub(super) agent: Box<str>,
    /// With which model.
    pub(super) model: Option<Box<str>>,
    /// What its agent supports, if that is a proxied ACP agent.
    pub(super) their_commands: Commands,
    /// What it can be set to.
    pub(super) options: Options,
    /// How its session is reached.
    pub(super) link: Option<Arc<Link>>,
    /// What the client should hear of these.
    pub(super) news: News,
    /// Whether an answer is about to be sent.
    pub(super) is_telling: bool,
    /// Whether the client has heard of the session.
    pub(super) is_announced: bool,
    /// The agent whose own modes the client knows.
    pub(super) listed_modes_of: Option<Box<str>>,
    /// What the client should hear before the next answer.
    pub(super) notes: Vec<String>,
    /// Cancels the active prompt.
    running: Option<CancellationToken>,
    /// What that prompt says, in the client's own words.
    pub(super) prompted: Option<Arc<Prompted>>,
    /// What the client said to that prompt's questions.
    pub(super) answers: Answers,
}

/// Maximum number of a client's answers that wait for a proxied agent: as many as an agent may ask
/// for at a time. Answers that are never collected are dropped for later ones.
pub(super) const ANSWERS_MAX: usize = SERVED_MAX;

/// Answers in the client's own words, each with what it means.
#[derive(Debug, Default)]
pub(super) struct Answers(BTreeMap<QuestionId, (Answer, Value)>);

impl Answers {
    /// Keeps an answer for the request that it belongs to.
    pub(super) fn keep(&mut self, question: QuestionId, answer: Answer, said: Value) {
        self.0.insert(question, (answer, said));
        while self.0.len() > ANSWERS_MAX {
            self.0.pop_first();
        }
    }

    /// Takes the answer to a question, if it is this one: it may have been answered elsewhere
    /// first.
    pub(super) fn take(&mut self, question: QuestionId, answer: &Answer) -> Option<Value> {
        let (meant, said) = self.0.remove(&question)?;
        (meant == *answer).then_some(said)
    }
}

/// What is new of what an agent offers.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct News {
    pub(super) commands: bool,
    pub(super) options: bool,
    pub(super) mode: bool,
}

impl State {
    /// The mode of the agent's own that it is in, as the client calls it.
    pub(super) fn mode(&self) -> Option<String> {
        let mode = self.options.mode()?;
        let is_known = self.listed_modes_of.as_ref() == Some(&self.agent);
        is_known.then(|| own_mode(&self.agent, mode))
    }
}

impl Session {
    pub(super) fn new(thread: ThreadId, agent: Box<str>, place: Place) -> Self {
        let state = State { agent, notes: place.notes, ..State::default() };
        Self {
            thread,
            id: thread.to_string().into(),
            cwd: place.cwd,
            others: place.others,
            mcp: place.mcp,
            opening: place.opening,
            shown_terminals: watch::Sender::default(),
            state: Mutex::new(state),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Lets another agent answer from now on. What the one before offered is gone.
    pub(super) fn switch(&self, agent: &str) {
        let mut state = self.state();
        state.agent = agent.into();
        state.model = None;
        state.link = None;
        state.their_commands = Commands::default();
        let had = std::mem::take(&mut state.options);
        state.news.options |= !had.is_empty();
    }

    /// A path below one of the session's directories, in full. It goes by names alone: links
    /// are the client's affair.
    pub(super) fn below(&self, path: &str) -> Result<PathBuf, String> {
        let mut found = PathBuf::new();
        for component in Path::new(&*self.cwd).join(path).components() {
            match component {
                Component::CurDir => {}
                Component::ParentDir => {
                    found.pop();
                }
                Component::Prefix(_) | Component::RootDir | Component::Normal(_) => {
                    found.push(component);
                }
            }
        }
        // An agent behind us may know a directory by the name that its links lead to.
        let roots = [&self.cwd].into_iter().chain(&self.others).map(|root| Path::new(&**root));
        let is_below = |root: &Path| {
            found.starts_with(root) || root.canonicalize().is_ok_and(|root| found.starts_with(root))
        };
        if roots.into_iter().any(is_below) {
            return Ok(found);
        }
        Err(format!("{path:?} leads out of the working directory; use a path below it"))
    }

    /// Records that the client was asked to show a terminal.
    pub(super) fn terminal_shown(&self, terminal: &str) {
        self.shown_terminals.send_modify(|shown| {
            shown.insert(terminal.into());
        });
    }

    /// Waits until the client was asked to show a terminal, and forgets it.
    pub(super) async fn showing(&self, terminal: &str) {
        let mut shown = self.shown_terminals.subscribe();
        // The sender is ours.
        let _ = shown.wait_for(|shown| shown.contains(terminal)).await;
        self.shown_terminals.send_modify(|shown| {
            shown.remove(terminal);
        });
    }

    /// The parameters of an update.
    pub(super) fn update(&self, update: Value) -> Value {
        json!({"sessionId": self.id, "update": update})
    }

    /// Cancels the active prompt, if there is one. Further members of the request are passed to a
    /// proxied agent.
    pub(super) fn cancel(&self, params: &Value) {
        let state = self.state();
        let Some(running) = &state.running else { return };
        if let Some(link) = &state.link {
            link.cancel_with(besides(params, &["sessionId"]));
        }
        running.cancel();
    }

    pub(super) fn is_running(&self) -> bool {
        self.state().running.is_some()
    }

    /// Begins a prompt: one at a time.
    pub(super) fn begin(
        self: Arc<Self>,
        prompted: Prompted,
        cancelled: CancellationToken,
    ) -> Result<Running, RpcError> {
        let mut state = self.state();
        if state.running.is_some() {
            let message = "the session is busy with a prompt; wait for its end, or cancel it";
            return Err(RpcError::new(RpcError::INVALID_REQUEST, message));
        }
        state.running = Some(cancelled.clone());
        state.prompted = Some(Arc::new(prompted));
        drop(state);
        Ok(Running { session: self, cancelled })
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Where a session works, and with what.
#[derive(Debug, Default)]
pub(super) struct Place {
    pub(super) cwd: Box<str>,
    pub(super) others: Vec<Box<str>>,
    pub(super) mcp: Vec<McpConnection>,
    pub(super) opening: Value,
    pub(super) notes: Vec<String>,
}

/// An active prompt. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) session: Arc<Session>,
    pub(super) cancelled: CancellationToken,
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut state = self.session.state();
        (state.running, state.prompted) = (None, None);
        state.answers = Answers::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_nobody_takes_make_room() {
        let mut answers = Answers::default();
        for question in 0..=ANSWERS_MAX as u32 {
            answers.keep(QuestionId(question), Answer::yes(), json!(question));
        }
        assert_eq!(answers.0.len(), ANSWERS_MAX);
        assert_eq!(answers.take(QuestionId(0), &Answer::yes()), None);
        assert_eq!(answers.take(QuestionId(1), &Answer::yes()), Some(json!(1)));
        assert_eq!(answers.take(QuestionId(1), &Answer::yes()), None);
        // It was declined elsewhere first.
        assert_eq!(answers.take(QuestionId(2), &Answer::NO), None);
    }
}
