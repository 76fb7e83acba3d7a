//! Splits a Markdown file into its front matter, between lines of dashes, and its text.

use super::node::SyntaxError;

#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Parts<'a> {
    pub(crate) head: &'a str,
    /// Lines of the file before the head.
    pub(crate) lines_before: usize,
    pub(crate) body: &'a str,
}

/// Splits a file. Front matter is required, since an agent needs a model.
pub(crate) fn split(text: &str) -> Result<Parts<'_>, SyntaxError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut at = 0;
    let mut head = None;
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let is_rule = line.trim_end() == "---";
        match head {
            None if number == 0 && is_rule => head = Some(at + line.len()),
            None => return Err(SyntaxError { line: 1, what: "there is no front matter".into() }),
            Some(start) if is_rule => {
                return Ok(Parts {
                    head: &text[start..at],
                    lines_before: 1,
                    body: text[at + line.len()..].trim(),
                });
            }
            Some(_) => {}
        }
        at += line.len();
    }
    Err(SyntaxError { line: 1, what: "the front matter has no closing `---`".into() })
}
