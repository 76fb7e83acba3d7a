//! `read_file`, `list_files` and `search_files`: read-only access to files below a directory.
//!
//! Every path is resolved by `cap-std`, component by component from the directory's own
//! handle: neither `..` nor a symbolic link leads out of it, even if a directory is swapped for a
//! link in between.

mod glob;
mod list;
mod read;
mod search;
mod walk;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use wellspring_core::{CancellationToken, Context, ToolError, ToolKind};

use super::function::{FunctionTool, function};

pub use list::{LIST_DEPTH_MAX, LIST_ENTRIES_MAX};
pub use read::{READ_BYTES_MAX, READ_FILE_BYTES_MAX};
pub use search::{
    SEARCH_BYTES_MAX, SEARCH_FILE_BYTES_MAX, SEARCH_LINE_CHARS_MAX, SEARCH_MATCHES_MAX,
};
pub use walk::{DIRECTORY_ENTRIES_MAX, WALK_DEPTH_MAX};

/// Bytes at the start of a file that are inspected to tell text from binary, as Git does.
const SNIFF_BYTES: usize = 8000;

/// A directory, and the tools that look at what is below it.
///
/// ```
/// use serde_json::json;
/// use wellspring_core::{CancellationToken, Context, Tool as _};
/// use wellspring_engine::tools::Files;
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let directory = tempfile::tempdir().unwrap();
/// std::fs::write(directory.path().join("note.txt"), "milk\nbread\n").unwrap();
/// let files = Files::below(directory.path())?;
/// let cx = Context::create("trace-1", CancellationToken::new());
/// let result = files.search_files().call(json!({"pattern": "br.ad"}), cx).await?;
/// let matches = json!([{"path": "note.txt", "line": 2, "text": "bread"}]);
/// assert_eq!(result.output["matches"], matches);
/// # Ok::<(), wellspring_core::ToolError>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Files {
    root: Arc<Root>,
}

impl Files {
    /// Gives access to files below this directory.
    ///
    /// # Errors
    ///
    /// If the directory does not exist.
    pub fn below(root: impl AsRef<Path>) -> Result<Self, ToolError> {
        Ok(Self { root: Arc::new(Root::open(root.as_ref())?) })
    }

    /// A tool that reads a text file, or some lines of it.
    #[must_use]
    pub fn read_file(&self) -> FunctionTool {
        let description = "Reads a text file, or the lines from `offset` on. When there is \
            more, `next_offset` says where to continue.";
        let root = Arc::clone(&self.root);
        function("read_file", description, move |arguments, context| {
            read::run(Arc::clone(&root), arguments, context)
        })
        .title("Read file")
        .kind(ToolKind::Read)
        .idempotent()
    }

    /// A tool that lists a directory.
    #[must_use]
    pub fn list_files(&self) -> FunctionTool {
        let description = "Lists the files and directories below a directory.";
        let root = Arc::clone(&self.root);
        function("list_files", description, move |arguments, context| {
            list::run(Arc::clone(&root), arguments, context)
        })
        .title("List files")
        .kind(ToolKind::Search)
        .idempotent()
    }

    /// A tool that searches files for a regular expression.
    #[must_use]
    pub fn search_files(&self) -> FunctionTool {
        let description = "Looks for a regular expression in the text files below a directory, \
            line by line, and gives back the lines that match.";
        let root = Arc::clone(&self.root);
        function("search_files", description, move |arguments, context| {
            search::run(Arc::clone(&root), arguments, context)
        })
        .title("Search files")
        .kind(ToolKind::Search)
        .idempotent()
    }
}

/// The root directory.
#[derive(Debug)]
pub(crate) struct Root {
    dir: Dir,
    /// Its own path, to accept absolute paths from a model.
    path: PathBuf,
}

impl Root {
    pub(crate) fn open(path: &Path) -> Result<Self, ToolError> {
        let failed = |error| ToolError::because(format!("cannot open {}", path.display()), error);
        let dir = Dir::open_ambient_dir(path, ambient_authority()).map_err(failed)?;
        Ok(Self { dir, path: path.canonicalize().map_err(failed)? })
    }

    pub(crate) fn dir(&self) -> &Dir {
        &self.dir
    }

    /// Makes a model's path relative to the root.
    pub(crate) fn relative<'a>(&self, path: &'a str) -> &'a Path {
        let path = Path::new(path);
        let path = path.strip_prefix(&self.path).unwrap_or(path);
        if path.as_os_str().is_empty() { Path::new(".") } else { path }
    }
}

/// Runs blocking work on another thread. It is stopped when the call is cancelled or dropped.
async fn blocking<T: Send + 'static>(
    context: &Context,
    work: impl FnOnce(&CancellationToken) -> Result<T, ToolError> + Send + 'static,
) -> Result<T, ToolError> {
    let signal = context.signal().child_token();
    let _ends_with_the_call = signal.clone().drop_guard();
    tokio::task::spawn_blocking(move || work(&signal))
        .await
        .map_err(|error| ToolError::because("the work on files did not end", error))?
}

fn cancelled() -> ToolError {
    ToolError::new("cancelled before the end")
}

/// An error about a path, in words that the model can act on.
pub(crate) fn about(path: &Path, error: std::io::Error) -> ToolError {
    let path = path.display();
    let kind = error.kind();
    if kind == std::io::ErrorKind::NotFound {
        ToolError::new(format!("there is no {path}"))
    } else if kind == std::io::ErrorKind::PermissionDenied && error.raw_os_error().is_none() {
        // The system would have set an error number; without one, `cap-std` refused to leave the root.
        ToolError::new(format!("{path} leads out of the directory; use a path below it"))
    } else {
        ToolError::because(format!("cannot use {path}"), error)
    }
}

/// Whether these bytes are binary.
fn is_binary(bytes: &[u8]) -> bool {
    bytes[..bytes.len().min(SNIFF_BYTES)].contains(&0)
}

#[cfg(test)]
mod tests;
