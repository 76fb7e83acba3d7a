//! Reads AG-UI: a client's request, and a remote agent's events.

mod agent_events;
mod request;

pub use agent_events::{End, PendingCall, ReadError, Reader};
pub use request::{Asked, InputError, Trust};
pub(crate) use request::{answer, client_tool};
