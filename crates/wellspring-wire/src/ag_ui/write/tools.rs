//! Tools: their place in the queue, their progress and their results.

use serde_json::{Map, Value, json};
use wellspring_core::{
    ContentChange, PartId, ToolContent, ToolMode, ToolOutcome, ToolResult, ToolUpdate,
};

use super::super::ids;
use super::super::types::{ActivityDelta, ActivitySnapshot, MessageContent, ToolCallResult};
use super::record::Project;
use super::{Scene, result_metadata};

impl Project<'_> {
    pub(super) fn tool_queued(&mut self, scene: &Scene<'_>, call: PartId, place: u32) {
        if scene.call(call).is_some() {
            let value = json!({"toolCallId": scene.id(call), "place": place});
            self.custom(scene, "tool_queued", value);
        }
    }

    pub(super) fn tool_started(
        &mut self,
        scene: &Scene<'_>,
        call: PartId,
        mode: ToolMode,
        edited: Option<&Value>,
    ) {
        if scene.call(call).is_some() {
            let mut value = json!({"toolCallId": scene.id(call), "mode": mode});
            if let Some(edited) = edited {
                value["arguments"] = edited.clone();
            }
            self.custom(scene, "tool_started", value);
        }
    }

    pub(super) fn tool_updated(&mut self, scene: &Scene<'_>, call: PartId, update: &ToolUpdate) {
        let add = |path: &str, value: Value| json!({"op": "add", "path": path, "value": value});
        let mut patch = Vec::new();
        if let Some(title) = &update.title {
            patch.push(add("/title", json!(title)));
        }
        if !update.locations.is_empty() {
            patch.push(add("/locations", json!(update.locations)));
        }
        match &update.content {
            Some(ContentChange::Append(more)) => {
                patch.extend(more.iter().map(|content| add("/content/-", json!(content))));
            }
            Some(ContentChange::Replace(all)) => patch.push(add("/content", json!(all))),
            None => {}
        }
        if let Some(data) = &update.data {
            patch.push(add("/data", data.clone()));
        }
        // An empty update is not sent, so that clients that join later have the same progress.
        if !patch.is_empty() {
            self.progress(scene, call, patch);
        }
    }

    pub(super) fn tool_finished(
        &mut self,
        scene: &Scene<'_>,
        call: PartId,
        outcome: ToolOutcome,
        result: &ToolResult,
    ) {
        let Some(outline) = scene.call(call) else { return };
        if self.before.part(call).is_some_and(|part| part.open) {
            scene.close_part(call, self.emit);
        }
        self.say(ToolCallResult {
            message_id: ids::result(scene.head.run, call),
            tool_call_id: scene.id(call),
            content: MessageContent::Text(result.output_text().into_owned()),
            role: None,
            subagent_run_id: scene.tag(outline.agent),
            metadata: result_metadata(outcome, result),
            ..ToolCallResult::default()
        });
    }

    /// Patches a call's progress, which is created if necessary.
    pub(super) fn progress(&mut self, scene: &Scene<'_>, call: PartId, patch: Vec<Value>) {
        let Some(outline) = scene.call(call) else { return };
        self.say(ActivitySnapshot {
            message_id: ids::progress(scene.head.run, call),
            activity_type: ids::TOOL_PROGRESS.into(),
            content: progress_start(&scene.id(call)),
            replace: Some(false),
            subagent_run_id: scene.tag(outline.agent),
            ..ActivitySnapshot::default()
        });
        if !patch.is_empty() {
            self.patch_progress(scene, call, patch);
        }
    }

    pub(super) fn patch_progress(&mut self, scene: &Scene<'_>, call: PartId, patch: Vec<Value>) {
        let Some(outline) = scene.call(call) else { return };
        self.say(ActivityDelta {
            message_id: ids::progress(scene.head.run, call),
            activity_type: ids::TOOL_PROGRESS.into(),
            patch,
            subagent_run_id: scene.tag(outline.agent),
            ..ActivityDelta::default()
        });
    }
}

/// The initial progress of a call.
pub(in super::super) fn progress_start(call: &str) -> Map<String, Value> {
    Map::from_iter([
        ("toolCallId".to_owned(), json!(call)),
        ("content".to_owned(), json!(<[ToolContent; 0]>::default())),
        ("output".to_owned(), json!([])),
    ])
}
