//! Recognises an agent's calls of our own tools.

use std::collections::BTreeSet;

use serde_json::Value;

/// The tools of ours that an agent can call, and the name of the MCP server that offers them.
///
/// Each agent titles such a call in its own way (`mcp__wellspring__clock`,
/// `mcp.wellspring.clock`, `clock (wellspring MCP Server)`, `wellspring_clock`); all of them
/// contain the server's name, the tool's name, and filler words.
#[derive(Clone, Debug, Default)]
pub struct OurTools {
    server: Box<str>,
    tools: BTreeSet<Box<str>>,
    /// Calls that were recognised as calls of our tools: later reports about them often have no
    /// title.
    known: BTreeSet<Box<str>>,
}

impl OurTools {
    /// Tools offered by the server of this name.
    #[must_use]
    pub fn new(
        server: impl Into<Box<str>>,
        tools: impl IntoIterator<Item = impl Into<Box<str>>>,
    ) -> Self {
        let tools = tools.into_iter().map(Into::into).collect();
        Self { server: server.into(), tools, known: BTreeSet::new() }
    }

    /// Returns whether a report is about a call of one of our tools.
    pub(super) fn is_ours(&mut self, id: &str, update: &Value) -> bool {
        if self.tools.is_empty() {
            return false;
        }
        if self.known.contains(id) {
            return true;
        }
        let members =
            [&update["name"], &update["_meta"]["claudeCode"]["toolName"], &update["title"]];
        let our_tool = members.iter().filter_map(|name| name.as_str()).any(|name| self.names(name));
        if our_tool && self.known.len() < super::CALLS_MAX {
            self.known.insert(id.into());
        }
        our_tool
    }

    /// Returns whether a name, as an agent writes it, refers to one of our tools.
    fn names(&self, name: &str) -> bool {
        let name = name.to_lowercase();
        let Some(rest) = without(&name, &self.server.to_lowercase()) else { return false };
        self.tools.iter().any(|tool| {
            without(&rest, &tool.to_lowercase()).is_some_and(|rest| {
                let mut words = rest.split(|c: char| !c.is_alphanumeric());
                words.all(|word| matches!(word, "" | "mcp" | "server" | "tool"))
            })
        })
    }
}

fn without(text: &str, word: &str) -> Option<String> {
    let at = text.find(word).filter(|_| !word.is_empty())?;
    Some(format!("{} {}", &text[..at], &text[at + word.len()..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_of_our_tools_are_recognised_however_they_are_written() {
        let tools = OurTools::new("wellspring", ["return_result", "read"]);
        for (title, ours) in [
            ("mcp__wellspring__return_result", true),
            ("mcp.wellspring.return_result", true),
            ("return_result (wellspring MCP Server)", true),
            ("wellspring_return_result", true),
            ("Tool: wellspring/return_result", true),
            ("mcp__wellspring__read", true),
            ("return_result", false),
            ("Read wellspring.toml", false),
            ("mcp__other__return_result", false),
            ("mcp__wellspring__write", false),
            ("", false),
        ] {
            assert_eq!(tools.names(title), ours, "{title}");
        }
    }
}
