//! What others say in AG-UI, in our words: a client's request, and a remote agent's events.

mod asked;
mod remote;

pub use asked::{Asked, InputError, Trust};
pub use remote::{End, PendingCall, ReadError, Reader};
