//! Converts arguments that arrive value by value, each with its path, into JSON text.
//!
//! The provider sends: `$.city` is `"Par"`, to be continued; then `"is"`; then `$.days[0]` is
//! `3`. The text of the arguments is written as the values arrive: `{"city":"Par`, `is`,
//! `","days":[3`, and at the end `]}`. A container stays open while paths lead into it.
//!
//! A path may lead back into a container or a string that is already closed. Written text
//! cannot be changed, so the whole member of the outermost object is written again at the end:
//! JSON parsers that accept duplicate names keep the last. The text is always well-formed; a
//! property test checks that it parses to the same value as the pieces put together.
//!
//! A chunk that continues a string or appends to a list allocates nothing: paths are compared
//! without copying, and text is unescaped into one buffer.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::types::PartialArg;
use crate::provider::ReadError;
use crate::provider::scan::{Half, Quoted};
use crate::provider::text::escape;

/// Maximum depth of arguments. serde reads at most 128 levels, and real arguments have far
/// fewer.
pub(super) const DEPTH_MAX: usize = 64;

/// Bytes of values per call, the same limit as in the engine.
pub(super) const BYTES_MAX: usize = 1024 * 1024;

/// The arguments of one call while they arrive.
#[derive(Debug, Default)]
pub(super) struct Arguments {
    /// Their value so far.
    root: Map<String, Value>,
    bytes: usize,
    /// Whether anything was written.
    begun: bool,
    /// The containers that are open in the text, below the outermost object.
    open: Vec<Container>,
    /// The number of members of the outermost object in the text.
    members: usize,
    /// The path of the string that continues; empty if there is none.
    string: String,
    /// A high surrogate at the end of its last piece.
    half: Half,
    /// Whether the text is inside that string.
    quoting: bool,
    /// Members of the outermost object whose text is outdated.
    stale: BTreeSet<String>,
    /// Buffers for an unescaped path and an unescaped piece.
    scratch: [String; 2],
}

#[derive(Debug)]
struct Container {
    step: Step<'static>,
    close: char,
    count: usize,
}

/// A piece of the arguments: a value, or the start or middle of a string, and its path. Strings
/// are as on the wire: they may end in a high surrogate.
#[derive(Debug, Default)]
pub(super) struct Piece<'a> {
    pub(super) path: Option<Quoted<'a>>,
    pub(super) words: Option<Quoted<'a>>,
    /// Any value that is not a string.
    pub(super) whole: Value,
    /// Whether the string continues.
    pub(super) continues: bool,
}

impl<'a> Piece<'a> {
    pub(super) fn of(part: &PartialArg<'a>) -> Self {
        let whole = match (&part.number_value, part.bool_value) {
            (Some(number), _) => Value::Number(number.clone()),
            (None, Some(is)) => Value::Bool(is),
            (None, None) => Value::Null,
        };
        Self {
            path: part.json_path.and_then(quoted),
            words: part.string_value.and_then(quoted),
            whole,
            continues: part.will_continue == Some(true),
        }
    }
}

/// The content of a piece.
enum PieceContent<'a> {
    Words(&'a str),
    Whole(Value),
}

impl Arguments {
    /// Adds a value, or a piece of a string, and writes as much text as possible.
    pub(super) fn push(&mut self, piece: Piece<'_>, out: &mut String) -> Result<(), ReadError> {
        let mut scratch = std::mem::take(&mut self.scratch);
        let pushed = self.push_with(piece, &mut scratch, out);
        self.scratch = scratch;
        pushed
    }

    fn push_with(
        &mut self,
        piece: Piece<'_>,
        [path_scratch, words_scratch]: &mut [String; 2],
        out: &mut String,
    ) -> Result<(), ReadError> {
        let raw = piece.path.and_then(|raw| raw.text(path_scratch, &mut Half::default()));
        let path = raw.and_then(Path::new).ok_or_else(|| {
            let raw = raw.unwrap_or_default();
            ReadError::Order(format!("{raw:?} is not a path to an argument").into())
        })?;
        let Some(Step::Key(member)) = path.steps().next() else {
            return Err(ReadError::Order("arguments are not an object".into()));
        };
        let goes_on = piece.words.is_some() && self.goes_on(path);
        if !goes_on {
            self.end_string(out);
        }
        let given = match piece.words {
            Some(words) => {
                let words = words.text(words_scratch, &mut self.half);
                let unreadable = || ReadError::Order("an argument is not valid text".into());
                PieceContent::Words(words.ok_or_else(unreadable)?)
            }
            None => PieceContent::Whole(piece.whole),
        };
        self.count(path, &given)?;
        if !std::mem::replace(&mut self.begun, true) {
            out.push('{');
        }
        if goes_on && let PieceContent::Words(words) = given {
            self.extend(path, words, out);
        } else {
            let fresh = self.set(path, &given)?;
            if let PieceContent::Words(_) = given {
                self.string.push_str(path.text);
            }
            self.write(path, &member, fresh, &given, out);
        }
        if !piece.continues {
            self.end_string(out);
        }
        Ok(())
    }

    /// Whether nothing was written yet.
    pub(super) fn is_empty(&self) -> bool {
        !self.begun
    }

    /// Ends the arguments. Returns whether a member is in the text twice.
    pub(super) fn end(mut self, out: &mut String) -> bool {
        let repeats = !self.stale.is_empty();
        if !self.begun {
            out.push('{');
        }
        self.end_string(out);
        self.close_to(0, out);
        for member in std::mem::take(&mut self.stale) {
            let value = self.root.remove(&member).unwrap_or_default();
            self.begin(&Step::Key(member.into()), out);
            write_value(&value, out);
        }
        out.push('}');
        repeats
    }

    fn goes_on(&self, path: Path<'_>) -> bool {
        self.string == path.text
            || Path::new(&self.string).is_some_and(|open| open.steps().eq(path.steps()))
    }

    fn count(&mut self, path: Path<'_>, given: &PieceContent<'_>) -> Result<(), ReadError> {
        let bytes = match given {
            PieceContent::Words(words) => words.len(),
            PieceContent::Whole(_) => 8,
        };
        self.bytes += bytes + path.depth;
        if self.bytes > BYTES_MAX {
            return Err(ReadError::TooMuch("a call has too many arguments".into()));
        }
        Ok(())
    }

    /// Appends to the string that continues.
    fn extend(&mut self, path: Path<'_>, words: &str, out: &mut String) {
        if let Some(Value::String(text)) = find(&mut self.root, path) {
            text.push_str(words);
        }
        if self.quoting {
            escape(words, out);
        }
    }

    fn end_string(&mut self, out: &mut String) {
        let mut path = std::mem::take(&mut self.string);
        let half = self.half.end();
        if let Some(path) = Path::new(&path).filter(|_| !half.is_empty()) {
            self.extend(path, half, out);
        }
        if std::mem::take(&mut self.quoting) {
            out.push('"');
        }
        path.clear();
        self.string = path;
    }

    /// Sets a value. Returns the depth at which the path left the existing values; `None` if it
    /// led to an existing value.
    fn set(
        &mut self,
        path: Path<'_>,
        given: &PieceContent<'_>,
    ) -> Result<Option<usize>, ReadError> {
        let misfit = || ReadError::Order("arguments contradict each other".into());
        let mut fresh = None;
        let mut place: Option<&mut Value> = None;
        let mut steps = path.steps().enumerate().peekable();
        while let Some((depth, step)) = steps.next() {
            let next = match (place, step) {
                (None, Step::Key(key)) => entry(&mut self.root, &key, depth, &mut fresh),
                (Some(Value::Object(members)), Step::Key(key)) => {
                    entry(members, &key, depth, &mut fresh)
                }
                (Some(Value::Array(items)), Step::Index(index)) => {
                    if index == items.len() {
                        fresh = fresh.or(Some(depth));
                        items.push(Value::Null);
                    }
                    items.get_mut(index)
                }
                _ => None,
            };
            let next = next.ok_or_else(misfit)?;
            if let (Some(_), Some((_, below))) = (fresh, steps.peek()) {
                *next = match below {
                    Step::Key(_) => Value::Object(Map::new()),
                    Step::Index(_) => Value::Array(Vec::new()),
                };
            }
            place = Some(next);
        }
        match (place.ok_or_else(misfit)?, given) {
            (Value::String(text), PieceContent::Words(more)) if fresh.is_none() => {
                text.push_str(more)
            }
            (Value::Object(_) | Value::Array(_), _) => return Err(misfit()),
            (place, PieceContent::Words(words)) => *place = Value::from(*words),
            (place, PieceContent::Whole(value)) => place.clone_from(value),
        }
        Ok(fresh)
    }

    /// Writes a value if it can still be appended to the text.
    fn write(
        &mut self,
        path: Path<'_>,
        member: &str,
        fresh: Option<usize>,
        given: &PieceContent<'_>,
        out: &mut String,
    ) {
        if self.stale.contains(member) {
            return;
        }
        let shared = self.open.iter().zip(path.steps());
        let shared = shared.take_while(|(container, step)| container.step == *step).count();
        let shared = shared.min(path.depth - 1);
        // An existing value, or a value in a closed container, cannot be appended: its member is
        // written again at the end.
        if fresh.is_none_or(|fresh| fresh > shared) {
            self.close_to(0, out);
            self.stale.insert(member.to_owned());
            return;
        }
        self.close_to(shared, out);
        let mut steps = path.steps().skip(shared).peekable();
        while let Some(step) = steps.next() {
            self.begin(&step, out);
            if let Some(next) = steps.peek() {
                let (open, close) = match next {
                    Step::Key(_) => ('{', '}'),
                    Step::Index(_) => ('[', ']'),
                };
                out.push(open);
                self.open.push(Container { step: step.into_owned(), close, count: 0 });
            }
        }
        match given {
            PieceContent::Words(words) => {
                out.push('"');
                escape(words, out);
                self.quoting = true;
            }
            PieceContent::Whole(value) => write_value(value, out),
        }
    }

    fn begin(&mut self, step: &Step<'_>, out: &mut String) {
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
            escape(key, out);
            out.push_str("\":");
        }
    }

    fn close_to(&mut self, depth: usize, out: &mut String) {
        while self.open.len() > depth {
            out.extend(self.open.pop().map(|container| container.close));
        }
    }
}

/// The contents of a JSON string, as on the wire; `None` if the value is not a string.
fn quoted(raw: &RawValue) -> Option<Quoted<'_>> {
    let inside = raw.get().strip_prefix('"')?;
    Quoted::cut(inside.as_bytes()).map(|(quoted, _)| quoted)
}

fn find<'v>(root: &'v mut Map<String, Value>, path: Path<'_>) -> Option<&'v mut Value> {
    let mut steps = path.steps();
    let Some(Step::Key(member)) = steps.next() else { return None };
    steps.try_fold(root.get_mut(&*member)?, |place, step| match step {
        Step::Key(key) => place.get_mut(&*key),
        Step::Index(index) => place.get_mut(index),
    })
}

fn entry<'m>(
    members: &'m mut Map<String, Value>,
    key: &str,
    depth: usize,
    fresh: &mut Option<usize>,
) -> Option<&'m mut Value> {
    if !members.contains_key(key) {
        *fresh = fresh.or(Some(depth));
        members.insert(key.to_owned(), Value::Null);
    }
    members.get_mut(key)
}

fn write_value(value: &Value, out: &mut String) {
    // Writing into a `String` never fails.
    let _ = write!(out, "{value}");
}

/// One step of a path.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Step<'a> {
    Key(Cow<'a, str>),
    Index(usize),
}

impl Step<'_> {
    fn into_owned(self) -> Step<'static> {
        match self {
            Self::Key(key) => Step::Key(Cow::Owned(key.into_owned())),
            Self::Index(index) => Step::Index(index),
        }
    }
}

/// A singular path of [RFC 9535](https://www.rfc-editor.org/rfc/rfc9535): names after a dot or
/// quoted in brackets, and indexes in brackets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path<'a> {
    text: &'a str,
    depth: usize,
}

impl<'a> Path<'a> {
    /// Parses a path of at least one step; `None` if the text is not a valid path.
    pub(super) fn new(text: &'a str) -> Option<Self> {
        let mut rest = text.strip_prefix('$')?;
        let mut depth = 0;
        while !rest.is_empty() {
            (_, rest) = step(rest)?;
            depth += 1;
        }
        (1..=DEPTH_MAX).contains(&depth).then_some(Self { text, depth })
    }

    pub(super) fn steps(self) -> impl Iterator<Item = Step<'a>> {
        let mut rest = &self.text[1..];
        std::iter::from_fn(move || {
            let first;
            (first, rest) = step(rest)?;
            Some(first)
        })
    }
}

fn step(rest: &str) -> Option<(Step<'_>, &str)> {
    if let Some(name) = rest.strip_prefix('.') {
        let end = name.find(['.', '[']).unwrap_or(name.len());
        let (name, rest) = name.split_at(end);
        return (!name.is_empty()).then_some((Step::Key(name.into()), rest));
    }
    let inside = rest.strip_prefix('[')?;
    if let Some(delimiter @ ('\'' | '"')) = inside.chars().next() {
        let (name, rest) = quoted_name(&inside[1..], delimiter)?;
        return Some((Step::Key(name), rest.strip_prefix(']')?));
    }
    let (index, rest) = inside.split_once(']')?;
    Some((Step::Index(index.parse().ok()?), rest))
}

fn quoted_name(text: &str, delimiter: char) -> Option<(Cow<'_, str>, &str)> {
    let end = text.find([delimiter, '\\'])?;
    if text[end..].starts_with(delimiter) {
        return Some((text[..end].into(), &text[end + 1..]));
    }
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
                let name: String = serde_json::from_str(&json).ok()?;
                return Some((name.into(), &text[at + 1..]));
            }
            '"' => json.push_str("\\\""),
            _ => json.push(character),
        }
    }
    None
}
