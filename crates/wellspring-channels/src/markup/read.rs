//! Parses Markdown as models write it.

use super::{Block, Style, Text};

/// Maximum nesting of emphasis. Deeper levels are shown as they were written.
const DEPTH_MAX: usize = 8;

pub(super) fn markdown(source: &str) -> Text {
    let mut text = Text::default();
    let mut number = 0;
    let mut lines = source.lines().peekable();
    let mut first = true;
    while let Some(line) = lines.next() {
        if !std::mem::take(&mut first) {
            text.push("\n", Style::default());
        }
        if let Some((fence, language)) = fence(line) {
            number += 1;
            let mut body = Vec::new();
            for line in lines.by_ref() {
                if line.trim_end().trim_start().trim_matches(fence_char(fence)).is_empty()
                    && line.trim().len() >= fence.len()
                    && line.trim().starts_with(fence)
                {
                    break;
                }
                body.push(line);
            }
            let block = Block::Code { number, language: language.into() };
            text.push(&body.join("\n"), Style { block, ..Style::default() });
        } else if is_table(line) {
            number += 1;
            let mut rows = vec![line];
            while let Some(row) = lines.next_if(|row| is_table(row)) {
                rows.push(row);
            }
            let block = Block::Code { number, language: "".into() };
            text.push(&rows.join("\n"), Style { block, ..Style::default() });
        } else if let Some(quoted) = quoted(line) {
            number += 1;
            let block = Block::Quote { number, expandable: false };
            let style = Style { block, ..Style::default() };
            inline(quoted, &style, 0, &mut text);
            while let Some(next) = lines.next_if(|line| self::quoted(line).is_some()) {
                text.push("\n", style.clone());
                inline(self::quoted(next).unwrap_or_default(), &style, 0, &mut text);
            }
        } else if let Some(heading) = heading(line) {
            inline(heading, &Style { bold: true, ..Style::default() }, 0, &mut text);
        } else if let Some((indent, item)) = item(line) {
            text.push(&format!("{indent}• "), Style::default());
            inline(item, &Style::default(), 0, &mut text);
        } else {
            inline(line, &Style::default(), 0, &mut text);
        }
    }
    text
}

fn fence_char(fence: &str) -> char {
    fence.chars().next().unwrap_or('`')
}

/// The marker and the language of a line that opens a block of code.
fn fence(line: &str) -> Option<(&str, &str)> {
    let line = line.trim_start();
    let mark = line.chars().next().filter(|c| matches!(c, '`' | '~'))?;
    let length = line.len() - line.trim_start_matches(mark).len();
    let info = line[length..].trim();
    if length < 3 || info.contains('`') {
        return None;
    }
    Some((&line[..length], info.split_whitespace().next().unwrap_or_default()))
}

fn is_table(line: &str) -> bool {
    let line = line.trim();
    line.len() > 1 && line.starts_with('|') && line.ends_with('|')
}

fn quoted(line: &str) -> Option<&str> {
    let mut rest = line.trim_start().strip_prefix('>')?;
    while let Some(deeper) = rest.trim_start().strip_prefix('>') {
        rest = deeper;
    }
    Some(rest.strip_prefix(' ').unwrap_or(rest))
}

fn heading(line: &str) -> Option<&str> {
    let text = line.trim_start_matches('#');
    let level = line.len() - text.len();
    (1..=6).contains(&level).then(|| text.strip_prefix(' ')).flatten().map(str::trim)
}

fn item(line: &str) -> Option<(&str, &str)> {
    let text = line.trim_start();
    let indent = &line[..line.len() - text.len()];
    let item = ["- ", "* ", "+ "].iter().find_map(|mark| text.strip_prefix(mark))?;
    Some((indent, item))
}

/// Parses one line with its emphasis.
fn inline(line: &str, style: &Style, depth: usize, text: &mut Text) {
    let mut plain = String::new();
    let mut rest = line;
    // The last character before `rest`.
    let mut before: Option<char> = None;
    while let Some(c) = rest.chars().next() {
        if c == '\\'
            && let Some(next) = rest[1..].chars().next().filter(char::is_ascii_punctuation)
        {
            plain.push(next);
            before = Some(next);
            rest = &rest[1 + next.len_utf8()..];
            continue;
        }
        if depth < DEPTH_MAX
            && let Some((inner, used)) = span(rest, before)
        {
            text.push(&std::mem::take(&mut plain), style.clone());
            match inner {
                Inner::Code(code) => text.push(code, Style { code: true, ..style.clone() }),
                Inner::Bold(words) => {
                    inline(words, &Style { bold: true, ..style.clone() }, depth + 1, text);
                }
                Inner::Both(words) => {
                    let style = Style { bold: true, italic: true, ..style.clone() };
                    inline(words, &style, depth + 1, text);
                }
                Inner::Italic(words) => {
                    inline(words, &Style { italic: true, ..style.clone() }, depth + 1, text);
                }
                Inner::Strike(words) => {
                    inline(words, &Style { strike: true, ..style.clone() }, depth + 1, text);
                }
                Inner::Link(words, url) => {
                    inline(
                        words,
                        &Style { link: Some(url.into()), ..style.clone() },
                        depth + 1,
                        text,
                    );
                }
            }
            before = rest[..used].chars().next_back();
            rest = &rest[used..];
            continue;
        }
        plain.push(c);
        before = Some(c);
        rest = &rest[c.len_utf8()..];
    }
    text.push(&plain, style.clone());
}

enum Inner<'a> {
    Code(&'a str),
    Bold(&'a str),
    Both(&'a str),
    Italic(&'a str),
    Strike(&'a str),
    Link(&'a str, &'a str),
}

/// The span that starts here, and its length in bytes.
fn span(rest: &str, before: Option<char>) -> Option<(Inner<'_>, usize)> {
    if rest.starts_with('`') {
        let ticks = rest.len() - rest.trim_start_matches('`').len();
        let body = &rest[ticks..];
        let end = body.find(&rest[..ticks])?;
        let code = &body[..end];
        let trimmed = code.strip_prefix(' ').and_then(|code| code.strip_suffix(' '));
        let code = trimmed.filter(|code| !code.trim().is_empty()).unwrap_or(code);
        return (!code.is_empty()).then_some((Inner::Code(code), 2 * ticks + end));
    }
    if let Some((words, url, used)) = link(rest) {
        return Some((Inner::Link(words, url), used));
    }
    for (mark, make) in [
        ("***", Inner::Both as fn(_) -> _),
        ("**", Inner::Bold),
        ("__", Inner::Bold),
        ("~~", Inner::Strike),
        ("*", Inner::Italic),
        ("_", Inner::Italic),
    ] {
        if let Some(words) = emphasis(rest, mark, before) {
            return Some((make(words), words.len() + 2 * mark.len()));
        }
    }
    None
}

/// The text between two marks.
fn emphasis<'a>(rest: &'a str, mark: &str, before: Option<char>) -> Option<&'a str> {
    let body = rest.strip_prefix(mark)?;
    let is_word = |c: char| c.is_alphanumeric();
    // `snake_case_names` are not emphasis.
    if mark.starts_with('_') && before.is_some_and(is_word) {
        return None;
    }
    if body.chars().next().is_none_or(char::is_whitespace) {
        return None;
    }
    let mut from = 0;
    loop {
        let at = from + body[from..].find(mark)?;
        let words = &body[..at];
        let after = &body[at + mark.len()..];
        let ends_word = words.chars().next_back().is_some_and(|c| !c.is_whitespace());
        let single = mark.len() == 1;
        let doubled = single && (after.starts_with(mark) || words.ends_with(mark));
        let in_word = mark.starts_with('_') && after.chars().next().is_some_and(is_word);
        let escaped = words.ends_with('\\');
        let in_code = words.matches('`').count() % 2 == 1;
        if ends_word && !doubled && !in_word && !escaped && !in_code {
            return Some(words);
        }
        // `**` inside `*…*` is skipped as a whole.
        from = at + if doubled && after.starts_with(mark) { 2 * mark.len() } else { mark.len() };
        if from >= body.len() {
            return None;
        }
    }
}

/// The text and the URL of a link or an image.
fn link(rest: &str) -> Option<(&str, &str, usize)> {
    let image = usize::from(rest.starts_with("!["));
    let body = rest[image..].strip_prefix('[')?;
    let middle = body.find("](")?;
    let words = &body[..middle];
    let url = &body[middle + 2..];
    let end = url.find(')')?;
    let url = url[..end].split_whitespace().next()?;
    let known = ["http://", "https://", "mailto:", "tg://"];
    if words.trim().is_empty()
        || words.contains('[')
        || !known.iter().any(|scheme| url.starts_with(scheme))
    {
        return None;
    }
    Some((words, url, image + 1 + middle + 2 + end + 1))
}
