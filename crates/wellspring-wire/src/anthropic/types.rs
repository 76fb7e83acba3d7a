//! The API's types, for its fixed shapes. Every member is optional.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// One event of a stream; its larger members are not parsed.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct StreamEvent<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Option<Cow<'a, str>>,
    pub(super) index: Option<u64>,
    #[serde(borrow)]
    pub(super) message: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) content_block: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) delta: Option<&'a RawValue>,
    pub(super) usage: Option<Usage>,
    pub(super) error: Option<Value>,
}

/// An answer, either complete or at its start.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Message<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) model: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) content: Vec<&'a RawValue>,
    #[serde(borrow)]
    pub(super) stop_reason: Option<Cow<'a, str>>,
    pub(super) stop_sequence: Option<Value>,
    pub(super) container: Option<Value>,
    pub(super) usage: Option<Usage>,
    pub(super) error: Option<Value>,
}

/// The one member of a block that is kept byte for byte.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct BlockInput<'a> {
    #[serde(borrow)]
    pub(super) input: Option<&'a RawValue>,
}

/// Token counts of one answer. Each report holds the latest totals of the members it has.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Usage {
    pub(super) input_tokens: Option<u64>,
    pub(super) output_tokens: Option<u64>,
    pub(super) cache_creation_input_tokens: Option<u64>,
    pub(super) cache_read_input_tokens: Option<u64>,
    /// Counts of the provider's own tools.
    pub(super) server_tool_use: Option<Value>,
}

impl Usage {
    pub(super) fn update(&mut self, newer: Self) {
        fn newest<T>(old: &mut Option<T>, new: Option<T>) {
            if new.is_some() {
                *old = new;
            }
        }
        newest(&mut self.input_tokens, newer.input_tokens);
        newest(&mut self.output_tokens, newer.output_tokens);
        newest(&mut self.cache_creation_input_tokens, newer.cache_creation_input_tokens);
        newest(&mut self.cache_read_input_tokens, newer.cache_read_input_tokens);
        newest(&mut self.server_tool_use, newer.server_tool_use);
    }
}
