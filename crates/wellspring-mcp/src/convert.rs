//! Converts a server's tools and results to ours. Pure.
//!
//! # Lossy
//!
//! Icons, `_meta`, output schemas and the audience of a block are not kept. A block of a kind
//! newer than this crate is kept as text, its JSON.

use serde_json::Value;
use wellspring_core::{
    Approval, Content, MediaSource, ToolContent, ToolError, ToolKind, ToolMode, ToolResult,
    ToolSpec,
};

use crate::calls::cut;
use crate::config::McpConfig;
use crate::tool_name;

/// Maximum bytes of a result for the model: more than any model can use at once.
pub const RESULT_BYTES_MAX: usize = 256 * 1024;

/// Maximum bytes of a tool's description, which is sent to the model in every turn.
pub const DESCRIPTION_BYTES_MAX: usize = 8 * 1024;

/// Reads a tool from the protocol's JSON; `None` if it has no name.
///
/// A server's hints are not trusted: only tools that it marks as read-only are allowed without
/// approval, and the configuration overrides all hints.
pub(crate) fn spec(config: &McpConfig, prefix: &str, tool: &Value) -> Option<(Box<str>, ToolSpec)> {
    let own = tool["name"].as_str()?;
    let hints = &tool["annotations"];
    let hint = |name: &str| hints[name].as_bool();
    let reads = hint("readOnlyHint") == Some(true);
    let kind = match (reads, hint("destructiveHint")) {
        (true, _) => ToolKind::Read,
        (false, Some(true)) => ToolKind::Delete,
        (false, Some(false)) => ToolKind::Edit,
        (false, None) => ToolKind::Other,
    };
    let hinted = if reads { Approval::Allow } else { Approval::Ask };
    let approval = config.approval.get(own).copied().or(config.approval_default).unwrap_or(hinted);
    let title = tool["title"].as_str().or(hints["title"].as_str());
    let description = tool["description"].as_str().unwrap_or_default().to_owned();
    let schema = Some(&tool["inputSchema"]).filter(|schema| schema.is_object());
    let parameters = schema.cloned().unwrap_or_else(|| serde_json::json!({"type": "object"}));
    let spec = ToolSpec {
        parameters: parameters.into(),
        title: title.map(Into::into),
        kind,
        mode: if reads { ToolMode::Parallel } else { ToolMode::Sequential },
        idempotent: reads || hint("idempotentHint") == Some(true),
        approval: Some(approval),
        timeouts: config.timeouts.call,
        ..ToolSpec::new(tool_name::tool_name(prefix, own), cut(description, DESCRIPTION_BYTES_MAX))
    };
    Some((own.into(), spec))
}

/// Reads a tool's result from the protocol's JSON.
pub(crate) fn result(result: &Value) -> Result<ToolResult, ToolError> {
    let blocks = result["content"].as_array().map_or(&[][..], Vec::as_slice);
    let content: Vec<Content> = blocks.iter().map(block).collect();
    let text = told(&content);
    if result["isError"] == true {
        let text =
            if text.is_empty() { "the tool failed without an error message".into() } else { text };
        return Err(ToolError::new(text));
    }
    let structured = result
        .get("structuredContent")
        .filter(|value| !value.is_null() && value.to_string().len() <= RESULT_BYTES_MAX);
    let all_words = content.iter().all(|block| matches!(block, Content::Text(_)));
    let shown = !all_words || structured.is_some();
    Ok(ToolResult {
        output: structured.cloned().unwrap_or_else(|| text.into()),
        content: if shown {
            content.into_iter().map(ToolContent::Content).collect()
        } else {
            Vec::new()
        },
        ..ToolResult::default()
    })
}

/// Reads the contents of a resource from a `resources/read` response.
pub(crate) fn resources(result: &Value) -> ToolResult {
    let contents = result["contents"].as_array().map_or(&[][..], Vec::as_slice);
    let content: Vec<Content> = contents.iter().map(resource).collect();
    ToolResult {
        output: told(&content).into(),
        content: content.into_iter().map(ToolContent::Content).collect(),
        ..ToolResult::default()
    }
}

/// The output for the model: the text, and a note for everything else.
fn told(content: &[Content]) -> String {
    let line = |block: &Content| match block {
        Content::Text(text) => text.to_string(),
        Content::Resource { uri, text, .. } => format!("{uri}:\n{text}"),
        Content::Link { uri, name, .. } => {
            name.as_deref().map_or_else(|| uri.to_string(), |name| format!("{name}: {uri}"))
        }
        Content::Media { media_type, name, .. } => match name {
            Some(name) => format!("[{media_type}: {name}]"),
            None => format!("[{media_type}]"),
        },
    };
    let lines: Vec<String> = content.iter().map(line).collect();
    cut(lines.join("\n"), RESULT_BYTES_MAX)
}

fn block(block: &Value) -> Content {
    let text = |field: &str| block[field].as_str().map(Box::from);
    let media = |other: &str| Content::Media {
        media_type: text("mimeType").unwrap_or_else(|| other.into()),
        source: MediaSource::Data(text("data").unwrap_or_default()),
        name: None,
    };
    match block["type"].as_str() {
        Some("text") => Content::Text(text("text").unwrap_or_default()),
        Some("image") => media("image/png"),
        Some("audio") => media("audio/wav"),
        Some("resource") => resource(&block["resource"]),
        Some("resource_link") => Content::Link {
            uri: text("uri").unwrap_or_default(),
            name: text("title").or(text("name")),
            media_type: text("mimeType"),
        },
        Some(_) | None => Content::Text(block.to_string().into()),
    }
}

fn resource(resource: &Value) -> Content {
    let text = |field: &str| resource[field].as_str().map(Box::from);
    let uri = text("uri").unwrap_or_default();
    match text("blob") {
        Some(blob) => Content::Media {
            media_type: text("mimeType").unwrap_or_else(|| "application/octet-stream".into()),
            source: MediaSource::Data(blob),
            name: Some(uri),
        },
        None => Content::Resource {
            uri,
            text: text("text").unwrap_or_default(),
            media_type: text("mimeType"),
        },
    }
}

#[cfg(test)]
mod tests;
