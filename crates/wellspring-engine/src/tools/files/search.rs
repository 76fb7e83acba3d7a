//! `search_files`.

use std::io::Read as _;
use std::sync::Arc;

use regex::{Regex, RegexBuilder};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wellspring_core::{Context, ToolError};

use super::glob::Glob;
use super::walk::{Entry, walk};
use super::{Root, about, blocking, is_binary};

/// Matching lines returned at once; a query with more should be narrowed.
pub const SEARCH_MATCHES_MAX: usize = 200;

/// Characters of a line that are returned: enough to recognise it, even in a minified file.
pub const SEARCH_LINE_CHARS_MAX: usize = 400;

/// Bytes of a file that is searched; longer ones are skipped.
pub const SEARCH_FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Bytes searched by one call: a few seconds of work.
pub const SEARCH_BYTES_MAX: u64 = 512 * 1024 * 1024;

/// Bytes of a compiled pattern, so that a model cannot exhaust memory.
const PATTERN_BYTES_MAX: usize = 1024 * 1024;

#[derive(Deserialize, JsonSchema)]
pub(super) struct Arguments {
    /// The regular expression (Rust's syntax: no look-around, no back-references).
    pattern: Box<str>,
    /// Where to look, a directory or a file relative to the working directory; everywhere
    /// when absent.
    path: Option<Box<str>>,
    /// Only files that match, such as `*.rs` or `src/**/*.rs`.
    glob: Option<Box<str>>,
}

#[derive(Debug, Default, Serialize)]
pub(super) struct Findings {
    matches: Vec<Match>,
    files_searched: usize,
    /// Files that were skipped: too long, or binary.
    files_passed_over: usize,
    /// Whether everything was searched.
    complete: bool,
}

#[derive(Debug, Serialize)]
struct Match {
    path: String,
    line: usize,
    text: String,
}

pub(super) async fn run(
    root: Arc<Root>,
    arguments: Arguments,
    context: Context,
) -> Result<Findings, ToolError> {
    blocking(&context, move |signal| {
        let pattern =
            RegexBuilder::new(&arguments.pattern).size_limit(PATTERN_BYTES_MAX).build().map_err(
                |error| ToolError::because("the pattern is not a regular expression", error),
            )?;
        let glob = arguments.glob.as_deref().map(Glob::new).transpose()?;
        let mut search = Search { root: &root, pattern, bytes: 0, findings: Findings::default() };
        let start = root.relative(arguments.path.as_deref().unwrap_or("."));
        let found = root.dir().metadata(start).map_err(|error| about(start, error))?;
        let complete = if found.is_dir() {
            walk(&root, start, usize::MAX, signal, |entry| {
                let wanted = entry.kind.is_file()
                    && glob.as_ref().is_none_or(|glob| glob.matches(&entry.path));
                Ok(!wanted || search.file(entry))
            })?
        } else {
            let kind = found.file_type();
            search.file(&Entry { path: start.to_owned(), kind, depth: 0 })
        };
        Ok(Findings { complete, ..search.findings })
    })
    .await
}

struct Search<'a> {
    root: &'a Root,
    pattern: Regex,
    bytes: u64,
    findings: Findings,
}

impl Search<'_> {
    /// Searches one file; returns whether to continue.
    fn file(&mut self, entry: &Entry) -> bool {
        let Some(bytes) = self.text(entry) else {
            self.findings.files_passed_over += 1;
            return true;
        };
        self.findings.files_searched += 1;
        self.bytes += bytes.len() as u64;
        let text = String::from_utf8_lossy(&bytes);
        for (line, text) in text.lines().enumerate() {
            if self.pattern.is_match(text) {
                if self.findings.matches.len() == SEARCH_MATCHES_MAX {
                    return false;
                }
                let text = text.chars().take(SEARCH_LINE_CHARS_MAX).collect();
                let found = Match { path: entry.shown_path(), line: line + 1, text };
                self.findings.matches.push(found);
            }
        }
        self.bytes < SEARCH_BYTES_MAX
    }

    fn text(&self, entry: &Entry) -> Option<Vec<u8>> {
        if !self.root.dir().metadata(&entry.path).ok()?.is_file() {
            return None;
        }
        let mut bytes = Vec::new();
        let file = self.root.dir().open(&entry.path).ok()?;
        file.take(SEARCH_FILE_BYTES_MAX + 1).read_to_end(&mut bytes).ok()?;
        let fits = bytes.len() as u64 <= SEARCH_FILE_BYTES_MAX;
        (fits && !is_binary(&bytes)).then_some(bytes)
    }
}
