//! Tools: typed functions as tools, and the built-in ones.
//!
//! Nothing here is given to an agent unless somebody does so: every tool is opt-in.

mod function;
#[cfg(test)]
mod recording;

#[cfg(test)]
pub(crate) use function::parameters;
pub use function::{FunctionTool, NoArguments, ToolYield, from_function, from_stream, function};
