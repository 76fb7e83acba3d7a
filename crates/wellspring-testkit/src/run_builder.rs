//! Runs written by hand.

use std::sync::Arc;

use wellspring_core::{
    AgentNo, Answer, Answered, Content, Event, FailureKind, Form, Millis, Outcome, Outline, PartId,
    PartKind, Question, QuestionId, Record, RunId, RunRequest, RunStarted, Seq, Stop, ThreadId,
    ToolCall, ToolMode, ToolOutcome, ToolResult, ToolUpdate, TurnStarted, Usage, VoidReason,
};

/// The id of every built run.
pub const RUN: RunId = RunId::new(uuid::Uuid::from_u128(0x0192_0000_0000_7000_8000_0000_0000_0001));

/// The thread of every built run.
pub const THREAD: ThreadId =
    ThreadId::new(uuid::Uuid::from_u128(0x0192_0000_0000_7000_8000_0000_0000_0002));

/// When every built run starts.
const EPOCH: Millis = Millis(1_760_000_000_000);

/// The time between two records; see [`RunBuilder::wait`].
const TICK_MS: u64 = 10;

/// Writes a run record by record, and assigns all numbers and ids.
///
/// It allows invalid runs too: tests of the checker need them.
///
/// ```
/// use wellspring_core::{Checker, Stop};
/// use wellspring_testkit::RunBuilder;
///
/// let mut run = RunBuilder::new("demo", "Hello?");
/// run.turn().text(&["Hello", " there."]);
/// run.stop(Stop::EndTurn);
/// let records = run.complete();
/// assert_eq!(records.len(), 8);
/// assert!(Checker::check(&records).is_ok_and(|outline| outline.finished));
/// ```
#[derive(Clone, Debug)]
pub struct RunBuilder {
    records: Vec<Record>,
    outline: Outline,
    now: Millis,
    agent: AgentNo,
}

impl RunBuilder {
    /// A run of `agent` with the input `input`.
    #[must_use]
    pub fn new(agent: &str, input: &str) -> Self {
        Self::of(agent, RunRequest::text(input))
    }

    /// A run of `agent` with any request.
    #[must_use]
    pub fn of(agent: &str, request: RunRequest) -> Self {
        let mut run = Self {
            records: Vec::new(),
            outline: Outline::default(),
            now: EPOCH,
            agent: AgentNo::ROOT,
        };
        run.push(Event::RunStarted(Arc::new(RunStarted {
            run: RUN,
            thread: THREAD,
            agent: agent.into(),
            after: None,
            request,
        })));
        run
    }

    /// What is open now.
    #[must_use]
    pub fn outline(&self) -> &Outline {
        &self.outline
    }

    /// The records so far.
    #[must_use]
    pub fn records(self) -> Vec<Record> {
        self.records
    }

    /// Advances the time.
    pub fn wait(&mut self, ms: u64) -> &mut Self {
        self.now = Millis(self.now.0 + ms);
        self
    }

    /// Sets the agent of the following events.
    pub fn speaker(&mut self, agent: AgentNo) -> &mut Self {
        self.agent = agent;
        self
    }

    /// Any event.
    pub fn push(&mut self, event: Event) -> &mut Self {
        let record =
            Record { seq: self.outline.head.next(), agent: self.agent, at: self.now, event };
        self.outline.apply(&record);
        self.records.push(record);
        self.wait(TICK_MS)
    }

    /// A turn that streams.
    pub fn turn(&mut self) -> &mut Self {
        self.start_turn(true)
    }

    /// A turn that does not stream.
    pub fn blocking_turn(&mut self) -> &mut Self {
        self.start_turn(false)
    }

    fn start_turn(&mut self, streaming: bool) -> &mut Self {
        let (turn, attempt) = match self.outline.agents.get(&self.agent) {
            Some(agent) if agent.in_turn => (agent.turn, agent.attempt + 1),
            Some(agent) => (agent.turn + 1, 1),
            None => (1, 1),
        };
        let model = "scripted".into();
        self.push(Event::TurnStarted(Box::new(TurnStarted { turn, attempt, model, streaming })))
    }

    /// Ends the turn, with a usage of 12 input and 34 output tokens.
    pub fn stop(&mut self, stop: Stop) -> &mut Self {
        let usage = Usage { input: 12, output: 34, ..Usage::default() };
        self.push(Event::TurnFinished { stop, usage: Some(Box::new(usage)) })
    }

    /// Opens a part.
    pub fn open(&mut self, kind: PartKind) -> PartId {
        let part = self.outline.next_part;
        self.push(Event::PartStarted { part, kind });
        part
    }

    /// Extends a part.
    pub fn delta(&mut self, part: PartId, chunk: &str) -> &mut Self {
        self.push(Event::PartDelta { part, chunk: chunk.into() })
    }

    /// Closes a part.
    pub fn close(&mut self, part: PartId) -> &mut Self {
        self.push(Event::PartFinished { part })
    }

    /// A complete part.
    pub fn part(&mut self, kind: PartKind, chunks: &[&str]) -> PartId {
        let part = self.open(kind);
        for chunk in chunks {
            self.delta(part, chunk);
        }
        self.close(part);
        part
    }

    /// A complete text of the agent.
    pub fn text(&mut self, chunks: &[&str]) -> PartId {
        self.part(PartKind::TEXT, chunks)
    }

    /// A complete thought.
    pub fn thought(&mut self, chunks: &[&str]) -> PartId {
        self.part(PartKind::Thought, chunks)
    }

    /// A complete call of a tool that runs here.
    pub fn call(&mut self, name: &str, arguments: &[&str]) -> PartId {
        self.part(PartKind::call(name), arguments)
    }

    /// A complete call of any tool.
    pub fn call_of(&mut self, tool: ToolCall, arguments: &[&str]) -> PartId {
        self.part(PartKind::ToolCall(Box::new(tool)), arguments)
    }

    /// Voids parts.
    pub fn void(&mut self, parts: &[PartId], why: VoidReason) -> &mut Self {
        self.push(Event::PartsVoided { parts: parts.into(), why })
    }

    /// Queues a call.
    pub fn queue(&mut self, call: PartId, place: u32) -> &mut Self {
        self.push(Event::ToolQueued { call, place })
    }

    /// Starts a call while others are running.
    pub fn start(&mut self, call: PartId) -> &mut Self {
        self.push(Event::ToolStarted { call, mode: ToolMode::Parallel, arguments: None })
    }

    /// Progress of a call.
    pub fn update(&mut self, call: PartId, update: ToolUpdate) -> &mut Self {
        self.push(Event::ToolUpdated { call, update: Box::new(update) })
    }

    /// Progress of a call, as the tool's own data.
    pub fn progress(&mut self, call: PartId, data: serde_json::Value) -> &mut Self {
        self.update(call, ToolUpdate { data: Some(data), ..ToolUpdate::default() })
    }

    /// The successful result of a call.
    pub fn ok(&mut self, call: PartId, output: impl Into<serde_json::Value>) -> &mut Self {
        self.result(call, ToolOutcome::Ok, ToolResult::new(output))
    }

    /// A call's result.
    pub fn result(&mut self, call: PartId, outcome: ToolOutcome, result: ToolResult) -> &mut Self {
        self.push(Event::ToolFinished { call, outcome, result: Box::new(result) })
    }

    /// Asks a question, about a call or about the run.
    pub fn ask(&mut self, call: Option<PartId>, prompt: &str, form: Form) -> QuestionId {
        self.asks(call, prompt, form, false)
    }

    /// Asks a question that does not pause the run.
    pub fn ask_blocking(&mut self, call: Option<PartId>, prompt: &str, form: Form) -> QuestionId {
        self.asks(call, prompt, form, true)
    }

    fn asks(
        &mut self,
        call: Option<PartId>,
        prompt: &str,
        form: Form,
        blocking: bool,
    ) -> QuestionId {
        let question = self.outline.next_question;
        let prompt = prompt.into();
        let asked =
            Question { question, call, prompt, form, expires_at: None, blocking, key: None };
        self.push(Event::QuestionAsked(Box::new(asked)));
        question
    }

    /// Answers a question.
    pub fn answer(&mut self, question: QuestionId, answer: Answer) -> &mut Self {
        let answered = Answered { question, answer, by: Some("mira".into()), inbox: None };
        self.push(Event::QuestionAnswered(Box::new(answered)))
    }

    /// Starts a sub-agent of the current agent. The following events are the sub-agent's.
    pub fn sub_agent(&mut self, name: &str, call: Option<PartId>) -> AgentNo {
        let parent = std::mem::replace(&mut self.agent, self.outline.next_agent);
        let input = vec![Content::text("Please.")];
        self.push(Event::AgentStarted { parent, call, name: name.into(), input });
        self.agent
    }

    /// Ends the current sub-agent. The following events are its parent's.
    pub fn sub_agent_done(&mut self, outcome: Outcome) -> &mut Self {
        let parent = self.outline.agents.get(&self.agent).map(|agent| agent.parent);
        self.push(Event::AgentFinished { outcome: Box::new(outcome) });
        self.speaker(parent.unwrap_or_default())
    }

    /// Ends the run.
    #[must_use]
    pub fn finish(mut self, outcome: Outcome) -> Vec<Record> {
        self.speaker(AgentNo::ROOT).push(Event::RunFinished { outcome: Box::new(outcome) });
        self.records
    }

    /// Ends the run as completed.
    #[must_use]
    pub fn complete(self) -> Vec<Record> {
        self.finish(Outcome::Completed { stop: Stop::EndTurn })
    }

    /// Ends the run as cancelled.
    #[must_use]
    pub fn cancel(self, why: &str) -> Vec<Record> {
        let (by, why) = (Some("mira".into()), Some(why.into()));
        self.finish(Outcome::Cancelled { by, why, inbox: None })
    }

    /// Ends the run as failed.
    #[must_use]
    pub fn fail(self, kind: FailureKind, message: &str) -> Vec<Record> {
        self.finish(Outcome::Failed { kind, message: message.into(), retryable: false })
    }

    /// The number of the latest record.
    #[must_use]
    pub fn head(&self) -> Seq {
        self.outline.head
    }
}
