//! A session: a thread, with the client's settings.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::{Value, json};
use tokio::sync::watch;
use wellspring_core::{Answer, CancellationToken, QuestionId, ThreadId};
use wellspring_mcp::McpConnection;
use wellspring_wire::acp::members_except;

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
    /// The client's id of it.
    pub(super) id: Box<str>,
    pub(super) cwd: Box<str>,
    /// Other directories that the client has open.
    pub(super) others: Vec<Box<str>>,
    pub(super) mcp: Vec<McpConnection>,
    /// Further members of the request that opened it.
    pub(super) opening: Value,
    /// The client's terminals that it was asked to show.
    shown_terminals: watch::Sender<BTreeSet<Box<str>>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// The agent of the next prompt.
    pub(super) agent: Box<str>,
    /// The model of the next prompt.
    pub(super) model: Option<Box<str>>,
    /// The commands of its agent, if that is a proxied ACP agent.
    pub(super) their_commands: Commands,
    /// Its agent's modes and options.
    pub(super) options: Options,
    /// The session of its proxied agent.
    pub(super) link: Option<Arc<Link>>,
    /// Changes that the client does not know.
    pub(super) news: News,
    /// Whether a task is sending changes to the client.
    pub(super) is_telling: bool,
    /// Whether the client knows the session.
    pub(super) is_announced: bool,
    /// The agent whose own modes the client knows.
    pub(super) listed_modes_of: Option<Box<str>>,
    /// Notes to send before the next answer.
    pub(super) notes: Vec<String>,
    /// Cancels the active prompt.
    running: Option<CancellationToken>,
    /// The client's own parameters of that prompt.
    pub(super) prompted: Option<Arc<Prompted>>,
    /// The client's own answers to that prompt's questions.
    pub(super) answers: Answers,
}

/// Maximum number of a client's answers that wait for a proxied agent: as many as an agent may ask
/// for at a time. Answers that are never collected are dropped for later ones.
pub(super) const ANSWERS_MAX: usize = SERVED_MAX;

/// The client's own answers, each with its meaning.
#[derive(Debug, Default)]
pub(super) struct Answers(BTreeMap<QuestionId, (Answer, Value)>);

impl Answers {
    /// Stores an answer for its request.
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

/// Which of an agent's modes, options and commands have changed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct News {
    pub(super) commands: bool,
    pub(super) options: bool,
    pub(super) mode: bool,
}

impl State {
    /// The client's id of the agent's current mode among its own.
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

    /// Switches to another agent, and forgets what the previous one offered.
    pub(super) fn switch(&self, agent: &str) {
        let mut state = self.state();
        state.agent = agent.into();
        state.model = None;
        state.link = None;
        state.their_commands = Commands::default();
        let had = std::mem::take(&mut state.options);
        state.news.options |= !had.is_empty();
    }

    /// The full path, if it is below one of the session's directories. It compares names only: the
    /// client resolves links.
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
        // A proxied agent may use the path behind a link.
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
            link.cancel_with(members_except(params, &["sessionId"]));
        }
        running.cancel();
    }

    pub(super) fn is_running(&self) -> bool {
        self.state().running.is_some()
    }

    /// Begins a prompt. There is one at a time.
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

/// The directories and MCP servers of a session.
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
        // It was declined through another client first.
        assert_eq!(answers.take(QuestionId(2), &Answer::NO), None);
    }
}
