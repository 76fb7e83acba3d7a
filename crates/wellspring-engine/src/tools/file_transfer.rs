//! `FileTransfer`: from a URL into a file, or back.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use cap_std::fs::OpenOptions;
use futures::{Stream, stream};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::fs::File;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::watch;
use wellspring_core::{Approval, Context, ToolError, ToolKind};

use super::egress::{Egress, EgressError};
use super::files::{Root, about};
use super::function::{FunctionTool, function};

/// Bytes of a file by default: a long video, a small model.
pub const TRANSFER_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// How long a transfer may take.
pub const TRANSFER_TIME_MAX: Duration = Duration::from_secs(30 * 60);

/// The type of the progress reports.
const SUBTYPE: &str = "transfer_progress";

/// Bytes between two progress reports if the total is unknown.
const UNKNOWN_STEP_BYTES: u64 = 1024 * 1024;

/// Bytes read from a file at once.
const READ_BYTES: usize = 64 * 1024;

/// A tool that moves files between URLs and a directory. It asks first.
///
/// ```
/// use wellspring_core::Tool as _;
/// use wellspring_engine::tools::egress::Egress;
/// use wellspring_engine::tools::file_transfer;
///
/// let tool = file_transfer(std::env::temp_dir(), Egress::new())?;
/// assert_eq!(&*tool.spec().name, "FileTransfer");
/// # Ok::<(), wellspring_core::ToolError>(())
/// ```
///
/// # Errors
///
/// When there is no such directory.
pub fn file_transfer(root: impl AsRef<Path>, egress: Egress) -> Result<FunctionTool, ToolError> {
    file_transfer_up_to(TRANSFER_BYTES_MAX, root, egress)
}

/// [`file_transfer`] with a maximum file size in bytes.
///
/// # Errors
///
/// When there is no such directory.
pub fn file_transfer_up_to(
    bytes_max: u64,
    root: impl AsRef<Path>,
    egress: Egress,
) -> Result<FunctionTool, ToolError> {
    let transfer = Arc::new(Transfer { root: Root::open(root.as_ref())?, egress, bytes_max });
    let description = "Downloads what is at a URL into a file, or uploads a file to a URL (PUT). \
        An existing file is replaced.";
    let tool = function("FileTransfer", description, move |arguments, context: Context| {
        let transfer = Arc::clone(&transfer);
        async move {
            let signal = context.signal().clone();
            match signal.run_until_cancelled(transfer.run(arguments, context)).await {
                Some(result) => result,
                None => Err(ToolError::new("cancelled before the transfer was over")),
            }
        }
    });
    Ok(tool
        .title("File transfer")
        .kind(ToolKind::Fetch)
        .approval(Approval::Ask)
        .timeout(TRANSFER_TIME_MAX))
}

#[derive(Deserialize, JsonSchema)]
struct Arguments {
    /// An http or https address.
    url: Box<str>,
    /// The file, relative to the working directory.
    path: Box<str>,
    direction: Direction,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Direction {
    /// From the URL into the file.
    Download,
    /// From the file to the URL.
    Upload,
}

#[derive(Debug, Serialize)]
struct Transferred {
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    media_type: Option<Box<str>>,
}

#[derive(Debug)]
struct Transfer {
    root: Root,
    egress: Egress,
    bytes_max: u64,
}

impl Transfer {
    async fn run(&self, arguments: Arguments, context: Context) -> Result<Transferred, ToolError> {
        let path = self.root.relative(&arguments.path);
        match arguments.direction {
            Direction::Download => self.download(&arguments.url, path, &context).await,
            Direction::Upload => self.upload(&arguments.url, path, &context).await,
        }
    }

    async fn download(
        &self,
        url: &str,
        path: &Path,
        context: &Context,
    ) -> Result<Transferred, ToolError> {
        let failed = |error: EgressError| ToolError::because("the download failed", Told(error));
        let (partial, file) = Partial::create(&self.root, path)?;
        let mut file = File::from_std(file);
        let mut fetched = self.egress.get(url).await.map_err(failed)?;
        let length = fetched.length();
        if length.is_some_and(|length| length > self.bytes_max) {
            return Err(self.too_long());
        }
        let mut progress = Progress::new(length);
        let mut bytes = 0;
        while let Some(chunk) = fetched.chunk().await.map_err(failed)? {
            bytes += chunk.len() as u64;
            if bytes > self.bytes_max {
                return Err(self.too_long());
            }
            file.write_all(&chunk).await.map_err(|error| about(path, error))?;
            progress.reach(bytes, context).await;
        }
        file.sync_all().await.map_err(|error| about(path, error))?;
        partial.keep()?;
        progress.end(bytes, context).await;
        let media_type = fetched.media_type().map(Into::into);
        Ok(Transferred { bytes, media_type })
    }

    async fn upload(
        &self,
        url: &str,
        path: &Path,
        context: &Context,
    ) -> Result<Transferred, ToolError> {
        let about = |error| about(path, error);
        // Checked before opening: opening a FIFO blocks until someone writes.
        if !self.root.dir().metadata(path).map_err(about)?.is_file() {
            return Err(ToolError::new(format!("{} is not a file", path.display())));
        }
        let file = self.root.dir().open(path).map_err(about)?;
        let length = file.metadata().map_err(about)?.len();
        if length > self.bytes_max {
            return Err(self.too_long());
        }
        let (sent, mut seen) = watch::channel(0);
        let bytes = reading(File::from_std(file.into_std()), length, sent);
        let mut put = pin!(self.egress.put(url, length, bytes));
        let mut progress = Progress::new(Some(length));
        let result = loop {
            tokio::select! {
                result = &mut put => break result,
                Ok(()) = seen.changed() => {
                    let bytes = *seen.borrow_and_update();
                    progress.reach(bytes, context).await;
                }
            }
        };
        result.map_err(|error| ToolError::because("the upload failed", Told(error)))?;
        progress.end(length, context).await;
        Ok(Transferred { bytes: length, media_type: None })
    }

    fn too_long(&self) -> ToolError {
        ToolError::new(format!("the file is longer than {} bytes", self.bytes_max))
    }
}

/// The bytes of a file, and how many were sent. The connection's own task reads
/// this, so it must not block: the call itself reports the progress.
fn reading(
    file: File,
    length: u64,
    sent: watch::Sender<u64>,
) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    // If the file grows meanwhile, the rest is ignored: its length has been announced.
    stream::try_unfold((file.take(length), sent), async |(mut file, sent)| {
        let mut buffer = Vec::with_capacity(READ_BYTES);
        let count = file.read_buf(&mut buffer).await?;
        sent.send_modify(|sent| *sent += count as u64);
        Ok((count > 0).then(|| (Bytes::from(buffer), (file, sent))))
    })
}

/// Reports the progress of a transfer when it has changed.
#[derive(Debug)]
struct Progress {
    total: Option<u64>,
    /// The last reported percentage; without a total, the number of bytes.
    said: Option<u64>,
}

impl Progress {
    fn new(total: Option<u64>) -> Self {
        Self { total, said: None }
    }

    async fn reach(&mut self, bytes: u64, context: &Context) {
        let Some(total) = self.total else {
            // Without a total there is no percentage, but bytes still show progress.
            if bytes >= self.said.unwrap_or(0) + UNKNOWN_STEP_BYTES {
                self.said = Some(bytes);
                context.progress(json!({ "subtype": SUBTYPE, "percent": 0 })).await;
            }
            return;
        };
        let percent = percent(bytes, total);
        if self.said.replace(percent) != Some(percent) {
            context.progress(json!({ "subtype": SUBTYPE, "percent": percent })).await;
        }
    }

    async fn end(&mut self, bytes: u64, context: &Context) {
        self.total = Some(bytes);
        self.reach(bytes, context).await;
    }
}

fn percent(bytes: u64, total: u64) -> u64 {
    bytes.saturating_mul(100).checked_div(total).unwrap_or(100).min(100)
}

/// A file that is being written under a temporary name. It is removed when dropped.
#[derive(Debug)]
struct Partial<'a> {
    root: &'a Root,
    path: &'a Path,
    temporary: Option<PathBuf>,
}

impl<'a> Partial<'a> {
    fn create(root: &'a Root, path: &'a Path) -> Result<(Self, std::fs::File), ToolError> {
        /// Distinguishes downloads of this process; the process id distinguishes processes.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let Some(name) = path.file_name() else {
            return Err(ToolError::new(format!("{} does not name a file", path.display())));
        };
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}-{number}.part", std::process::id()));
        let temporary = path.with_file_name(hidden);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        let file = root.dir().open_with(&temporary, &options).map_err(|error| {
            let parent = path.parent().filter(|_| error.kind() == io::ErrorKind::NotFound);
            about(parent.unwrap_or(path), error)
        })?;
        Ok((Self { root, path, temporary: Some(temporary) }, file.into_std()))
    }

    fn keep(mut self) -> Result<(), ToolError> {
        if let Some(temporary) = &self.temporary {
            let dir = self.root.dir();
            dir.rename(temporary, dir, self.path).map_err(|error| about(self.path, error))?;
            self.temporary = None;
        }
        Ok(())
    }
}

impl Drop for Partial<'_> {
    fn drop(&mut self) {
        if let Some(temporary) = self.temporary.take()
            && let Err(error) = self.root.dir().remove_file(&temporary)
        {
            tracing::warn!(%error, path = %temporary.display(), "could not remove a partial file");
        }
    }
}

/// An error with its causes on one line, for the model.
#[derive(Debug, thiserror::Error)]
#[error("{}", chain(.0))]
struct Told(#[source] EgressError);

fn chain(error: &EgressError) -> String {
    let mut line = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        line.push_str(": ");
        line.push_str(&inner.to_string());
        cause = inner.source();
    }
    line
}

#[cfg(test)]
mod tests;
