//! A line of the stream, which is also the whole response.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::provider::text::Text;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Line<'a> {
    #[serde(borrow)]
    pub(super) model: Text<'a>,
    #[serde(borrow)]
    pub(super) message: Option<Message<'a>>,
    pub(super) done: Option<bool>,
    #[serde(borrow)]
    pub(super) done_reason: Text<'a>,
    pub(super) prompt_eval_count: Option<u64>,
    pub(super) eval_count: Option<u64>,
    /// A string from Ollama; an object from some compatible servers.
    pub(super) error: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Message<'a> {
    #[serde(borrow)]
    pub(super) content: Text<'a>,
    pub(super) thinking: Option<Value>,
    /// The name of `thinking` in some compatible servers.
    pub(super) reasoning_content: Option<Value>,
    pub(super) reasoning: Option<Value>,
    #[serde(borrow)]
    pub(super) tool_calls: Option<Vec<ToolCall<'a>>>,
    #[serde(borrow)]
    pub(super) images: Option<Vec<Text<'a>>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ToolCall<'a> {
    #[serde(borrow)]
    pub(super) id: Text<'a>,
    #[serde(borrow)]
    pub(super) function: Function<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Function<'a> {
    #[serde(borrow)]
    pub(super) name: Text<'a>,
    #[serde(borrow)]
    pub(super) arguments: Option<&'a RawValue>,
}
