//! Markdown, lightly: headings, lists, quotes, code, emphasis and links, a line at a time.
//!
//! A line at a time, because an answer is shown while it is being written: a line that is
//! complete never looks different later. Tables and HTML stay as they are.

use super::{Line, Span, Style, span, wrap};

/// The constructs that earlier lines left open.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Markdown {
    in_code: bool,
}

impl Markdown {
    /// Renders one cleaned line and moves on to the next.
    pub(crate) fn line(&mut self, source: &str, indent: &[Span], max: usize) -> Vec<Line> {
        let trimmed = source.trim_start();
        if trimmed.starts_with("```") || trimmed.starts_with("~~~") {
            self.in_code = !self.in_code;
            return Vec::new();
        }
        let lead = |more: &[Span]| [indent, more].concat();
        if self.in_code {
            let bar = lead(&[span("  ", Style::PLAIN)]);
            return wrap(&[span(source, Style::CYAN)], &bar, &bar, max);
        }
        if trimmed.is_empty() {
            return vec![Line::default()];
        }
        let level = trimmed.bytes().take_while(|b| *b == b'#').count();
        if let (1..=6, Some(heading)) = (level, trimmed[level..].strip_prefix(' ')) {
            let styled = inline(heading, Style::BOLD);
            return wrap(&styled, indent, indent, max);
        }
        if trimmed.len() >= 3 && trimmed.bytes().all(|b| b == b'-' || b == b'*' || b == b'_') {
            let used: usize = indent.iter().map(|span| super::width(&span.text)).sum();
            let rule = "─".repeat(max.saturating_sub(used).min(40));
            return vec![Line::of(lead(&[span(rule, Style::DIM)]))];
        }
        if let Some(quoted) = trimmed.strip_prefix('>') {
            let bar = lead(&[span("▌ ", Style::DIM)]);
            return wrap(&inline(quoted.trim_start(), Style::DIM), &bar, &bar, max);
        }
        if let Some((marker, item)) = list_item(trimmed) {
            let nested = " ".repeat(source.len() - trimmed.len());
            let rest = " ".repeat(nested.len() + super::width(&marker));
            let first = lead(&[span(format!("{nested}{marker}"), Style::DIM)]);
            let rest = lead(&[span(rest, Style::PLAIN)]);
            return wrap(&inline(item, Style::PLAIN), &first, &rest, max);
        }
        wrap(&inline(source, Style::PLAIN), indent, indent, max)
    }
}

/// The marker for display, and the item's text.
fn list_item(line: &str) -> Option<(String, &str)> {
    if let Some(item) = ["- ", "* ", "+ "].iter().find_map(|marker| line.strip_prefix(marker)) {
        return Some(match item.strip_prefix("[ ] ").map(|rest| ("☐ ", rest)) {
            Some((marker, rest)) => (marker.into(), rest),
            None => match item.strip_prefix("[x] ") {
                Some(rest) => ("☑ ".into(), rest),
                None => ("• ".into(), item),
            },
        });
    }
    let digits = line.bytes().take_while(u8::is_ascii_digit).count();
    let item = line[digits..].strip_prefix(". ").or_else(|| line[digits..].strip_prefix(") "))?;
    (1..=4).contains(&digits).then(|| (format!("{}. ", &line[..digits]), item))
}

/// Renders emphasis, code and links within a line. A construct that is not closed is not rendered.
fn inline(text: &str, base: Style) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    let mut plain = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if let Some((marked, style, after)) = marked(rest, base, plain.chars().last()) {
            if !plain.is_empty() {
                spans.push(span(std::mem::take(&mut plain), base));
            }
            if style == Style::CYAN {
                spans.push(span(marked, style));
            } else {
                spans.extend(inline(marked, style));
            }
            rest = after;
        } else if let Some((label, url, after)) = link(rest) {
            plain.push_str(label);
            if label != url {
                spans.push(span(std::mem::take(&mut plain), base));
                spans.push(span(format!(" ({url})"), Style::DIM));
            }
            rest = after;
        } else {
            let escaped = rest.strip_prefix('\\').and_then(|after| after.chars().next());
            let c = escaped.filter(char::is_ascii_punctuation).map_or(c, |escaped| {
                rest = &rest[1..];
                escaped
            });
            plain.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    if !plain.is_empty() {
        spans.push(span(plain, base));
    }
    spans
}

fn marked(text: &str, base: Style, before: Option<char>) -> Option<(&str, Style, &str)> {
    let kinds = [
        ("`", Style::CYAN),
        ("**", base.bold()),
        ("__", base.bold()),
        ("*", Style { italic: true, ..base }),
        ("_", Style { italic: true, ..base }),
    ];
    for (mark, style) in kinds {
        let Some(after) = text.strip_prefix(mark) else { continue };
        // `snake_case` and `2 * 3` are not emphasis.
        let in_word = mark.starts_with('_') && before.is_some_and(char::is_alphanumeric);
        if in_word || after.starts_with([' ', '*', '_']) && mark != "`" {
            continue;
        }
        if let Some(end) = after.find(mark).filter(|end| *end > 0) {
            let closes = mark == "`" || !after[..end].ends_with(' ');
            if closes {
                return Some((&after[..end], style, &after[end + mark.len()..]));
            }
        }
    }
    None
}

fn link(text: &str) -> Option<(&str, &str, &str)> {
    let (label, after) = text.strip_prefix('[')?.split_once("](")?;
    let (url, after) = after.split_once(')')?;
    (!label.contains(['[', ']']) && !url.contains(' ')).then_some((label, url, after))
}
