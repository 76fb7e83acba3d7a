//! Front matter: the lines between two lines of dashes at the start of a Markdown file.

mod text;

/// A file with front matter, in two parts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FrontMatter<'a> {
    /// The lines between the dashes.
    pub head: &'a str,
    /// The text below, without blank lines around it.
    pub body: &'a str,
}

/// A file without valid front matter.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FrontMatterError {
    /// Its first line is not `---`.
    #[error("there is no front matter")]
    Missing,
    /// There is no second line of dashes.
    #[error("the front matter has no closing `---`")]
    Unclosed,
}

impl<'a> FrontMatter<'a> {
    /// Lines of a file before the head.
    pub const LINES_BEFORE: usize = 1;

    /// Splits a file.
    ///
    /// ```
    /// use wellspring::front_matter::FrontMatter;
    ///
    /// let file = FrontMatter::split("---\nname: haiku\n---\n\nFive, seven, five.\n")?;
    /// assert_eq!(file, FrontMatter { head: "name: haiku\n", body: "Five, seven, five." });
    /// # Ok::<(), wellspring::front_matter::FrontMatterError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the file does not begin with front matter.
    pub fn split(text: &'a str) -> Result<Self, FrontMatterError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut lines = text.split_inclusive('\n');
        let is_rule = |line: &str| line.trim_end() == "---";
        let first = lines.next().filter(|line| is_rule(line)).ok_or(FrontMatterError::Missing)?;
        let start = first.len();
        let mut end = start;
        for line in lines {
            if is_rule(line) {
                let body = text[end + line.len()..].trim();
                return Ok(Self { head: &text[start..end], body });
            }
            end += line.len();
        }
        Err(FrontMatterError::Unclosed)
    }

    /// The text of a key at the outermost level of the head: plain, quoted or a block. `None` if
    /// it is missing or empty.
    ///
    /// ```
    /// use wellspring::front_matter::FrontMatter;
    ///
    /// let file = FrontMatter::split("---\nname: haiku\ndescription: Use it: often\n---\n")?;
    /// assert_eq!(file.text("description").as_deref(), Some("Use it: often"));
    /// # Ok::<(), wellspring::front_matter::FrontMatterError>(())
    /// ```
    #[must_use]
    pub fn text(&self, key: &str) -> Option<String> {
        text::text(self.head, key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_split_at_the_dashes() {
        let split = |head, body| Ok(FrontMatter { head, body });
        for (text, want) in [
            ("---\na: 1\n---\nbody\n", split("a: 1\n", "body")),
            ("\u{feff}---  \r\na: 1\r\n---\r\n\r\nbody\r\n", split("a: 1\r\n", "body")),
            ("---\n---", split("", "")),
            ("---\na: ---\n --- \n---\nb\n---\nc", split("a: ---\n --- \n", "b\n---\nc")),
            ("# Title\n---\na: 1\n---\n", Err(FrontMatterError::Missing)),
            ("", Err(FrontMatterError::Missing)),
            ("---\na: 1\n", Err(FrontMatterError::Unclosed)),
        ] {
            assert_eq!(FrontMatter::split(text), want, "{text:?}");
        }
    }
}
