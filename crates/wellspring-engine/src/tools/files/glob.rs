//! Patterns of paths: `*` and `?` within a name, `**` over directories, `{a,b}` for either.

use std::path::Path;

use regex::Regex;
use wellspring_core::ToolError;

/// A pattern. Without a slash it matches a file's name, otherwise its whole path.
pub(super) struct Glob {
    pattern: Regex,
    names_only: bool,
}

impl Glob {
    pub(super) fn new(glob: &str) -> Result<Self, ToolError> {
        let pattern = Regex::new(&expression(glob)).map_err(|_| {
            ToolError::new(format!(
                "{glob:?} is not a pattern of paths; use one such as src/**/*.rs"
            ))
        })?;
        Ok(Self { pattern, names_only: !glob.contains('/') })
    }

    pub(super) fn matches(&self, path: &Path) -> bool {
        let part = if self.names_only { path.file_name() } else { Some(path.as_os_str()) };
        part.is_some_and(|part| self.pattern.is_match(&part.to_string_lossy()))
    }
}

fn expression(glob: &str) -> String {
    let mut expression = "^".to_owned();
    let mut rest = glob;
    let mut in_braces = false;
    while let Some(next) = rest.chars().next() {
        let (piece, length): (&str, usize) = match next {
            '*' if rest.starts_with("**/") => ("(?:.*/)?", 3),
            '*' if rest.starts_with("**") => (".*", 2),
            '*' => ("[^/]*", 1),
            '?' => ("[^/]", 1),
            '{' => {
                in_braces = true;
                ("(?:", 1)
            }
            '}' if in_braces => {
                in_braces = false;
                (")", 1)
            }
            ',' if in_braces => ("|", 1),
            other => {
                expression.push_str(&regex::escape(other.encode_utf8(&mut [0; 4])));
                ("", other.len_utf8())
            }
        };
        expression.push_str(piece);
        rest = &rest[length..];
    }
    expression + "$"
}
