//! `survey_files`: counts the files in the working directory, with a progress bar.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use serde_json::json;
use wellspring_core::{Context, ToolError, ToolKind, ToolUpdate};
use wellspring_engine::tools::{FunctionTool, NoArguments, function};

/// Maximum number of entries, so that a home directory does not take long.
const ENTRIES_MAX: u64 = 20_000;

/// Directories of generated files, which are skipped.
const SKIPPED: [&str; 3] = [".git", "node_modules", "target"];

#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Counted {
    files: u64,
    directories: u64,
    /// Whether there was more than [`ENTRIES_MAX`].
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    cut: bool,
}

/// The tool. It pauses briefly between directories, so that its progress is visible.
pub(super) fn survey(root: PathBuf, pace: Duration) -> FunctionTool {
    let description = "Counts the files and folders of the working directory.";
    function("survey_files", description, move |_: NoArguments, context: Context| {
        let root = root.clone();
        async move { count_all(root, pace, &context).await }
    })
    .title("Look around")
    .kind(ToolKind::Search)
    .idempotent()
}

async fn count_all(root: PathBuf, pace: Duration, context: &Context) -> Result<Counted, ToolError> {
    let failed = |error: std::io::Error| ToolError::because("could not count the files", error);
    let mut top: Vec<PathBuf> = std::fs::read_dir(&root)
        .map_err(failed)?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| !is_skipped(path))
        .collect();
    top.sort();
    let mut counted = Counted::default();
    for (done, path) in top.iter().enumerate() {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let update = ToolUpdate {
            title: Some(format!("Look around: {name}").into()),
            data: Some(json!({"percent": 100 * done / top.len()})),
            ..ToolUpdate::default()
        };
        context.update(update).await;
        tokio::time::sleep(pace * 2).await;
        let path = path.clone();
        counted = tokio::task::spawn_blocking(move || count(&path, counted))
            .await
            .map_err(|error| ToolError::because("could not count the files", error))?;
    }
    let title = Some("Look around".into());
    let data = Some(json!({"percent": 100}));
    context.update(ToolUpdate { title, data, ..ToolUpdate::default() }).await;
    Ok(counted)
}

/// Counts a path and everything below it. Links are counted, not followed.
fn count(path: &Path, mut counted: Counted) -> Counted {
    if counted.files + counted.directories >= ENTRIES_MAX {
        return Counted { cut: true, ..counted };
    }
    let Ok(metadata) = path.symlink_metadata() else { return counted };
    if !metadata.is_dir() {
        counted.files += 1;
        return counted;
    }
    counted.directories += 1;
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path()).filter(|path| !is_skipped(path));
    paths.fold(counted, |counted, path| count(&path, counted))
}

fn is_skipped(path: &Path) -> bool {
    path.file_name().is_some_and(|name| SKIPPED.iter().any(|skipped| name == *skipped))
}
