//! A client's request.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::Metadata;
use super::message::Message;

/// A request to run an agent.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunAgentInput {
    /// The thread.
    pub thread_id: Box<str>,
    /// The run.
    pub run_id: Box<str>,
    /// The protocol version of the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol_version: Option<Box<str>>,
    /// The run that it branches off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_run_id: Option<Box<str>>,
    /// The state shared with the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Value>,
    /// The whole conversation, as the client has it.
    #[serde(deserialize_with = "messages")]
    pub messages: Vec<Message>,
    /// Tools that run in the client.
    #[serde(default, deserialize_with = "list", skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Tool>,
    /// Facts for the agent.
    #[serde(default, deserialize_with = "list", skip_serializing_if = "Vec::is_empty")]
    pub context: Vec<Context>,
    /// Properties for the agent, passed through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forwarded_props: Option<Value>,
    /// Answers to the interrupts of the previous run.
    #[serde(default, deserialize_with = "list", skip_serializing_if = "Vec::is_empty")]
    pub resume: Vec<ResumeEntry>,
}

/// A tool that runs in the client.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Tool {
    /// Its name.
    pub name: Box<str>,
    /// What it does.
    #[serde(default)]
    pub description: Box<str>,
    /// The JSON schema of its arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Value>,
    /// Arbitrary metadata.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Metadata>,
}

/// A fact for the agent.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Context {
    /// What the fact is about.
    pub description: Box<str>,
    /// Its value.
    pub value: Box<str>,
}

/// The answer to an interrupt.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResumeEntry {
    /// The interrupt's id.
    pub interrupt_id: Box<str>,
    /// Whether it was answered.
    pub status: ResumeStatus,
    /// The answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Value>,
    /// Arbitrary metadata.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Metadata>,
}

/// Whether an interrupt was answered.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ResumeStatus {
    /// It was answered.
    Resolved,
    /// It was declined.
    Cancelled,
}

/// Reads a list. `null` counts as an empty list, since older clients send it for absent lists.
pub(super) fn list<'de, T, D>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Reads the messages; an error names the index of the invalid message.
fn messages<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Message>, D::Error> {
    deserializer.deserialize_seq(Each { name: "messages", of: PhantomData })
}

struct Each<T> {
    name: &'static str,
    of: PhantomData<T>,
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Each<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of {}", self.name)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
        let mut all = Vec::new();
        loop {
            match list.next_element() {
                Ok(Some(one)) => all.push(one),
                Ok(None) => return Ok(all),
                Err(error) => {
                    let (name, index) = (self.name, all.len());
                    return Err(A::Error::custom(format_args!("{name}[{index}]: {error}")));
                }
            }
        }
    }
}
