//! Ids of messages, calls and interrupts on this wire, and how to read them back.

use std::fmt::Display;

use wellspring_core::{AgentNo, InboxNo, PartId, QuestionId, RunHead, RunId, WirePartId};

/// The type of the activity that shows a plan.
pub(super) const PLAN: &str = "plan";

/// The type of the activity that shows a call's progress.
pub(super) const TOOL_PROGRESS: &str = "tool_progress";

pub(crate) fn thread(head: &RunHead) -> Box<str> {
    head.wire_thread.clone().unwrap_or_else(|| boxed(head.thread))
}

pub(crate) fn run(head: &RunHead) -> Box<str> {
    head.wire_run.clone().unwrap_or_else(|| boxed(head.run))
}

pub(super) fn part(run: RunId, part: PartId) -> Box<str> {
    boxed(WirePartId { run, part })
}

pub(super) fn result(run: RunId, call: PartId) -> Box<str> {
    boxed(format_args!("{run}-{call}-result"))
}

pub(super) fn progress(run: RunId, call: PartId) -> Box<str> {
    boxed(format_args!("{run}-{call}-progress"))
}

pub(super) fn plan(run: RunId) -> Box<str> {
    boxed(format_args!("{run}-plan"))
}

pub(super) fn agent(run: RunId, agent: AgentNo) -> Box<str> {
    boxed(format_args!("{run}-agent-{agent}"))
}

pub(crate) fn question(run: RunId, question: QuestionId) -> Box<str> {
    boxed(format_args!("{run}-question-{question}"))
}

/// The id of the request's input, if the client did not give it one.
pub(super) fn input(run: RunId) -> Box<str> {
    boxed(format_args!("{run}-input"))
}

pub(super) fn steering(run: RunId, inbox: InboxNo) -> Box<str> {
    boxed(format_args!("{run}-input-{inbox}"))
}

pub(super) fn step(turn: u32) -> Box<str> {
    boxed(format_args!("step-{turn}"))
}

/// Whether this is an id that we gave to user input. Messages with our own ids are already in
/// the log.
pub(super) fn is_input(name: &str) -> bool {
    let run = name.split_once("-input").map(|(run, rest)| (run.parse::<RunId>(), rest));
    matches!(run, Some((Ok(_), rest)) if rest.is_empty() || rest.starts_with('-'))
}

/// The question that an interrupt's id names, and its run.
pub(crate) fn parse_question(name: &str) -> Option<(RunId, QuestionId)> {
    let (run, question) = name.split_once("-question-")?;
    Some((run.parse().ok()?, QuestionId(question.parse().ok()?)))
}

fn boxed(name: impl Display) -> Box<str> {
    name.to_string().into()
}
