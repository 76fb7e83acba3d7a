//! Tool names that a provider accepts.

use std::borrow::Cow;

use wellspring_core::ToolSpec;

/// The tool names that a provider accepts: ASCII letters, digits, `_` and `-`, within these
/// limits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NameRule {
    /// Maximum length in characters.
    pub chars_max: usize,
    /// Whether it must start with a letter or `_`.
    pub starts_with_letter: bool,
}

impl NameRule {
    /// Accepted by every provider that has no stricter rule of its own.
    pub const COMMON: Self = Self { chars_max: 64, starts_with_letter: false };

    /// A name that the provider accepts: unchanged if it is valid, otherwise a similar one with
    /// a hash. The same name always gives the same result.
    #[must_use]
    pub fn legal<'n>(&self, name: &'n str) -> Cow<'n, str> {
        if self.accepts(name) {
            return Cow::Borrowed(name);
        }
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' };
        let tail = format!("_{:08x}", hash(name));
        let mut legal: String =
            name.chars().map(plain).take(self.chars_max.saturating_sub(tail.len() + 1)).collect();
        if self.starts_with_letter
            && !legal.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        {
            legal.insert(0, '_');
        }
        legal.push_str(&tail);
        Cow::Owned(legal)
    }

    fn accepts(&self, name: &str) -> bool {
        let first_fits = |c: char| !self.starts_with_letter || c.is_ascii_alphabetic() || c == '_';
        name.len() <= self.chars_max
            && name.chars().next().is_some_and(first_fits)
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
    }
}

/// FNV-1a: the same on every machine and in every release, because names in old conversations
/// must not change.
fn hash(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// Maps a provider's tool names back to ours.
///
/// ```
/// use wellspring_core::ToolSpec;
/// use wellspring_wire::provider::{NameRule, ToolNames};
///
/// let tools = [ToolSpec::new("files/read", ""), ToolSpec::new("plan", "")];
/// let names = ToolNames::new(NameRule::COMMON, &tools);
/// let legal = NameRule::COMMON.legal("files/read");
/// assert_eq!(legal, "files_read_d2acbc6d");
/// assert_eq!((names.ours(&legal), names.ours("plan")), ("files/read", "plan"));
/// ```
#[derive(Clone, Debug, Default)]
pub struct ToolNames {
    /// The provider's name and ours, for names that differ.
    changed: Vec<(Box<str>, Box<str>)>,
}

impl ToolNames {
    /// The names for the tools of one request.
    #[must_use]
    pub fn new(rule: NameRule, tools: &[ToolSpec]) -> Self {
        let changed = |tool: &ToolSpec| match rule.legal(&tool.name) {
            Cow::Borrowed(_) => None,
            Cow::Owned(legal) => Some((legal.into(), tool.name.clone())),
        };
        Self { changed: tools.iter().filter_map(changed).collect() }
    }

    /// Our name of the tool that the provider calls `theirs`.
    #[must_use]
    pub fn ours<'n>(&'n self, theirs: &'n str) -> &'n str {
        let known = self.changed.iter().find(|(name, _)| **name == *theirs);
        known.map_or(theirs, |(_, ours)| ours)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STRICT: NameRule = NameRule { chars_max: 20, starts_with_letter: true };

    #[test]
    fn names_resemble_what_they_stand_for() {
        for (name, common, strict) in [
            ("read_file", "read_file", "read_file"),
            ("read-file", "read-file", "read-file"),
            ("7up", "7up", "_7up_562197eb"),
            ("a.b/c", "a_b_c_f980d20e", "a_b_c_f980d20e"),
            ("", "_811c9dc5", "__811c9dc5"),
        ] {
            let legal = [NameRule::COMMON, STRICT].map(|rule| rule.legal(name).into_owned());
            assert_eq!(legal, [common, strict], "{name:?}");
        }
    }

    proptest! {
        #[test]
        fn legal_names_are_legal_and_lead_back(names in prop::collection::btree_set(".{0,80}", 0..12)) {
            let tools: Vec<ToolSpec> =
                names.iter().map(|name| ToolSpec::new(name.as_str(), "")).collect();
            for rule in [NameRule::COMMON, STRICT] {
                let table = ToolNames::new(rule, &tools);
                for name in &names {
                    let legal = rule.legal(name);
                    prop_assert!(rule.accepts(&legal), "{legal}");
                    prop_assert_eq!(rule.legal(&legal), &*legal);
                    prop_assert_eq!(table.ours(&legal), name);
                }
            }
        }
    }
}
