//! `update_plan`: shows the agent's plan.

use schemars::JsonSchema;
use serde::Deserialize;
use wellspring_core::{Context, PlanEntry, PlanStatus, Priority, ToolError, ToolKind};

use super::function::{FunctionTool, function};

/// Entries of a plan: more than anyone reads, few enough to send with every change.
pub const PLAN_ENTRIES_MAX: usize = 100;

/// A tool by which the model shows its plan and its progress.
///
/// ```
/// use wellspring_core::Tool as _;
///
/// assert_eq!(&*wellspring_engine::tools::update_plan().spec().name, "update_plan");
/// ```
#[must_use]
pub fn update_plan() -> FunctionTool {
    let description = "Shows the user your plan, replacing the one before. Call it when you \
        have made a plan and whenever an entry changes its status. Always give all entries.";
    function("update_plan", description, show).title("Plan").kind(ToolKind::Think).idempotent()
}

#[derive(Deserialize, JsonSchema)]
struct Arguments {
    /// The whole plan, in order.
    #[schemars(length(max = PLAN_ENTRIES_MAX))]
    entries: Vec<Entry>,
}

#[derive(Deserialize, JsonSchema)]
struct Entry {
    /// What has to be done.
    content: Box<str>,
    #[serde(default)]
    status: Status,
    #[serde(default)]
    priority: Importance,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Status {
    #[default]
    Pending,
    InProgress,
    Completed,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Importance {
    High,
    #[default]
    Medium,
    Low,
}

async fn show(plan: Arguments, context: Context) -> Result<String, ToolError> {
    let count = plan.entries.len();
    if count > PLAN_ENTRIES_MAX {
        let message = format!("the plan has {count} entries; at most {PLAN_ENTRIES_MAX} are shown");
        return Err(ToolError::new(message));
    }
    let entries: Vec<PlanEntry> = plan.entries.into_iter().map(Entry::into_core).collect();
    let done = entries.iter().filter(|entry| entry.status == PlanStatus::Completed).count();
    context.plan(entries).await;
    Ok(format!("the plan is shown: {done} of {count} done"))
}

impl Entry {
    fn into_core(self) -> PlanEntry {
        PlanEntry {
            content: self.content,
            status: match self.status {
                Status::Pending => PlanStatus::Pending,
                Status::InProgress => PlanStatus::InProgress,
                Status::Completed => PlanStatus::Completed,
            },
            priority: match self.priority {
                Importance::High => Priority::High,
                Importance::Medium => Priority::Medium,
                Importance::Low => Priority::Low,
            },
        }
    }
}

#[cfg(test)]
mod tests;
