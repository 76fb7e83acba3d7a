//! Tools: typed functions as tools, and the built-in ones.
//!
//! Every tool is opt-in: no agent has one unless it is given to it.

mod agent;
mod ask;
mod clock;
pub mod egress;
pub mod files;
mod function;
mod llm;
#[cfg(test)]
mod peer;
mod plan;
#[cfg(test)]
mod recording;
#[cfg(unix)]
pub mod shell;
mod transfer;

pub use agent::{CALL_AGENT, call_agent};
pub use ask::{CHOICES_MAX, ask_user};
pub use clock::{clock, clock_with};
pub use files::Files;
#[cfg(test)]
pub(crate) use function::parameters;
pub use function::{FunctionTool, NoArguments, ToolYield, from_function, from_stream, function};
pub use llm::{LLM_CALL_BYTES_MAX, llm_call};
pub use plan::{PLAN_ENTRIES_MAX, update_plan};
#[cfg(unix)]
pub use shell::Shell;
pub use transfer::{TRANSFER_BYTES_MAX, TRANSFER_TIME_MAX, file_transfer, file_transfer_up_to};
