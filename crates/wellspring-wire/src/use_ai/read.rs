//! Reads a client's messages.

use serde_json::{Map, Value, json};
use wellspring_core::{
    Amendment, Answer, Command, Content, Form, Outline, PartId, RunId, RunRequest, Scope,
    ToolOutcome, ToolResult as Output, WireNames, WirePartId,
};

use super::types::{
    AbortRun, MessageFeedback, RunAgent, RunWorkflow, ToolApprovalResponse, ToolResult,
};
use crate::ag_ui::types::{ResumeEntry, ResumeStatus, RunAgentInput};
use crate::ag_ui::{InputError, answer, client_tool, ids};

/// A client's message: `{"type": …, "data": …}`.
///
/// ```
/// use wellspring_wire::use_ai::ClientMessage;
///
/// let message = ClientMessage::read(br#"{"type":"abort_run","data":{"runId":"r"}}"#)?;
/// let ClientMessage::AbortRun(abort) = message else { return Err("an abort".into()) };
/// assert_eq!(abort.run_id.as_deref(), Some("r"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum ClientMessage {
    /// Run an agent.
    RunAgent(Box<RunAgent>),
    /// The result of a client's tool.
    ToolResult(Box<ToolResult>),
    /// Stop a run.
    AbortRun(AbortRun),
    /// A person's decision about a call.
    ToolApprovalResponse(ToolApprovalResponse),
    /// A person rated an answer.
    MessageFeedback(MessageFeedback),
    /// Run a workflow.
    RunWorkflow(Box<RunWorkflow>),
}

/// A message that use-ai does not define, or that cannot be applied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// It is not JSON, or its members have other types.
    #[error("failed to read the message: {0}")]
    Json(#[from] serde_json::Error),
    /// It is not an object, or has no `type`.
    #[error("the message is not an object with a `type` and `data`")]
    NotAnObject,
    /// Its `type` is not known.
    #[error(
        "unknown message type {kind:?}: known are run_agent, tool_result, abort_run, \
         tool_approval_response, message_feedback and run_workflow"
    )]
    Unknown {
        /// The type, truncated.
        kind: Box<str>,
    },
    /// Nothing in the run waits for an answer with this id.
    #[error("nothing waits for an answer to {id:?}")]
    NotWaiting {
        /// The id.
        id: Box<str>,
    },
    /// The answer is invalid for its question.
    #[error(transparent)]
    Answer(#[from] InputError),
}

impl ClientMessage {
    /// Reads a message.
    ///
    /// # Errors
    ///
    /// If it is not a message of use-ai's.
    pub fn read(json: &[u8]) -> Result<Self, MessageError> {
        Self::from_value(serde_json::from_slice(json)?)
    }

    /// Reads a message that is already parsed.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub fn from_value(message: Value) -> Result<Self, MessageError> {
        let Value::Object(mut envelope) = message else {
            return Err(MessageError::NotAnObject);
        };
        let data = envelope.remove("data").unwrap_or_default();
        let Some(Value::String(kind)) = envelope.remove("type") else {
            return Err(MessageError::NotAnObject);
        };
        Ok(match &*kind {
            "run_agent" => Self::RunAgent(Box::new(run_agent(data)?)),
            "tool_result" => Self::ToolResult(serde_json::from_value(data)?),
            "abort_run" => Self::abort(data)?,
            "tool_approval_response" => Self::ToolApprovalResponse(serde_json::from_value(data)?),
            "message_feedback" => Self::MessageFeedback(serde_json::from_value(data)?),
            "run_workflow" => Self::RunWorkflow(serde_json::from_value(data)?),
            _ => return Err(MessageError::Unknown { kind: kind.chars().take(64).collect() }),
        })
    }

    /// Reads the argument of a bare `abort_run`: nothing, a run's id, or the message's data.
    ///
    /// # Errors
    ///
    /// If it is any other value.
    pub fn abort(data: Value) -> Result<Self, MessageError> {
        if let Value::String(run) = data {
            return Ok(Self::AbortRun(AbortRun { run_id: Some(run.into()) }));
        }
        Ok(Self::AbortRun(serde_json::from_value::<Option<AbortRun>>(data)?.unwrap_or_default()))
    }
}

/// Reads a request. use-ai's parts are converted to AG-UI's first.
fn run_agent(mut data: Value) -> Result<RunAgent, serde_json::Error> {
    from_use_ai(&mut data);
    let input: RunAgentInput = serde_json::from_value(data)?;
    let agent = input.forwarded_props.as_ref().and_then(|props| props.get("agent")?.as_str());
    Ok(RunAgent { agent: agent.map(Into::into), input })
}

/// Converts the parts of user messages from use-ai's form into AG-UI's: `image{url}` and
/// `file{url, mimeType}`.
fn from_use_ai(data: &mut Value) {
    each_part(data, |part| {
        let text = |name: &str| part.get(name).and_then(Value::as_str).map(ToOwned::to_owned);
        let Some(url) = text("url") else { return };
        let kind = text("type");
        let name = text("name").or_else(|| text("filename"));
        let (media_type, source) = match url.strip_prefix("data:").and_then(data_url) {
            Some((media_type, data)) => (Some(media_type), ("data", data)),
            None => (text("mimeType"), ("url", url.as_str())),
        };
        let (source, value) = source;
        match kind.as_deref() {
            Some("image") => {
                let mut image = json!({"type": source, "value": value});
                if let Some(media_type) = media_type {
                    image["mimeType"] = media_type.into();
                }
                let metadata = name.map(|name| json!({"filename": name}));
                *part = json!({"type": "image", "source": image});
                if let Some(metadata) = metadata {
                    part["metadata"] = metadata;
                }
            }
            Some("file") => {
                let media_type = media_type.unwrap_or_else(|| "application/octet-stream".into());
                let mut file = json!({"type": "binary", "mimeType": media_type});
                file[source] = value.into();
                if let Some(name) = name {
                    file["filename"] = name.into();
                }
                *part = file;
            }
            _ => {}
        }
    });
}

/// The reverse of [`from_use_ai`], for events that are sent, including a request inside an
/// event.
pub(super) fn to_use_ai(event: &mut Value) {
    let input = event.get_mut("input").map(Value::take);
    each_part(event, part_to_use_ai);
    if let Some(mut input) = input {
        each_part(&mut input, part_to_use_ai);
        event["input"] = input;
    }
}

fn part_to_use_ai(part: &mut Value) {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(ToOwned::to_owned);
    let Some(source) = part.get("source") else { return };
    let media_type = text(source.get("mimeType"));
    let Some(value) = text(source.get("value")) else { return };
    let url = match text(source.get("type")).as_deref() {
        Some("data") => {
            format!("data:{};base64,{value}", media_type.as_deref().unwrap_or_default())
        }
        _ => value,
    };
    let is_image = text(part.get("type")).as_deref() == Some("image");
    let name = text(part.pointer("/metadata/filename"));
    let mut changed = Map::new();
    changed.insert("type".to_owned(), if is_image { "image" } else { "file" }.into());
    changed.insert("url".to_owned(), url.into());
    for (member, value) in [("mimeType", media_type.filter(|_| !is_image)), ("name", name)] {
        if let Some(value) = value {
            changed.insert(member.to_owned(), value.into());
        }
    }
    *part = changed.into();
}

fn each_part(value: &mut Value, mut change: impl FnMut(&mut Value)) {
    let messages = value.get_mut("messages").and_then(Value::as_array_mut);
    for message in messages.into_iter().flatten() {
        let parts = message.get_mut("content").and_then(Value::as_array_mut);
        parts.into_iter().flatten().for_each(&mut change);
    }
}

/// The media type and the base64 data after `data:`.
fn data_url(rest: &str) -> Option<(String, &str)> {
    let (head, data) = rest.split_once(',')?;
    let media_type = head.strip_suffix(";base64")?;
    let media_type = media_type.split(';').next().filter(|it| !it.is_empty());
    Some((media_type.unwrap_or("text/plain").to_owned(), data))
}

/// A message that answers something that a run waits for.
#[derive(Clone, Copy, Debug)]
pub enum Answers<'a> {
    /// The result of a client's tool, or the answer to a question that is not an approval.
    Result(&'a ToolResult),
    /// A yes or a no to an approval.
    Approval(&'a ToolApprovalResponse),
}

impl Answers<'_> {
    /// The id that the message names.
    #[must_use]
    pub fn id(&self) -> &str {
        match self {
            Self::Result(result) => &result.tool_call_id,
            Self::Approval(response) => &response.tool_call_id,
        }
    }

    /// The run that the message is for: ids of calls and questions include it.
    #[must_use]
    pub fn run(&self) -> Option<RunId> {
        let part = self.id().parse::<WirePartId>().ok().map(|id| id.run);
        part.or_else(|| ids::parse_question(self.id()).map(|(run, _)| run))
    }

    /// The commands for the run, given its outline.
    ///
    /// # Errors
    ///
    /// If nothing in the run waits for it, or the answer is invalid for its question.
    pub fn commands(&self, run: &Outline) -> Result<Vec<Command>, MessageError> {
        match self {
            Self::Result(result) => results(result, run),
            Self::Approval(response) => approvals(response, run),
        }
    }
}

fn results(result: &ToolResult, run: &Outline) -> Result<Vec<Command>, MessageError> {
    let mut commands: Vec<Command> = amendment(result).into_iter().collect();
    if let Some((_, question)) = ids::parse_question(&result.tool_call_id) {
        let Some(asked) = run.questions.get(&question) else { return Err(not_waiting(result)) };
        let given = serde_json::from_str(&result.content);
        let entry = ResumeEntry {
            interrupt_id: result.tool_call_id.clone(),
            status: ResumeStatus::Resolved,
            payload: Some(given.unwrap_or_else(|_| result.content.as_str().into())),
            metadata: None,
        };
        let answer = answer(&entry, &asked.form)?;
        commands.push(Command::Answer { question, answer, by: None, wire_run: None });
        return Ok(commands);
    }
    let call = part(&result.tool_call_id).ok_or_else(|| not_waiting(result))?;
    let (outcome, output) = match &result.error {
        Some(error) => (ToolOutcome::Error, Output::new(&**error)),
        None => (ToolOutcome::Ok, Output::new(result.content.as_str())),
    };
    commands.push(Command::FinishCall { call, outcome, result: output, wire_run: None });
    Ok(commands)
}

/// The amendment of the request that came with a result, if there is one.
fn amendment(result: &ToolResult) -> Option<Command> {
    let props = result.forwarded_props.as_ref()?;
    let tools = props.tools.as_ref().map(|tools| tools.iter().map(client_tool).collect());
    let amended = Amendment { client_tools: tools, ..Amendment::default() };
    let state = props.state.clone().map(Box::new);
    (amended != Amendment::default() || state.is_some()).then(|| Command::Resume {
        amended: Box::new(amended),
        state,
        wire_run: None,
    })
}

fn approvals(response: &ToolApprovalResponse, run: &Outline) -> Result<Vec<Command>, MessageError> {
    let call = part(&response.tool_call_id);
    let named = ids::parse_question(&response.tool_call_id).map(|(_, question)| question);
    let asked = run.questions.iter().find(|(id, asked)| {
        let fits = named == Some(**id) || (call.is_some() && asked.call == call);
        fits && matches!(asked.form, Form::Approve)
    });
    let Some((question, _)) = asked else {
        return Err(MessageError::NotWaiting { id: response.tool_call_id.clone() });
    };
    let answer = match (response.approved, &response.reason) {
        (true, _) => Answer::Approve { scope: Scope::Once, arguments: None },
        (false, Some(reason)) => Answer::no(&**reason),
        (false, None) => Answer::NO,
    };
    Ok(vec![Command::Answer { question: *question, answer, by: None, wire_run: None }])
}

fn part(id: &str) -> Option<PartId> {
    id.parse::<WirePartId>().ok().map(|id| id.part)
}

fn not_waiting(result: &ToolResult) -> MessageError {
    MessageError::NotWaiting { id: result.tool_call_id.clone() }
}

impl RunWorkflow {
    /// The request for the workflow's run. The agent gets the inputs by name, and as JSON text if it
    /// only reads text.
    #[must_use]
    pub fn request(&self) -> RunRequest {
        let inputs = Value::Object(self.inputs.clone());
        let named = |name: &str| Some(name).filter(|name| !name.is_empty()).map(Into::into);
        RunRequest {
            input: vec![Content::text(inputs.to_string())],
            inputs: Some(self.inputs.clone()),
            client_tools: self.tools.iter().flatten().map(client_tool).collect(),
            wire: Some(Box::new(WireNames {
                thread: named(&self.thread_id),
                run: named(&self.run_id),
                ..WireNames::default()
            })),
            ..RunRequest::default()
        }
    }
}
