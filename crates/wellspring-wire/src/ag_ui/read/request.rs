//! Reads a client's request.
//!
//! A client sends the whole conversation each time, and can forge it. The log is the history,
//! so only two things are read: new user input, and answers to what a paused run is waiting
//! for.

use serde_json::Value;
use wellspring_core::{
    Amendment, Answer, Command, Content, ContextNote, Form, MediaSource, Outline, PartId,
    RunRequest, RunsOn, Scope, ToolContent, ToolOutcome, ToolResult, ToolSpec, Wait, WireNames,
    WirePartId,
};

use super::super::ids;
use super::super::types::{
    Message, MessageContent, MessagePart, PartMedia, PartSource, ResumeEntry, ResumeStatus,
    RunAgentInput, ToolMessage, UserMessage,
};

/// What a client's request asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Asked {
    /// A new run. It supersedes a paused run of the thread.
    Start(Box<RunRequest>),
    /// Answers to what the paused run is waiting for.
    Answer {
        /// Commands for the run's inbox, in the request's order.
        commands: Vec<Command>,
    },
}

/// Which messages of the client are used besides user input.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Trust {
    /// Only user messages.
    #[default]
    User,
    /// System and developer messages: the agent gets them as context.
    Instructions,
}

/// An invalid request.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InputError {
    /// The thread's run does not wait for this interrupt.
    #[error("resume: interrupt {id:?} is not open")]
    NotOpen {
        /// The interrupt's id.
        id: Box<str>,
    },
    /// The answer is invalid.
    #[error("resume: the payload for interrupt {id:?} {problem}")]
    Payload {
        /// The interrupt's id.
        id: Box<str>,
        /// What is wrong.
        problem: &'static str,
    },
    /// Only some interrupts were answered; the protocol requires answers to all of them at
    /// once.
    #[error("resume: interrupt {id:?} is open and has no entry")]
    Missing {
        /// An unanswered interrupt's id.
        id: Box<str>,
    },
    /// A file that is stored at some provider.
    #[error("message {message:?}: a part's source is a provider's file, send data or a url")]
    ProviderFile {
        /// The message's id.
        message: Box<str>,
    },
}

impl Asked {
    /// Reads a request. `paused` is the thread's paused run, if there is one; `known` returns
    /// whether a message was already the input of an earlier run of the thread.
    ///
    /// ```
    /// use wellspring_wire::ag_ui::types::RunAgentInput;
    /// use wellspring_wire::ag_ui::{Asked, Trust};
    ///
    /// let input: RunAgentInput = serde_json::from_str(r#"{
    ///     "threadId": "t", "runId": "r",
    ///     "messages": [{"id": "m", "role": "user", "content": "Hello?"}]
    /// }"#)?;
    /// let asked = Asked::read(&input, None, |_| false, Trust::User)?;
    /// let Asked::Start(request) = asked else { return Err("expected a new run".into()) };
    /// assert_eq!(request.input[0].as_text(), Some("Hello?"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If an answer does not match its question, or a part is unavailable.
    pub fn read(
        input: &RunAgentInput,
        paused: Option<&Outline>,
        known: impl Fn(&str) -> bool,
        trust: Trust,
    ) -> Result<Self, InputError> {
        let new = new_messages(&input.messages, known);
        if let Some(outline) = paused {
            let mut commands = resume(input, outline)?;
            commands.extend(results(input, outline)?);
            if !commands.is_empty() {
                commands.splice(..0, anew(input));
                for message in new {
                    let content = contents(&message.id, &message.content)?;
                    let message = Some(message.id.clone()).filter(|id| !id.is_empty());
                    commands.push(Command::AddInput { content, message });
                }
                return Ok(Self::Answer { commands });
            }
        } else if let Some(entry) = input.resume.first() {
            return Err(InputError::NotOpen { id: entry.interrupt_id.clone() });
        }
        start(input, &new, trust).map(|request| Self::Start(Box::new(request)))
    }
}

fn start(
    input: &RunAgentInput,
    new: &[&UserMessage],
    trust: Trust,
) -> Result<RunRequest, InputError> {
    // No new input after a user's message: the client repeats that message to get another
    // answer.
    let again = match input.messages.last() {
        Some(Message::User(message)) if new.is_empty() => Some(message),
        _ => None,
    };
    let new: Vec<&UserMessage> = new.iter().copied().chain(again).collect();
    let mut said = Vec::new();
    for message in &new {
        said.extend(contents(&message.id, &message.content)?);
    }
    let mut context = notes(input);
    if trust == Trust::Instructions {
        context.extend(input.messages.iter().filter_map(instruction));
    }
    let model = input.forwarded_props.as_ref().and_then(|props| props.get("model"));
    Ok(RunRequest {
        input: said,
        model: model.and_then(Value::as_str).map(Into::into),
        client_tools: input.tools.iter().map(client_tool).collect(),
        context,
        state: input.state.clone(),
        wire: Some(Box::new(WireNames {
            // An empty id counts as absent: ours is used.
            thread: Some(input.thread_id.clone()).filter(|name| !name.is_empty()),
            run: wire_run(input),
            input: new.last().map(|message| message.id.clone()),
            parent: input.parent_run_id.clone(),
        })),
        ..RunRequest::default()
    })
}

/// Amendments that come with answers. They are applied first, since they change how the run
/// continues. Most clients repeat their tools and context with each request; leaving them out
/// does not remove the earlier ones.
fn anew(input: &RunAgentInput) -> Option<Command> {
    let tools: Vec<_> = input.tools.iter().map(client_tool).collect();
    let context = notes(input);
    let amended = Amendment {
        client_tools: Some(tools).filter(|tools| !tools.is_empty()),
        context: Some(context).filter(|context| !context.is_empty()),
        wire_parent: input.parent_run_id.clone(),
    };
    let state = input.state.clone().map(Box::new);
    (amended != Amendment::default() || state.is_some()).then(|| Command::Resume {
        amended: Box::new(amended),
        state,
        wire_run: wire_run(input),
    })
}

/// The client's run id. An empty id counts as absent, and ours is used instead.
fn wire_run(input: &RunAgentInput) -> Option<Box<str>> {
    Some(input.run_id.clone()).filter(|name| !name.is_empty())
}

fn notes(input: &RunAgentInput) -> Vec<ContextNote> {
    let note = |note: &super::super::types::Context| ContextNote {
        description: note.description.clone(),
        value: note.value.clone(),
    };
    input.context.iter().map(note).collect()
}

/// New user input: all messages after the last message of another role, except those that are
/// already in the log.
fn new_messages(messages: &[Message], known: impl Fn(&str) -> bool) -> Vec<&UserMessage> {
    let mut last = Vec::new();
    for message in messages.iter().rev() {
        match message {
            Message::User(message) => last.push(message),
            // These roles do not show who sent the last text.
            Message::Activity(_) | Message::System(_) | Message::Developer(_) => {}
            Message::Assistant(_) | Message::Tool(_) | Message::Reasoning(_) => break,
        }
    }
    last.reverse();
    last.retain(|message| !known(&message.id) && !ids::is_input(&message.id));
    last
}

fn instruction(message: &Message) -> Option<ContextNote> {
    let (description, value) = match message {
        Message::System(message) => ("system message", &message.content),
        Message::Developer(message) => ("developer message", &message.content),
        Message::Assistant(_)
        | Message::User(_)
        | Message::Tool(_)
        | Message::Activity(_)
        | Message::Reasoning(_) => return None,
    };
    Some(ContextNote { description: description.into(), value: value.as_str().into() })
}

/// A tool that runs in the client.
pub(crate) fn client_tool(tool: &super::super::types::Tool) -> ToolSpec {
    let mut spec = ToolSpec::new(tool.name.clone(), tool.description.clone());
    if let Some(parameters) = &tool.parameters {
        spec.parameters = parameters.clone().into();
    }
    spec.runs_on = RunsOn::Client;
    spec
}

/// The answers in the request's resume entries; empty if there are no entries. Fails if only some
/// of the open interrupts are answered.
fn resume(input: &RunAgentInput, outline: &Outline) -> Result<Vec<Command>, InputError> {
    let (Some(head), false) = (&outline.run, input.resume.is_empty()) else {
        return Ok(Vec::new());
    };
    let waits = outline.paused.as_deref().unwrap_or_default();
    let wire_run = wire_run(input);
    let mut commands = Vec::new();
    for entry in &input.resume {
        let not_open = || InputError::NotOpen { id: entry.interrupt_id.clone() };
        if let Some((run, question)) = ids::parse_question(&entry.interrupt_id) {
            let asked = outline.questions.get(&question).filter(|_| run == head.run);
            let asked = asked.ok_or_else(not_open)?;
            commands.push(Command::Answer {
                question,
                answer: answer(entry, &asked.form)?,
                by: None,
                wire_run: wire_run.clone(),
            });
        } else {
            let call = pending(outline, &entry.interrupt_id).ok_or_else(not_open)?;
            commands.push(finish(call, entry, wire_run.clone()));
        }
    }
    let answered = |id: &str| input.resume.iter().any(|entry| &*entry.interrupt_id == id);
    for wait in waits {
        let Wait::Question(question) = wait else { continue };
        let id = ids::question(head.run, *question);
        if !answered(&id) {
            return Err(InputError::Missing { id });
        }
    }
    Ok(commands)
}

/// A call of this run that waits for the client.
fn pending(outline: &Outline, id: &str) -> Option<PartId> {
    let head = outline.run.as_ref()?;
    let WirePartId { run, part } = id.parse().ok()?;
    let waits = outline.paused.as_deref().unwrap_or_default();
    let fits = run == head.run && waits.contains(&Wait::Call(part));
    let is_clients = outline.call(part).is_some_and(|call| call.tool.runs_on == RunsOn::Client);
    (fits && is_clients).then_some(part)
}

fn finish(call: PartId, entry: &ResumeEntry, wire_run: Option<Box<str>>) -> Command {
    let (outcome, output) = match entry.status {
        ResumeStatus::Resolved => (ToolOutcome::Ok, entry.payload.clone().unwrap_or_default()),
        ResumeStatus::Cancelled => (ToolOutcome::Denied, CANCELLED.into()),
    };
    Command::FinishCall { call, outcome, result: ToolResult::new(output), wire_run }
}

/// The result that the model gets if the user declined to answer.
const CANCELLED: &str = "the user gave no answer";

/// Reads an interrupt's answer as the answer to a question.
pub(crate) fn answer(entry: &ResumeEntry, form: &Form) -> Result<Answer, InputError> {
    let wrong = |problem| InputError::Payload { id: entry.interrupt_id.clone(), problem };
    if entry.status == ResumeStatus::Cancelled {
        return Ok(Answer::no(CANCELLED));
    }
    let payload = entry.payload.as_ref().ok_or_else(|| wrong("is missing"))?;
    match form {
        Form::Approve => {
            let approved = payload.as_bool().or_else(|| payload.get("approved")?.as_bool());
            if approved.ok_or_else(|| wrong("has no boolean `approved`"))? {
                let scope = payload.get("scope").map(|scope| {
                    serde_json::from_value::<Scope>(scope.clone())
                        .map_err(|_| wrong("has a `scope` that is not once, thread or always"))
                });
                Ok(Answer::Approve {
                    scope: scope.transpose()?.unwrap_or_default(),
                    arguments: payload.get("editedArgs").filter(|args| !args.is_null()).cloned(),
                })
            } else {
                let reason = payload.get("reason").and_then(Value::as_str);
                Ok(reason.map_or(Answer::NO, Answer::no))
            }
        }
        Form::Choose { choices, multiple } => {
            let chosen: Vec<Box<str>> = match payload {
                Value::String(one) => vec![one.as_str().into()],
                Value::Array(all) => {
                    let ids = all.iter().map(|one| one.as_str().map(Into::into));
                    ids.collect::<Option<_>>().ok_or_else(|| wrong("is not a list of strings"))?
                }
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
                    return Err(wrong("is neither a string nor a list of strings"));
                }
            };
            let known = |id: &str| choices.iter().any(|choice| &*choice.id == id);
            if !chosen.iter().all(|id| known(id)) {
                return Err(wrong("names an unknown choice"));
            }
            if !multiple && chosen.len() != 1 {
                return Err(wrong("must name one choice"));
            }
            Ok(Answer::Choose(chosen))
        }
        Form::Schema(_) => Ok(Answer::Value(payload.clone())),
    }
}

/// The results in the request's tool messages for calls that wait for one. Other tool messages
/// are history, or forged, and are ignored.
fn results(input: &RunAgentInput, outline: &Outline) -> Result<Vec<Command>, InputError> {
    let mut commands: Vec<Command> = Vec::new();
    let mut taken = Vec::new();
    for message in &input.messages {
        let Message::Tool(message) = message else { continue };
        let Some(call) = pending(outline, &message.tool_call_id) else { continue };
        if taken.contains(&call) {
            continue;
        }
        taken.push(call);
        let (outcome, result) = result(message)?;
        let wire_run = wire_run(input);
        commands.push(Command::FinishCall { call, outcome, result, wire_run });
    }
    Ok(commands)
}

fn result(message: &ToolMessage) -> Result<(ToolOutcome, ToolResult), InputError> {
    if let Some(error) = &message.error {
        return Ok((ToolOutcome::Error, ToolResult::new(&**error)));
    }
    let result = match &message.content {
        MessageContent::Text(text) => ToolResult::new(text.as_str()),
        MessageContent::Parts(_) => {
            let content = contents(&message.id, &message.content)?;
            let words: Vec<&str> = content.iter().filter_map(Content::as_text).collect();
            let output = Value::from(words.join("\n"));
            let content = content.into_iter().map(ToolContent::Content).collect();
            ToolResult { output, content, ..ToolResult::default() }
        }
    };
    Ok((ToolOutcome::Ok, result))
}

fn contents(message: &str, content: &MessageContent) -> Result<Vec<Content>, InputError> {
    let parts = match content {
        MessageContent::Text(text) => return Ok(vec![Content::text(text.as_str())]),
        MessageContent::Parts(parts) => parts,
    };
    parts
        .iter()
        .map(|part| match part {
            MessagePart::Text { text, .. } => Ok(Content::text(text.as_str())),
            MessagePart::Image(part) => media(message, part, "image/*"),
            MessagePart::Audio(part) => media(message, part, "audio/*"),
            MessagePart::Video(part) => media(message, part, "video/*"),
            MessagePart::Document(part) => media(message, part, "application/octet-stream"),
            MessagePart::Binary { mime_type, data, url, filename } => {
                let data = data.clone().map(MediaSource::Data);
                let source = data.or_else(|| url.clone().map(MediaSource::Url));
                Ok(Content::Media {
                    media_type: mime_type.clone(),
                    source: source
                        .ok_or_else(|| InputError::ProviderFile { message: message.into() })?,
                    name: filename.clone(),
                })
            }
        })
        .collect()
}

fn media(message: &str, part: &PartMedia, default: &str) -> Result<Content, InputError> {
    let (source, media_type) = match &part.source {
        PartSource::Data { value, mime_type } => {
            (MediaSource::Data(value.clone()), Some(mime_type.clone()))
        }
        PartSource::Url { value, mime_type } => {
            (MediaSource::Url(value.clone()), mime_type.clone())
        }
        PartSource::File { .. } => {
            return Err(InputError::ProviderFile { message: message.into() });
        }
    };
    let name = part.metadata.as_ref().and_then(|metadata| metadata.get("filename"));
    Ok(Content::Media {
        media_type: media_type.unwrap_or_else(|| default.into()),
        source,
        name: name.and_then(Value::as_str).map(Into::into),
    })
}
