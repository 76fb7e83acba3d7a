//! Recording of all messages, for debugging.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex};

use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::connection::LINES_WAITING_MAX;
use super::error::AcpError;
use crate::lock;

/// Writes messages to a file: `<` marks the agent's, `>` ours.
#[derive(Clone)]
pub(super) struct Recorder(Arc<Mutex<File>>);

impl Recorder {
    pub(super) fn open(path: &Path) -> Result<Self, AcpError> {
        let file = File::options().create(true).append(true).open(path);
        let file = file.map_err(|error| AcpError::directory(path, &error))?;
        Ok(Self(Arc::new(Mutex::new(file))))
    }

    pub(super) fn heard(&self, line: &[u8]) {
        self.write(b"< ", line);
    }

    /// A writer that is recorded.
    pub(super) fn tap(
        &self,
        out: mpsc::Sender<Vec<u8>>,
    ) -> (mpsc::Sender<Vec<u8>>, AbortOnDropHandle<()>) {
        let (tapped, mut lines) = mpsc::channel::<Vec<u8>>(LINES_WAITING_MAX);
        let record = self.clone();
        let tap = tokio::spawn(async move {
            while let Some(line) = lines.recv().await {
                record.write(b"> ", &line);
                if out.send(line).await.is_err() {
                    return;
                }
            }
        });
        (tapped, AbortOnDropHandle::new(tap))
    }

    /// A full disk must not stop the agent.
    fn write(&self, mark: &[u8], line: &[u8]) {
        let whole = [mark, line.trim_ascii_end(), b"\n"].concat();
        let mut file = lock(&self.0);
        if let Err(error) = file.write_all(&whole) {
            tracing::warn!(%error, "a message could not be recorded");
        }
    }
}
