//! Converts models' Markdown to the markup of chat networks.
//!
//! [`Text::markdown`] parses a model's Markdown into a flat sequence of styled pieces. It can
//! be cut anywhere ([`Text::split`], [`Text::tail`]) and each piece rendered separately: no
//! fence, quote, link or entity is ever cut, because the cut happens before they are written.
//!
//! # What is deliberately absent
//!
//! Complete Markdown. Syntax that is not recognised is shown as it was written, so that no text
//! is lost. Nested quotes become one quote, and a table is shown as code, because chat networks
//! support neither.

mod read;
mod write;

#[cfg(test)]
mod tests;

/// A markup of chat networks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Markup {
    /// Telegram's HTML.
    TelegramHtml,
    /// Telegram's HTML without quotes, which old servers reject: quotes are italic.
    TelegramHtmlItalic,
    /// Discord's Markdown.
    Discord,
    /// Slack's mrkdwn.
    Slack,
    /// WhatsApp's markers.
    WhatsApp,
    /// No markup.
    Plain,
}

/// A text with styles.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Text {
    spans: Vec<Span>,
}

/// A piece of a text in one style.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Span {
    text: String,
    style: Style,
}

/// The style of a piece.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Style {
    pub(crate) bold: bool,
    pub(crate) italic: bool,
    pub(crate) strike: bool,
    pub(crate) code: bool,
    pub(crate) link: Option<Box<str>>,
    pub(crate) block: Block,
}

/// The block that a piece is in. The number distinguishes adjacent blocks.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) enum Block {
    #[default]
    Flow,
    Quote {
        number: u32,
        expandable: bool,
    },
    Code {
        number: u32,
        language: Box<str>,
    },
}

/// The number of the block for thoughts; no block of an answer has it.
const THOUGHTS: u32 = u32::MAX;

impl Text {
    /// Reads a model's Markdown.
    ///
    /// ```
    /// use wellspring_channels::{Markup, Text};
    ///
    /// let text = Text::markdown("It is **5 < 6**.");
    /// assert_eq!(text.render(Markup::TelegramHtml), "It is <b>5 &lt; 6</b>.");
    /// assert_eq!(text.render(Markup::Plain), "It is 5 < 6.");
    /// ```
    #[must_use]
    pub fn markdown(source: &str) -> Self {
        read::markdown(source)
    }

    /// Unstyled text.
    #[must_use]
    pub fn plain(text: &str) -> Self {
        let mut all = Self::default();
        all.push(text, Style::default());
        all
    }

    /// A text in bold.
    #[must_use]
    pub fn bold(text: &str) -> Self {
        let mut all = Self::default();
        all.push(text, Style { bold: true, ..Style::default() });
        all
    }

    /// A collapsible quote: a title, and a text below it.
    #[must_use]
    pub fn thoughts(title: &str, text: &str) -> Self {
        let block = Block::Quote { number: THOUGHTS, expandable: true };
        let mut all = Self::default();
        all.push(title, Style { bold: true, block: block.clone(), ..Style::default() });
        if !text.is_empty() {
            all.push(&format!("\n{text}"), Style { block, ..Style::default() });
        }
        all
    }

    /// Whether there is no visible text.
    #[must_use]
    pub fn is_blank(&self) -> bool {
        self.spans.iter().all(|span| span.text.trim().is_empty())
    }

    /// The length in UTF-16 units, as networks count it, without markup.
    #[must_use]
    pub fn len_utf16(&self) -> usize {
        self.spans.iter().map(|span| utf16(&span.text)).sum()
    }

    /// Appends another text.
    #[must_use]
    pub fn then(mut self, other: Self) -> Self {
        for span in other.spans {
            self.push(&span.text, span.style);
        }
        self
    }

    /// The text in a network's markup.
    #[must_use]
    pub fn render(&self, markup: Markup) -> String {
        write::render(self, markup)
    }

    /// The end of the text, at most `max` UTF-16 units, from the start of a nearby word if
    /// possible.
    #[must_use]
    pub fn tail(&self, max: usize) -> Self {
        let mut skip = self.len_utf16().saturating_sub(max);
        if skip == 0 {
            return self.clone();
        }
        let whole = self.render(Markup::Plain);
        let start = byte_at(&whole, skip, Round::Up);
        // Skip at most a hundred characters to find the start of a word.
        let near = whole[start..].char_indices().take(100).find(|(_, c)| c.is_whitespace());
        if let Some((at, space)) = near {
            skip = utf16(&whole[..start + at + space.len_utf8()]);
        }
        self.cut(skip).1
    }

    /// Splits the text into pieces of at most `first` UTF-16 units, and `max` from the second
    /// on. Only line breaks and spaces at a cut are dropped.
    #[must_use]
    pub fn split(&self, first: usize, max: usize) -> Vec<Self> {
        let mut pieces = Vec::new();
        let mut rest = self.trimmed();
        let mut room = first.max(1);
        while rest.len_utf16() > room {
            let at = rest.place_to_cut(room);
            let (piece, more) = rest.cut(at);
            pieces.push(piece.trimmed());
            rest = more.trimmed();
            room = max.max(1);
        }
        pieces.push(rest);
        pieces.retain(|piece| !piece.is_blank());
        pieces
    }

    /// The position to cut at, in UTF-16 units: after the last paragraph, line, sentence or
    /// word that leaves the piece at least half full, and outside code if possible.
    fn place_to_cut(&self, room: usize) -> usize {
        let whole = self.render(Markup::Plain);
        let end = byte_at(&whole, room, Round::Down);
        let head = &whole[..end];
        let half = byte_at(&whole, room / 2, Round::Down);
        let mut in_code = Vec::new();
        let mut at = 0;
        for span in &self.spans {
            let next = at + span.text.len();
            if matches!(span.style.block, Block::Code { .. }) {
                in_code.push(at..next);
            }
            at = next;
        }
        let free = |at: &usize| !in_code.iter().any(|code| code.start < *at && *at < code.end);
        let after = |separator: &'static str| {
            head.rmatch_indices(separator).map(|(at, found)| at + found.len())
        };
        let good = |at: &usize| *at > half && *at > 0;
        for separator in ["\n\n", "\n"] {
            if let Some(at) = after(separator).take_while(good).find(free) {
                return utf16(&whole[..at]);
            }
        }
        // A block of code that starts in the second half is moved to the next piece as a whole.
        if let Some(code) = in_code.iter().find(|code| code.start > half && code.start < end) {
            return utf16(&whole[..code.start]);
        }
        for separator in ["\n", ". ", " "] {
            if let Some(at) = after(separator).find(good) {
                return utf16(&whole[..at]);
            }
        }
        utf16(&head[..joined_start(&whole, end)])
    }

    /// The text before and after a position, in UTF-16 units.
    fn cut(&self, at: usize) -> (Self, Self) {
        let (mut before, mut after) = (Self::default(), Self::default());
        let mut room = at;
        for span in &self.spans {
            let byte = byte_at(&span.text, room, Round::Up);
            let (one, two) = span.text.split_at(byte);
            room = room.saturating_sub(utf16(one));
            before.push(one, span.style.clone());
            after.push(two, span.style.clone());
        }
        (before, after)
    }

    /// The text without surrounding white space.
    fn trimmed(&self) -> Self {
        let mut text = self.clone();
        while let Some(first) = text.spans.first_mut() {
            first.text = first.text.trim_start_matches(['\n', ' ']).to_owned();
            if !first.text.is_empty() {
                break;
            }
            text.spans.remove(0);
        }
        while let Some(last) = text.spans.last_mut() {
            last.text.truncate(last.text.trim_end().len());
            if !last.text.is_empty() {
                break;
            }
            text.spans.pop();
        }
        text
    }

    pub(crate) fn push(&mut self, text: &str, style: Style) {
        if text.is_empty() {
            return;
        }
        match self.spans.last_mut() {
            Some(last) if last.style == style => last.text.push_str(text),
            _ => self.spans.push(Span { text: text.to_owned(), style }),
        }
    }
}

/// The length of a text as networks count it.
#[must_use]
pub(crate) fn utf16(text: &str) -> usize {
    text.chars().map(char::len_utf16).sum()
}

/// Which boundary to use if a position is inside a character.
#[derive(Clone, Copy)]
enum Round {
    Down,
    Up,
}

/// The byte offset of a position in UTF-16 units.
fn byte_at(text: &str, units: usize, round: Round) -> usize {
    let mut passed = 0;
    for (at, c) in text.char_indices() {
        let next = passed + c.len_utf16();
        match round {
            Round::Down if next > units => return at,
            Round::Up if passed >= units => return at,
            Round::Down | Round::Up => passed = next,
        }
    }
    text.len()
}

/// The position at or before `at` that does not split an emoji or separate an accent from its
/// letter.
fn joined_start(text: &str, at: usize) -> usize {
    let joins = |c: char| {
        matches!(c, '\u{200d}' | '\u{fe0e}' | '\u{fe0f}' | '\u{0300}'..='\u{036f}'
            | '\u{1f3fb}'..='\u{1f3ff}' | '\u{20e3}')
    };
    let mut place = at;
    // An emoji has at most sixteen characters.
    for _ in 0..16 {
        let next = text[place..].chars().next();
        let last = text[..place].chars().next_back();
        match last {
            Some(c) if next.is_some_and(joins) || c == '\u{200d}' => place -= c.len_utf8(),
            Some(_) | None => break,
        }
    }
    if place == 0 { at } else { place }
}

/// The last characters of a text, at most `max`, with an ellipsis if something is left out.
#[must_use]
pub(crate) fn last_chars(text: &str, max: usize) -> String {
    let text = text.trim();
    let count = text.chars().count();
    if count <= max {
        return text.to_owned();
    }
    let tail: String = text.chars().skip(count - max).collect();
    format!("…{}", tail.trim_start())
}

/// The first characters of a text, at most `max`, with an ellipsis if something is left out.
#[must_use]
pub(crate) fn first_chars(text: &str, max: usize) -> String {
    let text = text.trim();
    match text.char_indices().nth(max) {
        Some((end, _)) => format!("{}…", text[..end].trim_end()),
        None => text.to_owned(),
    }
}
