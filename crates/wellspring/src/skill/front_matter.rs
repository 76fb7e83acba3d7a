//! Front matter: what stands between two lines of dashes at the start of a file.

/// What a file says of itself, and the rest of it.
#[derive(Debug, Default, Eq, PartialEq)]
pub(super) struct FrontMatter {
    pub(super) name: Option<String>,
    pub(super) description: Option<String>,
    pub(super) body: String,
}

/// Reads a file's front matter; without any, all of it is the body.
pub(super) fn front_matter(text: &str) -> FrontMatter {
    let text = text.trim_start_matches('\u{feff}');
    let mut lines = text.lines();
    if lines.next().map(str::trim_end) != Some("---") {
        return FrontMatter { body: text.trim().into(), ..FrontMatter::default() };
    }
    let head: Vec<&str> = lines.by_ref().take_while(|line| line.trim_end() != "---").collect();
    let body = lines.collect::<Vec<_>>().join("\n").trim().to_owned();
    FrontMatter { name: value(&head, "name"), description: value(&head, "description"), body }
}

/// The text of a key at the outermost level; `None` if it is missing or empty.
fn value(head: &[&str], key: &str) -> Option<String> {
    let (at, first) = head.iter().enumerate().find_map(|(at, line)| {
        let value = line.strip_prefix(key)?.trim_start().strip_prefix(':')?;
        (value.is_empty() || value.starts_with([' ', '\t'])).then(|| (at, value.trim()))
    })?;
    let more =
        head[at + 1..].iter().take_while(|line| line.is_empty() || line.starts_with([' ', '\t']));
    let more: Vec<&str> = more.map(|line| line.trim()).collect();
    let text = match first.chars().next() {
        Some('|') => more.join("\n"),
        Some('>') => more.join(" "),
        Some(quote @ ('"' | '\'')) => unquote(&join(first, &more), quote),
        _ => {
            let whole = join(first, &more);
            // A remark begins after a space.
            whole.split(" #").next().unwrap_or_default().to_owned()
        }
    };
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

fn join(first: &str, more: &[&str]) -> String {
    let mut text = first.to_owned();
    for line in more {
        text.push(' ');
        text.push_str(line);
    }
    text.trim_end().to_owned()
}

/// What is between the quotes. In double ones a backslash escapes, in single ones a quote
/// is doubled.
fn unquote(text: &str, quote: char) -> String {
    let mut plain = String::new();
    let mut chars = text.chars().skip(1).peekable();
    while let Some(next) = chars.next() {
        match next {
            '\\' if quote == '"' => match chars.next() {
                Some('n') => plain.push('\n'),
                Some('t') => plain.push('\t'),
                Some(escaped) => plain.push(escaped),
                None => {}
            },
            '\'' if quote == '\'' && chars.peek() == Some(&'\'') => {
                chars.next();
                plain.push('\'');
            }
            next if next == quote => break,
            next => plain.push(next),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(head: &str) -> (Option<String>, Option<String>) {
        let read = front_matter(&format!("---\n{head}\n---\nbody\n"));
        assert_eq!(read.body, "body");
        (read.name, read.description)
    }

    #[test]
    fn texts_are_read_in_every_common_form() {
        for (head, name, description) in [
            ("name: pdf\ndescription: Reads PDFs.", "pdf", "Reads PDFs."),
            ("description: 'It''s fine'\nname: \"a \\\"b\\\"\"", "a \"b\"", "It's fine"),
            ("name: x # remark\ndescription: >-\n  two\n  lines\nlicense: MIT", "x", "two lines"),
            ("name: x\ndescription: |\n  two\n  lines", "x", "two\nlines"),
            ("name: x\ndescription: goes\n  on: here\n", "x", "goes on: here"),
            ("metadata:\n  name: no\nname: yes\ndescription: a:b", "yes", "a:b"),
        ] {
            assert_eq!(said(head), (Some(name.into()), Some(description.into())), "{head}");
        }
    }

    #[test]
    fn what_is_missing_or_empty_is_none() {
        for head in ["", "name:\ndescription: \"\"", "names: x", "  name: x"] {
            assert_eq!(said(head), (None, None), "{head}");
        }
    }

    #[test]
    fn without_front_matter_all_is_body() {
        let read = front_matter("# Title\n---\nname: x\n---\n");
        let want =
            FrontMatter { body: "# Title\n---\nname: x\n---".into(), ..FrontMatter::default() };
        assert_eq!(read, want);
    }
}
