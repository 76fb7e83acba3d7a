//! The stream's events and the response, as far as reading needs their members.
//!
//! One flat type serves all events: a delta is read without a tree, and a member that an
//! emulator leaves out is simply absent. Items are kept as the JSON they are, because they
//! have to go back unchanged.

use serde::Deserialize;
use serde_json::Value;

use crate::text::Text;

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

/// The response: the body of a call without streaming, and a member of the events that open
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
