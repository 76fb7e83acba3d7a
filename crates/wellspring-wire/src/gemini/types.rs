//! A chunk of the stream, which is also the whole response: the members that are read.
//!
//! A chunk with one piece of text, or of arguments, is read without an allocation: it has one
//! candidate with one part, and both are stored inline. Parts are kept as raw JSON until their
//! type is known, because unknown parts must be sent back unchanged.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::provider::text::Text;

/// One chunk: `GenerateContentResponse`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Chunk<'a> {
    #[serde(borrow)]
    pub(super) candidates: First<Candidate<'a>>,
    pub(super) prompt_feedback: Option<Value>,
    pub(super) usage_metadata: Option<UsageMetadata>,
    #[serde(borrow)]
    pub(super) model_version: Text<'a>,
    #[serde(borrow)]
    pub(super) response_id: Text<'a>,
    pub(super) error: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Candidate<'a> {
    #[serde(borrow)]
    pub(super) content: Option<Content<'a>>,
    #[serde(borrow)]
    pub(super) finish_reason: Text<'a>,
    #[serde(borrow)]
    pub(super) finish_message: Text<'a>,
    pub(super) grounding_metadata: Option<Value>,
    pub(super) citation_metadata: Option<Value>,
    pub(super) url_context_metadata: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Content<'a> {
    #[serde(borrow)]
    pub(super) parts: Few<&'a RawValue>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Part<'a> {
    #[serde(borrow)]
    pub(super) text: Option<Text<'a>>,
    pub(super) thought: Option<bool>,
    #[serde(borrow)]
    pub(super) thought_signature: Text<'a>,
    #[serde(borrow)]
    pub(super) function_call: Option<FunctionCall<'a>>,
    #[serde(borrow)]
    pub(super) inline_data: Option<Blob<'a>>,
    #[serde(borrow)]
    pub(super) file_data: Option<FileData<'a>>,
    #[serde(borrow)]
    pub(super) executable_code: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) code_execution_result: Option<CodeExecutionResult<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct FunctionCall<'a> {
    #[serde(borrow)]
    pub(super) id: Text<'a>,
    #[serde(borrow)]
    pub(super) name: Text<'a>,
    #[serde(borrow)]
    pub(super) args: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) partial_args: Few<PartialArg<'a>>,
    pub(super) will_continue: Option<bool>,
}

/// A piece of the arguments: a value, or the start or middle of a string, and its path.
///
/// Strings are as on the wire: they may end in a high surrogate, and are unescaped later into a
/// buffer.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct PartialArg<'a> {
    #[serde(borrow)]
    pub(super) json_path: Option<&'a RawValue>,
    pub(super) number_value: Option<serde_json::Number>,
    #[serde(borrow)]
    pub(super) string_value: Option<&'a RawValue>,
    pub(super) bool_value: Option<bool>,
    pub(super) will_continue: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Blob<'a> {
    #[serde(borrow)]
    pub(super) mime_type: Text<'a>,
    #[serde(borrow)]
    pub(super) data: Text<'a>,
    #[serde(borrow)]
    pub(super) display_name: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct FileData<'a> {
    #[serde(borrow)]
    pub(super) mime_type: Text<'a>,
    #[serde(borrow)]
    pub(super) file_uri: Text<'a>,
    #[serde(borrow)]
    pub(super) display_name: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct CodeExecutionResult<'a> {
    #[serde(borrow)]
    pub(super) outcome: Text<'a>,
    #[serde(borrow)]
    pub(super) output: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct UsageMetadata {
    pub(super) prompt_token_count: Option<u64>,
    pub(super) tool_use_prompt_token_count: Option<u64>,
    pub(super) cached_content_token_count: Option<u64>,
    pub(super) candidates_token_count: Option<u64>,
    pub(super) thoughts_token_count: Option<u64>,
}

/// The first element of a list. We never ask for a second candidate.
#[derive(Debug, Default)]
pub(super) struct First<T>(pub(super) Option<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for First<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Take<T>(std::marker::PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Take<T> {
            type Value = First<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_unit<E>(self) -> Result<First<T>, E> {
                Ok(First(None))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<First<T>, A::Error> {
                let first = list.next_element()?;
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(First(first))
            }
        }

        deserializer.deserialize_any(Take(std::marker::PhantomData))
    }
}

/// A list that usually has one element: the first is stored inline.
#[derive(Debug)]
pub(super) struct Few<T> {
    first: Option<T>,
    more: Vec<T>,
}

impl<T> Default for Few<T> {
    fn default() -> Self {
        Self { first: None, more: Vec::new() }
    }
}

impl<T> Few<T> {
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(&self.more)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Few<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect<T>(std::marker::PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Collect<T> {
            type Value = Few<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_unit<E>(self) -> Result<Few<T>, E> {
                Ok(Few::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Few<T>, A::Error> {
                let mut few = Few { first: list.next_element()?, more: Vec::new() };
                while let Some(item) = list.next_element()? {
                    few.more.push(item);
                }
                Ok(few)
            }
        }

        deserializer.deserialize_any(Collect(std::marker::PhantomData))
    }
}
