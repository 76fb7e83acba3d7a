//! Reads an agent's reports about a prompt into events.

mod call;
mod content;
mod our_tools;
mod permission;

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use wellspring_core::{
    Annotation, Batch, ContextWindow, Cost, Event, Extended, FileProduced, LocalPart, MediaSource,
    PartKind, PlanEntry, PlanStatus, Priority, Role, Stop, Usage, UsageScope,
};

pub use call::ARGUMENTS_BYTES_MAX;
pub use our_tools::OurTools;
pub use permission::{Permission, PermissionKind, PermissionOption};

use super::unknown_members::{REST, left, members_except};
use super::{ELICITATION, ORIGIN, PERMISSION};
use call::Call;
pub(super) use content::{has_sound_meta, is_block};

/// The name in the log of an agent's own report about a call of one of our tools.
const OUR_TOOL_CALL: &str = "lent_tool_call";

/// Calls of one prompt that we track. Long prompts make a few hundred; reports about
/// further calls are kept whole but not tracked.
pub const CALLS_MAX: usize = 4096;

/// Reads an agent's reports about one prompt.
///
/// It never fails: what it does not understand is kept whole.
///
/// ```
/// use serde_json::json;
/// use wellspring_core::Batch;
/// use wellspring_wire::acp::Reader;
///
/// let (mut reader, mut batch) = (Reader::default(), Batch::default());
/// let content = json!({"type": "text", "text": "Hello"});
/// reader.update(json!({"sessionUpdate": "agent_message_chunk", "content": content}), &mut batch);
/// reader.end(&json!({"stopReason": "end_turn"}), &mut batch);
/// let events: Vec<String> = batch.into_events().map(|(_, event)| event.to_string()).collect();
/// assert_eq!(events, ["part 0 started text", "part 0 delta \"Hello\"", "part 0 finished"]);
/// ```
#[derive(Debug, Default)]
pub struct Reader {
    our_tools: OurTools,
    /// The open message or thought.
    open: Option<Open>,
    /// The calls of this prompt, including finished ones: later reports must not open
    /// them again.
    calls: BTreeMap<Box<str>, Call>,
    /// Terminal output so far, for the call that shows the terminal.
    terminals: BTreeMap<Box<str>, Terminal>,
    /// The usage of all prompts together.
    spent: Option<Usage>,
}

#[derive(Debug)]
struct Open {
    kind: PartKind,
    message: Option<Box<str>>,
    /// Unknown members of its latest chunk.
    rest: Map<String, Value>,
    part: LocalPart,
}

/// A terminal whose output goes into the log.
#[derive(Debug)]
struct Terminal {
    call: Option<LocalPart>,
    output: Option<LocalPart>,
    /// Output before a call showed the terminal.
    waiting: String,
    over: bool,
}

impl Reader {
    /// Creates a reader for a prompt during which the agent can call these tools of ours.
    #[must_use]
    pub fn new(our_tools: OurTools) -> Self {
        Self { our_tools, ..Self::default() }
    }

    /// Reads the `update` of a `session/update`.
    pub fn update(&mut self, update: Value, batch: &mut Batch) {
        let name = update["sessionUpdate"].as_str().unwrap_or_default();
        let understood = match name {
            "agent_message_chunk" => self.chunk(PartKind::TEXT, &update, batch),
            "user_message_chunk" => self.chunk(PartKind::Text { role: Role::User }, &update, batch),
            "agent_thought_chunk" => self.chunk(PartKind::Thought, &update, batch),
            "tool_call" | "tool_call_update" => match self.tool_call(&update, batch) {
                Told::Whole => true,
                Told::Partly => false,
                Told::OurTool => return batch.extended(ORIGIN, OUR_TOOL_CALL, update),
            },
            "plan" => plan(&update, batch),
            "usage_update" => usage_update(&update, batch),
            _ => false,
        };
        if !understood {
            let name = if name.is_empty() { "session/update" } else { name };
            let name: Box<str> = name.into();
            batch.extended(ORIGIN, &name, update);
        }
    }

    /// Reads the parameters of a `session/request_permission`. Its call is already in the batch or
    /// was read before.
    pub fn permission(&mut self, params: &Value, batch: &mut Batch) -> Permission {
        let call = &params["toolCall"];
        let told = self.tool_call(call, batch);
        // A question cannot hold every member of an option, so the other members are kept here. The
        // understood members of the call are in the call.
        match (told, params) {
            (Told::OurTool, _) => {}
            (Told::Whole, Value::Object(params)) => {
                let mut kept = params.clone();
                kept.shift_remove("sessionId");
                kept.insert("toolCall".into(), json!({"toolCallId": call["toolCallId"]}));
                batch.extended(ORIGIN, PERMISSION, kept.into());
            }
            (Told::Whole | Told::Partly, _) => {
                batch.extended(ORIGIN, PERMISSION, params.clone());
            }
        }
        let id: Box<str> = call["toolCallId"].as_str().unwrap_or_default().into();
        let known = self.calls.get_mut(&id);
        let title: Box<str> = known.as_ref().map(|call| call.title().into()).unwrap_or_default();
        let part = known.and_then(|call| call.await_permission(batch));
        let our_tool = matches!(told, Told::OurTool);
        let mut permission = Permission::read(params, id, part, our_tool);
        // An unchanged title is not repeated.
        if permission.title.is_empty() {
            permission.title = title;
        }
        permission
    }

    /// Keeps the mode and further members of an `elicitation/create`, which a question cannot
    /// hold.
    pub fn elicitation(&mut self, params: &Value, batch: &mut Batch) {
        let more = members_except(params, &["sessionId", "mode", "message"]);
        if more != json!({}) {
            batch.extended(ORIGIN, ELICITATION, more);
        }
    }

    /// Records that a call was not permitted, so that its failure is reported as a denial.
    pub fn denied(&mut self, call: &str) {
        if let Some(call) = self.calls.get_mut(call) {
            call.deny();
        }
    }

    /// Ends the current message, because something happened that the agent does not report,
    /// such as a call of one of our tools. Later text starts a new message.
    pub fn pause(&mut self, batch: &mut Batch) {
        self.close_message(batch);
    }

    /// Returns whether a call has shown this terminal.
    #[must_use]
    pub fn has_shown(&self, terminal: &str) -> bool {
        self.terminals.get(terminal).is_some_and(|known| known.call.is_some() || known.over)
    }

    /// Adds output of a terminal that we run for the agent.
    pub fn terminal_output(&mut self, terminal: &str, text: &str, batch: &mut Batch) {
        let known = self.terminals.entry(terminal.into()).or_insert_with(Terminal::new);
        known.write(text, batch);
    }

    /// Ends the output of a terminal that we run for the agent.
    pub fn terminal_over(&mut self, terminal: &str, batch: &mut Batch) {
        if let Some(known) = self.terminals.get_mut(terminal) {
            known.over = true;
            known.close(batch);
        }
    }

    /// Reads a response to `session/prompt` that is followed by another prompt, and closes
    /// everything that is open.
    pub fn turn(&mut self, response: &Value, batch: &mut Batch) {
        self.close(batch);
        if response["usage"].is_object() {
            let count = |name: &str| response["usage"][name].as_u64();
            let spent = self.spent.get_or_insert_default();
            spent.scope = UsageScope::Run;
            spent.add(&Usage {
                input: count("inputTokens").unwrap_or(0),
                output: count("outputTokens").unwrap_or(0),
                reasoning: count("thoughtTokens"),
                cached_input: count("cachedReadTokens"),
                cache_write: count("cachedWriteTokens"),
                ..Usage::default()
            });
            batch.event(Event::UsageReported(Box::new(spent.clone())));
        }
    }

    /// Reads the response to the last `session/prompt`, and closes everything that is open.
    pub fn end(&mut self, response: &Value, batch: &mut Batch) {
        self.turn(response, batch);
        let members = response.as_object().into_iter().flatten();
        let mut others = members.filter(|(name, value)| {
            !matches!(name.as_str(), "stopReason" | "usage") && !value.is_null()
        });
        if others.next().is_some() {
            batch.extended(ORIGIN, "session/prompt", response.clone());
        }
        batch.stop(stop(response["stopReason"].as_str()), None);
    }

    /// Closes everything that is open. Calls without a final report are interrupted.
    pub fn close(&mut self, batch: &mut Batch) {
        self.close_message(batch);
        for terminal in self.terminals.values_mut() {
            terminal.close(batch);
        }
        for call in self.calls.values_mut() {
            call.give_up(batch);
        }
    }

    /// Extends a message. Returns whether everything in the chunk was understood.
    fn chunk(&mut self, kind: PartKind, update: &Value, batch: &mut Batch) -> bool {
        let content = &update["content"];
        let mut rest = left(update, &["sessionUpdate", "messageId", "content"]);
        let Some(text) = content["text"].as_str().filter(|_| content["type"] == "text") else {
            return kind == PartKind::TEXT && file(update, rest, batch);
        };
        let rest_of_content = left(content, &["type", "text"]);
        if !rest_of_content.is_empty() {
            rest.insert("content".into(), rest_of_content.into());
        }
        if text.is_empty() {
            return rest.is_empty();
        }
        // A chunk in an invalid shape cannot be passed on with the text.
        let is_sound = is_sound_chunk(update);
        if !is_sound {
            rest.clear();
        }
        let message = update["messageId"].as_str();
        let same = self.open.as_ref().is_some_and(|open| {
            open.kind == kind && (message.is_none() || open.message.as_deref() == message)
        });
        if !same {
            self.close_message(batch);
        }
        let open = self.open.get_or_insert_with(|| {
            let part = batch.start(kind.clone());
            if let Some(id) = message {
                batch.annotate(part, Annotation::ProviderId(id.into()));
            }
            Open { kind, message: message.map(Into::into), rest: Map::new(), part }
        });
        if open.rest != rest {
            batch.annotate(open.part, rest_annotation(rest.clone()));
            open.rest = rest;
        }
        batch.delta(open.part, text);
        is_sound
    }

    fn close_message(&mut self, batch: &mut Batch) {
        if let Some(open) = self.open.take() {
            batch.finish(open.part);
        }
    }

    /// Reads a report about a new or a known call.
    fn tool_call(&mut self, update: &Value, batch: &mut Batch) -> Told {
        let Some(id) = update["toolCallId"].as_str() else { return Told::Partly };
        if self.our_tools.is_ours(id, update) {
            self.pause(batch);
            return Told::OurTool;
        }
        if !self.calls.contains_key(id) {
            if self.calls.len() >= CALLS_MAX {
                return Told::Partly;
            }
            // Text after a call is a new message.
            self.close_message(batch);
            self.calls.insert(id.into(), Call::open(id, update, batch));
        }
        let Some(call) = self.calls.get_mut(id) else { return Told::Partly };
        let whole = call.update(update, batch);
        for terminal in content::terminals(update) {
            let known = self.terminals.entry(terminal.into()).or_insert_with(Terminal::new);
            if let Some(part) = call.running_part() {
                known.shown_by(part, batch);
            }
        }
        if call.is_finished() {
            let part = call.part();
            for terminal in self.terminals.values_mut().filter(|it| it.call == Some(part)) {
                terminal.close(batch);
            }
        }
        if whole { Told::Whole } else { Told::Partly }
    }
}

/// The outcome of reading a report about a call.
#[derive(Clone, Copy, Debug)]
enum Told {
    /// All of it is in the batch.
    Whole,
    /// Some of it was not understood.
    Partly,
    /// It is about a call of one of our tools.
    OurTool,
}

/// Bytes of a terminal's output that are kept until a call shows it.
const WAITING_BYTES_MAX: usize = 64 * 1024;

impl Terminal {
    fn new() -> Self {
        Self { call: None, output: None, waiting: String::new(), over: false }
    }

    fn shown_by(&mut self, call: LocalPart, batch: &mut Batch) {
        if self.call.is_none() {
            self.call = Some(call);
            let waiting = std::mem::take(&mut self.waiting);
            self.write(&waiting, batch);
            if self.over {
                self.close(batch);
            }
        }
    }

    fn write(&mut self, text: &str, batch: &mut Batch) {
        let Some(call) = self.call else {
            let room = WAITING_BYTES_MAX.saturating_sub(self.waiting.len());
            self.waiting.push_str(&text[..text.floor_char_boundary(room)]);
            return;
        };
        if text.is_empty() {
            return;
        }
        let part = *self.output.get_or_insert_with(|| {
            batch.start_output(call, wellspring_core::OutputStream::Terminal)
        });
        batch.delta(part, text);
    }

    /// Stops following a terminal. Its later output is dropped.
    fn close(&mut self, batch: &mut Batch) {
        if let Some(part) = self.output.take() {
            batch.finish(part);
        }
        if self.call.is_some() {
            self.call = None;
            self.over = true;
            self.waiting = String::new();
        }
    }
}

/// Further members of the update that opened a part.
fn rest_annotation(rest: Map<String, Value>) -> Annotation {
    let extended = Extended { origin: ORIGIN.into(), name: REST.into(), value: rest.into() };
    Annotation::Other(Box::new(extended))
}

/// Stores further members of an update in an extended event. They belong to the batch's next event.
fn rest_of_next(update: &Value, mut rest: Map<String, Value>, batch: &mut Batch) {
    if !rest.is_empty() {
        rest.insert("sessionUpdate".into(), update["sessionUpdate"].clone());
        batch.extended(ORIGIN, REST, rest.into());
    }
}

/// Whether a chunk has a valid shape.
fn is_sound_chunk(update: &Value) -> bool {
    let id = &update["messageId"];
    is_block(&update["content"]) && has_sound_meta(update) && (id.is_null() || id.is_string())
}

/// An image or audio from the agent.
fn file(update: &Value, mut rest: Map<String, Value>, batch: &mut Batch) -> bool {
    let block = &update["content"];
    let (Some("image" | "audio"), Some(data), Some(media_type)) =
        (block["type"].as_str(), block["data"].as_str(), block["mimeType"].as_str())
    else {
        return false;
    };
    if !is_sound_chunk(update) {
        return false;
    }
    let rest_of_content = left(block, &["type", "data", "mimeType", "uri"]);
    if !rest_of_content.is_empty() {
        rest.insert("content".into(), rest_of_content.into());
    }
    rest_of_next(update, rest, batch);
    batch.event(Event::FileProduced(Box::new(FileProduced {
        media_type: media_type.into(),
        source: MediaSource::Data(data.into()),
        name: block["uri"].as_str().map(Into::into),
    })));
    true
}

fn plan(update: &Value, batch: &mut Batch) -> bool {
    let Some(listed) = update["entries"].as_array() else { return false };
    let is_whole = |it: &Value| {
        left(it, &["content", "status", "priority"]).is_empty() && it["content"].is_string()
    };
    let mut understood = has_sound_meta(update) && listed.iter().all(is_whole);
    let entries = listed.iter().map(|entry| PlanEntry {
        content: entry["content"].as_str().unwrap_or_default().into(),
        status: match entry["status"].as_str() {
            Some("pending") | None => PlanStatus::Pending,
            Some("in_progress") => PlanStatus::InProgress,
            Some("completed") => PlanStatus::Completed,
            Some(_) => {
                understood = false;
                PlanStatus::Pending
            }
        },
        priority: match entry["priority"].as_str() {
            Some("high") => Priority::High,
            Some("medium") | None => Priority::Medium,
            Some("low") => Priority::Low,
            Some(_) => {
                understood = false;
                Priority::Medium
            }
        },
    });
    let entries = entries.collect();
    if understood {
        rest_of_next(update, left(update, &["sessionUpdate", "entries"]), batch);
    }
    batch.event(Event::PlanUpdated { entries });
    understood
}

fn usage_update(update: &Value, batch: &mut Batch) -> bool {
    let (Some(used), Some(size)) = (update["used"].as_u64(), update["size"].as_u64()) else {
        return false;
    };
    if !has_sound_meta(update) {
        return false;
    }
    let cost = update["cost"]["amount"].as_f64().zip(update["cost"]["currency"].as_str());
    if cost.is_none() && !update["cost"].is_null() {
        return false;
    }
    rest_of_next(update, left(update, &["sessionUpdate", "used", "size", "cost"]), batch);
    batch.event(Event::UsageReported(Box::new(Usage {
        scope: UsageScope::Session,
        cost: cost.map(|(amount, currency)| Cost { amount, currency: currency.into() }),
        context: Some(ContextWindow { used, size }),
        ..Usage::default()
    })));
    true
}

fn stop(reason: Option<&str>) -> Stop {
    match reason {
        Some("end_turn") => Stop::EndTurn,
        Some("max_tokens") => Stop::MaxTokens,
        Some("max_turn_requests") => Stop::TurnLimit,
        Some("refusal") => Stop::Refusal,
        Some(other) => Stop::Other(other.into()),
        None => Stop::Other("none given".into()),
    }
}

#[cfg(test)]
pub(super) mod tests;
