//! Reads AG-UI: a client's request, and a remote agent's events.

mod asked;
mod remote;

pub use asked::{Asked, InputError, Trust};
pub(crate) use asked::{answer, client_tool};
pub use remote::{End, PendingCall, ReadError, Reader};
