//! Records to ACP.

mod answer;
mod call_content;
mod content;
mod initialize;
mod questions;
mod update;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value, json};
use wellspring_core::{
    Annotation, Content, Event, Extended, Outcome, Outline, OutputStream, PartId, PartKind,
    PartOutline, PartShape, Record, Role, RunsOn, Stop, ToolCall, ToolOutcome, ToolResult,
    ToolUpdate, Usage, UsageScope, VoidReason, WirePartId,
};

pub use answer::{elicitation_response, permission_response};
pub use call_content::{RUNNING_BYTES_MAX, SHOWN_BYTES_MAX};
pub use content::{PromptError, content_block, prompt};
pub use initialize::initialize_response;
pub use questions::{Asked, Asking, Offers};

use super::unknown_members::{OURS, REST, carried, is_sayable, left, merge};
use super::{CALLS_MAX, ORIGIN, RAW_INPUT, RAW_OUTPUT};
use crate::dialect::options::{Options, Reasoning, UsageReports};
use crate::dialect::out::Out;
use crate::dialect::visible::{Grown, PARAGRAPH, TAKEN_BACK, breaks, grown, shown_call, wire_id};
use crate::dialect::{Before, Closed, Dialect, Fold};
use call_content::{Room, Shown, Voice};
use content::text_block;
use update::{Location, PlanEntry, Said, Status, ToolCallUpdate, Window, kind};

/// Writes a run as the `update`s of `session/update` notifications.
///
/// ```
/// use wellspring_core::{AgentNo, Event, Millis, Outline, PartId, PartKind, Record, Seq};
/// use wellspring_wire::acp::Acp;
/// use wellspring_wire::{Dialect as _, Out};
///
/// let record = |seq, event| Record { seq: Seq(seq), agent: AgentNo::ROOT, at: Millis(0), event };
/// let mut outline = Outline::default();
/// outline.apply(&record(1, Event::PartStarted { part: PartId(0), kind: PartKind::Thought }));
/// let mut out = Out::default();
/// let delta = record(2, Event::PartDelta { part: PartId(0), chunk: "Hm.".into() });
/// Acp::default().encode((&outline).into(), &delta, &mut out);
/// let update = r#"{"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"Hm."}}"#;
/// assert_eq!(out.events().next().map(|(_, json)| json), Some(update.as_bytes()));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Acp {
    reasoning: Reasoning,
    usage: UsageReports,
    /// The content of the open calls.
    calls: BTreeMap<PartId, Shown>,
    /// The run's working directory; `None` until the run has started.
    cwd: Option<Box<str>>,
    /// Whether a proxied agent uses the client's terminals.
    lends_terminals: bool,
    /// Further members that a proxied agent sent with the text of open parts.
    rests: BTreeMap<PartId, Value>,
    /// Further members for the next update of the same kind.
    rest_of_next: Option<Value>,
    /// The proxied agent's own ids of its calls, for the first [`CALLS_MAX`] of them.
    their_calls: BTreeMap<Box<str>, PartId>,
}

impl Dialect for Acp {
    fn encode(&mut self, before: Before<'_>, record: &Record, out: &mut Out) {
        let before = before.outline();
        if before.finished {
            return;
        }
        match &record.event {
            Event::PartDelta { part, chunk } => self.grow(before, *part, chunk, out),
            Event::RunStarted(started) => {
                self.cwd = started.request.cwd.clone();
                let input = started.request.wire.as_ref().and_then(|names| names.input.as_deref());
                let id = input.map_or_else(|| format!("{}-input", started.run), str::to_owned);
                blocks("user_message_chunk", &started.request.input, &id, out);
            }
            Event::InputAccepted { inbox, content, .. } => {
                if let Some(head) = &before.run {
                    let id = format!("{}-input-{}", head.run, inbox.0);
                    blocks("user_message_chunk", content, &id, out);
                }
            }
            Event::PartStarted { part, kind } if record.agent.is_root() => match kind {
                PartKind::ToolCall(tool) => start(before, *part, tool, out),
                PartKind::Opaque(opaque) if &*opaque.origin == ORIGIN => {
                    self.pass_on(before, &opaque.raw, out);
                }
                PartKind::Opaque(_)
                | PartKind::Text { .. }
                | PartKind::Thought
                | PartKind::Output { .. } => {}
            },
            Event::PartAnnotated { part, annotation } => self.annotate(before, *part, annotation, out),
            Event::PartFinished { part } => {
                self.rests.remove(part);
                // The arguments are complete. A call without arguments has nothing to add.
                if let Some(id) = shown_id(before, *part)
                    && let Some(call) = before.call(*part)
                    && !call.arguments.is_empty()
                {
                    let raw_input = serde_json::from_str(&call.arguments)
                        .unwrap_or_else(|_| Value::String(call.arguments.clone()));
                    let update = ToolCallUpdate { raw_input: Some(&raw_input), ..Default::default() };
                    out.event(&Said::ToolCallUpdate(ToolCallUpdate { id: Some(id), ..update }));
                }
            }
            Event::ToolStarted { call, arguments, .. } => {
                if let Some(id) = shown_id(before, *call) {
                    out.event(&Said::ToolCallUpdate(ToolCallUpdate {
                        id: Some(id),
                        status: Some(Status::InProgress),
                        raw_input: arguments.as_deref(),
                        ..Default::default()
                    }));
                }
            }
            Event::ToolUpdated { call, update } => self.update(before, *call, update, out),
            Event::ToolFinished { call, outcome, result } => {
                self.finish(before, *call, *outcome, result, out);
            }
            Event::PartsVoided { parts, why } => self.void(before, parts, *why, out),
            Event::PlanUpdated { entries } if record.agent.is_root() => {
                let entries = entries.iter().map(PlanEntry::from).collect();
                self.say_with_rest("plan", &Said::Plan { entries }, out);
            }
            Event::UsageReported(usage) if record.agent.is_root() => self.window(usage, out),
            Event::TurnFinished { usage: Some(usage), .. } if record.agent.is_root() => {
                self.window(usage, out);
            }
            Event::SourceCited(source) if record.agent.is_root() => {
                if let (Some(url), Some(head)) = (&source.url, &before.run) {
                    let link = Content::Link {
                        uri: url.clone(),
                        name: source.title.clone(),
                        media_type: source.media_type.clone(),
                    };
                    let id = format!("{}-source-{}", head.run, record.seq);
                    blocks("agent_message_chunk", &[link], &id, out);
                }
            }
            Event::FileProduced(file) if record.agent.is_root() => {
                if let Some(head) = &before.run {
                    let media = Content::Media {
                        media_type: file.media_type.clone(),
                        source: file.source.clone(),
                        name: file.name.clone(),
                    };
                    // Input that arrives in the middle of a message belongs to that message.
                    let id = match open_message(before, PartShape::Text(Role::Assistant)) {
                        Some(message) => message.to_string(),
                        None => format!("{}-file-{}", head.run, record.seq),
                    };
                    let said = block("agent_message_chunk", &media, &id);
                    self.say_with_rest("agent_message_chunk", &said, out);
                }
            }
            Event::Extended(extended) if record.agent.is_root() && &*extended.origin == ORIGIN => {
                self.extended(before, extended, out);
            }
            // Not shown, sent as a request, or unknown to the protocol.
            Event::RunAdopted { .. }
            | Event::RunPaused { .. }
            | Event::RunResumed { .. }
            | Event::TurnStarted(_)
            | Event::TurnFinished { .. }
            | Event::PartStarted { .. }
            // A call stays pending on the client's screen until it starts.
            | Event::ToolQueued { .. }
            | Event::QuestionAsked(_)
            | Event::QuestionAnswered(_)
            | Event::AgentStarted { .. }
            | Event::AgentFinished { .. }
            | Event::PlanUpdated { .. }
            | Event::StateSet { .. }
            | Event::StatePatched { .. }
            | Event::SourceCited(_)
            | Event::FileProduced(_)
            | Event::UsageReported(_)
            | Event::InputApplied { .. }
            | Event::ResultReady { .. }
            | Event::Attached { .. }
            | Event::Extended(_)
            // The response to `session/prompt` reports the outcome.
            | Event::RunFinished { .. } => {}
        }
    }

    /// No fold keeps the content of a call in the order in which it arrived.
    fn fold(&self) -> Fold {
        Fold::Records
    }

    fn close(&self, why: &Closed<'_>, out: &mut Out) {
        why.named(out);
    }
}

impl Acp {
    pub(crate) fn new(options: &Options) -> Self {
        Self { reasoning: options.reasoning, usage: options.usage, ..Self::default() }
    }

    fn grow(&mut self, before: &Outline, part: PartId, text: &str, out: &mut Out) {
        match grown(before, part) {
            Grown::Message => self.words("agent_message_chunk", before, part, text, out),
            Grown::Thought if self.reasoning == Reasoning::Hidden => {}
            Grown::Thought => self.words("agent_thought_chunk", before, part, text, out),
            // A client's own terminal shows its output itself.
            Grown::Output(_, call, OutputStream::Terminal)
                if self.lends_terminals && call.tool.runs_on == RunsOn::Agent => {}
            Grown::Output(call, ..) => self.say(before, call, Voice::Console, text, out),
            Grown::SubAgent(call, _) => self.say(before, call, Voice::Words, text, out),
            Grown::SubAgentThought(..) | Grown::Hidden => {
                let users = |part: &&PartOutline| {
                    part.agent.is_root() && part.shape == PartShape::Text(Role::User)
                };
                if before.part(part).filter(users).is_some() {
                    self.words("user_message_chunk", before, part, text, out);
                }
            }
        }
    }

    /// Writes more text of a part, with the further members that the proxied agent sent with
    /// it.
    fn words(&self, update: &str, before: &Outline, part: PartId, text: &str, out: &mut Out) {
        let id = wire_id(before, part);
        let Some(rest) = self.rests.get(&part) else { return chunk(update, text, id, out) };
        let id = id.map(|id| id.to_string());
        let mut said =
            json!({"sessionUpdate": update, "content": text_block(text), "messageId": id});
        merge(&mut said, rest);
        out.event(&said);
    }

    /// Keeps further members that a proxied agent sent with a part.
    fn annotate(&mut self, before: &Outline, part: PartId, said: &Annotation, out: &mut Out) {
        let is_call = before.part(part).is_some_and(|part| part.shape == PartShape::Call);
        match said {
            Annotation::ProviderId(id) if is_call && self.their_calls.len() < CALLS_MAX => {
                self.their_calls.insert(id.clone(), part);
            }
            Annotation::Other(said) if (&*said.origin, &*said.name) == (ORIGIN, REST) => {
                if !is_call {
                    self.rests.insert(part, said.value.clone());
                    self.rests.retain(|_, rest| *rest != json!({}));
                } else if let Some(id) = shown_id(before, part) {
                    let update = ToolCallUpdate { id: Some(id), ..Default::default() };
                    say_merged(&Said::ToolCallUpdate(update), Some(&said.value), out);
                }
            }
            Annotation::ProviderId(_)
            | Annotation::Other(_)
            | Annotation::Signature(_)
            | Annotation::Encrypted(_)
            | Annotation::Citation(_)
            | Annotation::Preamble => {}
        }
    }

    /// Handles an extended event of a proxied agent.
    fn extended(&mut self, before: &Outline, said: &Extended, out: &mut Out) {
        if &*said.name == REST {
            self.rest_of_next = Some(said.value.clone());
        } else if said.value["sessionUpdate"].as_str().is_some_and(|name| *name == *said.name) {
            self.pass_on(before, &said.value, out);
        }
    }

    /// Forwards an update of a proxied agent unchanged if the protocol defines it, and
    /// otherwise carries it in `_meta`. Ids are replaced by ours.
    fn pass_on(&self, before: &Outline, update: &Value, out: &mut Out) {
        let mut update = update.clone();
        let shape = match update["sessionUpdate"].as_str() {
            Some("agent_message_chunk") => Some(PartShape::Text(Role::Assistant)),
            Some("user_message_chunk") => Some(PartShape::Text(Role::User)),
            Some("agent_thought_chunk") => Some(PartShape::Thought),
            Some(_) | None => None,
        };
        if shape == Some(PartShape::Thought) && self.reasoning == Reasoning::Hidden {
            return;
        }
        if let (Some(shape), Some(members)) = (shape, update.as_object_mut())
            && members.shift_remove("messageId").is_some()
            && let Some(id) = open_message(before, shape)
        {
            members.insert("messageId".into(), id.to_string().into());
        }
        let call = update["toolCallId"].as_str().and_then(|id| self.their_calls.get(id));
        if let Some(id) = call.and_then(|call| wire_id(before, *call)) {
            update["toolCallId"] = id.to_string().into();
        }
        out.event(&if is_sayable(&update) { update } else { carried(&update) });
    }

    /// Writes an update together with the further members that the proxied agent sent with it.
    fn say_with_rest(&mut self, kind: &str, said: &impl Serialize, out: &mut Out) {
        let rest = self.rest_of_next.take_if(|rest| rest["sessionUpdate"] == kind);
        say_merged(said, rest.as_ref(), out);
    }

    /// Writes the size and use of the context window. The cost on this wire is the session's,
    /// so only the session's total is written.
    fn window(&mut self, usage: &Usage, out: &mut Out) {
        let shown = self.usage == UsageReports::Included;
        let Some(context) = usage.context.filter(|_| shown) else { return };
        let whole = usage.scope == UsageScope::Session;
        let cost = usage.cost.as_ref().filter(|cost| whole && cost.amount.is_finite());
        let said = Said::UsageUpdate(Window { used: context.used, size: context.size, cost });
        self.say_with_rest("usage_update", &said, out);
    }

    /// For a client whose terminals the proxied agent uses.
    #[must_use]
    pub fn lending_terminals(mut self) -> Self {
        self.lends_terminals = true;
        self
    }

    /// Where a call runs. A terminal of a proxied agent is not the client's, unless the client
    /// provides the terminals.
    fn room(&self, before: &Outline, call: PartId) -> Room<'_> {
        let has_terminals = match before.call(call).map(|call| call.tool.runs_on) {
            Some(RunsOn::Here) => true,
            Some(RunsOn::Agent) => self.lends_terminals,
            Some(RunsOn::Client | RunsOn::Provider) | None => false,
        };
        Room { cwd: self.cwd.as_deref(), has_terminals }
    }

    /// Adds streamed text to what a call shows.
    fn say(&mut self, before: &Outline, call: PartId, voice: Voice, text: &str, out: &mut Out) {
        let Some(id) = shown_id(before, call) else { return };
        let shown = self.calls.entry(call).or_default();
        shown.say(voice, text);
        if shown.is_due() {
            out.event(&Said::ToolCallUpdate(ToolCallUpdate {
                id: Some(id),
                content: Some(shown.show()),
                ..Default::default()
            }));
        }
    }

    fn update(&mut self, before: &Outline, call: PartId, update: &ToolUpdate, out: &mut Out) {
        let Some(id) = shown_id(before, call) else { return };
        let bare =
            update.title.is_none() && update.locations.is_empty() && update.content.is_none();
        if let (true, Some((voice, text))) = (bare, update.data.as_ref().and_then(words)) {
            return self.say(before, call, voice, text, out);
        }
        let content = update.content.as_ref().map(|change| {
            let mut shown = self.calls.remove(&call).unwrap_or_default();
            shown.change(change, self.room(before, call));
            self.calls.entry(call).or_insert(shown).show()
        });
        let theirs = update.data.as_ref().filter(|data| is_theirs(before, call, data));
        let member = |name: &str| theirs.and_then(|data| data.get(name));
        let said = Said::ToolCallUpdate(ToolCallUpdate {
            id: Some(id),
            title: update.title.as_deref(),
            content,
            locations: locations(update, self.cwd.as_deref()),
            raw_input: member(RAW_INPUT),
            raw_output: if theirs.is_some() { member(RAW_OUTPUT) } else { update.data.as_ref() },
            ..Default::default()
        });
        say_merged(&said, member(REST), out);
    }

    fn finish(
        &mut self,
        before: &Outline,
        call: PartId,
        outcome: ToolOutcome,
        result: &ToolResult,
        out: &mut Out,
    ) {
        let mut shown = self.calls.remove(&call).unwrap_or_default();
        let Some(id) = shown_id(before, call) else { return };
        if !result.content.is_empty() {
            shown.replace(&result.content, self.room(before, call));
        } else if shown.is_empty()
            && before.call(call).is_some_and(|call| call.tool.runs_on.is_ours())
            && let Value::String(text) = &result.output
        {
            // Only the output for the model is left to show.
            shown.say(Voice::Words, text);
        }
        let status = match outcome {
            ToolOutcome::Ok => Status::Completed,
            ToolOutcome::Error
            | ToolOutcome::Denied
            | ToolOutcome::Interrupted
            | ToolOutcome::TimedOut => Status::Failed,
        };
        let said = Said::ToolCallUpdate(ToolCallUpdate {
            id: Some(id),
            status: Some(status),
            content: shown.has_news().then(|| shown.show()),
            raw_output: Some(&result.output).filter(|output| !output.is_null()),
            ..Default::default()
        });
        self.say_with_rest("tool_call_update", &said, out);
    }

    fn void(&mut self, before: &Outline, parts: &[PartId], why: VoidReason, out: &mut Out) {
        for (shape, update) in [
            (PartShape::Thought, "agent_thought_chunk"),
            (PartShape::Text(Role::Assistant), "agent_message_chunk"),
        ] {
            let hidden = shape == PartShape::Thought && self.reasoning == Reasoning::Hidden;
            if !hidden && breaks(before, parts, why, shape) {
                let of_shape =
                    |part: &&PartId| before.part(**part).is_some_and(|it| it.shape == shape);
                let last = parts.iter().rev().find(of_shape);
                chunk(update, PARAGRAPH, last.and_then(|part| wire_id(before, *part)), out);
            }
        }
        for part in parts {
            self.calls.remove(part);
            self.rests.remove(part);
            if let Some(id) = shown_id(before, *part) {
                out.event(&Said::ToolCallUpdate(ToolCallUpdate {
                    id: Some(id),
                    status: Some(Status::Failed),
                    content: Some(vec![call_content::text(TAKEN_BACK)]),
                    ..Default::default()
                }));
            }
        }
    }
}

/// The response to `session/prompt`: the stop reason and the usage of the run. Values that the
/// protocol does not define go to `_meta`. `theirs` is the response of a proxied agent.
///
/// `None` for a run that failed: the protocol reports that as an error.
#[must_use]
pub fn prompt_response(outcome: &Outcome, usage: &Usage, theirs: Option<&Value>) -> Option<Value> {
    let (reason, unknown) = match outcome {
        Outcome::Completed { stop } => match stop {
            Stop::EndTurn | Stop::ToolCalls | Stop::StopSequence | Stop::Paused => {
                ("end_turn", None)
            }
            Stop::MaxTokens => ("max_tokens", None),
            Stop::TurnLimit | Stop::Budget(_) => ("max_turn_requests", None),
            Stop::Refusal | Stop::ContentFilter => ("refusal", None),
            // Another client stopped the proxied agent.
            Stop::Other(other) if &**other == "cancelled" => ("cancelled", None),
            Stop::Other(other) => ("end_turn", Some(&**other)),
        },
        Outcome::Cancelled { .. } => ("cancelled", None),
        Outcome::Failed { .. } => return None,
    };
    let mut response = json!({"stopReason": reason});
    if usage.input.saturating_add(usage.output) > 0 {
        response["usage"] = prompt_usage(usage);
    }
    if let Some(theirs) = theirs {
        merge(&mut response, &left(theirs, &["stopReason", "usage"]).into());
    }
    let mut ours = Map::new();
    if let Some(unknown) = unknown {
        ours.insert("stopReason".into(), unknown.into());
    }
    if let Some(cost) = usage.cost.as_ref().filter(|cost| cost.amount.is_finite()) {
        ours.insert("cost".into(), json!({"amount": cost.amount, "currency": cost.currency}));
    }
    if !ours.is_empty() {
        merge(&mut response, &json!({"_meta": {OURS: ours}}));
    }
    Some(response)
}

/// The usage of a run.
fn prompt_usage(usage: &Usage) -> Value {
    let mut said = json!({
        "totalTokens": usage.input.saturating_add(usage.output),
        "inputTokens": usage.input,
        "outputTokens": usage.output,
    });
    for (name, tokens) in [
        ("thoughtTokens", usage.reasoning),
        ("cachedReadTokens", usage.cached_input),
        ("cachedWriteTokens", usage.cache_write),
    ] {
        if let Some(tokens) = tokens {
            said[name] = tokens.into();
        }
    }
    said
}

/// One text chunk. Formatted by hand, because there are many of them.
fn chunk(update: &str, text: &str, id: Option<WirePartId>, out: &mut Out) {
    out.write(|json| {
        json.raw(r#"{"sessionUpdate":""#).raw(update);
        json.raw(r#"","content":{"type":"text","text":"#).string(text).raw("}");
        if let Some(id) = id {
            json.raw(r#","messageId":"#).plain(id);
        }
        json.raw("}");
    });
}

/// Content blocks of one message.
fn blocks(update: &str, contents: &[Content], id: &str, out: &mut Out) {
    for content in contents {
        out.event(&block(update, content, id));
    }
}

fn block(update: &str, content: &Content, id: &str) -> Value {
    json!({"sessionUpdate": update, "content": content_block(content), "messageId": id})
}

/// The message of the root agent that is open.
fn open_message(before: &Outline, shape: PartShape) -> Option<WirePartId> {
    let is_it = |part: &PartOutline| part.open && part.agent.is_root() && part.shape == shape;
    let (part, _) = before.parts.iter().rev().find(|(_, part)| is_it(part))?;
    wire_id(before, *part)
}

/// Writes an update merged with its further members.
fn say_merged(said: &impl Serialize, rest: Option<&Value>, out: &mut Out) {
    match (rest, serde_json::to_value(said)) {
        (Some(rest), Ok(mut said)) => {
            merge(&mut said, rest);
            out.event(&said);
        }
        (Some(_) | None, _) => out.event(said),
    }
}

/// Whether the data of a call is what a proxied agent reported about it, each member under its
/// own name.
fn is_theirs(before: &Outline, call: PartId, data: &Value) -> bool {
    let is_agents = before.call(call).is_some_and(|call| call.tool.runs_on == RunsOn::Agent);
    let mut names = data.as_object().into_iter().flatten().map(|(name, _)| name.as_str());
    is_agents && data.is_object() && names.all(|name| [RAW_INPUT, RAW_OUTPUT, REST].contains(&name))
}

fn start(before: &Outline, part: PartId, tool: &ToolCall, out: &mut Out) {
    if &*tool.name == wellspring_core::RETURN_RESULT {
        return;
    }
    if let Some(id) = wire_id(before, part) {
        out.event(&Said::ToolCall {
            id,
            title: tool.title.as_deref().unwrap_or(&tool.name),
            name: &tool.name,
            kind: kind(tool.kind),
            status: Status::Pending,
        });
    }
}

/// Progress that consists of text only: prose, or the output of a command.
fn words(data: &Value) -> Option<(Voice, &str)> {
    if let Some(text) = data.as_str() {
        return Some((Voice::Words, text));
    }
    let subtype = data.get("subtype")?.as_str()?;
    let text = data.get("content")?.as_str()?;
    subtype.ends_with("_chunk").then_some((Voice::Console, text))
}

fn locations<'a>(update: &'a ToolUpdate, cwd: Option<&str>) -> Option<Vec<Location<'a>>> {
    let located = update.locations.iter().map(|location| Location {
        path: content::absolute(&location.path, cwd),
        line: location.line,
    });
    Some(located.collect::<Vec<_>>()).filter(|locations| !locations.is_empty())
}

fn shown_id(before: &Outline, call: PartId) -> Option<WirePartId> {
    shown_call(before, call).and_then(|_| wire_id(before, call))
}
