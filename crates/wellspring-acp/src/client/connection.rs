//! A connection to an agent: what belongs to which session.
//!
//! What an agent says about a session, the answer to its prompt included, goes into that
//! session's queue in the order it came. A queue that is full makes the agent wait.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use futures::future::{FutureExt as _, ready};
use serde_json::{Map, Value};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio_util::task::AbortOnDropHandle;
use wellspring_core::CancellationToken;

use super::attend::Attending;
use super::error::AcpError;
use super::record::Recorder;
use crate::lock;
use crate::rpc::{Peer, Request, RpcError, Unasked, Wish};

/// Messages that wait in one session's queue: enough to read many at once, few enough to make
/// an agent that floods wait for the log.
pub const QUEUE_MAX: usize = 256;

/// Bytes of messages that wait in one session's queue: enough for the largest one and some more.
pub const QUEUE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// What the bytes of a queue are counted in.
const BYTES_UNIT: usize = 1024;

/// Lines that wait between a connection's tasks. They may be large, so they are few.
pub(super) const LINES_WAITING_MAX: usize = 16;

/// Messages about sessions whose opening was not answered yet that are kept for them; as many
/// bytes as a queue has.
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
    /// Takes messages, each ended by a newline.
    pub(super) out: mpsc::Sender<Vec<u8>>,
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

/// A connection to an agent. Dropped, it is cut.
pub(super) struct Connection {
    shared: Arc<Shared>,
    peer: Peer,
    tasks: Mutex<Vec<AbortOnDropHandle<()>>>,
}

struct Shared {
    record: Option<Recorder>,
    attending: Attending,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    sessions: BTreeMap<Box<str>, Route>,
    /// Of sessions that are not known yet, with their sizes.
    early: VecDeque<(Box<str>, Incoming, usize)>,
    early_bytes: usize,
    /// Sessions that nobody reads any more.
    gone: BTreeSet<Box<str>>,
    garbage: usize,
    ended: Option<AcpError>,
}

/// Where a session's messages go.
#[derive(Clone)]
pub(super) struct Route {
    queue: mpsc::Sender<Queued>,
    room: Arc<Semaphore>,
    /// Whether somebody reads the queue; if not, what does not fit is dropped.
    read: Arc<AtomicBool>,
    /// Hears at once what is said while nobody reads.
    listener: Option<Listener>,
}

/// Hears the updates of a session that rests.
pub(crate) type Listener = Arc<dyn Fn(&Value) + Send + Sync>;

/// A session's messages, in order.
pub(super) struct Queue {
    messages: mpsc::Receiver<Queued>,
    read: Arc<AtomicBool>,
    listener: Option<Listener>,
    /// What came too late for whoever read it last, with the room that it took; no more than the
    /// queue itself may hold.
    late: VecDeque<(Incoming, usize)>,
    late_units: usize,
}

/// A message, and the room that it takes until it is read.
type Queued = (Incoming, Option<OwnedSemaphorePermit>);

impl Queue {
    /// A queue that nobody reads yet.
    pub(super) fn new(listener: Option<Listener>) -> (Route, Self) {
        let (queue, messages) = mpsc::channel(QUEUE_MAX);
        let room = Arc::new(Semaphore::new(QUEUE_BYTES_MAX / BYTES_UNIT));
        let read = Arc::new(AtomicBool::new(false));
        let route = Route { queue, room, read: Arc::clone(&read), listener: listener.clone() };
        (route, Self { messages, read, listener, late: VecDeque::new(), late_units: 0 })
    }

    /// The next message; none after the end of the connection.
    pub(super) async fn next(&mut self) -> Option<Incoming> {
        match self.next_late() {
            Some(late) => Some(late),
            None => self.messages.recv().await.map(|(incoming, _)| incoming),
        }
    }

    /// The next message, if it is there.
    pub(super) fn next_now(&mut self) -> Option<Incoming> {
        self.next_late().or_else(|| self.messages.try_recv().ok().map(|(incoming, _)| incoming))
    }

    fn next_late(&mut self) -> Option<Incoming> {
        let (incoming, units) = self.late.pop_front()?;
        self.late_units -= units;
        Some(incoming)
    }

    /// Somebody reads it: what does not fit makes the agent wait.
    pub(super) fn begin(&self) {
        self.read.store(true, Ordering::Relaxed);
    }

    /// Nobody reads it for a while: what does not fit is dropped. What an agent was made to wait
    /// with is let in first, or it would wait for good. What it said meanwhile is kept for
    /// whoever reads next; nobody is left to answer what it asked.
    pub(super) fn rest(&mut self) {
        self.read.store(false, Ordering::Relaxed);
        while let Ok((incoming, room)) = self.messages.try_recv() {
            match &incoming {
                Incoming::Update(update) => {
                    if let Some(listener) = &self.listener {
                        listener(update);
                    }
                }
                Incoming::Notification(..) => {}
                Incoming::Request(_) | Incoming::Prompted(_) => continue,
            }
            let units = room.map_or(0, |room| room.num_permits());
            self.late_units += units;
            self.late.push_back((incoming, units));
        }
        while self.late.len() > QUEUE_MAX || self.late_units > QUEUE_BYTES_MAX / BYTES_UNIT {
            if self.next_late().is_none() {
                break;
            }
        }
    }

    /// The same, and what was said so far is nobody's concern.
    pub(super) fn rest_and_forget(&mut self) {
        self.read.store(false, Ordering::Relaxed);
        while self.next_now().is_some() {}
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").finish_non_exhaustive()
    }
}

impl Connection {
    pub(super) fn new(wire: Wire, record: Option<Recorder>, attending: Attending) -> Self {
        let Wire { mut out, incoming, mut tasks } = wire;
        if let Some(record) = &record {
            let (tapped, tap) = record.tap(out);
            out = tapped;
            tasks.push(tap);
        }
        let peer = Peer::new(out);
        let shared = Arc::new(Shared { state: Mutex::default(), record, attending });
        let dispatching = Arc::clone(&shared).dispatch(incoming, peer.clone());
        tasks.push(AbortOnDropHandle::new(tokio::spawn(dispatching)));
        Self { shared, peer, tasks: Mutex::new(tasks) }
    }

    /// Why it is over, if it is.
    pub(super) fn ended(&self) -> Option<AcpError> {
        self.shared.state().ended.clone()
    }

    /// Cuts it: a process is killed, with its group, and whoever waits is told.
    pub(super) fn cut(&self) {
        lock(&self.tasks).clear();
        let why = AcpError::Ended { status: Some("it was given up".into()), last_words: "".into() };
        self.shared.end(why, &self.peer);
    }

    /// Asks, and waits for the answer.
    pub(super) async fn request(
        &self,
        method: &'static str,
        params: Value,
    ) -> Result<Value, AcpError> {
        let asked = self.peer.request(method, &params).await;
        let answer = asked.map_err(|unasked| self.unasked(unasked))?;
        answer.await.map_err(|error| self.failed(method, error))
    }

    /// Asks for a session to be opened; its messages go this way from its first one on.
    pub(super) async fn open(
        &self,
        method: &'static str,
        params: Value,
        route: Route,
    ) -> Result<Value, AcpError> {
        let (tell, told) = oneshot::channel();
        let shared = Arc::clone(&self.shared);
        let then = move |answer: Result<Value, RpcError>| {
            let session = answer.as_ref().ok().and_then(|it| it["sessionId"].as_str());
            if let Some(session) = session {
                shared.state().route(session, route);
            }
            drop(tell.send(answer));
            ready(()).boxed()
        };
        let asked = self.peer.request_then(method, &params, then).await;
        let waits = asked.map_err(|unasked| self.unasked(unasked))?;
        let answer = told.await.unwrap_or_else(|_| Err(Unasked::Gone.into()));
        drop(waits);
        answer.map_err(|error| self.failed(method, error))
    }

    /// Passes a request on that is not ours to understand.
    pub(super) async fn pass_on(
        &self,
        method: &str,
        params: &Value,
        cancelled: &CancellationToken,
    ) -> Result<Value, RpcError> {
        self.peer.ask_until(method, params, cancelled).await
    }

    /// Prompts a session; the answer comes by its queue.
    pub(super) async fn prompt(&self, session: &str, params: Value) -> Result<(), AcpError> {
        const METHOD: &str = "session/prompt";
        let (shared, session) = (Arc::clone(&self.shared), Box::<str>::from(session));
        let then = move |answer: Result<Value, RpcError>| {
            let answer = answer.map_err(|error| failure(METHOD, error));
            let route = shared.state().sessions.get(&session).cloned();
            async move {
                if let Some(route) = route {
                    route.send(Incoming::Prompted(answer), 0).await;
                }
            }
            .boxed()
        };
        let asked = self.peer.request_then(METHOD, &params, then).await;
        asked.map_err(|unasked| self.unasked(unasked))?.detach();
        Ok(())
    }

    /// Has a session's messages go this way.
    pub(super) fn route(&self, session: &str, route: Route) {
        self.shared.state().route(session, route);
    }

    /// Has a session's messages go nowhere.
    pub(super) fn forget(&self, session: &str) {
        self.shared.state().forget(session);
    }

    /// Tells the agent something that has no answer; at once, or not at all.
    pub(super) fn notify_now(&self, method: &str, params: &Value) {
        self.peer.notify_now(method, params);
    }

    /// Tells the agent something that has no answer, once there is room for it.
    pub(super) async fn notify(&self, method: &str, params: &Value) {
        // One that is gone is told nothing, and the queues say so.
        let _ = self.peer.notify(method, params).await;
    }

    fn unasked(&self, unasked: Unasked) -> AcpError {
        match unasked {
            Unasked::Gone => self.over(),
            Unasked::TooMany => {
                AcpError::Protocol { what: unasked.to_string().into(), last_words: "".into() }
            }
        }
    }

    fn failed(&self, method: &'static str, error: RpcError) -> AcpError {
        if error == Unasked::Gone.into() { self.over() } else { failure(method, error) }
    }

    fn over(&self) -> AcpError {
        let ended = AcpError::Ended { status: None, last_words: "".into() };
        self.ended().unwrap_or(ended)
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    async fn dispatch(self: Arc<Self>, mut incoming: mpsc::Receiver<Heard>, peer: Peer) {
        let ended = loop {
            let line = match incoming.recv().await {
                Some(Heard::Line(line)) => line,
                Some(Heard::End(error)) => break error,
                None => break AcpError::Ended { status: None, last_words: "".into() },
            };
            if let Some(record) = self.record.as_ref().filter(|_| !line.trim_ascii().is_empty()) {
                record.heard(&line);
            }
            match peer.take(&line).await {
                Ok(Some(wish)) => self.deliver(wish, line.len()).await,
                Ok(None) => {}
                Err(_) => {
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
        self.end(ended, &peer);
    }

    /// Everyone who waits is told: whoever reads a queue, by its end.
    fn end(&self, error: AcpError, peer: &Peer) {
        let (sessions, early) = {
            let mut state = self.state();
            state.ended.get_or_insert(error);
            state.early_bytes = 0;
            (std::mem::take(&mut state.sessions), std::mem::take(&mut state.early))
        };
        peer.lose();
        drop((sessions, early));
    }

    async fn deliver(&self, wish: Wish, bytes: usize) {
        let (session, incoming) = match wish {
            Wish::Request(request) => {
                (request.params["sessionId"].as_str().map(Into::into), Incoming::Request(request))
            }
            Wish::Notification(method, mut params) => {
                let session = params["sessionId"].as_str().map(Box::<str>::from);
                let incoming = match &*method {
                    "session/update" => {
                        let mut update = params["update"].take();
                        about(&mut update, params["_meta"].take());
                        Incoming::Update(update)
                    }
                    _ => Incoming::Notification(method, params),
                };
                (session, incoming)
            }
        };
        let Some(session) = session else {
            return self.attending.deliver(incoming, bytes).await;
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
                state.early_bytes += bytes;
                state.early.push_back((session, incoming, bytes));
                while state.early.len() > EARLY_MAX || state.early_bytes > QUEUE_BYTES_MAX {
                    let Some((.., bytes)) = state.early.pop_front() else { break };
                    state.early_bytes -= bytes;
                }
                return;
            }
            route
        };
        if let Some(route) = route {
            route.send(incoming, bytes).await;
        }
    }
}

impl State {
    fn route(&mut self, session: &str, route: Route) {
        let mut early = VecDeque::new();
        for (about, incoming, bytes) in std::mem::take(&mut self.early) {
            if *about == *session {
                self.early_bytes -= bytes;
                // The queue is new, and holds as many.
                route.send_now(incoming, bytes);
            } else {
                early.push_back((about, incoming, bytes));
            }
        }
        self.early = early;
        self.gone.remove(session);
        self.sessions.insert(session.into(), route);
    }

    fn forget(&mut self, session: &str) {
        self.sessions.remove(session);
        if self.gone.len() >= GONE_MAX {
            self.gone.clear();
        }
        self.gone.insert(session.into());
    }
}

impl Route {
    async fn send(&self, incoming: Incoming, bytes: usize) {
        if !self.read.load(Ordering::Relaxed) {
            return self.send_now(incoming, bytes);
        }
        let room = Arc::clone(&self.room).acquire_many_owned(units(bytes)).await;
        let _ = self.queue.send((incoming, room.ok())).await;
    }

    /// Whether somebody may still read it.
    pub(super) fn is_open(&self) -> bool {
        !self.queue.is_closed()
    }

    /// Sends what fits.
    pub(super) fn send_now(&self, incoming: Incoming, bytes: usize) {
        if let (Some(listener), Incoming::Update(update)) = (&self.listener, &incoming) {
            listener(update);
        }
        if let Ok(room) = Arc::clone(&self.room).try_acquire_many_owned(units(bytes)) {
            let _ = self.queue.try_send((incoming, Some(room)));
        }
    }
}

/// The room that a message takes. No message takes all of it.
fn units(bytes: usize) -> u32 {
    u32::try_from(bytes.min(QUEUE_BYTES_MAX) / BYTES_UNIT).unwrap_or(u32::MAX)
}

/// Has an update say what its notification says about it. What it says itself counts more.
fn about(update: &mut Value, meta: Value) {
    let (Value::Object(update), Value::Object(meta)) = (update, meta) else { return };
    let own = update.entry("_meta").or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(own) = own {
        for (name, value) in meta {
            own.entry(name).or_insert(value);
        }
    }
}

fn failure(method: &'static str, error: RpcError) -> AcpError {
    if error.code == RpcError::LOGIN_FIRST {
        return AcpError::Login { methods: Vec::new() };
    }
    let RpcError { code, message, data } = error;
    AcpError::Answer { method, code, message: message.into(), data: data.unwrap_or_default() }
}

#[cfg(test)]
mod tests;
