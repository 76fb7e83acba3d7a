//! `list_files`.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wellspring_core::{Context, ToolError};

use super::glob::Glob;
use super::walk::{Entry, walk};
use super::{Root, blocking};

/// Entries returned at once.
pub const LIST_ENTRIES_MAX: usize = 1000;

/// Levels of directories listed at once.
pub const LIST_DEPTH_MAX: usize = 8;

#[derive(Deserialize, JsonSchema)]
pub(super) struct Arguments {
    /// The directory, relative to the working directory; that one itself when absent.
    path: Option<Box<str>>,
    /// How many levels of directories to list, at most 8.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = LIST_DEPTH_MAX))]
    depth: usize,
    /// Only what matches, such as `*.rs` or `src/**/*.rs`.
    glob: Option<Box<str>>,
}

fn one() -> usize {
    1
}

#[derive(Debug, Serialize)]
pub(super) struct Listing {
    entries: Vec<Listed>,
    /// Whether the list is complete.
    complete: bool,
}

#[derive(Debug, Serialize)]
struct Listed {
    path: String,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
}

pub(super) async fn run(
    root: Arc<Root>,
    arguments: Arguments,
    context: Context,
) -> Result<Listing, ToolError> {
    blocking(&context, move |signal| {
        let glob = arguments.glob.as_deref().map(Glob::new).transpose()?;
        let start = root.relative(arguments.path.as_deref().unwrap_or("."));
        let depth = arguments.depth.clamp(1, LIST_DEPTH_MAX);
        let mut entries = Vec::new();
        let complete = walk(&root, start, depth, signal, |entry| {
            if glob.as_ref().is_none_or(|glob| glob.matches(&entry.path)) {
                if entries.len() == LIST_ENTRIES_MAX {
                    return Ok(false);
                }
                entries.push(listed(&root, entry));
            }
            Ok(true)
        })?;
        Ok(Listing { entries, complete })
    })
    .await
}

fn listed(root: &Root, entry: &Entry) -> Listed {
    let kind = match () {
        () if entry.kind.is_dir() => "directory",
        () if entry.kind.is_file() => "file",
        () if entry.kind.is_symlink() => "link",
        () => "other",
    };
    let bytes = || root.dir().symlink_metadata(&entry.path).ok().map(|found| found.len());
    let bytes = if entry.kind.is_file() { bytes() } else { None };
    Listed { path: entry.shown_path(), kind, bytes }
}
