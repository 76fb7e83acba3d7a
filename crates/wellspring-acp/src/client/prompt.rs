//! Prompts for an agent.

use serde_json::{Value, json};
use wellspring_core::{
    Content, MediaSource, Message, PartKind, RETURN_RESULT, RemoteRequest, Role,
};

use super::running_agent::Peer;
use super::tools::SERVER_NAME;

/// Asks for the result that an agent forgot.
pub(super) fn reminder() -> Vec<Value> {
    vec![text(&format!(
        "You have not handed over the result yet. Now call the tool {RETURN_RESULT} of the MCP \
         server {SERVER_NAME} with the final result."
    ))]
}

/// Asks an agent to continue after its connection was lost.
pub(super) fn go_on() -> Vec<Value> {
    vec![text(
        "The connection was lost while you worked on the last request. Look how far you got, and \
         go on with it from there.",
    )]
}

/// Comes before a prompt that the agent may have got already: the process that drove it ended
/// before the agent said anything.
pub(super) fn again() -> Value {
    text(
        "The connection was lost. You may have received the following request already. If so, \
         look how far you got, and go on with it from there.",
    )
}

/// What a session knows before it is prompted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Before {
    /// Nothing.
    New,
    /// The thread's earlier conversation.
    Continued,
}

/// The prompt of a run: instructions, the earlier conversation if the session does not
/// know it, the client's facts, and the user's input, in the client's original blocks if there
/// are any.
pub(super) fn prompt(
    request: &RemoteRequest,
    before: Before,
    peer: &Peer,
    own_words: &[Value],
) -> Vec<Value> {
    let mut blocks = Vec::new();
    if before == Before::New {
        if !request.instructions.is_empty() {
            blocks.push(text(&request.instructions));
        }
        let history = recall(&request.history);
        if !history.is_empty() {
            blocks.push(text(&format!("This was said before:\n\n{history}")));
        }
    }
    for note in &request.request.context {
        blocks.push(text(&format!("{}:\n{}", note.description, note.value)));
    }
    if let Some(state) = &request.request.state {
        blocks.push(text(&format!("The state shared with the user's screen:\n{state}")));
    }
    let wants_result = request.tools.iter().any(|tool| &*tool.spec().name == RETURN_RESULT);
    if wants_result {
        blocks.push(text(&format!(
            "When the work is done, call the tool {RETURN_RESULT} of the MCP server {SERVER_NAME} \
             once, with the final result."
        )));
    }
    blocks.extend(request.request.input.iter().enumerate().map(|(index, content)| {
        // Blocks that the agent accepts are passed on unchanged, since they may hold more than we understand.
        let own = own_words.get(index).filter(|own| is_taken(own, peer));
        own.cloned().unwrap_or_else(|| block(content, peer))
    }));
    blocks
}

/// Bytes of the earlier conversation that a new session gets: the end of it, about as much as a
/// person would remember.
const RECALLED_BYTES_MAX: usize = 64 * 1024;

/// The earlier conversation, as text.
fn recall(history: &[Message]) -> String {
    let mut lines = Vec::new();
    let mut bytes = 0;
    for message in history.iter().rev() {
        let line = match message {
            Message::User { content } => {
                let words: Vec<_> = content.iter().filter_map(Content::as_text).collect();
                format!("User: {}", words.join("\n"))
            }
            Message::Assistant { parts, .. } => {
                let words = parts.iter().filter_map(|part| match &part.kind {
                    PartKind::Text { role: Role::Assistant } => Some(part.text.as_str()),
                    PartKind::Text { role: Role::User }
                    | PartKind::Thought
                    | PartKind::ToolCall(_)
                    | PartKind::Output { .. }
                    | PartKind::Opaque(_) => None,
                });
                format!("You: {}", words.collect::<Vec<_>>().join("\n"))
            }
            Message::Results { .. } => continue,
        };
        bytes += line.len();
        if bytes > RECALLED_BYTES_MAX {
            lines.push("…".to_owned());
            break;
        }
        lines.push(line);
    }
    lines.reverse();
    lines.join("\n\n")
}

/// Whether the agent accepts this content in a prompt.
fn takes(peer: &Peer, what: &str) -> bool {
    peer.capability(&format!("/promptCapabilities/{what}"))
}

/// Whether the agent accepts blocks of this type.
fn is_taken(block: &Value, peer: &Peer) -> bool {
    match block["type"].as_str() {
        Some("text" | "resource_link") => true,
        Some("resource") => takes(peer, "embeddedContext"),
        Some(kind @ ("image" | "audio")) => takes(peer, kind),
        Some(_) | None => false,
    }
}

/// A content block in a form that the agent accepts.
fn block(content: &Content, peer: &Peer) -> Value {
    let takes = |what: &str| takes(peer, what);
    match content {
        Content::Text(said) => text(said),
        Content::Media { media_type, source: MediaSource::Data(data), name } => {
            let kind = media_type.split('/').next().unwrap_or_default();
            if matches!(kind, "image" | "audio") && takes(kind) {
                json!({"type": kind, "data": data, "mimeType": media_type})
            } else if takes("embeddedContext") {
                let uri = name.as_deref().unwrap_or("attachment");
                let resource = json!({"uri": uri, "blob": data, "mimeType": media_type});
                json!({"type": "resource", "resource": resource})
            } else {
                let name = name.as_deref().unwrap_or("without a name");
                text(&format!("[a file of type {media_type}, {name}, which you cannot read]"))
            }
        }
        Content::Media { media_type, source: MediaSource::Url(uri), name } => {
            link(uri, name.as_deref(), Some(media_type))
        }
        Content::Link { uri, name, media_type } => {
            link(uri, name.as_deref(), media_type.as_deref())
        }
        Content::Resource { uri, text: said, media_type } => {
            if takes("embeddedContext") {
                let resource = json!({"uri": uri, "text": said, "mimeType": media_type});
                json!({"type": "resource", "resource": resource})
            } else {
                text(&format!("{uri}:\n{said}"))
            }
        }
    }
}

fn link(uri: &str, name: Option<&str>, media_type: Option<&str>) -> Value {
    let name = name.unwrap_or_else(|| uri.rsplit('/').next().unwrap_or(uri));
    let mut link = json!({"type": "resource_link", "uri": uri, "name": name});
    if let Some(media_type) = media_type {
        link["mimeType"] = media_type.into();
    }
    link
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_long_conversation_is_recalled() {
        let said = |number: usize| {
            let text = format!("{number} {}", "x".repeat(1000));
            Message::User { content: vec![Content::text(text)] }
        };
        let history: Vec<Message> = (0..100).map(said).collect();
        let recalled = recall(&history);
        assert!(recalled.len() <= RECALLED_BYTES_MAX + 1024, "{}", recalled.len());
        let said: Vec<&str> = recalled.split("\n\n").collect();
        assert_eq!(said[0], "…");
        assert_eq!(said.len(), 1 + RECALLED_BYTES_MAX / "User: 99 ".len().wrapping_add(1000));
        assert!(
            said[1].starts_with("User: 36 ") && said[64].starts_with("User: 99 "),
            "{recalled}"
        );
    }
}
