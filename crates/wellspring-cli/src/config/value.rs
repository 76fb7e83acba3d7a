//! A parsed configuration file: values with line numbers.
//!
//! TOML and YAML are both parsed into this, so that all later code exists once.

use serde_json::Value as Json;

/// Maximum nesting of values. No valid value is nested more deeply than the schema of a result.
pub(crate) const DEPTH_MAX: usize = 64;

/// A value and its line.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    /// The line in its file, from 1.
    pub(crate) line: usize,
    pub(crate) value: Value,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Nothing,
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    Table(Vec<Member>),
}

/// A key of a table and its value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) line: usize,
    pub(crate) node: Node,
}

/// Why a file could not be parsed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct SyntaxError {
    pub(crate) line: usize,
    pub(crate) what: String,
}

impl Node {
    /// A description for messages.
    pub(crate) fn kind(&self) -> String {
        match &self.value {
            Value::Nothing => "nothing".to_owned(),
            Value::Bool(value) => format!("`{value}`"),
            Value::Integer(value) => format!("the number {value}"),
            Value::Float(value) => format!("the number {value}"),
            Value::Text(text) => format!("{text:?}"),
            Value::List(_) => "a list".to_owned(),
            Value::Table(_) => "a table".to_owned(),
        }
    }

    /// As JSON, for values that are passed on unchanged: schemas, a provider's own members.
    pub(crate) fn json(&self) -> Json {
        match &self.value {
            Value::Nothing => Json::Null,
            Value::Bool(value) => (*value).into(),
            Value::Integer(value) => (*value).into(),
            Value::Float(value) => (*value).into(),
            Value::Text(text) => text.as_str().into(),
            Value::List(items) => items.iter().map(Self::json).collect(),
            Value::Table(members) => {
                let member = |member: &Member| (member.name.clone(), member.node.json());
                Json::Object(members.iter().map(member).collect())
            }
        }
    }
}
