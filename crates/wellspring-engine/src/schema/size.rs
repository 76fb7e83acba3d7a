//! The size of a schema, and the cost of using it.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;

/// Maximum number of values in a schema, nested ones included: more than any published tool has.
pub(super) const NODES_MAX: usize = 20_000;

/// Patterns in a schema. Each may take a few milliseconds and
/// [`super::PATTERN_BYTES_MAX`] to compile.
pub(super) const PATTERNS_MAX: usize = 64;

/// Maximum number of characters of all patterns of a schema together.
pub(super) const PATTERN_CHARS_MAX: usize = 8 * 1024;

/// Maximum number of values in a schema after every reference is replaced by its target. References
/// that branch double the number with each step, so forty of them could not be processed.
pub(super) const EXPANDED_MAX: usize = 100_000;

/// Maximum depth of a schema after every reference is replaced by its target. Compiling and
/// validating use a stack frame per level.
pub(super) const DEPTH_MAX: usize = 512;

/// The size of a schema.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Size {
    nodes: usize,
    pub(super) patterns: usize,
    pattern_chars: usize,
    pub(super) expanded: usize,
}

impl Size {
    /// Measures a schema; returns an error if it is too large to be compiled.
    pub(super) fn of(schema: &Value) -> Result<Self, String> {
        let mut size = Self::default();
        let mut anchors: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
        let draft_4 =
            schema.get("$schema").and_then(Value::as_str).is_some_and(|it| it.contains("draft-04"));
        let mut left = vec![schema];
        while let Some(value) = left.pop() {
            size.nodes += 1;
            // The rest is bounded by the document, so it need not be counted.
            if size.nodes > NODES_MAX {
                return Err(format!("it has more than {NODES_MAX} values"));
            }
            match value {
                Value::Array(items) => left.extend(items),
                Value::Object(members) => {
                    let text = |name| members.get(name).and_then(Value::as_str);
                    text("pattern").into_iter().for_each(|pattern| size.pattern(pattern));
                    if let Some(Value::Object(patterns)) = members.get("patternProperties") {
                        patterns.keys().for_each(|pattern| size.pattern(pattern));
                    }
                    let id = text("$id").or_else(|| text("id").filter(|_| draft_4));
                    if id.is_some_and(|id| !id.starts_with('#')) && !std::ptr::eq(value, schema) {
                        return Err("a part of it has an `$id` of its own; give one to the whole \
                                    schema only"
                            .into());
                    }
                    let anchor = id.and_then(|id| id.strip_prefix('#'));
                    let anchor = [text("$anchor"), text("$dynamicAnchor"), anchor];
                    for anchor in anchor.into_iter().flatten() {
                        anchors.entry(anchor).or_default().push(value);
                    }
                    left.extend(members.values());
                }
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
        }
        if size.patterns > PATTERNS_MAX {
            return Err(format!("it has {} patterns, more than {PATTERNS_MAX}", size.patterns));
        }
        if size.pattern_chars > PATTERN_CHARS_MAX {
            let chars = size.pattern_chars;
            return Err(format!(
                "its patterns have {chars} characters, more than {PATTERN_CHARS_MAX}"
            ));
        }
        let mut expanded = Expanded { root: schema, anchors, sizes: HashMap::new() };
        (size.expanded, _) = expanded.measure(schema, 0)?;
        Ok(size)
    }

    fn pattern(&mut self, pattern: &str) {
        self.patterns += 1;
        self.pattern_chars += pattern.len();
    }
}

/// The keywords that refer to another part of the schema.
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

struct Expanded<'a> {
    root: &'a Value,
    /// A name may appear twice, if one of them is inside a constant; then both count.
    anchors: BTreeMap<&'a str, Vec<&'a Value>>,
    /// The targets of references, by their location: size and depth, or a mark that they are being
    /// measured.
    sizes: HashMap<*const Value, Option<(usize, usize)>>,
}

impl<'a> Expanded<'a> {
    /// The size and the depth of a schema that is `at` this depth.
    fn measure(&mut self, schema: &'a Value, at: usize) -> Result<(usize, usize), String> {
        if at > DEPTH_MAX {
            return Err(format!("it is nested deeper than {DEPTH_MAX}, references included"));
        }
        let (mut size, mut depth) = (1_usize, 0);
        let mut add = |(inner, below): (usize, usize)| {
            size = size.saturating_add(inner);
            depth = depth.max(below + 1);
        };
        match schema {
            Value::Array(items) => {
                for item in items {
                    add(self.measure(item, at + 1)?);
                }
            }
            Value::Object(members) => {
                for (name, member) in members {
                    add(self.measure(member, at + 1)?);
                    if let Some(reference) = member.as_str()
                        && REFERENCES.contains(&&**name)
                    {
                        for target in self.targets(reference)? {
                            add(self.referenced(target, at + 1)?);
                        }
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
        if size > EXPANDED_MAX {
            return Err(format!("its references expand to more than {EXPANDED_MAX} values"));
        }
        if at + depth > DEPTH_MAX {
            return Err(format!("it is nested deeper than {DEPTH_MAX}, references included"));
        }
        Ok((size, depth))
    }

    fn referenced(&mut self, target: &'a Value, at: usize) -> Result<(usize, usize), String> {
        let key = std::ptr::from_ref(target);
        match self.sizes.get(&key) {
            Some(Some(known)) => return Ok(*known),
            // The reference leads back to a schema that contains it. Such steps are counted while
            // it is used.
            Some(None) => return Ok((1, 0)),
            None => {}
        }
        self.sizes.insert(key, None);
        let measured = self.measure(target, at)?;
        self.sizes.insert(key, Some(measured));
        Ok(measured)
    }

    /// The target of a reference; `None` if it does not exist, which compiling reports.
    fn targets(&self, reference: &str) -> Result<Vec<&'a Value>, String> {
        let id = self.root.get("$id").or_else(|| self.root.get("id")).and_then(Value::as_str);
        let own = id.map_or("", |id| id.trim_end_matches('#'));
        let Some(fragment) = reference.strip_prefix(own).unwrap_or(reference).strip_prefix('#')
        else {
            // The official meta-schemas are built in.
            let official = ["https://json-schema.org/", "http://json-schema.org/"];
            if official.iter().any(|it| reference.starts_with(it)) {
                return Ok(Vec::new());
            }
            if reference == own {
                return Ok(vec![self.root]);
            }
            return Err(format!("the reference {reference:?} is not to a part of it"));
        };
        let fragment = unescaped(fragment);
        if fragment.is_empty() || fragment.starts_with('/') {
            return Ok(self.root.pointer(&fragment).into_iter().collect());
        }
        Ok(self.anchors.get(&*fragment).cloned().unwrap_or_default())
    }
}

/// A reference's fragment without the escapes of URLs.
fn unescaped(fragment: &str) -> String {
    let mut bytes = Vec::with_capacity(fragment.len());
    let mut left = fragment.as_bytes();
    while let Some((&first, rest)) = left.split_first() {
        let escaped = rest.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped = escaped.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match escaped.filter(|_| first == b'%') {
            Some(byte) => {
                bytes.push(byte);
                left = &rest[2..];
            }
            None => {
                bytes.push(first);
                left = rest;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
