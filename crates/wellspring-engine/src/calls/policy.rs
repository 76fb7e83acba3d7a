//! Who may do what: rules over tools and their arguments.

use regex::Regex;
use serde_json::Value;
use wellspring_core::{Approval, ToolSpec};

/// Rules in order; the first that matches decides, and a tool that none matches is asked
/// for its own wish.
///
/// ```
/// use serde_json::json;
/// use wellspring_core::{Approval, ToolSpec};
/// use wellspring_engine::{Policy, Rule};
///
/// let policy = Policy::default()
///     .rule(Rule::tool("run_*").arguments(r"\brm\b")?.decide(Approval::Deny))
///     .rule(Rule::tool("run_*").decide(Approval::Ask));
/// let shell = ToolSpec::new("run_shell_command", "");
/// assert_eq!(policy.decide(&shell, &json!({"command": "rm -rf /"})), Approval::Deny);
/// assert_eq!(policy.decide(&shell, &json!({"command": "ls"})), Approval::Ask);
/// # Ok::<(), wellspring_engine::RuleError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Policy {
    rules: Vec<Rule>,
}

impl Policy {
    /// Allows everything: for tests, and for agents whose tools can do no harm.
    #[must_use]
    pub fn allow_all() -> Self {
        Self::default().rule(Rule::tool("*").decide(Approval::Allow))
    }

    /// Adds a rule after those that are there.
    #[must_use]
    pub fn rule(mut self, rule: Rule) -> Self {
        self.rules.push(rule);
        self
    }

    /// Whether a call may run.
    #[must_use]
    pub fn decide(&self, tool: &ToolSpec, arguments: &Value) -> Approval {
        let matching = self.rules.iter().find(|rule| rule.matches(&tool.name, arguments));
        matching.map_or_else(|| tool.approval(), |rule| rule.decision)
    }
}

/// One rule of a [`Policy`].
#[derive(Clone, Debug)]
pub struct Rule {
    tool: Box<str>,
    arguments: Option<Regex>,
    decision: Approval,
}

impl Rule {
    /// A rule for the tools whose name fits; `*` stands for anything. It asks, unless told.
    #[must_use]
    pub fn tool(pattern: impl Into<Box<str>>) -> Self {
        Self { tool: pattern.into(), arguments: None, decision: Approval::Ask }
    }

    /// Only for calls where a string among the arguments, at any depth, matches.
    ///
    /// # Errors
    ///
    /// When the pattern is not a regular expression.
    pub fn arguments(mut self, pattern: &str) -> Result<Self, RuleError> {
        let compiled = Regex::new(pattern)
            .map_err(|cause| RuleError { pattern: pattern.into(), cause: Box::new(cause) })?;
        self.arguments = Some(compiled);
        Ok(self)
    }

    /// What it decides.
    #[must_use]
    pub fn decide(mut self, decision: Approval) -> Self {
        self.decision = decision;
        self
    }

    fn matches(&self, tool: &str, arguments: &Value) -> bool {
        name_fits(&self.tool, tool)
            && self.arguments.as_ref().is_none_or(|pattern| any_string(arguments, pattern))
    }
}

/// A rule's pattern is not a regular expression.
#[derive(Debug, thiserror::Error)]
#[error("{pattern:?} is not a regular expression")]
pub struct RuleError {
    pattern: Box<str>,
    #[source]
    cause: Box<dyn std::error::Error + Send + Sync>,
}

fn name_fits(pattern: &str, name: &str) -> bool {
    let mut pieces = pattern.split('*');
    let Some(mut rest) = pieces.next().and_then(|first| name.strip_prefix(first)) else {
        return false;
    };
    let mut last = None;
    for piece in pieces {
        last = Some(piece);
        match rest.find(piece) {
            Some(at) => rest = &rest[at + piece.len()..],
            None => return false,
        }
    }
    // Without a star everything must be used up; after a last star, what follows it must end the name.
    match last {
        None => rest.is_empty(),
        Some(end) => name.ends_with(end),
    }
}

fn any_string(value: &Value, pattern: &Regex) -> bool {
    match value {
        Value::String(text) => pattern.is_match(text),
        Value::Array(items) => items.iter().any(|item| any_string(item, pattern)),
        Value::Object(members) => members.values().any(|item| any_string(item, pattern)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_anything() {
        for (pattern, name, fits) in [
            ("clock", "clock", true),
            ("clock", "clocks", false),
            ("*", "", true),
            ("run_*", "run_shell", true),
            ("run_*", "rerun_x", false),
            ("*_file", "read_file", true),
            ("*_file", "read_files", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c", false),
        ] {
            assert_eq!(name_fits(pattern, name), fits, "{pattern} {name}");
        }
    }
}
