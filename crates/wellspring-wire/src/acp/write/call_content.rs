//! The content of open calls. An update replaces all of it, so it is kept while the call is
//! open.

use serde_json::{Value, json};
use wellspring_core::{ContentChange, ToolContent};

use super::content::{absolute, content_block, text_block};

/// Bytes of content blocks kept per call; beyond that, the oldest are dropped. Larger than any
/// diff that people read, and small enough to send again.
pub const SHOWN_BYTES_MAX: usize = 512 * 1024;

/// Bytes kept of a call's streamed text: its last few screens.
pub const RUNNING_BYTES_MAX: usize = 16 * 1024;

/// Text is sent again once it has grown by this fraction.
const GROWN: u64 = 8;

/// How to show text.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Voice {
    /// As prose.
    Words,
    /// As command output, line by line.
    Console,
}

/// Where a call runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room<'a> {
    /// The directory that relative paths start from.
    pub(super) cwd: Option<&'a str>,
    /// Whether its terminals are the client's own.
    pub(super) has_terminals: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Shown {
    /// Blocks that no longer change.
    blocks: Vec<Value>,
    blocks_bytes: usize,
    running: Option<Running>,
    news: bool,
}

#[derive(Clone, Debug)]
struct Running {
    voice: Voice,
    /// The last bytes of the text.
    text: String,
    /// Its total length.
    said: u64,
    /// Its length when it was last shown.
    shown: u64,
}

impl Shown {
    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.running.is_none()
    }

    /// Whether something has not been sent yet.
    pub(super) fn has_news(&self) -> bool {
        self.news
    }

    /// Whether the text has grown enough to be sent again.
    pub(super) fn is_due(&self) -> bool {
        let grown = |running: &Running| running.said - running.shown > running.shown / GROWN;
        self.running.as_ref().is_some_and(grown)
    }

    pub(super) fn say(&mut self, voice: Voice, text: &str) {
        if self.running.as_ref().is_some_and(|running| running.voice != voice) {
            self.settle();
        }
        let running =
            self.running.get_or_insert(Running { voice, text: String::new(), said: 0, shown: 0 });
        running.text.push_str(text);
        running.said += text.len() as u64;
        if running.text.len() > RUNNING_BYTES_MAX {
            let cut = running.text.ceil_char_boundary(running.text.len() - RUNNING_BYTES_MAX);
            running.text.drain(..cut);
        }
        self.news |= !text.is_empty();
    }

    pub(super) fn change(&mut self, change: &ContentChange, room: Room<'_>) {
        match change {
            ContentChange::Append(content) => self.append(content, room),
            ContentChange::Replace(content) => self.replace(content, room),
        }
    }

    pub(super) fn replace(&mut self, content: &[ToolContent], room: Room<'_>) {
        *self = Self::default();
        self.append(content, room);
    }

    fn append(&mut self, content: &[ToolContent], room: Room<'_>) {
        self.settle();
        for content in content {
            if let Some(block) = block(content, room) {
                self.push(block);
            }
        }
        self.news = true;
    }

    /// Everything that the call shows.
    pub(super) fn show(&mut self) -> Vec<Value> {
        self.news = false;
        let mut blocks = self.blocks.clone();
        if let Some(running) = &mut self.running {
            running.shown = running.said;
            blocks.push(running.block());
        }
        blocks
    }

    /// Ends the streamed text.
    fn settle(&mut self) {
        if let Some(running) = self.running.take() {
            self.push(running.block());
        }
    }

    fn push(&mut self, block: Value) {
        self.blocks_bytes += size(&block);
        self.blocks.push(block);
        while self.blocks_bytes > SHOWN_BYTES_MAX && self.blocks.len() > 1 {
            self.blocks_bytes -= size(&self.blocks.remove(0));
        }
    }
}

impl Running {
    fn block(&self) -> Value {
        let cut = if self.said > self.text.len() as u64 { "…" } else { "" };
        match self.voice {
            Voice::Words => text(&format!("{cut}{}", self.text)),
            Voice::Console => {
                // A fence longer than any run of backticks in the text.
                let longest = self.text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
                let fence = "`".repeat(longest.max(2) + 1);
                let end = if self.text.ends_with('\n') { "" } else { "\n" };
                text(&format!("{fence}\n{cut}{}{end}{fence}", self.text))
            }
        }
    }
}

pub(super) fn text(text: &str) -> Value {
    json!({"type": "content", "content": text_block(text)})
}

fn block(content: &ToolContent, room: Room<'_>) -> Option<Value> {
    Some(match content {
        ToolContent::Content(content) => {
            json!({"type": "content", "content": content_block(content)})
        }
        ToolContent::Diff { path, old_text, new_text } => {
            let mut diff =
                json!({"type": "diff", "path": absolute(path, room.cwd), "newText": new_text});
            if let Some(old) = old_text {
                diff["oldText"] = (&**old).into();
            }
            diff
        }
        ToolContent::Terminal { terminal_id } => {
            room.has_terminals.then(|| json!({"type": "terminal", "terminalId": terminal_id}))?
        }
    })
}

/// The approximate size of a value in bytes: the total length of its strings.
fn size(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(values) => values.iter().map(size).sum(),
        Value::Object(members) => members.values().map(size).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
    }
}
