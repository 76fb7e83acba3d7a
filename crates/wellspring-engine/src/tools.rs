//! Tools: typed functions as tools, and the built-in ones.
//!
//! Every tool is opt-in: no agent has one unless it is given to it.

mod ask_user;
mod call_agent;
#[cfg(feature = "tools")]
mod clock;
#[cfg(feature = "tools")]
pub mod egress;
#[cfg(feature = "tools")]
mod file_transfer;
#[cfg(feature = "tools")]
pub mod files;
mod function;
mod llm_call;
#[cfg(all(unix, feature = "tools"))]
pub mod shell;
#[cfg(test)]
#[cfg(feature = "tools")]
mod test_host;
#[cfg(test)]
#[cfg(feature = "tools")]
mod test_server;
mod update_plan;

pub use ask_user::{CHOICES_MAX, ask_user};
pub use call_agent::{CALL_AGENT, call_agent};
#[cfg(feature = "tools")]
pub use clock::{clock, clock_with};
#[cfg(feature = "tools")]
pub use file_transfer::{
    TRANSFER_BYTES_MAX, TRANSFER_TIME_MAX, file_transfer, file_transfer_up_to,
};
#[cfg(feature = "tools")]
pub use files::Files;
pub use function::{
    FunctionTool, NoArguments, ToolYield, from_function, from_stream, function, parameters, tool,
};
pub use llm_call::{LLM_CALL_BYTES_MAX, llm_call};
#[cfg(all(unix, feature = "tools"))]
pub use shell::{Launcher, Shell};
pub use update_plan::{PLAN_ENTRIES_MAX, update_plan};
