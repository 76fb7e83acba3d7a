//! An incoming call: how it runs, reports progress and is cancelled.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use rmcp::RoleServer;
use rmcp::model::{NumberOrString, ProgressNotificationParam, ProgressToken};
use rmcp::service::Peer;
use serde_json::Value;
use wellspring_core::{
    Answer, Ask, CancellationToken, Content, ContentChange, Context, ContextFacts, Event, Host,
    Tool, ToolContent, ToolError, ToolResult, ToolUpdate,
};

use crate::calls::{PROGRESS_BYTES_MAX, cut};

/// How often a client gets a message about a silent call. The response is then a stream, so
/// clients do not time out while a person answers a question.
pub const HEARTBEAT: Duration = Duration::from_secs(15);

/// A call of one of our tools by an external agent.
#[derive(Debug)]
pub struct LoopbackCall {
    pub(super) tool: Called,
    pub(super) arguments: Value,
    pub(super) meta: Value,
    pub(super) signal: CancellationToken,
    pub(super) reporter: Reporter,
}

/// A tool with a `Debug` implementation.
#[derive(Clone)]
pub(super) struct Called(pub(super) Arc<dyn Tool>);

impl fmt::Debug for Called {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.spec().name)
    }
}

impl LoopbackCall {
    /// The tool.
    #[must_use]
    pub fn tool(&self) -> &Arc<dyn Tool> {
        &self.tool.0
    }

    /// The arguments as the agent sent them.
    #[must_use]
    pub fn arguments(&self) -> &Value {
        &self.arguments
    }

    /// The protocol's `_meta`, in which agents send the id of their own call.
    #[must_use]
    pub fn meta(&self) -> &Value {
        &self.meta
    }

    /// Cancelled when the client no longer waits.
    #[must_use]
    pub fn signal(&self) -> &CancellationToken {
        &self.signal
    }

    /// Reports progress to the client. It may outlive the call.
    #[must_use]
    pub fn reporter(&self) -> Reporter {
        self.reporter.clone()
    }

    /// Runs the call in a context. Its progress is also sent to the client, and the context's
    /// cancellation ends it too.
    pub async fn run(self, context: Context) -> Result<ToolResult, ToolError> {
        let signal = context.signal().child_token();
        let facts = ContextFacts { signal: signal.clone(), ..context.facts().clone() };
        let host = Overheard { context, reporter: self.reporter };
        let running = self.tool.0.call(self.arguments, Context::new(facts, Arc::new(host)));
        let mut running = std::pin::pin!(running);
        tokio::select! {
            done = &mut running => return done,
            () = self.signal.cancelled() => signal.cancel(),
        }
        running.await
    }
}

/// Reports a call's progress to the client. Cheap to clone.
#[derive(Clone)]
pub struct Reporter(Arc<Reporting>);

struct Reporting {
    peer: Peer<RoleServer>,
    /// The client's progress token; `None` if it did not ask for progress.
    token: Option<ProgressToken>,
    /// The last progress value; the protocol requires it to increase. The lock is held while
    /// sending, so that reports are sent in order.
    progress: tokio::sync::Mutex<f64>,
}

impl Reporter {
    pub(super) fn new(peer: Peer<RoleServer>, token: Option<ProgressToken>) -> Self {
        Self(Arc::new(Reporting { peer, token, progress: Default::default() }))
    }

    /// Sends a progress report. Does nothing if the client did not ask for progress.
    pub async fn report(&self, update: &ToolUpdate) {
        let data = update.data.as_ref().unwrap_or(&Value::Null);
        self.send(data["progress"].as_f64(), data["total"].as_f64(), message(update)).await;
    }

    /// Sends a report without news, to keep the call alive.
    pub(super) async fn heartbeat(&self) {
        self.send(None, None, None).await;
    }

    async fn send(&self, progress: Option<f64>, total: Option<f64>, message: Option<String>) {
        let Some(token) = &self.0.token else { return };
        let mut last = self.0.progress.lock().await;
        // If the tool reports no number, we count; a total that does not match would be
        // misleading.
        let own = progress.filter(|progress| *progress > *last);
        *last = own.unwrap_or(*last + 1.0);
        let mut param = ProgressNotificationParam::new(token.clone(), *last);
        param.total = own.and(total);
        param.message = message;
        // If the client has disconnected, the report is lost. Cancellation is handled in
        // another place.
        let _ = self.0.peer.notify_progress(param).await;
    }
}

impl fmt::Debug for Reporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reporter").field("token", &self.0.token).finish_non_exhaustive()
    }
}

/// The text of an update for people.
fn message(update: &ToolUpdate) -> Option<String> {
    let data = update.data.as_ref();
    let said = data.and_then(|data| data["message"].as_str().or(data.as_str()));
    let shown = || {
        let (ContentChange::Append(content) | ContentChange::Replace(content)) =
            update.content.as_ref()?;
        content.iter().find_map(|content| match content {
            ToolContent::Content(content) => content.as_text(),
            ToolContent::Diff { path, .. } => Some(path),
            ToolContent::Terminal { .. } => None,
        })
    };
    let text = said.or(update.title.as_deref()).or_else(shown).map(str::to_owned);
    let text = text.or_else(|| data.map(Value::to_string))?;
    Some(cut(text, PROGRESS_BYTES_MAX))
}

/// A run whose progress is also sent to a client.
struct Overheard {
    context: Context,
    reporter: Reporter,
}

impl Host for Overheard {
    fn update(&self, update: ToolUpdate) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.reporter.report(&update).await;
            self.context.update(update).await;
        })
    }

    fn emit(&self, event: Event) -> BoxFuture<'_, Result<(), ToolError>> {
        Box::pin(self.context.emit(event))
    }

    fn ask(&self, ask: Ask) -> BoxFuture<'_, Answer> {
        Box::pin(self.context.ask(ask))
    }

    fn call_agent(
        &self,
        agent: Box<str>,
        input: Vec<Content>,
    ) -> BoxFuture<'_, Result<String, ToolError>> {
        Box::pin(self.context.call_agent(agent, input))
    }
}

/// The running calls, by the request's id.
///
/// Without sessions, each request is independent, so a cancellation, which is a request of its
/// own, finds its call here. If two clients use the same id, it is unknown which call is meant,
/// and none is cancelled.
#[derive(Clone, Debug, Default)]
pub(super) struct Running(Arc<Mutex<HashMap<NumberOrString, Vec<CancellationToken>>>>);

impl Running {
    /// Registers a call. It ends when the ticket is dropped.
    pub(super) fn begin(&self, request: NumberOrString) -> RunningTicket {
        let signal = CancellationToken::new();
        self.lock().entry(request.clone()).or_default().push(signal.clone());
        RunningTicket { running: self.clone(), request, signal }
    }

    pub(super) fn cancel(&self, request: &NumberOrString) {
        match self.lock().get(request).map(Vec::as_slice) {
            Some([signal]) => signal.cancel(),
            Some(_) => tracing::warn!("a cancellation that may mean several calls"),
            None => tracing::debug!("ignored a cancellation of a finished call"),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<NumberOrString, Vec<CancellationToken>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) struct RunningTicket {
    running: Running,
    request: NumberOrString,
    pub(super) signal: CancellationToken,
}

impl Drop for RunningTicket {
    fn drop(&mut self) {
        let mut running = self.running.lock();
        // Cancelled first, because tokens can only be compared by their state.
        self.signal.cancel();
        if let Some(signals) = running.get_mut(&self.request) {
            signals.retain(|signal| !signal.is_cancelled());
            if signals.is_empty() {
                running.remove(&self.request);
            }
        }
    }
}
