//! Encodes one record as AG-UI events.

use serde_json::{Map, Value, json};
use wellspring_core::{Content, Event as Fact, Outline, Record};

use super::super::ids;
use super::super::types::{
    ActivitySnapshot, Custom, Event, Raw, StateDelta, StateSnapshot, TextMessageContent,
    TextMessageEnd, TextMessageStart, TextRole,
};
use super::{Pauses, Scene, questions};
use crate::dialect::Before;

/// One record being encoded.
pub(super) struct Project<'a> {
    pub(super) before: &'a Outline,
    pub(super) record: &'a Record,
    pub(super) emit: &'a mut dyn FnMut(Event),
    /// The run up to the record; `before` is its outline.
    pub(super) run: Before<'a>,
    pub(super) pauses: Pauses,
}

impl Project<'_> {
    /// Emits the events of the record.
    pub(super) fn fact(&mut self) {
        let record = self.record;
        if let Fact::RunStarted(started) = &record.event {
            if self.before.run.is_none() {
                self.run_started(started);
            }
            return;
        }
        let Some(scene) = Scene::new(self.before) else { return };
        // On the wire, a paused run has ended: only another run can follow.
        if self.before.paused.is_some() && self.pauses == Pauses::EndTheRun {
            if let Fact::RunResumed { wire_run, amended, .. } = &record.event {
                self.resumed(&scene, wire_run.as_deref(), amended.as_deref());
            } else if let Fact::RunFinished { outcome } = &record.event {
                self.finished_while_paused(&scene, outcome);
            }
            return;
        }
        match &record.event {
            Fact::PartDelta { part, chunk } => self.grown(&scene, *part, chunk),
            Fact::PartStarted { part, kind } => self.part_started(&scene, *part, kind),
            Fact::PartFinished { part } => {
                if self.before.part(*part).is_some_and(|part| part.open) {
                    scene.close_part(*part, self.emit);
                }
            }
            Fact::PartAnnotated { part, annotation } => self.annotated(&scene, *part, annotation),
            Fact::PartsVoided { parts, .. } => self.voided(&scene, parts),
            Fact::TurnStarted(turn) => self.turn_started(&scene, turn),
            Fact::TurnFinished { stop, usage } => {
                self.turn_finished(&scene, stop, usage.as_deref());
            }
            Fact::ToolQueued { call, place } => self.tool_queued(&scene, *call, *place),
            Fact::ToolStarted { call, mode, arguments } => {
                self.tool_started(&scene, *call, *mode, arguments.as_deref());
            }
            Fact::ToolUpdated { call, update } => self.tool_updated(&scene, *call, update),
            Fact::ToolFinished { call, outcome, result } => {
                self.tool_finished(&scene, *call, *outcome, result);
            }
            Fact::QuestionAsked(question) => {
                let interrupt =
                    scene.interrupt(question.question, &questions::outline(record, question));
                self.custom(&scene, "question", json!(interrupt));
            }
            Fact::QuestionAnswered(answered) => {
                let mut value = json!({
                    "interruptId": ids::question(scene.head.run, answered.question),
                    "answer": answered.answer,
                });
                if let Some(by) = &answered.by {
                    value["by"] = json!(by);
                }
                self.custom(&scene, "answer", value);
            }
            Fact::AgentStarted { parent, call, name, .. } => {
                if !self.before.agents.contains_key(&record.agent) && !record.agent.is_root() {
                    scene.start_agent(record.agent, *parent, *call, name, self.emit);
                }
            }
            Fact::AgentFinished { outcome } => {
                if self.before.agents.contains_key(&record.agent) && !record.agent.is_root() {
                    scene.close_step(record.agent, self.emit);
                    self.agent_finished(&scene, outcome);
                }
            }
            Fact::PlanUpdated { entries } => {
                let content = Map::from_iter([("entries".to_owned(), json!(entries))]);
                self.say(ActivitySnapshot {
                    message_id: ids::plan(scene.head.run),
                    activity_type: ids::PLAN.into(),
                    content,
                    ..ActivitySnapshot::default()
                });
            }
            Fact::StateSet { state } => self.say(StateSnapshot {
                snapshot: (**state).clone(),
                subagent_run_id: scene.tag(record.agent),
                ..StateSnapshot::default()
            }),
            Fact::StatePatched { patch } => {
                if let Some(delta) = valid_patch(patch) {
                    self.say(StateDelta {
                        delta,
                        subagent_run_id: scene.tag(record.agent),
                        ..StateDelta::default()
                    });
                }
            }
            Fact::SourceCited(source) => self.custom(&scene, "source", json!(source)),
            Fact::FileProduced(file) => self.custom(&scene, "file", json!(file)),
            Fact::UsageReported(usage) => self.custom(&scene, "usage", json!(usage)),
            Fact::InputAccepted { content, .. } if content.is_empty() => {}
            Fact::InputAccepted { inbox, content, .. } => {
                let id = ids::steering(scene.head.run, *inbox);
                self.user_words(id, content);
            }
            Fact::InputApplied { inbox } => {
                let id = ids::steering(scene.head.run, *inbox);
                self.custom(&scene, "input_applied", json!({"messageId": id}));
            }
            Fact::ResultReady { value } => self.custom(&scene, "result", (**value).clone()),
            Fact::Extended(extended) => self.say(Raw {
                event: json!({"name": extended.name, "value": extended.value}),
                source: Some(extended.origin.clone()),
                subagent_run_id: scene.tag(record.agent),
                ..Raw::default()
            }),
            Fact::RunPaused { waits } => {
                if self.pauses == Pauses::EndTheRun {
                    self.paused(&scene, waits);
                }
            }
            Fact::RunFinished { outcome } => self.finished(&scene, outcome),
            // A run whose pause was not shown is not resumed. Owners and attach handles are
            // internal.
            Fact::RunStarted(_)
            | Fact::RunResumed { .. }
            | Fact::RunAdopted { .. }
            | Fact::Attached { .. } => {}
        }
    }

    fn user_words(&mut self, id: Box<str>, content: &[Content]) {
        let words = words(content);
        if words.is_empty() {
            return;
        }
        self.say(TextMessageStart {
            message_id: id.clone(),
            role: Some(TextRole::User),
            ..TextMessageStart::default()
        });
        self.say(TextMessageContent {
            message_id: id.clone(),
            delta: words.into(),
            ..TextMessageContent::default()
        });
        self.say(TextMessageEnd { message_id: id, ..TextMessageEnd::default() });
    }

    pub(super) fn custom(&mut self, scene: &Scene<'_>, name: &str, value: Value) {
        self.say(Custom {
            name: name.into(),
            value,
            subagent_run_id: scene.tag(self.record.agent),
            ..Custom::default()
        });
    }

    pub(super) fn say(&mut self, event: impl Into<Event>) {
        (self.emit)(event.into());
    }
}

/// The text of a user's content, one line per block.
pub(in super::super) fn words(content: &[Content]) -> String {
    content.iter().filter_map(Content::as_text).collect::<Vec<_>>().join("\n")
}

/// The operations of a valid JSON patch: clients fail a run if a patch is invalid.
fn valid_patch(patch: &Value) -> Option<Vec<Value>> {
    let operations = patch.as_array()?;
    let is_pointer = |value: &Value| {
        value.as_str().is_some_and(|pointer| {
            let escapes = pointer.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
            (pointer.is_empty() || pointer.starts_with('/')) && escapes
        })
    };
    let is_valid = |operation: &Value| {
        let has = |name: &str| operation.get(name).is_some();
        let op = operation.get("op").and_then(Value::as_str);
        let fits = match op {
            Some("add" | "replace" | "test") => has("value"),
            Some("move" | "copy") => operation.get("from").is_some_and(is_pointer),
            Some("remove") => true,
            _ => false,
        };
        fits && operation.get("path").is_some_and(is_pointer)
    };
    operations.iter().all(is_valid).then(|| operations.clone())
}
