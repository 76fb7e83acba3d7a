//! What a server's tools are called here: `server__tool`.
//!
//! # What is promised
//!
//! - Every name is legal for every model provider: at most [`TOOL_NAME_CHARS_MAX`] of
//!   letters, digits, `_` and `-`.
//! - It depends on the server's and the tool's name only, never on what else there is, so
//!   the same tool has the same name in every run.
//! - Tools of servers with different names never share one: a server's part contains no
//!   `__`, so the first `__` ends it. Two tools of one server share a name only if they
//!   share their own (or by an accident of 32 bits).

/// Characters of a tool's name: the least that any provider takes.
pub const TOOL_NAME_CHARS_MAX: usize = 64;

/// Characters of a server's part of a name: half, so that the tool's own half can be read.
const PREFIX_CHARS_MAX: usize = 32;

/// Between a server and its tool.
const SEPARATOR: &str = "__";

/// The server's part of a name.
pub(crate) fn prefix(server: &str) -> String {
    let edge = |c: char| c == '_';
    let mut legal = legal(server);
    while legal.contains(SEPARATOR) {
        legal = legal.replace(SEPARATOR, "_");
    }
    let trimmed = legal.trim_matches(edge);
    if trimmed == server && !trimmed.is_empty() && trimmed.len() <= PREFIX_CHARS_MAX {
        return server.to_owned();
    }
    marked(if trimmed.is_empty() { "mcp" } else { trimmed }, server, PREFIX_CHARS_MAX, "-")
}

/// What a tool is called here. The prefix is one that [`prefix`] made.
pub(crate) fn tool_name(prefix: &str, tool: &str) -> String {
    let room = TOOL_NAME_CHARS_MAX - prefix.len() - SEPARATOR.len();
    let legal = legal(tool);
    let own = if legal == tool && !tool.is_empty() && tool.len() <= room {
        legal
    } else {
        marked(&legal, tool, room, "_")
    };
    format!("{prefix}{SEPARATOR}{own}")
}

/// One ASCII character for each character that is not legal.
fn legal(name: &str) -> String {
    let legal = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    name.chars().map(legal).collect()
}

/// A name that had to be changed, with a mark of what it was, so that two that became the
/// same stay apart.
fn marked(legal: &str, original: &str, room: usize, before_mark: &str) -> String {
    let mark = format!("{before_mark}{:08x}", fnv1a(original));
    let kept = &legal[..legal.len().min(room - mark.len())];
    format!("{}{mark}", kept.trim_end_matches('_'))
}

/// FNV-1a: names must be the same in every version, which the standard hasher does not promise.
fn fnv1a(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests;
