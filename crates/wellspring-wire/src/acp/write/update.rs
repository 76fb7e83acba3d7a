//! The updates that are not just text, as serde writes them.

use std::borrow::Cow;

use serde::{Serialize, Serializer};
use serde_json::Value;
use wellspring_core::{Cost, PlanStatus, Priority, ToolKind, WirePartId};

#[derive(Serialize)]
#[serde(tag = "sessionUpdate", rename_all = "snake_case")]
pub(super) enum Said<'a> {
    ToolCall {
        #[serde(rename = "toolCallId", serialize_with = "shown")]
        id: WirePartId,
        title: &'a str,
        name: &'a str,
        kind: &'static str,
        status: Status,
    },
    ToolCallUpdate(ToolCallUpdate<'a>),
    Plan {
        entries: Vec<PlanEntry<'a>>,
    },
    UsageUpdate(Window<'a>),
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolCallUpdate<'a> {
    #[serde(rename = "toolCallId", serialize_with = "shown_option")]
    pub(super) id: Option<WirePartId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) title: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) status: Option<Status>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) content: Option<Vec<Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) locations: Option<Vec<Location<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) raw_input: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) raw_output: Option<&'a Value>,
}

#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Status {
    Pending,
    InProgress,
    Completed,
    Failed,
}

#[derive(Serialize)]
pub(super) struct Location<'a> {
    pub(super) path: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) line: Option<u32>,
}

#[derive(Serialize)]
pub(super) struct PlanEntry<'a> {
    content: &'a str,
    priority: &'static str,
    status: &'static str,
}

#[derive(Serialize)]
pub(super) struct Window<'a> {
    pub(super) used: u64,
    pub(super) size: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cost: Option<&'a Cost>,
}

impl<'a> From<&'a wellspring_core::PlanEntry> for PlanEntry<'a> {
    fn from(entry: &'a wellspring_core::PlanEntry) -> Self {
        Self {
            content: &entry.content,
            priority: match entry.priority {
                Priority::High => "high",
                Priority::Medium => "medium",
                Priority::Low => "low",
            },
            status: match entry.status {
                PlanStatus::Pending => "pending",
                PlanStatus::InProgress => "in_progress",
                PlanStatus::Completed => "completed",
            },
        }
    }
}

pub(super) fn kind(kind: ToolKind) -> &'static str {
    match kind {
        ToolKind::Read => "read",
        ToolKind::Edit => "edit",
        ToolKind::Delete => "delete",
        ToolKind::Move => "move",
        ToolKind::Search => "search",
        ToolKind::Execute => "execute",
        ToolKind::Think => "think",
        ToolKind::Fetch => "fetch",
        ToolKind::SwitchMode => "switch_mode",
        ToolKind::Other => "other",
    }
}

fn shown<S: Serializer>(id: &WirePartId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(id)
}

fn shown_option<S: Serializer>(id: &Option<WirePartId>, serializer: S) -> Result<S::Ok, S::Error> {
    match id {
        Some(id) => serializer.collect_str(id),
        None => serializer.serialize_none(),
    }
}
