//! The ACP client: drives an agent that speaks ACP, in a local process or on a server.
//!
//! [`AcpAgent`] is a [`RemoteAgent`](wellspring_core::RemoteAgent): the engine runs it like any
//! other. Each run is one prompt of a session. The runs of a thread share a session as long as the
//! agent keeps it. Our tools reach the agent through a loopback MCP server, and its typed result
//! comes back the same way.
//!
//! ```
//! use wellspring_acp::client::{AcpAgent, AcpConfig};
//!
//! let agent = AcpAgent::new("claude", "claude".parse::<AcpConfig>()?);
//! # Ok::<(), wellspring_acp::client::AcpError>(())
//! ```
//!
//! # What is promised
//!
//! - Every `session/update` is in the run, in its order: mapped, or kept whole.
//! - A permission is decided by what an option means, never by its position. An
//!   unanswered question counts as a refusal.
//! - A cancelled prompt has until the run's deadline to end; then the agent's process group is
//!   killed, as soon as it serves no other run.
//! - An agent that dies, hangs, floods or prints garbage ends the run with a reason and its last
//!   words, and holds no more memory than the maxima here.
//!
//! # What is deliberately absent
//!
//! Types for the protocol's messages: see [`wellspring_wire::acp`].

mod agent;
mod broadcast;
mod config;
mod connection;
mod drive;
mod error;
mod files;
mod host;
mod http;
mod known_agents;
mod message_log;
mod permission;
mod prompt;
mod running_agent;
mod session;
mod stdio;
mod terminal;
mod tools;
mod ws;

pub use crate::rpc::PENDING_MAX;
pub use agent::{AcpAgent, SESSIONS_KEPT_MAX};
pub(crate) use broadcast::Ear;
pub use config::{AcpConfig, AcpTimeouts, AcpTransport, FileAccess, SESSIONS_PER_PROCESS_DEFAULT};
pub(crate) use connection::Listener;
pub use connection::{EARLY_MAX, GARBAGE_LINES_MAX, QUEUE_BYTES_MAX, QUEUE_MAX};
pub(crate) use drive::{PROMPTED, SESSION_OPENED};
pub use drive::{REMINDERS_MAX, SERVED_MAX};
pub use error::AcpError;
pub use files::FILE_BYTES_MAX;
pub(crate) use host::{Host, Prompted, THEIR_MODE};
pub use known_agents::{KnownAgent, known_agents};
pub(crate) use session::{Chosen, Link};
pub use stdio::LINE_BYTES_MAX;
pub use terminal::{TERMINAL_BYTES_MAX, TERMINALS_MAX};
pub use tools::SERVER_NAME;
