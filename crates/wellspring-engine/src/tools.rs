//! Tools: typed functions as tools, and the built-in ones.
//!
//! Nothing here is given to an agent unless somebody does so: every tool is opt-in.

mod function;
#[cfg(test)]
mod recording;

#[cfg(test)]
pub(crate) use function::parameters;
/// The tool by which an agent lets another one work.
pub const CALL_AGENT: &str = "call-agent";
pub use function::{FunctionTool, NoArguments, ToolYield, from_function, from_stream, function};
