//! Random records in any order, with colliding ids and numbers at their limits.
//!
//! Every strategy is boxed: unboxed, their nested types do not fit on a test's stack.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::{Value, json};
use wellspring_core::{
    AgentNo, Amendment, Annotation, Answer, Answered, Content, ContentChange, Event, Extended,
    FailureKind, FileProduced, Form, InboxNo, Location, MediaSource, Millis, Opaque, Outcome,
    OutputStream, PartId, PartKind, PlanEntry, PlanStatus, Priority, Question, QuestionId, Record,
    Role, RunRequest, RunStarted, RunsOn, Scope, Seq, Source, Stop, ToolCall, ToolContent,
    ToolKind, ToolMode, ToolOutcome, ToolResult, ToolUpdate, TurnStarted, Usage, UsageScope,
    VoidReason, Wait,
};

use crate::run_builder::{RUN, THREAD};

/// Any records in any order.
pub fn arb_records() -> impl Strategy<Value = Vec<Record>> {
    vec(arb_record(), 0..40)
}

/// Any record.
pub fn arb_record() -> impl Strategy<Value = Record> {
    let at = prop_oneof![0u64..100, Just(u64::MAX)].prop_map(Millis);
    (number(), agent(), at, arb_event()).prop_map(|(seq, agent, at, event)| Record {
        seq: Seq(seq.into()),
        agent,
        at,
        event,
    })
}

/// Any event.
pub fn arb_event() -> BoxedStrategy<Event> {
    // Parts and calls first and often, because most code of dialects handles those.
    prop_oneof![
        4 => (part(), kind()).prop_map(|(part, kind)| Event::PartStarted { part, kind }),
        4 => (part(), text()).prop_map(|(part, text)| Event::PartDelta {
            part,
            chunk: text.into(),
        }),
        2 => part().prop_map(|part| Event::PartFinished { part }),
        1 => (vec(part(), 0..4), void_reason())
            .prop_map(|(parts, why)| Event::PartsVoided { parts, why }),
        4 => tool_event(),
        4 => run_event(),
        3 => other_event(),
    ]
    .boxed()
}

fn tool_event() -> BoxedStrategy<Event> {
    let mode = || prop_oneof![Just(ToolMode::Parallel), Just(ToolMode::Sequential)];
    let outcome = prop_oneof![
        Just(ToolOutcome::Ok),
        Just(ToolOutcome::Error),
        Just(ToolOutcome::Denied),
        Just(ToolOutcome::Interrupted),
        Just(ToolOutcome::TimedOut),
    ];
    prop_oneof![
        (part(), number()).prop_map(|(call, place)| Event::ToolQueued { call, place }),
        (part(), mode(), option::of(json_object())).prop_map(|(call, mode, arguments)| {
            Event::ToolStarted { call, mode, arguments: arguments.map(Box::new) }
        }),
        (part(), update())
            .prop_map(|(call, update)| Event::ToolUpdated { call, update: Box::new(update) }),
        (
            part(),
            outcome,
            arb_json(),
            vec(tool_content(), 0..3),
            option::of(inbox()),
            any::<bool>()
        )
            .prop_map(|(call, outcome, output, content, inbox, stated_success)| {
                let result = ToolResult { output, content, stated_success, inbox };
                Event::ToolFinished { call, outcome, result: Box::new(result) }
            }),
    ]
    .boxed()
}

fn run_event() -> BoxedStrategy<Event> {
    prop_oneof![
        2 => (text(), option::of(json_object())).prop_map(|(agent, state)| {
            let request = RunRequest { state, ..RunRequest::text("Hello?") };
            let agent = agent.into();
            Event::RunStarted(Arc::new(RunStarted {
                run: RUN,
                thread: THREAD,
                agent,
                after: None,
                request,
            }))
        }),
        1 => any::<u64>().prop_map(|epoch| Event::RunAdopted { node: "node".into(), epoch }),
        1 => vec(wait(), 0..3).prop_map(|waits| Event::RunPaused { waits }),
        1 => (option::of(inbox()), option::of(text())).prop_map(|(inbox, wire_run)| {
            Event::RunResumed { inbox, wire_run: wire_run.map(Into::into), amended: None }
        }),
        4 => (number(), number(), any::<bool>()).prop_map(|(turn, attempt, streaming)| {
            let model = "scripted".into();
            Event::TurnStarted(Box::new(TurnStarted { turn, attempt, model, streaming }))
        }),
        2 => (stop(), option::of(usage())).prop_map(|(stop, usage)| Event::TurnFinished {
            stop,
            usage: usage.map(Box::new),
        }),
        2 => (agent(), option::of(part()), text()).prop_map(|(parent, call, name)| {
            Event::AgentStarted { parent, call, name: name.into(), input: Vec::new() }
        }),
        1 => outcome().prop_map(|outcome| Event::AgentFinished { outcome: Box::new(outcome) }),
        1 => outcome().prop_map(|outcome| Event::RunFinished { outcome: Box::new(outcome) }),
    ]
    .boxed()
}

fn other_event() -> BoxedStrategy<Event> {
    prop_oneof![
        (part(), annotation()).prop_map(|(part, annotation)| Event::PartAnnotated {
            part,
            annotation: Box::new(annotation),
        }),
        (question(), option::of(part()), form(), any::<bool>()).prop_map(
            |(question, call, form, blocking)| {
                let prompt = "May I?".into();
                let expires_at = call.map(|_| Millis(u64::MAX));
                let asked =
                    Question { question, call, prompt, form, expires_at, blocking, key: None };
                Event::QuestionAsked(Box::new(asked))
            }
        ),
        (question(), answer(), option::of(inbox())).prop_map(|(question, answer, inbox)| {
            Event::QuestionAnswered(Box::new(Answered { question, answer, by: None, inbox }))
        }),
        vec(plan_entry(), 0..3).prop_map(|entries| Event::PlanUpdated { entries }),
        arb_json().prop_map(|state| Event::StateSet { state: Box::new(state) }),
        arb_json().prop_map(|patch| Event::StatePatched { patch: Box::new(patch) }),
        option::of(text()).prop_map(|title| Event::SourceCited(Box::new(Source {
            title: title.map(Into::into),
            ..Source::default()
        }))),
        media_source().prop_map(|source| Event::FileProduced(Box::new(FileProduced {
            media_type: "text/plain".into(),
            source,
            name: None,
        }))),
        usage().prop_map(|usage| Event::UsageReported(Box::new(usage))),
        (inbox(), any::<bool>(), any::<bool>()).prop_map(|(inbox, says, amends)| {
            Event::InputAccepted {
                inbox,
                content: if says { vec![Content::text("and more")] } else { Vec::new() },
                amended: amends.then(|| Box::new(Amendment::default())),
            }
        }),
        inbox().prop_map(|inbox| Event::InputApplied { inbox }),
        arb_json().prop_map(|value| Event::ResultReady { value: Box::new(value) }),
        arb_json()
            .prop_map(|handle| Event::Attached { origin: "acme".into(), handle: Box::new(handle) }),
        arb_json().prop_map(|value| Event::Extended(Box::new(extended(value)))),
    ]
    .boxed()
}

fn extended(value: Value) -> Extended {
    Extended { origin: "acme".into(), name: "mood".into(), value }
}

fn number() -> BoxedStrategy<u32> {
    prop_oneof![9 => 0u32..5, 1 => Just(u32::MAX)].boxed()
}

fn part() -> BoxedStrategy<PartId> {
    number().prop_map(PartId).boxed()
}

fn agent() -> BoxedStrategy<AgentNo> {
    prop_oneof![6 => Just(AgentNo::ROOT), 4 => number().prop_map(AgentNo)].boxed()
}

fn inbox() -> BoxedStrategy<InboxNo> {
    prop_oneof![0u64..3, Just(u64::MAX)].prop_map(InboxNo).boxed()
}

fn question() -> BoxedStrategy<QuestionId> {
    number().prop_map(QuestionId).boxed()
}

fn wait() -> BoxedStrategy<Wait> {
    prop_oneof![part().prop_map(Wait::Call), question().prop_map(Wait::Question)].boxed()
}

fn text() -> BoxedStrategy<String> {
    prop_oneof![
        Just(String::new()),
        Just("{}".to_owned()),
        Just("[1]".to_owned()),
        proptest::collection::vec(any::<char>(), 0..6).prop_map(String::from_iter),
    ]
    .boxed()
}

/// Any JSON.
pub fn arb_json() -> BoxedStrategy<Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        text().prop_map(Value::from),
        Just(json!([{"op": "add", "path": "/a", "value": 1}])),
        text().prop_map(|text| json!({"subtype": "stdout_chunk", "content": text})),
    ]
    .boxed()
}

/// Only values that differ as JSON: an absent object and `null` are the same.
fn json_object() -> BoxedStrategy<Value> {
    text().prop_map(|text| json!({"path": text})).boxed()
}

fn kind() -> BoxedStrategy<PartKind> {
    let runs_on = prop_oneof![
        Just(RunsOn::Here),
        Just(RunsOn::Client),
        Just(RunsOn::Provider),
        Just(RunsOn::Agent),
    ];
    let name = prop_oneof![Just("return_result".to_owned()), text()];
    let stream = prop_oneof![
        Just(OutputStream::Stdout),
        Just(OutputStream::Stderr),
        Just(OutputStream::Terminal),
    ];
    prop_oneof![
        Just(PartKind::TEXT),
        Just(PartKind::Text { role: Role::User }),
        Just(PartKind::Thought),
        (name, option::of(text()), runs_on).prop_map(|(name, title, runs_on)| {
            PartKind::ToolCall(Box::new(ToolCall {
                id: None,
                name: name.into(),
                title: title.map(Into::into),
                kind: ToolKind::SwitchMode,
                runs_on,
            }))
        }),
        (part(), stream).prop_map(|(call, stream)| PartKind::Output { call, stream }),
        arb_json()
            .prop_map(|raw| PartKind::Opaque(Box::new(Opaque { origin: "acme".into(), raw }))),
    ]
    .boxed()
}

fn annotation() -> BoxedStrategy<Annotation> {
    prop_oneof![
        text().prop_map(|text| Annotation::Signature(text.into())),
        text().prop_map(|text| Annotation::Encrypted(text.into())),
        text().prop_map(|text| Annotation::ProviderId(text.into())),
        arb_json().prop_map(Annotation::Citation),
        Just(Annotation::Preamble),
        arb_json().prop_map(|value| Annotation::Other(Box::new(extended(value)))),
    ]
    .boxed()
}

fn void_reason() -> BoxedStrategy<VoidReason> {
    prop_oneof![
        Just(VoidReason::Restarted),
        Just(VoidReason::Replaced),
        Just(VoidReason::Abandoned),
    ]
    .boxed()
}

fn media_source() -> BoxedStrategy<MediaSource> {
    prop_oneof![
        text().prop_map(|text| MediaSource::Data(text.into())),
        text().prop_map(|text| MediaSource::Url(text.into())),
    ]
    .boxed()
}

fn tool_content() -> BoxedStrategy<ToolContent> {
    let media_type = prop_oneof![Just("image/png"), Just("audio/wav"), Just("")];
    let content = prop_oneof![
        text().prop_map(Content::text),
        (media_type, media_source()).prop_map(|(media_type, source)| Content::Media {
            media_type: media_type.into(),
            source,
            name: None,
        }),
        text().prop_map(|uri| Content::Link { uri: uri.into(), name: None, media_type: None }),
        text().prop_map(|text| Content::Resource {
            uri: "file:///a".into(),
            text: text.into(),
            media_type: None,
        }),
    ];
    prop_oneof![
        content.prop_map(ToolContent::Content),
        (option::of(text()), text()).prop_map(|(old, new)| ToolContent::Diff {
            path: "a".into(),
            old_text: old.map(Into::into),
            new_text: new.into(),
        }),
        text().prop_map(|id| ToolContent::Terminal { terminal_id: id.into() }),
    ]
    .boxed()
}

fn update() -> BoxedStrategy<ToolUpdate> {
    let content = prop_oneof![
        Just(None),
        vec(tool_content(), 0..3).prop_map(|content| Some(ContentChange::Append(content))),
        vec(tool_content(), 0..3).prop_map(|content| Some(ContentChange::Replace(content))),
    ];
    (option::of(text()), option::of(text()), content, option::of(arb_json()))
        .prop_map(|(title, path, content, data)| ToolUpdate {
            title: title.map(Into::into),
            locations: Vec::from_iter(
                path.map(|path| Location { path: path.into(), line: Some(u32::MAX) }),
            ),
            content,
            data,
        })
        .boxed()
}

fn form() -> BoxedStrategy<Form> {
    prop_oneof![
        Just(Form::Approve),
        Just(Form::Choose { choices: Vec::new(), multiple: true }),
        arb_json().prop_map(Form::Schema),
    ]
    .boxed()
}

fn answer() -> BoxedStrategy<Answer> {
    prop_oneof![
        option::of(json_object())
            .prop_map(|arguments| Answer::Approve { scope: Scope::Always, arguments }),
        option::of(text())
            .prop_map(|reason| Answer::Deny { reason: reason.map(Into::into), scope: Scope::Once }),
        Just(Answer::Choose(Vec::new())),
        arb_json().prop_map(Answer::Value),
        Just(Answer::Expired),
        Just(Answer::Withdrawn),
    ]
    .boxed()
}

fn plan_entry() -> BoxedStrategy<PlanEntry> {
    let status = prop_oneof![
        Just(PlanStatus::Pending),
        Just(PlanStatus::InProgress),
        Just(PlanStatus::Completed),
    ];
    let priority = prop_oneof![Just(Priority::High), Just(Priority::Medium), Just(Priority::Low)];
    (text(), status, priority)
        .prop_map(|(content, status, priority)| PlanEntry {
            content: content.into(),
            status,
            priority,
        })
        .boxed()
}

fn usage() -> BoxedStrategy<Usage> {
    (any::<u64>(), any::<u64>(), option::of(any::<u64>()))
        .prop_map(|(input, output, reasoning)| Usage {
            scope: UsageScope::Session,
            input,
            output,
            reasoning,
            ..Usage::default()
        })
        .boxed()
}

fn stop() -> BoxedStrategy<Stop> {
    prop_oneof![
        Just(Stop::EndTurn),
        Just(Stop::ToolCalls),
        Just(Stop::MaxTokens),
        Just(Stop::StopSequence),
        Just(Stop::Refusal),
        Just(Stop::ContentFilter),
        Just(Stop::Paused),
        Just(Stop::TurnLimit),
        Just(Stop::Budget(wellspring_core::Budget::Cost)),
        text().prop_map(|text| Stop::Other(text.into())),
    ]
    .boxed()
}

fn outcome() -> BoxedStrategy<Outcome> {
    prop_oneof![
        stop().prop_map(|stop| Outcome::Completed { stop }),
        (option::of(text()), option::of(inbox())).prop_map(|(why, inbox)| Outcome::Cancelled {
            by: None,
            why: why.map(Into::into),
            inbox,
        }),
        text().prop_map(|message| Outcome::Failed {
            kind: FailureKind::Internal,
            message: message.into(),
            retryable: false,
        }),
    ]
    .boxed()
}
