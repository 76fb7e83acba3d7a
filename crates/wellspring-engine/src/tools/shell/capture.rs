//! Captures a stream of bytes as text, up to a maximum.

use super::{CAPTURE_BYTES_MAX, SHOWN_BYTES_MAX};

/// Decodes bytes as text; the bytes may be split anywhere.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    /// The start of an incomplete character; at most three bytes.
    carry: Vec<u8>,
}

impl Decoder {
    /// Decodes these bytes and the incomplete character before them. Invalid bytes become U+FFFD.
    pub(super) fn push(&mut self, bytes: &[u8]) -> String {
        self.carry.extend_from_slice(bytes);
        let bytes = std::mem::take(&mut self.carry);
        let mut text = String::with_capacity(bytes.len());
        let mut chunks = bytes.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            text.push_str(chunk.valid());
            let rest = chunk.invalid();
            if chunks.peek().is_none() && is_cut(rest) {
                self.carry = rest.to_vec();
            } else if !rest.is_empty() {
                text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        text
    }

    /// The remaining text after the last bytes.
    pub(super) fn finish(&mut self) -> &'static str {
        if std::mem::take(&mut self.carry).is_empty() { "" } else { "\u{FFFD}" }
    }
}

/// Whether these bytes may be the start of a character.
fn is_cut(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

/// Keeps the start and the end of a text of any length.
#[derive(Debug, Default)]
pub(super) struct Capture {
    head: String,
    tail: String,
    left_out: usize,
}

const HALF: usize = CAPTURE_BYTES_MAX / 2;

impl Capture {
    pub(super) fn push(&mut self, text: &str) {
        let rest = if self.tail.is_empty() && self.left_out == 0 {
            let room = text.floor_char_boundary(HALF - self.head.len());
            let (head, rest) = text.split_at(room);
            self.head.push_str(head);
            rest
        } else {
            text
        };
        self.tail.push_str(rest);
        // Twice the maximum may be buffered here, so that each byte is moved only once or twice.
        if self.tail.len() > 2 * HALF {
            self.trim();
        }
    }

    pub(super) fn text(mut self) -> String {
        self.trim();
        let Self { head, tail, left_out } = self;
        match left_out {
            0 => head + &tail,
            _ => format!("{head}\n[... {left_out} bytes left out ...]\n{tail}"),
        }
    }

    fn trim(&mut self) {
        let surplus = self.tail.ceil_char_boundary(self.tail.len().saturating_sub(HALF));
        self.tail.drain(..surplus);
        self.left_out += surplus;
    }
}

/// Shows the progress of a text of any length: all of it up to the maximum, and then only its size.
#[derive(Debug, Default)]
pub(super) struct Shown {
    bytes: u64,
    /// Bytes since the size was last shown.
    silent: u64,
}

/// Bytes beyond the maximum between two updates: often enough to show that the command is running.
const SILENCE_BYTES: u64 = 1024 * 1024;

impl Shown {
    /// The progress to show for the next piece, if any.
    pub(super) fn pass(&mut self, text: String) -> Option<String> {
        let bytes = text.len() as u64;
        if self.bytes + bytes <= SHOWN_BYTES_MAX {
            self.bytes += bytes;
            return Some(text).filter(|text| !text.is_empty());
        }
        self.bytes = SHOWN_BYTES_MAX;
        self.silent += bytes;
        (self.silent >= SILENCE_BYTES).then(|| {
            let silent = std::mem::take(&mut self.silent);
            format!("[... {silent} bytes not shown ...]\n")
        })
    }
}
