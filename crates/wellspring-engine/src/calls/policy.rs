//! Which calls may run: rules over tools and their arguments.
//!
//! A policy fails closed. An `allow` rule that names arguments applies only if the call has
//! exactly these arguments and every pattern matches the whole value. A `deny` or `ask` rule
//! also applies if it cannot read a value it names, or cannot see it.

mod command;

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::Value;
use wellspring_core::{Approval, ToolKind, ToolSpec};

/// Arguments with these names hold a command, for any tool.
const COMMAND_ARGUMENTS: [&str; 5] = ["cmd", "command", "commandLine", "command_line", "script"];

/// Rules in order; the first that applies decides. A call to which no rule applies is decided
/// by the tool's own wish ([`ToolSpec::approval`]).
///
/// ```
/// use serde_json::json;
/// use wellspring_core::{Approval, ToolKind, ToolSpec};
/// use wellspring_engine::{Policy, Rule};
///
/// let policy = Policy::default()
///     .rule(Rule::tool("run_*").argument("command", "git (log|status)")?.decide(Approval::Allow))
///     .rule(Rule::tool("run_*").decide(Approval::Ask));
/// let shell = ToolSpec { kind: ToolKind::Execute, ..ToolSpec::new("run_shell_command", "") };
/// assert_eq!(policy.decide(&shell, &json!({"command": "git log"})), Approval::Allow);
/// assert_eq!(policy.decide(&shell, &json!({"command": "git log; id"})), Approval::Ask);
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

    /// Adds a rule after the existing ones.
    #[must_use]
    pub fn rule(mut self, rule: Rule) -> Self {
        self.rules.push(rule);
        self
    }

    /// Decides on a call of one of our tools. The arguments are all that the tool will get.
    #[must_use]
    pub fn decide(&self, tool: &ToolSpec, arguments: &Value) -> Approval {
        self.judge(tool, arguments, Absent::NotThere)
    }

    /// Decides on a call that a remote agent makes itself. The agent may send fewer arguments
    /// than it uses, so a rule cannot see those that are absent.
    #[must_use]
    pub fn decide_remote(&self, tool: &ToolSpec, arguments: &Value) -> Approval {
        self.judge(tool, arguments, Absent::Unseen)
    }

    fn judge(&self, tool: &ToolSpec, arguments: &Value, absent: Absent) -> Approval {
        // The strictest decision that a rule requires if it could not see everything.
        let mut at_least = Approval::Allow;
        for rule in self.rules.iter().filter(|rule| name_fits(&rule.tool, &tool.name)) {
            match (rule.decision, rule.sees(tool, arguments, absent)) {
                (decision, Sight::Matches) => return stricter(at_least, decision),
                (_, Sight::Differs) => {}
                (Approval::Allow, Sight::Unreadable | Sight::Unseen) => {}
                (Approval::Deny, Sight::Unreadable) => return Approval::Deny,
                // A person can see more than the rule.
                (Approval::Deny, Sight::Unseen)
                | (Approval::Ask, Sight::Unreadable | Sight::Unseen) => at_least = Approval::Ask,
            }
        }
        stricter(at_least, tool.approval())
    }
}

/// The meaning of an argument that is not in a call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Absent {
    /// The tool does not get it.
    NotThere,
    /// The tool may get it anyway.
    Unseen,
}

/// What a rule sees of a call, from the clearest to the most doubtful.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Sight {
    Matches,
    /// A value that the rule names is not in the call, but the tool may use one anyway.
    Unseen,
    /// A value that it names exists but cannot be parsed, such as a pipeline of commands.
    Unreadable,
    Differs,
}

fn stricter(one: Approval, other: Approval) -> Approval {
    match (one, other) {
        (Approval::Deny, _) | (_, Approval::Deny) => Approval::Deny,
        (Approval::Ask, _) | (_, Approval::Ask) => Approval::Ask,
        (Approval::Allow, Approval::Allow) => Approval::Allow,
    }
}

/// One rule of a [`Policy`].
#[derive(Clone, Debug)]
pub struct Rule {
    tool: Box<str>,
    arguments: BTreeMap<Box<str>, Pattern>,
    decision: Approval,
}

/// The pattern of an argument.
#[derive(Clone, Debug)]
struct Pattern {
    whole: Regex,
    /// Whether commands are matched as raw text.
    raw: bool,
}

impl Rule {
    /// A rule for the tools whose name matches; `*` stands for anything. Without
    /// [`decide`](Self::decide), it asks.
    #[must_use]
    pub fn tool(pattern: impl Into<Box<str>>) -> Self {
        Self { tool: pattern.into(), arguments: BTreeMap::new(), decision: Approval::Ask }
    }

    /// Adds an argument that has to match the regular expression, as a whole. `.` also matches a
    /// line break.
    ///
    /// A number or a boolean is matched as JSON writes it. A command, which is every argument
    /// of a tool of the kind [`ToolKind::Execute`] and every argument named `command`, `cmd`,
    /// `command_line`, `commandLine` or `script`, is read as one simple command and matched
    /// with its words separated by single spaces, those with special characters in single
    /// quotes. What is not one simple command matches no pattern.
    ///
    /// A rule that allows applies only to calls that have no other arguments.
    ///
    /// # Errors
    ///
    /// If the pattern is not a regular expression.
    pub fn argument(self, name: impl Into<Box<str>>, pattern: &str) -> Result<Self, RuleError> {
        self.with(name.into(), pattern, false)
    }

    /// Adds an argument like [`argument`](Self::argument), but matches a command as raw text.
    ///
    /// Do not use this to allow commands, unless the pattern cannot match `;`, `$`, quotes and
    /// similar characters.
    ///
    /// # Errors
    ///
    /// If the pattern is not a regular expression.
    pub fn raw_argument(self, name: impl Into<Box<str>>, pattern: &str) -> Result<Self, RuleError> {
        self.with(name.into(), pattern, true)
    }

    fn with(mut self, name: Box<str>, pattern: &str, raw: bool) -> Result<Self, RuleError> {
        let compile = |text: &str| {
            Regex::new(text)
                .map_err(|cause| RuleError { pattern: pattern.into(), cause: Box::new(cause) })
        };
        // Compiled alone first: `a)|(b` would otherwise escape from the group that anchors it.
        compile(pattern)?;
        // A line break must not hide the rest of a value from a rule that denies.
        let whole = compile(&format!(r"\A(?s:{pattern})\z"))?;
        self.arguments.insert(name, Pattern { whole, raw });
        Ok(self)
    }

    /// What it decides.
    #[must_use]
    pub fn decide(mut self, decision: Approval) -> Self {
        self.decision = decision;
        self
    }

    fn sees(&self, tool: &ToolSpec, arguments: &Value, absent: Absent) -> Sight {
        if self.arguments.is_empty() {
            return Sight::Matches;
        }
        let Value::Object(members) = arguments else {
            return if arguments.is_null() && absent == Absent::Unseen {
                Sight::Unseen
            } else {
                Sight::Unreadable
            };
        };
        let others = members.keys().any(|name| !self.arguments.contains_key(&**name));
        if self.decision == Approval::Allow && others {
            return Sight::Differs;
        }
        let each = self.arguments.iter().map(|(name, pattern)| match members.get(&**name) {
            Some(value) => pattern.sees(value, is_command(tool, name)),
            None if absent == Absent::Unseen => Sight::Unseen,
            None => Sight::Differs,
        });
        each.max().unwrap_or(Sight::Matches)
    }
}

impl Pattern {
    fn sees(&self, value: &Value, is_command: bool) -> Sight {
        let command = is_command && !self.raw;
        let text = match value {
            Value::String(text) if command => command::words(text).map(command::quoted),
            Value::String(text) => Some(text.clone()),
            Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
            // Some agents send a command as the list of its words.
            Value::Array(items) if command => {
                let words: Option<Vec<&str>> = items.iter().map(Value::as_str).collect();
                words.filter(|words| !words.is_empty()).map(command::quoted)
            }
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        };
        match text {
            None => Sight::Unreadable,
            Some(text) if self.whole.is_match(&text) => Sight::Matches,
            Some(_) => Sight::Differs,
        }
    }
}

fn is_command(tool: &ToolSpec, argument: &str) -> bool {
    tool.kind == ToolKind::Execute || COMMAND_ARGUMENTS.contains(&argument)
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
    // Without a star the whole name must match; after the last star, the rest must match the end of
    // the name.
    match last {
        None => rest.is_empty(),
        Some(end) => name.ends_with(end),
    }
}

#[cfg(test)]
mod tests;
