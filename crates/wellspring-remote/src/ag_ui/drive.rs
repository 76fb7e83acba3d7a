//! A run: sends requests, reads events and answers, until the agent has finished.
//!
//! Everything happens while the run's stream is polled, so that dropping the stream closes the
//! connection and leaves nothing behind.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use futures::stream::{BoxStream, StreamExt as _};
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use wellspring_core::{
    AgentNo, Answer, Batch, Context, Event as Fact, FailureKind, Form, LocalPart, ModelError,
    RemoteRequest, Stop, Tool, ToolOutcome, ToolResult,
};
use wellspring_wire::Framer;
use wellspring_wire::ag_ui::types::{
    self, Event, Interrupt, Message, PROTOCOL_VERSION, ResumeEntry, ResumeStatus, RunAgentInput,
    TextMessage,
};
use wellspring_wire::ag_ui::{
    End, PendingCall, Reader, assistant, call, conversation, question, resume_entry, tool_result,
    user_message,
};
use wellspring_wire::provider::Failure;

use super::Shared;
use crate::http::error_body;

/// Maximum size of a run's stream. The longest answers stay far below it. The limit keeps a server
/// that never ends its stream from filling the log.
const STREAM_BYTES_MAX: usize = 256 * 1024 * 1024;

/// How often a lost connection is restored before the agent sends something new.
const RECONNECTS_MAX: u32 = 5;

/// How long a cancel request may take. The run ends here in any case.
const CANCEL_TIME: Duration = Duration::from_secs(1);

/// The minimum length of a header value that is redacted in errors. Shorter values are words such as
/// `true`.
const SECRET_BYTES_MIN: usize = 8;

/// The data for finding the remote run again.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Handle {
    thread_id: Box<str>,
    run_id: Box<str>,
    /// What the agent waits for, if anything. Its own run has ended then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    waits: Option<Waits>,
}

/// What the agent waits for.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
struct Waits {
    #[serde(default)]
    interrupts: Vec<Interrupt>,
    #[serde(default)]
    calls: Vec<WaitingCall>,
}

/// A call that the agent leaves for us to run.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct WaitingCall {
    id: Box<str>,
    name: Box<str>,
    arguments: String,
    /// Whether it is answered as an interrupt.
    #[serde(default)]
    interrupts: bool,
}

impl WaitingCall {
    fn new(call: PendingCall, interrupts: bool) -> Self {
        let PendingCall { id, name, arguments } = call;
        Self { id, name, arguments, interrupts }
    }
}

/// A run in progress.
pub(super) struct Drive {
    shared: Arc<Shared>,
    request: RemoteRequest,
    context: Context,
    reader: Reader,
    batch: Batch,
    thread_id: Box<str>,
    run_id: Box<str>,
    /// The conversation, for agents that do not store it.
    messages: Vec<Message>,
    /// Answers for the next request.
    resume: Vec<ResumeEntry>,
    reconnects: u32,
    phase: Phase,
}

enum Phase {
    Ask,
    Listen(Box<Listening>),
    Answer(Waits),
    /// Events that were read before the error are returned first.
    Failed(ModelError),
    Done,
}

struct Listening {
    chunks: BoxStream<'static, Result<Bytes, reqwest::Error>>,
    framer: Framer,
    bytes: usize,
}

impl crate::drive::Drive for Drive {
    async fn next(&mut self) -> Option<Result<Batch, ModelError>> {
        loop {
            if !self.batch.is_empty() {
                return Some(Ok(self.batch.take()));
            }
            let phase = std::mem::replace(&mut self.phase, Phase::Done);
            let next = match phase {
                Phase::Done => return None,
                Phase::Failed(error) => return Some(Err(error)),
                Phase::Ask => self.ask().await,
                Phase::Listen(listening) => self.listen(listening).await,
                Phase::Answer(waits) => self.answer(waits).await,
            };
            self.phase = next.unwrap_or_else(|error| {
                self.reader.close(&mut self.batch);
                Phase::Failed(error)
            });
        }
    }
}

impl Drive {
    pub(super) fn new(shared: Arc<Shared>, request: RemoteRequest, context: Context) -> Self {
        let tools = request.tools.iter().map(|tool| tool.spec().name.clone());
        let mut reader = Reader::new(tools);
        let mut batch = Batch::default();
        let earlier = request.attached.as_ref().or(request.session.as_ref());
        let earlier = earlier.and_then(|it| serde_json::from_value::<Handle>(it.clone()).ok());
        let thread_id = match &earlier {
            Some(handle) => handle.thread_id.clone(),
            None => request.thread.to_string().into(),
        };
        let mut messages = Vec::new();
        if !request.instructions.is_empty() {
            let content = request.instructions.to_string();
            let id = "instructions".into();
            messages.push(Message::System(TextMessage { id, content, ..TextMessage::default() }));
        }
        messages.extend(conversation(&request.history));
        let earlier_run = earlier.as_ref().map_or("", |handle| &*handle.run_id);
        let (mut run_id, mut phase) = (following(&request, earlier_run), Phase::Ask);
        match (&request.attached, &earlier) {
            (None, _) => {
                messages.push(user_message(&format!("{run_id}-user"), &request.request.input));
            }
            (Some(_), None) => phase = Phase::Failed(shared.lost("its handle cannot be read")),
            (Some(_), Some(handle)) => {
                let id = format!("{}-user", first_run(&request));
                messages.push(user_message(&id, &request.request.input));
                if let Some(so_far) = &request.so_far {
                    let said = so_far.messages(AgentNo::ROOT);
                    messages.extend(conversation(said.get(1..).unwrap_or_default()));
                    batch = Batch::after(&so_far.outline);
                    reader = reader.resume(so_far, &mut batch);
                }
                match &handle.waits {
                    Some(waits) => phase = Phase::Answer(waits.clone()),
                    None if shared.config.resumable => run_id.clone_from(&handle.run_id),
                    None => {
                        phase = Phase::Failed(shared.lost(
                            "the process that listened to the agent ended, and its server cannot \
                             be attached to; ask again",
                        ));
                    }
                }
            }
        }
        let (resume, reconnects) = (Vec::new(), 0);
        Self {
            shared,
            request,
            context,
            reader,
            batch,
            thread_id,
            run_id,
            messages,
            resume,
            reconnects,
            phase,
        }
    }

    async fn ask(&mut self) -> Result<Phase, ModelError> {
        let request = self
            .shared
            .client
            .post(self.shared.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "text/event-stream")
            .body(serde_json::to_vec(&self.input()).unwrap_or_default());
        let signal = self.context.signal().clone();
        let silence = self.shared.config.silence;
        let sent = tokio::select! {
            biased;
            () = signal.cancelled() => return Ok(self.cancelled().await),
            sent = tokio::time::timeout(silence, request.send()) => sent,
        };
        let response = match sent {
            Err(_) => return Err(self.shared.silent()),
            Ok(Err(error)) => {
                let what = self.shared.error(FailureKind::Unavailable, "could not be reached");
                return self.reconnect(what.because(error)).await;
            }
            Ok(Ok(response)) => response,
        };
        if !response.status().is_success() {
            let status = response.status().as_u16();
            let failure = Failure::of_status(status, &error_body(response).await);
            return Err(self.shared.error(failure.kind, &failure.message));
        }
        let kind = response.headers().get(CONTENT_TYPE).and_then(|it| it.to_str().ok());
        if !kind.is_some_and(|kind| kind.starts_with("text/event-stream")) {
            let kind = kind.unwrap_or("no content type");
            let what = format!("answered with {kind}, not with text/event-stream");
            return Err(self.shared.error(FailureKind::Protocol, &what));
        }
        let chunks = response.bytes_stream().boxed();
        Ok(Phase::Listen(Box::new(Listening { chunks, framer: Framer::sse(), bytes: 0 })))
    }

    fn input(&self) -> RunAgentInput {
        let RemoteRequest { request, tools, .. } = &self.request;
        let tools = tools.iter().map(|tool| {
            let spec = tool.spec();
            types::Tool {
                name: spec.name.clone(),
                description: spec.description.clone(),
                parameters: Some((*spec.parameters).clone()).filter(|it| !it.is_null()),
                metadata: None,
            }
        });
        let context = request.context.iter().map(|note| types::Context {
            description: note.description.clone(),
            value: note.value.clone(),
        });
        let so_far = self.request.so_far.as_ref().and_then(|so_far| so_far.state.clone());
        RunAgentInput {
            thread_id: self.thread_id.clone(),
            run_id: self.run_id.clone(),
            protocol_version: Some(PROTOCOL_VERSION.into()),
            parent_run_id: None,
            state: so_far.or_else(|| request.state.clone()),
            messages: self.messages.clone(),
            tools: tools.collect(),
            context: context.collect(),
            forwarded_props: request.model.as_ref().map(|model| json!({"model": model})),
            resume: self.resume.clone(),
        }
    }

    async fn listen(&mut self, mut listening: Box<Listening>) -> Result<Phase, ModelError> {
        let signal = self.context.signal().clone();
        let silence = self.shared.config.silence;
        let chunk = tokio::select! {
            biased;
            () = signal.cancelled() => return Ok(self.cancelled().await),
            chunk = tokio::time::timeout(silence, listening.chunks.next()) => chunk,
        };
        let chunk = match chunk {
            Err(_) => return Err(self.shared.silent()),
            Ok(Some(Ok(chunk))) => chunk,
            Ok(broken) => {
                let what = "broke off before its run had ended";
                let mut error = self.shared.error(FailureKind::Protocol, what);
                if let Some(Err(cause)) = broken {
                    error = error.because(cause);
                }
                return self.reconnect(error).await;
            }
        };
        listening.bytes += chunk.len();
        if listening.bytes > STREAM_BYTES_MAX {
            let what = format!("sent more than {STREAM_BYTES_MAX} bytes for one run");
            return Err(self.shared.error(FailureKind::Protocol, &what));
        }
        let shared = Arc::clone(&self.shared);
        let broken = |error: &dyn std::fmt::Display| {
            shared.error(FailureKind::Protocol, &format!("broke the protocol: {error}"))
        };
        let mut rest = &chunk[..];
        loop {
            let frame = listening.framer.next(&mut rest).map_err(|error| broken(&error))?;
            let Some(frame) = frame else { break };
            let event = match serde_json::from_slice::<Event>(frame.data) {
                Ok(event) => event,
                Err(error) => {
                    // Unknown events of newer versions are kept; a known event must be valid.
                    let kept: Value =
                        serde_json::from_slice(frame.data).map_err(|it| broken(&it))?;
                    let name = kept["type"].as_str().unwrap_or_default().to_owned();
                    if !error.to_string().starts_with("unknown variant") {
                        return Err(broken(&error));
                    }
                    self.batch.extended("ag-ui", &name, kept);
                    continue;
                }
            };
            self.hear(&event);
            let end = self.reader.push(event, &mut self.batch).map_err(|error| broken(&error))?;
            if let Some(end) = end {
                return self.ended(end);
            }
        }
        if !self.batch.is_empty() {
            self.reconnects = 0;
        }
        Ok(Phase::Listen(listening))
    }

    fn ended(&mut self, end: End) -> Result<Phase, ModelError> {
        let waits = match end {
            End::Finished { .. } => return Ok(Phase::Done),
            End::Cancelled => {
                self.batch.stop(Stop::Other("cancelled".into()), None);
                return Ok(Phase::Done);
            }
            End::Failed { message, code } => {
                let kind = code.and_then(|code| serde_json::from_value(json!(code)).ok());
                let kind = kind.unwrap_or(FailureKind::Unavailable);
                return Err(self.shared.error(kind, &message));
            }
            End::Pending(calls) => {
                let calls = calls.into_iter().map(|call| WaitingCall::new(call, false));
                Waits { calls: calls.collect(), interrupts: Vec::new() }
            }
            End::Interrupted(interrupts) => {
                let mut waits = Waits::default();
                for interrupt in interrupts {
                    match self.reader.pending_call(&interrupt.id) {
                        Some(call) => waits.calls.push(WaitingCall::new(call, true)),
                        None => waits.interrupts.push(interrupt),
                    }
                }
                waits
            }
        };
        let handle = Handle {
            thread_id: self.thread_id.clone(),
            run_id: self.run_id.clone(),
            waits: Some(waits.clone()),
        };
        // Our own type always serialises.
        let handle = Box::new(serde_json::to_value(handle).unwrap_or_default());
        self.batch.event(Fact::Attached { origin: self.shared.name.clone(), handle });
        self.run_id = following(&self.request, &self.run_id);
        Ok(Phase::Answer(waits))
    }

    /// Gets answers for everything that the agent waits for, then continues it. In the meantime
    /// nothing is open, so the run may pause.
    async fn answer(&mut self, waits: Waits) -> Result<Phase, ModelError> {
        let Waits { interrupts, calls } = waits;
        let (context, reader, tools) = (&self.context, &self.reader, &self.request.tools);
        let asked = interrupts.iter().map(|interrupt| {
            let call = interrupt.tool_call_id.as_deref().and_then(|id| reader.call_part(id));
            ask_about(context, interrupt, call)
        });
        let called = calls.iter().map(|call| make_call(context, tools, call));
        let (answers, results) = futures::future::join(join_all(asked), join_all(called)).await;
        if self.context.signal().is_cancelled() {
            return Ok(self.cancelled().await);
        }
        let answers = interrupts.iter().zip(&answers);
        self.resume = answers.map(|(asked, answer)| resume_entry(asked, answer)).collect();
        for (waiting, (outcome, result)) in calls.into_iter().zip(results) {
            let text = result.output_text().into_owned();
            let WaitingCall { id, name, arguments, interrupts } = waiting;
            if interrupts {
                self.resume.push(ResumeEntry {
                    interrupt_id: id.clone(),
                    status: ResumeStatus::Resolved,
                    payload: Some(result.output.clone()),
                    metadata: None,
                });
            }
            let asked = call(&id, &name, &arguments);
            self.keep(assistant(&format!("{id}-call"), None, Some(asked)));
            self.keep(tool_result(&id, outcome, &text));
            self.reader.finish_call(&id, outcome, result, &mut self.batch);
        }
        Ok(Phase::Ask)
    }

    /// Keeps the agent's text, for agents that need the whole conversation in each request.
    fn hear(&mut self, event: &Event) {
        if let Event::MessagesSnapshot(snapshot) = event {
            self.messages.clone_from(&snapshot.messages);
        } else if let Event::TextMessageContent(said) = event {
            self.heard(&said.message_id, &said.delta);
        } else if let Event::TextMessageChunk(said) = event
            && let (Some(id), Some(delta)) = (&said.message_id, &said.delta)
        {
            self.heard(id, delta);
        }
    }

    fn heard(&mut self, id: &str, delta: &str) {
        let last = self.messages.iter_mut().rev().find(|message| message.id() == id);
        if let Some(Message::Assistant(message)) = last {
            message.content.get_or_insert_default().push_str(delta);
        } else {
            self.keep(assistant(id, Some(delta), None));
        }
    }

    fn keep(&mut self, message: Message) {
        if self.messages.iter().all(|known| known.id() != message.id()) {
            self.messages.push(message);
        }
    }

    /// Attaches to the run again, if the server supports that.
    async fn reconnect(&mut self, error: ModelError) -> Result<Phase, ModelError> {
        if !self.shared.config.resumable || self.reconnects >= RECONNECTS_MAX {
            return Err(error);
        }
        let wait = Duration::from_millis(250 << self.reconnects);
        self.reconnects += 1;
        tracing::warn!(agent = &*self.shared.name, %error, "the connection was lost; attaching again");
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = self.context.signal().cancelled() => return Ok(self.cancelled().await),
        }
        self.reader.reconnect(&mut self.batch);
        Ok(Phase::Ask)
    }

    /// Stops the agent: drops the connection and, if the server supports it, sends a request.
    async fn cancelled(&mut self) -> Phase {
        if self.shared.config.resumable {
            let base = self.shared.url.as_str().trim_end_matches('/');
            let cancel = self.shared.client.post(format!("{base}/runs/{}/cancel", self.run_id));
            if let Err(error) = cancel.timeout(CANCEL_TIME).send().await {
                tracing::warn!(agent = &*self.shared.name, %error, "the agent could not be stopped");
            }
        }
        self.reader.close(&mut self.batch);
        self.batch.stop(Stop::Other("cancelled".into()), None);
        Phase::Done
    }
}

async fn ask_about(context: &Context, interrupt: &Interrupt, call: Option<LocalPart>) -> Answer {
    let ask = question(interrupt);
    match call.filter(|_| ask.form == Form::Approve) {
        Some(call) => context.permit(call, ask).await,
        None => context.ask(ask).await,
    }
}

async fn make_call(
    context: &Context,
    tools: &[Arc<dyn Tool>],
    call: &WaitingCall,
) -> (ToolOutcome, ToolResult) {
    let Some(tool) = tools.iter().find(|tool| tool.spec().name == call.name) else {
        let message = format!("there is no tool {:?}", call.name);
        return (ToolOutcome::Error, ToolResult::new(message));
    };
    let arguments = match &*call.arguments {
        "" => json!({}),
        text => serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned())),
    };
    match tool.call(arguments, context.resumable(call.id.clone())).await {
        Ok(result) => (ToolOutcome::Ok, result),
        Err(error) => (ToolOutcome::Error, ToolResult::new(error.to_string())),
    }
}

impl Shared {
    /// An error for clients: an agent may repeat what it was sent.
    fn error(&self, kind: FailureKind, what: &str) -> ModelError {
        let values = self.config.headers.iter().map(|(_, value)| &**value);
        let secrets = values.map(|value| value.strip_prefix("Bearer ").unwrap_or(value).trim());
        let secrets = secrets.filter(|secret| secret.len() >= SECRET_BYTES_MIN);
        ModelError::new(&*self.name, kind, what).redacted(secrets)
    }

    fn lost(&self, why: &str) -> ModelError {
        self.error(FailureKind::Lost, &format!("cannot go on: {why}"))
    }

    fn silent(&self) -> ModelError {
        let limit = self.config.silence.as_secs_f32();
        self.error(FailureKind::TimedOut, &format!("sent nothing for {limit} s"))
    }
}

/// The id of a run's first request to the agent.
fn first_run(request: &RemoteRequest) -> String {
    format!("{}-1", request.run)
}

/// The id of the request after another one. It is derived from the handle, so that a request
/// that is repeated after a crash has the same id.
fn following(request: &RemoteRequest, run_id: &str) -> Box<str> {
    let number = run_id.strip_prefix(&format!("{}-", request.run));
    let number = number.and_then(|number| number.parse::<u32>().ok()).unwrap_or(0);
    format!("{}-{}", request.run, number.saturating_add(1)).into()
}
