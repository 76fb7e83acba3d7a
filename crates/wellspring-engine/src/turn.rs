//! One conversation turn: a model call that can be observed and tested by itself.
//!
//! A turn takes a configuration and yields the model's output. It checks that the model keeps its
//! contract and its time limits. It never executes a tool; the loop around it does.

mod time_limits;

use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::Arc;

use futures::stream::{self, Stream, StreamExt as _};
use serde_json::Value;
use tokio::time::Instant;
use uuid::Uuid;
use wellspring_core::{
    AgentNo, Annotation, AttemptStream, CallResult, CancellationToken, Checker, Event, FailureKind,
    LocalPart, Message, MessagePart, Model, ModelError, ModelSettings, Outline, PartId, PartShape,
    Reporter, Role, RunId, Stop, ToolError, ToolOutcome, ToolResult, ToolSpec, TurnRequest, Usage,
    WirePartId,
};

use self::time_limits::{Patience, Watch};
use crate::calls::arguments::parse_arguments;
use crate::limits::{ARGUMENT_BYTES_MAX, PARTS_PER_TURN_MAX, Timeouts};

/// The configuration of a turn.
#[derive(Clone)]
pub struct TurnConfig {
    /// The model.
    pub model: Arc<dyn Model>,
    /// Another model of the same provider.
    pub model_name: Option<Box<str>>,
    /// The agent's instructions.
    pub instructions: Arc<str>,
    /// The conversation so far.
    pub messages: Arc<[Message]>,
    /// The tools that the model may call.
    pub tools: Arc<[ToolSpec]>,
    /// Sampling, limits and provider options.
    pub settings: ModelSettings,
    /// Whether to stream the answer.
    pub streaming: bool,
    /// Time limits.
    pub timeouts: Timeouts,
    /// Ends the turn with [`TurnEvent::Error`] when cancelled.
    pub signal: CancellationToken,
}

impl TurnConfig {
    /// A turn with default settings.
    #[must_use]
    pub fn new(model: Arc<dyn Model>, messages: impl Into<Arc<[Message]>>) -> Self {
        Self {
            model,
            model_name: None,
            instructions: "".into(),
            messages: messages.into(),
            tools: Arc::from([]),
            settings: ModelSettings::default(),
            streaming: true,
            timeouts: Timeouts::default(),
            signal: CancellationToken::new(),
        }
    }
}

impl std::fmt::Debug for TurnConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TurnConfig").field("model", &self.model.name()).finish_non_exhaustive()
    }
}

/// The state of a turn.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum TurnState {
    /// Not started.
    #[default]
    Pending,
    /// The model is answering.
    Streaming,
    /// The model asked for tools, and the turn is yielding its calls.
    ToolExecution,
    /// Everything was yielded.
    Complete,
    /// It failed.
    Error,
}

/// An event of a turn.
#[derive(Debug)]
pub enum TurnEvent {
    /// More of the answer; only when streaming.
    TextDelta {
        /// The piece.
        text: String,
    },
    /// The whole text of this turn.
    TextDone {
        /// The text.
        text: String,
    },
    /// The model calls a tool.
    ToolCall(TurnCall),
    /// The model stopped.
    Finished {
        /// The reason.
        stop: Stop,
        /// The usage.
        usage: Option<Usage>,
    },
    /// The turn failed; nothing follows.
    Error(ModelError),
}

/// A call that a turn asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct TurnCall {
    /// The id of the call: the provider's, or else one that is unique to the turn.
    pub tool_call_id: Box<str>,
    /// The part of the turn that is the call.
    pub part: LocalPart,
    /// The tool.
    pub name: Box<str>,
    /// The arguments; anything but a JSON object is kept as a string.
    pub arguments: Value,
}

/// A single conversation turn: what a loop of your own is made of.
///
/// ```
/// use std::sync::Arc;
/// use serde_json::json;
/// use wellspring_core::{Message, ToolResult};
/// use wellspring_engine::{Turn, TurnConfig, TurnEvent, TurnState};
/// use wellspring_models::{Say, Scripted};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let model = Arc::new(Scripted::new([
///     Say::new().call("clock", json!({})),
///     Say::new().text("It is noon."),
/// ]));
/// let mut messages = vec![Message::user("What time is it?")];
/// let answer = loop {
///     let mut turn = Turn::new(TurnConfig::new(model.clone(), messages.clone()));
///     let mut events = turn.run();
///     while let Some(event) = events.next().await {
///         match event {
///             TurnEvent::TextDelta { text } => print!("{text}"),
///             TurnEvent::Error(error) => return Err(error),
///             TurnEvent::ToolCall(_) => assert_eq!(events.state(), TurnState::ToolExecution),
///             TurnEvent::TextDone { .. } | TurnEvent::Finished { .. } => {}
///         }
///     }
///     if turn.tool_calls().is_empty() {
///         break turn.text().to_owned();
///     }
///     // What the model said goes back whole, and then the result of each call.
///     let results = turn.tool_calls().iter();
///     let results = results.map(|call| (call.tool_call_id.clone(), Ok(ToolResult::new("12:00"))));
///     let results = turn.results(results);
///     messages.extend([turn.message(), results]);
/// };
/// assert_eq!(answer, "It is noon.");
/// # Ok(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Turn {
    config: TurnConfig,
    state: TurnState,
    text: String,
    calls: Vec<TurnCall>,
    /// Checks the model's output against the grammar, and holds the parts and calls so far.
    checker: Checker,
    attempt: Attempt,
    stop: Option<(Stop, Option<Usage>)>,
    response_id: Option<Box<str>>,
    /// The model's complete output, if the turn is [run](Turn::run).
    said: Option<Said>,
    deadline: Option<Instant>,
    content_at: Option<Instant>,
    watch: Option<Watch>,
}

/// The content that is sent back to the model.
#[derive(Debug)]
struct Said {
    /// Distinguishes the parts of different turns.
    id: RunId,
    parts: Vec<MessagePart>,
}

enum Attempt {
    Unasked,
    Talking(AttemptStream),
    Over,
}

impl std::fmt::Debug for Attempt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Unasked => "Unasked",
            Self::Talking(_) => "Talking",
            Self::Over => "Over",
        })
    }
}

impl Turn {
    /// A turn that has not started.
    #[must_use]
    pub fn new(config: TurnConfig) -> Self {
        Self {
            config,
            state: TurnState::Pending,
            text: String::new(),
            calls: Vec::new(),
            checker: Checker::in_turn(),
            attempt: Attempt::Unasked,
            stop: None,
            response_id: None,
            said: None,
            deadline: None,
            content_at: None,
            watch: None,
        }
    }

    /// The state.
    #[must_use]
    pub fn state(&self) -> TurnState {
        self.state
    }

    /// The text so far.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The complete calls, in the order in which they were made.
    #[must_use]
    pub fn tool_calls(&self) -> &[TurnCall] {
        &self.calls
    }

    /// Why the model stopped; `None` while it is answering.
    #[must_use]
    pub fn stop(&self) -> Option<&Stop> {
        self.stop.as_ref().map(|(stop, _)| stop)
    }

    /// Why the model stopped, and its usage; the end of the turn by default.
    pub(crate) fn outcome(&self) -> (Stop, Option<Usage>) {
        self.stop.clone().unwrap_or((Stop::EndTurn, None))
    }

    /// The provider's id of the answer, if it gave one.
    pub(crate) fn response_id(&self) -> Option<&str> {
        self.response_id.as_deref()
    }

    /// The model that was asked.
    pub(crate) fn model(&self) -> &dyn Model {
        &*self.config.model
    }

    /// Executes the turn, yielding events as they occur: deltas when streaming, then the whole
    /// text, the calls, and why it stopped. The turn can be read in the meantime.
    pub fn run(&mut self) -> TurnRun<'_> {
        let id = RunId::new(Uuid::now_v7());
        self.said.get_or_insert_with(|| Said { id, parts: Vec::new() });
        TurnRun { turn: self, ready: VecDeque::new(), over: false }
    }

    /// The model's message of a turn that was [run](Self::run), with everything that must be sent
    /// back to it: text, thoughts, calls, and the provider's ids and signatures.
    #[must_use]
    pub fn message(&self) -> Message {
        let name = self.config.model_name.clone();
        let model = name.unwrap_or_else(|| self.config.model.name().into());
        let parts = self.said.as_ref().map_or(Vec::new(), |said| said.parts.clone());
        Message::Assistant { model, parts }
    }

    /// The results of the turn's calls as the message that follows [`message`](Self::message):
    /// one for each call, in call order. Each result names its call's `tool_call_id`. A call
    /// without a result is reported to the model as interrupted.
    pub fn results(
        &self,
        results: impl IntoIterator<Item = (Box<str>, Result<ToolResult, ToolError>)>,
    ) -> Message {
        let mut given: Vec<_> = results.into_iter().collect();
        let results = self.calls.iter().map(|call| {
            let at = given.iter().position(|(id, _)| *id == call.tool_call_id);
            let (outcome, result) = match at.map(|at| given.swap_remove(at).1) {
                Some(Ok(result)) => (ToolOutcome::Ok, result),
                Some(Err(error)) => (ToolOutcome::Error, ToolResult::new(error.to_string())),
                None => (ToolOutcome::Interrupted, ToolResult::new("the call was not executed")),
            };
            let part =
                self.said.as_ref().and_then(|said| said.parts.get(call.part.id().0 as usize));
            CallResult {
                call: self.wire_id(call.part),
                provider_id: part.and_then(MessagePart::provider_id).map(Into::into),
                name: call.name.clone(),
                outcome,
                result,
            }
        });
        Message::Results { results: results.collect() }
    }

    fn wire_id(&self, part: LocalPart) -> WirePartId {
        let run = self.said.as_ref().map_or(RunId::new(Uuid::nil()), |said| said.id);
        WirePartId { run, part: part.id() }
    }

    /// The next piece of the model's output, as events whose parts count from 0 within this
    /// turn; `None` once it has stopped properly.
    ///
    /// # Cancel safety
    ///
    /// Once the model has begun to answer, dropping the future loses nothing; before that, the next
    /// call asks the model again. Dropping the turn ends the model call.
    pub async fn next(&mut self) -> Option<Result<Vec<Event>, ModelError>> {
        match self.advance().await {
            Ok(Some(events)) => Some(Ok(events)),
            Ok(None) => None,
            Err(error) => {
                self.state = TurnState::Error;
                self.attempt = Attempt::Over;
                Some(Err(error))
            }
        }
    }

    async fn advance(&mut self) -> Result<Option<Vec<Event>>, ModelError> {
        let timeouts = self.config.timeouts.clone();
        let deadline = *self.deadline.get_or_insert_with(|| Instant::now() + timeouts.turn);
        if matches!(self.attempt, Attempt::Unasked) {
            self.state = TurnState::Streaming;
            let patience = Patience::from(Instant::now(), timeouts.connect, deadline);
            let asking = self.config.model.attempt(self.request());
            let watch = self.watch.get_or_insert_with(|| Watch::new(&self.config.signal));
            let asked = patience.limit(watch, asking).await;
            self.attempt = Attempt::Talking(self.in_time(asked, "it did not answer")??);
        }
        let content_at = *self.content_at.get_or_insert_with(Instant::now);
        let silence = if !self.config.streaming {
            timeouts.whole_answer
        } else if self.outline().next_part == PartId(0) {
            timeouts.first_content
        } else {
            timeouts.between_chunks
        };
        let patience = Patience::from(content_at, silence, deadline);
        loop {
            let Attempt::Talking(attempt) = &mut self.attempt else { return Ok(None) };
            let watch = self.watch.get_or_insert_with(|| Watch::new(&self.config.signal));
            let next = patience.limit(watch, attempt.next()).await;
            let Some(mut batch) = self.in_time(next, "it fell silent")?.transpose()? else {
                return self.end().map(|()| None);
            };
            // A keep-alive carries no content, and does not extend the time limit.
            if batch.is_empty() {
                continue;
            }
            self.content_at = Some(Instant::now());
            if let Some(stop) = batch.take_stop() {
                self.stop = Some(stop);
            }
            self.response_id = batch.take_response_id().or(self.response_id.take());
            let events = batch.into_events().map(|(_, event)| self.accept(event));
            return events.collect::<Result<_, _>>().map(Some);
        }
    }

    fn request(&self) -> TurnRequest {
        TurnRequest {
            model: self.config.model_name.clone(),
            instructions: Arc::clone(&self.config.instructions),
            messages: Arc::clone(&self.config.messages),
            tools: Arc::clone(&self.config.tools),
            streaming: self.config.streaming,
            settings: self.config.settings.clone(),
        }
    }

    /// Ends the attempt: only an explicit stop with every part closed is a proper end.
    fn end(&mut self) -> Result<(), ModelError> {
        if self.stop.is_none() {
            return Err(self.broken("the stream ended before the model had stopped"));
        }
        if let Some((open, _)) = self.outline().open_parts(AgentNo::ROOT).next() {
            return Err(self.broken(&format!("the model stopped while part {open} was open")));
        }
        self.attempt = Attempt::Over;
        self.calls.sort_by_key(|call| call.part);
        self.state =
            if self.calls.is_empty() { TurnState::Complete } else { TurnState::ToolExecution };
        Ok(())
    }

    /// Checks the model's contract, and collects text and calls.
    fn accept(&mut self, event: Event) -> Result<Event, ModelError> {
        self.check(&event)?;
        let admitted = self.checker.admit(AgentNo::ROOT, event);
        let event = admitted.map_err(|violation| self.broken(&violation.what))?;
        self.collect(&event);
        self.keep(&event);
        Ok(event)
    }

    fn outline(&self) -> &Outline {
        self.checker.outline()
    }

    /// Keeps the content that is sent back to the model.
    fn keep(&mut self, event: &Event) {
        if let Event::PartAnnotated { part, annotation } = event
            && let Annotation::ProviderId(id) = &**annotation
            && let Some(call) = self.calls.iter_mut().find(|call| call.part.id() == *part)
        {
            call.tool_call_id.clone_from(id);
        }
        let Some(Said { id, parts }) = &mut self.said else { return };
        if let Event::PartStarted { part, kind } = event {
            let id = WirePartId { run: *id, part: *part };
            let (kind, text, annotations) = (kind.clone(), String::new(), Vec::new());
            parts.push(MessagePart { id, kind, text, annotations });
        } else if let Event::PartDelta { part, chunk } = event
            && let Some(part) = parts.get_mut(part.0 as usize)
        {
            part.text.push_str(chunk);
        } else if let Event::PartAnnotated { part, annotation } = event
            && let Some(part) = parts.get_mut(part.0 as usize)
        {
            part.annotations.push((**annotation).clone());
        }
    }

    /// Checks the rules that the grammar leaves to the source: which events a model may yield, and
    /// how many.
    fn check(&self, event: &Event) -> Result<(), ModelError> {
        let is_ours =
            |call| self.outline().call(call).is_some_and(|call| call.tool.runs_on.is_ours());
        if let Event::PartStarted { part, .. } = event {
            let opened = self.outline().next_part;
            if *part != opened || opened.0 as usize >= PARTS_PER_TURN_MAX {
                return Err(self.broken(&format!("it opened part {part} after {opened} parts")));
            }
        } else if let Event::PartDelta { part, chunk } = event {
            let call = self.outline().call(*part);
            if call.is_some_and(|call| call.arguments.len() + chunk.len() > ARGUMENT_BYTES_MAX) {
                let what = format!("a call has more than {ARGUMENT_BYTES_MAX} bytes of arguments");
                return Err(self.broken(&what));
            }
        } else if !event.may_be_reported_by(Reporter::Model)
            || matches!(
                event,
                Event::ToolStarted { call, .. }
                    | Event::ToolUpdated { call, .. }
                    | Event::ToolFinished { call, .. } if is_ours(*call)
            )
        {
            return Err(
                self.broken(&format!("it sent an event that a model must not send: {event}"))
            );
        }
        Ok(())
    }

    /// Collects the answer's text, and the calls that are complete.
    fn collect(&mut self, event: &Event) {
        if let Event::PartDelta { part, chunk } = event
            && self.is_answer(*part)
        {
            self.text.push_str(chunk);
        } else if let Event::PartFinished { part } = event
            && let Some(call) = self.outline().call(*part)
            && call.tool.runs_on.is_ours()
        {
            let (name, arguments) = (call.tool.name.clone(), parse_arguments(&call.arguments));
            let said = self.said.as_ref().and_then(|said| said.parts.get(part.0 as usize));
            let part = LocalPart::new(part.0);
            let tool_call_id = match said.and_then(MessagePart::provider_id) {
                Some(id) => id.into(),
                None => self.wire_id(part).to_string().into(),
            };
            self.calls.push(TurnCall { tool_call_id, part, name, arguments });
        }
    }

    fn is_answer(&self, part: PartId) -> bool {
        let shape = self.outline().part(part).map(|part| part.shape);
        shape == Some(PartShape::Text(Role::Assistant))
    }

    fn answer_delta(&self, event: &Event) -> Option<String> {
        let Event::PartDelta { part, chunk } = event else { return None };
        self.is_answer(*part).then(|| chunk.to_string())
    }

    fn closing_events(&mut self) -> Vec<TurnEvent> {
        let mut events = Vec::new();
        // Streaming consumers wait for the end of the text, even if it is empty.
        if self.config.streaming || !self.text.is_empty() {
            events.push(TurnEvent::TextDone { text: self.text.clone() });
        }
        events.extend(self.calls.iter().cloned().map(TurnEvent::ToolCall));
        if let Some((stop, usage)) = self.stop.clone() {
            events.push(TurnEvent::Finished { stop, usage });
        }
        events
    }

    fn broken(&self, what: &str) -> ModelError {
        ModelError::new(self.config.model.name(), FailureKind::Protocol, what)
    }
}

/// A turn that is running. It reads like the [`Turn`] itself: `state()`, `text()` and so on.
#[derive(Debug)]
pub struct TurnRun<'a> {
    turn: &'a mut Turn,
    ready: VecDeque<TurnEvent>,
    over: bool,
}

impl Deref for TurnRun<'_> {
    type Target = Turn;

    fn deref(&self) -> &Turn {
        self.turn
    }
}

impl<'a> TurnRun<'a> {
    /// The next event; `None` after the last.
    ///
    /// # Cancel safety
    ///
    /// As [`Turn::next`].
    pub async fn next(&mut self) -> Option<TurnEvent> {
        while self.ready.is_empty() && !self.over {
            match self.turn.next().await {
                Some(Ok(events)) if self.turn.config.streaming => {
                    let Self { turn, ready, .. } = self;
                    let deltas = events.iter().filter_map(|event| turn.answer_delta(event));
                    ready.extend(deltas.map(|text| TurnEvent::TextDelta { text }));
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => {
                    self.over = true;
                    self.ready.push_back(TurnEvent::Error(error));
                }
                None => {
                    self.over = true;
                    self.ready = self.turn.closing_events().into();
                }
            }
        }
        let event = self.ready.pop_front()?;
        // The model may be ahead of the yielded events, so the state is that of the event.
        self.turn.state = match &event {
            TurnEvent::TextDelta { .. } | TurnEvent::TextDone { .. } => TurnState::Streaming,
            TurnEvent::ToolCall(_) => TurnState::ToolExecution,
            TurnEvent::Finished { .. } => TurnState::Complete,
            TurnEvent::Error(_) => TurnState::Error,
        };
        Some(event)
    }

    /// The events as a stream.
    pub fn into_stream(self) -> impl Stream<Item = TurnEvent> + 'a {
        stream::unfold(self, |mut run| async { Some((run.next().await?, run)) })
    }
}
