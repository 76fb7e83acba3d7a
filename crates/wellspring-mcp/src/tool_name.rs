//! Names of a server's tools: `server__tool`.
//!
//! # What is promised
//!
//! - Every name is valid for every model provider: at most [`TOOL_NAME_CHARS_MAX`] letters,
//!   digits, `_` and `-`.
//! - A name depends only on the names of the server and the tool, so a tool has the same name
//!   in every run.
//! - Tools of servers with different names never share a name: a server's part contains no
//!   `__`, so the first `__` ends it. Two tools of one server share a name only if their own
//!   names are equal (or if 32-bit hashes collide).

/// Maximum length of a tool's name: the smallest limit of any provider.
pub const TOOL_NAME_CHARS_MAX: usize = 64;

/// Maximum length of the server's part: half, so that the tool's own part stays readable.
const PREFIX_CHARS_MAX: usize = 32;

/// Separates the server's part and the tool's part.
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

/// A tool's name. `prefix` comes from [`prefix`].
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

/// Replaces each invalid character by one ASCII character.
fn legal(name: &str) -> String {
    let legal = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    name.chars().map(legal).collect()
}

/// A name that had to be changed, with a hash of the original, so that different names stay
/// different.
fn marked(legal: &str, original: &str, room: usize, before_mark: &str) -> String {
    let mark = format!("{before_mark}{:08x}", fnv1a(original));
    let kept = &legal[..legal.len().min(room - mark.len())];
    format!("{}{mark}", kept.trim_end_matches('_'))
}

/// FNV-1a: names must be the same in every version, which the standard hasher does not
/// guarantee.
fn fnv1a(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests;
