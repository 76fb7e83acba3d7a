//! Parts: opened, extended, annotated and voided.

use serde_json::{Map, json};
use wellspring_core::{Annotation, PartId, PartKind, PartShape};

use super::super::ids;
use super::super::messages::{Texts, conversation_messages};
use super::super::types::{
    Custom, EncryptedSubtype, Message, MessagesSnapshot, Raw, ReasoningEncryptedValue,
    ReasoningMessage, ReasoningMessageContent, TextMessageContent, ToolCallArgs,
};
use super::record::Project;
use super::{Scene, cut_off_json};

impl Project<'_> {
    pub(super) fn part_started(&mut self, scene: &Scene<'_>, part: PartId, kind: &PartKind) {
        let agent = self.record.agent;
        // An invalid log may open a part twice; the wire must not.
        if self.before.part(part).is_some_and(|part| part.open) {
            scene.close_part(part, self.emit);
        }
        match kind {
            PartKind::Text { role } => scene.open_text(part, agent, *role, self.emit),
            PartKind::Thought => scene.open_thought(part, agent, self.emit),
            PartKind::ToolCall(tool) => {
                let turn = self.before.agents.get(&agent).filter(|agent| agent.in_turn);
                let turn = turn.map_or(0, |agent| agent.turn);
                scene.open_call(part, agent, turn, tool, self.emit);
            }
            PartKind::Output { call, .. } => self.progress(scene, *call, Vec::new()),
            PartKind::Opaque(opaque) => self.say(Raw {
                event: opaque.raw.clone(),
                source: Some(opaque.origin.clone()),
                subagent_run_id: scene.tag(agent),
                ..Raw::default()
            }),
        }
    }

    pub(super) fn grown(&mut self, scene: &Scene<'_>, part: PartId, chunk: &str) {
        let Some(outline) = self.before.part(part).filter(|part| part.open) else { return };
        let tag = scene.tag(outline.agent);
        let id = scene.id(part);
        match outline.shape {
            PartShape::Text(_) => self.say(TextMessageContent {
                message_id: id,
                delta: chunk.into(),
                subagent_run_id: tag,
                ..TextMessageContent::default()
            }),
            PartShape::Thought => self.say(ReasoningMessageContent {
                message_id: id,
                delta: chunk.into(),
                subagent_run_id: tag,
                ..ReasoningMessageContent::default()
            }),
            PartShape::Call if scene.call(part).is_some() => self.say(ToolCallArgs {
                tool_call_id: id,
                delta: chunk.into(),
                subagent_run_id: tag,
                ..ToolCallArgs::default()
            }),
            PartShape::Output(call, stream) => {
                let piece = json!({"stream": stream, "text": chunk});
                let patch = vec![json!({"op": "add", "path": "/output/-", "value": piece})];
                self.patch_progress(scene, call, patch);
            }
            PartShape::Call | PartShape::Opaque => {}
        }
    }

    pub(super) fn annotated(&mut self, scene: &Scene<'_>, part: PartId, annotation: &Annotation) {
        let Some(outline) = self.before.part(part) else { return };
        let subtype = match outline.shape {
            PartShape::Text(_) | PartShape::Thought => EncryptedSubtype::Message,
            // Once a call has its result, the outline no longer says whether it was shown. A
            // client that was not shown the call ignores this.
            PartShape::Call => EncryptedSubtype::ToolCall,
            PartShape::Output(..) | PartShape::Opaque => return,
        };
        match annotation {
            Annotation::Signature(value) | Annotation::Encrypted(value) => {
                self.say(ReasoningEncryptedValue {
                    subtype,
                    entity_id: scene.id(part),
                    encrypted_value: value.clone(),
                    subagent_run_id: scene.tag(outline.agent),
                    ..ReasoningEncryptedValue::default()
                });
            }
            Annotation::ProviderId(_)
            | Annotation::Citation(_)
            | Annotation::Preamble
            | Annotation::Other(_) => {
                let value = json!({"entityId": scene.id(part), "annotation": annotation});
                self.say(Custom {
                    name: "annotation".into(),
                    value,
                    subagent_run_id: scene.tag(outline.agent),
                    ..Custom::default()
                });
            }
        }
    }

    pub(super) fn voided(&mut self, scene: &Scene<'_>, parts: &[PartId]) {
        let mut shown = false;
        let mut thoughts = Vec::new();
        for part in parts {
            let Some(outline) = self.before.part(*part) else { continue };
            shown |= match outline.shape {
                PartShape::Text(_) | PartShape::Thought | PartShape::Call => true,
                PartShape::Output(..) | PartShape::Opaque => false,
            };
            if outline.shape == PartShape::Thought {
                thoughts.push(ReasoningMessage {
                    id: scene.id(*part),
                    subagent_run_id: scene.tag(outline.agent),
                    ..ReasoningMessage::default()
                });
            }
            if outline.open {
                self.complete(scene, *part);
                scene.close_part(*part, self.emit);
            }
        }
        if shown {
            self.snapshot(&thoughts);
        }
    }

    /// Completes the arguments of a voided call, so that clients can parse them.
    fn complete(&mut self, scene: &Scene<'_>, part: PartId) {
        let Some(call) = scene.call(part) else { return };
        let rest = cut_off_json::completion(&call.arguments);
        if !call.arguments.is_empty() && !rest.is_empty() {
            self.say(ToolCallArgs {
                tool_call_id: scene.id(part),
                delta: rest.into(),
                subagent_run_id: scene.tag(call.agent),
                ..ToolCallArgs::default()
            });
        }
    }

    /// Emits the whole conversation, without the voided parts.
    pub(super) fn snapshot(&mut self, voided: &[ReasoningMessage]) {
        let Some((history, before)) = self.run.history().zip(self.run.transcript()) else {
            return;
        };
        let mut current = before.clone();
        current.apply(self.record);
        let mut messages = conversation_messages(history, &current, Texts::Whole);
        // Clients keep their reasoning messages if a snapshot has none.
        if !messages.iter().any(|message| matches!(message, Message::Reasoning(_))) {
            messages.extend(voided.iter().cloned().map(Message::Reasoning));
        }
        self.say(messages_snapshot(messages));
    }
}

/// A snapshot of a conversation that also removes those of our activities that it does not
/// contain.
pub(in super::super) fn messages_snapshot(messages: Vec<Message>) -> MessagesSnapshot {
    let owned = json!({"authoritativeActivityTypes": [ids::PLAN, ids::TOOL_PROGRESS]});
    let metadata = Map::from_iter([("@ag-ui/client".to_owned(), owned)]);
    MessagesSnapshot { messages, metadata: Some(metadata), ..MessagesSnapshot::default() }
}
