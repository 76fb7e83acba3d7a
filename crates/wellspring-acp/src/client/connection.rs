//! A connection to an agent: routes messages to sessions.
//!
//! Messages about a session, including the answer to its prompt, go into that
//! session's queue in the order in which they arrived. A full queue makes the agent wait.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use futures::future::{FutureExt as _, ready};
use serde_json::{Map, Value};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio_util::task::AbortOnDropHandle;
use wellspring_core::CancellationToken;

use super::broadcast::Attending;
use super::error::AcpError;
use super::message_log::Recorder;
use crate::lock;
use crate::rpc::{Peer, Request, RpcError, Unasked, Wish};

/// Messages that wait in one session's queue: enough to read many together, few enough to throttle
/// an agent that floods us.
pub const QUEUE_MAX: usize = 256;

/// Bytes of messages that wait in one session's queue: more than the largest message.
pub const QUEUE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The unit in which bytes of a queue are counted.
const BYTES_UNIT: usize = 1024;

/// Lines that wait between a connection's tasks. They may be large, so they are few.
pub(super) const LINES_WAITING_MAX: usize = 16;

/// Messages that are kept for sessions whose `session/new` was not answered yet; bounded in
/// bytes like a queue.
pub const EARLY_MAX: usize = 256;

/// Invalid lines before an agent is given up: some print a banner or a warning
/// to standard output.
pub const GARBAGE_LINES_MAX: usize = 100;

/// Closed sessions that are remembered, so that late messages about them are dropped.
const GONE_MAX: usize = 1024;

/// Bytes of an invalid line that an error shows.
const GARBAGE_SHOWN_MAX: usize = 200;

/// A connection as its transport provides it.
pub(super) struct Wire {
    /// Takes messages, each ending with a newline.
    pub(super) out: mpsc::Sender<Vec<u8>>,
    /// Yields messages, and finally why the connection ended.
    pub(super) incoming: mpsc::Receiver<Heard>,
    /// Keeps the transport alive: dropping it cuts the connection and kills the process.
    pub(super) tasks: Vec<AbortOnDropHandle<()>>,
}

/// An item from the transport.
pub(super) enum Heard {
    /// A line: a message, or garbage.
    Line(Vec<u8>),
    /// The connection has ended.
    End(AcpError),
}

/// A message for a session.
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

/// A connection to an agent. Dropping it cuts the connection.
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
    /// Messages of sessions that are not known yet, with their sizes.
    early: VecDeque<(Box<str>, Incoming, usize)>,
    early_bytes: usize,
    /// Sessions that are no longer read.
    gone: BTreeSet<Box<str>>,
    garbage: usize,
    ended: Option<AcpError>,
}

/// Where a session's messages go.
#[derive(Clone)]
pub(super) struct Route {
    queue: mpsc::Sender<Queued>,
    room: Arc<Semaphore>,
    /// Whether the queue is being read. If not, messages that do not fit are dropped.
    read: Arc<AtomicBool>,
    /// Receives messages without waiting while the queue is not being read.
    listener: Option<Listener>,
}

/// Receives the updates of an idle session.
pub(crate) type Listener = Arc<dyn Fn(&Value) + Send + Sync>;

/// A session's messages, in order.
pub(super) struct Queue {
    messages: mpsc::Receiver<Queued>,
    read: Arc<AtomicBool>,
    listener: Option<Listener>,
    /// Messages that arrived after the last reader left, with the space they took; bounded like the
    /// queue itself.
    late: VecDeque<(Incoming, usize)>,
    late_units: usize,
}

/// A message, and the space it takes until it is read.
type Queued = (Incoming, Option<OwnedSemaphorePermit>);

impl Queue {
    /// A queue that is not being read yet.
    pub(super) fn new(listener: Option<Listener>) -> (Route, Self) {
        let (queue, messages) = mpsc::channel(QUEUE_MAX);
        let room = Arc::new(Semaphore::new(QUEUE_BYTES_MAX / BYTES_UNIT));
        let read = Arc::new(AtomicBool::new(false));
        let route = Route { queue, room, read: Arc::clone(&read), listener: listener.clone() };
        (route, Self { messages, read, listener, late: VecDeque::new(), late_units: 0 })
    }

    /// The next message; `None` after the connection has ended.
    pub(super) async fn next(&mut self) -> Option<Incoming> {
        match self.next_late() {
            Some(late) => Some(late),
            None => self.messages.recv().await.map(|(incoming, _)| incoming),
        }
    }

    /// The next message, if there is one already.
    pub(super) fn next_now(&mut self) -> Option<Incoming> {
        self.next_late().or_else(|| self.messages.try_recv().ok().map(|(incoming, _)| incoming))
    }

    fn next_late(&mut self) -> Option<Incoming> {
        let (incoming, units) = self.late.pop_front()?;
        self.late_units -= units;
        Some(incoming)
    }

    /// Starts reading: from now on a full queue makes the agent wait.
    pub(super) fn begin(&self) {
        self.read.store(true, Ordering::Relaxed);
    }

    /// Stops reading: from now on messages that do not fit are dropped. Messages that were already
    /// waiting for room are taken first, or the agent would block. They are kept for the next
    /// reader; requests among them are answered with an error.
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

    /// Stops reading, and drops what has arrived so far.
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

    /// Why the connection has ended, if it has.
    pub(super) fn ended(&self) -> Option<AcpError> {
        self.shared.state().ended.clone()
    }

    /// Cuts the connection: a process is killed with its group, and waiting callers get an error.
    pub(super) fn cut(&self) {
        lock(&self.tasks).clear();
        let why = AcpError::Ended { status: Some("it was given up".into()), last_words: "".into() };
        self.shared.end(why, &self.peer);
    }

    /// Sends a request and waits for the answer.
    pub(super) async fn request(
        &self,
        method: &'static str,
        params: Value,
    ) -> Result<Value, AcpError> {
        let asked = self.peer.request(method, &params).await;
        let answer = asked.map_err(|unasked| self.unasked(unasked))?;
        answer.await.map_err(|error| self.failed(method, error))
    }

    /// Sends a request that opens a session; the session's messages go to this queue from the first one.
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

    /// Forwards a request that we do not understand.
    pub(super) async fn pass_on(
        &self,
        method: &str,
        params: &Value,
        cancelled: &CancellationToken,
    ) -> Result<Value, RpcError> {
        self.peer.ask_until(method, params, cancelled).await
    }

    /// Sends a prompt; the answer arrives in the session's queue.
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

    /// Routes a session's messages to this queue.
    pub(super) fn route(&self, session: &str, route: Route) {
        self.shared.state().route(session, route);
    }

    /// Drops a session's messages from now on.
    pub(super) fn forget(&self, session: &str) {
        self.shared.state().forget(session);
    }

    /// Sends a notification without waiting, or drops it.
    pub(super) fn notify_now(&self, method: &str, params: &Value) {
        self.peer.notify_now(method, params);
    }

    /// Sends a notification once there is room for it.
    pub(super) async fn notify(&self, method: &str, params: &Value) {
        // If the agent is gone, the queues report it.
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
                    tracing::debug!(line = shown, "an agent printed a line that is not a message");
                    if state.garbage > GARBAGE_LINES_MAX {
                        let what = format!("it printed invalid messages, such as {shown:?}");
                        break AcpError::Protocol { what: what.into(), last_words: "".into() };
                    }
                }
            }
        };
        self.end(ended, &peer);
    }

    /// Wakes everything that waits; queues end.
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
                // The answer that opens the session may be on its way. A request that is dropped is
                // answered with an error.
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
                // The queue is new and holds as many.
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

    /// Whether the queue still has a reader.
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

/// The space that a message takes. No message takes all of it.
fn units(bytes: usize) -> u32 {
    u32::try_from(bytes.min(QUEUE_BYTES_MAX) / BYTES_UNIT).unwrap_or(u32::MAX)
}

/// Copies the notification's members into the update. The update's own members win.
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
