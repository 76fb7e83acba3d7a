//! Arguments that come value by value, each with its path, as JSON text.
//!
//! The provider says `$.city` is `"Par"`, to be continued, then `"is"`, then `$.days[0]` is
//! `3`. The text of the arguments is written as the values come: `{"city":"Par`, `is`,
//! `","days":[3`, and at the end `]}`. A container stays open while paths lead into it.
//!
//! A path may lead back into a container, or a string, that was closed. What was written
//! cannot be changed, so the whole member of the outermost object is written once more at the
//! end: of two members with one name, the last one counts for every reader of JSON that keeps
//! one. The text is well-formed whatever comes; a property test holds that it means the same
//! as the values put together.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::provider::ReadError;

/// How deep arguments may nest: serde reads 128 levels at most, and nobody means even that.
const DEPTH_MAX: usize = 64;

/// Bytes of values that one call may have: as many as the engine takes.
const BYTES_MAX: usize = 1024 * 1024;

/// One step of a path.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Step {
    Key(String),
    Index(usize),
}

/// The arguments of one call as they come.
#[derive(Debug, Default)]
pub(super) struct Arguments {
    /// What they mean so far.
    root: Map<String, Value>,
    bytes: usize,
    /// Whether anything was written.
    begun: bool,
    /// The containers that the text is inside of, below the outermost object.
    open: Vec<Container>,
    /// How many members the outermost object has in the text.
    members: usize,
    /// The string that the text is inside of.
    string: Option<Vec<Step>>,
    /// Members of the outermost object that the text has wrong.
    stale: BTreeSet<String>,
}

#[derive(Debug)]
struct Container {
    step: Step,
    close: char,
    count: usize,
}

impl Arguments {
    /// Adds a value, or a piece of a string, and writes what can be written of it.
    pub(super) fn push(
        &mut self,
        path: &str,
        value: Value,
        continues: bool,
        out: &mut String,
    ) -> Result<(), ReadError> {
        let path = parse(path).ok_or_else(|| {
            ReadError::Order(format!("{path:?} is no path to an argument").into())
        })?;
        let Some(Step::Key(member)) = path.first() else {
            return Err(ReadError::Order("arguments are not an object".into()));
        };
        let member = member.clone();
        self.bytes += value.as_str().map_or(8, str::len) + path.len();
        if self.bytes > BYTES_MAX {
            return Err(ReadError::TooMuch("a call has too many arguments".into()));
        }
        if !std::mem::replace(&mut self.begun, true) {
            out.push('{');
        }
        let piece = value.as_str().map(str::to_owned);
        let fresh = self.set(&path, value.clone())?;
        if self.stale.contains(&member) {
            return Ok(());
        }
        if self.string.as_ref() == Some(&path)
            && let Some(piece) = &piece
        {
            quote(piece, out);
            if !continues {
                self.close_string(out);
            }
            return Ok(());
        }
        self.close_string(out);
        let shared =
            self.open.iter().zip(&path).take_while(|(container, step)| container.step == **step);
        let shared = shared.count().min(path.len() - 1);
        // Something below the containers that are open: a new place, or one that was left?
        if fresh.is_none_or(|fresh| fresh > shared) {
            self.close_to(0, out);
            self.stale.insert(member);
            return Ok(());
        }
        self.close_to(shared, out);
        for (depth, step) in path.iter().enumerate().skip(shared) {
            self.begin(step, out);
            if let Some(next) = path.get(depth + 1) {
                let (open, close) = match next {
                    Step::Key(_) => ('{', '}'),
                    Step::Index(_) => ('[', ']'),
                };
                out.push(open);
                self.open.push(Container { step: step.clone(), close, count: 0 });
            }
        }
        if let Some(text) = piece {
            out.push('"');
            quote(&text, out);
            self.string = Some(path);
            if !continues {
                self.close_string(out);
            }
        } else {
            out.push_str(&value.to_string());
        }
        Ok(())
    }

    /// Whether nothing was written yet.
    pub(super) fn is_empty(&self) -> bool {
        !self.begun
    }

    /// No more comes. Says whether a member is in the text twice.
    pub(super) fn end(mut self, out: &mut String) -> bool {
        let repeats = !self.stale.is_empty();
        if !self.begun {
            out.push('{');
        }
        self.close_string(out);
        self.close_to(0, out);
        for member in std::mem::take(&mut self.stale) {
            self.begin(&Step::Key(member.clone()), out);
            out.push_str(&self.root.remove(&member).unwrap_or_default().to_string());
        }
        out.push('}');
        repeats
    }

    /// Puts a value in its place. Says at which depth the path left what was there; `None`
    /// when it led to a value that was there already.
    fn set(&mut self, path: &[Step], value: Value) -> Result<Option<usize>, ReadError> {
        let misfit = || ReadError::Order("arguments contradict each other".into());
        let mut fresh = None;
        let mut place: Option<&mut Value> = None;
        for (depth, step) in path.iter().enumerate() {
            let next = match (place, step) {
                (None, Step::Key(key)) => entry(&mut self.root, key, depth, &mut fresh),
                (Some(Value::Object(members)), Step::Key(key)) => {
                    entry(members, key, depth, &mut fresh)
                }
                (Some(Value::Array(items)), Step::Index(index)) => {
                    if *index == items.len() {
                        fresh = fresh.or(Some(depth));
                        items.push(Value::Null);
                    }
                    items.get_mut(*index).ok_or_else(misfit)?
                }
                _ => return Err(misfit()),
            };
            if let (Some(_), Some(below)) = (fresh, path.get(depth + 1)) {
                *next = match below {
                    Step::Key(_) => Value::Object(Map::new()),
                    Step::Index(_) => Value::Array(Vec::new()),
                };
            }
            place = Some(next);
        }
        let place = place.ok_or_else(misfit)?;
        match (place, value) {
            (Value::String(text), Value::String(more)) if fresh.is_none() => text.push_str(&more),
            (Value::Object(_) | Value::Array(_), _) => return Err(misfit()),
            (place, value) => *place = value,
        }
        Ok(fresh)
    }

    fn begin(&mut self, step: &Step, out: &mut String) {
        let count = match self.open.last_mut() {
            Some(container) => &mut container.count,
            None => &mut self.members,
        };
        if *count > 0 {
            out.push(',');
        }
        *count += 1;
        if let Step::Key(key) = step {
            out.push('"');
            quote(key, out);
            out.push_str("\":");
        }
    }

    fn close_string(&mut self, out: &mut String) {
        if self.string.take().is_some() {
            out.push('"');
        }
    }

    fn close_to(&mut self, depth: usize, out: &mut String) {
        while self.open.len() > depth {
            out.extend(self.open.pop().map(|container| container.close));
        }
    }
}

fn entry<'m>(
    members: &'m mut Map<String, Value>,
    key: &str,
    depth: usize,
    fresh: &mut Option<usize>,
) -> &'m mut Value {
    if !members.contains_key(key) {
        *fresh = fresh.or(Some(depth));
    }
    members.entry(key).or_insert(Value::Null)
}

fn quote(text: &str, out: &mut String) {
    let quoted = Value::from(text).to_string();
    out.push_str(&quoted[1..quoted.len() - 1]);
}

/// The steps of a singular path of [RFC 9535](https://www.rfc-editor.org/rfc/rfc9535): names
/// after a dot or quoted in brackets, and indexes in brackets.
pub(super) fn parse(path: &str) -> Option<Vec<Step>> {
    let mut rest = path.strip_prefix('$')?;
    let mut steps = Vec::new();
    while !rest.is_empty() {
        if steps.len() >= DEPTH_MAX {
            return None;
        }
        if let Some(name) = rest.strip_prefix('.') {
            let end = name.find(['.', '[']).unwrap_or(name.len());
            let (name, after) = name.split_at(end);
            steps.push(Step::Key((!name.is_empty()).then(|| name.to_owned())?));
            rest = after;
            continue;
        }
        let inside = rest.strip_prefix('[')?;
        if let Some(delimiter @ ('\'' | '"')) = inside.chars().next() {
            let (name, after) = quoted(&inside[1..], delimiter)?;
            steps.push(Step::Key(name));
            rest = after.strip_prefix(']')?;
        } else {
            let (index, after) = inside.split_once(']')?;
            steps.push(Step::Index(index.parse().ok()?));
            rest = after;
        }
    }
    (!steps.is_empty()).then_some(steps)
}

fn quoted(text: &str, delimiter: char) -> Option<(String, &str)> {
    let mut json = String::from("\"");
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => match characters.next()?.1 {
                '\'' => json.push('\''),
                escaped => json.extend(['\\', escaped]),
            },
            _ if character == delimiter => {
                json.push('"');
                return Some((serde_json::from_str(&json).ok()?, &text[at + 1..]));
            }
            '"' => json.push_str("\\\""),
            _ => json.push(character),
        }
    }
    None
}
