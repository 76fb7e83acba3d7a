//! How a client attaches to a running run. The protocol cannot resume, so the client gets a run
//! that starts now and contains everything so far.

use serde_json::json;
use wellspring_core::{Outline, PartId, PartKind, RunsOn, Transcript};

use super::messages::{Texts, conversation_messages, encrypted_value};
use super::types::{
    Custom, EncryptedSubtype, Event, ReasoningEncryptedValue, ReasoningMessageContent,
    StateSnapshot, TextMessageContent, ToolCallArgs, ToolCallEnd,
};
use super::write::{Pauses, Scene, messages_snapshot, terminal};

/// The events for a client that attaches at this point: RUN_STARTED, MESSAGES_SNAPSHOT with
/// everything that is complete, STATE_SNAPSHOT, and STARTs for everything that is open, with
/// its text so far. If the run has finished, or is paused and `pauses` shows that, RUN_FINISHED
/// follows at once.
pub(super) fn join(history: &[Transcript], transcript: &Transcript, pauses: Pauses) -> Vec<Event> {
    let Some(scene) = Scene::new(&transcript.outline) else { return Vec::new() };
    let mut events: Vec<Event> = vec![scene.run_started().into()];
    let paused = transcript.outline.paused.as_ref().filter(|_| pauses == Pauses::EndTheRun);
    let over = transcript.outcome.is_some() || paused.is_some();
    let texts = if over { Texts::Whole } else { Texts::Complete };
    events.push(messages_snapshot(conversation_messages(history, transcript, texts)).into());
    if let Some(state) = &transcript.state {
        let snapshot = StateSnapshot { snapshot: state.clone(), ..StateSnapshot::default() };
        events.push(snapshot.into());
    }
    if let Some(outcome) = &transcript.outcome {
        events.push(terminal(&scene, Some(transcript), outcome));
    } else if let Some(waits) = paused {
        events.push(scene.paused(waits, scene.interrupts(waits)));
    } else {
        scene.open_agents(&mut |event| events.push(event));
        for (id, part) in &transcript.outline.parts {
            if part.open {
                open_part(&scene, transcript, *id, &mut events);
            }
        }
        if pauses == Pauses::Invisible {
            waiting(&scene, &mut events);
        }
    }
    events
}

/// Repeats what the client has to do: a client that reconnects may not have done it.
fn waiting(scene: &Scene<'_>, events: &mut Vec<Event>) {
    for (id, call) in &scene.outline.calls {
        let part = scene.outline.part(*id);
        let is_open = part.is_some_and(|part| part.open);
        if is_open || call.tool.runs_on != RunsOn::Client || scene.call(*id).is_none() {
            continue;
        }
        let turn = part.map_or(0, |part| part.turn);
        scene.open_call(*id, call.agent, turn, &call.tool, &mut |event| events.push(event));
        let (name, tag) = (scene.id(*id), scene.tag(call.agent));
        if !call.arguments.is_empty() {
            let arguments = ToolCallArgs {
                tool_call_id: name.clone(),
                delta: call.arguments.as_str().into(),
                subagent_run_id: tag.clone(),
                ..ToolCallArgs::default()
            };
            events.push(arguments.into());
        }
        let end =
            ToolCallEnd { tool_call_id: name, subagent_run_id: tag, ..ToolCallEnd::default() };
        events.push(end.into());
    }
    for (id, question) in &scene.outline.questions {
        let custom = Custom {
            name: "question".into(),
            value: json!(scene.interrupt(*id, question)),
            subagent_run_id: scene.tag(question.agent),
            ..Custom::default()
        };
        events.push(custom.into());
    }
}

/// The end of the wire's run when a question blocks our run, which continues: clients answer
/// with their next request. Empty if no question blocks the run.
pub(super) fn interrupted(outline: &Outline) -> Vec<Event> {
    let waits = outline.blocking_questions();
    let mut events = Vec::new();
    if let (Some(scene), false) = (Scene::new(outline), waits.is_empty()) {
        let interrupts = scene.interrupts(&waits);
        scene.close_all(&interrupts, &mut |event| events.push(event));
        events.push(scene.paused(&waits, interrupts));
    }
    events
}

/// Opens a part and sends its text so far.
fn open_part(scene: &Scene<'_>, transcript: &Transcript, id: PartId, events: &mut Vec<Event>) {
    let Some(part) = transcript.parts.get(&id) else { return };
    let (name, tag) = (scene.id(id), scene.tag(part.agent));
    let delta: Box<str> = part.text.as_str().into();
    let content: Event = match &part.kind {
        PartKind::Text { role } => {
            scene.open_text(id, part.agent, *role, &mut |event| events.push(event));
            TextMessageContent {
                message_id: name.clone(),
                delta,
                subagent_run_id: tag.clone(),
                ..TextMessageContent::default()
            }
            .into()
        }
        PartKind::Thought => {
            scene.open_thought(id, part.agent, &mut |event| events.push(event));
            ReasoningMessageContent {
                message_id: name.clone(),
                delta,
                subagent_run_id: tag.clone(),
                ..ReasoningMessageContent::default()
            }
            .into()
        }
        PartKind::ToolCall(tool) => {
            if scene.call(id).is_none() {
                return;
            }
            let turn = scene.outline.part(id).map_or(0, |part| part.turn);
            scene.open_call(id, part.agent, turn, tool, &mut |event| events.push(event));
            ToolCallArgs {
                tool_call_id: name.clone(),
                delta,
                subagent_run_id: tag.clone(),
                ..ToolCallArgs::default()
            }
            .into()
        }
        PartKind::Output { .. } | PartKind::Opaque(_) => return,
    };
    if !part.text.is_empty() {
        events.push(content);
    }
    let is_call = matches!(part.kind, PartKind::ToolCall(_));
    let subtype = if is_call { EncryptedSubtype::ToolCall } else { EncryptedSubtype::Message };
    if let Some(value) = part.annotations.iter().rev().find_map(encrypted_value) {
        events.push(
            ReasoningEncryptedValue {
                subtype,
                entity_id: name,
                encrypted_value: value.into(),
                subagent_run_id: tag,
                ..ReasoningEncryptedValue::default()
            }
            .into(),
        );
    }
}
