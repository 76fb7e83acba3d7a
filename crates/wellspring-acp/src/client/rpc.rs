//! JSON-RPC with an agent: who waits for which answer, and what belongs to which session.
//!
//! What an agent says about a session, the answer to its prompt included, goes into that
//! session's queue in the order it came. A queue that is full makes the agent wait.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::AbortOnDropHandle;

use super::error::AcpError;
use super::record::Recorder;

/// Messages that wait in one session's queue: enough to read many at once, few enough to make
/// an agent that floods wait for the log.
pub const QUEUE_MAX: usize = 256;

/// Lines that wait between a connection's tasks.
pub(super) const LINES_WAITING_MAX: usize = 64;

/// Requests of ours that may wait for an answer of one agent.
pub const REQUESTS_MAX: usize = 1024;

/// Messages about sessions whose opening was not answered yet that are kept for them.
pub const EARLY_MAX: usize = 256;

/// Lines that are no messages before an agent is given up: some print a banner or a warning
/// where only messages belong.
pub const GARBAGE_LINES_MAX: usize = 100;

/// Sessions that are remembered as over, so that what is still said of them is not kept.
const GONE_MAX: usize = 1024;

/// Bytes of such a line that an error shows.
const GARBAGE_SHOWN_MAX: usize = 200;

/// A connection as its transport gives it.
pub(super) struct Wire {
    /// Takes messages, one per string.
    pub(super) out: mpsc::Sender<String>,
    /// Gives messages, and the reason of the end.
    pub(super) incoming: mpsc::Receiver<Heard>,
    /// What carries them; dropped, the connection is cut and a process killed.
    pub(super) tasks: Vec<AbortOnDropHandle<()>>,
}

/// What comes from an agent.
pub(super) enum Heard {
    /// A message, or garbage.
    Line(Vec<u8>),
    /// Nothing more.
    End(AcpError),
}

/// What comes for a session.
#[derive(Debug)]
pub(super) enum Incoming {
    /// The `update` of a `session/update`.
    Update(Value),
    /// Any other notification.
    Notification(Box<str>, Value),
    /// A request, to be answered.
    Request(Request),
    /// The answer to the prompt.
    Prompted(Result<Value, AcpError>),
}

/// A request of an agent. One that is dropped is answered with an error.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) method: Box<str>,
    pub(super) params: Value,
    id: Option<Value>,
    out: mpsc::WeakSender<String>,
}

/// Why a request of an agent is not fulfilled.
#[derive(Debug)]
pub(super) struct Refusal {
    code: i64,
    message: String,
}

impl Refusal {
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self { code: -32602, message: message.into() }
    }

    pub(super) fn failed(message: impl Into<String>) -> Self {
        Self { code: -32603, message: message.into() }
    }

    pub(super) fn not_found(message: impl Into<String>) -> Self {
        Self { code: -32002, message: message.into() }
    }

    fn no_method(method: &str) -> Self {
        Self { code: -32601, message: format!("there is no method {method:?} here") }
    }
}

impl Request {
    /// Answers it. An agent that does not read its answers is told nothing.
    pub(super) async fn answer(mut self, answer: Result<Value, Refusal>) {
        if let (Some(id), Some(out)) = (self.id.take(), self.out.upgrade()) {
            let _ = out.send(answer_line(&id, answer)).await;
        }
    }

    pub(super) async fn no_such_method(self) {
        let refusal = Refusal::no_method(&self.method);
        self.answer(Err(refusal)).await;
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if let (Some(id), Some(out)) = (self.id.take(), self.out.upgrade()) {
            let refusal = Refusal { code: -32800, message: "the run is over".into() };
            let _ = out.try_send(answer_line(&id, Err(refusal)));
        }
    }
}

fn answer_line(id: &Value, answer: Result<Value, Refusal>) -> String {
    match answer {
        Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
        Err(Refusal { code, message }) => {
            let error = json!({"code": code, "message": message});
            json!({"jsonrpc": "2.0", "id": id, "error": error})
        }
    }
    .to_string()
}

/// A connection to an agent. Dropped, it is cut.
pub(super) struct Connection {
    shared: Arc<Shared>,
    out: mpsc::Sender<String>,
    tasks: Mutex<Vec<AbortOnDropHandle<()>>>,
}

struct Shared {
    record: Option<Recorder>,
    next: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: HashMap<u64, Waiting>,
    sessions: BTreeMap<Box<str>, Route>,
    /// Of sessions that are not known yet.
    early: VecDeque<(Box<str>, Incoming)>,
    /// Sessions that nobody reads any more.
    gone: BTreeSet<Box<str>>,
    garbage: usize,
    ended: Option<AcpError>,
}

struct Waiting {
    method: &'static str,
    answer: Answer,
}

enum Answer {
    /// To whoever asked.
    Asker(oneshot::Sender<Result<Value, AcpError>>),
    /// To whoever asked, once the session that it opens has its queue.
    Opens(Route, oneshot::Sender<Result<Value, AcpError>>),
    /// Into the session's queue.
    Session(Box<str>),
}

/// Where a session's messages go.
#[derive(Clone)]
pub(super) struct Route {
    queue: mpsc::Sender<Incoming>,
    /// Whether somebody reads the queue; if not, what does not fit is dropped.
    read: Arc<AtomicBool>,
}

/// A session's messages, in order.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) messages: mpsc::Receiver<Incoming>,
    read: Arc<AtomicBool>,
}

impl Queue {
    pub(super) fn new() -> (Route, Self) {
        let (queue, messages) = mpsc::channel(QUEUE_MAX);
        let read = Arc::new(AtomicBool::new(true));
        (Route { queue, read: Arc::clone(&read) }, Self { messages, read })
    }

    /// Somebody reads it: what does not fit makes the agent wait.
    pub(super) fn begin(&self) {
        self.read.store(true, Ordering::Relaxed);
    }

    /// Nobody reads it for a while: what does not fit is dropped. What an agent was made to wait
    /// with is let in first, or it would wait for good.
    pub(super) fn rest(&mut self) {
        self.read.store(false, Ordering::Relaxed);
        while self.messages.try_recv().is_ok() {}
    }
}

impl Connection {
    pub(super) fn new(wire: Wire, record: Option<Recorder>) -> Self {
        let Wire { mut out, incoming, mut tasks } = wire;
        if let Some(record) = &record {
            let (tapped, tap) = record.tap(out);
            out = tapped;
            tasks.push(tap);
        }
        let (next, state) = (AtomicU64::new(1), Mutex::default());
        let shared = Arc::new(Shared { next, state, record });
        let dispatching = Arc::clone(&shared).dispatch(incoming, out.downgrade());
        tasks.push(AbortOnDropHandle::new(tokio::spawn(dispatching)));
        Self { shared, out, tasks: Mutex::new(tasks) }
    }

    /// Why it is over, if it is.
    pub(super) fn ended(&self) -> Option<AcpError> {
        self.shared.state().ended.clone()
    }

    /// Cuts it: a process is killed, with its group, and whoever waits is told.
    pub(super) fn cut(&self) {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let mut state = self.shared.state();
        let given_up =
            AcpError::Ended { status: Some("it was given up".into()), last_words: "".into() };
        state.ended.get_or_insert(given_up);
        state.waiting.clear();
        state.sessions.clear();
        state.early.clear();
    }

    /// Asks, and waits for the answer.
    pub(super) async fn request(
        &self,
        method: &'static str,
        params: Value,
    ) -> Result<Value, AcpError> {
        let (tell, told) = oneshot::channel();
        self.ask(method, params, Answer::Asker(tell)).await?;
        told.await.unwrap_or_else(|_| Err(self.over()))
    }

    /// Asks for a session to be opened; its messages go this way from its first one on.
    pub(super) async fn open(
        &self,
        method: &'static str,
        params: Value,
        route: Route,
    ) -> Result<Value, AcpError> {
        let (tell, told) = oneshot::channel();
        self.ask(method, params, Answer::Opens(route, tell)).await?;
        told.await.unwrap_or_else(|_| Err(self.over()))
    }

    /// Prompts a session; the answer comes by its queue.
    pub(super) async fn prompt(&self, session: &str, params: Value) -> Result<(), AcpError> {
        self.ask("session/prompt", params, Answer::Session(session.into())).await
    }

    /// Has a session's messages go this way.
    pub(super) fn route(&self, session: &str, route: Route) {
        self.shared.state().route(session, route);
    }

    /// Has a session's messages go nowhere.
    pub(super) fn forget(&self, session: &str) {
        let mut state = self.shared.state();
        state.sessions.remove(session);
        if state.gone.len() >= GONE_MAX {
            state.gone.clear();
        }
        state.gone.insert(session.into());
    }

    /// Tells the agent something that has no answer; at once, or not at all.
    pub(super) fn notify_now(&self, method: &str, params: Value) {
        let line = json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string();
        let _ = self.out.try_send(line);
    }

    /// Tells the agent something that has no answer.
    pub(super) async fn notify(&self, method: &str, params: Value) {
        let line = json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string();
        let _ = self.out.send(line).await;
    }

    async fn ask(
        &self,
        method: &'static str,
        params: Value,
        answer: Answer,
    ) -> Result<(), AcpError> {
        let id = self.shared.next.fetch_add(1, Ordering::Relaxed);
        {
            let mut state = self.shared.state();
            if let Some(ended) = &state.ended {
                return Err(ended.clone());
            }
            if state.waiting.len() >= REQUESTS_MAX {
                let what = format!("{REQUESTS_MAX} requests wait for an answer already").into();
                return Err(AcpError::Protocol { what, last_words: "".into() });
            }
            state.waiting.insert(id, Waiting { method, answer });
        }
        let line = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        if self.out.send(line.to_string()).await.is_err() {
            self.shared.state().waiting.remove(&id);
            return Err(self.over());
        }
        Ok(())
    }

    fn over(&self) -> AcpError {
        let ended = AcpError::Ended { status: None, last_words: "".into() };
        self.ended().unwrap_or(ended)
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn dispatch(
        self: Arc<Self>,
        mut incoming: mpsc::Receiver<Heard>,
        out: mpsc::WeakSender<String>,
    ) {
        let ended = loop {
            let line = match incoming.recv().await {
                Some(Heard::Line(line)) => line,
                Some(Heard::End(error)) => break error,
                None => break AcpError::Ended { status: None, last_words: "".into() },
            };
            if line.trim_ascii().is_empty() {
                continue;
            }
            if let Some(record) = &self.record {
                record.heard(&line);
            }
            match serde_json::from_slice::<Value>(&line) {
                Ok(message) if message.is_object() => self.deliver(message, &out).await,
                Ok(_) | Err(_) => {
                    let mut state = self.state();
                    state.garbage += 1;
                    let shown = String::from_utf8_lossy(&line);
                    let shown = &shown[..shown.floor_char_boundary(GARBAGE_SHOWN_MAX)];
                    tracing::debug!(line = shown, "an agent printed what is no message");
                    if state.garbage > GARBAGE_LINES_MAX {
                        let what = format!("it prints what is no message, such as {shown:?}");
                        break AcpError::Protocol { what: what.into(), last_words: "".into() };
                    }
                }
            }
        };
        self.end(ended).await;
    }

    /// Everyone who waits is told.
    async fn end(&self, error: AcpError) {
        let (waiting, sessions) = {
            let mut state = self.state();
            state.ended = Some(error.clone());
            state.early.clear();
            (std::mem::take(&mut state.waiting), std::mem::take(&mut state.sessions))
        };
        for waiting in waiting.into_values() {
            match waiting.answer {
                Answer::Asker(tell) | Answer::Opens(_, tell) => {
                    let _ = tell.send(Err(error.clone()));
                }
                Answer::Session(session) => {
                    if let Some(route) = sessions.get(&session) {
                        route.send(Incoming::Prompted(Err(error.clone()))).await;
                    }
                }
            }
        }
    }

    async fn deliver(&self, mut message: Value, out: &mpsc::WeakSender<String>) {
        let Some(method) = message["method"].as_str().map(Box::<str>::from) else {
            self.answered(message).await;
            return;
        };
        let id = message.get("id").filter(|id| !id.is_null()).cloned();
        let mut params = message["params"].take();
        let session: Option<Box<str>> = params["sessionId"].as_str().map(Into::into);
        let incoming = match id {
            Some(id) => {
                let (id, out) = (Some(id), out.clone());
                Incoming::Request(Request { method, params, id, out })
            }
            None if &*method == "session/update" => Incoming::Update(params["update"].take()),
            None => Incoming::Notification(method, params),
        };
        let Some(session) = session else {
            if let Incoming::Request(request) = incoming {
                request.no_such_method().await;
            }
            return;
        };
        let route = {
            let mut state = self.state();
            let route = state.sessions.get(&session).cloned();
            if route.is_none() {
                if state.gone.contains(&session) {
                    return;
                }
                // The answer that opens it may be on its way. A request that nobody takes is
                // answered when it is dropped.
                if state.early.len() >= EARLY_MAX {
                    state.early.pop_front();
                }
                state.early.push_back((session, incoming));
                return;
            }
            route
        };
        if let Some(route) = route {
            route.send(incoming).await;
        }
    }

    async fn answered(&self, mut message: Value) {
        let waiting = message["id"].as_u64().and_then(|id| self.state().waiting.remove(&id));
        // An answer to nothing means nothing.
        let Some(Waiting { method, answer }) = waiting else { return };
        let result = match message.get_mut("error").filter(|error| !error.is_null()) {
            Some(error) => Err(failure(method, error)),
            None => Ok(message["result"].take()),
        };
        match answer {
            Answer::Asker(tell) => drop(tell.send(result)),
            Answer::Opens(route, tell) => {
                if let Some(session) = result.as_ref().ok().and_then(|it| it["sessionId"].as_str())
                {
                    self.state().route(session, route);
                }
                drop(tell.send(result));
            }
            Answer::Session(session) => {
                let route = self.state().sessions.get(&session).cloned();
                if let Some(route) = route {
                    route.send(Incoming::Prompted(result)).await;
                }
            }
        }
    }
}

impl State {
    fn route(&mut self, session: &str, route: Route) {
        let mut early = VecDeque::new();
        for (about, incoming) in std::mem::take(&mut self.early) {
            if *about == *session {
                // The queue is new, and holds as many.
                let _ = route.queue.try_send(incoming);
            } else {
                early.push_back((about, incoming));
            }
        }
        self.early = early;
        self.gone.remove(session);
        self.sessions.insert(session.into(), route);
    }
}

impl Route {
    async fn send(&self, incoming: Incoming) {
        if self.read.load(Ordering::Relaxed) {
            let _ = self.queue.send(incoming).await;
        } else {
            let _ = self.queue.try_send(incoming);
        }
    }
}

fn failure(method: &'static str, error: &mut Value) -> AcpError {
    let code = error["code"].as_i64().unwrap_or_default();
    if code == -32000 {
        return AcpError::Login { methods: Vec::new() };
    }
    let message = error["message"].as_str().unwrap_or("it did not say why").into();
    AcpError::Answer { method, code, message, data: error["data"].take() }
}
