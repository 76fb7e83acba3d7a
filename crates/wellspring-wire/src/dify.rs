//! Dify: reads the event stream of its apps as an agent's run, and writes requests to it.
//!
//! | Dify | ours |
//! | --- | --- |
//! | `message`, `agent_message`, `text_chunk` | text |
//! | `message_replace`, `text_replace` | the text so far is voided and replaced |
//! | `agent_thought` | a thought, and a call with its result if a tool was used |
//! | `node_started`, `node_finished` | a call inside the agent: the step, with its inputs and outputs |
//! | `message_file` | a file |
//! | `message_end` | usage, the sources of the answer, and the end of a chat |
//! | `workflow_finished` | the end of a workflow; its outputs are the answer if no text came |
//! | `error` | the run fails |
//! | `ping`, `tts_message`, `tts_message_end` | nothing |
//! | anything else | `extended`, whole |
//!
//! # Lossy
//!
//! Speech is dropped. Iterations and loops are kept as extended events, and their nodes are
//! steps like any others.

mod read;
mod write;

#[cfg(test)]
mod tests;

pub use read::{End, Reader};
pub use write::{App, Ask};
