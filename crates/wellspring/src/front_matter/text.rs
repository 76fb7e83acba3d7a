//! Reads a single text of front matter by its key.
//!
//! This is not a YAML parser: skills are often not valid YAML (`description: Use it: often`), and
//! other agents read them all the same.

/// The text of a key at the outermost level; `None` if it is missing or empty.
pub(super) fn text(head: &str, key: &str) -> Option<String> {
    let head: Vec<&str> = head.lines().collect();
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
            // A comment starts after a space.
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

/// The text between quotes. In double quotes a backslash escapes; in single quotes a quote is
/// doubled.
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
        (text(head, "name"), text(head, "description"))
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
}
