//! The stream's events and the response: the members that are read.
//!
//! One flat type serves all events: a delta is parsed without a tree, and a member that a
//! server omits is simply absent. Items are kept as raw JSON, because they must be sent back
//! unchanged.

use serde::Deserialize;
use serde_json::Value;

use crate::provider::text::Text;

/// Any event of the stream.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct StreamEvent<'a> {
    #[serde(rename = "type", borrow)]
    pub(super) kind: Text<'a>,
    pub(super) output_index: Option<u64>,
    #[serde(borrow)]
    pub(super) item_id: Text<'a>,
    pub(super) content_index: Option<u64>,
    pub(super) summary_index: Option<u64>,
    #[serde(borrow)]
    pub(super) delta: Text<'a>,
    #[serde(borrow)]
    pub(super) text: Text<'a>,
    #[serde(borrow)]
    pub(super) refusal: Text<'a>,
    #[serde(borrow)]
    pub(super) arguments: Text<'a>,
    #[serde(borrow)]
    pub(super) input: Text<'a>,
    #[serde(borrow)]
    pub(super) code: Text<'a>,
    #[serde(borrow)]
    pub(super) partial_image_b64: Text<'a>,
    pub(super) annotation: Option<Value>,
    pub(super) item: Option<Value>,
    pub(super) part: Option<Value>,
    pub(super) response: Option<Response>,
    pub(super) error: Option<Value>,
}

/// The response: the body of an answer without streaming, and a member of the events that open
/// and close a stream.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Response {
    pub(super) id: Option<Box<str>>,
    pub(super) status: Option<Box<str>>,
    pub(super) model: Option<Box<str>>,
    pub(super) output: Option<Vec<Value>>,
    pub(super) error: Option<Value>,
    pub(super) incomplete_details: Option<IncompleteDetails>,
    pub(super) usage: Option<UsageBody>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct IncompleteDetails {
    pub(super) reason: Option<Box<str>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct UsageBody {
    pub(super) input_tokens: Option<u64>,
    pub(super) input_tokens_details: Option<InputDetails>,
    pub(super) output_tokens: Option<u64>,
    pub(super) output_tokens_details: Option<OutputDetails>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct InputDetails {
    pub(super) cached_tokens: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct OutputDetails {
    pub(super) reasoning_tokens: Option<u64>,
}
