//! A run as AG-UI messages.

use std::collections::BTreeMap;

use serde_json::json;
use wellspring_core::{
    AgentNo, Annotation, CallProgress, Content, Item, MediaSource, Part, PartId, PartKind,
    RETURN_RESULT, Role, RunId, ToolCall as Tool, Transcript,
};

use super::ids;
use super::types::{
    ActivityMessage, AssistantMessage, FunctionCall, Message, MessageContent, MessagePart,
    PartMedia, PartSource, ReasoningMessage, ToolCall, ToolMessage, UserMessage,
};
use super::write::{progress_start, result_metadata, tool_metadata, words};

/// A run as AG-UI messages, in the order in which they started: input, text, thoughts, calls
/// and results, and the activities that show plan and progress. Open messages hold their text
/// so far.
///
/// The history of a thread is the messages of its runs, one after the other.
#[must_use]
pub fn messages(transcript: &Transcript) -> Vec<Message> {
    build(transcript, Texts::Whole)
}

/// How open messages are written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Texts {
    /// With their text so far.
    Whole,
    /// They are left out, because they are about to be opened again with their text. An empty
    /// one is kept as a placeholder if a complete message follows.
    Complete,
}

/// The messages of a thread.
pub(super) fn conversation_messages(
    history: &[Transcript],
    current: &Transcript,
    texts: Texts,
) -> Vec<Message> {
    let mut all: Vec<Message> = history.iter().flat_map(messages).collect();
    all.extend(build(current, texts));
    all
}

/// A message under construction, with the messages that belong directly after it.
struct Slot {
    message: Message,
    /// Whether its text is still growing.
    open: bool,
    /// The calls in it whose arguments are still growing, by index.
    open_calls: Vec<usize>,
    results: Vec<Message>,
    activities: Vec<ActivityMessage>,
    /// Whether the message is left out.
    skipped: bool,
}

impl Slot {
    fn new(message: Message, open: bool) -> Self {
        let (open_calls, results, activities) = (Vec::new(), Vec::new(), Vec::new());
        Self { message, open, open_calls, results, activities, skipped: false }
    }
}

fn build(transcript: &Transcript, texts: Texts) -> Vec<Message> {
    let Some(started) = &transcript.started else { return Vec::new() };
    let run = started.run;
    let mut all = Vec::new();
    if !started.request.input.is_empty() {
        let name = started.request.wire.as_ref().and_then(|names| names.input.clone());
        all.push(user(name.unwrap_or_else(|| ids::input(run)), &started.request.input));
    }
    for (inbox, content) in &transcript.inputs {
        if !words(content).is_empty() {
            all.push(user(ids::steering(run, *inbox), content));
        }
    }
    if !transcript.plan.is_empty() {
        let entries = [("entries".to_owned(), json!(transcript.plan))];
        all.push(Message::Activity(ActivityMessage {
            id: ids::plan(run),
            activity_type: ids::PLAN.into(),
            content: entries.into_iter().collect(),
            ..ActivityMessage::default()
        }));
    }
    let mut slots = slots(transcript, run);
    if texts == Texts::Complete {
        hollow(&mut slots);
    }
    for slot in slots {
        all.extend((!slot.skipped).then_some(slot.message));
        all.extend(slot.results);
        all.extend(slot.activities.into_iter().map(Message::Activity));
    }
    all
}

fn slots(transcript: &Transcript, run: RunId) -> Vec<Slot> {
    let turns = turns(transcript);
    let mut slots: Vec<Slot> = Vec::new();
    let mut places: BTreeMap<PartId, usize> = BTreeMap::new();
    // The latest text of each agent and turn: the message that holds the calls after it.
    let mut said: BTreeMap<(AgentNo, u32), usize> = BTreeMap::new();
    for (id, part) in &transcript.parts {
        match &part.kind {
            PartKind::Text { role } => {
                if let (Role::Assistant, Some(turn)) = (role, turns.get(id)) {
                    said.insert((part.agent, *turn), slots.len());
                }
                slots.push(Slot::new(text(run, *id, part, *role), !part.finished));
            }
            PartKind::Thought => {
                let message = Message::Reasoning(ReasoningMessage {
                    id: ids::part(run, *id),
                    content: part.text.clone(),
                    encrypted_value: encrypted(part),
                    subagent_run_id: tag(run, part.agent),
                    ..ReasoningMessage::default()
                });
                slots.push(Slot::new(message, !part.finished));
            }
            PartKind::ToolCall(tool) if &*tool.name != RETURN_RESULT => {
                let place = turns.get(id).and_then(|turn| said.get(&(part.agent, *turn)).copied());
                let place = place.unwrap_or_else(|| {
                    let own = AssistantMessage {
                        id: ids::part(run, *id),
                        subagent_run_id: tag(run, part.agent),
                        ..AssistantMessage::default()
                    };
                    slots.push(Slot::new(Message::Assistant(own), false));
                    slots.len() - 1
                });
                places.insert(*id, place);
                call(run, *id, part, tool, &mut slots[place]);
            }
            PartKind::Output { call, stream } => {
                let Some(place) = places.get(call) else { continue };
                let activity = progress(run, *call, part.agent, &mut slots[*place]);
                if let (Some(output), false) =
                    (activity.content.get_mut("output"), part.text.is_empty())
                    && let Some(output) = output.as_array_mut()
                {
                    output.push(json!({"stream": stream, "text": part.text}));
                }
            }
            PartKind::ToolCall(_) | PartKind::Opaque(_) => {}
        }
    }
    slots
}

/// The turn of every part that belongs to one.
fn turns(transcript: &Transcript) -> BTreeMap<PartId, u32> {
    let items = transcript.agents.values().flat_map(|agent| &agent.items);
    let turns = items.filter_map(|item| match item {
        Item::Turn(turn) => Some(turn.parts.iter().map(|part| (*part, turn.turn))),
        Item::Part(_) | Item::Input(_) => None,
    });
    turns.flatten().collect()
}

fn text(run: RunId, id: PartId, part: &Part, role: Role) -> Message {
    let (id, subagent_run_id) = (ids::part(run, id), tag(run, part.agent));
    let encrypted_value = encrypted(part);
    match role {
        Role::Assistant => Message::Assistant(AssistantMessage {
            id,
            content: Some(part.text.clone()),
            encrypted_value,
            subagent_run_id,
            ..AssistantMessage::default()
        }),
        Role::User => Message::User(UserMessage {
            id,
            content: MessageContent::Text(part.text.clone()),
            encrypted_value,
            subagent_run_id,
            ..UserMessage::default()
        }),
    }
}

fn call(run: RunId, id: PartId, part: &Part, tool: &Tool, slot: &mut Slot) {
    let wire_id = ids::part(run, id);
    if let Message::Assistant(message) = &mut slot.message {
        let called = part.call.as_ref().is_some_and(|call| call.finished.is_some());
        if !part.finished && !called {
            slot.open_calls.push(message.tool_calls.len());
        }
        message.tool_calls.push(ToolCall {
            id: wire_id.clone(),
            kind: "function".into(),
            function: FunctionCall { name: tool.name.clone(), arguments: part.text.clone() },
            encrypted_value: encrypted(part),
            metadata: tool_metadata(tool),
        });
    }
    let Some(called) = &part.call else { return };
    if shows_progress(called) {
        let activity = progress(run, id, part.agent, slot);
        let mut set = |name: &str, value| activity.content.insert(name.to_owned(), value);
        if let Some(title) = &called.title {
            set("title", json!(title));
        }
        if !called.locations.is_empty() {
            set("locations", json!(called.locations));
        }
        if let Some(data) = &called.data {
            set("data", data.clone());
        }
        set("content", json!(called.content));
    }
    if let Some((outcome, result)) = &called.finished {
        slot.results.push(Message::Tool(ToolMessage {
            id: ids::result(run, id),
            content: MessageContent::Text(result.output_text().into_owned()),
            tool_call_id: wire_id,
            metadata: result_metadata(*outcome, result),
            subagent_run_id: tag(run, part.agent),
            ..ToolMessage::default()
        }));
    }
}

fn shows_progress(call: &CallProgress) -> bool {
    call.title.is_some()
        || !call.locations.is_empty()
        || !call.content.is_empty()
        || call.data.is_some()
}

/// The activity that shows a call's progress, created if necessary.
fn progress(run: RunId, call: PartId, agent: AgentNo, slot: &mut Slot) -> &mut ActivityMessage {
    let id = ids::progress(run, call);
    let place = slot.activities.iter().position(|activity| activity.id == id);
    let place = place.unwrap_or_else(|| {
        slot.activities.push(ActivityMessage {
            id,
            activity_type: ids::TOOL_PROGRESS.into(),
            content: progress_start(&ids::part(run, call)),
            metadata: None,
            subagent_run_id: tag(run, agent),
        });
        slot.activities.len() - 1
    });
    &mut slot.activities[place]
}

/// Empties open messages, and drops those that no complete message follows.
fn hollow(slots: &mut [Slot]) {
    let mut followed = false;
    for slot in slots.iter_mut().rev() {
        if let Message::Assistant(message) = &mut slot.message {
            let calls = &mut message.tool_calls;
            while !followed && slot.open_calls.last() == calls.len().checked_sub(1).as_ref() {
                let Some(_) = slot.open_calls.pop() else { break };
                calls.pop();
            }
            for open in &slot.open_calls {
                message.tool_calls[*open].function.arguments.clear();
            }
        }
        if slot.open {
            match &mut slot.message {
                Message::Assistant(message) => message.content = Some(String::new()),
                Message::User(message) => message.content = MessageContent::default(),
                Message::Reasoning(message) => message.content.clear(),
                Message::Developer(_)
                | Message::System(_)
                | Message::Tool(_)
                | Message::Activity(_) => {}
            }
        }
        let (holds_calls, says_nothing) = match &slot.message {
            Message::Assistant(message) => {
                (!message.tool_calls.is_empty(), slot.open || message.content.is_none())
            }
            Message::User(_)
            | Message::Reasoning(_)
            | Message::Developer(_)
            | Message::System(_)
            | Message::Tool(_)
            | Message::Activity(_) => (false, slot.open),
        };
        followed |= holds_calls || !says_nothing;
        slot.skipped = !followed;
    }
}

/// Encrypted data of a part. The wire holds only one value per part, so the latest is used.
fn encrypted(part: &Part) -> Option<Box<str>> {
    part.annotations.iter().rev().find_map(encrypted_value).map(Into::into)
}

/// The value of an annotation with encrypted data.
pub(super) fn encrypted_value(annotation: &Annotation) -> Option<&str> {
    match annotation {
        Annotation::Signature(value) | Annotation::Encrypted(value) => Some(value),
        Annotation::ProviderId(_)
        | Annotation::Citation(_)
        | Annotation::Preamble
        | Annotation::Other(_) => None,
    }
}

fn tag(run: RunId, agent: AgentNo) -> Option<Box<str>> {
    (!agent.is_root()).then(|| ids::agent(run, agent))
}

/// The content of a user message.
pub(super) fn user(id: Box<str>, content: &[Content]) -> Message {
    let content = match content {
        [Content::Text(text)] => MessageContent::Text(text.to_string()),
        _ => MessageContent::Parts(content.iter().map(message_part).collect()),
    };
    Message::User(UserMessage { id, content, ..UserMessage::default() })
}

fn message_part(content: &Content) -> MessagePart {
    let text = |text: &str| MessagePart::Text { text: text.to_owned(), id: None, metadata: None };
    match content {
        Content::Text(words) => text(words),
        Content::Resource { text: words, .. } => text(words),
        Content::Link { uri, name, .. } => match name {
            Some(name) => text(&format!("[{name}]({uri})")),
            None => text(uri),
        },
        Content::Media { media_type, source, name } => {
            let source = match source {
                MediaSource::Data(value) => {
                    PartSource::Data { value: value.clone(), mime_type: media_type.clone() }
                }
                MediaSource::Url(value) => {
                    PartSource::Url { value: value.clone(), mime_type: Some(media_type.clone()) }
                }
            };
            let metadata = name.as_ref().map(|name| json!({"filename": name}));
            let media = PartMedia { source, id: None, metadata };
            match media_type.split('/').next() {
                Some("image") => MessagePart::Image(media),
                Some("audio") => MessagePart::Audio(media),
                Some("video") => MessagePart::Video(media),
                _ => MessagePart::Document(media),
            }
        }
    }
}
