//! Blocks of content.

use serde_json::Value;
use wellspring_core::{Content, Location, MediaSource, ToolContent};

use crate::acp::unknown_members::left;

/// A content block; `None` if its type is unknown.
pub(super) fn block(block: &Value) -> Option<Content> {
    let text = |name: &str| block[name].as_str().map(Box::<str>::from);
    match block["type"].as_str()? {
        "text" => text("text").map(Content::Text),
        "image" | "audio" => Some(Content::Media {
            media_type: text("mimeType")?,
            source: MediaSource::Data(text("data")?),
            name: text("uri"),
        }),
        "resource_link" => Some(Content::Link {
            uri: text("uri")?,
            name: text("name"),
            media_type: text("mimeType"),
        }),
        "resource" => {
            let resource = &block["resource"];
            let member = |name: &str| resource[name].as_str().map(Box::<str>::from);
            let (uri, media_type) = (member("uri")?, member("mimeType"));
            match (member("text"), member("blob")) {
                (Some(text), _) => Some(Content::Resource { uri, text, media_type }),
                (None, Some(blob)) => Some(Content::Media {
                    media_type: media_type.unwrap_or_else(|| "application/octet-stream".into()),
                    source: MediaSource::Data(blob),
                    name: Some(uri),
                }),
                (None, None) => None,
            }
        }
        _ => None,
    }
}

/// Whether it is a valid block of a known type.
pub(in crate::acp) fn is_block(value: &Value) -> bool {
    let optional = |of: &Value, name: &str| of[name].is_null() || of[name].is_string();
    let shape = match value["type"].as_str() {
        Some("image") => optional(value, "uri"),
        Some("resource_link") => {
            value["name"].is_string()
                && (value["size"].is_null() || value["size"].is_i64())
                && ["title", "description", "mimeType"].iter().all(|name| optional(value, name))
        }
        Some("resource") => {
            let resource = &value["resource"];
            optional(resource, "mimeType") && has_sound_meta(resource)
        }
        Some(_) | None => true,
    };
    let notes = &value["annotations"];
    let is_person = |it: &Value| matches!(it.as_str(), Some("user" | "assistant"));
    let audience = notes["audience"].as_array();
    let notes = notes.is_null()
        || notes.is_object()
            && optional(notes, "lastModified")
            && (notes["priority"].is_null() || notes["priority"].is_number())
            && audience.map_or(notes["audience"].is_null(), |it| it.iter().all(is_person))
            && has_sound_meta(notes);
    block(value).is_some() && shape && notes && has_sound_meta(value)
}

/// Whether `_meta` is valid, so that it can be passed on.
pub(in crate::acp) fn has_sound_meta(of: &Value) -> bool {
    of["_meta"].is_null() || of["_meta"].is_object()
}

/// Whether everything in a block was understood.
fn is_whole(block: &Value) -> bool {
    let says_more = |of: &Value, understood: &[&str]| !left(of, understood).is_empty();
    is_block(block)
        && match block["type"].as_str() {
            Some("text") => !says_more(block, &["type", "text"]),
            Some("image") => !says_more(block, &["type", "data", "mimeType", "uri"]),
            Some("audio") => !says_more(block, &["type", "data", "mimeType"]),
            Some("resource_link") => !says_more(block, &["type", "uri", "name", "mimeType"]),
            Some("resource") => {
                !says_more(block, &["type", "resource"])
                    && !says_more(&block["resource"], &["uri", "mimeType", "text", "blob"])
            }
            Some(_) | None => false,
        }
}

/// The content of a call, and whether all of it was understood.
pub(super) fn shown(listed: &[Value]) -> (Vec<ToolContent>, bool) {
    let known: Vec<ToolContent> = listed.iter().filter_map(tool_content).collect();
    let is_whole = |content: &Value| match content["type"].as_str() {
        Some("content") => {
            left(content, &["type", "content"]).is_empty() && is_whole(&content["content"])
        }
        Some("diff") => {
            left(content, &["type", "path", "oldText", "newText"]).is_empty()
                && (content["oldText"].is_null() || content["oldText"].is_string())
        }
        Some("terminal") => left(content, &["type", "terminalId"]).is_empty(),
        Some(_) | None => false,
    };
    let whole = known.len() == listed.len() && listed.iter().all(is_whole);
    (known, whole)
}

fn tool_content(content: &Value) -> Option<ToolContent> {
    let text = |name: &str| content[name].as_str().map(Box::<str>::from);
    match content["type"].as_str()? {
        "content" => block(&content["content"]).map(ToolContent::Content),
        "diff" => Some(ToolContent::Diff {
            path: text("path")?,
            old_text: text("oldText"),
            new_text: text("newText")?,
        }),
        "terminal" => Some(ToolContent::Terminal { terminal_id: text("terminalId")? }),
        _ => None,
    }
}

/// The terminals in the content of a call.
pub(super) fn terminals(update: &Value) -> impl Iterator<Item = &str> {
    let listed = update["content"].as_array().into_iter().flatten();
    listed
        .filter(|content| content["type"] == "terminal")
        .filter_map(|it| it["terminalId"].as_str())
}

/// The text in the content of a call.
pub(super) fn words(content: &[ToolContent]) -> Option<String> {
    let texts: Vec<&str> = content
        .iter()
        .filter_map(|content| match content {
            ToolContent::Content(content) => content.as_text(),
            ToolContent::Diff { .. } | ToolContent::Terminal { .. } => None,
        })
        .collect();
    (!texts.is_empty()).then(|| texts.join("\n"))
}

/// The locations of a call, and whether all of them were understood.
pub(super) fn locations(listed: &Value) -> (Vec<Location>, bool) {
    let is_list = listed.is_null() || listed.is_array();
    let listed = listed.as_array().map(Vec::as_slice).unwrap_or_default();
    let known = listed.iter().filter_map(|location| {
        let line = location["line"].as_u64().and_then(|line| u32::try_from(line).ok());
        Some(Location { path: location["path"].as_str()?.into(), line })
    });
    let known: Vec<Location> = known.collect();
    let is_whole = |location: &Value| {
        left(location, &["path", "line"]).is_empty()
            && (location["line"].is_null() || location["line"].is_u64())
    };
    let whole = is_list && known.len() == listed.len() && listed.iter().all(is_whole);
    (known, whole)
}
