//! Records as readable lines, for snapshots, `runs show` and failure messages.

use std::fmt::{self, Write as _};

use crate::event::{Event, Outcome, PartKind, Record, RunsOn};

/// One line per record, without times, so that snapshots are stable.
#[must_use]
pub fn render<'a>(records: impl IntoIterator<Item = &'a Record>) -> String {
    let mut out = String::new();
    for record in records {
        if !record.agent.is_root() {
            let _ = write!(out, "[agent {}] ", record.agent);
        }
        let _ = writeln!(out, "{}", record.event);
    }
    out
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RunStarted(started) => {
                write!(f, "run started by {}", started.agent)?;
                for content in &started.request.input {
                    write!(f, " {}", Json(content))?;
                }
                Ok(())
            }
            Self::RunAdopted { node, epoch } => write!(f, "run adopted by {node}, epoch {epoch}"),
            Self::RunPaused { waits } => write!(f, "run paused for {}", Json(waits)),
            Self::RunResumed { .. } => f.write_str("run resumed"),
            Self::TurnStarted(turn) => {
                write!(f, "turn {}.{} started with {}", turn.turn, turn.attempt, turn.model)?;
                if turn.streaming { Ok(()) } else { f.write_str(", not streaming") }
            }
            Self::TurnFinished { stop, usage } => {
                write!(f, "turn finished {}", Json(stop))?;
                match usage {
                    Some(usage) => write!(f, ", {} in, {} out", usage.input, usage.output),
                    None => Ok(()),
                }
            }
            Self::PartStarted { part, kind } => write!(f, "part {part} started {kind}"),
            Self::PartDelta { part, chunk } => write!(f, "part {part} delta {:?}", chunk.as_str()),
            Self::PartAnnotated { part, annotation } => {
                write!(f, "part {part} annotated {}", Json(annotation))
            }
            Self::PartFinished { part } => write!(f, "part {part} finished"),
            Self::PartsVoided { parts, why } => {
                write!(f, "parts {} voided {}", Json(parts), Json(why))
            }
            Self::ToolQueued { call, place } => write!(f, "tool {call} queued at {place}"),
            Self::ToolStarted { call, mode, arguments } => {
                write!(f, "tool {call} started {}", Json(mode))?;
                match arguments {
                    Some(arguments) => write!(f, " with {arguments}"),
                    None => Ok(()),
                }
            }
            Self::ToolUpdated { call, update } => write!(f, "tool {call} updated {}", Json(update)),
            Self::ToolFinished { call, outcome, result } => {
                write!(f, "tool {call} finished {} {}", Json(outcome), result.output)?;
                if result.content.is_empty() {
                    Ok(())
                } else {
                    write!(f, " {}", Json(&result.content))
                }
            }
            Self::QuestionAsked(question) => {
                write!(
                    f,
                    "question {} asked {} {:?}",
                    question.question,
                    Json(&question.form),
                    question.prompt
                )
            }
            Self::QuestionAnswered(answered) => {
                write!(f, "question {} answered {}", answered.question, Json(&answered.answer))
            }
            Self::AgentStarted { parent, name, .. } => {
                write!(f, "agent {name} started by {parent}")
            }
            Self::AgentFinished { outcome } => write!(f, "agent finished {outcome}"),
            Self::PlanUpdated { entries } => {
                f.write_str("plan")?;
                for entry in entries {
                    write!(f, " [{}] {}", Json(&entry.status), entry.content)?;
                }
                Ok(())
            }
            Self::StateSet { state } => write!(f, "state set {state}"),
            Self::StatePatched { patch } => write!(f, "state patched {patch}"),
            Self::SourceCited(source) => write!(f, "source {}", Json(source)),
            Self::FileProduced(file) => write!(f, "file {}", file.media_type),
            Self::UsageReported(usage) => {
                write!(f, "usage {} in, {} out", usage.input, usage.output)
            }
            Self::InputAccepted { inbox, content, amended: None } => {
                write!(f, "input {inbox} accepted {}", Json(content))
            }
            Self::InputAccepted { inbox, content, amended: Some(amended) } => {
                write!(f, "input {inbox} accepted {} amending {}", Json(content), Json(amended))
            }
            Self::InputApplied { inbox } => write!(f, "input {inbox} applied"),
            Self::ResultReady { value } => write!(f, "result {value}"),
            Self::Attached { origin, .. } => write!(f, "attached to {origin}"),
            Self::Extended(extended) => {
                write!(f, "extended {} {} {}", extended.origin, extended.name, extended.value)
            }
            Self::RunFinished { outcome } => write!(f, "run finished {outcome}"),
        }
    }
}

impl fmt::Display for PartKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text { role } if *role == crate::Role::Assistant => f.write_str("text"),
            Self::Text { role } => write!(f, "text of {}", Json(role)),
            Self::Thought => f.write_str("thought"),
            Self::ToolCall(tool) => match tool.runs_on {
                RunsOn::Here => write!(f, "call {}", tool.name),
                RunsOn::Client | RunsOn::Provider | RunsOn::Agent => {
                    write!(f, "call {} on {}", tool.name, Json(&tool.runs_on))
                }
            },
            Self::Output { call, stream } => write!(f, "output of {call} {}", Json(stream)),
            Self::Opaque(opaque) => write!(f, "opaque {}", opaque.origin),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Completed { stop } => write!(f, "completed {}", Json(stop)),
            Self::Cancelled { why, .. } => {
                f.write_str("cancelled")?;
                match why {
                    Some(why) => write!(f, ": {why}"),
                    None => Ok(()),
                }
            }
            Self::Failed { kind, message, .. } => write!(f, "failed {}: {message}", Json(kind)),
        }
    }
}

/// A value as compact JSON; a string without its quotes.
struct Json<'a, T>(&'a T);

impl<T: serde::Serialize> fmt::Display for Json<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match serde_json::to_value(self.0) {
            Ok(serde_json::Value::String(text)) => f.write_str(&text),
            Ok(value) => value.fmt(f),
            Err(error) => write!(f, "<{error}>"),
        }
    }
}
