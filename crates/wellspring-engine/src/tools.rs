//! Tools: typed functions as tools, and the built-in ones.
//!
//! Every tool is opt-in: no agent has one unless it is given to it.

mod agent;
mod ask;
#[cfg(feature = "tools")]
mod clock;
#[cfg(feature = "tools")]
pub mod egress;
#[cfg(feature = "tools")]
pub mod files;
mod function;
mod llm;
#[cfg(test)]
#[cfg(feature = "tools")]
mod peer;
mod plan;
#[cfg(test)]
#[cfg(feature = "tools")]
mod recording;
#[cfg(all(unix, feature = "tools"))]
pub mod shell;
#[cfg(feature = "tools")]
mod transfer;

pub use agent::{CALL_AGENT, call_agent};
pub use ask::{CHOICES_MAX, ask_user};
#[cfg(feature = "tools")]
pub use clock::{clock, clock_with};
#[cfg(feature = "tools")]
pub use files::Files;
pub use function::{
    FunctionTool, NoArguments, ToolYield, from_function, from_stream, function, parameters, tool,
};
pub use llm::{LLM_CALL_BYTES_MAX, llm_call};
pub use plan::{PLAN_ENTRIES_MAX, update_plan};
#[cfg(all(unix, feature = "tools"))]
pub use shell::{Launcher, Shell};
#[cfg(feature = "tools")]
pub use transfer::{TRANSFER_BYTES_MAX, TRANSFER_TIME_MAX, file_transfer, file_transfer_up_to};
