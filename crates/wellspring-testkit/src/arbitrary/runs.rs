//! Legal random runs.
//!
//! A run is driven by a list of numbers: each picks one of the events that the outline allows
//! at that point. So proptest shrinks a failing run by dropping and lowering numbers, and the
//! result is still legal. When the numbers are used up, everything open is closed, as the
//! engine does on an abort.

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};
use wellspring_core::{
    AgentNo, Annotation, Answer, CallState, Content, ContentChange, Event, Extended, FailureKind,
    FileProduced, Form, InboxNo, MediaSource, Outcome, OutputStream, PartId, PartKind, PartShape,
    PlanEntry, PlanStatus, Priority, QuestionId, Record, Role, RunsOn, Scope, Source, Stop,
    ToolCall, ToolContent, ToolKind, ToolMode, ToolOutcome, ToolResult, ToolUpdate, Usage,
    VoidReason, Wait,
};

use crate::run_builder::RunBuilder;

/// Maximum number of active agents: the root, a child and a grandchild cover all cases.
const AGENTS_MAX: usize = 3;

/// Any legal run, of up to a few hundred records.
pub fn arb_run() -> impl Strategy<Value = Vec<Record>> {
    vec(any::<[u16; 3]>(), 0..120).prop_map(|choices| build(&choices))
}

/// A legal run small enough to try every cut of it.
pub fn arb_small_run() -> impl Strategy<Value = Vec<Record>> {
    vec(any::<[u16; 3]>(), 0..25).prop_map(|choices| build(&choices))
}

/// The kinds of events that can come next.
#[derive(Clone, Copy, Debug)]
enum Step {
    StartTurn,
    FinishTurn,
    Open,
    Grow(PartId),
    Close(PartId),
    Annotate(PartId),
    Void,
    Queue(PartId),
    Start(PartId),
    Update(PartId),
    Write(PartId),
    Finish(PartId),
    Ask,
    Answer(QuestionId),
    StartAgent,
    FinishAgent,
    Pause,
    Adopt,
    AcceptInput,
    ApplyInput(InboxNo),
    Result,
    Say,
}

fn build(choices: &[[u16; 3]]) -> Vec<Record> {
    let mut run = RunBuilder::new("random", "Surprise me.");
    for &[who, what, how] in choices {
        let agents: Vec<AgentNo> = run.outline().agents.keys().copied().collect();
        run.wait(u64::from(how % 50)).speaker(*pick(&agents, who));
        let steps = allowed(&run, *pick(&agents, who));
        take(&mut run, *pick(&agents, who), *pick(&steps, what), usize::from(how));
    }
    close_all(&mut run);
    let outcome = outcome(choices.last().map_or(0, |last| last[2].into()));
    run.finish(outcome)
}

/// Everything that the grammar allows `agent` to do now. Steps that need more tests are listed
/// twice.
fn allowed(run: &RunBuilder, agent: AgentNo) -> Vec<Step> {
    let outline = run.outline();
    let Some(state) = outline.agents.get(&agent) else { return vec![Step::Say] };
    let mut steps = vec![Step::Open, Step::Open, Step::Ask, Step::Say, Step::Adopt];
    steps.extend([Step::AcceptInput, Step::Pause]);
    steps.extend(outline.inputs.iter().map(|inbox| Step::ApplyInput(*inbox)));
    if !outline.has_result {
        steps.push(Step::Result);
    }
    if outline.agents.len() < AGENTS_MAX {
        steps.push(Step::StartAgent);
    }
    if !agent.is_root() && is_closed(run, agent) {
        steps.push(Step::FinishAgent);
    }
    let words = outline.open_parts(agent).any(|(_, part)| !is_output(part.shape));
    match state.in_turn {
        false => steps.extend([Step::StartTurn; 2]),
        true if words => {}
        true => steps.push(Step::FinishTurn),
    }
    for (part, shape) in outline.parts.iter().filter(|(_, part)| part.agent == agent) {
        steps.push(Step::Annotate(*part));
        if shape.open {
            steps.extend([Step::Grow(*part), Step::Grow(*part), Step::Close(*part)]);
        }
    }
    if !voidable(run, agent).is_empty() {
        steps.push(Step::Void);
    }
    for (call, of) in outline.calls.iter().filter(|(_, call)| call.agent == agent) {
        let foreign = matches!(of.tool.runs_on, RunsOn::Provider | RunsOn::Agent);
        match of.state {
            CallState::Asked if foreign => steps.push(Step::Update(*call)),
            CallState::Asked => {}
            CallState::Complete => {
                steps.extend([Step::Queue(*call), Step::Start(*call), Step::Finish(*call)]);
            }
            CallState::Queued => steps.extend([Step::Start(*call), Step::Finish(*call)]),
            CallState::Started(_) => {
                steps.extend([Step::Update(*call), Step::Write(*call), Step::Finish(*call)]);
            }
        }
    }
    let ours = outline.questions.iter().filter(|(_, question)| question.agent == agent);
    steps.extend(ours.map(|(question, _)| Step::Answer(*question)));
    steps
}

fn take(run: &mut RunBuilder, agent: AgentNo, step: Step, how: usize) {
    match step {
        Step::StartTurn if how.is_multiple_of(4) => {
            run.blocking_turn();
        }
        Step::StartTurn => {
            run.turn();
        }
        Step::FinishTurn => {
            run.stop(stop(how));
        }
        Step::Open => {
            run.open(kind(how));
        }
        Step::Grow(part) => {
            run.delta(part, WORDS[how % WORDS.len()]);
        }
        Step::Close(part) => {
            run.close(part);
        }
        Step::Annotate(part) => {
            let annotation = match how % 3 {
                0 => Annotation::Signature("sig".into()),
                1 => Annotation::Preamble,
                _ => Annotation::ProviderId("id".into()),
            };
            run.push(Event::PartAnnotated { part, annotation: Box::new(annotation) });
        }
        Step::Void => {
            let mut parts = voidable(run, agent);
            // All of them and a new attempt, as after a failed one; or only some, as when a
            // remote agent corrects itself.
            if how.is_multiple_of(2) {
                run.void(&parts, VoidReason::Restarted);
                if run.outline().agents.get(&agent).is_some_and(|agent| agent.in_turn) {
                    run.turn();
                }
            } else {
                parts.truncate(1 + how % parts.len());
                run.void(&parts, VoidReason::Replaced);
            }
        }
        Step::Queue(call) => {
            run.queue(call, 1);
        }
        Step::Start(call) => {
            let mode =
                if how.is_multiple_of(2) { ToolMode::Parallel } else { ToolMode::Sequential };
            let arguments = how.is_multiple_of(5).then(|| Box::new(json!({"edited": true})));
            run.push(Event::ToolStarted { call, mode, arguments });
        }
        Step::Update(call) => {
            run.update(call, update(how));
        }
        Step::Write(call) => {
            let stream = match how % 3 {
                0 => OutputStream::Stdout,
                1 => OutputStream::Stderr,
                _ => OutputStream::Terminal,
            };
            run.open(PartKind::Output { call, stream });
        }
        Step::Finish(call) => finish_call(run, call, how),
        Step::Ask => {
            let call = run.outline().calls.iter().find(|(_, call)| call.agent == agent);
            let call = call.map(|(call, _)| *call).filter(|_| how.is_multiple_of(2));
            let form = match how % 3 {
                0 => Form::Approve,
                1 => Form::Choose { choices: Vec::new(), multiple: false },
                _ => Form::Schema(json!({"type": "string"})),
            };
            if how % 5 == 4 {
                run.ask_blocking(call, "May I now?", form);
            } else {
                run.ask(call, "May I?", form);
            }
        }
        Step::Answer(question) => {
            let answer = match how % 4 {
                0 => Answer::Approve { scope: Scope::Thread, arguments: None },
                1 => Answer::no("no"),
                2 => Answer::Value(json!("blue")),
                _ => Answer::Expired,
            };
            run.answer(question, answer);
        }
        Step::StartAgent => {
            let started = |state| matches!(state, CallState::Started(_));
            let mut calls = run.outline().calls.iter();
            let call = calls.find(|(_, call)| call.agent == agent && started(call.state));
            let call = call.map(|(call, _)| *call);
            run.sub_agent("clerk", call);
        }
        Step::FinishAgent => {
            run.sub_agent_done(outcome(how));
        }
        Step::Pause => {
            let calls = run.outline().calls.keys().map(|call| Wait::Call(*call));
            let waits = calls.take(2).collect();
            run.speaker(AgentNo::ROOT).push(Event::RunPaused { waits });
            run.wait(1_000).push(Event::RunResumed { inbox: None, wire_run: None, amended: None });
            run.speaker(agent);
        }
        Step::Adopt => {
            let epoch = run.outline().epoch + 1;
            run.speaker(AgentNo::ROOT).push(Event::RunAdopted { node: "node".into(), epoch });
            run.speaker(agent);
        }
        Step::AcceptInput => {
            let inbox = run.outline().taken.last().unwrap_or_default().next();
            let content = vec![Content::text("and more")];
            run.push(Event::InputAccepted { inbox, content, amended: None });
        }
        Step::ApplyInput(inbox) => {
            run.push(Event::InputApplied { inbox });
        }
        Step::Result => {
            let value = if how.is_multiple_of(3) { Value::Null } else { json!({"n": how}) };
            run.push(Event::ResultReady { value: Box::new(value) });
        }
        Step::Say => {
            run.push(fact(how));
        }
    }
}

/// Finishes a call, after its output and its sub-agent.
fn finish_call(run: &mut RunBuilder, call: PartId, how: usize) {
    let outputs = run.outline().parts.iter().filter(
        |(_, part)| matches!(part.shape, PartShape::Output(of, _) if of == call && part.open),
    );
    for part in outputs.map(|(part, _)| *part).collect::<Vec<_>>() {
        run.close(part);
    }
    let outcome = match how % 5 {
        0 => ToolOutcome::Error,
        1 => ToolOutcome::Denied,
        2 => ToolOutcome::TimedOut,
        _ => ToolOutcome::Ok,
    };
    let content = if how.is_multiple_of(2) { contents(how) } else { Vec::new() };
    let output = if how.is_multiple_of(3) { json!({"n": how}) } else { json!("done") };
    run.result(call, outcome, ToolResult { output, content, ..ToolResult::default() });
}

/// Closes everything as the engine does when a run is cut short: innermost agents first.
fn close_all(run: &mut RunBuilder) {
    let agents: Vec<AgentNo> = run.outline().agents.keys().rev().copied().collect();
    for agent in agents {
        run.speaker(agent);
        let open: Vec<PartId> = run.outline().open_parts(agent).map(|(part, _)| part).collect();
        let voidable = voidable(run, agent);
        let (void, close): (Vec<_>, Vec<_>) =
            open.into_iter().partition(|part| voidable.contains(part));
        for part in close {
            run.close(part);
        }
        if !void.is_empty() {
            run.void(&void, VoidReason::Abandoned);
        }
        let calls = run.outline().calls.iter().filter(|(_, call)| call.agent == agent);
        for call in calls.map(|(call, _)| *call).collect::<Vec<_>>() {
            run.result(call, ToolOutcome::Interrupted, ToolResult::new("cut short"));
        }
        let questions = run.outline().questions.iter().filter(|(_, asked)| asked.agent == agent);
        for question in questions.map(|(question, _)| *question).collect::<Vec<_>>() {
            run.answer(question, Answer::Withdrawn);
        }
        if !agent.is_root() {
            run.sub_agent_done(Outcome::Cancelled { by: None, why: None, inbox: None });
        }
    }
}

fn is_closed(run: &RunBuilder, agent: AgentNo) -> bool {
    let outline = run.outline();
    outline.open_parts(agent).next().is_none()
        && !outline.calls.values().any(|call| call.agent == agent)
        && !outline.questions.values().any(|question| question.agent == agent)
        && !outline.agents.values().any(|inner| inner.parent == agent)
}

/// The parts that `agent` may void. A tool's output cannot be voided.
fn voidable(run: &RunBuilder, agent: AgentNo) -> Vec<PartId> {
    let parts = run.outline().parts.iter();
    let may = parts.filter(|(_, part)| part.agent == agent && !is_output(part.shape));
    may.map(|(part, _)| *part).collect()
}

fn is_output(shape: PartShape) -> bool {
    matches!(shape, PartShape::Output(..))
}

/// Texts with every kind of character that a wire may have to escape, and text that looks like
/// arguments.
const WORDS: [&str; 8] =
    ["Hello", " wörld", "\n\n", "\"quoted\" \\", "\u{1}\u{1f980}", "{\"a\":", "1}", "data: x\r\n"];

fn kind(how: usize) -> PartKind {
    let tool = |name: &str, runs_on| {
        PartKind::ToolCall(Box::new(ToolCall {
            id: None,
            name: name.into(),
            title: how.is_multiple_of(2).then(|| "A title".into()),
            kind: if how.is_multiple_of(3) { ToolKind::Read } else { ToolKind::Other },
            runs_on,
        }))
    };
    match how % 10 {
        0..=2 => PartKind::TEXT,
        3 | 4 => PartKind::Thought,
        5 => tool("here", RunsOn::Here),
        6 => tool("there", [RunsOn::Client, RunsOn::Provider, RunsOn::Agent][how / 10 % 3]),
        7 => tool("return_result", RunsOn::Here),
        8 => PartKind::Text { role: Role::User },
        _ => PartKind::Opaque(Box::new(wellspring_core::Opaque {
            origin: "acme".into(),
            raw: json!({"n": how}),
        })),
    }
}

fn stop(how: usize) -> Stop {
    match how % 5 {
        0 => Stop::MaxTokens,
        1 => Stop::ToolCalls,
        2 => Stop::Other("tired".into()),
        _ => Stop::EndTurn,
    }
}

fn outcome(how: usize) -> Outcome {
    match how % 4 {
        0 => Outcome::Cancelled { by: None, why: Some("enough".into()), inbox: None },
        1 => Outcome::Failed {
            kind: FailureKind::Protocol,
            message: "cut off".into(),
            retryable: true,
        },
        _ => Outcome::Completed { stop: stop(how / 4) },
    }
}

fn contents(how: usize) -> Vec<ToolContent> {
    let media = |media_type: &str, source| {
        ToolContent::Content(Content::Media { media_type: media_type.into(), source, name: None })
    };
    match how % 6 {
        0 => vec![ToolContent::Content(Content::text("shown"))],
        1 => vec![ToolContent::Terminal { terminal_id: "t".into() }],
        2 => vec![media("image/png", MediaSource::Data("AA==".into()))],
        3 => vec![media("audio/wav", MediaSource::Url("https://example.com/a.wav".into()))],
        4 => vec![
            ToolContent::Diff { path: "a".into(), old_text: None, new_text: "b".into() },
            ToolContent::Content(Content::text("and more")),
        ],
        _ => Vec::new(),
    }
}

fn update(how: usize) -> ToolUpdate {
    let content = match how % 3 {
        0 => None,
        1 => Some(ContentChange::Append(contents(how / 3))),
        _ => Some(ContentChange::Replace(contents(how / 3))),
    };
    ToolUpdate {
        title: how.is_multiple_of(7).then(|| "Another title".into()),
        locations: Vec::new(),
        content,
        data: match how % 5 {
            0 => Some(json!({"percent": how % 100})),
            1 => Some(json!("words")),
            2 => Some(Value::Null),
            _ => None,
        },
    }
}

fn fact(how: usize) -> Event {
    match how % 8 {
        0 => Event::PlanUpdated {
            entries: vec![PlanEntry {
                content: "a step".into(),
                status: PlanStatus::InProgress,
                priority: Priority::Low,
            }],
        },
        1 => Event::StateSet { state: Box::new(json!({"n": how})) },
        2 => Event::StatePatched {
            patch: Box::new(json!([{"op": "add", "path": "/n", "value": how}])),
        },
        3 => Event::SourceCited(Box::new(Source {
            title: Some("a source".into()),
            ..Source::default()
        })),
        4 => Event::FileProduced(Box::new(FileProduced {
            media_type: "text/plain".into(),
            source: MediaSource::Data("AA==".into()),
            name: None,
        })),
        5 => Event::UsageReported(Box::new(Usage { input: 1, output: 2, ..Usage::default() })),
        6 => Event::Attached { origin: "acme".into(), handle: Box::new(json!(how)) },
        _ => Event::Extended(Box::new(Extended {
            origin: "acme".into(),
            name: "mood".into(),
            value: json!(how),
        })),
    }
}

fn pick<T>(from: &[T], number: u16) -> &T {
    &from[usize::from(number) % from.len()]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::strategy::{Strategy as _, ValueTree as _};
    use proptest::test_runner::TestRunner;
    use wellspring_core::Checker;

    use super::arb_run;

    /// The random runs must cover every event.
    #[test]
    fn random_runs_are_legal_and_use_every_event() {
        let mut runner = TestRunner::deterministic();
        let mut seen = BTreeSet::new();
        for _ in 0..200 {
            let records = arb_run().new_tree(&mut runner).unwrap().current();
            Checker::check(&records).unwrap();
            for record in &records {
                let event = serde_json::to_value(&record.event).unwrap();
                seen.extend(event.as_object().unwrap().keys().cloned());
            }
        }
        assert_eq!(seen.len(), 31, "{seen:?}");
    }
}
