//! Walking a directory tree in the order of names.

use std::path::{Path, PathBuf};

use cap_std::fs::FileType;
use wellspring_core::{CancellationToken, ToolError};

use super::{Root, about, cancelled};

/// Entries of one directory that are visited.
pub const DIRECTORY_ENTRIES_MAX: usize = 10_000;

/// Nested directories that are visited.
pub const WALK_DEPTH_MAX: usize = 32;

/// An entry below the root.
pub(super) struct Entry {
    /// Relative to the root.
    pub(super) path: PathBuf,
    pub(super) kind: FileType,
    /// 1 for entries of the directory in which the walk began.
    pub(super) depth: usize,
}

impl Entry {
    pub(super) fn shown_path(&self) -> String {
        self.path.to_string_lossy().into_owned()
    }
}

/// Walks the tree below `start`; symbolic links are listed but not followed. `visit` returns
/// whether to continue. Returns whether everything was seen.
pub(super) fn walk(
    root: &Root,
    start: &Path,
    depth_max: usize,
    signal: &CancellationToken,
    mut visit: impl FnMut(&Entry) -> Result<bool, ToolError>,
) -> Result<bool, ToolError> {
    let (mut waiting, mut all) = entries(root, start, 1)?;
    while let Some(entry) = waiting.pop() {
        if signal.is_cancelled() {
            return Err(cancelled());
        }
        if !visit(&entry)? {
            return Ok(false);
        }
        if entry.kind.is_dir() && entry.depth < depth_max.min(WALK_DEPTH_MAX) {
            // A directory that cannot be read hides only its own entries.
            match entries(root, &entry.path, entry.depth + 1) {
                Ok((inner, whole)) => {
                    waiting.extend(inner);
                    all &= whole;
                }
                Err(_) => all = false,
            }
        } else if entry.kind.is_dir() && entry.depth >= WALK_DEPTH_MAX {
            all = false;
        }
    }
    Ok(all)
}

/// The entries of a directory, last name first, and whether they are complete.
fn entries(root: &Root, path: &Path, depth: usize) -> Result<(Vec<Entry>, bool), ToolError> {
    let about = |error| about(path, error);
    let mut found = Vec::new();
    let mut names = root.dir().read_dir(path).map_err(about)?;
    for entry in names.by_ref().take(DIRECTORY_ENTRIES_MAX) {
        let entry = entry.map_err(about)?;
        let name = entry.file_name();
        let path = if path == Path::new(".") { name.into() } else { path.join(name) };
        // The entry vanished in between.
        if let Ok(kind) = entry.file_type() {
            found.push(Entry { path, kind, depth });
        }
    }
    found.sort_unstable_by(|one, other| other.path.cmp(&one.path));
    Ok((found, names.next().is_none()))
}
