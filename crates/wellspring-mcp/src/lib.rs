//! MCP: tools from any server for our agents, and our tools for any client.
//!
//! [`McpServer`] starts or connects to a server, over stdio or streamable HTTP, keeps it
//! running, and returns its tools as [`Tool`](wellspring_core::Tool)s. [`Loopback`] is the
//! opposite direction: a server on this machine that offers our tools to an agent that we
//! drive; [`bridge`] connects it to agents that only support servers over stdio.
//!
//! # What is deliberately absent
//!
//! A server may not use our model (sampling), nor send the user to a page (URL elicitation):
//! both are declined. The SDK (`rmcp`) appears in no public signature.

#[cfg(doctest)]
#[doc = include_str!("../../../docs/mcp.md")]
struct Guide;

mod calls;
mod config;
mod connection;
mod convert;
mod elicit;
mod error;
mod http;
mod loopback;
pub mod process;
mod server;
mod server_requests;
mod stdio_bridge;
mod tool;
mod tool_name;
mod transport;

pub use calls::{PROGRESS_BYTES_MAX, PROGRESS_WAITING_MAX};
pub use config::{
    McpConfig, McpTimeouts, McpTransport, REQUEST_TIME_DEFAULT, STARTUP_TIME_DEFAULT,
};
pub use connection::{INPUT_ROUNDS_MAX, PAGES_MAX, TOOLS_MAX};
pub use convert::{DESCRIPTION_BYTES_MAX, RESULT_BYTES_MAX};
pub use elicit::{CHOICES_MAX, ElicitReply, Elicitation, QUESTION_BYTES_MAX};
pub use error::{McpError, McpErrorKind};
pub use loopback::{
    BODY_BYTES_MAX, CALLS_MAX, CANCEL_GRACE, CONNECTIONS_MAX, HEARTBEAT, Loopback, LoopbackCall,
    LoopbackHandler, NeverSeen, Reporter, run_at_once,
};
pub use process::{STDERR_BYTES_MAX, STOP_GRACE};
pub use server::{
    HEALTHY_TIME, McpConnection, McpServer, REFRESH_INTERVAL, RESTART_DELAY_FIRST,
    RESTART_DELAY_MAX, RESTARTS_MAX, connect_all,
};
pub use stdio_bridge::{BRIDGED_MAX, bridge};
pub use tool::RESOURCES_LISTED_MAX;
pub use tool_name::TOOL_NAME_CHARS_MAX;
pub use transport::{MESSAGE_BYTES_MAX, SERVER_REQUESTS_MAX};
