//! `count_down`: counts down with a progress bar, after approval.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use wellspring_core::{Approval, Context, ToolError, ToolUpdate};
use wellspring_engine::tools::{FunctionTool, function};

/// The highest number to start at, so that the demonstration ends soon.
const FROM_MAX: u32 = 10;

#[derive(Deserialize, JsonSchema)]
struct Arguments {
    /// The number to start at, from 1 to 10.
    from: u32,
}

#[derive(Serialize)]
struct Counted {
    counted_from: u32,
}

/// The tool. It changes nothing, but asks, so that the demonstration has a question.
pub(super) fn countdown(pace: Duration) -> FunctionTool {
    let description = "Counts down to zero.";
    function("count_down", description, move |arguments: Arguments, context: Context| async move {
        let from = arguments.from;
        if !(1..=FROM_MAX).contains(&from) {
            let message =
                format!("cannot count down from {from}; use a number from 1 to {FROM_MAX}");
            return Err(ToolError::new(message));
        }
        for number in (1..=from).rev() {
            let update = ToolUpdate {
                title: Some(format!("Count down: {number}").into()),
                data: Some(json!({"percent": 100 * (from - number) / from})),
                ..ToolUpdate::default()
            };
            context.update(update).await;
            tokio::time::sleep(pace * 15).await;
        }
        let (title, data) = (Some("Count down".into()), Some(json!({"percent": 100})));
        context.update(ToolUpdate { title, data, ..ToolUpdate::default() }).await;
        Ok(Counted { counted_from: from })
    })
    .title("Count down")
    .approval(Approval::Ask)
    .idempotent()
}
