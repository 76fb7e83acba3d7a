//! Counts the received bytes of incomplete messages.
//!
//! The code that reads a request's body counts its bytes. A WebSocket message, which may be as
//! large as a body, is assembled by a library without such a hook. So the connection counts the
//! bytes that it reads, and the reader of messages reports each complete message.

use std::io;
use std::sync::{Arc, Mutex, OnceLock};

use crate::error::ApiError;
use crate::limits::BytesPass;
use crate::lock;

/// Counts the bytes that a connection has read and that are not part of a complete message. Every
/// request on our own listener carries the counter of its connection.
#[derive(Clone, Default)]
pub(crate) struct Inflow(Arc<OnceLock<Mutex<Counted>>>);

struct Counted {
    pass: BytesPass,
    refused: Option<ApiError>,
}

impl Inflow {
    /// Starts counting, within the limits of this pass.
    pub(crate) fn count(&self, pass: BytesPass) {
        // A connection is upgraded to a socket only once.
        let _ = self.0.set(Mutex::new(Counted { pass, refused: None }));
    }

    /// Adds bytes that were read. Fails beyond a limit, which ends the connection.
    pub(super) fn arrived(&self, bytes: usize) -> io::Result<()> {
        let Some(counted) = self.0.get() else { return Ok(()) };
        let mut counted = lock(counted);
        let Err(refused) = counted.pass.grow(bytes) else { return Ok(()) };
        counted.refused = Some(refused);
        Err(io::Error::other("too much has arrived of messages that are not complete"))
    }

    /// Removes bytes that are not part of an incomplete message.
    pub(crate) fn taken(&self, bytes: usize) {
        if let Some(counted) = self.0.get() {
            lock(counted).pass.shrink(bytes);
        }
    }

    /// Resets the counter after a complete message.
    pub(crate) fn complete(&self) {
        self.taken(usize::MAX);
    }

    /// The limit that ended the connection; `None` if no limit was exceeded.
    pub(crate) fn refused(&self) -> Option<ApiError> {
        lock(self.0.get()?).refused.take()
    }
}
