//! Content blocks, in both directions.

use std::borrow::Cow;
use std::path::Path;

use serde_json::{Value, json};
use wellspring_core::{Content, MediaSource};

/// The media type for a block that has none.
const UNKNOWN_MEDIA: &str = "application/octet-stream";

/// A block of a prompt is invalid.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("block {index} of the prompt {what}")]
pub struct PromptError {
    index: usize,
    what: String,
}

/// Reads the blocks of `session/prompt`.
///
/// ```
/// use serde_json::json;
/// use wellspring_core::Content;
///
/// let blocks = [json!({"type": "text", "text": "Look at this."})];
/// assert_eq!(wellspring_wire::acp::prompt(&blocks)?, [Content::text("Look at this.")]);
/// # Ok::<(), wellspring_wire::acp::PromptError>(())
/// ```
///
/// # Errors
///
/// If a block's type is unknown, or a required member is missing.
pub fn prompt(blocks: &[Value]) -> Result<Vec<Content>, PromptError> {
    let read = |(index, block)| read(block).map_err(|what| PromptError { index, what });
    blocks.iter().enumerate().map(read).collect()
}

fn read(block: &Value) -> Result<Content, String> {
    let member = |of: &Value, name: &str| -> Result<Box<str>, String> {
        let text = of.get(name).and_then(Value::as_str);
        text.map(Into::into).ok_or_else(|| format!("has no text in {name:?}"))
    };
    let optional = |of: &Value, name: &str| of.get(name).and_then(Value::as_str).map(Into::into);
    match block.get("type").and_then(Value::as_str) {
        Some("text") => Ok(Content::Text(member(block, "text")?)),
        Some("image" | "audio") => Ok(Content::Media {
            media_type: member(block, "mimeType")?,
            source: MediaSource::Data(member(block, "data")?),
            name: optional(block, "uri"),
        }),
        Some("resource_link") => Ok(Content::Link {
            uri: member(block, "uri")?,
            name: optional(block, "name"),
            media_type: optional(block, "mimeType"),
        }),
        Some("resource") => {
            let resource = block.get("resource").unwrap_or(&Value::Null);
            let uri = member(resource, "uri")?;
            let media_type = optional(resource, "mimeType");
            if let Some(text) = optional(resource, "text") {
                return Ok(Content::Resource { uri, text, media_type });
            }
            Ok(Content::Media {
                media_type: media_type.unwrap_or_else(|| UNKNOWN_MEDIA.into()),
                source: MediaSource::Data(member(resource, "blob")?),
                name: Some(uri),
            })
        }
        Some(other) => {
            let other: String = other.chars().take(64).collect();
            Err(format!("is {other:?}; it can be text, image, audio, resource_link or resource"))
        }
        None => Err("has no type".into()),
    }
}

/// Writes a block of content as the protocol defines it.
#[must_use]
pub fn content_block(content: &Content) -> Value {
    match content {
        Content::Text(text) => text_block(text),
        Content::Resource { uri, text, media_type } => {
            let mut resource = json!({"uri": uri, "text": text});
            put(&mut resource, "mimeType", media_type.as_deref());
            json!({"type": "resource", "resource": resource})
        }
        Content::Link { uri, name, media_type } => {
            link(uri, name.as_deref(), media_type.as_deref())
        }
        Content::Media { media_type, source: MediaSource::Url(uri), name } => {
            link(uri, name.as_deref(), Some(media_type))
        }
        Content::Media { media_type, source: MediaSource::Data(data), name } => {
            let kind = match media_type.split('/').next() {
                Some(kind @ ("image" | "audio")) => kind,
                Some(_) | None => {
                    let uri = name.as_deref().unwrap_or("attachment");
                    let resource = json!({"uri": uri, "blob": data, "mimeType": media_type});
                    return json!({"type": "resource", "resource": resource});
                }
            };
            let mut block = json!({"type": kind, "data": data, "mimeType": media_type});
            if kind == "image" {
                put(&mut block, "uri", name.as_deref());
            }
            block
        }
    }
}

pub(super) fn text_block(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn link(uri: &str, name: Option<&str>, media_type: Option<&str>) -> Value {
    let mut block = json!({"type": "resource_link", "uri": uri, "name": name.unwrap_or(uri)});
    put(&mut block, "mimeType", media_type);
    block
}

fn put(object: &mut Value, name: &str, value: Option<&str>) {
    if let Some(value) = value {
        object[name] = value.into();
    }
}

/// The absolute path that the protocol requires. Without a base directory, the path is
/// unchanged.
pub(super) fn absolute<'a>(path: &'a str, cwd: Option<&str>) -> Cow<'a, str> {
    match cwd {
        Some(cwd) if Path::new(path).is_relative() => {
            Cow::Owned(Path::new(cwd).join(path).to_string_lossy().into_owned())
        }
        Some(_) | None => Cow::Borrowed(path),
    }
}
