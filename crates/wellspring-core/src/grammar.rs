//! The grammar as code: run by every test, and by readers of external logs.

use uuid::Uuid;

use crate::event::{Event, PartKind, Record};
use crate::id::{AgentNo, Millis, PartId, RunId, Seq, ThreadId};
use crate::outline::{AgentOutline, CallState, Outline, PartShape, RunHead};
use crate::transcript::Transcript;

/// A record that violates the grammar.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("record {seq} breaks invariant {invariant}: {what}")]
pub struct Violation {
    /// The offending record.
    pub seq: Seq,
    /// The invariant it breaks.
    pub invariant: Invariant,
    /// A description of the violation.
    pub what: String,
}

/// The invariants of a run, numbered as in ARCHITECTURE.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Invariant {
    /// 1: sequence numbers are dense, from 1.
    Dense,
    /// 2: `run started` is first; `run finished` is last, exactly once.
    OneTerminal,
    /// 3: everything that was opened is closed before the end.
    Closed,
    /// 4: no delta is empty or names a closed part; ids are new.
    Parts,
    /// 5: folding a prefix and then the rest gives the same as folding everything.
    Fold,
    /// 6: an announcement comes before the work that it announces.
    Announced,
}

impl std::fmt::Display for Invariant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (number, name) = match self {
            Self::Dense => (1, "dense"),
            Self::OneTerminal => (2, "one terminal"),
            Self::Closed => (3, "closed"),
            Self::Parts => (4, "parts"),
            Self::Fold => (5, "fold"),
            Self::Announced => (6, "announced"),
        };
        write!(f, "{number} ({name})")
    }
}

/// Checks the records of a run one by one.
///
/// ```
/// use wellspring_core::{Checker, Event, Millis, Record, Seq, AgentNo};
///
/// let mut checker = Checker::default();
/// let paused = Event::RunPaused { waits: vec![] };
/// let record = Record { seq: Seq(2), agent: AgentNo::ROOT, at: Millis(0), event: paused };
/// let violation = checker.push(&record).unwrap_err();
/// assert_eq!(violation.to_string(), "record 2 breaks invariant 1 (dense): expected record 1");
/// ```
#[derive(Clone, Debug, Default)]
pub struct Checker {
    outline: Outline,
}

impl Checker {
    /// Checks a whole run, or a prefix of one, and that its folds agree.
    ///
    /// # Errors
    ///
    /// The first violation.
    pub fn check(records: &[Record]) -> Result<Outline, Violation> {
        let mut checker = Self::default();
        for record in records {
            checker.push(record)?;
        }
        check_folds(records)?;
        Ok(checker.outline)
    }

    /// A checker that continues from an outline.
    #[must_use]
    pub fn resume(outline: Outline) -> Self {
        Self { outline }
    }

    /// A checker for the events of one turn of a model, whose parts count from 0.
    #[must_use]
    pub fn in_turn() -> Self {
        let run = RunHead {
            run: RunId::new(Uuid::nil()),
            thread: ThreadId::new(Uuid::nil()),
            agent: Box::default(),
            wire_thread: None,
            wire_run: None,
            wire_parent: None,
        };
        let root = AgentOutline { turn: 1, attempt: 1, in_turn: true, ..AgentOutline::default() };
        Self::resume(Outline {
            run: Some(run),
            agents: [(AgentNo::ROOT, root)].into(),
            next_agent: AgentNo::ROOT.next(),
            ..Outline::default()
        })
    }

    /// Checks the next event of a source, and returns it.
    ///
    /// # Errors
    ///
    /// As [`push`](Self::push).
    pub fn admit(&mut self, agent: AgentNo, event: Event) -> Result<Event, Violation> {
        let seq = self.outline.head.next();
        let record = Record { seq, agent, at: Millis::default(), event };
        self.push(&record)?;
        Ok(record.event)
    }

    /// The outline after the records so far.
    #[must_use]
    pub fn outline(&self) -> &Outline {
        &self.outline
    }

    /// Checks the next record.
    ///
    /// # Errors
    ///
    /// If the grammar forbids the record. The checker must not be used afterwards.
    pub fn push(&mut self, record: &Record) -> Result<(), Violation> {
        let broken = |invariant, what: String| Violation { seq: record.seq, invariant, what };
        let expected = self.outline.head.next();
        if record.seq != expected {
            return Err(broken(Invariant::Dense, format!("expected record {expected}")));
        }
        self.allows(record).map_err(|(invariant, what)| broken(invariant, what))?;
        self.outline.apply(record);
        Ok(())
    }

    fn allows(&self, record: &Record) -> Result<(), (Invariant, String)> {
        let before = &self.outline;
        if before.finished {
            return Err((Invariant::OneTerminal, "the run was already over".into()));
        }
        if before.run.is_none() != matches!(record.event, Event::RunStarted(_)) {
            return Err((
                Invariant::OneTerminal,
                "`run started` must be first, and only first".into(),
            ));
        }
        if before.run.is_some()
            && !before.agents.contains_key(&record.agent)
            && !matches!(record.event, Event::AgentStarted { .. })
        {
            return Err((Invariant::Announced, format!("agent {} has not started", record.agent)));
        }
        if is_of_the_run(&record.event) && !record.agent.is_root() {
            let what = format!("agent {} speaks for the run", record.agent);
            return Err((Invariant::Announced, what));
        }
        if before.paused.is_some() && is_work(&record.event) {
            return Err((Invariant::Announced, "the run is paused".into()));
        }
        match &record.event {
            Event::PartStarted { part, .. } if *part < before.next_part => {
                Err((Invariant::Parts, format!("part {part} is not fresh")))
            }
            Event::PartDelta { part, chunk } if chunk.is_empty() => {
                Err((Invariant::Parts, format!("an empty delta of part {part}")))
            }
            Event::PartDelta { part, .. } | Event::PartFinished { part } => {
                match before.part(*part) {
                    Some(outline) if outline.open && outline.agent == record.agent => Ok(()),
                    Some(outline) if outline.open => {
                        Err((Invariant::Parts, format!("part {part} is agent {}'s", outline.agent)))
                    }
                    _ => Err((Invariant::Parts, format!("part {part} is not open"))),
                }
            }
            Event::PartAnnotated { part, .. } if before.part(*part).is_none() => {
                Err((Invariant::Parts, format!("part {part} can no longer be annotated")))
            }
            // A call may be voided at any point: only idempotent tools start before their turn
            // has ended, so no effect is lost.
            Event::PartsVoided { parts, .. } => {
                match parts.iter().find(|part| before.part(**part).is_none()) {
                    Some(part) => {
                        Err((Invariant::Parts, format!("part {part} can no longer be voided")))
                    }
                    None => Ok(()),
                }
            }
            Event::ToolQueued { call, .. } => {
                // A waiting call may be queued again, at another place.
                let waits = |state| matches!(state, CallState::Complete | CallState::Queued);
                self.call_in(*call, waits, "queued")
            }
            Event::ToolStarted { call, .. } => self.call_in(
                *call,
                // A crash between start and result leads to a second start of an idempotent tool.
                |state| state != CallState::Asked,
                "started",
            ),
            Event::ToolUpdated { call, .. } => {
                self.call_in(*call, |state| matches!(state, CallState::Started(_)), "updated")
            }
            Event::ToolFinished { call, .. } => {
                self.call_in(*call, |state| state != CallState::Asked, "finished")
            }
            Event::QuestionAsked(question) if question.question < before.next_question => {
                Err((Invariant::Parts, format!("question {} is not fresh", question.question)))
            }
            Event::QuestionAnswered(answered)
                if !before.questions.contains_key(&answered.question) =>
            {
                Err((Invariant::Closed, format!("question {} is not open", answered.question)))
            }
            Event::AgentStarted { parent, .. } => {
                if record.agent < before.next_agent {
                    Err((Invariant::Parts, format!("agent {} is not fresh", record.agent)))
                } else if !before.agents.contains_key(parent) {
                    Err((Invariant::Announced, format!("its parent {parent} is not running")))
                } else {
                    Ok(())
                }
            }
            Event::PartStarted { kind: PartKind::Output { call, .. }, .. }
                if before.call(*call).is_none() =>
            {
                Err((
                    Invariant::Announced,
                    format!("output belongs to call {call}, which does not exist"),
                ))
            }
            Event::RunResumed { .. } if before.paused.is_none() => {
                Err((Invariant::Announced, "the run was not paused".into()))
            }
            Event::AgentFinished { .. } if record.agent.is_root() => {
                Err((Invariant::Announced, "the root agent ends with its run".into()))
            }
            Event::AgentFinished { .. } => self.all_closed(Some(record.agent)),
            Event::TurnStarted(turn) => self.turn_starts(record, turn.turn, turn.attempt),
            Event::TurnFinished { .. } => {
                let in_turn = before.agents.get(&record.agent).is_some_and(|agent| agent.in_turn);
                match before.open_parts(record.agent).find(|(_, part)| !is_output(part.shape)) {
                    _ if !in_turn => Err((Invariant::Announced, "no turn is going on".into())),
                    Some((part, _)) => Err((Invariant::Closed, format!("part {part} is open"))),
                    None => Ok(()),
                }
            }
            Event::InputApplied { inbox } if !before.inputs.contains(inbox) => {
                Err((Invariant::Announced, format!("input {inbox} was not accepted")))
            }
            Event::RunFinished { .. } => self.all_closed(None),
            Event::RunStarted(_)
            | Event::RunAdopted { .. }
            | Event::RunPaused { .. }
            | Event::RunResumed { .. }
            | Event::PartStarted { .. }
            | Event::PartAnnotated { .. }
            | Event::QuestionAsked(_)
            | Event::QuestionAnswered(_)
            | Event::PlanUpdated { .. }
            | Event::StateSet { .. }
            | Event::StatePatched { .. }
            | Event::SourceCited(_)
            | Event::FileProduced(_)
            | Event::UsageReported(_)
            | Event::InputAccepted { .. }
            | Event::InputApplied { .. }
            | Event::ResultReady { .. }
            | Event::Attached { .. }
            | Event::Extended(_) => Ok(()),
        }
    }

    fn turn_starts(
        &self,
        record: &Record,
        turn: u32,
        attempt: u32,
    ) -> Result<(), (Invariant, String)> {
        let Some(agent) = self.outline.agents.get(&record.agent) else { return Ok(()) };
        let want = if agent.in_turn {
            (agent.turn, agent.attempt.saturating_add(1))
        } else {
            (agent.turn.saturating_add(1), 1)
        };
        if (turn, attempt) == want {
            Ok(())
        } else {
            let what = format!("turn {turn}.{attempt} started; expected {}.{}", want.0, want.1);
            Err((Invariant::Announced, what))
        }
    }

    fn call_in(
        &self,
        call: PartId,
        allowed: impl Fn(CallState) -> bool,
        what: &str,
    ) -> Result<(), (Invariant, String)> {
        match self.outline.call(call) {
            None => {
                Err((Invariant::Closed, format!("{call} is {what} but it is not an open call")))
            }
            // Remote agents and providers report calls in their own order; only our calls are checked.
            Some(outline) if allowed(outline.state) || !outline.tool.runs_on.is_ours() => Ok(()),
            Some(outline) => Err((
                Invariant::Announced,
                format!("call {call} is {what} while {:?}", outline.state),
            )),
        }
    }

    /// Whether everything (of one sub-agent, or of the run) is closed.
    fn all_closed(&self, agent: Option<AgentNo>) -> Result<(), (Invariant, String)> {
        let ours = |whose| agent.is_none_or(|agent| agent == whose);
        let outline = &self.outline;
        let open_part = outline.parts.iter().find(|(_, part)| part.open && ours(part.agent));
        let open_call = outline.calls.iter().find(|(_, call)| ours(call.agent));
        let open_question = outline.questions.iter().find(|(_, question)| ours(question.agent));
        let open_agent = outline.agents.iter().find(|(number, inner)| {
            !number.is_root() && agent.is_none_or(|agent| inner.parent == agent)
        });
        let what = match (open_part, open_call, open_question, open_agent) {
            (Some((part, _)), ..) => format!("part {part} is open"),
            (_, Some((call, _)), ..) => format!("call {call} has no result"),
            (_, _, Some((question, _)), _) => format!("question {question} is open"),
            (.., Some((agent, _))) => format!("agent {agent} has not finished"),
            (None, None, None, None) => return Ok(()),
        };
        Err((Invariant::Closed, what))
    }
}

/// Whether an event belongs to the run itself rather than to one of its agents.
fn is_of_the_run(event: &Event) -> bool {
    matches!(
        event,
        Event::RunStarted(_)
            | Event::RunAdopted { .. }
            | Event::RunPaused { .. }
            | Event::RunResumed { .. }
            | Event::RunFinished { .. }
    )
}

/// Whether an event starts work, which needs an owner.
fn is_work(event: &Event) -> bool {
    matches!(
        event,
        Event::TurnStarted(_)
            | Event::PartStarted { .. }
            | Event::PartDelta { .. }
            | Event::ToolStarted { .. }
            | Event::AgentStarted { .. }
            | Event::QuestionAsked(_)
            | Event::RunPaused { .. }
    )
}

fn is_output(shape: PartShape) -> bool {
    matches!(shape, PartShape::Output(..))
}

/// Invariant 5: storing a transcript in the middle of a run and folding on gives the transcript
/// of the whole run.
fn check_folds(records: &[Record]) -> Result<(), Violation> {
    let whole = Transcript::fold(records);
    let middle = records.len() / 2;
    let prefix = Transcript::fold(&records[..middle]);
    let stored = serde_json::to_string(&prefix)
        .and_then(|json| serde_json::from_str::<Transcript>(&json))
        .map_err(|error| (records[middle].seq, error.to_string()));
    let folded = stored.map(|mut transcript| {
        transcript.extend(&records[middle..]);
        transcript
    });
    match folded {
        Ok(folded) if folded == whole => Ok(()),
        Ok(_) => Err(Violation {
            seq: records[middle].seq,
            invariant: Invariant::Fold,
            what: "folding on from here gives another transcript".into(),
        }),
        Err((seq, what)) => Err(Violation { seq, invariant: Invariant::Fold, what }),
    }
}
