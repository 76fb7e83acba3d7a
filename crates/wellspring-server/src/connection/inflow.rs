//! What has arrived of a message that is not complete yet.
//!
//! A request's body is counted by the code that reads it. A message on a WebSocket is put
//! together below that code, out of sight, and up to the size of a body; so the connection counts
//! what it reads, and the reader says when a message was complete.

use std::io;
use std::sync::{Arc, Mutex, OnceLock};

use crate::error::ApiError;
use crate::limits::BytesPass;
use crate::lock;

/// Counts the bytes that a connection has read and that no complete message has taken. Each
/// request carries that of its connection, where the listener is our own.
#[derive(Clone, Default)]
pub(crate) struct Inflow(Arc<OnceLock<Mutex<Counted>>>);

struct Counted {
    pass: BytesPass,
    refused: Option<ApiError>,
}

impl Inflow {
    /// Counts from now on, within the limits of this pass.
    pub(crate) fn count(&self, pass: BytesPass) {
        // A connection becomes a socket once.
        let _ = self.0.set(Mutex::new(Counted { pass, refused: None }));
    }

    /// Takes note of bytes that were read. Fails beyond a limit; then the connection ends.
    pub(super) fn arrived(&self, bytes: usize) -> io::Result<()> {
        let Some(counted) = self.0.get() else { return Ok(()) };
        let mut counted = lock(counted);
        let Err(refused) = counted.pass.grow(bytes) else { return Ok(()) };
        counted.refused = Some(refused);
        Err(io::Error::other("too much has arrived of messages that are not complete"))
    }

    /// Takes note of bytes that are not part of an incomplete message.
    pub(crate) fn taken(&self, bytes: usize) {
        if let Some(counted) = self.0.get() {
            lock(counted).pass.shrink(bytes);
        }
    }

    /// Takes note of a message that was complete.
    pub(crate) fn complete(&self) {
        self.taken(usize::MAX);
    }

    /// The limit that ended the connection, if one did.
    pub(crate) fn refused(&self) -> Option<ApiError> {
        lock(self.0.get()?).refused.take()
    }
}
