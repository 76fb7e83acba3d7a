//! What we send to a remote agent: the conversation, and answers to its interrupts.

use serde_json::{Value, json};
use wellspring_core::{
    Answer, Ask, Choice, Content, Form, Message as ConversationMessage, PartKind, RunsOn, Scope,
    ToolOutcome,
};

use super::messages::user;
use super::types::{
    AssistantMessage, FunctionCall, Interrupt, Message, MessageContent, ResumeEntry, ResumeStatus,
    ToolCall, ToolMessage,
};

/// A user's message.
#[must_use]
pub fn user_message(id: &str, content: &[Content]) -> Message {
    user(id.into(), content)
}

/// A conversation as the protocol's messages. Thoughts, and calls that the agent ran itself, are
/// left out, because another agent may read this conversation.
#[must_use]
pub fn conversation(messages: &[ConversationMessage]) -> Vec<Message> {
    let mut said = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        match message {
            ConversationMessage::User { content } => {
                said.push(user(format!("user-{index}").into(), content))
            }
            ConversationMessage::Assistant { parts, .. } => {
                for part in parts {
                    let id = part.provider_id().map_or_else(|| part.id.to_string(), str::to_owned);
                    match &part.kind {
                        PartKind::Text { .. } => said.push(assistant(&id, Some(&part.text), None)),
                        PartKind::ToolCall(tool) if tool.runs_on != RunsOn::Agent => {
                            let call = call(&id, &tool.name, &part.text);
                            said.push(assistant(&format!("{id}-call"), None, Some(call)));
                        }
                        PartKind::ToolCall(_)
                        | PartKind::Thought
                        | PartKind::Output { .. }
                        | PartKind::Opaque(_) => {}
                    }
                }
            }
            ConversationMessage::Results { results } => said.extend(results.iter().map(|result| {
                let id = result.provider_id.clone();
                let id = id.unwrap_or_else(|| result.call.to_string().into());
                tool_result(&id, result.outcome, &result.result.output_text())
            })),
        }
    }
    said
}

/// An assistant message with text, a call, or both.
#[must_use]
pub fn assistant(id: &str, text: Option<&str>, call: Option<ToolCall>) -> Message {
    Message::Assistant(AssistantMessage {
        id: id.into(),
        content: text.map(str::to_owned),
        tool_calls: call.into_iter().collect(),
        ..AssistantMessage::default()
    })
}

/// A call of a tool.
#[must_use]
pub fn call(id: &str, name: &str, arguments: &str) -> ToolCall {
    ToolCall {
        id: id.into(),
        kind: "function".into(),
        function: FunctionCall { name: name.into(), arguments: arguments.to_owned() },
        ..ToolCall::default()
    }
}

/// The result of a call that the agent left for us to run.
#[must_use]
pub fn tool_result(call: &str, outcome: ToolOutcome, text: &str) -> Message {
    Message::Tool(ToolMessage {
        id: format!("{call}-result").into(),
        tool_call_id: call.into(),
        content: MessageContent::Text(text.to_owned()),
        error: (outcome != ToolOutcome::Ok).then(|| text.into()),
        ..ToolMessage::default()
    })
}

/// Turns an interrupt into a question: yes or no if its schema asks for `approved`, a choice if
/// it lists strings, and otherwise a value of its schema.
#[must_use]
pub fn question(interrupt: &Interrupt) -> Ask {
    let prompt = interrupt.message.clone().unwrap_or_else(|| interrupt.reason.clone());
    Ask::new(prompt, form(interrupt)).resumable(interrupt.id.clone())
}

fn form(interrupt: &Interrupt) -> Form {
    let Some(schema) = &interrupt.response_schema else {
        let is_yes_or_no = matches!(&*interrupt.reason, "tool_call" | "confirmation");
        return if is_yes_or_no { Form::Approve } else { Form::Schema(json!({})) };
    };
    let approves = schema.get("properties").and_then(|it| it.get("approved")).is_some();
    if approves {
        return Form::Approve;
    }
    let (of, multiple) = match schema.get("items") {
        Some(items) => (items.get("enum"), true),
        None => (schema.get("enum"), false),
    };
    let ids = of.and_then(Value::as_array);
    let ids: Option<Vec<&str>> = ids.and_then(|ids| ids.iter().map(Value::as_str).collect());
    match ids.filter(|ids| !ids.is_empty()) {
        Some(ids) => {
            let choices =
                ids.into_iter().map(|id| Choice { id: id.into(), label: label(interrupt, id) });
            Form::Choose { choices: choices.collect(), multiple }
        }
        None => Form::Schema(Value::Object(schema.clone())),
    }
}

fn label(interrupt: &Interrupt, id: &str) -> Box<str> {
    let choices = interrupt.metadata.as_ref().and_then(|it| it.get("choices")?.as_array());
    let label = choices.and_then(|choices| {
        let choice = choices.iter().find(|choice| choice["id"] == id)?;
        choice["label"].as_str()
    });
    label.unwrap_or(id).into()
}

/// Writes the answer to an interrupt's question as a resume entry.
#[must_use]
pub fn resume_entry(interrupt: &Interrupt, answer: &Answer) -> ResumeEntry {
    let is_approval = form(interrupt) == Form::Approve;
    let payload = match answer {
        Answer::Approve { scope, arguments } => {
            let mut payload = json!({"approved": true});
            if *scope != Scope::Once {
                payload["scope"] = json!(scope);
            }
            if let Some(arguments) = arguments {
                payload["editedArgs"] = arguments.clone();
            }
            Some(payload)
        }
        Answer::Deny { reason, .. } if is_approval => Some(match reason {
            Some(reason) => json!({"approved": false, "reason": reason}),
            None => json!({"approved": false}),
        }),
        Answer::Choose(ids) => match (form(interrupt), &**ids) {
            (Form::Choose { multiple: false, .. }, [id]) => Some(json!(id)),
            _ => Some(json!(ids)),
        },
        Answer::Value(value) => Some(value.clone()),
        Answer::Deny { .. } | Answer::Expired | Answer::Withdrawn => None,
    };
    let status = match payload {
        Some(_) => ResumeStatus::Resolved,
        None => ResumeStatus::Cancelled,
    };
    ResumeEntry { interrupt_id: interrupt.id.clone(), status, payload, metadata: None }
}
