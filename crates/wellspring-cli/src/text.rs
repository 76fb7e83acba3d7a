//! Styled text: cleaned of what could command a terminal, measured, wrapped. Pure.

pub(crate) mod markdown;

use unicode_width::UnicodeWidthChar as _;

/// Spaces per tab: a tab has no fixed width in a region that is repainted.
const TAB: &str = "    ";

/// How a piece of text looks.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Style {
    pub(crate) colour: Option<Colour>,
    pub(crate) bold: bool,
    pub(crate) dim: bool,
    pub(crate) italic: bool,
}

/// The colours that every terminal's theme has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Colour {
    Red,
    Green,
    Yellow,
    Cyan,
}

impl Style {
    pub(crate) const PLAIN: Self = Self { colour: None, bold: false, dim: false, italic: false };
    pub(crate) const DIM: Self = Self { dim: true, ..Self::PLAIN };
    pub(crate) const BOLD: Self = Self { bold: true, ..Self::PLAIN };
    pub(crate) const THOUGHT: Self = Self { dim: true, italic: true, ..Self::PLAIN };
    pub(crate) const RED: Self = Self::of(Colour::Red);
    pub(crate) const GREEN: Self = Self::of(Colour::Green);
    pub(crate) const YELLOW: Self = Self::of(Colour::Yellow);
    pub(crate) const CYAN: Self = Self::of(Colour::Cyan);

    const fn of(colour: Colour) -> Self {
        Self { colour: Some(colour), ..Self::PLAIN }
    }

    pub(crate) const fn bold(self) -> Self {
        Self { bold: true, ..self }
    }
}

/// A stretch of text in one style.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Span {
    pub(crate) text: String,
    pub(crate) style: Style,
}

pub(crate) fn span(text: impl Into<String>, style: Style) -> Span {
    Span { text: text.into(), style }
}

/// One line of a screen.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Line {
    pub(crate) spans: Vec<Span>,
}

impl Line {
    pub(crate) fn of(spans: impl IntoIterator<Item = Span>) -> Self {
        Self { spans: spans.into_iter().collect() }
    }

    pub(crate) fn text(&self) -> String {
        self.spans.iter().map(|span| span.text.as_str()).collect()
    }

    pub(crate) fn width(&self) -> usize {
        self.spans.iter().map(|span| width(&span.text)).sum()
    }

    /// Cut to at most `max` columns; what was cut shows as an ellipsis.
    pub(crate) fn truncated(mut self, max: usize) -> Self {
        if self.width() <= max {
            return self;
        }
        let mut left = max.saturating_sub(1);
        let mut kept = Vec::new();
        for mut span in self.spans.drain(..) {
            let (head, whole) = head(&span.text, left);
            left -= width(head);
            let style = span.style;
            let is_whole = whole;
            span.text = head.to_owned();
            kept.push(span);
            if !is_whole {
                kept.push(self::span("…", style));
                break;
            }
        }
        Self { spans: kept }
    }
}

/// The columns that a text takes.
pub(crate) fn width(text: &str) -> usize {
    text.chars().map(|c| c.width().unwrap_or(0)).sum()
}

/// The longest prefix that fits, and whether it is the whole text.
fn head(text: &str, columns: usize) -> (&str, bool) {
    let mut used = 0;
    for (at, c) in text.char_indices() {
        used += c.width().unwrap_or(0);
        if used > columns {
            return (&text[..at], false);
        }
    }
    (text, true)
}

/// Replaces everything that could command a terminal, or make a text look like another:
/// control characters (C0, DEL, C1), direction overrides, invisible tags. Line ends stay.
pub(crate) fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\n' | '\u{2028}' | '\u{2029}' => out.push('\n'),
            '\r' => {
                chars.next_if_eq(&'\n');
                out.push('\n');
            }
            '\t' => out.push_str(TAB),
            // The pictures of the control characters, in the same order.
            '\0'..='\u{1f}' => out.push(char::from_u32(0x2400 + c as u32).unwrap_or('\u{fffd}')),
            '\u{7f}' => out.push('\u{2421}'),
            '\u{80}'..='\u{9f}'
            | '\u{61c}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// [`clean`], on one line.
pub(crate) fn clean_line(text: &str) -> String {
    clean(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Wraps spans into lines of at most `max` columns, at spaces if possible. `first` is the prefix of
/// the first line, `rest` that of the other lines.
pub(crate) fn wrap(spans: &[Span], first: &[Span], rest: &[Span], max: usize) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut line = Vec::from(first);
    let mut used: usize = first.iter().map(|span| width(&span.text)).sum();
    let rest_width: usize = rest.iter().map(|span| width(&span.text)).sum();
    // A prefix must leave room for at least one wide character.
    let max = max.max(rest_width.max(used) + 2);
    let mut begun = false;
    for (word, style) in words(spans) {
        let mut word = word;
        if used + width(word.trim_end()) > max && begun {
            trim_end(&mut line);
            lines.push(Line { spans: std::mem::replace(&mut line, rest.into()) });
            used = rest_width;
            begun = false;
            word = word.trim_start();
        }
        while used + width(word.trim_end()) > max {
            let (piece, _) = head(word, max - used);
            push(&mut line, piece, style);
            lines.push(Line { spans: std::mem::replace(&mut line, rest.into()) });
            word = &word[piece.len()..];
            used = rest_width;
        }
        // Spaces at the end of a full line are dropped.
        let (fits, _) = head(word, max - used);
        push(&mut line, fits, style);
        used += width(fits);
        begun |= !fits.is_empty();
    }
    trim_end(&mut line);
    lines.push(Line { spans: line });
    lines
}

fn words(spans: &[Span]) -> impl Iterator<Item = (&str, Style)> {
    spans.iter().flat_map(|span| span.text.split_inclusive(' ').map(move |word| (word, span.style)))
}

fn push(line: &mut Vec<Span>, text: &str, style: Style) {
    match line.last_mut() {
        _ if text.is_empty() => {}
        Some(last) if last.style == style => last.text.push_str(text),
        _ => line.push(span(text, style)),
    }
}

fn trim_end(line: &mut [Span]) {
    if let Some(last) = line.last_mut() {
        last.text.truncate(last.text.trim_end().len());
    }
}

#[cfg(test)]
mod tests;
