//! `read_file`.

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wellspring_core::{Context, Location, ToolError, ToolUpdate};

use super::{Root, about, blocking, is_binary};

/// Bytes of text returned at once: a long source file, but not a whole context window.
pub const READ_BYTES_MAX: usize = 64 * 1024;

/// Bytes of a file that can be read at all; longer ones are data, not text to read.
pub const READ_FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;

#[derive(Deserialize, JsonSchema)]
pub(super) struct Arguments {
    /// The file, relative to the working directory.
    path: Box<str>,
    /// The first line to read; lines count from 1.
    #[serde(default = "one")]
    #[schemars(range(min = 1))]
    offset: usize,
    /// How many lines to read; as many as fit when absent.
    #[schemars(range(min = 1))]
    limit: Option<usize>,
}

fn one() -> usize {
    1
}

#[derive(Debug, Eq, PartialEq, Serialize)]
pub(super) struct Excerpt {
    content: String,
    total_lines: usize,
    /// Where to continue, if there is more.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_offset: Option<usize>,
    /// Bytes of the last line that did not fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    line_cut_by_bytes: Option<usize>,
}

pub(super) async fn run(
    root: Arc<Root>,
    arguments: Arguments,
    context: Context,
) -> Result<Excerpt, ToolError> {
    let (path, line) = (arguments.path.clone(), u32::try_from(arguments.offset).ok());
    let locations = vec![Location { path, line }];
    context.update(ToolUpdate { locations, ..ToolUpdate::default() }).await;
    blocking(&context, move |_| {
        let text = text(&root, root.relative(&arguments.path))?;
        excerpt(&text, &arguments)
    })
    .await
}

fn text(root: &Root, path: &Path) -> Result<String, ToolError> {
    let about = |error| about(path, error);
    // Checked before opening: opening a FIFO blocks until someone writes.
    if !root.dir().metadata(path).map_err(about)?.is_file() {
        let message = format!("{} is not a file; list_files lists directories", path.display());
        return Err(ToolError::new(message));
    }
    let mut bytes = Vec::new();
    let file = root.dir().open(path).map_err(about)?;
    // The reported length may be wrong; only what was read counts.
    file.take(READ_FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(about)?;
    if bytes.len() as u64 > READ_FILE_BYTES_MAX {
        let message =
            format!("{} is longer than {READ_FILE_BYTES_MAX} bytes; search in it", path.display());
        return Err(ToolError::new(message));
    }
    if is_binary(&bytes) {
        return Err(ToolError::new(format!("{} is not a text file", path.display())));
    }
    Ok(String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

fn excerpt(text: &str, arguments: &Arguments) -> Result<Excerpt, ToolError> {
    let total_lines = text.lines().count();
    let first = arguments.offset.max(1);
    if first > total_lines && first > 1 {
        let message = format!("there is no line {first}: the file has {total_lines}");
        return Err(ToolError::new(message));
    }
    let limit = arguments.limit.unwrap_or(usize::MAX);
    let (mut content, mut taken, mut cut) = (String::new(), 0, None);
    for line in text.split_inclusive('\n').skip(first - 1).take(limit) {
        let room = READ_BYTES_MAX - content.len();
        if line.len() > room {
            // Always at least one line, or there would be no way past it.
            if taken == 0 {
                let end = line.floor_char_boundary(room);
                content.push_str(&line[..end]);
                cut = Some(line.len() - end);
                taken = 1;
            }
            break;
        }
        content.push_str(line);
        taken += 1;
    }
    let next = first + taken;
    let next_offset = (next <= total_lines).then_some(next);
    Ok(Excerpt { content, total_lines, next_offset, line_cut_by_bytes: cut })
}
