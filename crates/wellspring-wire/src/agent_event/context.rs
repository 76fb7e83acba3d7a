//! The vocabulary as a Rust API.

use wellspring_core::Context;

use super::types::{AgentEvent, ToolEvent};

/// The vocabulary's execution context. The trace id, the signal and `create` are [`Context`]'s
/// own; this trait adds methods that create and adapt events.
///
/// ```
/// use serde_json::json;
/// use wellspring_core::{CancellationToken, Context};
/// use wellspring_wire::agent_event::{ExecutionContext as _, ToolEvent};
///
/// let context = Context::create("trace-1", CancellationToken::new());
/// let event = context.tool_event(ToolEvent::Progress {
///     tool_name: "llm_call".into(),
///     data: json!("Hello"),
/// });
/// let adapted = serde_json::to_value(context.adapt_tool_event(event))?;
/// assert_eq!(adapted, json!({"type": "tool_progress", "toolName": "llm_call", "data": "Hello"}));
/// # Ok::<(), serde_json::Error>(())
/// ```
pub trait ExecutionContext {
    /// Returns an agent's event.
    fn agent_event(&self, event: AgentEvent) -> AgentEvent {
        event
    }

    /// Returns a tool's event.
    fn tool_event(&self, event: ToolEvent) -> ToolEvent {
        event
    }

    /// Converts a tool's event into its agent's: `progress` becomes `tool_progress`, `result`
    /// becomes `tool_result`. The event's original type is replaced.
    fn adapt_tool_event(&self, event: ToolEvent) -> AgentEvent {
        event.into()
    }
}

impl ExecutionContext for Context {}
