//! JSON objects of a request, built member by member.

use std::borrow::Cow;

use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// An object whose members keep their order, borrow from the conversation if possible, and may
/// be raw JSON that is sent byte for byte.
#[derive(Debug, Default)]
pub(crate) struct Block<'a> {
    members: Vec<(Cow<'a, str>, Member<'a>)>,
}

#[derive(Debug)]
enum Member<'a> {
    Text(Cow<'a, str>),
    Json(Value),
    Raw(Box<RawValue>),
    Block(Block<'a>),
    Blocks(Vec<Block<'a>>),
}

impl<'a> Block<'a> {
    /// An object of this `type`.
    pub(crate) fn new(kind: &'a str) -> Self {
        Self { members: vec![("type".into(), Member::Text(kind.into()))] }
    }

    /// An object without members.
    pub(crate) fn bare() -> Self {
        Self::default()
    }

    /// An object with existing members.
    pub(crate) fn whole(members: Map<String, Value>) -> Self {
        let members = members.into_iter().map(|(name, value)| (name.into(), Member::Json(value)));
        Self { members: members.collect() }
    }

    /// `{}`.
    pub(crate) fn empty_object() -> Box<RawValue> {
        let empty = RawValue::from_string("{}".to_owned());
        #[expect(clippy::expect_used, reason = "this is the JSON of an empty object")]
        empty.expect("{} is JSON")
    }

    /// Whether its `type` is this.
    pub(crate) fn is(&self, kind: &str) -> bool {
        self.word("type") == Some(kind)
    }

    /// The text of a member.
    pub(crate) fn word(&self, name: &str) -> Option<&str> {
        let (_, member) = self.members.iter().find(|(known, _)| known == name)?;
        match member {
            Member::Text(text) => Some(text),
            Member::Json(value) => value.as_str(),
            Member::Raw(_) | Member::Block(_) | Member::Blocks(_) => None,
        }
    }

    /// Takes the text of a member out, if it has one.
    pub(crate) fn take_text(&mut self, name: &str) -> Option<Cow<'a, str>> {
        let (_, member) = self.members.iter_mut().find(|(known, _)| known == name)?;
        match member {
            Member::Text(text) => Some(std::mem::take(text)),
            Member::Json(_) | Member::Raw(_) | Member::Block(_) | Member::Blocks(_) => None,
        }
    }

    pub(crate) fn text(&mut self, name: &'a str, text: impl Into<Cow<'a, str>>) {
        self.set(name.into(), Member::Text(text.into()));
    }

    pub(crate) fn json(&mut self, name: &'a str, value: Value) {
        self.set(name.into(), Member::Json(value));
    }

    pub(crate) fn raw(&mut self, name: &'a str, json: Box<RawValue>) {
        self.set(name.into(), Member::Raw(json));
    }

    pub(crate) fn block(&mut self, name: &'a str, block: Self) {
        self.set(name.into(), Member::Block(block));
    }

    pub(crate) fn blocks(&mut self, name: &'a str, blocks: Vec<Self>) {
        self.set(name.into(), Member::Blocks(blocks));
    }

    /// Adds the members of an object, replacing existing ones.
    pub(crate) fn amend(&mut self, members: &'a Value) {
        for (name, value) in members.as_object().into_iter().flatten() {
            self.set(Cow::Borrowed(name), Member::Json(value.clone()));
        }
    }

    fn set(&mut self, name: Cow<'a, str>, member: Member<'a>) {
        match self.members.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = member,
            None => self.members.push((name, member)),
        }
    }
}

impl Serialize for Block<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.members.len()))?;
        for (name, member) in &self.members {
            match member {
                Member::Text(text) => map.serialize_entry(name, text)?,
                Member::Json(value) => map.serialize_entry(name, value)?,
                Member::Raw(json) => map.serialize_entry(name, json)?,
                Member::Block(block) => map.serialize_entry(name, block)?,
                Member::Blocks(blocks) => map.serialize_entry(name, blocks)?,
            }
        }
        map.end()
    }
}
