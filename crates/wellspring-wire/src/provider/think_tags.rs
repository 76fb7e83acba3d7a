//! Thoughts that a server sends as text, between `<think>` and `</think>`.
//!
//! A server that does not know its model's template sends the tags as text. A tag counts only
//! where templates put it: `<think>` at the very start of the answer, and `</think>` at the
//! start of a line if `<think>` was part of the prompt. Anywhere else the tags are text,
//! because an answer may be about these tags.

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

/// Bytes of leading white space that are held back. Templates put a few line breaks before the
/// tag.
const BLANK_BYTES_MAX: usize = 64;

/// One kind of text.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Piece<'t> {
    Text(&'t str),
    Thought(&'t str),
    /// A `</think>` without its `<think>`: all text so far was a thought.
    AllWasThought,
}

/// Splits the text of one answer, which arrives in pieces.
#[derive(Debug, Default)]
pub(crate) struct ThinkTags {
    state: State,
    /// The start of what may become a tag.
    held: String,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum State {
    /// Only white space has arrived.
    #[default]
    Start,
    /// Between the tags.
    Thinking,
    /// Right after `</think>`: line breaks belong to the tag.
    Closed,
    /// In the answer, where a lone `</think>` may appear at the start of a line.
    Answer { at_line_start: bool },
    /// Tags are text from here on.
    Done,
}

impl ThinkTags {
    /// Whether tags still count. If not, text can be used unchanged.
    pub(crate) fn is_watching(&self) -> bool {
        self.state != State::Done
    }

    /// Whether a text contains no tag and completes none, so that it can be used unchanged.
    pub(crate) fn is_plain(&mut self, text: &str) -> bool {
        match self.state {
            State::Done => true,
            State::Answer { .. } if self.held.is_empty() && !text.contains('<') => {
                if let Some(last) = text.bytes().next_back() {
                    self.state = State::Answer { at_line_start: last == b'\n' };
                }
                true
            }
            State::Start | State::Thinking | State::Closed | State::Answer { .. } => false,
        }
    }

    /// From here on tags are text: the server separates thoughts itself, or a call has begun.
    /// Returns the text that was held back.
    pub(crate) fn stop(&mut self) -> Option<(String, Held)> {
        let held = std::mem::take(&mut self.held);
        let kind = if self.state == State::Thinking { Held::Thought } else { Held::Text };
        self.state = State::Done;
        (!held.is_empty()).then_some((held, kind))
    }

    /// Splits the next piece of the text.
    pub(crate) fn push(&mut self, text: &str, mut say: impl FnMut(Piece<'_>)) {
        let mut whole = std::mem::take(&mut self.held);
        whole.push_str(text);
        let mut rest = &*whole;
        loop {
            match self.state {
                State::Start => {
                    let tag = rest.trim_start();
                    if let Some(thought) = tag.strip_prefix(OPEN) {
                        self.state = State::Thinking;
                        rest = thought;
                    } else if OPEN.starts_with(tag) && rest.len() <= BLANK_BYTES_MAX {
                        break;
                    } else {
                        self.state = State::Answer { at_line_start: true };
                    }
                }
                State::Thinking => match rest.split_once(CLOSE) {
                    Some((thought, answer)) => {
                        say(Piece::Thought(thought));
                        self.state = State::Closed;
                        rest = answer;
                    }
                    None => {
                        let (thought, held) = rest.split_at(rest.len() - started(rest));
                        say(Piece::Thought(thought));
                        rest = held;
                        break;
                    }
                },
                State::Closed => {
                    rest = rest.trim_start();
                    if rest.is_empty() {
                        break;
                    }
                    self.state = State::Done;
                }
                State::Answer { at_line_start } => match lone_close(rest, at_line_start) {
                    Some((text, answer)) => {
                        say(Piece::Text(text));
                        say(Piece::AllWasThought);
                        self.state = State::Closed;
                        rest = answer;
                    }
                    None => {
                        let mut length = started(rest);
                        let before = &rest[..rest.len() - length];
                        if !is_line_start(before, at_line_start) {
                            length = 0;
                        }
                        let (text, held) = rest.split_at(rest.len() - length);
                        say(Piece::Text(text));
                        let at_line_start = is_line_start(text, at_line_start);
                        self.state = State::Answer { at_line_start };
                        rest = held;
                        break;
                    }
                },
                State::Done => {
                    say(Piece::Text(rest));
                    rest = "";
                    break;
                }
            }
        }
        self.held.push_str(rest);
    }
}

/// The kind of text that was held back.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Held {
    Text,
    Thought,
}

/// Splits the text of an answer that was not streamed into the thought, if any, and the answer.
pub(crate) fn split(text: &str) -> (Option<&str>, &str) {
    let opened = text.trim_start().strip_prefix(OPEN);
    match opened {
        Some(rest) => match rest.split_once(CLOSE) {
            Some((thought, answer)) => (Some(thought), answer.trim_start()),
            None => (Some(rest), ""),
        },
        None => match lone_close(text, true) {
            Some((thought, answer)) => (Some(thought), answer.trim_start()),
            None => (None, text),
        },
    }
}

/// A `</think>` at the start of a line: the text before it and after it.
fn lone_close(text: &str, at_line_start: bool) -> Option<(&str, &str)> {
    let mut found = text.match_indices(CLOSE);
    let (at, _) = found.find(|(at, _)| is_line_start(&text[..*at], at_line_start))?;
    Some((&text[..at], &text[at + CLOSE.len()..]))
}

fn is_line_start(before: &str, at_line_start: bool) -> bool {
    if before.is_empty() { at_line_start } else { before.ends_with('\n') }
}

/// The number of bytes at the end that may be the start of `</think>`.
fn started(text: &str) -> usize {
    let longest = text.len().min(CLOSE.len() - 1);
    (1..=longest).rev().find(|length| text.ends_with(&CLOSE[..*length])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces<'t>(chunks: impl IntoIterator<Item = &'t str>) -> String {
        let mut tags = ThinkTags::default();
        let mut said: Vec<(char, String)> = Vec::new();
        let mut add = |kind: char, text: &str| match said.last_mut() {
            Some((last, whole)) if *last == kind => whole.push_str(text),
            _ if text.is_empty() && kind != '!' => {}
            _ => said.push((kind, text.to_owned())),
        };
        for chunk in chunks {
            if tags.is_plain(chunk) {
                add('a', chunk);
                continue;
            }
            tags.push(chunk, |piece| match piece {
                Piece::Text(text) => add('a', text),
                Piece::Thought(text) => add('t', text),
                Piece::AllWasThought => add('!', ""),
            });
        }
        if let Some((held, kind)) = tags.stop() {
            add(if kind == Held::Text { 'a' } else { 't' }, &held);
        }
        said.iter().map(|(kind, text)| format!("{kind}:{text:?} ")).collect()
    }

    #[test]
    fn the_same_however_the_text_is_cut() {
        for (text, want) in [
            ("Hello <b>", r#"a:"Hello <b>" "#),
            ("\n <think>\nHm</think>\n\nHi", r#"t:"\nHm" a:"Hi" "#),
            ("<think></think>Hi", r#"a:"Hi" "#),
            ("<think>Hm, 1 < 2 </thin", r#"t:"Hm, 1 < 2 </thin" "#),
            ("<thinking>", r#"a:"<thinking>" "#),
            ("Hm\n</think>\n\nHi", r#"a:"Hm\n" !:"" a:"Hi" "#),
            ("`<think>` ends with `</think>`.", r#"a:"`<think>` ends with `</think>`." "#),
            ("<think>a</think>\n</think>b", r#"t:"a" a:"</think>b" "#),
            ("a\n</thing>", r#"a:"a\n</thing>" "#),
            ("  ", r#"a:"  " "#),
        ] {
            for size in 1..=text.len() {
                let chunks = text.as_bytes().chunks(size);
                let chunks = chunks.map(|chunk| std::str::from_utf8(chunk).unwrap());
                assert_eq!(pieces(chunks), want, "{text:?} in pieces of {size}");
            }
        }
    }

    #[test]
    fn white_space_is_held_back_up_to_a_limit() {
        let long = " ".repeat(BLANK_BYTES_MAX + 1);
        let mut tags = ThinkTags::default();
        tags.push(&long[1..], |piece| panic!("{piece:?}"));
        let mut said = 0;
        tags.push(" ", |piece| said += usize::from(piece == Piece::Text(&long)));
        assert_eq!(said, 1);
    }

    #[test]
    fn in_one_piece() {
        for (text, want) in [
            ("Hi", (None, "Hi")),
            ("<think>a</think>\n\nHi", (Some("a"), "Hi")),
            ("<think>a", (Some("a"), "")),
            ("a\n</think>\nHi", (Some("a\n"), "Hi")),
            ("It is `</think>`.", (None, "It is `</think>`.")),
        ] {
            assert_eq!(split(text), want);
        }
    }
}
