//! Tools: typed functions as tools, and the built-in ones.
//!
//! Nothing here is given to an agent unless somebody does so: every tool is opt-in.

mod agent;
mod ask;
mod clock;
mod function;
mod llm;
mod plan;
#[cfg(test)]
mod recording;
#[cfg(unix)]
pub mod shell;

pub use agent::call_agent;
pub use ask::{CHOICES_MAX, ask_user};
pub use clock::{clock, clock_with};
#[cfg(test)]
pub(crate) use function::parameters;
/// The tool by which an agent lets another one work.
pub const CALL_AGENT: &str = "call-agent";
pub use function::{FunctionTool, NoArguments, ToolYield, from_function, from_stream, function};
pub use llm::{LLM_CALL_BYTES_MAX, llm_call};
pub use plan::{PLAN_ENTRIES_MAX, update_plan};
#[cfg(unix)]
pub use shell::Shell;
